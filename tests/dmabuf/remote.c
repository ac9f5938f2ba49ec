/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Buffers whose memory moves or is revoked, imported by another process: the contract is what it is within one. And the
 * ends that only two processes can come to: killed, stopped, executed, forked, out of descriptors.
 */
#include "peer.h"

#include "dmabuf/remote.h"

#define PAGE 4096ul
#define MIB  (1ul << 20)

static struct faultline_dmabuf_totals totals(void)
{
	struct faultline_dmabuf_totals t;

	exporter_totals(&t);
	return t;
}

static void own_write(int fd, uint64_t offset, uint64_t length, uint64_t seed)
{
	uint8_t *buf = malloc(length);

	peer_fill(buf, &(struct peer_cmd){.offset = offset, .length = length, .seed = seed});
	assert_int_equal(exporter_access(fd, offset, buf, length, true), 0);
	free(buf);
}

static void own_check(int fd, uint64_t offset, uint64_t length, uint64_t seed)
{
	uint8_t *want = malloc(length), *buf = malloc(length);

	peer_fill(want, &(struct peer_cmd){.offset = offset, .length = length, .seed = seed});
	assert_int_equal(exporter_access(fd, offset, buf, length, false), 0);
	assert_memory_equal(want, buf, length);
	free(want);
	free(buf);
}

#define WRITES(p, slot_, off, len, seed_)                                                          \
	assert_int_equal(peer_ask(p, .op = PEER_WRITE, .slot = slot_, .offset = off, .length = len, .seed = seed_), 0)
#define READS(p, slot_, off, len, seed_)                                                           \
	assert_int_equal(peer_ask(p, .op = PEER_DIFFERS, .slot = slot_, .offset = off, .length = len, .seed = seed_), 0)
#define RELEASES(p, slot_) assert_int_equal(peer_ask(p, .op = PEER_RELEASE, .slot = slot_), 0)

static void close_all(int fd, struct faultline_dmabuf_device *dev)
{
	close(fd);
	assert_int_equal(exporter_close(dev), 0);
	assert_nothing_left();
}

/* as within one process: who may, where, and all bytes */
static void every_kind(void **state)
{
	static const struct {
		enum faultline_dmabuf_kind kind;
		unsigned flags;
		int err[3]; /* by importer */
	} on[] = {
		{FAULTLINE_DMABUF_VRAM, 0, {0, 0, 0}},
		{FAULTLINE_DMABUF_VRAM, FAULTLINE_DMABUF_NO_P2P, {0, 0, 0}},
		{FAULTLINE_DMABUF_VRAM, FAULTLINE_DMABUF_NO_PIN, {0, -EOPNOTSUPP, -EOPNOTSUPP}},
		{FAULTLINE_DMABUF_VFIO, 0, {0, -EOPNOTSUPP, 0}},
		{FAULTLINE_DMABUF_VFIO, FAULTLINE_DMABUF_NO_P2P, {-EOPNOTSUPP, -EOPNOTSUPP, -EOPNOTSUPP}},
		{FAULTLINE_DMABUF_ACCEL, FAULTLINE_DMABUF_NO_CPU, {-EOPNOTSUPP, -EOPNOTSUPP, -EOPNOTSUPP}},
		{FAULTLINE_DMABUF_ACCEL, 0, {0, 0, 0}},
		{FAULTLINE_DMABUF_MEMFD, 0, {0, 0, 0}},
	};
	struct peer p = peer_start();

	for (unsigned i = 0; i < sizeof(on) / sizeof(on[0]); i++) {
		bool by_file = on[i].kind == FAULTLINE_DMABUF_MEMFD || (on[i].kind == FAULTLINE_DMABUF_ACCEL && !on[i].flags);
		struct faultline_dmabuf_device *dev = device(on[i].kind, MIB, on[i].flags);
		int fd = buffer(dev, 9 * PAGE);

		for (int kind = DYNAMIC; kind <= REVOCABLE; kind++) {
			unsigned seed = 10 * i + (unsigned)kind;

			own_write(fd, 0, 9 * PAGE, seed);
			assert_int_equal(peer_get(&p, 0, fd, kind), on[i].err[kind]);
			if (on[i].err[kind])
				continue;
			READS(&p, 0, 0, 9 * PAGE, seed);
			WRITES(&p, 0, PAGE + 77, 5 * PAGE, seed + 1);
			own_check(fd, PAGE + 77, 5 * PAGE, seed + 1);
			own_check(fd, 0, PAGE + 77, seed);
			own_check(fd, 6 * PAGE + 77, 3 * PAGE - 77, seed);
			if (!by_file) {
				assert_int_equal(info_of(fd).attachments, 1);
				/* what is not pinned was brought back meanwhile, where it had been moved */
				assert_int_equal(info_of(fd).pins, kind != DYNAMIC);
			}
			RELEASES(&p, 0);
			/* and that has been done when it returns */
			assert_int_equal(info_of(fd).attachments + info_of(fd).maps + info_of(fd).pins, 0);
		}
		close_all(fd, dev);
	}
	peer_stop(&p);
	assert_int_equal(totals().importers_ended + totals().importers_lost, 0);
}

