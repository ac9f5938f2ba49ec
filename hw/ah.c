/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Numbers of address handles, as EFA has them: the receiver of a datagram is told the number that its PD has for
 * the sender's address, if it has one. Handles for one address share a number, for as long as there is one.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "hw/hw.h"

struct ah_entry {
	uint32_t pd, refs; /* 0: free */
	uint8_t gid[16];
};

static struct fl_mutex table_lock = FL_MUTEX_INIT(LOCK_LEAF); /* all of it */
static struct ah_entry *table;
static uint32_t slots;
static _Atomic uint32_t version;

uint32_t ah_version(void)
{
	/* pairs with changed(): who sees the new number and asks is told what is new */
	return atomic_load_explicit(&version, memory_order_acquire);
}

static void changed(void)
{
	atomic_fetch_add_explicit(&version, 1, memory_order_release);
}

/* its index, or that of the first free one if it is not there, or AH_UNKNOWN. Locked. */
static uint32_t find(uint32_t pd, const uint8_t gid[16])
{
	uint32_t free_one = AH_UNKNOWN, i;

	for (i = 0; i < slots; i++) {
		if (!table[i].refs && free_one == AH_UNKNOWN)
			free_one = i;
		if (table[i].refs && table[i].pd == pd && !memcmp(table[i].gid, gid, 16))
			return i;
	}
	return free_one;
}

static bool grow(void)
{
	uint32_t more = slots ? slots * 2 : 64;
	struct ah_entry *t = more < AH_UNKNOWN ? realloc(table, more * sizeof(*t)) : NULL;

	if (!t)
		return false;
	memset(t + slots, 0, (more - slots) * sizeof(*t));
	table = t;
	slots = more;
	return true;
}

/* In the child of a fork: the parent's handles are not its own. */
void ah_fork_child(void)
{
	fl_mutex_init(&table_lock, LOCK_LEAF);
	table = NULL; /* the heap may be amid a change */
	slots = 0;
}

int hca_ah_add(struct hca_av *av)
{
	uint32_t i;
	int rc = -ENOMEM;

	fl_lock(&table_lock);
	i = find(av->pd, av->dgid);
	if (i == AH_UNKNOWN && grow())
		i = find(av->pd, av->dgid);
	if (i != AH_UNKNOWN) {
		rc = 0;
		av->ahn = i;
		if (!table[i].refs++) {
			table[i].pd = av->pd;
			memcpy(table[i].gid, av->dgid, 16);
			changed();
		}
	}
	fl_unlock(&table_lock);
	return rc;
}

void hca_ah_remove(const struct hca_av *av)
{
	fl_lock(&table_lock);
	if (!--table[av->ahn].refs)
		changed();
	fl_unlock(&table_lock);
}

uint16_t ah_number(uint32_t pd, const uint8_t gid[16])
{
	uint32_t i;

	fl_lock(&table_lock);
	i = find(pd, gid);
	if (i != AH_UNKNOWN && !table[i].refs)
		i = AH_UNKNOWN;
	fl_unlock(&table_lock);
	return i;
}
