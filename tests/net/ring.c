/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The ring: two threads, records of all sizes, both sides sleeping when there is nothing to do (a lost
 * wake-up shows as a time-out); then what a hostile peer can do to it: indexes and records of random
 * bytes end in a broken ring or a refused packet, never in a crash.
 */
#include <poll.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include "node.h"
#include "net/ring.h"
#include "net/train.h"

#define RECORDS 300000u

static struct ring_tx tx;
static struct ring_rx rx;
static int data_fd, space_fd;
static unsigned long tx_sleeps, rx_sleeps;

static void wait_fd(int fd, bool *timed_out)
{
	struct pollfd pfd = {.fd = fd, .events = POLLIN};
	uint64_t v;

	*timed_out = poll(&pfd, 1, 10000) <= 0;
	if (!*timed_out)
		CHECK(read(fd, &v, sizeof(v)) == sizeof(v));
}

static uint32_t record_len(uint32_t i)
{
	uint32_t r = i * 2654435761u;

	return r % 97 == 0 ? 60000 + r % 5000 : 12 + r % 300;
}

static void *producer(void *arg)
{
	uint8_t line[RING_ALIGN] = {0}, *p;
	uint32_t i, j, len;
	bool late;

	for (i = 0; i < RECORDS; i++) {
		len = record_len(i);
		while (!(p = ring_reserve(&tx, len))) {
			if (ring_want_space(&tx, len))
				continue;
			tx_sleeps++;
			wait_fd(space_fd, &late);
			CHECK(!late);
		}
		memcpy(line, &len, 4);
		memcpy(line + 4, &i, 4);
		for (j = 8; j < len; j += 61)
			*(j < RING_ALIGN ? line + j : p + j) = pattern(i, j);
		ring_publish(&tx, len, line);
	}
	return NULL;
}

static void consumer(void)
{
	uint32_t i = 0, j, len, got;
	const uint8_t *p;
	bool late;

	while (i < RECORDS) {
		p = ring_peek(&rx);
		if (!p) {
			ring_set_asleep(&rx, true);
			if (!ring_pending(&rx)) {
				rx_sleeps++;
				wait_fd(data_fd, &late);
				CHECK(!late);
			}
			ring_set_asleep(&rx, false);
			continue;
		}
		memcpy(&len, p, 4);
		memcpy(&got, p + 4, 4);
		CHECK(got == i && len == record_len(i));
		for (j = 8; j < len; j += 61)
			CHECK(p[j] == pattern(i, j));
		ring_consume(&rx, len);
		i++;
	}
	CHECK(!ring_pending(&rx));
}

static void attach(void)
{
	int fd = ring_create();

	CHECK(fd >= 0);
	CHECK(!ring_check(fd));
	CHECK(!ring_tx_attach(&tx, fd, data_fd));
	CHECK(!ring_rx_attach(&rx, fd, space_fd));
	close(fd);
}

static void detach(void)
{
	ring_rx_detach(&rx);
	ring_tx_detach(&tx);
	CHECK(!ring_pending(&rx)); /* still readable, and empty */
}

static void two_threads(void)
{
	pthread_t t;

	attach();
	CHECK(!pthread_create(&t, NULL, producer, NULL));
	consumer();
	pthread_join(t, NULL);
	detach();
	printf("%u records, the producer slept %lu times, the consumer %lu\n", RECORDS, tx_sleeps, rx_sleeps);
}

static const uint8_t one_line[RING_ALIGN] = {1};

/* A reservation that is not published leaves nothing behind, nor do old data look like a record. */
static void unpublished(void)
{
	unsigned i;
	uint8_t *p;

	attach();
	for (i = 0; i < 3 * RING_BYTES / 192; i++) {
		p = ring_reserve(&tx, 192);
		CHECK(p);
		memset(p + 64, 0xff, 128);
		CHECK(!ring_pending(&rx) && !ring_peek(&rx));
		CHECK(ring_reserve(&tx, 64) == p);
		ring_publish(&tx, 192, one_line);
		CHECK(ring_peek(&rx)[0] == 1 && ring_peek(&rx)[64] == 0xff);
		ring_consume(&rx, 192);
	}
	detach();
}

/* A large reservation, scribbled on and given up, then small records over the same place. */
static void given_up(void)
{
	unsigned i, k;
	uint8_t *p;

	attach();
	for (i = 0; i < 20000; i++) {
		p = ring_reserve(&tx, 1024);
		CHECK(p);
		memset(p + 64, 0xff, 1024 - 64);
		for (k = i % 5; k; k--) {
			CHECK(ring_reserve(&tx, 64 * k));
			ring_publish(&tx, 64 * k, one_line);
			CHECK(ring_peek(&rx)[0] == 1);
			ring_consume(&rx, 64 * k);
			CHECK(!ring_peek(&rx));
		}
	}
	detach();
}