/* moved under it, evicted, in pieces; told each time, and the bytes are there */
static void moves(void **state)
{
	struct faultline_dmabuf_device *dev = device(FAULTLINE_DMABUF_VRAM, 16 * PAGE, 0);
	struct peer p = peer_start();
	int hole[8], fd, told = 0;

	for (int i = 0; i < 8; i++)
		hole[i] = buffer(dev, 2 * PAGE);
	for (int i = 0; i < 8; i += 2)
		close(hole[i]);
	fd = buffer(dev, 7 * PAGE);
	assert_int_equal(info_of(fd).pieces, 4);
	own_write(fd, 0, 7 * PAGE, 1);
	assert_int_equal(peer_get(&p, 0, fd, DYNAMIC), 0);
	READS(&p, 0, 0, 7 * PAGE, 1);
	for (int i = 1; i < 8; i += 2)
		close(hole[i]);
	for (unsigned n = 0; n < 6; n++) {
		WRITES(&p, 0, 3, 7 * PAGE - 5, n);
		assert_int_equal(info_of(fd).maps, 1);
		assert_int_equal(exporter_move(fd, n & 1 ? FAULTLINE_DMABUF_DEVICE : FAULTLINE_DMABUF_SYSTEM), 0);
		assert_int_equal(peer_ask(&p, .op = PEER_TOLD), ++told);
		READS(&p, 0, 3, 7 * PAGE - 5, n);
	}
	/* somebody else wants all of the memory */
	hole[0] = buffer(dev, 16 * PAGE);
	assert_int_equal(info_of(fd).place, FAULTLINE_DMABUF_SYSTEM);
	assert_int_equal(peer_ask(&p, .op = PEER_TOLD), ++told);
	READS(&p, 0, 3, 7 * PAGE - 5, 5);
	assert_int_equal(device_info(dev).stale, 0);
	close(hole[0]);
	RELEASES(&p, 0);
	peer_stop(&p);
	close_all(fd, dev);
}

