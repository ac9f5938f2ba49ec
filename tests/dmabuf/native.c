/* SPDX-License-Identifier: BSD-2-Clause */
/* <faultline/dmabuf.h> as a program has it: every call once, on the device; or on a libibverbs that is not ours. */
#include <errno.h>
#include <faultline/dmabuf.h>
#include <infiniband/verbs.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "tests/native/check.h"

static struct faultline_dmabuf_device *device(enum faultline_dmabuf_kind kind)
{
	struct faultline_dmabuf_device_attr attr = {.kind = kind, .size = 8 * PAGE, .name = "a device"};
	struct faultline_dmabuf_device *dev;

	CHECK(!faultline_dmabuf_open(&attr, &dev));
	return dev;
}

static void gpu(void)
{
	struct faultline_dmabuf_device *dev = device(FAULTLINE_DMABUF_VRAM);
	struct faultline_dmabuf_device_info d;
	struct faultline_dmabuf_info i;
	char b[4], *p;
	int fd, other;

	CHECK(!faultline_dmabuf_alloc(dev, 5 * PAGE, FAULTLINE_DMABUF_CONTIGUOUS, &fd));
	CHECK(!faultline_dmabuf_write(fd, 2 * PAGE - 2, "four", 4));
	CHECK(!faultline_dmabuf_move(fd, FAULTLINE_DMABUF_SYSTEM) && faultline_dmabuf_revoke(fd) == EOPNOTSUPP);
	CHECK(!faultline_dmabuf_info(fd, &i) && i.place == FAULTLINE_DMABUF_SYSTEM && i.moves == 1);
	CHECK(i.size == 5 * PAGE && i.kind == FAULTLINE_DMABUF_VRAM);
	CHECK(!faultline_dmabuf_read(fd, b, 2 * PAGE - 2, 4) && !memcmp(b, "four", 4));
	CHECK(!faultline_dmabuf_alloc(dev, 5 * PAGE, 0, &other)); /* evicts it */
	CHECK(!faultline_dmabuf_device_info(dev, &d) && d.size == 8 * PAGE && d.used == 5 * PAGE && d.evictions == 1);
	CHECK(!faultline_dmabuf_mmap(fd, PAGE, PAGE, PROT_READ | PROT_WRITE, (void **)&p));
	CHECK(!memcmp(p + PAGE - 2, "fo", 2) && faultline_dmabuf_move(fd, FAULTLINE_DMABUF_DEVICE) == EBUSY);
	CHECK(!faultline_dmabuf_munmap(fd, p, PAGE));
	CHECK(!faultline_dmabuf_begin_cpu_access(fd) && faultline_dmabuf_move(fd, FAULTLINE_DMABUF_DEVICE) == EBUSY);
	CHECK(!faultline_dmabuf_end_cpu_access(fd) && !faultline_dmabuf_evict(dev, 8 * PAGE));
	CHECK(faultline_dmabuf_read(fd, b, 5 * PAGE - 3, 4) == ERANGE);
	CHECK(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED);
	CHECK(faultline_dmabuf_close(dev) == EBUSY);
	CHECK(!close(fd) && !close(other) && !faultline_dmabuf_close(dev));
	CHECK(faultline_dmabuf_info(fd, &i) == EBADF && faultline_dmabuf_info(0, &i) == EINVAL);
}

static void vfio(void)
{
	struct faultline_dmabuf_device *dev = device(FAULTLINE_DMABUF_VFIO);
	char b;
	int fd;

	CHECK(!faultline_dmabuf_alloc(dev, 1, 0, &fd) && lseek(fd, 0, SEEK_END) == PAGE);
	CHECK(!faultline_dmabuf_fail(fd, FAULTLINE_DMABUF_CALL_MAP, ENOSPC));
	CHECK(!faultline_dmabuf_read(fd, &b, 0, 1) && !faultline_dmabuf_revoke(fd));
	CHECK(faultline_dmabuf_read(fd, &b, 0, 1) == ENODEV && !close(fd) && !faultline_dmabuf_close(dev));
}

int main(int argc, char **argv)
{
	struct ibv_device **list = ibv_get_device_list(NULL); /* links to libibverbs, as a program with a NIC does */
	struct faultline_dmabuf_device_attr attr = {.kind = FAULTLINE_DMABUF_ACCEL};
	struct faultline_dmabuf_device *dev;
	struct faultline_dmabuf_totals t;

	if (list)
		ibv_free_device_list(list);
	if (argc > 1) { /* without the device */
		CHECK(faultline_dmabuf_open(&attr, &dev) == EOPNOTSUPP && faultline_dmabuf_totals(&t) == EOPNOTSUPP);
		CHECK(faultline_dmabuf_revoke(0) == EOPNOTSUPP);
		return 0;
	}
	gpu();
	vfio();
	CHECK(!faultline_dmabuf_totals(&t) && !t.buffers && !t.attachments && !t.maps && !t.pins && !t.rule_breaks);
	CHECK(t.moves && t.evictions);
	return 0;
}
