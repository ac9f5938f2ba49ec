/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * RDMA from one device's memory into another's: WRITE, READ, SEND and atomics between dma-buf regions of each
 * kind, on each kind of NIC (`faultline run --device`); moved meanwhile, revoked, refused; and at both ends
 * nothing is left behind.
 */
#include <faultline/dmabuf.h>
#include <unistd.h>
#include "rc.h"

#define SIZE (40 * PAGE)
#define OFF  (PAGE + 64) /* of the region in the buffer */
#define LEN  (SIZE - 3 * PAGE)
#define IOVA (7 * PAGE + 64)

/* how this NIC imports */
static enum { NONE, DYNAMIC, PINNED, REVOCABLE } nic;
static bool atomics;

/* ---- an end: a buffer and its region, here or at the peer ---- */

enum own { OPEN, CLOSE, FILL, DIFFERS, WORD, MOVE, REVOKE, MAPS, LEFT };

static struct end {
	struct faultline_dmabuf_device *dev;
	struct ibv_mr *mr;
	int fd;
} mine, theirs; /* theirs: where the peer is in this process */

static void learn(struct rc_side *s)
{
	const char *name = ibv_get_device_name(s->ctx->device);
	struct ibv_device_attr attr;

	nic = !strncmp(name, "mlx5", 4)	   ? DYNAMIC
	      : !strncmp(name, "irdma", 5) ? REVOCABLE
	      : !strncmp(name, "rxe", 3)   ? NONE
					   : PINNED;
	CHECK(!ibv_query_device(s->ctx, &attr), "ibv_query_device: %s", strerror(errno));
	atomics = attr.atomic_cap != IBV_ATOMIC_NONE;
}

static uint64_t open_end(struct rc_side *s, struct end *e, const uint64_t *arg, uint32_t *key)
{
	struct faultline_dmabuf_device_attr attr = {.kind = (enum faultline_dmabuf_kind)arg[1]};
	int err = faultline_dmabuf_open(&attr, &e->dev) ?: faultline_dmabuf_alloc(e->dev, SIZE, 0, &e->fd);

	CHECK(!err, "device memory: %s", strerror(err));
	learn(s); /* the peer's process does, too */
	e->mr = ibv_reg_dmabuf_mr(s->pd, OFF, LEN, IOVA, e->fd, (int)arg[2]);
	err = errno;
	*key = e->mr ? e->mr->rkey : 0;
	return e->mr ? 0 : (uint64_t)err;
}

static uint64_t device_side(struct end *e, enum own what, uint64_t off, uint64_t len, uint64_t seed)
{
	uint8_t *copy = malloc(len);
	uint64_t at;
	int err;

	CHECK(copy, "no memory");
	rc_fill(copy, len, off, seed);
	err = what == FILL ? faultline_dmabuf_write(e->fd, off, copy, len)
			   : faultline_dmabuf_read(e->fd, copy, off, len);
	CHECK(!err, "from the device's side: %s", strerror(err));
	at = rc_differs(copy, len, off, seed);
	free(copy);
	return at;
}

static uint64_t word(struct end *e, uint64_t off)
{
	uint64_t w;
	int err = faultline_dmabuf_read(e->fd, &w, off, 8);

	CHECK(!err, "from the device's side: %s", strerror(err));
	return w;
}

static uint64_t num_maps(struct end *e)
{
	struct faultline_dmabuf_info i;

	CHECK(!faultline_dmabuf_info(e->fd, &i), "info");
	CHECK(i.pins == (nic > DYNAMIC && i.maps) && i.attachments == 1, "pins %u, attachments %u", i.pins, i.attachments);
	return i.maps;
}

static void close_end(struct end *e)
{
	CHECK(!e->mr || !ibv_dereg_mr(e->mr), "ibv_dereg_mr: %s", strerror(errno));
	CHECK(!close(e->fd) && !faultline_dmabuf_close(e->dev), "the buffer is in use still");
	e->mr = NULL;
}

static uint64_t left(void)
{
	struct faultline_dmabuf_totals t;

	CHECK(!faultline_dmabuf_totals(&t), "totals");
	return t.buffers + t.attachments + t.maps + t.pins + t.rule_breaks;
}

