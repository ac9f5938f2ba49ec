/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Importing dma-bufs in each of the three ways: data, moves, revocation, what is refused, what fails half-way;
 * and that nothing is left behind of any of it.
 */
#include "dmabuf/exporter.h"
#include "tests/umem/umemtest.h"
#include "umem/umem_dmabuf.h"

#define RW (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

enum kind { DYNAMIC, PINNED, REVOCABLE, KINDS };

static struct faultline_mr stat_of_mr;
static unsigned revocations;

static void revoked(void *priv)
{
	dma_wait_key(KEY);
	revocations++;
}

static int get_access(enum kind kind, uint64_t offset, size_t size, int fd, unsigned access, struct ib_umem **u)
{
	int err;

	memset(&stat_of_mr, 0, sizeof(stat_of_mr));
	revocations = 0;
	if (kind == DYNAMIC)
		err = ib_umem_dmabuf_get(&dev, offset, size, fd, access, u);
	else if (kind == PINNED)
		err = ib_umem_dmabuf_get_pinned(&dev, offset, size, fd, access, u);
	else
		err = ib_umem_dmabuf_get_pinned_revocable_and_lock(&dev, offset, size, fd, access, u);
	if (err)
		return err;
	(*u)->stat = &stat_of_mr;
	ib_umem_dmabuf_publish(*u);
	if (kind == REVOCABLE) {
		ib_umem_dmabuf_set_revoke_locked(*u, revoked, NULL);
		ib_umem_dmabuf_revoke_unlock(*u);
	}
	return 0;
}

static int get(enum kind kind, uint64_t offset, size_t size, int fd, struct ib_umem **u)
{
	return get_access(kind, offset, size, fd, RW, u);
}

static struct faultline_dmabuf_device *device(enum faultline_dmabuf_kind kind, size_t size, unsigned flags)
{
	struct faultline_dmabuf_device *d;

	CHECK(!exporter_open(&(struct faultline_dmabuf_device_attr){.kind = kind, .size = size, .flags = flags}, &d));
	return d;
}

static int buffer(struct faultline_dmabuf_device *d, size_t size)
{
	int fd;

	CHECK(!exporter_alloc(d, size, 0, &fd));
	return fd;
}

static struct faultline_dmabuf_info info(int fd)
{
	struct faultline_dmabuf_info i;

	CHECK(!exporter_info(fd, &i));
	return i;
}

/* of importers: whatever buffers there are */
static void nobody_imports(void)
{
	struct faultline_dmabuf_totals t;

	CHECK(!exporter_totals(&t));
	CHECK(!t.attachments && !t.maps && !t.pins && !t.rule_breaks);
	CHECK(!ib_dma_mapped(&dev) && cnt(FL_CNT_dma_maps) == cnt(FL_CNT_dma_unmaps));
	CHECK(!cnt(FL_CNT_pinned_pages) && !cnt(FL_CNT_mapped_pages));
	CHECK(!cnt(FL_CNT_dmabuf_attachments) && !cnt(FL_CNT_dmabuf_pins));
	CHECK(cnt(FL_CNT_dmabuf_maps) == cnt(FL_CNT_dmabuf_unmaps));
}

static void end(struct faultline_dmabuf_device *d, int fd)
{
	struct faultline_dmabuf_totals t;

	CHECK(!close(fd) && !exporter_close(d) && !exporter_totals(&t) && !t.buffers);
	nobody_imports();
}

static void fill(uint8_t *p, size_t n, unsigned seed)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)((i * 167 + seed * 31 + i / 251) ^ i >> 8);
}

/* ---- data ---- */

