/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The engine's thread, in real time: it answers when the application does nothing, runs timers, hands
 * over to an application that polls and back, and costs nothing when nothing happens. Bounds are wide:
 * the machine may be busy.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "rig.h"

#define R 200

static void wait_tx(unsigned n)
{
	unsigned i;

	for (i = 0; fake_tx_count() < n; i++) {
		if (i > 20000)
			FAIL("%u trains were sent in 10 s, not %u", fake_tx_count(), n);
		usleep(500);
	}
}

static void up(void)
{
	opt.engine = true;
	rig_up();
}

static void answers_without_a_poll(void)
{
	up();
	rx_later(WRITE(ONLY, R, 0, 8, 8, pattern));
	wait_tx(1);
	TX_ACK(R);
	usleep(20000); /* asleep by now */
	rx_later(pkt_read(R + 1, 0, 8));
	wait_tx(1);
	TX(RDMA_READ_RESPONSE_ONLY, R + 1, 1, 8);
}

static void timers_run_by_themselves(void)
{
	struct ibv_wc wc;
	unsigned i;

	opt.timeout = 8; /* 1 ms */
	opt.retry_cnt = 2;
	up();
	CHECK_EQ(post(wr_data(IBV_WR_SEND, 1, 0, 8)), 0);
	wait_tx(3);
	for (i = 0; i < 20000 && qp_state() != IBV_QPS_ERR; i++)
		usleep(500);
	CHECK_EQ(hca_cq_poll(rig.scq, 1, &wc), 1);
	CHECK_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
	CHECK_EQ(fake_tx_count(), 3);
}

static void rnr_wait_ends_by_itself(void)
{
	up();
	CHECK_EQ(post(wr_data(IBV_WR_SEND, 1, 0, 8)), 0);
	wait_tx(1);
	TX(SEND_ONLY, 100, 1, 8);
	rx_nak(AETH_RNR_NAK | 14, 100); /* 1.28 ms */
	wait_tx(1);
	TX(SEND_ONLY, 100, 1, 8);
	rx_ack(100);
	SWC(SUCCESS, 1);
}

static void takes_over_when_polling_ends(void)
{
	unsigned i;

	up();
	for (i = 0; i < 500; i++)
		wc_none(rig.scq); /* the application polls: the engine steps back */
	usleep(1000);
	rx_later(WRITE(ONLY, R, 0, 8, 8, pattern));
	wait_tx(1);
	for (i = 0; i < 500; i++)
		wc_none(rig.scq);
	hca_cq_req_notify(rig.scq, false); /* and says that it will sleep */
	rx_later(WRITE(ONLY, R + 1, 0, 8, 8, pattern));
	wait_tx(2);
}

static uint64_t cpu_us(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000ull + u.ru_utime.tv_usec +
	       u.ru_stime.tv_usec;
}

static void idle_costs_nothing(void)
{
	uint64_t before;

	up();
	rx_later(WRITE(ONLY, R, 0, 8, 8, pattern));
	wait_tx(1);
	usleep(20000);
	before = cpu_us();
	sleep(1);
	CHECK(cpu_us() - before < 20000);
}

/* many threads post, poll, destroy; the peer answers everything. For the sanitizers, and the lock ranks. */
enum { THREADS = 4, ROUNDS = 300 };

static void *user(void *arg)
{
	unsigned area = *(unsigned *)arg * 65536;
	struct ibv_sge sge = {IOVA + area + 32768, 8, rig.key};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
	struct hca_mr *mr;
	struct ibv_wc wc;
	struct hca_qp *qp;
	unsigned i, j;

	for (i = 0; i < ROUNDS; i++) {
		qp = rig_qp_new();
		CHECK_EQ(rig_qp_to(qp, IBV_QPS_INIT), 0);
		CHECK_EQ(rig_qp_to(qp, IBV_QPS_RTR), 0);
		CHECK_EQ(rig_qp_to(qp, IBV_QPS_RTS), 0);
		mr = rig_mr(rig.mem + area, 4096, IOVA, IBV_ACCESS_REMOTE_WRITE, PD, false);
		for (j = 0; j < 3; j++) {
			struct roce_pkt pkt = {.opcode = IBV_OPCODE_RC_RDMA_WRITE_ONLY,
					       .opcode_last = IBV_OPCODE_RC_RDMA_WRITE_ONLY,
					       .ackreq = true,
					       .pkey = 0xffff,
					       .dest_qpn = hca_qp_num(qp),
					       .psn = R + j,
					       .npkts = 1,
					       .mtu = 1024,
					       .va = IOVA + 4096 * (i % 2),
					       .rkey = hca_mr_key(mr),
					       .dma_len = 8,
					       .payload = pattern,
					       .payload_len = 8};

			CHECK_EQ(hca_post_send(qp, &wr, &bad), 0);
			fake_rx(&pkt);
			pkt = (struct roce_pkt){.opcode = IBV_OPCODE_RC_ACKNOWLEDGE,
						.opcode_last = IBV_OPCODE_RC_ACKNOWLEDGE,
						.pkey = 0xffff,
						.dest_qpn = hca_qp_num(qp),
						.psn = opt.sq_psn + j,
						.npkts = 1,
						.syndrome = AETH_ACK_NO_CREDIT};
			fake_rx(&pkt);
			hca_cq_poll(rig.scq, 1, &wc);
		}
		if (i % 3 == 0)
			rig_modify_state(qp, IBV_QPS_ERR);
		hca_mr_destroy(mr);
		hca_qp_destroy(qp);
	}
	return NULL;
}