/* full: no more than fits, and who waits for space is told when a good part is free */
static void full(void)
{
	unsigned n = 0, k;
	uint64_t v;

	attach();
	while (ring_reserve(&tx, 4096)) {
		ring_publish(&tx, 4096, one_line);
		n++;
	}
	CHECK(n == RING_BYTES / 4096 - 1);
	CHECK(!ring_has_space(&tx));
	CHECK(!ring_want_space(&tx, 4096));
	for (k = 1; read(space_fd, &v, 8) < 0; k++) {
		CHECK(k < n && ring_peek(&rx));
		ring_consume(&rx, 4096);
	}
	CHECK(k > n / 4 && k < n * 3 / 4);
	CHECK(ring_has_space(&tx) && ring_reserve(&tx, 4096));
	for (; ring_peek(&rx); k++)
		ring_consume(&rx, 4096);
	CHECK(k == n + 1);
	CHECK(read(space_fd, &v, 8) < 0); /* told once */
	detach();
}

/* the consumer lies about head */
static void hostile_head(void)
{
	unsigned i, k;

	srandom(2);
	for (i = 0; i < 200; i++) {
		attach();
		for (k = random() % 8; k; k--) {
			CHECK(ring_reserve(&tx, 64));
			ring_publish(&tx, 64, one_line);
		}
		atomic_store(&tx.sh->head, ((uint64_t)random() + 2) << 20 | random() % 64);
		while (ring_reserve(&tx, 60000))
			ring_publish(&tx, 60000, one_line);
		CHECK(tx.broken);
		CHECK(!ring_reserve(&tx, 64) && ring_has_space(&tx));
		detach();
	}
}

/* another process, as a hostile peer would be */
static pid_t start_scribbler(void)
{
	uint64_t r = 88172645463325252ull;
	pid_t pid = fork();

	if (pid)
		return pid;
	for (;;) {
		r ^= r << 13;
		r ^= r >> 7;
		r ^= r << 17;
		tx.data[r % 8192] = r >> 32;
	}
}

/* Records change under the reader. */
static void hostile_records(void)
{
	struct roce_pkt pkt;
	unsigned i, ok = 0, refused = 0, framing = 0, k;
	const uint8_t *q;
	uint32_t size;
	pid_t scribbler;

	attach();
	scribbler = start_scribbler();
	for (i = 0; i < 200000; i++) {
		struct roce_pkt in = {.opcode = IBV_OPCODE_RC_SEND_FIRST, .npkts = 2, .mtu = 256,
				      .opcode_last = IBV_OPCODE_RC_SEND_LAST, .payload_len = 300};
		uint8_t line[REC_LINE];
		uint32_t off, len = train_encode(&in, line, &off);
		volatile uint8_t sum = 0;

		CHECK(ring_reserve(&tx, len));
		ring_publish(&tx, len, line);
		q = ring_peek(&rx);
		if (q && !train_decode(q, RING_BYTES, &pkt, &size)) {
			ok++;
			for (k = 0; k < pkt.payload_len; k++)
				sum += pkt.payload[k];
			CHECK(pkt.npkts >= 1 && pkt.payload_len <= TRAIN_MAX);
		} else if (q && size) {
			refused++;
		} else {
			framing++;
		}
		CHECK(!q || size <= TRAIN_MAX + REC_LINE);
		ring_consume(&rx, len);
	}
	kill(scribbler, SIGKILL);
	waitpid(scribbler, NULL, 0);
	detach();
	CHECK(ok);
	printf("scribbled on: %u decoded, %u refused, %u without framing\n", ok, refused, framing);
}

/* descriptors that are not a ring, or one that could be shrunk under us */
static void not_a_ring(void)
{
	int fd = memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING), good = ring_create(), p[2];

	CHECK(ring_check(fd) == -EPROTO);
	CHECK(!ftruncate(fd, RING_HEADER + RING_BYTES));
	CHECK(ring_check(fd) == -EPROTO);
	CHECK(!fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK));
	CHECK(ring_check(fd) == -EPROTO);
	CHECK(!fcntl(fd, F_ADD_SEALS, F_SEAL_GROW));
	CHECK(ring_check(fd) == -EPROTO); /* no magic */
	CHECK(!ring_check(good));
	CHECK(ftruncate(good, 4096) < 0);
	CHECK(!pipe(p));
	CHECK(ring_check(p[0]) == -EPROTO);
	close(p[0]);
	close(p[1]);
	close(fd);
	close(good);
}

int main(void)
{
	fl_log_level = LOG_NONE;
	data_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	space_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	CHECK(data_fd >= 0 && space_fd >= 0);
	CHECK(!ring_rx_init(&rx));
	not_a_ring();
	unpublished();
	given_up();
	full();
	two_threads();
	hostile_head();
	hostile_records();
	ring_rx_destroy(&rx);
	return 0;
}
