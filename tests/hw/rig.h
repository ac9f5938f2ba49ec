/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the tests of the HCA stand on. Each test runs in a process of its own, with one device, one QP
 * (to more where it asks), and the test itself as the peer: it reads every train that is sent and
 * answers by hand. Time stands still but for rig_advance() and rig_clock_runs(), and there is no engine but for
 * tests that ask for it; so nothing depends on the machine's speed. Fault workers are real threads.
 */
#ifndef FL_TESTS_HW_RIG_H
#define FL_TESTS_HW_RIG_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "fake_mem.h"
#include "fake_net.h"
#include "hw/hw.h"
#include "tests/sanitize.h"

#define MS 1000000ull

#define FAIL(...)                                                                                  \
	do {                                                                                       \
		fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);                                    \
		fprintf(stderr, __VA_ARGS__);                                                      \
		fputc('\n', stderr);                                                               \
		fflush(NULL);                                                                      \
		_Exit(1);                                                                          \
	} while (0)
#define CHECK(cond)                                                                                \
	do {                                                                                       \
		if (!(cond))                                                                       \
			FAIL("not so: %s", #cond);                                                 \
	} while (0)
#define CHECK_EQ(a, b)                                                                             \
	do {                                                                                       \
		long long a_ = (long long)(a), b_ = (long long)(b);                                \
		if (a_ != b_)                                                                      \
			FAIL("%s is %lld (%#llx), not %s = %lld (%#llx)", #a, a_, a_, #b, b_, b_); \
	} while (0)

struct test {
	const char *name;
	void (*fn)(void);
};
#define TEST(fn) {#fn, fn}
/* runs them, or those named on the command line; prints and returns the program's exit code */
int rig_main(int argc, char **argv, const struct test *tests);

#define PEER_QPN 0xabcde
#define PD	 7
#define XRCD	 3
#define MEM_LEN	 (4u << 20)
#define IOVA	 0x10000000ull /* of the MR's first byte; nothing like its address */

struct rig_opt {
	enum ibv_mtu mtu;
	uint8_t timeout, retry_cnt, rnr_retry, min_rnr_timer, max_rd_atomic, max_dest_rd_atomic;
	uint32_t sq_psn, rq_psn, sq_depth, rq_depth, cq_depth, dest_qpn;
	unsigned qp_access;
	bool unsignaled, use_srq, odp, engine;
	const struct hca_profile *profile;
	const char *fault_model, *provoke;
	enum ibv_qp_type type;
};
extern struct rig_opt opt; /* set before rig_up() */

struct rig {
	struct hca_dev *dev;
	struct hca_cq *scq, *rcq;
	struct hca_srq *srq; /* of opt.use_srq; of the domain XRCD when the QP is a target */
	struct hca_qp *qp;
	struct hca_mr *mr;
	struct ib_umem *umem;
	uint32_t key; /* of the whole of mem, all rights */
	uint8_t *mem;
	struct faultline_device *stat;
};
extern struct rig rig;

/* node, device, CQs, MR */
void rig_node(void);
/* in the child of a fork: another node is to come */
void rig_again(void);
/* the same and rig.qp in RTS */
void rig_up(void);
struct hca_qp *rig_qp_new(void); /* in RESET */
int rig_qp_try(struct hca_qp **qp); /* the same, as hca_qp_create() says */
int rig_qp_to(struct hca_qp *qp, enum ibv_qp_state state); /* from the state before it */
/* of opt.rq_depth; xrcd, cq: of an XRC domain's, else 0 and NULL */
struct hca_srq *rig_srq(uint32_t pd, uint32_t xrcd, struct hca_cq *cq);
void rig_modify_state(struct hca_qp *qp, enum ibv_qp_state state);
struct hca_mr *rig_mr(void *addr, size_t len, uint64_t iova, unsigned access, uint32_t pd, bool odp);

/* a test in a test: fork() with an alarm in the child, and what became of it: 0 is good */
int rig_fork(void);
int rig_wait(int pid);

/* time */
void rig_advance(uint64_t ns);
/* from now on it moves on by so much with each look at it, too */
void rig_clock_runs(uint64_t ns);
uint64_t rig_now(void);
/* a pattern that depends on the position */
void rig_fill(void *p, size_t len, uint32_t seed);
void rig_is(const void *p, size_t len, uint32_t seed);

/* all fault workers stand idle again, what they resumed has run */
void rig_workers_idle(void);
/* how many there are; how often one was to be woken */
unsigned rig_workers(void), rig_wakes(void);
/* a thread of the test's own: neither engine nor worker */
pthread_t rig_thread(void *(*fn)(void *), void *arg);

/* events told to the application */
extern unsigned ev_comp, ev_cq_err, ev_srq_limit;
extern unsigned ev_qp[32]; /* by enum ibv_event_type */

/* ---- posting ---- */
struct ibv_send_wr wr_data(enum ibv_wr_opcode op, uint64_t id, uint32_t off, uint32_t len);
struct ibv_send_wr wr_atomic(bool cas, uint64_t id, uint64_t add_or_compare, uint64_t swap);
int post(struct ibv_send_wr wr);
int post_recv(uint64_t id, uint32_t off, uint32_t len);
#define REMOTE_VA  0x7000000000ull
#define REMOTE_KEY 0x4242

/* ---- completions ---- */
struct ibv_wc wc_next(struct hca_cq *cq, enum ibv_wc_status status, uint64_t id);
void wc_none(struct hca_cq *cq);
#define SWC(status, id) wc_next(rig.scq, IBV_WC_##status, id)
#define RWC(status, id) wc_next(rig.rcq, IBV_WC_##status, id)

/* ---- the peer's eyes: the next train is this one; opcodes as with the hand ---- */
struct roce_pkt tx_train(const char *file, int line, uint8_t op, uint8_t op_last, uint32_t psn,
			 uint32_t npkts, uint32_t len);
#define TX(op, psn, npkts, len)                                                                    \
	tx_train(__FILE__, __LINE__, IBV_OPCODE_RC_##op, IBV_OPCODE_RC_##op, psn, npkts, len)
#define TX2(op, op_last, psn, npkts, len)                                                          \
	tx_train(__FILE__, __LINE__, IBV_OPCODE_RC_##op, IBV_OPCODE_RC_##op_last, psn, npkts, len)
void tx_aeth(const char *file, int line, uint8_t syndrome, uint32_t psn);
#define TX_ACK(psn)	    tx_aeth(__FILE__, __LINE__, AETH_ACK_NO_CREDIT, psn)
#define TX_NAK(syndrome, psn) tx_aeth(__FILE__, __LINE__, syndrome, psn)
void tx_none_at(const char *file, int line);
#define TX_NONE() tx_none_at(__FILE__, __LINE__)

/* ---- the peer's hand ----
 * Opcodes are RC's; for an XRC QP they become those of XRC, and requests are for rig.srq.
 */
/* without a look at what comes in (several in one batch), and with it */
void rx_later(struct roce_pkt pkt);
void rx(struct roce_pkt pkt);
void rx_now(void);
void rx_ack(uint32_t psn);
void rx_nak(uint8_t syndrome, uint32_t psn);
/* READ response of len bytes, pattern of seed from position pos on */
struct roce_pkt pkt_read_resp(uint8_t op, uint8_t op_last, uint32_t psn, uint32_t len, const void *data);
void rx_read(uint32_t psn, uint32_t len, const void *data); /* first and last of a message */
void rx_atomic_ack(uint32_t psn, uint64_t orig);
/* requests; a train when it is longer than the MTU. Opcode's suffix for one packet. */
struct roce_pkt pkt_req(uint8_t op, uint8_t op_last, uint32_t psn, uint32_t len, const void *data);
struct roce_pkt pkt_write(uint8_t op, uint8_t op_last, uint32_t psn, uint32_t off, uint32_t dma_len,
			  uint32_t len, const void *data);
struct roce_pkt pkt_read(uint32_t psn, uint32_t off, uint32_t len);
struct roce_pkt pkt_atomic(bool cas, uint32_t psn, uint32_t off, uint64_t swap_add, uint64_t compare);
#define REQ(op, psn, len, data)                                                                    \
	pkt_req(IBV_OPCODE_RC_##op, IBV_OPCODE_RC_##op, psn, len, data)
#define REQ2(op, op_last, psn, len, data)                                                          \
	pkt_req(IBV_OPCODE_RC_##op, IBV_OPCODE_RC_##op_last, psn, len, data)
#define WRITE(op, psn, off, dma_len, len, data)                                                    \
	pkt_write(IBV_OPCODE_RC_RDMA_WRITE_##op, IBV_OPCODE_RC_RDMA_WRITE_##op, psn, off, dma_len, \
		  len, data)
#define WRITE2(op, op_last, psn, off, dma_len, len, data)                                          \
	pkt_write(IBV_OPCODE_RC_RDMA_WRITE_##op, IBV_OPCODE_RC_RDMA_WRITE_##op_last, psn, off,     \
		  dma_len, len, data)

extern uint8_t pattern[MEM_LEN + 64]; /* position-dependent; a good source of payload */

enum ibv_qp_state qp_state(void);
uint64_t cnt(enum faultline_counter c);

#endif
