/* SPDX-License-Identifier: BSD-2-Clause */
/* Each kind of device against each kind of importer: who gets what, where, and what moves. */
#include "importer.h"

#include <sys/mman.h>

#define PAGE 4096ul
#define MIB  (1ul << 20)

static const struct dma_buf_attach_ops no_peer = {.invalidate_mappings = importer_invalidate};
static const struct dma_buf_attach_ops no_peer_pinned = {0};

static void fill(int fd, size_t size, unsigned char byte)
{
	char *buf = malloc(size);

	memset(buf, byte, size);
	assert_int_equal(exporter_access(fd, 0, buf, size, true), 0);
	free(buf);
}

static void assert_filled(int fd, size_t size, unsigned char byte)
{
	char *buf = malloc(size);

	assert_int_equal(exporter_access(fd, 0, buf, size, false), 0);
	for (size_t i = 0; i < size; i++)
		assert_int_equal((unsigned char)buf[i], byte);
	free(buf);
}

static void memfd_for_all(void **state)
{
	struct faultline_dmabuf_device *dev = device(FAULTLINE_DMABUF_MEMFD, 0, 0);
	int fd = buffer(dev, 2 * PAGE + 1);
	char *p, byte = 0;

	assert_int_equal(lseek(fd, 0, SEEK_END), 3 * PAGE);
	assert_filled(fd, 3 * PAGE, 0);
	for (int kind = DYNAMIC; kind <= REVOCABLE; kind++) {
		struct importer im;

		/* also one that can do with system memory only */
		assert_int_equal(importer_get_ops(&im, fd, kind, kind == DYNAMIC ? &no_peer : NULL), 0);
		byte++;
		assert_int_equal(importer_dma(&im, 3 * PAGE - 1, &byte, 1, true), 0);
		assert_false(im.sgt->peer2peer);
		importer_release(&im);
		p = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0); /* the CPU, by the descriptor */
		assert_ptr_not_equal(p, MAP_FAILED);
		assert_int_equal(p[3 * PAGE - 1], byte);
		munmap(p, 3 * PAGE);
	}
	assert_int_equal(exporter_move(fd, FAULTLINE_DMABUF_SYSTEM), -EOPNOTSUPP);
	assert_int_equal(exporter_revoke(fd), -EOPNOTSUPP);
	assert_int_equal(exporter_access(fd, 3 * PAGE, &byte, 1, true), -ERANGE);
	assert_int_equal(exporter_close(dev), -EBUSY);
	close(fd);
	assert_int_equal(exporter_close(dev), 0);
	assert_nothing_left();
}

static void accel_pins_in_place(void **state)
{
	struct faultline_dmabuf_device *dev = device(FAULTLINE_DMABUF_ACCEL, MIB, 0);
	int fd = buffer(dev, MIB), more;
	struct importer im;
	uint64_t at;

	fill(fd, MIB, 7);
	assert_int_equal(exporter_alloc(dev, PAGE, 0, &more), -ENOMEM);
	assert_int_equal(device_info(dev).alloc_failures, 1);
	assert_int_equal(importer_get(&im, fd, DYNAMIC), 0);
	assert_int_equal(importer_map(&im), 0);
	assert_true(im.sgt->peer2peer);
	at = im.sgt->sgl[0].dma_address;
	importer_release(&im);
	assert_int_equal(importer_get(&im, fd, PINNED), 0);
	assert_int_equal(im.sgt->sgl[0].dma_address, at); /* where it was */
	assert_int_equal(info_of(fd).pins, 1);
	assert_int_equal(info_of(fd).place, FAULTLINE_DMABUF_DEVICE);
	importer_release(&im);
	assert_int_equal(importer_get_ops(&im, fd, PINNED, &no_peer_pinned), -EOPNOTSUPP);
	close(fd);
	assert_int_equal(device_info(dev).used, 0);
	assert_int_equal(exporter_close(dev), 0);
	assert_nothing_left();
}

