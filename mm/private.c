/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What of the address space is the device's own: its segment, rings, stacks, static data. A region that
 * is all of the address space leaves it out. What is on the heap is not told apart from the rest of it.
 */
#include <link.h>
#include <stdlib.h>
#include "mm/mm_internal.h"
#include "util/interval_tree.h"
#include "util/lock.h"
#include "util/log.h"

static struct fl_mutex private_lock = FL_MUTEX_INIT(LOCK_LEAF); /* the tree */
static struct interval_tree ours = INTERVAL_TREE_INIT;

void mm_private_add(const void *at, size_t len)
{
	struct interval_node *n = calloc(1, sizeof(*n));
	struct mmu_notifier_range range = {.start = (uintptr_t)at & PAGE_MASK,
					   .end = ((uintptr_t)at + len + PAGE_SIZE - 1) & PAGE_MASK,
					   .event = MMU_NOTIFY_UNMAP};

	if (!n || range.start >= range.end) {
		free(n);
		return;
	}
	n->start = range.start;
	n->end = range.end;
	fl_lock(&private_lock);
	interval_insert(&ours, n);
	fl_unlock(&private_lock);
	/* a fault that was quicker entered it: it goes again */
	mmu_notifier_invalidate_range_start(&range);
	mmu_notifier_invalidate_range_end(&range);
}

void mm_private_remove(const void *at)
{
	uint64_t start = (uintptr_t)at & PAGE_MASK;
	struct interval_node *n;

	fl_lock(&private_lock);
	n = interval_first(&ours, start, start + 1);
	if (n)
		interval_remove(&ours, n);
	fl_unlock(&private_lock);
	free(n);
}

bool mm_is_private(uint64_t start, uint64_t end)
{
	bool yes;

	fl_lock(&private_lock);
	yes = start < end && interval_first(&ours, start, end);
	fl_unlock(&private_lock);
	return yes;
}

void mm_private_thread(pthread_t thread)
{
	pthread_attr_t attr;
	void *stack;
	size_t size;

	if (pthread_getattr_np(thread, &attr))
		return;
	if (!pthread_attr_getstack(&attr, &stack, &size))
		mm_private_add(stack, size);
	pthread_attr_destroy(&attr);
}

/* the data of the library that this code is in */
static int own_data(struct dl_phdr_info *info, size_t size, void *arg)
{
	uintptr_t here = (uintptr_t)&ours;
	bool found = false;

	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];

		found |= p->p_type == PT_LOAD && here - (info->dlpi_addr + p->p_vaddr) < p->p_memsz;
	}
	for (int i = 0; found && i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];

		if (p->p_type == PT_LOAD && p->p_flags & PF_W)
			mm_private_add((void *)(info->dlpi_addr + p->p_vaddr), p->p_memsz);
	}
	return found;
}

void private_init(void)
{
	dl_iterate_phdr(own_data, NULL);
}

void private_fork_child(void)
{
	/* what the child still has of the parent's it unmaps; it adds its own */
	fl_mutex_init(&private_lock, LOCK_LEAF);
	ours = (struct interval_tree)INTERVAL_TREE_INIT;
}
