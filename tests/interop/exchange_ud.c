/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * UD: datagrams and answers to who sent them; and to a multicast group that both ends are in. rxe
 * gives a sender no copy of its own, and leaves the IP group to who calls it (the kernel's
 * connection manager).
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "exchange.h"

#define AT	  0x40000ul /* where datagrams are received */
#define RECV_SIZE 4096u
#define SLOTS	  64u
#define MCAST_QPN 0xffffffu
#define PROBE	  333u /* bytes; no datagram of a case has so many */

static void send_datagram(struct ibv_ah *ah, uint32_t qpn, uint32_t qkey, uint32_t len, bool imm)
{
	struct ibv_sge sge = {IOVA + OFFSET, len, mr->lkey};
	struct ibv_send_wr wr = request(imm ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND, &sge, 0, 0);

	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = qpn;
	wr.wr.ud.remote_qkey = qkey;
	post_send(&wr);
	expect_send("datagram", len, IBV_WC_SUCCESS);
}

/* each to a place of its own: what is late does not write over what is looked at */
static void post_recv_next(void)
{
	static unsigned slot;

	slot = (slot + 1) % SLOTS;
	memset(buf + AT + slot * RECV_SIZE, 0, RECV_SIZE);
	post_recv_at(AT + slot * RECV_SIZE, RECV_SIZE);
}

/* one of another queue pair's, whose data has len for its seed */
static struct ibv_wc expect_datagram(const char *what, uint32_t src, uint32_t len, bool imm)
{
	struct ibv_wc wc = {0};

	while (wait_wc(recv_cq, &wc) && wc.byte_len == PROBE + GRH) /* one that was late */
		post_recv_next();
	if (!wc.byte_len) {
		CHECK(false, "no %s of %u bytes", what, len);
		return wc;
	}
	CHECK(wc.status == IBV_WC_SUCCESS && wc.byte_len == len + GRH && wc.src_qp == src &&
		      (wc.wc_flags & IBV_WC_GRH) && !!(wc.wc_flags & IBV_WC_WITH_IMM) == imm,
	      "%s of %u bytes: %s, %u bytes from QP %x, flags %x", what, len,
	      ibv_wc_status_str(wc.status), wc.byte_len, wc.src_qp, wc.wc_flags);
	check_data(what, buf + wc.wr_id + GRH, len, len);
	return wc;
}

static struct ibv_ah *new_ah(const union ibv_gid *gid)
{
	struct ibv_ah_attr attr = {.is_global = 1,
				   .port_num = 1,
				   .grh = {.dgid = *gid,
					   .sgid_index = gid_index,
					   .hop_limit = HOP_LIMIT,
					   .traffic_class = CLASS,
					   .flow_label = FLOW_LABEL}};
	struct ibv_ah *ah = ibv_create_ah(pd, &attr);

	if (!ah)
		die("ibv_create_ah");
	return ah;
}

/* what a datagram says of its sender is where the answer goes */
static void answer(uint32_t len, bool imm)
{
	struct ibv_wc wc = expect_datagram("datagram", peer.qpn, len, imm);
	struct ibv_ah *ah;

	ah = ibv_create_ah_from_wc(pd, &wc, (struct ibv_grh *)(buf + wc.wr_id), 1);
	if (!ah)
		die("ibv_create_ah_from_wc");
	memcpy(buf + OFFSET, buf + wc.wr_id + GRH, len);
	send_datagram(ah, wc.src_qp, QKEY, len, imm);
	ibv_destroy_ah(ah);
}

void case_ud(void)
{
	struct ibv_ah *ah = new_ah(&peer.gid);

	for (unsigned i = 0; i < NUM_SIZES && sizes[i] <= PATH_MTU; i++) {
		uint32_t len = sizes[i];
		bool imm = i & 1;

		post_recv_next();
		if (!server)
			fill(buf + OFFSET, len, len);
		barrier();
		if (server) {
			answer(len, imm);
		} else {
			/* another Q_Key: as if not sent */
			send_datagram(ah, peer.qpn, QKEY + 1, len, imm);
			send_datagram(ah, peer.qpn, QKEY, len, imm);
			expect_datagram("answer", peer.qpn, len, imm);
		}
		barrier();
	}
	ibv_destroy_ah(ah);
	CHECK(state() == IBV_QPS_RTS, "the QP is in state %d", state());
}

/* ---- a group ---- */

static union ibv_gid group_of(const union ibv_gid *own)
{
	static const uint8_t v4[12] = {[10] = 0xff, 0xff};

