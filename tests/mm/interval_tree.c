/* SPDX-License-Identifier: BSD-2-Clause */
/* The interval tree against a plain list, over random insertions, removals and queries. */
#include "tests/mm/mmtest.h"
#include "util/interval_tree.h"

#define N 200

static struct interval_node node[N];
static bool in[N];

static void invariants(const struct interval_node *n, const struct interval_node *parent)
{
	uint64_t m;

	if (!n)
		return;
	CHECK(n->parent == parent);
	CHECK(!parent || n->prio <= parent->prio);
	m = n->end;
	if (n->left) {
		CHECK(n->left->start <= n->start);
		m = n->left->max_end > m ? n->left->max_end : m;
	}
	if (n->right) {
		CHECK(n->right->start >= n->start);
		m = n->right->max_end > m ? n->right->max_end : m;
	}
	CHECK(n->max_end == m);
	invariants(n->left, n);
	invariants(n->right, n);
}

static void query(const struct interval_tree *t, uint64_t s, uint64_t e)
{
	bool seen[N] = {false}, covered[300] = {false};
	uint64_t last = 0, at = s, from, to;
	struct interval_node *n;

	for (n = interval_first(t, s, e); n; n = interval_next(n, s, e)) {
		CHECK(n->start >= last && !seen[n - node]);
		last = n->start;
		seen[n - node] = true;
	}
	for (int i = 0; i < N; i++)
		CHECK(seen[i] == (in[i] && node[i].start < e && node[i].end > s));
	for (int i = 0; i < N; i++)
		for (uint64_t k = node[i].start; in[i] && k < node[i].end; k++)
			covered[k] = true;
	while (interval_next_gap(t, &at, e, &from, &to)) {
		CHECK(from < to && from >= s && to <= e && at == to);
		for (uint64_t k = from; k < to; k++) {
			CHECK(!covered[k]);
			covered[k] = true;
		}
	}
	for (uint64_t k = s; k < e; k++)
		CHECK(covered[k]);
}

int main(void)
{
	struct interval_tree t = INTERVAL_TREE_INIT;

	srandom(7);
	for (int r = 0; r < 20000; r++) {
		int i = (int)(random() % N);
		uint64_t s = (uint64_t)random() % 250;

		if (in[i]) {
			interval_remove(&t, &node[i]);
		} else {
			node[i].start = (uint64_t)random() % 250;
			node[i].end = node[i].start + 1 + (uint64_t)random() % (r % 3 ? 10 : 45);
			interval_insert(&t, &node[i]);
		}
		in[i] = !in[i];
		if (!(r % 16))
			invariants(t.root, NULL);
		query(&t, s, s + 1 + (uint64_t)random() % 50);
	}
	return 0;
}