/* all of what can be at a place: bytes in and out, at odd places, an atomic, and nothing beside them */
static void use(struct ib_umem *u, int fd, size_t buffer_size)
{
	uint8_t *is = malloc(buffer_size), *want = malloc(buffer_size), some[3 * P];
	uint64_t orig = 0, at = (u->address + 64) & ~7ul, value;

	CHECK(is && want);
	fill(want, buffer_size, 1);
	CHECK(!exporter_access(fd, 0, want, buffer_size, true));
	CHECK(!ib_umem_copy_from(is, u, KEY, 0, u->length));
	CHECK(!memcmp(is, want + u->address, u->length));

	fill(some, sizeof(some), 2);
	memcpy(want + u->address + 1000, some, 2 * P + 77);
	CHECK(!ib_umem_copy_to(u, KEY, 1000, some, 2 * P + 77));
	memcpy(&value, want + at, 8);
	CHECK(!u->ops->atomic(u, KEY, at, false, 5, 0, &orig) && orig == value);
	CHECK(!u->ops->atomic(u, KEY, at, true, 99, value + 5, &orig) && orig == value + 5);
	value = 99;
	memcpy(want + at, &value, 8);
	CHECK(!exporter_access(fd, 0, is, buffer_size, false));
	CHECK(!memcmp(is, want, buffer_size));
	CHECK(ib_umem_copy_from(is, u, KEY, 1, u->length) == -EINVAL);
	free(is);
	free(want);
}

static void data(enum kind kind)
{
	static const enum faultline_dmabuf_kind of[] = {FAULTLINE_DMABUF_MEMFD, FAULTLINE_DMABUF_ACCEL,
							FAULTLINE_DMABUF_VRAM, FAULTLINE_DMABUF_VFIO};

	for (unsigned i = 0; i < 4; i++) {
		struct faultline_dmabuf_device *d = device(of[i], 32 * P, 0);
		int fd = buffer(d, 8 * P);
		struct ib_umem *u;
		int err = get(kind, P + 8, 5 * P - 16, fd, &u);

		if (of[i] == FAULTLINE_DMABUF_VFIO && kind == PINNED) {
			CHECK(err == -EOPNOTSUPP);
			end(d, fd);
			continue;
		}
		CHECK(!err && u->ops->kind == UMEM_DMABUF && u->writable && u->address == P + 8);
		CHECK(info(fd).attachments == 1 && info(fd).maps == 1 && info(fd).pins == (kind != DYNAMIC));
		CHECK(stat_of_mr.dma_maps == 5 && stat_of_mr.mapped_pages == 5 && !stat_of_mr.page_faults);
		CHECK(stat_of_mr.pinned_pages == (kind == DYNAMIC ? 0 : 5));
		CHECK(umem_faults(u) == (kind == DYNAMIC));
		use(u, fd, 8 * P);
		CHECK(ib_umem_pin(u, u->address, P) == -EINVAL);
		u->stat = NULL;
		ib_umem_release(u);
		end(d, fd);
	}
}

/* in pieces: the third buffer lies where the first and a part of the rest were */
static void pieces(enum kind kind)
{
	struct faultline_dmabuf_device *d = device(FAULTLINE_DMABUF_VRAM, 16 * P, 0);
	int fd[8], big;
	struct ib_umem *u;

	for (unsigned i = 0; i < 8; i++)
		fd[i] = buffer(d, 2 * P);
	for (unsigned i = 0; i < 8; i += 2)
		CHECK(!close(fd[i]));
	big = buffer(d, 8 * P);
	CHECK(info(big).pieces == 4);
	CHECK(!get(kind, 100, 8 * P - 100, big, &u));
	use(u, big, 8 * P);
	ib_umem_release(u);
	for (unsigned i = 1; i < 8; i += 2)
		CHECK(!close(fd[i]));
	end(d, big);
}

static void read_only(enum kind kind)
{
	struct faultline_dmabuf_device *d = device(FAULTLINE_DMABUF_ACCEL, 0, 0);
	int fd = buffer(d, P);
	struct ib_umem *u;

	CHECK(!get_access(kind, 0, P, fd, IBV_ACCESS_REMOTE_READ, &u) && !u->writable);
	CHECK(ib_umem_copy_to(u, KEY, 0, "x", 1) == -EPERM);
	if (kind == DYNAMIC)
		CHECK(u->ops->fault(u, 0, 1, UMEM_FAULT_WRITE) == -EPERM);
	ib_umem_release(u);
	end(d, fd);
}

static void closed_while_registered(enum kind kind)
{
	struct faultline_dmabuf_device *d = device(FAULTLINE_DMABUF_VRAM, 0, 0);
	struct faultline_dmabuf_totals t;
	int fd = buffer(d, 4 * P);
	struct ib_umem *u;
	char text[8] = "";

	CHECK(!get(kind, 0, 4 * P, fd, &u) && !close(fd));
	CHECK(exporter_close(d) == -EBUSY);
	CHECK(!ib_umem_copy_to(u, KEY, 3 * P - 3, "faults", 7) && !ib_umem_copy_from(text, u, KEY, 3 * P - 3, 7));
	CHECK(!strcmp(text, "faults"));
	ib_umem_release(u);
	CHECK(!exporter_totals(&t) && !t.buffers);
	nobody_imports();
	CHECK(!exporter_close(d));
}