static void accel_out_of_reach(void **state)
{
	struct faultline_dmabuf_device *dev = device(FAULTLINE_DMABUF_ACCEL, 0, FAULTLINE_DMABUF_NO_CPU);
	int fd = buffer(dev, PAGE);
	struct importer im;
	void *p;

	for (int kind = DYNAMIC; kind <= REVOCABLE; kind++)
		assert_int_equal(importer_get(&im, fd, kind), -EOPNOTSUPP);
	fill(fd, PAGE, 9); /* its own side works */
	assert_filled(fd, PAGE, 9);
	assert_int_equal(exporter_mmap(fd, 0, PAGE, PROT_READ, &p), -ENODEV);
	assert_ptr_equal(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0), MAP_FAILED);
	close(fd);
	assert_int_equal(exporter_close(dev), 0);

	dev = device(FAULTLINE_DMABUF_ACCEL, 0, FAULTLINE_DMABUF_NO_P2P);
	fd = buffer(dev, PAGE);
	assert_int_equal(importer_get(&im, fd, DYNAMIC), -EOPNOTSUPP);
	close(fd);
	assert_int_equal(exporter_close(dev), 0);
	assert_nothing_left();
}

/* a move: told, another place, the same bytes, and the importer finds them again */
static void vram_moves(void **state)
{
	struct faultline_dmabuf_device *dev = device(FAULTLINE_DMABUF_VRAM, MIB, 0);
	int fd = buffer(dev, 16 * PAGE);
	struct importer im;
	uint64_t at;
	char b = 0;

	fill(fd, 16 * PAGE, 0x11);
	assert_int_equal(importer_get(&im, fd, DYNAMIC), 0);
	assert_int_equal(importer_map(&im), 0);
	at = im.sgt->sgl[0].dma_address;
	assert_int_equal(exporter_move(fd, FAULTLINE_DMABUF_DEVICE), 0);
	assert_int_equal(im.told, 1);
	assert_int_equal(importer_dma(&im, 15 * PAGE, &b, 1, false), 0);
	assert_int_equal(b, 0x11);
	assert_int_not_equal(im.sgt->sgl[0].dma_address, at);
	assert_true(im.sgt->peer2peer);
	assert_int_equal(exporter_move(fd, FAULTLINE_DMABUF_SYSTEM), 0);
	assert_int_equal(im.told, 2);
	b = 0x22;
	assert_int_equal(importer_dma(&im, 15 * PAGE, &b, 1, true), 0);
	assert_false(im.sgt->peer2peer);
	assert_int_equal(device_info(dev).used, 0);
	/* the device's own use brings it back */
	assert_int_equal(exporter_access(fd, 15 * PAGE, &b, 1, false), 0);
	assert_int_equal(b, 0x22);
	assert_int_equal(info_of(fd).place, FAULTLINE_DMABUF_DEVICE);
	assert_int_equal(device_info(dev).returns, 1);
	assert_int_equal(info_of(fd).moves, 3);
	assert_int_equal(im.told, 3);
	importer_release(&im);
	close(fd);
	assert_int_equal(exporter_close(dev), 0);
	assert_nothing_left();
}

