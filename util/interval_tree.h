/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A balanced tree of intervals [start, end) that may overlap, for the question "which of them touch
 * this range": a treap by start, each node carrying the greatest end below it. Nodes are embedded or
 * allocated by the owner; nothing is allocated here. No locking.
 */
#ifndef FL_UTIL_INTERVAL_TREE_H
#define FL_UTIL_INTERVAL_TREE_H

#include <stdbool.h>
#include <stdint.h>

struct interval_node {
	uint64_t start, end; /* set by the owner; not to change while in a tree */
	uint64_t max_end;
	struct interval_node *left, *right, *parent;
	uint32_t prio;
};

struct interval_tree {
	struct interval_node *root;
	uint32_t seed;
};

#define INTERVAL_TREE_INIT {.root = NULL, .seed = 1}

/* start < end */
void interval_insert(struct interval_tree *t, struct interval_node *n);
void interval_remove(struct interval_tree *t, struct interval_node *n);

/* nodes that overlap [start, end), in order of their start; NULL when there are no more */
struct interval_node *interval_first(const struct interval_tree *t, uint64_t start, uint64_t end);
struct interval_node *interval_next(struct interval_node *n, uint64_t start, uint64_t end);

/*
 * The next part of [*start, end) that no node covers: true, and [*gap_start, *gap_end); *start is
 * moved past it. Call until false.
 */
bool interval_next_gap(const struct interval_tree *t, uint64_t *start, uint64_t end,
		       uint64_t *gap_start, uint64_t *gap_end);

#endif
