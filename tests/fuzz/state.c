/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A device with state, at somebody's mercy: QPs of each transport, one on a shared receive queue, both halves of
 * XRC with two SRQs that come and go, one attached to a multicast group, memory pinned and on demand. The input is
 * a program of single actions: packets in which any field may be wrong, answers to what was sent, and the
 * application's own calls amid them. Whatever it is: nothing crashes, no lock stays held, each packet is counted,
 * memory is bounded and given back, and a QP that nobody addressed works as before, in both directions.
 *
 * LLVMFuzzerTestOneInput() is libFuzzer's entry (clang -fsanitize=fuzzer -DFUZZER); otherwise main() runs the
 * corpus and what it makes of it and of nothing, by a seed. Arguments: how many batches of inputs, files of the
 * corpus.
 */
#include <malloc.h>
#include <unistd.h>
#include "tests/hw/rig.h"

enum { RC, UC, UD, RC_SRQ, XRC_INI, XRC_TGT, NUM_QPS };

#define QKEY	  0x11111111
#define ODP_LEN	  (64u * PAGE_SIZE)
#define ODP_IOVA  0x90000000ull
#define MTU	  256u
#define MAX_DATA  8192u
#define KEPT_MAX  (NUM_QPS * (RESP_BACKLOG_BYTES + REQ_WINDOW_BYTES)) /* by packets, at worst */
#define STABLE	  (256u << 10) /* structs that stay: of QP numbers and keys that were never used before */
#define GROUP_GID {0xff, 0x0e, [10] = 0xff, 0xff, 239, 1, 2, 3}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const enum ibv_qp_type type_of[NUM_QPS] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_RC, IBV_QPT_XRC_SEND,
						  IBV_QPT_XRC_RECV};
static const uint8_t group[16] = GROUP_GID;

static struct {
	struct hca_qp *qp[NUM_QPS];
	struct hca_srq *xsrq[2]; /* of the target's domain */
	bool attached;
	struct hca_mr *odp;
	struct ib_umem *odp_umem;
	uint32_t odp_key, dead_key;
	struct roce_pkt sent[NUM_QPS]; /* the last request each sent */
	bool has_sent[NUM_QPS];
	bool slept;
} w;
static struct hca_qp *good;
static struct hca_cq *good_scq, *good_rcq;
static struct hca_av av = {.pd = PD, .sgid = {[10] = 0xff, 0xff, 127, 0, 0, 1}, .dgid = {[10] = 0xff, 0xff, 127, 0, 0, 2}};
static uint8_t *odp_mem, grh[GRH_BYTES];

/* ---- input ---- */

static const uint8_t *in, *in_end;

static uint8_t u8(void)
{
	return in < in_end ? *in++ : 0;
}

static uint32_t u32(void)
{
	uint32_t v = u8();

	v = v << 8 | u8();
	v = v << 8 | u8();
	return v << 8 | u8();
}

/* small steps mostly, since those are the wrong ones that matter */
static uint32_t near32(uint32_t right)
{
	uint8_t b = u8();

	return b < 200 ? right : b < 250 ? right + (uint32_t)(int8_t)(b - 225) : u32();
}

static uint32_t some_len(void)
{
	static const uint32_t lens[] = {8, 0, 1, 7, MTU - 1, MTU, MTU + 1, 3 * MTU, 3 * MTU + 5, MAX_DATA};
	uint8_t b = u8();

	return b < 250 ? lens[b % 10] : u8() * 32u;
}

/* ---- the stage ---- */

static const struct hca_av *av_of(struct ibv_ah *ah)
{
	return (const struct hca_av *)ah;
}

