/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * kv_store: a key-value store whose values are malloc()ed and freed at will, and never registered.
 *
 *     faultline run -- build/examples/kv_store
 *
 * Two processes. The server keeps an index and answers where a value is; the client then writes or
 * reads the value itself, by RDMA. One registration, made once, covers the server's whole address
 * space, with what will be allocated later: an implicit on-demand region. When a value is freed the
 * allocator may give its pages back to the kernel, and the device loses them; when a new value
 * comes to lie at the same addresses the device finds the new pages. That is what a store with
 * pinned memory cannot do: it would have to manage a pool of its own, or register each value, which
 * this one does where the device has no implicit regions, so that the two can be compared.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "examples/common.h"

const char *example_name = "kv_store";

#define KEYS	  16
#define OPS	  400
#define MAX_VALUE (1u << 20)

enum op { PUT, STORED, GET, DELETE, END };

struct request {
	enum op op;
	uint32_t key, len;
};

struct answer {
	struct remote at;
	uint32_t len; /* 0: there is none */
};

/* ---- the server ---- */

struct value {
	uint8_t *data;
	uint32_t len;
	struct ibv_mr *mr; /* NULL: the implicit region covers it */
};

static struct store {
	struct side s;
	struct ibv_mr *all; /* the whole address space, or NULL */
	unsigned stored, freed, registered;
	struct value value[KEYS], coming; /* coming: the client is writing it */
} store;

#define ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

static void new_value(struct value *v, uint32_t len)
{
	v->data = malloc(len);
	if (!v->data)
		die("malloc");
	v->len = len;
	if (store.all)
		return;
	/* no implicit regions here: each value costs a registration, and its pages stay */
	v->mr = reg_mr(&store.s, v->data, len,
		       ACCESS | (has_odp(&store.s) ? IBV_ACCESS_ON_DEMAND : 0), "a value");
	store.registered++;
}

static void free_value(struct value *v)
{
	if (!v->data)
		return;
	if (v->mr && (errno = ibv_dereg_mr(v->mr)))
		die("deregister a value");
	free(v->data);
	memset(v, 0, sizeof(*v));
	store.freed++;
}

static struct answer where(const struct value *v)
{
	struct answer a = {.len = v->len};

	if (v->data)
		a.at = (struct remote){(uintptr_t)v->data,
				       store.all ? store.all->rkey : v->mr->rkey};
	return a;
}

static int serve(int sock)
{
	struct request r;

	open_side(&store.s, sock, "");
	if (has_implicit_odp(&store.s))
		store.all = reg_mr(&store.s, NULL, SIZE_MAX, ACCESS | IBV_ACCESS_ON_DEMAND,
				   "the address space");
	connect_qp(&store.s);
	while (recv_all(sock, &r, sizeof(r)) && r.op != END) {
		struct value *v = &store.value[r.key];
		struct answer a = {0};

		switch (r.op) {
		case PUT:
			new_value(&store.coming, r.len);
			a = where(&store.coming);
			break;
		case STORED:
			free_value(v);
			*v = store.coming;
			memset(&store.coming, 0, sizeof(store.coming));
			store.stored++;
			break;
		case DELETE:
			free_value(v);
			break;
		default:
			a = where(v);
		}
		send_all(sock, &a, sizeof(a));
	}
	for (int i = 0; i < KEYS; i++)
		free_value(&store.value[i]);
	if (store.all && (errno = ibv_dereg_mr(store.all)))
		die("deregister the address space");
	close_side(&store.s);
	if (store.all)
		printf("server: %u values came and %u went under one key (implicit on-demand region)\n",
		       store.stored, store.freed);
	else
		printf("server: %u values came and %u went, %u registrations (%s; this device has no implicit regions)\n",
		       store.stored, store.freed, store.registered,
		       has_odp(&store.s) ? "on demand" : "pinned");
	return client_status();
}

/* ---- the client ---- */

static struct answer ask(int sock, enum op op, uint32_t key, uint32_t len)
{
	struct request r = {op, key, len};
	struct answer a;

	send_all(sock, &r, sizeof(r));
	errno = 0;
	if (!recv_all(sock, &a, sizeof(a)))
		die("the server is gone");
	return a;
}

static void put(struct side *s, uint8_t *buf, uint32_t lkey, uint32_t key, uint32_t len,
		unsigned seed)
{
	struct answer a = ask(s->sock, PUT, key, len);

	for (uint32_t i = 0; i < len; i++)
		buf[i] = pattern(i, seed);
	rdma(s, IBV_WR_RDMA_WRITE, buf, lkey, len, a.at);
	ask(s->sock, STORED, key, len);
}

static void get(struct side *s, uint8_t *buf, uint32_t lkey, uint32_t key, uint32_t len,
		unsigned seed)
{
	struct answer a = ask(s->sock, GET, key, 0);

	errno = 0;
	if (a.len != len)
		die("key %u: %u bytes, not %u", key, a.len, len);
	if (!len)
		return;
	memset(buf, 0, len);
	rdma(s, IBV_WR_RDMA_READ, buf, lkey, len, a.at);
	errno = 0;
	for (uint32_t i = 0; i < len; i++) {
		if (buf[i] != pattern(i, seed))
			die("key %u: wrong byte at %u of %u", key, i, len);
	}
}

static int use(int sock)
{
	struct {
		uint32_t len;
		unsigned seed;
	} have[KEYS] = {0}; /* what must be there */
	unsigned gets = 0, puts = 0, deletes = 0;
	struct request end = {.op = END};
	struct side s;
	struct ibv_mr *mr;
	uint8_t *buf;

	open_side(&s, sock, "");
	buf = malloc(MAX_VALUE);
	if (!buf)
		die("malloc");
	mr = reg_mr(&s, buf, MAX_VALUE, IBV_ACCESS_LOCAL_WRITE, "the client's buffer");
	connect_qp(&s);
	srand(1);
	for (unsigned i = 1; i <= OPS; i++) {
		uint32_t key = (uint32_t)rand() % KEYS;

		switch (rand() % 8) {
		case 0:
			ask(sock, DELETE, key, 0);
			have[key].len = 0;
			deletes++;
			break;
		case 1 ... 3:
			/* from some bytes to a size that malloc() maps and free() unmaps */
			have[key].len = 1 + (uint32_t)rand() % (1u << (4 + rand() % 17));
			have[key].seed = i;
			put(&s, buf, mr->lkey, key, have[key].len, i);
			puts++;
			break;
		default:
			get(&s, buf, mr->lkey, key, have[key].len, have[key].seed);
			gets++;
		}
	}
	for (uint32_t key = 0; key < KEYS; key++)
		get(&s, buf, mr->lkey, key, have[key].len, have[key].seed);
	printf("client: %u puts, %u gets, %u deletes: data right\n", puts, gets, deletes);
	if ((errno = ibv_dereg_mr(mr)))
		die("deregister");
	close_side(&s);
	send_all(sock, &end, sizeof(end));
	return 0;
}

int main(int argc, char **argv)
{
	int sock;

	no_arguments(argc, argv);
	return two_processes(&sock) == SERVER ? serve(sock) : use(sock);
}
