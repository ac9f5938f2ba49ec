/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program that looks to `faultline` as one with a device does, with counters known beforehand: it
 * makes a segment, reports it to `faultline run` and answers `faultline stat`.
 *
 *     stub [clean|leak|odd|ADVICE] [SLOT [mute]]
 *
 * clean: everything was closed; leak: a QP and two MRs were not; odd: the segment is no segment; ADVICE:
 * clean, with counters that call for it.
 * With a slot it listens there (mute: without answering) until its standard input ends.
 */
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "util/seg.h"

static struct seg seg;

static int unix_socket(struct sockaddr_un *addr, socklen_t *len, const char *name)
{
	memset(addr, 0, sizeof(*addr));
	addr->sun_family = AF_UNIX;
	memcpy(addr->sun_path + 1, name, strlen(name));
	*len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
	return socket(AF_UNIX, SOCK_STREAM, 0);
}

static void send_segment(int sock, int fd)
{
	char what = 'F', control[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec iov = {&what, 1};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control,
			     .msg_controllen = sizeof(control)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(int));
	if (sendmsg(sock, &msg, MSG_NOSIGNAL) != 1)
		perror("stub: sendmsg");
}

/* what a counter that calls for advice is set to, by the first argument */
static const struct {
	const char *how;
	enum faultline_counter c;
	uint64_t n;
} advised[] = {
	{"thrash", FL_CNT_page_refaults, 5000}, {"thrash", FL_CNT_page_faults, 20000},
	{"thrash", FL_CNT_page_invalidations, 6000},
	{"swapped", FL_CNT_page_refaults, 5000}, {"swapped", FL_CNT_page_faults, 20000},
	{"swapped", FL_CNT_page_invalidations, 6000}, {"swapped", FL_CNT_page_reclaims, 5900},
	{"reclaim", FL_CNT_page_reclaims, 300}, {"reclaim", FL_CNT_page_invalidations, 300},
	{"stale", FL_CNT_mr_pinned_stale, 1},
	{"impaired", FL_CNT_impair_lost, 3}, {"impaired", FL_CNT_impair_ecn, 12},
	{"cold", FL_CNT_page_fault_events, 100}, {"cold", FL_CNT_page_faults, 100},
	{"few", FL_CNT_page_fault_events, 9}, {"few", FL_CNT_page_faults, 9},
	{"churn", FL_CNT_mr_pinned_total, 5000}, {"churn", FL_CNT_mr_bytes_pinned, 5000 * 4096},
	{"rnr", FL_CNT_send_rnr_err, 50}, {"rnr", FL_CNT_send_rnr_page_fault, 20}, {"rnr", FL_CNT_rcvd_rnr_err, 11},
	/* just too little for a word */
	{"quiet", FL_CNT_page_refaults, 255}, {"quiet", FL_CNT_page_faults, 300}, {"quiet", FL_CNT_page_reclaims, 255},
	{"quiet", FL_CNT_mr_pinned_total, 900}, {"quiet", FL_CNT_send_rnr_err, 9}, {"quiet", FL_CNT_rcvd_rnr_err, 9},
};

static void fill_advised(const char *how)
{
	struct faultline_device *d = &seg.s->device[0];

	if (strcmp(how, "clean") && strcmp(how, "leak"))
		d->counter[FL_CNT_page_faults] = 0;
	for (size_t i = 0; i < sizeof(advised) / sizeof(advised[0]); i++)
		if (!strcmp(how, advised[i].how))
			cnt_add(d, advised[i].c, advised[i].n);
	if (!strcmp(how, "few"))
		cnt_time(d, NULL, FL_HIST_fault_time, 20000000);
	for (unsigned i = 0; !strcmp(how, "cold") && i < 100; i++) {
		cnt_time(d, NULL, FL_HIST_fault_time, i < 60 ? 100000 : 700000); /* ns: under 128 us, 1024 us */
		cnt_time(d, NULL, FL_HIST_stall_time, 3000);
	}
}

