/* SPDX-License-Identifier: BSD-2-Clause */
/* What `faultline run` says in the end: a few lines, by process and device, to act on. */
#include "cli/cli.h"

#include <string.h>

static const char *plural(uint64_t n)
{
	return n == 1 ? "" : "s";
}

struct left_mrs {
	uint32_t device;
	uint64_t num[3], bytes[3]; /* pinned, on demand */
};

static void count_mr(const struct faultline_mr *mr, void *arg)
{
	struct left_mrs *left = arg;
	unsigned i = mr->kind == FAULTLINE_MR_DMABUF ? 2
		     : mr->kind == FAULTLINE_MR_ODP || mr->kind == FAULTLINE_MR_IMPLICIT;

	if (mr->device != left->device)
		return;
	left->num[i]++;
	left->bytes[i] += mr->kind == FAULTLINE_MR_IMPLICIT ? 0 : mr->length;
}

/* appends "1 QP", with a comma before it when it is not the first */
static void item(char *buf, size_t size, uint64_t n, const char *what)
{
	size_t len = strlen(buf);

	if (n)
		snprintf(buf + len, size - len, "%s%llu %s%s", len ? ", " : "",
			 (unsigned long long)n, what, plural(n));
}

static void print_memory(FILE *out, const struct faultline_device *d)
{
	uint64_t pinned = counter(d, FL_CNT_mr_pinned_total), odp = counter(d, FL_CNT_mr_odp_total);
	uint64_t dmabuf = counter(d, FL_CNT_mr_dmabuf_total);
	uint64_t odp_bytes = counter(d, FL_CNT_mr_bytes_odp); /* an implicit region has none of its own */
	char b[32];

	fprintf(out, "  memory      ");
	if (!pinned && !odp && !dmabuf)
		fprintf(out, "no MR registered");
	if (pinned)
		fprintf(out, "%llu MR%s pinned (%s)", (unsigned long long)pinned, plural(pinned),
			human_bytes(counter(d, FL_CNT_mr_bytes_pinned), b));
	if (odp)
		fprintf(out, "%s%llu MR%s on demand (%s)", pinned ? ", " : "",
			(unsigned long long)odp, plural(odp),
			odp_bytes ? human_bytes(odp_bytes, b) : "all addresses");
	if (dmabuf)
		fprintf(out, "%s%llu MR%s on dma-bufs (%s)", pinned || odp ? ", " : "",
			(unsigned long long)dmabuf, plural(dmabuf),
			human_bytes(counter(d, FL_CNT_mr_bytes_dmabuf), b));
	fputc('\n', out);
}

static void print_work(FILE *out, const struct faultline_device *d)
{
	static const struct {
		enum faultline_counter c;
		const char *what;
	} ops[] = {
		{FL_CNT_rdma_sends, "SEND"},	  {FL_CNT_rdma_writes, "RDMA WRITE"},
		{FL_CNT_rdma_reads, "RDMA READ"}, {FL_CNT_rdma_atomics, "atomic"},
		{FL_CNT_rdma_recvs, "receive"},
	};
	char buf[256] = "", sent[32], rcvd[32];

	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
		item(buf, sizeof(buf), counter(d, ops[i].c), ops[i].what);
	fprintf(out, "  operations  %s\n", buf[0] ? buf : "none completed here");
	fprintf(out, "  traffic     %s sent, %s received\n",
		human_bytes(counter(d, FL_CNT_sent_bytes), sent),
		human_bytes(counter(d, FL_CNT_rcvd_bytes), rcvd));
}

#define TIMES_MIN 10 /* of fewer, one in a hundred is none */

static void print_times(FILE *out, const struct faultline_device *d)
{
	const uint64_t *fault = d->histogram[FL_HIST_fault_time], *stall = d->histogram[FL_HIST_stall_time];
	uint64_t paused = histogram_total(stall);
	char half[32], most[32];

	if (histogram_total(fault) < TIMES_MIN)
		return;
	fprintf(out, "  fault time  half under %s, 99 %% under %s", human_us(histogram_below(fault, 0.5), half),
		human_us(histogram_below(fault, 0.99), most));
	if (paused)
		fprintf(out, "; %llu paused a queue pair, half for less than %s", (unsigned long long)paused,
			human_us(histogram_below(stall, 0.5), half));
	fputc('\n', out);
}

static void print_paging(FILE *out, const struct faultline_device *d)
{
	uint64_t events = counter(d, FL_CNT_page_fault_events),
		 pages = counter(d, FL_CNT_page_faults);
	uint64_t inv = counter(d, FL_CNT_page_invalidations),
		 pre = counter(d, FL_CNT_page_prefetch);
	uint64_t major = counter(d, FL_CNT_page_faults_major);
	uint64_t denied = counter(d, FL_CNT_page_faults_denied);
	uint64_t again = counter(d, FL_CNT_page_refaults);
	uint64_t reclaimed = counter(d, FL_CNT_page_reclaims);

	/* of dma-bufs only those that follow moves fault, or lose anything */
	if (!counter(d, FL_CNT_mr_odp_total) && !(counter(d, FL_CNT_mr_dmabuf_total) && (events || inv)))
		return;
	fprintf(out, "  paging      %llu page fault%s (%llu page%s", (unsigned long long)events,
		plural(events), (unsigned long long)pages, plural(pages));
	if (major)
		fprintf(out, ", %llu had to wait", (unsigned long long)major);
	if (denied)
		fprintf(out, ", %llu refused", (unsigned long long)denied);
	fprintf(out, "), %llu page%s invalidated", (unsigned long long)inv, plural(inv));
	if (reclaimed)
		fprintf(out, " (%llu swapped out)", (unsigned long long)reclaimed);
	if (again)
		fprintf(out, ", %llu of them faulted again within a second", (unsigned long long)again);
	if (pre)
		fprintf(out, ", %llu prefetched", (unsigned long long)pre);
	fputc('\n', out);
	print_times(out, d);
}