static void to_rts(unsigned i)
{
	struct ibv_qp_attr attr = {.qkey = QKEY, .port_num = 1, .sq_psn = opt.sq_psn};
	static const uint8_t gid[16];

	if (type_of[i] != IBV_QPT_UD) {
		opt.dest_qpn = PEER_QPN + 1 + i;
		rig_qp_to(w.qp[i], IBV_QPS_INIT);
		rig_qp_to(w.qp[i], IBV_QPS_RTR);
		rig_qp_to(w.qp[i], IBV_QPS_RTS);
		return;
	}
	attr.qp_state = IBV_QPS_INIT;
	hca_qp_modify(w.qp[i], &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY, gid);
	attr.qp_state = IBV_QPS_RTR;
	hca_qp_modify(w.qp[i], &attr, IBV_QP_STATE, gid);
	attr.qp_state = IBV_QPS_RTS;
	hca_qp_modify(w.qp[i], &attr, IBV_QP_STATE | IBV_QP_SQ_PSN, gid);
}

static void make_qp(unsigned i)
{
	struct hca_srq *srq = rig.srq;

	opt.type = type_of[i];
	if (i != RC_SRQ)
		rig.srq = NULL;
	w.qp[i] = rig_qp_new();
	rig.srq = srq;
	to_rts(i);
}

static void detach(void)
{
	if (w.attached)
		hca_detach_mcast(w.qp[UD], group, 1);
	w.attached = false;
}

static void drop_qp(unsigned i)
{
	struct hca_qp_open *open; /* rig_qp_new() made it */

	if (!w.qp[i])
		return;
	if (i == UD)
		detach();
	open = cds_list_first_entry(&w.qp[i]->opens, struct hca_qp_open, node);
	hca_qp_destroy(w.qp[i]);
	free(open);
	w.qp[i] = NULL;
	w.has_sent[i] = false;
}

static void make_odp(void)
{
	w.odp_umem = fake_umem(odp_mem, ODP_LEN, true);
	CHECK_EQ(hca_mr_create(rig.dev, PD, w.odp_umem, ODP_IOVA,
			       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				       IBV_ACCESS_REMOTE_ATOMIC,
			       &w.odp),
		 0);
	w.odp_key = hca_mr_key(w.odp);
}

/* who deregisters waits for faults: they must be able to end */
static void let_faults_end(void)
{
	fake_gate_open(0);
	if (w.slept)
		rig_workers_idle();
	w.slept = false;
}

static void drop_odp(void)
{
	let_faults_end();
	w.dead_key = w.odp_key;
	hca_mr_destroy(w.odp);
}

static void once(void)
{
	struct hca_event_ops ops;

	opt.mtu = IBV_MTU_256;
	opt.rnr_retry = 7;
	rig_node();
	ops = hca_event_ops;
	ops.av = av_of;
	hca_set_event_ops(&ops);
	odp_mem = aligned_alloc(PAGE_SIZE, ODP_LEN);
	CHECK(odp_mem);
	/* faults of its upper half sleep */
	fake_sleeps = (struct fake_range){(uintptr_t)odp_mem + ODP_LEN / 2, (uintptr_t)odp_mem + ODP_LEN};
	good_scq = rig.scq;
	good_rcq = rig.rcq;
	good = rig_qp_new();
	CHECK_EQ(rig_qp_to(good, IBV_QPS_INIT), 0);
	CHECK_EQ(rig_qp_to(good, IBV_QPS_RTR), 0);
	CHECK_EQ(rig_qp_to(good, IBV_QPS_RTS), 0);
}

static void set_up(void)
{
	memset(&w, 0, sizeof(w));
	fake_gate_close();
	CHECK_EQ(hca_cq_create(rig.dev, opt.cq_depth, false, NULL, &rig.scq), 0);
	CHECK_EQ(hca_cq_create(rig.dev, opt.cq_depth, false, NULL, &rig.rcq), 0);
	rig.srq = rig_srq(PD, 0, NULL);
	for (unsigned i = 0; i < 2; i++)
		w.xsrq[i] = rig_srq(PD, XRCD, rig.rcq);
	make_odp();
	for (unsigned i = 0; i < NUM_QPS; i++)
		make_qp(i);
}