/* two regions of one process and one of another, each for itself */
static void several(void **state)
{
	struct faultline_dmabuf_device *dev = device(FAULTLINE_DMABUF_VRAM, MIB, 0);
	struct peer p[2] = {peer_start(), peer_start()};
	int fd = buffer(dev, 3 * PAGE);

	own_write(fd, 0, 3 * PAGE, 4);
	assert_int_equal(peer_get(&p[0], 0, fd, DYNAMIC), 0);
	assert_int_equal(peer_get(&p[0], 1, fd, DYNAMIC), 0);
	assert_int_equal(peer_get(&p[1], 0, fd, DYNAMIC), 0);
	READS(&p[0], 0, 0, 3 * PAGE, 4);
	READS(&p[1], 0, 0, 3 * PAGE, 4);
	assert_int_equal(exporter_move(fd, FAULTLINE_DMABUF_SYSTEM), 0);
	assert_int_equal(peer_ask(&p[0], .op = PEER_TOLD, .slot = 0), 1);
	assert_int_equal(peer_ask(&p[0], .op = PEER_TOLD, .slot = 1), 0); /* had nothing mapped */
	assert_int_equal(peer_ask(&p[1], .op = PEER_TOLD, .slot = 0), 1);
	READS(&p[0], 1, 0, 3 * PAGE, 4);
	RELEASES(&p[0], 0);
	WRITES(&p[0], 1, 0, 3 * PAGE, 5);
	assert_int_equal(info_of(fd).attachments, 2);
	assert_int_equal(exporter_move(fd, FAULTLINE_DMABUF_DEVICE), 0);
	READS(&p[1], 0, 0, 3 * PAGE, 5);
	RELEASES(&p[1], 0);
	RELEASES(&p[0], 1);
	peer_stop(&p[0]);
	peer_stop(&p[1]);
	close_all(fd, dev);
}

/* a pin over there keeps it here */
static void pinned(void **state)
{
	struct faultline_dmabuf_device *dev = device(FAULTLINE_DMABUF_VRAM, 16 * PAGE, 0);
	struct peer p = peer_start();
	int fd = buffer(dev, 4 * PAGE), other = buffer(dev, 4 * PAGE), more;

	own_write(fd, 0, 4 * PAGE, 8);
	own_write(other, 0, 4 * PAGE, 9);
	assert_int_equal(peer_get(&p, 0, fd, PINNED), 0);
	assert_int_equal(exporter_move(fd, FAULTLINE_DMABUF_SYSTEM), -EBUSY);
	more = buffer(dev, 12 * PAGE); /* fd is the older, and passed over */
	assert_int_equal(info_of(fd).place, FAULTLINE_DMABUF_DEVICE);
	assert_int_equal(info_of(other).place, FAULTLINE_DMABUF_SYSTEM);
	assert_int_equal(exporter_evict(dev, 13 * PAGE), -ENOSPC);
	READS(&p, 0, 0, 4 * PAGE, 8);
	/* who cannot reach it there is refused, with the exporter's word for it */
	assert_int_equal(peer_ask_fd(&p, (struct peer_cmd){.op = PEER_GET, .slot = 1, .kind = PINNED, .arg = 1}, &(int){fd}),
			 -EBUSY);
	RELEASES(&p, 0);
	assert_int_equal(peer_ask_fd(&p, (struct peer_cmd){.op = PEER_GET, .slot = 1, .kind = PINNED, .arg = 1}, &(int){fd}),
			 0);
	assert_int_equal(info_of(fd).place, FAULTLINE_DMABUF_SYSTEM);
	READS(&p, 1, 0, 4 * PAGE, 8);
	RELEASES(&p, 1);
	assert_int_equal(exporter_move(fd, FAULTLINE_DMABUF_DEVICE), 0);
	peer_stop(&p);
	close(other);
	close(more);
	close_all(fd, dev);
}

static void revoked(void **state)
{
	struct faultline_dmabuf_device *dev = device(FAULTLINE_DMABUF_VFIO, MIB, 0);
	struct peer p = peer_start();
	int fd = buffer(dev, PAGE);

	assert_int_equal(peer_get(&p, 0, fd, DYNAMIC), 0);
	assert_int_equal(peer_get(&p, 1, fd, REVOCABLE), 0);
	WRITES(&p, 0, 0, PAGE, 3);
	READS(&p, 1, 0, PAGE, 3);
	assert_int_equal(exporter_revoke(fd), 0);
	assert_int_equal(info_of(fd).maps + info_of(fd).pins, 0);
	assert_int_equal(peer_ask(&p, .op = PEER_REVOKED, .slot = 1), 1);
	assert_int_equal(peer_ask(&p, .op = PEER_WRITE, .slot = 0, .length = 8), -ENODEV);
	assert_int_equal(peer_ask(&p, .op = PEER_WRITE, .slot = 1, .length = 8), -ENODEV);
	assert_int_equal(peer_get(&p, 2, fd, REVOCABLE), -ENODEV);
	RELEASES(&p, 0);
	RELEASES(&p, 1);
	peer_stop(&p);
	close_all(fd, dev);
}

