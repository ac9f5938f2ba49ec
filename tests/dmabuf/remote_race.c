/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Buffers of a small GPU, counted in by importers in other processes that come and go, pin, and are killed at any time,
 * while this process moves them, evicts them and uses them itself. Every word is one importer's, and goes up by one at
 * each access, or the access says so. And vfio buffers that are revoked while they are attached and used elsewhere.
 */
#include "peer.h"

#include "util/provoke.h"

#define PAGE	4096ul
#define BUFFERS 3
#define PAGES	5ul
#define SECONDS 3

static struct faultline_dmabuf_device *gpu;
static int bufs[BUFFERS];
static int over; /* atomic */
static unsigned long moves, evictions, own, regions, pins, kills;

/* in threads, where cmocka's own way of failing does not lead out of */
#define CHECK(x)                                                                                   \
	do {                                                                                       \
		if (!(x)) {                                                                        \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x);                    \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

static bool done(void)
{
	return __atomic_load_n(&over, __ATOMIC_RELAXED);
}

static void add(unsigned long *n)
{
	__atomic_fetch_add(n, 1, __ATOMIC_RELAXED);
}

/* 0, or it was killed */
static bool works(int err)
{
	CHECK(!err || err == -EPIPE);
	return !err;
}

/* one that is there for long, with all buffers, of each two regions of which one comes and goes */
static void *staying(void *arg)
{
	uint64_t at = (uint64_t)(uintptr_t)arg * 64;
	struct peer p = peer_start();

	for (int i = 0; i < BUFFERS; i++)
		CHECK(!peer_get(&p, i, bufs[i], DYNAMIC));
	for (unsigned n = 0; !done(); n++) {
		int i = (int)(n % BUFFERS), slot = BUFFERS + i;

		CHECK(!peer_ask(&p, .op = PEER_COUNT, .slot = i, .offset = at, .arg = 20));
		CHECK(!peer_get(&p, slot, bufs[i], DYNAMIC));
		CHECK(!peer_ask(&p, .op = PEER_COUNT, .slot = slot, .offset = at, .arg = 3));
		CHECK(!peer_ask(&p, .op = PEER_RELEASE, .slot = slot));
		add(&regions);
	}
	for (int i = 0; i < BUFFERS; i++)
		CHECK(!peer_ask(&p, .op = PEER_RELEASE, .slot = i));
	CHECK(!peer_ask(&p, .op = PEER_TOTALS));
	close(p.sock);
	CHECK(waitpid(p.pid, NULL, 0) == p.pid);
	return NULL;
}

struct victim {
	struct peer p;
	unsigned after_us;
};

static void *killer(void *arg)
{
	struct victim *v = arg;

	usleep(v->after_us);
	kill(v->p.pid, SIGKILL);
	return NULL;
}

/* ones that are killed: attaching, mapped, pinned, told, within a copy */
static void *killed(void *arg)
{
	uint64_t at = (uint64_t)(uintptr_t)arg * 64;
	unsigned seed = 3;

	while (!done()) {
		struct victim v = {.p = peer_start(), .after_us = (unsigned)rand_r(&seed) % 60000};
		bool alive = true;
		pthread_t t;

		CHECK(peer_ask(&v.p, .op = PEER_TOTALS) == 0); /* it is up */
		pthread_create(&t, NULL, killer, &v);
		for (int i = 0; alive; i = (i + 1) % BUFFERS) {
			alive = works(peer_get(&v.p, 0, bufs[i], DYNAMIC)) &&
				works(peer_ask(&v.p, .op = PEER_COUNT, .slot = 0, .offset = at, .arg = 5)) &&
				works(peer_get(&v.p, 1, bufs[i], PINNED)) &&
				works(peer_ask(&v.p, .op = PEER_COUNT, .slot = 1, .offset = at, .arg = 5)) &&
				works(peer_ask(&v.p, .op = PEER_RELEASE, .slot = 1)) &&
				works(peer_ask(&v.p, .op = PEER_RELEASE, .slot = 0));
			add(&pins);
		}
		pthread_join(t, NULL);
		CHECK(waitpid(v.p.pid, NULL, 0) == v.p.pid);
		close(v.p.sock);
		add(&kills);
	}
	return NULL;
}

static void *mover(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;

	while (!done()) {
		int err = exporter_move(bufs[rand_r(&seed) % BUFFERS],
					rand_r(&seed) % 2 ? FAULTLINE_DMABUF_DEVICE : FAULTLINE_DMABUF_SYSTEM);

		CHECK(!err || err == -EBUSY || err == -ENOMEM);
		if (!err)
			add(&moves);
		usleep(500);
	}
	return NULL;
}

static void *evictor(void *arg)
{
	uint64_t count[BUFFERS] = {0}, seen;
	unsigned seed = 7;

	for (unsigned n = 0; !done(); n++) {
		unsigned i = n % BUFFERS;
		int fd, err = exporter_alloc(gpu, (1 + (size_t)rand_r(&seed) % 8) * PAGE, 0, &fd);

		CHECK(!err || err == -ENOMEM);
		if (!err) {
			CHECK(!exporter_access(fd, 0, &seen, 8, false) && !seen); /* nobody else's bytes */
			close(fd);
			add(&evictions);
		}
		/* the device's own use */
		CHECK(!exporter_access(bufs[i], 8, &seen, 8, false) && seen == count[i]);
		count[i]++;
		CHECK(!exporter_access(bufs[i], 8, &count[i], 8, true));
		add(&own);
		usleep(1000);
	}
	return NULL;
}

/* or nothing was shown */
static bool enough(void)
{
	static const unsigned long *const all[] = {&regions, &pins, &kills, &moves, &evictions, &own};
	struct faultline_dmabuf_totals t;
	bool yes = true;

	for (unsigned i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		yes = yes && __atomic_load_n(all[i], __ATOMIC_RELAXED) > 3;
	exporter_totals(&t);
	return yes && t.invalidations > 10 && t.importers_ended;
}

static void gpu_race(void **state)
{
	static void *(*const fn[])(void *) = {staying, staying, killed, mover, evictor};
	struct faultline_dmabuf_totals t;
	pthread_t thread[5];

	gpu = device(FAULTLINE_DMABUF_VRAM, 13 * PAGE, 0); /* two of three */
	for (int i = 0; i < BUFFERS; i++)
		bufs[i] = buffer(gpu, PAGES * PAGE);
	for (uintptr_t i = 0; i < 5; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, fn[i], (void *)(i + 1)), 0);
	for (int n = 0; n < SECONDS * 10 || !enough(); n++) /* main()'s alarm has the last word */
		usleep(100000);
	__atomic_store_n(&over, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < 5; i++)
		pthread_join(thread[i], NULL);
	exporter_totals(&t);
	print_message("%lu regions, %lu pins, %lu killed, %lu moves, %lu allocations that evict, %lu evicted, %lu told\n",
		      regions, pins, kills, moves, evictions, device_info(gpu).evictions, t.invalidations);
	for (int i = 0; i < BUFFERS; i++)
		EVENTUALLY(!info_of(bufs[i]).attachments);
	for (int i = 0; i < BUFFERS; i++)
		close(bufs[i]);
	EVENTUALLY(!device_info(gpu).buffers);
	assert_int_equal(device_info(gpu).stale, 0);
	assert_int_equal(device_info(gpu).used, 0);
	assert_int_equal(exporter_close(gpu), 0);
	assert_nothing_left();
	exporter_totals(&t);
	assert_int_equal(t.importers_lost, 0);
}

/* ---- revocation against attaching, use, release and death elsewhere ---- */

struct user {
	struct peer *p;
	int fd, kind;
};

static void *uses(void *arg)
{
	struct user *u = arg;
	int err = peer_get(u->p, u->kind, u->fd, (enum importer_kind)u->kind);

	if (!err) {
		err = peer_ask(u->p, .op = PEER_COUNT, .slot = u->kind, .offset = (uint64_t)u->kind * 8, .arg = 20);
		CHECK(!peer_ask(u->p, .op = PEER_RELEASE, .slot = u->kind));
	}
	CHECK(!err || err == -ENODEV);
	return NULL;
}

static void revoke_race(void **state)
{
	struct faultline_dmabuf_device *dev = device(FAULTLINE_DMABUF_VFIO, 0, 0);
	struct peer p[2] = {peer_start(), peer_start()};
	unsigned seed = 1;

	for (int round = 0; round < 30; round++) {
		int fd = buffer(dev, PAGE);
		struct user u[2] = {{&p[0], fd, DYNAMIC}, {&p[1], fd, REVOCABLE}};
		struct faultline_dmabuf_info i;
		pthread_t t[2];

		for (int n = 0; n < 2; n++)
			pthread_create(&t[n], NULL, uses, &u[n]);
		usleep((unsigned)rand_r(&seed) % 2000);
		assert_int_equal(exporter_revoke(fd), 0);
		i = info_of(fd);
		assert_int_equal(i.maps + i.pins, 0);
		for (int n = 0; n < 2; n++)
			pthread_join(t[n], NULL);
		close(fd);
	}
	peer_stop(&p[0]);
	peer_stop(&p[1]);
	EVENTUALLY(exporter_close(dev) == 0);
	assert_nothing_left();
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(gpu_race), cmocka_unit_test(revoke_race)};
	struct provoke p = {.races = 1u << PROVOKE_DMA_MAPPED | 1u << PROVOKE_DMA_TOLD, .seed = 1};

	provoke_set(&p);
	peer_main(argc, argv);
	alarm(100); /* a deadlock is a failure, too */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