static uint64_t own(struct rc_side *s, struct end *e, uint64_t *arg)
{
	uint32_t key;
	uint64_t r = 0;

	switch ((enum own)arg[0]) {
	case OPEN:
		r = open_end(s, e, arg, &key);
		arg[1] = key;
		break;
	case CLOSE:
		close_end(e);
		break;
	case FILL:
	case DIFFERS:
		r = device_side(e, (enum own)arg[0], arg[1], arg[2], arg[3]);
		break;
	case WORD:
		r = word(e, arg[1]);
		break;
	case MOVE:
		r = (uint64_t)faultline_dmabuf_move(e->fd, (enum faultline_dmabuf_place)arg[1]);
		break;
	case REVOKE:
		r = (uint64_t)faultline_dmabuf_revoke(e->fd);
		break;
	case MAPS:
		r = num_maps(e);
		break;
	case LEFT:
		r = left();
	}
	return r;
}

static void peer_own(struct rc_side *s, struct rc_msg *m)
{
	struct end *e = &theirs;

	if (m->num_sge) { /* a receive of that many bytes into the region */
		m->arg[0] = (uint64_t)rc_post_recv(s, IOVA + m->arg[0], m->num_sge, e->mr->lkey, 1);
		return;
	}
	m->arg[0] = own(s, e, m->arg);
}

#define HERE(...)  own(&s, &mine, (uint64_t[6]){__VA_ARGS__})
#define THERE(...) rc_call(peer, RC_OWN, __VA_ARGS__)

static struct rc_side s;
static struct rc_peer *peer;

/* ---- what goes between them ---- */

static void differs_nowhere(const char *what, uint64_t at)
{
	CHECK(at == UINT64_MAX, "%s: wrong byte at %lu", what, (unsigned long)at);
}

/* moves both ends, where there is something to be moved; who pins says no */
static void move_both(enum faultline_dmabuf_kind kind, enum faultline_dmabuf_place to)
{
	uint64_t want = kind != FAULTLINE_DMABUF_VRAM ? EOPNOTSUPP : nic == DYNAMIC ? 0 : EBUSY;

	CHECK(HERE(MOVE, to) == want && THERE(MOVE, to) == want, "a move of kind %d is not %s", kind, strerror((int)want));
	CHECK(HERE(MAPS) == (want != 0) && THERE(MAPS) == (want != 0), "it is mapped still, or not any more");
}

static void add(uint32_t rkey)
{
	uint64_t was = THERE(WORD, OFF + 2048);

	for (unsigned i = 0; i < 3; i++) {
		CHECK(!rc_post_atomic(&s, IBV_WR_ATOMIC_FETCH_AND_ADD, IOVA + 512, mine.mr->lkey, IOVA + 2048, rkey,
				      10, 0),
		      "post");
		rc_expect(&s, IBV_WC_SUCCESS);
		CHECK(HERE(WORD, OFF + 512) == was, "what was there comes back into the dma-buf");
		was += 10;
	}
	CHECK(THERE(WORD, OFF + 2048) == was, "the sum is wrong");
}

static void traffic(enum faultline_dmabuf_kind kind, uint32_t rkey)
{
	uint32_t lkey = mine.mr->lkey, n = LEN - 3000;
	uint64_t seed = kind + 1;

	for (unsigned round = 0; round < 4; round++) {
		enum faultline_dmabuf_place to = round & 1 ? FAULTLINE_DMABUF_DEVICE : FAULTLINE_DMABUF_SYSTEM;

		seed += 10;
		HERE(FILL, OFF + 1001, n, seed);
		if (round)
			move_both(kind, to);
		CHECK(!rc_post(&s, IBV_WR_RDMA_WRITE, IOVA + 1001, n, lkey, IOVA + 1001, rkey), "post");
		rc_expect(&s, IBV_WC_SUCCESS);
		differs_nowhere("WRITE", THERE(DIFFERS, OFF + 1001, n, seed));

		HERE(FILL, OFF, LEN, seed + 5);
		if (round)
			move_both(kind, to);
		CHECK(!rc_post(&s, IBV_WR_RDMA_READ, IOVA + 1001, n, lkey, IOVA + 1001, rkey), "post");
		rc_expect(&s, IBV_WC_SUCCESS);
		differs_nowhere("READ", HERE(DIFFERS, OFF + 1001, n, seed));
		differs_nowhere("before READ's place", HERE(DIFFERS, OFF, 1001, seed + 5));
		differs_nowhere("behind READ's place", HERE(DIFFERS, OFF + 1001 + n, LEN - 1001 - n, seed + 5));

		CHECK(!rc_call1(peer, (struct rc_msg){.op = RC_OWN, .num_sge = 9000, .arg = {1001}}), "post a receive");
		if (round)
			move_both(kind, to);
		CHECK(!rc_post(&s, IBV_WR_SEND, IOVA, 1000, lkey, 0, 0), "post");
		rc_expect(&s, IBV_WC_SUCCESS);
		CHECK(rc_call(peer, RC_WAIT, 20000) == 1, "no receive");
		CHECK(THERE(WORD, OFF + 1001) == HERE(WORD, OFF), "SEND");
		if (atomics)
			add(rkey);
	}
}

