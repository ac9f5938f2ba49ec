/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A process that floods: SENDs to QPs that do not exist, and to one of another transport, at full rate, PSNs that
 * are guessed at a QP in use, and, over udp, datagrams that are no packets. Traffic between two others goes on at a
 * quarter of its rate at least, every byte right; nobody's memory grows; what was dropped is counted.
 */
#include "counters.h"
#include "rc.h"

#include <signal.h>
#include <stdatomic.h>
#include <arpa/inet.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE   4096u
#define DEPTH  16
#define SECONDS 0.7
#define TRIES  4
#define SHARE  50 /* three programs that never rest, on two cores: it goes on, at what rate is the scheduler's */
#define GROWTH (8l << 20)

static struct shared {
	struct rc_hello victim;
	_Atomic uint64_t sent;
	_Atomic bool idle; /* the flooder burns its CPU, and sends nothing */
	_Atomic uint64_t garbage; /* counted by the flooder, which has the port too */
} *sh;

/* ---- the flooder ---- */

static struct ibv_qp *uc_qp(struct rc_side *s, uint32_t dest)
{
	struct ibv_qp_init_attr init = {.send_cq = s->cq, .recv_cq = s->cq, .qp_type = IBV_QPT_UC,
					.cap = {.max_send_wr = 32, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
	struct ibv_qp *qp = ibv_create_qp(s->pd, &init);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};

	CHECK(qp, "a UC QP: %s", strerror(errno));
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = dest,
				    .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64, .dgid = sh->victim.gid}}};
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN), "RTR");
	attr.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), "RTS");
	return qp;
}

static void send_uc(struct rc_side *s, struct ibv_qp *qp, const struct ibv_mr *mr)
{
	struct ibv_sge sge = {(uintptr_t)mr->addr, 64, mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED},
			   *bad;
	struct ibv_wc wc[32];

	while (ibv_post_send(qp, &wr, &bad) == ENOMEM)
		ibv_poll_cq(s->cq, 32, wc);
	atomic_fetch_add(&sh->sent, 1);
}

/* at the victim's own number, from a PSN that is a guess; no answer comes to us */
static void guess_psn(struct rc_side *s, const struct ibv_mr *mr)
{
	struct rc_opt opt = rc_default;

	opt.timeout = 0;
	rc_make_qp(s, &opt);
	s->me.psn = (uint32_t)rand() & 0xffffff;
	rc_connect(s, &sh->victim);
	for (int i = 0; i < 8; i++)
		rc_post(s, IBV_WR_RDMA_WRITE, (uintptr_t)mr->addr, 64, mr->lkey, 0x1000, 0x1234567);
}

/* from a port of its own each time: by it the kernel chooses among the processes that share port 4791 */
static void garbage(void)
{
	static uint8_t junk[200];
	int sock = socket(AF_INET, SOCK_DGRAM, 0);
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(4791)};

	memcpy(&to.sin_addr, sh->victim.gid.raw + 12, 4);
	for (int i = 0; i < 40; i++) {
		junk[rand() % 200] = (uint8_t)rand();
		junk[5] = (uint8_t)(sh->victim.qpn >> 16); /* so that it comes to the victim's process */
		junk[6] = (uint8_t)(sh->victim.qpn >> 8);
		junk[7] = (uint8_t)sh->victim.qpn;
		sendto(sock, junk, (size_t)rand() % 200, 0, (struct sockaddr *)&to, sizeof(to));
	}
	close(sock);
}

static uint64_t garbage_counted(void)
{
	return counter_now(FL_CNT_rx_malformed) + counter_now(FL_CNT_rx_icrc_err);
}

static __attribute__((noreturn)) void flooder(void)
{
	struct rc_side s = {0};
	struct ibv_qp *nobody, *other_transport;
	struct ibv_mr *mr;
	bool udp = getenv("FLOOD_UDP");

	rc_open(&s);
	mr = rc_reg(&s, rc_map(PAGE), PAGE, ALL_ACCESS);
	nobody = uc_qp(&s, sh->victim.qpn ^ 0x1000);
	other_transport = uc_qp(&s, sh->victim.qpn);
	for (;;) {
		while (atomic_load(&sh->idle))
			;
		for (int i = 0; i < 500; i++) {
			send_uc(&s, nobody, mr);
			send_uc(&s, other_transport, mr);
		}
		guess_psn(&s, mr);
		if (udp) {
			garbage();
			atomic_store(&sh->garbage, garbage_counted());
		}
	}
}

/* ---- the traffic ---- */

static long rss(int pid)
{
	char path[40];
	long pages = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/statm", pid);
	f = fopen(path, "r");
	CHECK(f && fscanf(f, "%*d %ld", &pages) == 1, "%s", path);
	fclose(f);
	return pages * (long)PAGE;
}

