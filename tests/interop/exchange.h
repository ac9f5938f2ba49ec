/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the files of the exchange (exchange.c) share: the two ends, work between them, and the
 * cases, in which the client requests.
 */
#ifndef EXCHANGE_H
#define EXCHANGE_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define BUF_SIZE (1ul << 20)
#define IOVA	 0x7700000000ul /* of the pinned region: nothing's address */
#define RIGHTS                                                                                     \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |               \
	 IBV_ACCESS_REMOTE_ATOMIC)
#define QKEY	 0x11223344u
#define IMM	 0xabcd1234u
#define GRH	 40u
#define DEPTH	 64
#define PATH_MTU 1024u
/* of the address handles; interop.py looks for them on the wire */
#define HOP_LIMIT  33
#define CLASS	   0x48
#define FLOW_LABEL 0x54321
#define PATIENCE                                                                                   \
	100 /* seconds; the other end may be emulated, on a machine that has other things to do */
#define OFFSET 4133ul /* where data is, at both ends: odd, beyond the first page */

struct info {
	uint32_t qpn, psn, rkey;
	union ibv_gid gid;
	uint8_t rxe;
};

struct opt {
	enum ibv_qp_type type;
	uint8_t rnr_retry, rnr_timer;
	unsigned access;
	/* 0: 7, for ever with rxe, which counts what a timer sends again until a whole message has come */
	uint8_t retry_cnt;
};

/* ---- the ends (exchange_ends.c) ---- */

extern bool server, rxe; /* rxe: this end's device is */
extern int gid_index;
extern unsigned failures;
extern const char *case_name;
extern struct ibv_context *ctx;
extern struct ibv_pd *pd;
extern struct ibv_cq *send_cq, *recv_cq;
extern struct ibv_qp *qp;
extern struct ibv_mr *mr; /* of buf, pinned, at IOVA */
extern uint8_t *buf;
extern struct info me, peer;

#define CHECK(cond, ...)                                                                           \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			printf("WRONG %s (%s): ", case_name, server ? "server" : "client");        \
			printf(__VA_ARGS__);                                                       \
			printf("\n");                                                              \
			failures++;                                                                \
		}                                                                                  \
	} while (0)

double now(void);
void die(const char *what);
void connect_control(const char *host, int port);
/* sends mine, returns when theirs has come */
void swap_info(const void *mine, void *theirs, size_t len);
void barrier(void);

void open_device(const char *name);
/* Fresh queue pairs at both ends, connected; what the last case left in the CQs and as events is
 * gone. */
void new_qp(const struct opt *o);
enum ibv_qp_state state(void);
/* rxe: a moment after the completion, or the NAK, that says so */
bool is_in_error(void);
bool async_is(enum ibv_event_type type);

/* ---- work and data (exchange_work.c) ---- */

#define NUM_SIZES 10u
extern const uint32_t sizes[NUM_SIZES];

void fill(uint8_t *at, uint64_t len, uint64_t seed);
void check_data(const char *what, const uint8_t *at, uint64_t len, uint64_t seed);
bool wait_wc(struct ibv_cq *cq, struct ibv_wc *wc);
/* in any region */
void post_recv_sge(struct ibv_sge sge);
/* in buf; its id is the offset */
void post_recv_at(uint64_t offset, uint32_t len);
struct ibv_send_wr request(enum ibv_wr_opcode opcode, struct ibv_sge *sge, uint64_t remote,
			   uint32_t rkey);
void post_send(struct ibv_send_wr *wr);
void expect_send(const char *what, uint32_t len, enum ibv_wc_status status);
void expect_recv(const char *what, uint32_t len, bool imm, enum ibv_wc_opcode opcode);
/* one request, at OFFSET here and there, to its completion */
void request_done(const char *what, enum ibv_wr_opcode opcode, uint32_t len, uint32_t rkey,
		  enum ibv_wc_status status);
/* such a request that is refused: this end's queue pair is in error afterwards */
void refused(const char *what, enum ibv_wr_opcode opcode, uint32_t rkey, enum ibv_wc_status status);

/* ---- cases ---- */

/* RC and UC (exchange_connected.c) */
void case_send(void);
void case_write(void);
void case_read(void);
void case_atomic(void);
void case_burst(void);
void case_rnr(void);
void case_uc_dropped(void);

/* what is refused (exchange_refused.c) */
void case_rnr_exceeded(void);
void case_bad_rkey(void);
void case_out_of_bounds(void);
void case_no_right(void);
void case_too_long(void);
void case_gone(void);

/* memory that comes and goes (exchange_memory.c) */
void case_odp(void);
void case_odp_implicit(void);
void case_odp_moving(void);
void case_odp_unmapped(void);
void case_dmabuf_memfd(void);
void case_dmabuf_vram(void);
void case_dmabuf_moving(void);

/* UD (exchange_ud.c) */
void case_ud(void);
void case_multicast(void);

#endif
