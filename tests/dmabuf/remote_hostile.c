/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Processes that do not keep to the protocol of buffers between processes, by mistake or on purpose: whoever talks
 * to them is neither stopped nor misled, breaks no rule in their name, and loses no descriptor.
 */
#include "peer.h"

#include <dirent.h>
#include <inttypes.h>
#include <poll.h>
#include <sys/mman.h>
#include "dmabuf/remote.h"
#include "util/usock.h"

#define PAGE 4096ul
#define SIZE (4 * PAGE)

static unsigned open_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* ---- importers ---- */

static int dial(int fd)
{
	char path[32], name[128] = "", sock[40];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	assert_true(readlink(path, name, sizeof(name) - 1) > 0);
	snprintf(sock, sizeof(sock), DMA_REMOTE_NAME, (uint64_t)strtoull(strchr(name, '@') + 1, NULL, 16));
	return usock_dial(sock);
}

static void drain(int sock)
{
	struct dma_remote_msg m;
	int fds[USOCK_MAX_FDS], num;

	while (usock_recv(sock, &m, sizeof(m), fds, &num) > 0)
		while (num)
			close(fds[--num]);
}

static void anything(unsigned *seed, struct dma_remote_msg *m)
{
	m->type = (uint16_t)(1 + rand_r(seed) % DMA_REMOTE_ACK);
	m->seq = (uint32_t)rand_r(seed) % 4;
	m->id = (uint64_t)rand_r(seed) % 3;
	m->map = (uint64_t)rand_r(seed) % 3;
	m->num = rand_r(seed) % 3 ? DMA_REMOTE_VERSION : (uint64_t)rand_r(seed);
	m->flags = (unsigned)rand_r(seed) % 4;
	m->err = rand_r(seed) % 9 ? 0 : -rand_r(seed) % 100;
	memset(m->name, rand_r(seed) % 256, sizeof(m->name));
	if (!(rand_r(seed) % 40))
		m->type = (uint16_t)rand_r(seed);
}

static void talk(unsigned *seed, int fd)
{
	int sock = dial(fd), n = rand_r(seed) % 40;
	struct dma_remote_msg m = {.type = DMA_REMOTE_HELLO, .num = DMA_REMOTE_VERSION};
	int two[2] = {fd, 0};

	assert_true(sock >= 0);
	if (rand_r(seed) % 8)
		usock_send(sock, &m, sizeof(m), &fd, 1);
	while (n--) {
		anything(seed, &m);
		usock_send(sock, &m, rand_r(seed) % 60 ? sizeof(m) : (size_t)(1 + rand_r(seed) % 50), two,
			   rand_r(seed) % 30 ? 0 : 1 + rand_r(seed) % 2);
		if (rand_r(seed) % 2)
			drain(sock);
		if (!(rand_r(seed) % 8))
			sched_yield();
	}
	close(sock);
}

static void *talking_thread(void *arg)
{
	int *fd = arg;
	unsigned seed = (unsigned)fd[1];

	for (int i = 0; i < 200; i++)
		talk(&seed, fd[0]);
	return NULL;
}

static void importers(void **state)
{
	static const enum faultline_dmabuf_kind kinds[] = {FAULTLINE_DMABUF_VRAM, FAULTLINE_DMABUF_VFIO};

	for (unsigned k = 0; k < 2; k++) {
		struct faultline_dmabuf_device *dev = device(kinds[k], 2 * SIZE, 0);
		int fd = buffer(dev, SIZE), arg[2][2] = {{fd, 1}, {fd, 2}};
		struct peer p = peer_start();
		unsigned fds = open_fds();
		pthread_t t[2];
		char b = 0;

		/* they never let go, so this is how long a move takes */
		dma_remote_patience_ms = 20;
		for (int i = 0; i < 2; i++)
			pthread_create(&t[i], NULL, talking_thread, arg[i]);
		for (int i = 0; i < 100; i++) {
			int err = exporter_move(fd, i & 1 ? FAULTLINE_DMABUF_DEVICE : FAULTLINE_DMABUF_SYSTEM);

			assert_true(!err || err == -EBUSY || err == -ENOMEM || (k && err == -EOPNOTSUPP));
			usleep(500);
		}
		if (k)
			assert_int_equal(exporter_revoke(fd), 0);
		for (int i = 0; i < 2; i++)
			pthread_join(t[i], NULL);
		dma_remote_patience_ms = 10000;
		EVENTUALLY(!info_of(fd).attachments);
		/* system memory has one of its own, and one that is served late may want it there once more */
		EVENTUALLY((k || !exporter_move(fd, FAULTLINE_DMABUF_DEVICE)) && open_fds() <= fds);
		assert_int_equal(info_of(fd).maps + info_of(fd).pins, 0);
		/* and who is decent is served */
		assert_int_equal(peer_get(&p, 0, fd, DYNAMIC), k ? -ENODEV : 0);
		if (!k) {
			assert_int_equal(peer_ask(&p, .op = PEER_WRITE, .length = SIZE, .seed = 5), 0);
			assert_int_equal(exporter_access(fd, 9, &b, 1, false), 0);
			assert_int_equal((uint8_t)b, peer_byte(9, 5));
			assert_int_equal(peer_ask(&p, .op = PEER_RELEASE), 0);
		}
		peer_stop(&p);
		close(fd);
		EVENTUALLY(exporter_close(dev) == 0);
		assert_nothing_left();
	}
}