/* ---- moves ---- */

static void dynamic_follows(void)
{
	struct faultline_dmabuf_device *d = device(FAULTLINE_DMABUF_VRAM, 16 * P, 0);
	int fd = buffer(d, 6 * P);
	struct ib_umem *u;
	uint64_t orig;
	char byte = 1;

	CHECK(!get(DYNAMIC, 0, 6 * P, fd, &u));
	CHECK(u->ops->way(u, 0, 6 * P, true, false) == UMEM_BY_COPY);
	CHECK(u->ops->fault(u, 0, P, 0) == 0); /* there is nothing to do */
	for (unsigned round = 0; round < 8; round++) {
		struct faultline_mr was = stat_of_mr;
		uint64_t lost = cnt(FL_CNT_page_invalidations), faults = cnt(FL_CNT_page_faults);

		if (round & 1)
			CHECK(!exporter_evict(d, 12 * P) && info(fd).place == FAULTLINE_DMABUF_SYSTEM);
		else
			CHECK(!exporter_move(fd, FAULTLINE_DMABUF_DEVICE));
		CHECK(cnt(FL_CNT_page_invalidations) == lost + 6);
		CHECK(stat_of_mr.page_invalidations == was.page_invalidations + 6);
		CHECK(stat_of_mr.dma_unmaps == was.dma_unmaps + 6);
		CHECK(!stat_of_mr.mapped_pages && !info(fd).maps && info(fd).attachments == 1);
		CHECK(u->ops->way(u, 0, 1, false, false) == UMEM_FAULT);
		CHECK(u->ops->copy(u, KEY, 0, &byte, 1, false) == -EFAULT);
		CHECK(u->ops->atomic(u, KEY, 0, false, 1, 0, &orig) == -EFAULT);
		/* who may not sleep does not take the lock either */
		CHECK(u->ops->fault(u, 0, 1, UMEM_FAULT_NOSLEEP) == -EAGAIN);
		CHECK(u->ops->fault(u, P, 1, UMEM_FAULT_WRITE | UMEM_FAULT_FORCE) == 6);
		CHECK(u->ops->fault(u, 5 * P, P, UMEM_FAULT_NOSLEEP) == 0);
		CHECK(cnt(FL_CNT_page_faults) == faults + 6 && stat_of_mr.page_faults == was.page_faults + 6);
		CHECK(stat_of_mr.dma_maps == was.dma_maps + 6 && stat_of_mr.mapped_pages == 6);
		use(u, fd, 6 * P); /* which brings it back to the device's memory */
		CHECK(u->ops->fault(u, 0, 1, 0) >= 0);
	}
	CHECK(!exporter_move(fd, FAULTLINE_DMABUF_DEVICE));
	CHECK(u->ops->fault(u, 0, 1, UMEM_FAULT_PREFETCH) == 6 && stat_of_mr.page_prefetch == 6);
	CHECK(!exporter_move(fd, FAULTLINE_DMABUF_DEVICE));
	ib_umem_release(u); /* with nothing mapped */
	end(d, fd);
}

static void pinned_stays(enum kind kind)
{
	struct faultline_dmabuf_device *d = device(FAULTLINE_DMABUF_VRAM, 16 * P, 0);
	int fd = buffer(d, 6 * P), other = buffer(d, 6 * P), more;
	struct ib_umem *u;

	CHECK(!get(kind, P, P, fd, &u));
	CHECK(info(fd).place == FAULTLINE_DMABUF_DEVICE); /* pinned where it is */
	CHECK(exporter_move(fd, FAULTLINE_DMABUF_SYSTEM) == -EBUSY);
	CHECK(exporter_move(fd, FAULTLINE_DMABUF_DEVICE) == -EBUSY);
	CHECK(!exporter_evict(d, 10 * P));
	CHECK(info(fd).place == FAULTLINE_DMABUF_DEVICE && info(other).place == FAULTLINE_DMABUF_SYSTEM);
	CHECK(exporter_evict(d, 12 * P) == -ENOSPC);
	CHECK(exporter_alloc(d, 11 * P, 0, &more) == -ENOMEM); /* out of device memory: what is pinned is in the way */
	ib_umem_release(u);
	CHECK(!exporter_alloc(d, 11 * P, 0, &more) && info(fd).place == FAULTLINE_DMABUF_SYSTEM);
	CHECK(!close(more) && !close(other));
	end(d, fd);
}