static void failures(void **state)
{
	struct faultline_dmabuf_device *dev = device(FAULTLINE_DMABUF_VRAM, MIB, 0);
	struct peer p = peer_start();
	int fd = buffer(dev, PAGE);

	for (int call = FAULTLINE_DMABUF_CALL_ATTACH; call <= FAULTLINE_DMABUF_CALL_MAP; call++) {
		assert_int_equal(exporter_fail(fd, call, EIO), 0);
		assert_int_equal(peer_get(&p, 0, fd, PINNED), -EIO);
		assert_int_equal(info_of(fd).attachments + info_of(fd).maps + info_of(fd).pins, 0);
	}
	assert_int_equal(peer_get(&p, 0, fd, PINNED), 0);
	RELEASES(&p, 0);
	peer_stop(&p);
	close_all(fd, dev);
}

/* ---- ends ---- */

/* killed with a pin and mappings: they go, once, and it can move again */
static void killed(void **state)
{
	struct faultline_dmabuf_device *dev = device(FAULTLINE_DMABUF_VRAM, MIB, 0);
	uint64_t ended = totals().importers_ended;
	int fd = buffer(dev, 2 * PAGE);

	for (unsigned n = 0; n < 3; n++) {
		struct peer p = peer_start();

		assert_int_equal(peer_get(&p, 0, fd, PINNED), 0);
		assert_int_equal(peer_get(&p, 1, fd, DYNAMIC), 0);
		WRITES(&p, 1, 0, 2 * PAGE, n);
		assert_int_equal(info_of(fd).pins, 1);
		assert_int_equal(info_of(fd).maps, 2);
		peer_kill(&p);
		EVENTUALLY(!info_of(fd).attachments);
		EVENTUALLY(totals().importers_ended == ended + n + 1);
		assert_int_equal(info_of(fd).pins + info_of(fd).maps, 0);
		assert_int_equal(totals().attachments + totals().pins + totals().maps, 0);
		own_check(fd, 0, 2 * PAGE, n);
		assert_int_equal(exporter_move(fd, FAULTLINE_DMABUF_SYSTEM), 0);
		own_check(fd, 0, 2 * PAGE, n);
	}
	assert_int_equal(device_info(dev).stale, 0);
	close(fd);
	EVENTUALLY(exporter_close(dev) == 0);
	assert_nothing_left();
}

/* a child keeps nothing of it, and neither does another program */
static void forked_and_executed(void **state)
{
	struct faultline_dmabuf_device *dev = device(FAULTLINE_DMABUF_VRAM, MIB, 0);
	struct peer p = peer_start(), q = peer_start();
	int fd = buffer(dev, 2 * PAGE), child;

	assert_int_equal(peer_get(&p, 0, fd, PINNED), 0);
	assert_int_equal(peer_get(&q, 0, fd, PINNED), 0);
	child = peer_ask(&p, .op = PEER_FORK);
	assert_true(child > 0);
	WRITES(&p, 0, 0, 2 * PAGE, 6); /* the parent has it as before */
	peer_kill(&p);
	EVENTUALLY(info_of(fd).pins == 1);
	assert_int_equal(kill(child, 0), 0); /* while it lives */
	kill(child, SIGKILL);
	assert_int_equal(peer_ask(&q, .op = PEER_EXEC), -EPIPE); /* our socket closes with it */
	EVENTUALLY(!info_of(fd).attachments);
	assert_int_equal(waitpid(q.pid, NULL, WNOHANG), 0);
	own_check(fd, 0, 2 * PAGE, 6);
	peer_kill(&q);
	close(fd);
	EVENTUALLY(exporter_close(dev) == 0);
	assert_nothing_left();
}

struct mover {
	int fd, err;
};