static void many_threads(void)
{
	unsigned number[THREADS];
	pthread_t t[THREADS];
	struct roce_pkt pkt;
	unsigned i;

	opt.timeout = 1; /* timers, too */
	opt.cq_depth = 65536;
	up();
	for (i = 0; i < THREADS; i++) {
		number[i] = i;
		CHECK_EQ(pthread_create(&t[i], NULL, user, &number[i]), 0);
	}
	for (i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_join(t[i], NULL), 0);
	while (fake_tx_pop(&pkt))
		;
	CHECK_EQ(fake_paths, 1);
}

/* one thread polls an empty CQ while another makes the first QP, and with it the engine */
static bool poll_on = true;

static void *poller(void *arg)
{
	struct ibv_wc wc;

	while (__atomic_load_n(&poll_on, __ATOMIC_RELAXED))
		hca_cq_poll(rig.scq, 1, &wc);
	return NULL;
}

static void starts_while_others_poll(void)
{
	pthread_t t;

	opt.engine = true;
	rig_node();
	CHECK_EQ(pthread_create(&t, NULL, poller, NULL), 0);
	usleep(1000);
	rig_qp_new();
	usleep(1000);
	__atomic_store_n(&poll_on, false, __ATOMIC_RELAXED);
	CHECK_EQ(pthread_join(t, NULL), 0);
}

/* out of descriptors: the QP cannot be made, and those of the application stay open */
static void fails_without_descriptors(void)
{
	struct rlimit limit;
	struct hca_qp *qp;
	int fd, rc;

	rig_node();
	CHECK(!getrlimit(RLIMIT_NOFILE, &limit));
	for (rlim_t left = 0; left < 2; left++) { /* for none of the engine's, or for one */
		fd = dup(2);
		CHECK(fd > 2);
		close(fd);
		CHECK(!setrlimit(RLIMIT_NOFILE, &(struct rlimit){(rlim_t)fd + left, limit.rlim_max}));
		rc = rig_qp_try(&qp);
		CHECK(!setrlimit(RLIMIT_NOFILE, &limit));
		CHECK_EQ(rc, -EMFILE);
		for (int i = 0; i < 3; i++)
			CHECK(fcntl(i, F_GETFD) >= 0);
		CHECK_EQ(dup(2), fd); /* nor is one left behind */
		close(fd);
	}
	CHECK_EQ(rig_qp_try(&qp), 0);
}

/* the child of a fork has none of it, and can begin anew */
static void fork_child_begins_anew(void)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND}, *bad;
	struct hca_qp *old;
	struct ibv_wc wc;
	pid_t pid;
	int status;

#ifdef __SANITIZE_THREAD__
	return; /* it does not go on in the child of a process with threads */
#endif
	up();
	usleep(50000); /* the engine sleeps: a sanitizer's locks in the child are free */
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		alarm(20);
		hca_node_fork_child();
		old = rig.qp;
		CHECK_EQ(hca_post_send(old, &wr, &bad), EIO);
		CHECK_EQ(hca_cq_poll(rig.scq, 1, &wc), 0);
		CHECK_EQ(qp_state(), IBV_QPS_ERR);
		hca_qp_destroy(old);
		hca_cq_req_notify(rig.scq, false);
		rig_again();
		rig_up();
		rx_later(WRITE(ONLY, R, 0, 8, 8, pattern));
		wait_tx(1);
		TX_ACK(R);
		_Exit(0);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK(WIFEXITED(status) && !WEXITSTATUS(status));
	rx_later(WRITE(ONLY, R, 0, 8, 8, pattern)); /* the parent goes on */
	wait_tx(1);
}

/* ---- the end of the process ---- */

static bool looks_at_the_end;

/* runs after the HCA's own, which has no priority */
__attribute__((destructor(101))) static void at_the_end(void)
{
	struct roce_pkt pkt;

	if (!looks_at_the_end)
		return;
	while (fake_tx_pop(&pkt))
		if (pkt.opcode == IBV_OPCODE_RC_ACKNOWLEDGE && pkt.psn == R &&
		    pkt.syndrome == AETH_ACK_NO_CREDIT)
			_Exit(0);
	fprintf(stderr, "the process ended without acknowledging what it took in\n");
	_Exit(1);
}

static void acks_of_the_last_moment(void)
{
	rig_up(); /* no engine */
	rx_later(WRITE(ONLY, R, 0, 8, 8, pattern));
	looks_at_the_end = true;
	exit(1);
}

/* as a signal handler may do that interrupts a post */
static void exit_inside_a_locked_section(void)
{
	alarm(10);
	rig_up();
	rx_later(WRITE(ONLY, R, 0, 8, 8, pattern));
	fl_lock(&rig.qp->lock);
	exit(0);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		TEST(answers_without_a_poll), TEST(timers_run_by_themselves),
		TEST(rnr_wait_ends_by_itself), TEST(takes_over_when_polling_ends),
		TEST(idle_costs_nothing), TEST(many_threads), TEST(starts_while_others_poll),
		TEST(fails_without_descriptors), TEST(fork_child_begins_anew),
		TEST(acks_of_the_last_moment), TEST(exit_inside_a_locked_section), {NULL, NULL}};

	return rig_main(argc, argv, tests);
}
