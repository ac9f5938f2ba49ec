/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kernel's own dma-bufs, udmabuf and dma-heap: what RDMA writes the CPU reads through its own mapping, and the
 * other way round. Skipped where there is neither device, or no right to it.
 */
#include <fcntl.h>
#include <linux/dma-heap.h>
#include <linux/udmabuf.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include "rc.h"

#define SIZE (64 * PAGE)
#define OFF  (2 * PAGE + 128)
#define LEN  (SIZE - OFF - 4096)

static int from_udmabuf(void)
{
	struct udmabuf_create create = {.flags = UDMABUF_FLAGS_CLOEXEC, .size = SIZE};
	int dev = open("/dev/udmabuf", O_RDWR | O_CLOEXEC), mem = memfd_create("lent", MFD_CLOEXEC | MFD_ALLOW_SEALING), fd;

	if (dev < 0)
		return -1;
	CHECK(!ftruncate(mem, SIZE) && !fcntl(mem, F_ADD_SEALS, F_SEAL_SHRINK), "memfd");
	create.memfd = (uint32_t)mem;
	fd = ioctl(dev, UDMABUF_CREATE, &create);
	CHECK(fd >= 0, "UDMABUF_CREATE: %s", strerror(errno));
	close(mem);
	close(dev);
	return fd;
}

static int from_heap(void)
{
	struct dma_heap_allocation_data alloc = {.len = SIZE, .fd_flags = O_RDWR | O_CLOEXEC};
	int dev = open("/dev/dma_heap/system", O_RDWR | O_CLOEXEC);

	if (dev < 0)
		return -1;
	CHECK(!ioctl(dev, DMA_HEAP_IOCTL_ALLOC, &alloc), "DMA_HEAP_IOCTL_ALLOC: %s", strerror(errno));
	close(dev);
	return (int)alloc.fd;
}

static void use(struct rc_side *a, int fd, const char *what)
{
	uint8_t *cpu = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), *m = rc_map(SIZE);
	struct ibv_mr *host = rc_reg(a, m, SIZE, IBV_ACCESS_LOCAL_WRITE), *mr;
	uint64_t word;

	CHECK(cpu != MAP_FAILED, "%s: mmap: %s", what, strerror(errno));
	mr = ibv_reg_dmabuf_mr(a->pd, OFF, LEN, 128, fd, ALL_ACCESS);
	CHECK(mr, "%s: ibv_reg_dmabuf_mr: %s", what, strerror(errno));
	close(fd); /* the region has its own */

	rc_fill(m, LEN, 0, 1);
	CHECK(!rc_post(a, IBV_WR_RDMA_WRITE, (uintptr_t)m, LEN, host->lkey, 128, mr->rkey), "post");
	rc_expect(a, IBV_WC_SUCCESS);
	CHECK(rc_differs(cpu + OFF, LEN, 0, 1) == UINT64_MAX, "%s: WRITE", what);
	CHECK(!cpu[OFF - 1] && !cpu[OFF + LEN], "%s: WRITE goes beyond", what);

	rc_fill(cpu + OFF, LEN, 0, 2);
	CHECK(!rc_post(a, IBV_WR_RDMA_READ, (uintptr_t)m, LEN, host->lkey, 128, mr->rkey), "post");
	rc_expect(a, IBV_WC_SUCCESS);
	CHECK(rc_differs(m, LEN, 0, 2) == UINT64_MAX, "%s: READ", what);

	memset(cpu + OFF + 64, 0, 8);
	CHECK(!rc_post_atomic(a, IBV_WR_ATOMIC_FETCH_AND_ADD, (uintptr_t)m, host->lkey, 128 + 64, mr->rkey, 77, 0), "post");
	rc_expect(a, IBV_WC_SUCCESS);
	memcpy(&word, cpu + OFF + 64, 8);
	CHECK(word == 77, "%s: atomic", what);
	CHECK(!ibv_dereg_mr(mr) && !ibv_dereg_mr(host), "ibv_dereg_mr: %s", strerror(errno));
	munmap(cpu, SIZE);
	munmap(m, SIZE);
	printf("%s: data right\n", what);
}

int main(int argc, char **argv)
{
	int udmabuf = from_udmabuf(), heap = from_heap();
	struct rc_side a;

	if (udmabuf < 0 && heap < 0)
		rc_skip("neither /dev/udmabuf nor /dev/dma_heap/system can be opened");
	rc_open(&a);
	rc_make_qp(&a, &rc_default);
	rc_connect(&a, &a.me);
	if (udmabuf >= 0)
		use(&a, udmabuf, "udmabuf");
	if (heap >= 0)
		use(&a, heap, "dma-heap");
	rc_close(&a);
	return 0;
}