static void *move_away(void *arg)
{
	struct mover *m = arg;

	m->err = exporter_move(m->fd, FAULTLINE_DMABUF_SYSTEM);
	return NULL;
}

/* told, and killed before it has let go: whoever waits goes on */
static void killed_while_told(void **state)
{
	struct faultline_dmabuf_device *dev = device(FAULTLINE_DMABUF_VRAM, MIB, 0);
	struct mover m = {.fd = buffer(dev, 2 * PAGE)};
	struct peer p = peer_start();
	uint64_t told = totals().invalidations;
	pthread_t t;

	assert_int_equal(peer_get(&p, 0, m.fd, DYNAMIC), 0);
	WRITES(&p, 0, 0, 2 * PAGE, 2);
	peer_pause(&p);
	pthread_create(&t, NULL, move_away, &m);
	EVENTUALLY(totals().invalidations > told);
	peer_kill(&p);
	pthread_join(t, NULL);
	assert_int_equal(m.err, 0);
	own_check(m.fd, 0, 2 * PAGE, 2);
	assert_int_equal(totals().importers_lost, 0);
	close(m.fd);
	EVENTUALLY(exporter_close(dev) == 0);
	assert_nothing_left();
}

/* stopped within a copy: waited for, but not for ever; what it may still write to is used for nothing else */
static void stopped(void **state)
{
	struct faultline_dmabuf_device *dev = device(FAULTLINE_DMABUF_VRAM, 8 * PAGE, 0);
	int fd = buffer(dev, 4 * PAGE), more;
	struct peer p = peer_start();
	uint64_t lost = totals().importers_lost;

	assert_int_equal(peer_get(&p, 0, fd, DYNAMIC), 0);
	assert_int_equal(peer_get(&p, 1, fd, DYNAMIC), 0);
	own_write(fd, 0, 4 * PAGE, 2);
	/* one that is in time */
	assert_int_equal(peer_ask(&p, .op = PEER_BEGIN, .slot = 0), 0);
	assert_int_equal(peer_ask(&p, .op = PEER_END, .slot = 0), 0);
	assert_int_equal(peer_ask(&p, .op = PEER_BEGIN, .slot = 0), 0);
	peer_pause(&p);
	dma_remote_patience_ms = 300;
	assert_int_equal(exporter_move(fd, FAULTLINE_DMABUF_SYSTEM), 0);
	dma_remote_patience_ms = 10000;
	assert_int_equal(totals().importers_lost, lost + 1);
	own_check(fd, 512, 4 * PAGE - 512, 2);
	assert_int_equal(device_info(dev).stale, 4 * PAGE);
	assert_int_equal(exporter_alloc(dev, 5 * PAGE, 0, &more), -ENOMEM); /* not over its copy */
	assert_int_equal(exporter_alloc(dev, 4 * PAGE, 0, &more), 0);
	own_write(more, 0, 4 * PAGE, 3);
	own_write(fd, 0, 4 * PAGE, 4);
	kill(p.pid, SIGCONT);
	/* the copy is made, and does not count */
	assert_int_equal(peer_ask(&p, .op = PEER_END, .slot = 0), -ENODEV);
	/* it finds that it has lost it */
	assert_int_equal(peer_ask(&p, .op = PEER_WRITE, .slot = 0, .length = 8), -ENODEV);
	assert_int_equal(peer_ask(&p, .op = PEER_WRITE, .slot = 1, .length = 8), -ENODEV);
	own_check(more, 0, 4 * PAGE, 3);
	own_check(fd, 0, 4 * PAGE, 4);
	RELEASES(&p, 1);
	RELEASES(&p, 0);
	EVENTUALLY(!device_info(dev).stale);
	/* from the beginning */
	assert_int_equal(peer_get(&p, 2, fd, DYNAMIC), 0);
	READS(&p, 2, 0, 4 * PAGE, 4);
	RELEASES(&p, 2);
	peer_stop(&p);
	close(more);
	close_all(fd, dev);
}