static void take_down(void)
{
	for (unsigned i = 0; i < NUM_QPS; i++)
		drop_qp(i);
	drop_odp();
	hca_srq_destroy(rig.srq);
	hca_srq_destroy(w.xsrq[0]);
	hca_srq_destroy(w.xsrq[1]);
	hca_cq_destroy(rig.scq);
	hca_cq_destroy(rig.rcq);
	rig.srq = NULL;
}

/* ---- what goes out ---- */

static void drain(void)
{
	struct roce_pkt pkt;

	while (fake_tx_pop(&pkt)) {
		uint32_t i = pkt.dest_qpn - PEER_QPN - 1;

		if (pkt.dest_qpn == PEER_QPN)
			FAIL("the QP that nobody addressed sent %s", roce_opcode[pkt.opcode].name);
		if (i < NUM_QPS && roce_opcode[pkt.opcode].flags & ROCE_F_REQ) {
			w.sent[i] = pkt;
			w.has_sent[i] = true;
		}
	}
}

static uint64_t packets_counted(void)
{
	return cnt(FL_CNT_rcvd_pkts) + cnt(FL_CNT_rx_unknown_qp) + cnt(FL_CNT_rx_malformed) +
	       cnt(FL_CNT_rp_cnp_handled);
}

static void arrive(const struct roce_pkt *pkt)
{
	uint64_t before = packets_counted();

	rx(*pkt);
	if (packets_counted() == before)
		FAIL("a packet (opcode %#x to %#x) was not counted", pkt->opcode, pkt->dest_qpn);
}

/* ---- actions ---- */

static void somewhere(uint64_t *va, uint32_t *key)
{
	uint8_t b = u8();

	*va = IOVA + u8() * 64u;
	*key = rig.key;
	if (b >= 100 && b < 180) {
		*va = ODP_IOVA + u8() * 1024u;
		*key = w.odp_key;
	} else if (b >= 180 && b < 200) {
		*key = w.dead_key;
	} else if (b >= 200 && b < 220) {
		*va = IOVA + MEM_LEN - u8();
	} else if (b >= 220 && b < 240) {
		*va = (uint64_t)u32() << 32 | u32();
	} else if (b >= 240) {
		*key = near32(rig.key);
	}
}

static uint32_t some_srqn(void)
{
	uint8_t b = u8();

	return b < 240 ? hca_srq_num(w.xsrq[b & 1]) : near32(hca_srq_num(rig.srq));
}

static void packet(void)
{
	static uint8_t data[MAX_DATA];
	uint8_t to = u8(), op = u8(), odd = u8();
	unsigned i = to % NUM_QPS, repeat = 1;
	struct hca_qp *qp = w.qp[i];
	struct roce_pkt pkt = {.pkey = 0xffff, .mtu = MTU, .payload = data, .syndrome = AETH_ACK_NO_CREDIT,
			       .qkey = QKEY, .src_qpn = 77, .grh = type_of[i] == IBV_QPT_UD ? grh : NULL};

	pkt.opcode = op < 224 ? (qp ? qp_transport(qp) : 0) | op % 32 : u8();
	pkt.payload_len = some_len();
	pkt.dest_qpn = to < 240 && qp ? hca_qp_num(qp) : to < 248 ? ROCE_QPN_MULTICAST : u32() & ROCE_QPN_MASK;
	if (pkt.dest_qpn == hca_qp_num(good))
		return;
	if (pkt.dest_qpn == ROCE_QPN_MULTICAST)
		pkt.grh = grh;
	if (!(roce_opcode[pkt.opcode].flags & ROCE_F_PAYLOAD) && odd < 240)
		pkt.payload_len = 0;
	if (type_of[i] == IBV_QPT_UD && odd < 240)
		pkt.payload_len %= MTU + 1;
	pkt.npkts = roce_npkts(pkt.payload_len, MTU);
	pkt.opcode_last = pkt.opcode;
	if (pkt.npkts > 1 || odd >= 250)
		pkt.opcode_last = pkt.opcode + (odd & 1 ? 2 : 1);
	if (odd >= 230 && odd < 240)
		pkt.npkts = near32(pkt.npkts);
	if (odd >= 220 && odd < 230)
		pkt.mtu = near32(MTU);
	if (odd >= 200 && odd < 220) {
		pkt.pkey = (uint16_t)near32(pkt.pkey);
		pkt.syndrome = u8();
		pkt.qkey = near32(QKEY);
		pkt.ce = odd & 1;
		repeat = 1 + u8();
	}
	pkt.ackreq = odd & 1;
	pkt.se = odd & 2;
	if (qp)
		pkt.psn = roce_opcode[pkt.opcode].flags & ROCE_F_REQ ? qp->resp.psn : qp->req.una;
	pkt.psn = near32(pkt.psn) & ROCE_PSN_MASK;
	somewhere(&pkt.va, &pkt.rkey);
	pkt.dma_len = near32(roce_opcode[pkt.opcode].flags & ROCE_F_READ || odd & 4 ? some_len() : pkt.payload_len);
	pkt.swap_add = pkt.compare = u8();
	if (i == XRC_TGT)
		pkt.srqn = some_srqn();
	while (repeat--) {
		arrive(&pkt);
		pkt.psn = psn_add(pkt.psn, 1);
		if (repeat % 16 == 0)
			drain();
	}
}