static struct rc_side a;
static uint8_t *m;
static struct ibv_mr *mr;
static struct rc_remote r;

/* READs of the peer's pattern, each checked; how many in the time */
static uint64_t traffic(double seconds)
{
	uint64_t posted = 0, done = 0;
	double end = rc_now() + seconds;

	do {
		for (; posted - done < DEPTH && rc_now() < end; posted++) {
			uint64_t slot = posted % DEPTH * SIZE;

			CHECK(!rc_post(&a, IBV_WR_RDMA_READ, (uintptr_t)m + slot, SIZE, mr->lkey, r.iova + slot, r.key), "post");
		}
		if (posted == done)
			break;
		rc_expect(&a, IBV_WC_SUCCESS);
		CHECK(rc_differs(m + done % DEPTH * SIZE, SIZE, done % DEPTH * SIZE, 3) == UINT64_MAX, "READ %lu differs", done);
		done++;
	} while (rc_now() < end || posted != done);
	return done;
}

/* It comes from many ports, by which the kernel chooses a process: there may be more here than ours. */
static void wait_for_garbage(void)
{
	double end = rc_now() + 20;

	while (!garbage_counted() && !atomic_load(&sh->garbage)) {
		CHECK(rc_now() < end, "garbage was not counted");
		traffic(0.1);
	}
}

int main(int argc, char **argv)
{
	const char *link = getenv("E2E_LINK");
	struct rc_peer *peer;
	char fd_text[16];
	char *args[] = {argv[0], "--flood", fd_text, NULL};
	uint64_t quiet = 0, flooded = 0, unknown, sent;
	bool flood = argc == 3 && !strcmp(argv[1], "--flood");
	int fd = flood ? atoi(argv[2]) : memfd_create("shared", 0), i;
	long mine = 0, peers = 0;
	pid_t pid;

	setenv("FAULTLINE_LOG", "error", 1);
	rc_main(argc, argv);
	CHECK(flood || !ftruncate(fd, sizeof(*sh)), "memfd");
	sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(sh != MAP_FAILED, "mmap");
	if (flood) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		flooder();
	}
	alarm(50);
	rc_open(&a);
	m = rc_map(DEPTH * SIZE);
	mr = rc_reg(&a, m, DEPTH * SIZE, ALL_ACCESS);
	peer = rc_peer_start();
	CHECK(rc_peer_is_process(peer), "needs E2E_LINK=shm or udp");
	r = rc_peer_buf(peer, DEPTH * SIZE, ALL_ACCESS, RC_SAME, RC_ANON);
	rc_call(peer, RC_FILL, r.buf, 0, DEPTH * SIZE, 0, 3);
	rc_connect_peer(&a, peer, &rc_default);
	traffic(0.3);
	sh->victim = a.me;
	if (link && !strcmp(link, "udp"))
		setenv("FLOOD_UDP", "1", 1);
	snprintf(fd_text, sizeof(fd_text), "%d", fd);
	pid = fork();
	if (!pid) {
		execv("/proc/self/exe", args);
		_exit(127);
	}
	while (!atomic_load(&sh->sent))
		usleep(1000);
	/* by turns, and against a flooder that only takes the CPU: a core fewer is not what this is about */
	for (i = 0; i < TRIES && (!i || flooded * SHARE < quiet); i++) {
		atomic_store(&sh->idle, true);
		usleep(20000);
		quiet = traffic(SECONDS);
		unknown = counter_now(FL_CNT_rx_unknown_qp);
		sent = atomic_load(&sh->sent);
		atomic_store(&sh->idle, false);
		flooded = traffic(SECONDS);
		unknown = counter_now(FL_CNT_rx_unknown_qp) - unknown;
		sent = atomic_load(&sh->sent) - sent;
		printf("%lu READs, %lu under %lu SENDs of a flood, of which %lu were counted\n", quiet, flooded, sent, unknown);
		CHECK(unknown > 1000, "the flood did not come: %lu", unknown);
		CHECK(waitpid(pid, NULL, WNOHANG) == 0, "the flooder ended");
		if (!mine) {
			mine = rss(getpid());
			peers = rss(rc_peer_pid(peer));
		}
	}
	CHECK(flooded * SHARE >= quiet, "under a flood %lu READs, without %lu", flooded, quiet);
	traffic(SECONDS);
	CHECK(rss(getpid()) < mine + GROWTH && rss(rc_peer_pid(peer)) < peers + GROWTH,
	      "memory grew: %ld KiB here, %ld KiB at the peer", (rss(getpid()) - mine) >> 10,
	      (rss(rc_peer_pid(peer)) - peers) >> 10);
	if (getenv("FLOOD_UDP"))
		wait_for_garbage();
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	rc_peer_stop(peer);
	return 0;
}