/* two regions on one buffer, one of each kind: while one pins, the other's memory does not move either */
static void both_kinds_on_one(void)
{
	struct faultline_dmabuf_device *d = device(FAULTLINE_DMABUF_VRAM, 0, 0);
	int fd = buffer(d, 2 * P);
	struct ib_umem *a, *b;
	char c = 7, r = 0;

	CHECK(!get(DYNAMIC, 0, 2 * P, fd, &a) && !get(REVOCABLE, P, P, fd, &b));
	CHECK(exporter_move(fd, FAULTLINE_DMABUF_SYSTEM) == -EBUSY);
	CHECK(!ib_umem_copy_to(a, KEY, P + 5, &c, 1) && !ib_umem_copy_from(&r, b, KEY, 5, 1) && r == 7);
	ib_umem_release(b);
	CHECK(!exporter_move(fd, FAULTLINE_DMABUF_SYSTEM) && !info(fd).maps);
	CHECK(!ib_umem_copy_from(&r, a, KEY, P + 5, 1) && r == 7);
	ib_umem_release(a);
	end(d, fd);
}

/* ---- revocation ---- */

static void revocable_lets_go(void)
{
	struct faultline_dmabuf_device *d = device(FAULTLINE_DMABUF_VFIO, 0, 0);
	int fd = buffer(d, 2 * P);
	struct ib_umem *u, *again;
	uint64_t orig;
	char c = 1;

	CHECK(!get(REVOCABLE, 0, 2 * P, fd, &u));
	CHECK(!ib_umem_copy_to(u, KEY, 0, &c, 1));
	CHECK(!exporter_revoke(fd) && revocations == 1);
	CHECK(info(fd).revoked && info(fd).attachments == 1 && !info(fd).pins && !info(fd).maps);
	CHECK(!stat_of_mr.pinned_pages && !stat_of_mr.mapped_pages && stat_of_mr.page_invalidations == 2);
	CHECK(!ib_dma_mapped(&dev) && !cnt(FL_CNT_pinned_pages));
	CHECK(u->ops->way(u, 0, 1, false, false) == UMEM_BY_COPY); /* never a fault */
	CHECK(u->ops->copy(u, KEY, 0, &c, 1, true) == -EACCES);
	CHECK(u->ops->atomic(u, KEY, 0, false, 1, 0, &orig) == -EACCES);
	CHECK(ib_umem_copy_from(&c, u, KEY, 0, 1) == -EFAULT);
	CHECK(exporter_revoke(fd) == -EALREADY && revocations == 1);
	CHECK(get(REVOCABLE, 0, P, fd, &again) == -ENODEV && get(DYNAMIC, 0, P, fd, &again) == -ENODEV);
	ib_umem_release(u); /* unmaps and unpins nothing a second time: nobody_imports() counts */
	end(d, fd);
}

static void dynamic_is_refused_what_is_gone(void)
{
	struct faultline_dmabuf_device *d = device(FAULTLINE_DMABUF_VFIO, 0, 0);
	int fd = buffer(d, 2 * P);
	struct ib_umem *u;
	char c = 1;

	CHECK(!get(DYNAMIC, 0, 2 * P, fd, &u));
	CHECK(!exporter_revoke(fd) && !info(fd).maps);
	CHECK(u->ops->copy(u, KEY, 0, &c, 1, true) == -EFAULT);
	CHECK(u->ops->fault(u, 0, 1, 0) == -ENODEV && u->ops->fault(u, 0, 1, 0) == -ENODEV);
	CHECK(ib_umem_copy_from(&c, u, KEY, 0, 1) == -ENODEV);
	ib_umem_release(u);
	end(d, fd);
}

/* ---- refusals ---- */