/* the right answer to the last request that a QP sent, or nearly */
static void answer(void)
{
	static uint8_t data[MAX_DATA];
	unsigned i = u8() % NUM_QPS;
	const struct roce_pkt *req = &w.sent[i];
	uint8_t odd = u8();
	struct roce_pkt pkt = {.pkey = 0xffff, .mtu = MTU, .npkts = 1, .payload = data,
			       .syndrome = odd < 200 ? AETH_ACK_NO_CREDIT : odd};
	uint8_t transport = i == XRC_INI ? IBV_OPCODE_XRC : IBV_OPCODE_RC, asked;

	if (!w.qp[i] || !w.has_sent[i])
		return;
	pkt.opcode = transport | IBV_OPCODE_ACKNOWLEDGE;
	asked = req->opcode & ~ROCE_TRANSPORT_MASK;
	pkt.dest_qpn = hca_qp_num(w.qp[i]);
	pkt.psn = near32(psn_add(req->psn, req->npkts - 1)) & ROCE_PSN_MASK;
	if (asked == IBV_OPCODE_RDMA_READ_REQUEST) {
		pkt.psn = near32(req->psn) & ROCE_PSN_MASK;
		pkt.payload_len = near32(req->dma_len);
		if (pkt.payload_len > MAX_DATA)
			pkt.payload_len = MAX_DATA;
		pkt.npkts = roce_npkts(pkt.payload_len, MTU);
		pkt.opcode = transport | (pkt.npkts > 1 ? IBV_OPCODE_RDMA_READ_RESPONSE_FIRST
							: IBV_OPCODE_RDMA_READ_RESPONSE_ONLY);
	} else if (asked == IBV_OPCODE_COMPARE_SWAP || asked == IBV_OPCODE_FETCH_ADD) {
		pkt.opcode = transport | IBV_OPCODE_ATOMIC_ACKNOWLEDGE;
	}
	pkt.opcode_last = pkt.npkts > 1 ? transport | IBV_OPCODE_RDMA_READ_RESPONSE_LAST : pkt.opcode;
	arrive(&pkt);
}

static void send_something(void)
{
	unsigned i = u8() % NUM_QPS;
	struct ibv_sge sge = {.length = some_len()};
	struct ibv_send_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = u8() % 7,
				 .send_flags = u8() & (IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED)}, *bad;
	uint64_t va;
	uint32_t key;

	if (!w.qp[i])
		return;
	somewhere(&va, &sge.lkey);
	sge.addr = va;
	somewhere(&va, &key);
	if (type_of[i] == IBV_QPT_UD) {
		wr.wr.ud.ah = (struct ibv_ah *)&av;
		wr.wr.ud.remote_qpn = PEER_QPN + 1 + UD;
	} else if (wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		sge.length = 8;
		wr.wr.atomic.remote_addr = va;
		wr.wr.atomic.rkey = key;
	} else {
		wr.wr.rdma.remote_addr = va;
		wr.wr.rdma.rkey = key;
	}
	if (i == XRC_INI)
		wr.qp_type.xrc.remote_srqn = u8();
	hca_post_send(w.qp[i], &wr, &bad);
}

