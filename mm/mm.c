/* SPDX-License-Identifier: BSD-2-Clause */
/* Start and fork of this room. */
#include "mm/mm_internal.h"

int mm_init(const struct fl_config *cfg)
{
	int ret = guard_init();

	if (ret)
		return ret;
	vma_init(cfg);
	pin_init(cfg);
	uffd_init(cfg);
	hooks_init();
	private_init();
	return 0;
}

void mm_fork_child(void)
{
	notifier_fork_child();
	reclaim_fork_child();
	private_fork_child();
	hooks_fork_child();
	uffd_fork_child();
	pin_fork_child();
	vma_fork_child();
}
