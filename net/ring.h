/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A ring of records in a memfd, from one process to another (or itself). ring.c tells how it works.
 *
 * Neither side believes the other: indexes are kept privately and what the peer writes is checked;
 * what cannot be makes the ring broken, for good. Callers serialise each side.
 */
#ifndef FL_NET_RING_H
#define FL_NET_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RING_BYTES  (1u << 20) /* of data; choice: bench/ring.c */
#define RING_ALIGN  64	       /* of records */
#define RING_HEADER 4096       /* the indexes' page */

/* Each field is written by one side, and has a cache line of its own. */
struct ring_shared {
	uint64_t magic;
	uint64_t bytes;
	_Alignas(64) _Atomic uint64_t head;    /* consumer: bytes ever taken out */
	_Alignas(64) _Atomic uint64_t wake_at; /* producer: tell it when head is there; consumer clears */
	_Alignas(64) _Atomic uint32_t asleep;  /* consumer sets, producer clears */
};

struct ring_tx {
	struct ring_shared *sh;
	uint8_t *data;
	uint64_t tail;
	uint64_t head;	 /* as last seen */
	uint64_t dirty;	 /* up to where reservations may have written */
	uint64_t zeroed; /* from tail or dirty up to here every line begins with a zero word */
	int data_fd;   /* eventfd: wakes the consumer */
	bool broken;
};

struct ring_rx {
	struct ring_shared *sh; /* with the data behind it, always readable: see ring_rx_detach() */
	uint8_t *data;
	_Atomic uint64_t head;
	int space_fd; /* eventfd: wakes the producer */
};

/* A new ring's memfd, sized, sealed and initialised. The consumer counts as asleep until it says otherwise. */
int ring_create(void);
/* Is it a ring of the right size that nobody can shrink? 0 or -EPROTO. */
int ring_check(int memfd);

int ring_tx_attach(struct ring_tx *r, int memfd, int data_fd);
void ring_tx_detach(struct ring_tx *r);

/* gives r the empty memory that stands in for a ring when there is none; once, before anything else */
int ring_rx_init(struct ring_rx *r);
void ring_rx_destroy(struct ring_rx *r);
int ring_rx_attach(struct ring_rx *r, int memfd, int space_fd);
void ring_rx_detach(struct ring_rx *r);

/* Room for a record of len bytes (rounded up to RING_ALIGN), contiguous; NULL: there is none now. */
uint8_t *ring_reserve(struct ring_tx *r, uint32_t len);
/*
 * Makes visible what was reserved, and wakes the consumer if it sleeps. line: the record's first
 * RING_ALIGN bytes, of which the first eight are not all zero; what follows them is in place already.
 */
void ring_publish(struct ring_tx *r, uint32_t len, const uint8_t line[RING_ALIGN]);
/* After a failed reserve: asks to be told. true: there is room by now, try again. */
bool ring_want_space(struct ring_tx *r, uint32_t len);
/* enough is free to be worth telling a waiter */
bool ring_has_space(struct ring_tx *r);

/*
 * Is there a record? Without serialisation a hint: what looks like one may be the middle of one
 * that another thread has taken.
 */
static inline bool ring_pending(const struct ring_rx *r)
{
	uint64_t head = atomic_load_explicit(&r->head, memory_order_relaxed);

	/* acquire: pairs with the release in ring_publish() */
	return atomic_load_explicit((_Atomic uint64_t *)(r->data + head % RING_BYTES),
				    memory_order_acquire);
}

/* The next record, NULL: none. RING_BYTES can be read from it, whatever it says of itself. */
static inline const uint8_t *ring_peek(const struct ring_rx *r)
{
	if (!ring_pending(r))
		return NULL;
	return r->data + atomic_load_explicit(&r->head, memory_order_relaxed) % RING_BYTES;
}
void ring_consume(struct ring_rx *r, uint32_t len);

void ring_set_asleep(struct ring_rx *r, bool asleep);

#endif