static void receive_something(void)
{
	unsigned i = u8() % NUM_QPS;
	struct ibv_sge sge = {.length = some_len()};
	struct ibv_recv_wr wr = {.wr_id = 2, .sg_list = &sge, .num_sge = 1}, *bad;

	somewhere(&sge.addr, &sge.lkey);
	if (i == RC_SRQ)
		hca_post_srq_recv(rig.srq, &wr, &bad);
	else if (i == XRC_TGT)
		hca_post_srq_recv(w.xsrq[u8() & 1], &wr, &bad);
	else if (w.qp[i])
		hca_post_recv(w.qp[i], &wr, &bad);
}

static void change_qp(void)
{
	unsigned i = u8() % NUM_QPS;
	uint8_t how = u8();

	if (!w.qp[i])
		return make_qp(i);
	if (how % 4 == 0)
		return drop_qp(i);
	if (how % 4 == 1)
		return rig_modify_state(w.qp[i], IBV_QPS_ERR);
	rig_modify_state(w.qp[i], IBV_QPS_RESET);
	w.has_sent[i] = false;
	if (how % 4 == 2)
		to_rts(i);
}

static void poll_cqs(void)
{
	struct ibv_wc wc[8];

	hca_cq_poll(rig.scq, 8, wc);
	hca_cq_poll(rig.rcq, 8, wc);
}

static void memory(void)
{
	uint64_t at = (uintptr_t)odp_mem + u8() * 1024u;

	switch (u8() % 4) {
	case 0:
		drop_odp();
		make_odp();
		break;
	case 1:
		let_faults_end();
		fake_gate_close();
		break;
	default:
		fake_invalidate(w.odp_umem, at, at + u8() * 256u);
	}
}

static void other(void)
{
	struct ibv_srq_attr attr = {.srq_limit = u8() % 8};
	struct hca_srq **xsrq = &w.xsrq[attr.srq_limit & 1];

	switch (u8() % 5) {
	case 0:
		hca_srq_modify(rig.srq, &attr, IBV_SRQ_LIMIT);
		break;
	case 1:
		if (w.attached)
			detach();
		else if (w.qp[UD])
			w.attached = !hca_attach_mcast(w.qp[UD], group, 1);
		break;
	case 2:
		fake_net_room(u8() % 4);
		break;
	case 4:
		hca_srq_destroy(*xsrq);
		*xsrq = rig_srq(PD, XRCD, rig.rcq);
		break;
	default:
		fake_net_room(-1);
	}
}

static void step(void)
{
	uint8_t a = u8();

	if (a < 120)
		packet();
	else if (a < 150)
		answer();
	else if (a < 180)
		send_something();
	else if (a < 205)
		receive_something();
	else if (a < 215)
		change_qp();
	else if (a < 225)
		poll_cqs();
	else if (a < 235)
		memory();
	else if (a < 245)
		other();
	else
		rig_advance((uint64_t)u8() * u8() * 100000);
	for (unsigned i = 0; i < NUM_QPS; i++)
		for (unsigned role = 0; w.qp[i] && role < ROLE_NUM; role++)
			w.slept |= w.qp[i]->faulting[role];
	drain();
	if (fl_locks_held)
		FAIL("%d locks are held after action %u", fl_locks_held, a);
}

/* ---- what must hold ---- */