static void fill(bool leak)
{
	struct faultline_segment *s = seg.s;
	struct faultline_device *d = &s->device[0];
	struct faultline_mr *mr = seg_ptr(&seg, s->mr_table);

	s->num_devices = 1;
	strcpy(d->name, "mlx5_fl0");
	strcpy(d->profile, "mlx5");
	strcpy(d->netdev, "eth\n0"); /* must not reach a terminal as it is */
	d->gid[10] = d->gid[11] = 0xff;
	memcpy(d->gid + 12, (uint8_t[]){192, 0, 2, 7}, 4);
	cnt_add(d, FL_CNT_mr_pinned_total, 1);
	cnt_add(d, FL_CNT_mr_bytes_pinned, 8192);
	cnt_add(d, FL_CNT_mr_odp_total, 2);
	cnt_add(d, FL_CNT_mr_bytes_odp, 5 << 20);
	cnt_add(d, FL_CNT_rdma_writes, 42);
	cnt_add(d, FL_CNT_sent_bytes, 1000);
	cnt_add(d, FL_CNT_page_fault_events, 3);
	cnt_add(d, FL_CNT_page_faults, 9007199254740993); /* more than a double holds */
	cnt_add(d, FL_CNT_dma_maps, 100);
	cnt_add(d, FL_CNT_dma_unmaps, leak ? 98 : 100);
	if (!leak)
		return;
	cnt_inc(d, FL_CNT_ctx);
	cnt_inc(d, FL_CNT_qp);
	/* far apart in the table */
	mr[1] = (struct faultline_mr){.key = 0x101,
				      .pd = 1,
				      .access = 0x100003,
				      .kind = FAULTLINE_MR_PINNED,
				      .length = 8192,
				      .addr = 0x10000,
				      .iova = 0x10000};
	mr[s->mr_entries - 1] = (struct faultline_mr){.key = 0xffffff02,
						      .pd = 1,
						      .kind = FAULTLINE_MR_ODP,
						      .length = 5 << 20,
						      .page_faults = 17,
						      .page_refaults = 5,
						      .pinned_pages = 3,
						      .histogram = {{2, 1}, {[23] = 4}}};
}

static int serve(const char *slot, bool mute)
{
	struct pollfd pfd[2] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.events = POLLIN}};
	struct sockaddr_un addr;
	char name[64], byte;
	socklen_t len;

	seg.s->slot = (uint32_t)atoi(slot);
	snprintf(name, sizeof(name), FAULTLINE_SOCKET_PREFIX "%s", slot);
	pfd[1].fd = unix_socket(&addr, &len, name);
	if (bind(pfd[1].fd, (struct sockaddr *)&addr, len) || listen(pfd[1].fd, 8)) {
		perror("stub: listen");
		return 1;
	}
	printf("ready\n");
	fflush(stdout);
	while (poll(pfd, mute ? 1 : 2, -1) > 0) {
		int conn;

		if (pfd[0].revents)
			return 0;
		conn = accept(pfd[1].fd, NULL, NULL);
		/* something happens between two looks: before this one, since after it would be a race with its reading */
		cnt_add(&seg.s->device[0], FL_CNT_rcvd_pkts, 100);
		if (read(conn, &byte, 1) == 1 && byte == 'S')
			send_segment(conn, seg.ro_fd);
		close(conn);
	}
	return 1;
}

int main(int argc, char **argv)
{
	const char *report = getenv("FAULTLINE_REPORT");
	const char *how = argc > 1 ? argv[1] : "clean";
	struct sockaddr_un addr;
	socklen_t len;

	if (seg_create(&seg))
		return 1;
	fill(!strcmp(how, "leak"));
	fill_advised(how);
	if (!strcmp(how, "odd"))
		seg.s->mr_entries = UINT64_MAX;
	if (report && *report) {
		int sock = unix_socket(&addr, &len, report);

		if (connect(sock, (struct sockaddr *)&addr, len)) {
			perror("stub: report");
			return 1;
		}
		send_segment(sock, seg.ro_fd);
		close(sock);
	}
	return argc > 2 ? serve(argv[2], argc > 3) : 0;
}