/* stopped with a pin: it loses it */
static void stopped_and_revoked(void **state)
{
	struct faultline_dmabuf_device *dev = device(FAULTLINE_DMABUF_VFIO, MIB, 0);
	int fd = buffer(dev, 4 * PAGE);
	struct peer p = peer_start();

	assert_int_equal(peer_get(&p, 0, fd, REVOCABLE), 0);
	assert_int_equal(peer_get(&p, 1, fd, DYNAMIC), 0);
	WRITES(&p, 1, 0, 4 * PAGE, 2);
	peer_pause(&p);
	dma_remote_patience_ms = 300;
	assert_int_equal(exporter_revoke(fd), 0);
	dma_remote_patience_ms = 10000;
	EVENTUALLY(!info_of(fd).pins);
	kill(p.pid, SIGCONT);
	EVENTUALLY(peer_ask(&p, .op = PEER_REVOKED, .slot = 0) == 1);
	assert_int_equal(peer_ask(&p, .op = PEER_WRITE, .slot = 0, .length = 8), -ENODEV);
	assert_int_equal(peer_ask(&p, .op = PEER_WRITE, .slot = 1, .length = 8), -ENODEV);
	RELEASES(&p, 0);
	RELEASES(&p, 1);
	peer_stop(&p);
	close(fd);
	EVENTUALLY(exporter_close(dev) == 0);
	assert_nothing_left();
}

/* ---- the other way round: the exporter's ends ---- */

static void exporter_killed(void **state)
{
	for (unsigned with_child = 0; with_child < 2; with_child++) {
		struct peer p = peer_start();
		struct importer dynamic, unmapped, pin, late;
		struct dma_buf *d;
		char b = 1, c = 0;
		int fd = -1, child = 0;

		assert_int_equal(peer_ask_fd(&p, (struct peer_cmd){.op = PEER_EXPORT, .kind = FAULTLINE_DMABUF_VRAM, .length = PAGE},
					     &fd),
				 0);
		assert_int_equal(importer_get(&dynamic, fd, DYNAMIC), 0);
		assert_int_equal(importer_get(&unmapped, fd, DYNAMIC), 0);
		assert_int_equal(importer_get(&pin, fd, PINNED), 0);
		assert_int_equal(importer_dma(&dynamic, 5, &b, 1, true), 0);
		if (with_child)
			child = peer_ask(&p, .op = PEER_FORK);
		peer_kill(&p);
		/* what is mapped stays */
		assert_int_equal(importer_dma(&pin, 5, &c, 1, false), 0);
		assert_int_equal(c, 1);
		/* and what is not cannot be; this waits until the end was noticed, though a child lives */
		assert_int_equal(importer_map(&unmapped), -ENODEV);
		assert_int_equal(importer_get(&late, fd, DYNAMIC), -ENODEV);
		b = 2;
		assert_int_equal(importer_dma(&dynamic, 5, &b, 1, true), 0);
		assert_int_equal(importer_dma(&pin, 5, &c, 1, false), 0);
		assert_int_equal(c, 2);
		importer_release(&dynamic);
		importer_release(&unmapped);
		importer_release(&pin);
		assert_int_equal(dma_buf_get(fd, &d), -ENODEV);
		close(fd);
		if (child)
			kill(child, SIGKILL);
		assert_nothing_left();
	}
}

/* stopped: who needs it waits, but not for ever, and what was granted too late is given back */
static void exporter_stopped(void **state)
{
	struct peer p = peer_start();
	struct importer im, other;
	int fd = -1;
	char b = 0;

	assert_int_equal(peer_ask_fd(&p, (struct peer_cmd){.op = PEER_EXPORT, .kind = FAULTLINE_DMABUF_VRAM, .length = PAGE}, &fd),
			 0);
	assert_int_equal(importer_get(&im, fd, DYNAMIC), 0);
	peer_pause(&p);
	dma_remote_patience_ms = 50;
	assert_int_equal(importer_dma(&im, 0, &b, 1, true), -ETIMEDOUT);
	assert_int_equal(importer_get(&other, fd, PINNED), -ETIMEDOUT);
	kill(p.pid, SIGCONT);
	dma_remote_patience_ms = 10000;
	assert_int_equal(importer_dma(&im, 0, &b, 1, true), 0);
	importer_release(&im);
	close(fd);
	assert_int_equal(peer_ask(&p, .op = PEER_TOTALS), 0); /* nothing there that we do not know of */
	peer_stop(&p);
	assert_nothing_left();
}