/* the least recently used goes first, a pinned one never, and its pin leaves holes */
static void vram_evicts(void **state)
{
	struct faultline_dmabuf_device *dev = device(FAULTLINE_DMABUF_VRAM, 16 * PAGE, 0);
	struct importer pinned;
	int fd[4], big, one;

	for (int i = 0; i < 4; i++) {
		fd[i] = buffer(dev, 4 * PAGE);
		fill(fd[i], 4 * PAGE, (unsigned char)(i + 1));
	}
	fill(fd[0], 4 * PAGE, 1); /* used: now 1 is the oldest */
	one = buffer(dev, PAGE);
	assert_int_equal(info_of(fd[1]).place, FAULTLINE_DMABUF_SYSTEM);
	assert_int_equal(info_of(fd[1]).evictions, 1);
	assert_int_equal(info_of(fd[0]).place, FAULTLINE_DMABUF_DEVICE);
	assert_int_equal(device_info(dev).evictions, 1);

	/* buffer 2 is [8, 12) of the memory, and stays there */
	assert_int_equal(importer_get(&pinned, fd[2], PINNED), 0);
	assert_int_equal(exporter_move(fd[2], FAULTLINE_DMABUF_SYSTEM), -EBUSY);
	assert_int_equal(exporter_evict(dev, 12 * PAGE), 0);
	assert_int_equal(exporter_evict(dev, 13 * PAGE), -ENOSPC);
	assert_int_equal(info_of(fd[2]).place, FAULTLINE_DMABUF_DEVICE);
	assert_int_equal(pinned.told, 0);
	assert_int_equal(device_info(dev).pinned, 4 * PAGE);
	assert_int_equal(device_info(dev).largest_free, 8 * PAGE); /* of 12 that are free */
	assert_int_equal(exporter_alloc(dev, 12 * PAGE, FAULTLINE_DMABUF_CONTIGUOUS, &big), -ENOMEM);
	assert_int_equal(exporter_alloc(dev, 12 * PAGE, 0, &big), 0);
	assert_int_equal(info_of(big).pieces, 2);
	fill(big, 12 * PAGE, 0x55);
	assert_filled(fd[2], 4 * PAGE, 3);
	assert_filled(big, 12 * PAGE, 0x55);
	assert_int_equal(exporter_alloc(dev, 17 * PAGE, 0, &one), -ENOMEM);
	for (int i = 0; i < 4; i++)
		assert_filled(fd[i], 4 * PAGE, (unsigned char)(i + 1)); /* evicted, and brought back, whole */
	importer_release(&pinned);
	for (int i = 0; i < 4; i++)
		close(fd[i]);
	close(big);
	close(one);
	assert_int_equal(exporter_close(dev), 0);
	assert_nothing_left();
}

/* several pieces are mapped as several */
static void vram_in_pieces(void **state)
{
	struct faultline_dmabuf_device *dev = device(FAULTLINE_DMABUF_VRAM, 8 * PAGE, 0);
	int fd[8], big;
	char buf[2 * PAGE], *p;
	struct importer im;

	for (int i = 0; i < 8; i++)
		fd[i] = buffer(dev, PAGE);
	for (int i = 0; i < 8; i += 2)
		close(fd[i]);
	big = buffer(dev, 4 * PAGE);
	assert_int_equal(info_of(big).pieces, 4);
	assert_int_equal(device_info(dev).evictions, 0);
	assert_int_equal(importer_get(&im, big, PINNED), 0);
	assert_int_equal(im.sgt->nents, 4);
	for (size_t i = 0; i < sizeof(buf); i++)
		buf[i] = (char)(i * 7 % 251);
	assert_int_equal(importer_dma(&im, PAGE + 100, buf, sizeof(buf), true), 0);
	assert_int_equal(exporter_mmap(big, PAGE, 3 * PAGE, PROT_READ | PROT_WRITE, (void **)&p), 0);
	assert_memory_equal(p + 100, buf, sizeof(buf));
	p[101] = 99;
	buf[1] = 99;
	memset(buf, 0, 1);
	assert_int_equal(exporter_access(big, PAGE + 101, buf, 1, false), 0);
	assert_int_equal(buf[0], 99);
	importer_release(&im);
	/* mapped for the CPU, it stays */
	assert_int_equal(exporter_move(big, FAULTLINE_DMABUF_SYSTEM), -EBUSY);
	assert_int_equal(exporter_munmap(big, p, 3 * PAGE), 0);
	assert_int_equal(exporter_cpu_access(big, true), 0);
	assert_int_equal(exporter_move(big, FAULTLINE_DMABUF_SYSTEM), -EBUSY);
	assert_int_equal(exporter_cpu_access(big, false), 0);
	assert_int_equal(exporter_cpu_access(big, false), -EINVAL);
	assert_int_equal(exporter_move(big, FAULTLINE_DMABUF_SYSTEM), 0);
	assert_int_equal(exporter_access(big, PAGE + 101, buf, 1, false), 0);
	assert_int_equal(buf[0], 99);
	for (int i = 1; i < 8; i += 2)
		close(fd[i]);
	close(big);
	assert_int_equal(exporter_close(dev), 0);
	assert_nothing_left();
}