/* more is asked for than there is room for, and nothing of it waited for */
static void flood(void **state)
{
	struct faultline_dmabuf_device *dev = device(FAULTLINE_DMABUF_VRAM, 2 * SIZE, 0);
	int fd = buffer(dev, SIZE), sock = dial(fd);
	uint64_t lost, now;
	struct dma_buf_totals t;
	struct dma_remote_msg m = {.type = DMA_REMOTE_HELLO, .num = DMA_REMOTE_VERSION};
	struct dma_buf *d;

	dma_buf_totals(&t);
	lost = t.importers_lost;
	assert_int_equal(usock_send(sock, &m, sizeof(m), &fd, 1), 0);
	assert_int_equal(dma_buf_get(fd, &d), 0);
	dma_resv_lock(d->resv, NULL); /* the worker gets nowhere */
	m.type = DMA_REMOTE_UNPIN;
	do {
		struct pollfd p = {.fd = sock, .events = POLLOUT};

		if (usock_send(sock, &m, sizeof(m), NULL, 0))
			poll(&p, 1, 10);
		dma_buf_totals(&t);
		now = t.importers_lost;
	} while (now == lost);
	dma_resv_unlock(d->resv);
	close(sock);
	dma_buf_put(d);
	close(fd);
	EVENTUALLY(exporter_close(dev) == 0);
	assert_nothing_left();
}

/* ---- exporters ---- */

enum lie {
	NO_LIE,
	/* in the answer to the first message */
	HANGS_UP, SHORT, NO_PAGE, PAGE_UNSEALED, PAGE_SMALL, SIZE_0, SIZE_ODD, SIZE_HUGE, ERR_ABOVE_0,
	/* in the answer to a map */
	MEMORY_MISSING, MEMORY_UNSEALED, TOO_MANY, TOO_LITTLE, ODD, EMPTY_PIECE, PAST_THE_END, WRAPS, MAP_HANGS_UP,
	/* beside it */
	STRAY_INVALIDATE, STRAY_ANSWER, NO_TYPE,
	LIES,
};

static const int outcome[LIES] = {
	[HANGS_UP] = -ENODEV, [SHORT] = -ENODEV, [NO_PAGE] = -EMFILE, [PAGE_UNSEALED] = -EPROTO, [PAGE_SMALL] = -EPROTO,
	[SIZE_0] = -EPROTO, [SIZE_ODD] = -EPROTO, [SIZE_HUGE] = -EPROTO, [ERR_ABOVE_0] = -EPROTO,
	[MEMORY_MISSING] = -EMFILE, [MEMORY_UNSEALED] = -EPROTO, [TOO_MANY] = -EPROTO, [TOO_LITTLE] = -EPROTO,
	[ODD] = -EPROTO, [EMPTY_PIECE] = -EPROTO, [PAST_THE_END] = -EPROTO, [WRAPS] = -EPROTO, [MAP_HANGS_UP] = -ENODEV,
	[NO_TYPE] = -ENODEV,
};

struct liar {
	int listen_fd, acks;
	enum lie lie;
	struct dma_remote_page *page;
};

static int memory(size_t size, bool sealed, void **addr)
{
	int fd = memfd_create("liar", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (ftruncate(fd, (off_t)size) || (sealed && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW)))
		abort();
	if (addr)
		*addr = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	return fd;
}

static int say_hello(struct liar *l, struct dma_remote_msg *a)
{
	a->num = l->lie == SIZE_0 ? 0 : l->lie == SIZE_ODD ? SIZE + 1 : l->lie == SIZE_HUGE ? INT64_MAX & ~4095ul : SIZE;
	a->err = l->lie == ERR_ABOVE_0 ? 5 : 0;
	return l->lie == NO_PAGE ? -1
				 : memory(l->lie == PAGE_SMALL ? 16 : dma_remote_page_size(SIZE), l->lie != PAGE_UNSEALED,
					  (void **)&l->page);
}

