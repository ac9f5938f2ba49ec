/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What peers know by a number (QPs, SRQs): the number's upper bits are the process's slot, the rest an index
 * into a table. Memory is type-stable: what an index had once stays an object of that kind for the life of the
 * process. Numbers go round, so that one is not used again at once.
 */
#include <stdlib.h>
#include "hw/hw.h"

/* An unused place, if need be with a new object of size bytes, all zero but for init(). */
static struct numbered *claim(struct numbers *t, uint32_t index, size_t size, void (*init)(struct numbered *))
{
	struct numbered *n = atomic_load_explicit(&t->v[index], memory_order_relaxed);

	if (n)
		return n->claimed ? NULL : n;
	n = calloc(1, size);
	if (!n)
		return NULL;
	n->index = index;
	init(n);
	/* pairs with number_get(): it is initialised when it can be seen; sequential for srq_detach_qps() */
	atomic_store_explicit(&t->v[index], n, memory_order_seq_cst);
	return n;
}

struct numbered *number_claim(struct numbers *t, size_t size, void (*init)(struct numbered *))
{
	struct numbered *n = NULL;
	uint32_t i;

	fl_lock(&t->lock);
	for (i = 0; !n && i < QP_MAX - QP_FIRST; i++)
		n = claim(t, QP_FIRST + (t->next + i) % (QP_MAX - QP_FIRST), size, init);
	if (n) {
		n->claimed = true;
		t->next = n->index - QP_FIRST + 1;
	}
	fl_unlock(&t->lock);
	return n;
}

void number_release(struct numbers *t, struct numbered *n)
{
	fl_lock(&t->lock);
	n->claimed = false;
	fl_unlock(&t->lock);
}