/* who cannot reach device memory gets it in system memory, and it is pinned there; or not, if it cannot move */
static void vram_without_peer(void **state)
{
	struct faultline_dmabuf_device *dev = device(FAULTLINE_DMABUF_VRAM, MIB, 0);
	int fd = buffer(dev, PAGE);
	struct importer im, peer;

	fill(fd, PAGE, 5);
	assert_int_equal(importer_get_ops(&im, fd, DYNAMIC, &no_peer), 0);
	assert_int_equal(importer_map(&im), 0);
	assert_false(im.sgt->peer2peer);
	assert_int_equal(info_of(fd).place, FAULTLINE_DMABUF_SYSTEM);
	importer_release(&im);
	assert_int_equal(exporter_move(fd, FAULTLINE_DMABUF_DEVICE), 0);
	assert_int_equal(importer_get_ops(&im, fd, PINNED, &no_peer_pinned), 0);
	assert_int_equal(info_of(fd).place, FAULTLINE_DMABUF_SYSTEM);
	assert_filled(fd, PAGE, 5); /* by the device, over the bus: it may not come back */
	assert_int_equal(info_of(fd).place, FAULTLINE_DMABUF_SYSTEM);
	importer_release(&im);
	/* pinned in device memory by one who can: the other is refused */
	assert_int_equal(exporter_move(fd, FAULTLINE_DMABUF_DEVICE), 0);
	assert_int_equal(importer_get(&peer, fd, PINNED), 0);
	assert_int_equal(importer_get_ops(&im, fd, PINNED, &no_peer_pinned), -EBUSY);
	assert_int_equal(importer_get_ops(&im, fd, DYNAMIC, &no_peer), 0);
	assert_int_equal(importer_map(&im), -EBUSY);
	importer_release(&im);
	importer_release(&peer);
	close(fd);
	assert_int_equal(exporter_close(dev), 0);

	dev = device(FAULTLINE_DMABUF_VRAM, MIB, FAULTLINE_DMABUF_NO_P2P);
	fd = buffer(dev, PAGE);
	assert_int_equal(importer_get(&im, fd, PINNED), 0);
	assert_false(im.sgt->peer2peer);
	importer_release(&im);
	close(fd);
	assert_int_equal(exporter_close(dev), 0);

	dev = device(FAULTLINE_DMABUF_VRAM, MIB, FAULTLINE_DMABUF_NO_PIN);
	fd = buffer(dev, PAGE);
	assert_int_equal(importer_get(&im, fd, PINNED), -EOPNOTSUPP);
	assert_int_equal(importer_get(&im, fd, DYNAMIC), 0);
	assert_int_equal(importer_map(&im), 0);
	importer_release(&im);
	close(fd);
	assert_int_equal(exporter_close(dev), 0);
	assert_nothing_left();
}

static void vfio_revokes(void **state)
{
	struct faultline_dmabuf_device *dev = device(FAULTLINE_DMABUF_VFIO, MIB, 0);
	int fd = buffer(dev, PAGE);
	struct importer dynamic, pinned, no;
	char b = 3;
	void *p;

	assert_int_equal(importer_get(&no, fd, PINNED), -EOPNOTSUPP);
	assert_int_equal(importer_get(&dynamic, fd, DYNAMIC), 0);
	assert_int_equal(importer_get(&pinned, fd, REVOCABLE), 0);
	assert_int_equal(importer_dma(&dynamic, 0, &b, 1, true), 0);
	assert_int_equal(importer_dma(&pinned, 0, &b, 1, false), 0);
	assert_int_equal(exporter_mmap(fd, 0, PAGE, PROT_READ, &p), -ENODEV);
	assert_int_equal(exporter_revoke(fd), 0);
	assert_int_equal(pinned.told, 1);
	assert_true(pinned.revoked);
	/* dead when revoke returns, with its map and pin undone once; release undoes nothing again */
	assert_int_equal(info_of(fd).maps + info_of(fd).pins, 0);
	assert_int_equal(info_of(fd).revoked, 1);
	assert_int_equal(importer_dma(&pinned, 0, &b, 1, false), -ENODEV);
	assert_int_equal(importer_dma(&dynamic, 0, &b, 1, false), -ENODEV);
	assert_int_equal(exporter_access(fd, 0, &b, 1, false), -ENODEV);
	assert_int_equal(importer_get(&no, fd, REVOCABLE), -ENODEV);
	assert_int_equal(exporter_revoke(fd), -EALREADY);
	importer_release(&pinned);
	importer_release(&dynamic);
	close(fd);
	assert_int_equal(exporter_close(dev), 0);
	assert_nothing_left();
}

