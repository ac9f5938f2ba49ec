/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the end-to-end tests share: a side of an RC connection, a peer, patterns.
 *
 * These programs know the public verbs API and nothing of the library behind it. A side is a
 * context with PD, CQ and QP. A test holds one side itself; the other is a peer that does what it
 * is told by calls (rc_call): in this process when E2E_LINK is "loop" or not set (a second context
 * of the same device), else in a process of its own (the same program, executed with --peer), which
 * waits in recv() and polls nothing unless told, so that what happens there is the device's doing
 * alone.
 *
 * Whatever a test does not expect ends it with status 1 and a line that says where.
 */
#ifndef E2E_RC_H
#define E2E_RC_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE 4096ul
#define ALL_ACCESS                                                                                 \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |               \
	 IBV_ACCESS_REMOTE_ATOMIC)
#define ODP  IBV_ACCESS_ON_DEMAND
#define SKIP 77

#define FAIL(...)	 rc_fail(__FILE__, __LINE__, __VA_ARGS__)
#define CHECK(cond, ...) ((cond) ? (void)0 : rc_fail(__FILE__, __LINE__, __VA_ARGS__))
void rc_fail(const char *file, int line, const char *fmt, ...)
	__attribute__((noreturn, format(printf, 3, 4)));
void rc_skip(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));
/* a registration has failed with err: skips when that is for want of a right to pin so much */
void rc_skip_if_memlocked(int err);
/* what is pinned or locked of this process, as the kernel has it */
long rc_pinned_kb(void);

/* ---- a side ---- */

struct rc_opt {
	enum ibv_mtu mtu;
	uint8_t timeout, retry, rnr_retry, rnr_timer, rd_atomic;
	uint32_t qp_access, send_wr, recv_wr, sge, inline_data;
};
extern const struct rc_opt rc_default;

struct rc_hello {
	union ibv_gid gid;
	uint32_t qpn, psn;
};

#define RC_MAX_BUFS 32
struct rc_buf {
	uint8_t *addr;
	uint64_t size, iova;
	struct ibv_mr *mr;
};

struct rc_side {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct rc_hello me;
	struct rc_opt opt;
	struct rc_buf buf[RC_MAX_BUFS];
};

/* the device named by DEV, else the first */
struct ibv_context *rc_open_device(void);
void rc_open(struct rc_side *s);
/* a QP in RESET, in place of the one there is; what was left in the CQ is dropped */
void rc_make_qp(struct rc_side *s, const struct rc_opt *opt);
int rc_to_init(struct ibv_qp *qp, uint32_t access);
int rc_to_rtr(struct ibv_qp *qp, const struct rc_opt *opt, const struct rc_hello *peer);
int rc_to_rts(struct ibv_qp *qp, const struct rc_opt *opt, uint32_t psn);
/* all three, and none may fail */
void rc_connect(struct rc_side *s, const struct rc_hello *peer);
/* both sides in this process */
void rc_pair(struct rc_side *a, struct rc_side *b, const struct rc_opt *opt);
enum ibv_qp_state rc_state(struct ibv_qp *qp);
void rc_close(struct rc_side *s);

/* a UD QP in RTS, by init, whose type it sets */
struct ibv_qp *rc_make_ud(struct ibv_pd *pd, struct ibv_qp_init_attr *init, uint32_t qkey);

/* memory that a test maps, zeroed, or as it says; NULL never */
void *rc_map(size_t size);
void *rc_map_as(size_t size, int prot, int flags, int fd);
/* pages come a second after they are touched, with pattern 33 by offset; once a process */
#define RC_SLOW_SECONDS 1.0
void *rc_map_slow(size_t size);
struct ibv_mr *rc_reg(struct rc_side *s, void *addr, size_t size, int access);

/* ---- work ---- */

/* a request of one SGE; addresses are what the MR's are (iova) */
int rc_post(struct rc_side *s, enum ibv_wr_opcode opcode, uint64_t local, uint32_t len,
	    uint32_t lkey, uint64_t remote, uint32_t rkey);
