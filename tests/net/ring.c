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

	return r % 97 == 0 ? 60000 + r % 5000 : 8 + r % 300;
}

static void *producer(void *arg)
{
	uint32_t i, j, len;
	uint8_t *p;
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
		memcpy(p, &i, 4);
		memcpy(p + 4, &len, 4);
		for (j = 8; j < len; j += 61)
			p[j] = pattern(i, j);
		ring_publish(&tx, len);
	}
	return NULL;
}

static void consumer(void)
{
	uint32_t i = 0, j, len, got, avail;
	const uint8_t *p;
	bool late;

	while (i < RECORDS) {
		avail = ring_peek(&rx, &p);
		CHECK(!rx.broken);
		if (!avail) {
			ring_consumed(&rx);
			ring_set_asleep(&rx, true);
			if (!ring_pending(&rx)) {
				rx_sleeps++;
				wait_fd(data_fd, &late);
				CHECK(!late);
			}
			ring_set_asleep(&rx, false);
			continue;
		}
		memcpy(&got, p, 4);
		memcpy(&len, p + 4, 4);
		CHECK(got == i && len == record_len(i) && len <= avail);
		for (j = 8; j < len; j += 61)
			CHECK(p[j] == pattern(i, j));
		ring_consume(&rx, len);
		i++;
	}
	ring_consumed(&rx);
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

/* A reservation that is not published leaves nothing behind. */
static void unpublished(void)
{
	const uint8_t *q;
	uint8_t *p;

	attach();
	p = ring_reserve(&tx, 100);
	CHECK(p);
	memset(p, 0xff, 100);
	CHECK(!ring_pending(&rx) && !ring_peek(&rx, &q));
	CHECK(ring_reserve(&tx, 100) == p);
	ring_publish(&tx, 100);
	CHECK(ring_peek(&rx, &q) == 128);
	detach();
}

/* full: no more than fits, and the want_space flag works when the consumer takes all */
static void full(void)
{
	const uint8_t *q;
	unsigned n = 0;
	uint64_t v;

	attach();
	while (ring_reserve(&tx, 4096)) {
		ring_publish(&tx, 4096);
		n++;
	}
	CHECK(n == RING_BYTES / 4096);
	CHECK(!ring_has_space(&tx));
	CHECK(!ring_want_space(&tx, 4096));
	CHECK(ring_peek(&rx, &q) == RING_BYTES);
	CHECK(read(space_fd, &v, 8) < 0);
	ring_consume(&rx, 4096);
	CHECK(read(space_fd, &v, 8) < 0); /* too little to be worth a wake-up */
	ring_consume(&rx, RING_BYTES / 4);
	CHECK(read(space_fd, &v, 8) == 8);
	CHECK(ring_has_space(&tx) && ring_reserve(&tx, 4096));
	detach();
}

static void hostile_indexes(void)
{
	unsigned i, broken = 0, k;
	const uint8_t *q;
	uint8_t *p;

	srandom(2);
	for (i = 0; i < 300; i++) {
		attach();
		for (k = random() % 8; k; k--) {
			CHECK(ring_reserve(&tx, 64));
			ring_publish(&tx, 64);
		}
		if (i & 1) {
			/* the producer lies about tail */
			uint64_t bad = random() % 3 ? (uint64_t)random() << 33 | random() :
						      tx.tail - 64 * (random() % 4) + random() % 64;
			uint32_t avail;

			atomic_store(&rx.sh->tail, bad);
			avail = ring_peek(&rx, &q);
			CHECK(avail <= RING_BYTES && avail % 64 == 0);
			CHECK(rx.broken || avail == bad);
			broken += rx.broken;
		} else {
			/* the consumer lies about head */
			atomic_store(&tx.sh->head, (uint64_t)random() << 20 | random() % 64);
			while ((p = ring_reserve(&tx, 60000)))
				ring_publish(&tx, 60000);
			CHECK(tx.broken);
			CHECK(!ring_reserve(&tx, 64));
			broken++;
		}
		detach();
	}
	CHECK(broken > 200);
}

static pthread_t scribbler_thread;
static volatile bool scribbling;

static void *scribbler(void *arg)
{
	uint64_t r = 88172645463325252ull;

	while (scribbling) {
		r ^= r << 13;
		r ^= r >> 7;
		r ^= r << 17;
		tx.data[r % 8192] = r >> 32;
	}
	return NULL;
}

/* Records change under the reader. */
static void hostile_records(void)
{
	struct roce_pkt pkt;
	unsigned i, ok = 0, refused = 0, framing = 0, k;
	uint32_t avail, size;
	const uint8_t *q;
	uint8_t *p;

	attach();
	scribbling = true;
	CHECK(!pthread_create(&scribbler_thread, NULL, scribbler, NULL));
	for (i = 0; i < 200000; i++) {
		struct roce_pkt in = {.opcode = IBV_OPCODE_RC_SEND_FIRST, .npkts = 2, .mtu = 256,
				      .opcode_last = IBV_OPCODE_RC_SEND_LAST, .payload_len = 300};
		uint8_t line[REC_LINE];
		uint32_t off, len = train_encode(&in, line, &off);
		volatile uint8_t sum = 0;

		p = ring_reserve(&tx, len);
		CHECK(p);
		memcpy(p, line, sizeof(line));
		ring_publish(&tx, len);
		avail = ring_peek(&rx, &q);
		CHECK(avail == len);
		if (!train_decode(q, avail, &pkt, &size)) {
			ok++;
			for (k = 0; k < pkt.payload_len; k++)
				sum += pkt.payload[k];
			CHECK(pkt.npkts >= 1 && pkt.npkts <= 2 && pkt.payload_len <= 512);
		} else if (size) {
			refused++;
		} else {
			framing++;
		}
		CHECK(size <= avail);
		ring_consume(&rx, len);
	}
	scribbling = false;
	pthread_join(scribbler_thread, NULL);
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
	full();
	two_threads();
	hostile_indexes();
	hostile_records();
	ring_rx_destroy(&rx);
	return 0;
}