static void ranges(enum kind kind)
{
	struct faultline_dmabuf_device *d = device(FAULTLINE_DMABUF_MEMFD, 0, 0);
	int fd = buffer(d, 4 * P), pipe_fd[2], plain = memfd_create("plain", MFD_ALLOW_SEALING), null;
	struct ib_umem *u;

	CHECK(get(kind, 0, 0, fd, &u) == -EINVAL);
	CHECK(get(kind, 0, 4 * P + 1, fd, &u) == -EINVAL);
	CHECK(get(kind, 4 * P, 1, fd, &u) == -EINVAL);
	CHECK(get(kind, P, SIZE_MAX - P + 1, fd, &u) == -EINVAL); /* offset + length is 0 */
	CHECK(get(kind, P, SIZE_MAX, fd, &u) == -EINVAL);
	CHECK(get(kind, UINT64_MAX, P, fd, &u) == -EINVAL);
	CHECK(get(kind, UINT64_MAX - P + 1, P, fd, &u) == -EINVAL);
	CHECK(!get(kind, 4 * P - 1, 1, fd, &u));
	ib_umem_release(u);

	CHECK(get(kind, 0, P, -1, &u) == -EBADF);
	CHECK(get(kind, 0, P, 12345, &u) == -EBADF);
	CHECK(!ftruncate(plain, 4 * P));
	CHECK(get(kind, 0, P, plain, &u) == -EINVAL);
	CHECK(!fcntl(plain, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW));
	CHECK(get(kind, 0, P, plain, &u) == -EINVAL);
	null = open("/dev/zero", O_RDWR);
	CHECK(null >= 0 && get(kind, 0, P, null, &u) == -EINVAL);
	CHECK(!close(null));
	null = open("/proc/self/exe", O_RDONLY);
	CHECK(null >= 0 && get(kind, 0, P, null, &u) == -EINVAL);
	CHECK(!pipe(pipe_fd) && get(kind, 0, P, pipe_fd[0], &u) == -EINVAL);
	close(null);
	close(plain);
	close(pipe_fd[0]);
	close(pipe_fd[1]);
	end(d, fd);
}

static void refused_by_device(enum kind kind)
{
	struct faultline_dmabuf_device *d = device(FAULTLINE_DMABUF_VRAM, 0, FAULTLINE_DMABUF_NO_PIN);
	int fd = buffer(d, P);
	struct ib_umem *u;
	int err = get(kind, 0, P, fd, &u);

	CHECK(err == (kind == DYNAMIC ? 0 : -EOPNOTSUPP));
	if (!err)
		ib_umem_release(u);
	end(d, fd);

	/* no path between peers: it is had in system memory, and stays there while it is pinned */
	d = device(FAULTLINE_DMABUF_VRAM, 0, FAULTLINE_DMABUF_NO_P2P);
	fd = buffer(d, P);
	CHECK(!get(kind, 0, P, fd, &u) && info(fd).place == FAULTLINE_DMABUF_SYSTEM);
	err = exporter_move(fd, FAULTLINE_DMABUF_DEVICE);
	CHECK(err == (kind == DYNAMIC ? 0 : -EBUSY));
	if (kind == DYNAMIC)
		CHECK(u->ops->fault(u, 0, 1, 0) == 1 && info(fd).place == FAULTLINE_DMABUF_SYSTEM);
	ib_umem_release(u);
	end(d, fd);

	for (unsigned i = 0; i < 2; i++) {
		d = device(FAULTLINE_DMABUF_ACCEL, 0, i ? FAULTLINE_DMABUF_NO_P2P : FAULTLINE_DMABUF_NO_CPU);
		fd = buffer(d, P);
		CHECK(get(kind, 0, P, fd, &u) == -EOPNOTSUPP);
		end(d, fd);
	}
}