/* a WRITE out and one in */
static void good_works(void)
{
	struct hca_cq *scq = rig.scq;
	struct ibv_send_wr wr = wr_data(IBV_WR_RDMA_WRITE, 9, 0, 100);
	uint32_t out = good->req.psn, expected = good->resp.psn;

	rig.qp = good;
	CHECK_EQ(qp_state(), IBV_QPS_RTS);
	CHECK_EQ(post(wr), 0);
	TX(RDMA_WRITE_ONLY, out, 1, 100);
	rx_ack(out);
	wc_next(good_scq, IBV_WC_SUCCESS, 9);
	memset(rig.mem + 4096, 0, 200);
	rx(WRITE(ONLY, expected, 4096, 200, 200, pattern));
	TX_ACK(expected);
	CHECK(!memcmp(rig.mem + 4096, pattern, 200));
	wc_none(good_scq);
	wc_none(good_rcq);
	rig.scq = scq;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static bool is_up;
	uint64_t heap, maps;
	unsigned paths, mrs;

	if (!is_up)
		once();
	is_up = true;
	in = data;
	in_end = data + size;
	heap = mallinfo2().uordblks;
	paths = fake_paths;
	mrs = fake_released;
	maps = cnt(FL_CNT_qp);
	set_up();
	while (in < in_end) {
		step();
		if (mallinfo2().uordblks > heap + STABLE + KEPT_MAX)
			FAIL("%zu bytes of heap, %lu before", mallinfo2().uordblks, heap);
	}
	fake_net_room(-1);
	let_faults_end();
	rx_now();
	drain();
	good_works();
	take_down();
	drain();
	CHECK_EQ(fake_paths, paths);
	CHECK(fake_released > mrs);
	CHECK_EQ(cnt(FL_CNT_qp), maps);
	if (mallinfo2().uordblks > heap + STABLE)
		FAIL("%zu bytes of heap are left, %lu before", mallinfo2().uordblks, heap);
	return 0;
}

#ifndef FUZZER
#define MAX_INPUT 1024
#define BATCH	  100 /* inputs a process: a failing one is found again by its seed */

static uint64_t rng;

static uint32_t rnd(uint32_t n)
{
	rng = rng * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(rng >> 33) % n;
}

static size_t make(char **files, int num_files, uint8_t *input)
{
	size_t len = 0, i;
	FILE *f;

	if (num_files && rnd(2)) {
		f = fopen(files[rnd((uint32_t)num_files)], "rb");
		if (!f)
			FAIL("no corpus");
		len = fread(input, 1, MAX_INPUT, f);
		fclose(f);
		for (i = rnd(8); i && len; i--)
			input[rnd((uint32_t)len)] = (uint8_t)rnd(256);
	}
	for (i = len + rnd(len ? 60 : 600); len < i && len < MAX_INPUT; len++)
		input[len] = (uint8_t)rnd(256);
	return len;
}

static void batch(uint64_t seed, char **files, int num_files)
{
	uint8_t input[MAX_INPUT], *exact;
	size_t len;

	rng = seed * 7919 + 1;
	for (int i = 0; i < BATCH; i++) {
		len = make(files, num_files, input);
		exact = malloc(len + 1);
		memcpy(exact, input, len);
		LLVMFuzzerTestOneInput(exact, len);
		free(exact);
	}
}

int main(int argc, char **argv)
{
	const char *given = getenv("FUZZ_SEED");
	uint64_t seed = given ? strtoull(given, NULL, 0) : 1, last;
	int pid;

	if (argc < 2)
		FAIL("usage: fuzz-state BATCHES [CORPUS...]");
	last = given ? seed : strtoull(argv[1], NULL, 0);
	for (; seed <= last; seed++) {
		pid = rig_fork();
		if (!pid) {
			batch(seed, argv + 2, argc - 2);
			_Exit(0);
		}
		if (rig_wait(pid))
			FAIL("FUZZ_SEED=%lu repeats it", (unsigned long)seed);
	}
	printf("%lu inputs\n", (unsigned long)(given ? 1 : last) * BATCH);
	return 0;
}
#endif