static int say_map(struct liar *l, struct dma_remote_msg *a)
{
	a->map = 1;
	a->num = l->lie == TOO_MANY ? 5 : 2;
	for (unsigned i = 0; i < 2; i++) {
		l->page->piece[i].offset = i * SIZE / 2;
		l->page->piece[i].length = SIZE / 2;
	}
	if (l->lie == TOO_LITTLE)
		a->num = 1;
	if (l->lie == ODD)
		l->page->piece[1].offset += 8;
	if (l->lie == EMPTY_PIECE)
		l->page->piece[0].length = 0;
	if (l->lie == PAST_THE_END)
		l->page->piece[1].offset += PAGE;
	if (l->lie == WRAPS)
		l->page->piece[1].offset = -PAGE;
	return l->lie == MEMORY_MISSING ? -1 : memory(SIZE, l->lie != MEMORY_UNSEALED, NULL);
}

static void stray(struct liar *l, int sock)
{
	struct dma_remote_msg m = {.type = l->lie == STRAY_ANSWER    ? DMA_REMOTE_ANSWER
					   : l->lie == STRAY_INVALIDATE ? DMA_REMOTE_INVALIDATE
									: 99,
				   .seq = 7777, .id = 4711, .call = DMA_REMOTE_MAP};

	if (l->lie >= STRAY_INVALIDATE)
		usock_send(sock, &m, sizeof(m), NULL, 0);
}

/* false: it hangs up */
static bool lie(struct liar *l, int sock, const struct dma_remote_msg *m)
{
	struct dma_remote_msg a = {.type = DMA_REMOTE_ANSWER, .call = m->type, .seq = m->seq, .id = m->id};
	int fd = -1;

	if (m->type == DMA_REMOTE_ACK)
		l->acks++;
	if (m->type >= DMA_REMOTE_UNMAP)
		return true;
	if (l->lie == HANGS_UP || (l->lie == MAP_HANGS_UP && m->type == DMA_REMOTE_MAP))
		return false;
	if (m->type == DMA_REMOTE_HELLO)
		fd = say_hello(l, &a);
	if (m->type == DMA_REMOTE_MAP) {
		stray(l, sock);
		fd = say_map(l, &a);
	}
	usock_send(sock, &a, l->lie == SHORT ? 9 : sizeof(a), &fd, fd >= 0);
	if (fd >= 0)
		close(fd);
	return true;
}

static void *liar_thread(void *arg)
{
	struct liar *l = arg;
	struct pollfd p = {.fd = l->listen_fd, .events = POLLIN};
	struct dma_remote_msg m;
	int fds[USOCK_MAX_FDS], num, sock;

	poll(&p, 1, -1);
	sock = usock_accept(l->listen_fd);
	p.fd = sock;
	for (;;) {
		poll(&p, 1, -1);
		if (usock_recv(sock, &m, sizeof(m), fds, &num) <= 0)
			break;
		while (num)
			close(fds[--num]);
		if (!lie(l, sock, &m))
			break;
	}
	close(sock);
	if (l->page)
		munmap(l->page, dma_remote_page_size(SIZE));
	return NULL;
}

/* a descriptor as an exporter's, by name and kind */
static int false_buffer(uint64_t token)
{
	char name[64], path[32];
	int fd, only;

	snprintf(name, sizeof(name), "faultline-dmabuf:vram@%" PRIx64, token);
	fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_int_equal(ftruncate(fd, SIZE), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	only = open(path, O_WRONLY | O_CLOEXEC);
	close(fd);
	return only;
}

static void exporters(void **state)
{
	for (int i = 0; i < LIES; i++) {
		struct liar l = {.lie = i};
		uint64_t token = 0x1234567800ull + (unsigned)getpid() * 100ull + (unsigned)i;
		unsigned fds = open_fds();
		int fd = false_buffer(token), err;
		struct importer im;
		char name[40], b = 3;
		pthread_t t;

		snprintf(name, sizeof(name), DMA_REMOTE_NAME, token);
		l.listen_fd = usock_listen(name);
		assert_true(l.listen_fd >= 0);
		pthread_create(&t, NULL, liar_thread, &l);
		err = importer_get(&im, fd, DYNAMIC);
		if (i && i <= ERR_ABOVE_0) {
			assert_int_equal(err, outcome[i]);
		} else {
			assert_int_equal(err, 0);
			assert_int_equal(importer_dma(&im, SIZE - 1, &b, 1, true), outcome[i]);
			importer_release(&im);
		}
		close(fd);
		pthread_join(t, NULL);
		close(l.listen_fd);
		assert_int_equal(l.acks, i == STRAY_INVALIDATE);
		assert_int_equal(open_fds(), fds);
		assert_nothing_left();
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(exporters), cmocka_unit_test(importers), cmocka_unit_test(flood)};

	peer_main(argc, argv);
	alarm(100);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