/* each call that an exporter may refuse, with each error: it is the registration's, and nothing stays */
static void exporter_fails(enum kind kind)
{
	static const int errors[] = {ENOMEM, EBUSY, EOPNOTSUPP, EIO};
	struct faultline_dmabuf_device *d = device(FAULTLINE_DMABUF_VRAM, 0, 0);
	int fd = buffer(d, 4 * P);
	struct ib_umem *u;

	for (unsigned call = FAULTLINE_DMABUF_CALL_ATTACH; call <= FAULTLINE_DMABUF_CALL_MAP; call++) {
		for (unsigned i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
			bool never = call == FAULTLINE_DMABUF_CALL_PIN && kind == DYNAMIC;

			CHECK(!exporter_fail(fd, call, errors[i]));
			CHECK(get(kind, 0, 4 * P, fd, &u) == (never ? 0 : -errors[i]));
			if (never)
				ib_umem_release(u);
			CHECK(!exporter_fail(fd, call, 0));
			nobody_imports();
			CHECK(!get(kind, 0, 4 * P, fd, &u)); /* the next is as good as any */
			ib_umem_release(u);
		}
	}
	/* the aperture, which is full before the exporter is asked to map */
	dev.dma_aperture = 3;
	CHECK(get(kind, 0, 4 * P, fd, &u) == -ENOMEM);
	nobody_imports();
	CHECK(!get(kind, 0, 3 * P, fd, &u));
	ib_umem_release(u);
	dev.dma_aperture = 0;
	end(d, fd);
}

static void map_fails_at_a_fault(void)
{
	struct faultline_dmabuf_device *d = device(FAULTLINE_DMABUF_VRAM, 0, 0);
	int fd = buffer(d, 4 * P);
	struct ib_umem *u;

	CHECK(!get(DYNAMIC, 0, 4 * P, fd, &u) && !exporter_move(fd, FAULTLINE_DMABUF_SYSTEM));
	CHECK(!exporter_fail(fd, FAULTLINE_DMABUF_CALL_MAP, EIO));
	CHECK(u->ops->fault(u, 0, 1, 0) == -EIO && !info(fd).maps && !ib_dma_mapped(&dev));
	CHECK(u->ops->fault(u, 0, 1, 0) == 4);
	use(u, fd, 4 * P);
	ib_umem_release(u);
	end(d, fd);
}

/* ---- memory of another process, which did not wait for a copy of ours any longer ---- */

static char lent[P] __attribute__((aligned(4096)));
static uint32_t mark;

static int lent_map(struct dma_buf_attachment *attach, enum dma_data_direction dir, struct sg_table **sgt)
{
	*sgt = dma_buf_alloc_sgt(1);
	(*sgt)->sgl[0] = (struct scatterlist){(uintptr_t)lent, P, 0};
	(*sgt)->revoked = &mark;
	return 0;
}

static void lent_unmap(struct dma_buf_attachment *attach, struct sg_table *sgt, enum dma_data_direction dir)
{
	free(sgt);
}

static void lent_release(struct dma_buf *dmabuf)
{
}

static void too_late(enum kind kind)
{
	static const struct dma_buf_ops ops = {.map_dma_buf = lent_map, .unmap_dma_buf = lent_unmap, .release = lent_release};
	struct dma_buf *d;
	struct ib_umem *u;
	uint64_t w = 5;
	int fd;

	CHECK(!dma_buf_export(&(struct dma_buf_export_info){.exp_name = "lent", .ops = &ops, .size = P, .storage = -1}, &d));
	fd = dma_buf_fd(d, O_CLOEXEC);
	CHECK(!get(kind, 0, P, fd, &u));
	mark = 0;
	CHECK(!u->ops->copy(u, KEY, 8, &w, 8, true) && !u->ops->copy(u, KEY, 8, &w, 8, false) && w == 5);
	CHECK(!u->ops->atomic(u, KEY, 8, false, 1, 0, &w) && w == 5);
	mark = 1;
	/* whatever it was, it is not done; and there is no fault that would help */
	CHECK(u->ops->copy(u, KEY, 8, &w, 8, true) == -EACCES && u->ops->copy(u, KEY, 8, &w, 8, false) == -EACCES);
	CHECK(u->ops->atomic(u, KEY, 8, false, 1, 0, &w) == -EACCES);
	ib_umem_release(u);
	close(fd);
}

int main(void)
{
	umem_start();
	for (enum kind kind = 0; kind < KINDS; kind++) {
		data(kind);
		pieces(kind);
		read_only(kind);
		closed_while_registered(kind);
		ranges(kind);
		refused_by_device(kind);
		exporter_fails(kind);
		too_late(kind);
	}
	dynamic_follows();
	pinned_stays(PINNED);
	pinned_stays(REVOCABLE);
	both_kinds_on_one();
	revocable_lets_go();
	dynamic_is_refused_what_is_gone();
	map_fails_at_a_fault();
	return 0;
}
