/* SPDX-License-Identifier: BSD-2-Clause */
/* Interval tree: see the header. Heap order by prio (random), search order by (start, address). */
#include <stddef.h>
#include "util/interval_tree.h"

static uint64_t max_of(const struct interval_node *n)
{
	uint64_t m = n->end;

	if (n->left && n->left->max_end > m)
		m = n->left->max_end;
	if (n->right && n->right->max_end > m)
		m = n->right->max_end;
	return m;
}

static void fix_up(struct interval_node *n)
{
	for (; n; n = n->parent)
		n->max_end = max_of(n);
}

static struct interval_node **link_of(struct interval_tree *t, struct interval_node *n)
{
	if (!n->parent)
		return &t->root;
	return n->parent->left == n ? &n->parent->left : &n->parent->right;
}

/* c, a child of p, takes its place */
static void rotate_up(struct interval_tree *t, struct interval_node *p, struct interval_node *c)
{
	struct interval_node *inner;

	*link_of(t, p) = c;
	c->parent = p->parent;
	if (p->left == c) {
		inner = c->right;
		p->left = inner;
		c->right = p;
	} else {
		inner = c->left;
		p->right = inner;
		c->left = p;
	}
	if (inner)
		inner->parent = p;
	p->parent = c;
	p->max_end = max_of(p);
	c->max_end = max_of(c);
}

static bool before(const struct interval_node *a, const struct interval_node *b)
{
	return a->start != b->start ? a->start < b->start : (uintptr_t)a < (uintptr_t)b;
}

void interval_insert(struct interval_tree *t, struct interval_node *n)
{
	struct interval_node *p = NULL, **link = &t->root;

	t->seed = t->seed * 1664525u + 1013904223u;
	n->prio = t->seed ^ t->seed >> 15;
	n->left = n->right = NULL;
	n->max_end = n->end;
	while (*link) {
		p = *link;
		link = before(n, p) ? &p->left : &p->right;
	}
	n->parent = p;
	*link = n;
	fix_up(p);
	while (n->parent && n->prio > n->parent->prio)
		rotate_up(t, n->parent, n);
}

void interval_remove(struct interval_tree *t, struct interval_node *n)
{
	struct interval_node *p;

	while (n->left || n->right) {
		struct interval_node *c = n->left;

		if (!c || (n->right && n->right->prio > c->prio))
			c = n->right;
		rotate_up(t, n, c);
	}
	p = n->parent;
	*link_of(t, n) = NULL;
	n->parent = NULL;
	fix_up(p);
}

/* the leftmost node below n that overlaps */
static struct interval_node *first_below(struct interval_node *n, uint64_t start, uint64_t end)
{
	while (n && n->max_end > start) {
		if (n->left && n->left->max_end > start) {
			/* someone on the left ends late enough: if no overlap is there, all starts here
			 * and to the right are too late as well */
			n = n->left;
			continue;
		}
		if (n->start >= end)
			return NULL;
		if (n->end > start)
			return n;
		n = n->right;
	}
	return NULL;
}

struct interval_node *interval_first(const struct interval_tree *t, uint64_t start, uint64_t end)
{
	return first_below(t->root, start, end);
}

struct interval_node *interval_next(struct interval_node *n, uint64_t start, uint64_t end)
{
	struct interval_node *r = first_below(n->right, start, end);

	if (r)
		return r;
	for (; n->parent; n = n->parent) {
		struct interval_node *p = n->parent;

		if (p->left != n)
			continue;
		if (p->start >= end)
			return NULL;
		if (p->end > start)
			return p;
		r = first_below(p->right, start, end);
		if (r)
			return r;
	}
	return NULL;
}

bool interval_next_gap(const struct interval_tree *t, uint64_t *start, uint64_t end,
		       uint64_t *gap_start, uint64_t *gap_end)
{
	uint64_t at = *start;
	struct interval_node *n;

	/* nodes come by start: walk while they leave no gap before them */
	for (n = interval_first(t, at, end); n && n->start <= at; n = interval_next(n, at, end))
		if (n->end > at)
			at = n->end;
	if (at >= end) {
		*start = end;
		return false;
	}
	*gap_start = at;
	*gap_end = n && n->start < end ? n->start : end;
	*start = *gap_end;
	return true;
}