static void print_trouble(FILE *out, const struct faultline_device *d)
{
	static const enum faultline_counter trouble[] = {
		FL_CNT_local_access_err,    FL_CNT_remote_access_err,
		FL_CNT_retry_exceeded_err,  FL_CNT_retry_rnr_exceeded_err,
		FL_CNT_completer_retry_err, FL_CNT_send_rnr_err,
		FL_CNT_rcvd_rnr_err,	    FL_CNT_send_err,
		FL_CNT_rx_icrc_err,	    FL_CNT_rx_malformed,
		FL_CNT_rx_backlog_drop,	    FL_CNT_mr_pinned_stale,
	};

	for (size_t i = 0; i < sizeof(trouble) / sizeof(trouble[0]); i++) {
		uint64_t n = counter(d, trouble[i]);

		if (n)
			fprintf(out, "  trouble     %s %llu: %s\n", counter_name[trouble[i]],
				(unsigned long long)n, counter_help[trouble[i]]);
	}
}

/* What was done to this side's packets on purpose: else trouble would look like the network's. */
static void print_impaired(FILE *out, const struct faultline_device *d)
{
	static const struct {
		enum faultline_counter c;
		const char *how;
	} kinds[] = {
		{FL_CNT_impair_lost, "lost"},	    {FL_CNT_impair_reordered, "reordered"},
		{FL_CNT_impair_dup, "sent twice"},  {FL_CNT_impair_delayed, "delayed"},
		{FL_CNT_impair_corrupted, "corrupted"}, {FL_CNT_impair_ecn, "marked"},
	};
	bool any = false;

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		unsigned long long n = counter(d, kinds[i].c);

		if (!n)
			continue;
		fprintf(out, "%s%llu %s", any ? ", " : "  impaired    packets sent: ", n, kinds[i].how);
		any = true;
	}
	if (any)
		fputc('\n', out);
}

static void print_left_over(FILE *out, const struct process *p, const struct faultline_device *d,
			    unsigned index)
{
	struct left_mrs left = {.device = index};
	uint64_t maps = counter(d, FL_CNT_dma_maps), unmaps = counter(d, FL_CNT_dma_unmaps);
	static const char *const how[] = {"pinned", "on demand", "dma-buf"};
	char buf[512] = "", b[32];
	bool alive = process_alive(p);

	process_each_mr(p, count_mr, &left);
	item(buf, sizeof(buf), counter(d, FL_CNT_ctx), "context");
	item(buf, sizeof(buf), counter(d, FL_CNT_pd), "PD");
	item(buf, sizeof(buf), counter(d, FL_CNT_cq), "CQ");
	item(buf, sizeof(buf), counter(d, FL_CNT_qp), "QP");
	item(buf, sizeof(buf), counter(d, FL_CNT_srq), "SRQ");
	item(buf, sizeof(buf), counter(d, FL_CNT_ah), "AH");
	item(buf, sizeof(buf), counter(d, FL_CNT_xrcd), "XRC domain");
	for (unsigned i = 0; i < 3; i++) {
		size_t len = strlen(buf);

		if (left.num[i])
			snprintf(buf + len, sizeof(buf) - len, "%s%llu MR%s (%s, %s)",
				 len ? ", " : "", (unsigned long long)left.num[i],
				 plural(left.num[i]), how[i],
				 human_bytes(left.bytes[i], b));
	}
	item(buf, sizeof(buf), counter(d, FL_CNT_dmabuf_attachments), "dma-buf attachment");
	item(buf, sizeof(buf), counter(d, FL_CNT_dmabuf_pins), "dma-buf pin");
	if (maps > unmaps)
		item(buf, sizeof(buf), maps - unmaps, "DMA-mapped page");
	if (alive)
		fprintf(out, "  in use      %s (the process still runs)\n",
			buf[0] ? buf : "nothing");
	else
		fprintf(out, "  left over%s  %s\n", buf[0] ? ":" : " ", buf[0] ? buf : "nothing");
}

void report_print(FILE *out, const struct collector *c, const char *app, pid_t main_pid)
{
	if (!c->num) {
		fprintf(out, "faultline: %s opened no device: %s\n", app, why_no_device(app));
		return;
	}
	for (unsigned i = 0; i < c->num; i++) {
		const struct process *p = &c->process[i];
		const struct faultline_device *d;
		struct device_text text;
		char comm[16];
		bool any = false;

		printable(comm, sizeof(comm), p->s->comm, sizeof(p->s->comm));
		for (unsigned n = 0; n < FAULTLINE_MAX_DEVICES; n++) {
			d = process_device(p, n, &text);
			if (!d)
				continue;
			/* a device that was only looked at is no news when there is another */
			if (!counter(d, FL_CNT_ctx) && !counter(d, FL_CNT_mr_pinned_total) &&
			    !counter(d, FL_CNT_mr_odp_total) && !counter(d, FL_CNT_mr_dmabuf_total) &&
			    !counter(d, FL_CNT_rcvd_pkts) && any)
				continue;
			any = true;
			fprintf(out, "faultline: %s (pid %d%s) on %s (%s, %s)\n", comm, (int)p->pid,
				p->pid == main_pid ? "" : ", a child", text.name, text.netdev,
				text.gid);
			print_memory(out, d);
			print_work(out, d);
			print_paging(out, d);
			print_impaired(out, d);
			print_trouble(out, d);
			advice_print(out, d);
			print_left_over(out, p, d, n);
		}
	}
}