int rc_post_recv(struct rc_side *s, uint64_t addr, uint32_t len, uint32_t lkey, uint64_t wr_id);
int rc_post_atomic(struct rc_side *s, enum ibv_wr_opcode opcode, uint64_t local, uint32_t lkey,
		   uint64_t remote, uint32_t rkey, uint64_t compare_add, uint64_t swap);
/* polls until there is a completion: false when there is none in time */
bool rc_poll(struct rc_side *s, struct ibv_wc *wc, double seconds);
/* the status of the next completion; a test that waits 20 s in vain fails */
enum ibv_wc_status rc_wait(struct rc_side *s);
#define rc_expect(s, status) rc_expect_at(__FILE__, __LINE__, s, status)
void rc_expect_at(const char *file, int line, struct rc_side *s, enum ibv_wc_status status);
double rc_now(void);

/* ---- patterns: depend on position and seed, with no period ---- */

void rc_fill(void *p, uint64_t len, uint64_t pos, uint64_t seed);
/* UINT64_MAX, or the offset of the first wrong byte */
uint64_t rc_differs(const void *p, uint64_t len, uint64_t pos, uint64_t seed);

/* ---- a peer ---- */

enum rc_op {
	RC_MAKE_QP, /* opt -> hello */
	RC_CONNECT, /* hello */
	RC_BUF, /* size, access, iova or RC_SAME, enum rc_mem -> index, iova, key, address, errno */
	RC_UNBUF,   /* index */
	RC_FILL,    /* index, offset, length, position, seed */
	RC_DIFFERS, /* index, offset, length, position, seed -> as rc_differs */
	RC_RECV,    /* sge[] of num_sge -> what ibv_post_recv says */
	RC_WAIT,    /* ms -> 1 or 0, status, byte_len, opcode, imm, flags */
	RC_STATE,   /* -> enum ibv_qp_state */
	RC_DESTROY_QP,
	RC_TO_STATE, /* state: RESET or ERR */
	RC_EVENT,    /* ms -> type of the next asynchronous event, or -1 */
	RC_GET,	     /* index, offset -> 8 bytes */
	RC_SET,	     /* index, offset, value */
	RC_MUNMAP,   /* index, offset, length */
	RC_REMAP,    /* index, offset, length: new memory at the place */
	RC_DONTNEED, /* index, offset, length */
	RC_PROTECT,  /* index, offset, length, prot */
	RC_OWN,	     /* the test's own: rc_own */
};

enum rc_mem { RC_ANON, RC_SHARED, RC_NORESERVE, RC_READ_ONLY, RC_SLOW };
#define RC_SAME (~1ull) /* iova is the address */

struct rc_call_sge {
	uint64_t buf, offset, length;
};

struct rc_msg {
	enum rc_op op;
	uint32_t num_sge;
	uint64_t arg[6];
	struct rc_opt opt;
	struct rc_hello hello;
	struct rc_call_sge sge[4];
};

struct rc_peer;
/* what RC_OWN does at the peer; set before rc_main() */
extern void (*rc_own)(struct rc_side *s, struct rc_msg *m);
/* Call first in main(): does not return in a peer's process. */
void rc_main(int argc, char **argv);
struct rc_peer *rc_peer_start(void);
bool rc_peer_is_process(const struct rc_peer *p);
/* 0 when it is in this process */
int rc_peer_pid(const struct rc_peer *p);
struct rc_msg rc_call_msg(struct rc_peer *p, struct rc_msg msg);
/* the common case: some numbers go, one comes */
#define rc_call(p, o, ...) rc_call1(p, (struct rc_msg){.op = (o), .arg = {__VA_ARGS__}})
static inline uint64_t rc_call1(struct rc_peer *p, struct rc_msg msg)
{
	return rc_call_msg(p, msg).arg[0];
}

/* QPs of both, connected */
void rc_connect_peer(struct rc_side *s, struct rc_peer *p, const struct rc_opt *opt);

struct rc_remote {
	uint64_t buf, iova, addr;
	uint32_t key;
};
struct rc_remote rc_peer_buf(struct rc_peer *p, uint64_t size, int access, uint64_t iova,
			     enum rc_mem mem);
void rc_peer_stop(struct rc_peer *p);

#endif
