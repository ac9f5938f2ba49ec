/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A device's memory that is mapped into the process has no pages behind it. By its address it cannot be registered
 * (EFAULT), nor be reached through an on-demand region; through its dma-buf it can. So it is of a device in software,
 * however it was mapped, and of what the kernel itself maps so ([vvar]). System memory lent as a dma-buf is like any.
 */
#include <faultline/dmabuf.h>
#include <unistd.h>
#include "rc.h"

#define SIZE (4 * PAGE)

static struct rc_side a, b;
static uint8_t *buf;
static struct ibv_mr *buf_mr;

static enum ibv_wc_status rdma(enum ibv_wr_opcode op, uint64_t at, uint32_t len, struct ibv_mr *mr)
{
	rc_pair(&a, &b, &rc_default);
	CHECK(!rc_post(&a, op, (uintptr_t)buf, len, buf_mr->lkey, at, mr->rkey), "post");
	return rc_wait(&a);
}

/* nor is a part of it */
static void not_pinned(const char *what, uint8_t *at, size_t len, int access)
{
	CHECK(!ibv_reg_mr(b.pd, at, len, access) && errno == EFAULT, "%s, by address: %s", what, strerror(errno));
	CHECK(!ibv_reg_mr(b.pd, at + 100, 1, access) && errno == EFAULT, "%s, a byte: %s", what, strerror(errno));
}

static void not_on_demand(const char *what, uint8_t *at, struct ibv_mr *mr, bool write)
{
	enum ibv_wc_status s = rdma(IBV_WR_RDMA_READ, (uintptr_t)at, 64, mr);

	CHECK(s == IBV_WC_REM_ACCESS_ERR, "%s, READ on demand: %s", what, ibv_wc_status_str(s));
	if (!write)
		return;
	memset(buf, 9, 64);
	s = rdma(IBV_WR_RDMA_WRITE, (uintptr_t)at, 64, mr);
	CHECK(s == IBV_WC_REM_ACCESS_ERR, "%s, WRITE on demand: %s", what, ibv_wc_status_str(s));
	CHECK(at[0] != 9, "%s: was written", what);
}

static void by_address(const char *what, uint8_t *at)
{
	struct ibv_mr *mr, *all = ibv_reg_mr(b.pd, NULL, SIZE_MAX, ALL_ACCESS | ODP);

	not_pinned(what, at, SIZE, ALL_ACCESS);
	mr = rc_reg(&b, at, SIZE, ALL_ACCESS | ODP); /* which looks at no page */
	not_on_demand(what, at + PAGE, mr, true);
	if (all) {
		not_on_demand(what, at + PAGE, all, true);
		CHECK(!ibv_dereg_mr(all), "dereg");
	}
	/* and a region that has it in its middle goes on where it is not */
	CHECK(mmap(at + PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at + PAGE,
	      "mmap");
	CHECK(rdma(IBV_WR_RDMA_WRITE, (uintptr_t)at + PAGE, PAGE, mr) == IBV_WC_SUCCESS, "%s: memory in its place", what);
	CHECK(rdma(IBV_WR_RDMA_WRITE, (uintptr_t)at, 2 * PAGE, mr) == IBV_WC_REM_ACCESS_ERR, "%s: both", what);
	CHECK(!ibv_dereg_mr(mr), "dereg");
	not_pinned(what, at, SIZE, ALL_ACCESS);
	mr = rc_reg(&b, at + PAGE, PAGE, ALL_ACCESS);
	CHECK(!ibv_dereg_mr(mr), "dereg");
}

static void through_dmabuf(const char *what, int fd)
{
	struct ibv_mr *mr = ibv_reg_dmabuf_mr(b.pd, 0, SIZE, 0, fd, ALL_ACCESS);
	uint8_t seen[64];

	CHECK(mr, "%s, by its dma-buf: %s", what, strerror(errno));
	rc_fill(buf, 64, 0, 5);
	CHECK(rdma(IBV_WR_RDMA_WRITE, PAGE, 64, mr) == IBV_WC_SUCCESS, "%s: WRITE", what);
	CHECK(!faultline_dmabuf_read(fd, seen, PAGE, 64) && rc_differs(seen, 64, 0, 5) == UINT64_MAX, "%s: data", what);
	CHECK(!ibv_dereg_mr(mr), "dereg");
}

static void device(const char *what, enum faultline_dmabuf_kind kind, bool by_fd)
{
	struct faultline_dmabuf_device_attr attr = {.kind = kind};
	struct faultline_dmabuf_device *dev;
	void *at;
	int fd, err = faultline_dmabuf_open(&attr, &dev) ?: faultline_dmabuf_alloc(dev, SIZE, 0, &fd);

	if (!err && !by_fd)
		err = faultline_dmabuf_mmap(fd, 0, SIZE, PROT_READ | PROT_WRITE, &at);
	CHECK(!err, "%s: %s", what, strerror(err));
	if (by_fd)
		at = rc_map_as(SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd);
	if (kind == FAULTLINE_DMABUF_MEMFD) {
		struct ibv_mr *mr = rc_reg(&b, at, SIZE, ALL_ACCESS);

		CHECK(rdma(IBV_WR_RDMA_READ, (uintptr_t)at, 64, mr) == IBV_WC_SUCCESS, "%s: READ", what);
		CHECK(!ibv_dereg_mr(mr), "dereg");
	} else {
		by_address(what, at);
	}
	through_dmabuf(what, fd);
	CHECK(!(by_fd ? munmap(at, SIZE) : faultline_dmabuf_munmap(fd, at, SIZE)), "munmap");
	CHECK(!close(fd) && !faultline_dmabuf_close(dev), "%s: in use", what);
}

/* what the kernel shares with every process, for clock_gettime() */
static uint8_t *kernels(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	char line[512];
	unsigned long start = 0;

	CHECK(f, "/proc/self/maps");
	while (fgets(line, sizeof(line), f))
		if (strstr(line, "[vvar]") && sscanf(line, "%lx", &start) == 1)
			break;
	fclose(f);
	return (uint8_t *)start;
}

int main(int argc, char **argv)
{
	uint8_t *vvar = kernels();

	rc_main(argc, argv);
	rc_open(&a);
	rc_open(&b);
	buf = rc_map(SIZE);
	buf_mr = rc_reg(&a, buf, SIZE, ALL_ACCESS);
	if (vvar) {
		struct ibv_mr *mr = rc_reg(&b, vvar, PAGE, IBV_ACCESS_REMOTE_READ | ODP);

		not_pinned("[vvar]", vvar, PAGE, IBV_ACCESS_REMOTE_READ);
		not_on_demand("[vvar]", vvar, mr, false);
		CHECK(!ibv_dereg_mr(mr), "dereg");
	}
	device("system memory", FAULTLINE_DMABUF_MEMFD, true);
	device("accelerator", FAULTLINE_DMABUF_ACCEL, true);
	device("accelerator, by the library", FAULTLINE_DMABUF_ACCEL, false);
	device("GPU", FAULTLINE_DMABUF_VRAM, false);
	CHECK(!ibv_dereg_mr(buf_mr), "dereg");
	rc_close(&a);
	rc_close(&b);
	return 0;
}