static void dead_key(uint32_t rkey, uint64_t local)
{
	rc_connect_peer(&s, peer, &rc_default);
	CHECK(!rc_post(&s, IBV_WR_RDMA_WRITE, local, 8, mine.mr->lkey, IOVA, rkey), "post");
	rc_expect(&s, IBV_WC_REM_ACCESS_ERR);
	CHECK(rc_state(s.qp) == IBV_QPS_ERR, "the QP is not in error");
}

static void one_kind(enum faultline_dmabuf_kind kind)
{
	bool refused = nic == NONE || (kind == FAULTLINE_DMABUF_VFIO && nic == PINNED);
	int access = ALL_ACCESS & ~(atomics ? 0 : IBV_ACCESS_REMOTE_ATOMIC);
	struct rc_msg m = rc_call_msg(peer, (struct rc_msg){.op = RC_OWN, .arg = {OPEN, kind, access}});
	uint64_t err = HERE(OPEN, kind, access);
	uint32_t rkey = (uint32_t)m.arg[1];

	CHECK(err == (refused ? EOPNOTSUPP : 0) && m.arg[0] == err, "kind %d: %s, %s there", kind, strerror((int)err),
	      strerror((int)m.arg[0]));
	if (!err) {
		rc_connect_peer(&s, peer, &rc_default);
		traffic(kind, rkey);
		if (kind == FAULTLINE_DMABUF_VFIO) {
			CHECK(!THERE(REVOKE) && THERE(REVOKE) == EALREADY, "revoke");
			CHECK(!THERE(MAPS), "it is mapped still");
			dead_key(rkey, IOVA);
			/* and as what is sent */
			CHECK(!HERE(REVOKE), "revoke");
			rc_connect_peer(&s, peer, &rc_default);
			CHECK(!rc_post(&s, IBV_WR_SEND, IOVA, 8, mine.mr->lkey, 0, 0), "post");
			rc_expect(&s, IBV_WC_LOC_PROT_ERR);
		}
	}
	THERE(CLOSE);
	HERE(CLOSE);
	CHECK(!left() && !THERE(LEFT), "something is left");
}

/* ---- what is refused ---- */