	return memcmp(own->raw, v4, sizeof(v4))
		       ? (union ibv_gid){.raw = {0xff, 0x15, [12] = 0x88, 1, 2, 3}}
		       : (union ibv_gid){.raw = {[10] = 0xff, 0xff, 239, 88, 2, 3}};
}

/* returns a socket: while it lives this host is a member */
static int join_ip_group(const union ibv_gid *group)
{
	bool v4 = group->raw[0] != 0xff;
	struct ibv_gid_entry entry;
	struct ipv6_mreq six = {0};
	struct ip_mreqn four = {0};
	int fd = socket(v4 ? AF_INET : AF_INET6, SOCK_DGRAM, 0), err;

	if (fd < 0 || ibv_query_gid_ex(ctx, 1, gid_index, &entry, 0))
		die("the GID's interface");
	six.ipv6mr_interface = entry.ndev_ifindex;
	four.imr_ifindex = (int)entry.ndev_ifindex;
	memcpy(&six.ipv6mr_multiaddr, group->raw, 16);
	memcpy(&four.imr_multiaddr, group->raw + 12, 4);
	err = v4 ? setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &four, sizeof(four))
		 : setsockopt(fd, IPPROTO_IPV6, IPV6_JOIN_GROUP, &six, sizeof(six));
	if (err)
		die("joining the IP group");
	return fd;
}

/* To the group, and once more with a Q_Key that nobody has; a sender that is a member has it, too.
 */
static void send_to_group(struct ibv_ah *ah, uint32_t len, bool imm)
{
	fill(buf + OFFSET, len, len);
	send_datagram(ah, MCAST_QPN, QKEY + 1, len, imm);
	send_datagram(ah, MCAST_QPN, QKEY, len, imm);
	expect_datagram("own datagram", qp->qp_num, len, imm);
}

static void receive_from_group(const union ibv_gid *group, uint32_t len, bool imm)
{
	struct ibv_wc wc = expect_datagram("datagram to the group", peer.qpn, len, imm);

	CHECK(!memcmp(buf + wc.wr_id + 36, group->raw + 12, 4),
	      "the GRH's destination is not the group");
}

/* The switch, or the interface's filter, may learn of a membership after the call has returned. */
static void await_membership(struct ibv_ah *ah)
{
	bool here = false, there = false;
	unsigned sent = 0, own = 0;
	struct ibv_wc wc;
	double end;

	for (unsigned i = 0; i < 8; i++)
		post_recv_next();
	while (!here || !there) {
		send_datagram(ah, MCAST_QPN, QKEY, PROBE, false);
		sent++;
		for (end = now() + 1; (!here || own < sent) && now() < end;) {
			if (ibv_poll_cq(recv_cq, 1, &wc) <= 0) {
				usleep(1000);
				continue;
			}
			here |= wc.src_qp == peer.qpn;
			own += wc.src_qp == qp->qp_num;
			post_recv_next();
		}
		swap_info(&here, &there, sizeof(here));
	}
}

void case_multicast(void)
{
	union ibv_gid group = group_of(&me.gid);
	struct ibv_ah *ah = new_ah(&group), *direct = new_ah(&peer.gid);
	int membership = rxe ? join_ip_group(&group) : -1;

	if (ibv_attach_mcast(qp, &group, 0))
		die("ibv_attach_mcast");
	await_membership(ah);
	for (unsigned i = 0; i < NUM_SIZES && sizes[i] <= PATH_MTU; i++) {
		for (int sender = 0; sender < 2; sender++) {
			post_recv_next();
			barrier();
			if (sender == server)
				send_to_group(ah, sizes[i], i & 1);
			else
				receive_from_group(&group, sizes[i], i & 1);
			barrier();
		}
	}

	/* who has left gets what is for it alone */
	post_recv_next();
	if (server && (ibv_detach_mcast(qp, &group, 0) || (rxe && close(membership))))
		die("ibv_detach_mcast");
	barrier();
	if (server) {
		expect_datagram("datagram after the group was left", peer.qpn, 77, false);
	} else {
		send_to_group(ah, 78, false);
		fill(buf + OFFSET, 77, 77);
		send_datagram(direct, peer.qpn, QKEY, 77, false);
		if (ibv_detach_mcast(qp, &group, 0) || (rxe && close(membership)))
			die("ibv_detach_mcast");
	}
	barrier();
	ibv_destroy_ah(ah);
	ibv_destroy_ah(direct);
}