/* whatever fails, nothing is left behind */
static void failures(void **state)
{
	static const struct {
		enum faultline_dmabuf_kind kind;
		enum importer_kind importer;
	} on[] = {
		{FAULTLINE_DMABUF_MEMFD, PINNED}, {FAULTLINE_DMABUF_ACCEL, PINNED},
		{FAULTLINE_DMABUF_VRAM, PINNED}, {FAULTLINE_DMABUF_VFIO, REVOCABLE},
	};

	for (unsigned i = 0; i < sizeof(on) / sizeof(on[0]); i++) {
		struct faultline_dmabuf_device *dev = device(on[i].kind, MIB, 0);
		int fd = buffer(dev, PAGE);
		struct importer im;

		for (int call = FAULTLINE_DMABUF_CALL_ATTACH; call <= FAULTLINE_DMABUF_CALL_MAP; call++) {
			assert_int_equal(exporter_fail(fd, call, EIO), 0);
			assert_int_equal(importer_get(&im, fd, on[i].importer), -EIO);
			assert_int_equal(info_of(fd).attachments + info_of(fd).maps + info_of(fd).pins, 0);
			assert_int_equal(importer_get(&im, fd, on[i].importer), 0); /* once */
			importer_release(&im);
		}
		assert_int_equal(exporter_fail(fd, 3, EIO), -EINVAL);
		close(fd);
		assert_int_equal(exporter_close(dev), 0);
	}
	assert_nothing_left();
}

static void bad_arguments(void **state)
{
	struct faultline_dmabuf_device *dev;
	int fd;

	assert_int_equal(exporter_open(&(struct faultline_dmabuf_device_attr){.kind = 9}, &dev), -EINVAL);
	assert_int_equal(exporter_open(&(struct faultline_dmabuf_device_attr){.kind = FAULTLINE_DMABUF_MEMFD,
									     .flags = FAULTLINE_DMABUF_NO_PIN},
				       &dev),
			 -EINVAL);
	assert_int_equal(exporter_open(&(struct faultline_dmabuf_device_attr){.kind = FAULTLINE_DMABUF_VRAM,
									     .size = SIZE_MAX},
				       &dev),
			 -EINVAL);
	dev = device(FAULTLINE_DMABUF_ACCEL, MIB, 0);
	assert_int_equal(exporter_alloc(dev, 0, 0, &fd), -EINVAL);
	assert_int_equal(exporter_alloc(dev, SIZE_MAX, 0, &fd), -EINVAL);
	assert_int_equal(exporter_alloc(dev, PAGE, FAULTLINE_DMABUF_CONTIGUOUS, &fd), -EINVAL);
	assert_int_equal(exporter_evict(dev, 1), -EOPNOTSUPP);
	assert_int_equal(exporter_close(dev), 0);
	assert_nothing_left();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memfd_for_all),  cmocka_unit_test(accel_pins_in_place),
		cmocka_unit_test(accel_out_of_reach), cmocka_unit_test(vram_moves),
		cmocka_unit_test(vram_evicts),	  cmocka_unit_test(vram_in_pieces),
		cmocka_unit_test(vram_without_peer), cmocka_unit_test(vfio_revokes),
		cmocka_unit_test(failures),	  cmocka_unit_test(bad_arguments),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