#define GIVES(want, ...)                                                                           \
	do {                                                                                       \
		struct ibv_mr *mr_ = ibv_reg_dmabuf_mr(s.pd, __VA_ARGS__);                         \
		int err_ = mr_ ? 0 : errno;                                                        \
		int want_ = nic == NONE ? EOPNOTSUPP : (want);                                     \
		CHECK(err_ == want_, "%s: %s, not %s", #__VA_ARGS__, strerror(err_), strerror(want_)); \
		CHECK(!mr_ || !ibv_dereg_mr(mr_), "ibv_dereg_mr");                                 \
	} while (0)

static void refusals(void)
{
	int lw = IBV_ACCESS_LOCAL_WRITE, plain = memfd_create("plain", 0), fd;
	struct faultline_dmabuf_device_attr attr = {.kind = FAULTLINE_DMABUF_ACCEL};
	struct faultline_dmabuf_device *dev;

	CHECK(!ftruncate(plain, 4 * PAGE), "memfd");
	CHECK(!faultline_dmabuf_open(&attr, &dev) && !faultline_dmabuf_alloc(dev, 4 * PAGE, 0, &fd), "memory");
	GIVES(0, 0, 4 * PAGE, 0, fd, lw);
	GIVES(0, 0, 4 * PAGE, 0, fd, 0);
	GIVES(0, 100, PAGE, 9 * PAGE + 100, fd, lw | IBV_ACCESS_RELAXED_ORDERING);
	GIVES(EINVAL, 0, 0, 0, fd, lw);
	GIVES(EINVAL, 0, 4 * PAGE + 1, 0, fd, lw);
	GIVES(EINVAL, 4 * PAGE, 1, 0, fd, lw);
	GIVES(EINVAL, PAGE, SIZE_MAX - PAGE + 1, 0, fd, lw);
	GIVES(EINVAL, 100, PAGE, 0, fd, lw);
	GIVES(EINVAL, 0, PAGE, 8, fd, lw);
	GIVES(EINVAL, 0, PAGE, 0, fd, lw | ODP);
	GIVES(EINVAL, 0, PAGE, 0, fd, lw | IBV_ACCESS_MW_BIND);
	GIVES(EINVAL, 0, PAGE, 0, fd, lw | IBV_ACCESS_ZERO_BASED);
	GIVES(EINVAL, 0, PAGE, 0, fd, lw | IBV_ACCESS_HUGETLB);
	GIVES(EINVAL, 0, PAGE, 0, fd, IBV_ACCESS_REMOTE_WRITE);
	GIVES(EBADF, 0, PAGE, 0, -1, lw);
	GIVES(EBADF, 0, PAGE, 0, 4711, lw);
	GIVES(EINVAL, 0, PAGE, 0, plain, lw);
	for (int call = FAULTLINE_DMABUF_CALL_ATTACH; nic != NONE && call <= FAULTLINE_DMABUF_CALL_MAP; call++) {
		CHECK(!faultline_dmabuf_fail(fd, (enum faultline_dmabuf_call)call, EBUSY), "to make it fail");
		GIVES(call == FAULTLINE_DMABUF_CALL_PIN && nic == DYNAMIC ? 0 : EBUSY, 0, PAGE, 0, fd, lw);
		faultline_dmabuf_fail(fd, (enum faultline_dmabuf_call)call, 0);
	}
	close(plain);
	CHECK(!close(fd) && !faultline_dmabuf_close(dev) && !left(), "something is left");
}

/* prefetch maps what has moved, whatever the advice; what is pinned is not to be advised about */
static void advice(void)
{
	static const enum ibv_advise_mr_advice advices[] = {IBV_ADVISE_MR_ADVICE_PREFETCH,
							    IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
							    IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT};
	struct ibv_sge sge = {.addr = IOVA, .length = LEN};

	CHECK(!HERE(OPEN, FAULTLINE_DMABUF_VRAM, ALL_ACCESS), "open");
	sge.lkey = mine.mr->lkey;
	for (unsigned i = 0; i < 3; i++) {
		int err;

		CHECK(!HERE(MOVE, FAULTLINE_DMABUF_DEVICE) && !HERE(MAPS), "a move leaves it unmapped");
		err = ibv_advise_mr(s.pd, advices[i], IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1);
		CHECK(!err && HERE(MAPS) == 1, "advice %d: %s", advices[i], strerror(err));
	}
	HERE(CLOSE);
}

/* regions that a program forgets go with their context */
static void forgotten(void)
{
	struct ibv_context *ctx = rc_open_device();
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct faultline_dmabuf_device_attr attr = {.kind = FAULTLINE_DMABUF_VRAM};
	struct faultline_dmabuf_device *dev;
	int fd;

	CHECK(pd && !faultline_dmabuf_open(&attr, &dev) && !faultline_dmabuf_alloc(dev, SIZE, 0, &fd), "memory");
	CHECK(ibv_reg_dmabuf_mr(pd, 0, SIZE, 0, fd, 0), "ibv_reg_dmabuf_mr: %s", strerror(errno));
	CHECK(!ibv_close_device(ctx), "ibv_close_device: %s", strerror(errno));
	CHECK(!close(fd) && !faultline_dmabuf_close(dev) && !left(), "something is left");
}

int main(int argc, char **argv)
{
	rc_own = peer_own;
	rc_main(argc, argv);
	rc_open(&s);
	learn(&s);
	peer = rc_peer_start();
	refusals();
	for (int kind = FAULTLINE_DMABUF_MEMFD; kind <= FAULTLINE_DMABUF_VFIO; kind++)
		one_kind((enum faultline_dmabuf_kind)kind);
	if (nic == DYNAMIC)
		advice();
	if (nic != NONE)
		forgotten();
	CHECK(!left(), "something is left");
	rc_peer_stop(peer);
	rc_close(&s);
	return 0;
}
