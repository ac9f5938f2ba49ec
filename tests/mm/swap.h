/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Swap and a memory limit of a test's own, as root: a zram device of which the kernel swaps to memory, and
 * a control group (version 2, else 1). What is missing is said, for a test that is skipped.
 */
#ifndef FL_TESTS_SWAP_H
#define FL_TESTS_SWAP_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/swap.h>
#include <unistd.h>

static struct {
	int zram; /* its number; -1: none */
	char group[128];
	bool v2;
} swap_env = {.zram = -1};

static inline bool swap_put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	if (fd >= 0)
		close(fd);
	return ok;
}

/* the header that mkswap(8) writes: version 1, the number of the last page, the signature */
static inline bool swap_header(const char *dev, uint64_t bytes)
{
	static char page[4096];
	uint32_t info[2] = {1, (uint32_t)(bytes / 4096 - 1)};
	int fd = open(dev, O_WRONLY | O_CLOEXEC);
	bool ok;

	memcpy(page + 1024, info, sizeof(info));
	memcpy(page + 4096 - 10, "SWAPSPACE2", 10);
	ok = fd >= 0 && write(fd, page, sizeof(page)) == sizeof(page) && !fsync(fd);
	if (fd >= 0)
		close(fd);
	return ok;
}

static inline void swap_off(void)
{
	char path[64];

	if (swap_env.zram < 0)
		return;
	snprintf(path, sizeof(path), "/dev/zram%d", swap_env.zram);
	swapoff(path);
	snprintf(path, sizeof(path), "/sys/block/zram%d/reset", swap_env.zram);
	swap_put(path, "1");
	snprintf(path, sizeof(path), "%d", swap_env.zram);
	swap_put("/sys/class/zram-control/hot_remove", path);
	swap_env.zram = -1;
}

/* NULL, or why not */
static inline const char *swap_on(uint64_t bytes)
{
	char path[64], text[32] = "";
	int fd;

	if (geteuid())
		return "swap of its own needs root";
	fd = open("/sys/class/zram-control/hot_add", O_RDONLY | O_CLOEXEC); /* to read it makes a device */
	if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0)
		return "no zram here, to swap to";
	close(fd);
	swap_env.zram = atoi(text);
	snprintf(path, sizeof(path), "/sys/block/zram%d/disksize", swap_env.zram);
	snprintf(text, sizeof(text), "%llu", (unsigned long long)bytes);
	if (!swap_put(path, text))
		goto fail;
	snprintf(path, sizeof(path), "/dev/zram%d", swap_env.zram);
	for (int i = 0; i < 100 && access(path, F_OK); i++)
		usleep(10000); /* devtmpfs, or udev */
	if (!swap_header(path, bytes) || swapon(path, 0))
		goto fail;
	return NULL;

fail:
	swap_off();
	return "no zram device could be made for swap";
}

static inline void group_remove(void)
{
	if (swap_env.group[0])
		rmdir(swap_env.group);
	swap_env.group[0] = 0;
}

/* A control group with this limit. NULL, or why not. */
static inline const char *group_make(const char *name, uint64_t bytes)
{
	static const char *const root[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/memory"};
	char path[256], text[32];

	for (int i = 0; i < 2; i++) {
		swap_env.v2 = !i;
		if (swap_env.v2) {
			char have[256] = "";
			FILE *f = fopen("/sys/fs/cgroup/cgroup.controllers", "re");

			if (!f)
				continue;
			if (!fgets(have, sizeof(have), f) || !strstr(have, "memory"))
				have[0] = 0;
			fclose(f);
			if (!have[0])
				continue;
			swap_put("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
		}
		snprintf(swap_env.group, sizeof(swap_env.group), "%s/%s-%d", root[i], name, (int)getpid());
		if (mkdir(swap_env.group, 0755))
			continue;
		snprintf(path, sizeof(path), "%s/%s", swap_env.group,
			 swap_env.v2 ? "memory.max" : "memory.limit_in_bytes");
		snprintf(text, sizeof(text), "%llu", (unsigned long long)bytes);
		if (swap_put(path, text))
			return NULL;
		group_remove();
	}
	swap_env.group[0] = 0;
	return "no memory control group could be made";
}

/* this process, and what it starts */
static inline bool group_enter(void)
{
	char path[256], text[32];

	snprintf(path, sizeof(path), "%s/cgroup.procs", swap_env.group);
	snprintf(text, sizeof(text), "%d", (int)getpid());
	return swap_put(path, text);
}

#endif