/* ---- descriptors ---- */

static void no_descriptors_left(void **state)
{
	struct faultline_dmabuf_device *dev = device(FAULTLINE_DMABUF_VRAM, MIB, 0);
	struct peer p = peer_start();
	int fd = buffer(dev, 2 * PAGE);

	assert_int_equal(peer_get(&p, 0, fd, DYNAMIC), 0);
	own_write(fd, 0, 2 * PAGE, 7);
	assert_int_equal(peer_ask(&p, .op = PEER_FILL_TABLE), 0);
	for (unsigned n = 0; n < 4; n++) {
		READS(&p, 0, 0, 2 * PAGE, 7);
		assert_int_equal(exporter_move(fd, n & 1 ? FAULTLINE_DMABUF_DEVICE : FAULTLINE_DMABUF_SYSTEM), 0);
	}
	RELEASES(&p, 0);
	peer_kill(&p);
	close_all(fd, dev);
}

/* Here there are none: others are turned away, and it is quiet. */
static void no_descriptors_here(void **state)
{
	struct faultline_dmabuf_device *dev = device(FAULTLINE_DMABUF_VRAM, MIB, 0);
	struct peer p = peer_start(), q = peer_start();
	int fd = buffer(dev, 2 * PAGE), filled[1024], n = 0;
	struct rlimit was, few = {128, 0};

	assert_int_equal(peer_get(&q, 0, fd, DYNAMIC), 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
	few.rlim_max = was.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	while (n < 1024 && (filled[n] = dup(0)) >= 0)
		n++;
	assert_int_equal(peer_get(&p, 0, fd, DYNAMIC), -ENODEV);
	assert_int_equal(peer_ask(&q, .op = PEER_MAP), 0); /* who is here already is served */
	while (n)
		close(filled[--n]);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
	assert_int_equal(peer_get(&p, 0, fd, DYNAMIC), 0);
	RELEASES(&p, 0);
	RELEASES(&q, 0);
	peer_stop(&p);
	peer_stop(&q);
	close_all(fd, dev);
}

/* of another user: neither here nor there */
static void another_user(void **state)
{
	struct faultline_dmabuf_device *dev = device(FAULTLINE_DMABUF_VRAM, MIB, 0);
	int fd = buffer(dev, PAGE), status;
	struct dma_buf *d;
	pid_t pid;

	if (geteuid()) {
		close_all(fd, dev);
		print_message("skipped: not root, and cannot become another user\n");
		skip();
	}
	pid = fork();
	if (!pid)
		_exit(setresuid(65534, 65534, 65534) ? 1 : dma_buf_get(fd, &d) == -EPERM ? 0 : 2);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(info_of(fd).attachments, 0);
	close_all(fd, dev);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_kind),
		cmocka_unit_test(moves),
		cmocka_unit_test(several),
		cmocka_unit_test(pinned),
		cmocka_unit_test(revoked),
		cmocka_unit_test(failures),
		cmocka_unit_test(killed_while_told),
		cmocka_unit_test(killed),
		cmocka_unit_test(forked_and_executed),
		cmocka_unit_test(stopped),
		cmocka_unit_test(stopped_and_revoked),
		cmocka_unit_test(exporter_killed),
		cmocka_unit_test(exporter_stopped),
		cmocka_unit_test(no_descriptors_left),
		cmocka_unit_test(no_descriptors_here),
		cmocka_unit_test(another_user),
	};

	peer_main(argc, argv);
	alarm(100); /* who waits for ever has failed */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
