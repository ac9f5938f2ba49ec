/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the counters of a device call for, in words: a rule a paragraph, each with the number from which on
 * it speaks and why. It speaks of what costs time or is wrong, and never of a run that is too short to tell.
 */
#include "cli/cli.h"

#include <stdarg.h>
#include <string.h>

#define INDENT	 14 /* as the report's lines */
#define LINE_END 100

/* "advice      text", folded between words */
static void say(FILE *out, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(FILE *out, const char *fmt, ...)
{
	char text[1024], *word, *save;
	size_t column = INDENT;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fprintf(out, "  %-*s", INDENT - 2, "advice");
	for (word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
		if (column > INDENT && column + 1 + strlen(word) > LINE_END) {
			fprintf(out, "\n%*s", INDENT, "");
			column = INDENT;
		}
		if (column > INDENT) {
			fputc(' ', out);
			column++;
		}
		fputs(word, out);
		column += strlen(word);
	}
	fputc('\n', out);
}

/* what all that was timed took together: each as its bucket's middle */
static uint64_t total_us(const uint64_t bucket[FAULTLINE_BUCKETS])
{
	uint64_t sum = 0;

	for (unsigned b = 1; b < FAULTLINE_BUCKETS; b++)
		sum += __atomic_load_n(&bucket[b], __ATOMIC_RELAXED) * 3 * (1ull << (b - 1)) / 2;
	return sum;
}

/*
 * A page that comes back within a second should have stayed. 256 pages are a mebibyte: what is less, a
 * program that frees one buffer does. One fault in ten: what is less, its time is not lost there.
 */
#define REFAULTS_MIN  256
#define REFAULTS_PART 10

static bool thrashes(const struct faultline_device *d)
{
	uint64_t again = counter(d, FL_CNT_page_refaults);

	return again >= REFAULTS_MIN && again >= counter(d, FL_CNT_page_faults) / REFAULTS_PART;
}

static void thrash(FILE *out, const struct faultline_device *d)
{
	unsigned long long again = counter(d, FL_CNT_page_refaults);
	uint64_t reclaimed = counter(d, FL_CNT_page_reclaims);

	if (!thrashes(d))
		return;
	/* whose doing it mostly was: the kernel's for want of memory, or the program's own */
	if (reclaimed >= counter(d, FL_CNT_page_invalidations) / 2)
		say(out,
		    "thrash: %llu pages were swapped out and needed again within a second: there is less memory than "
		    "the device works on. Keep the hot part in memory (mlock(), faultline_mr_pin(), a pinned region "
		    "for it), call ibv_advise_mr() or madvise(MADV_WILLNEED) ahead of use, or raise the limit",
		    again);
	else
		say(out,
		    "thrash: %llu pages were unmapped or discarded by the program and needed again within a second. "
		    "Keep buffers mapped between uses (a pool; M_TRIM_THRESHOLD and M_MMAP_THRESHOLD for malloc()), "
		    "pin the hot part (faultline_mr_pin()), or prefetch after each change (ibv_advise_mr())",
		    again);
}

/* Swapped-out pages cost a disk's time each, whether or not they come back: 256 as above. */
#define RECLAIMS_MIN 256

static void reclaim(FILE *out, const struct faultline_device *d)
{
	unsigned long long n = counter(d, FL_CNT_page_reclaims);

	if (n >= RECLAIMS_MIN && !thrashes(d))
		say(out,
		    "reclaim: the kernel swapped out %llu pages that the device had mapped, since memory was short. Lock "
		    "or pin what must be quick (mlock(), faultline_mr_pin()), or give the program more memory",
		    n);
}

/*
 * First touches that prefetch could have had out of the way: worth a word when they took more than 10 ms
 * together, and most pages came that way. Of a few pages that time is a busy machine's, or a fault model's.
 */
#define COLD_US	   10000
#define COLD_PAGES 10

static void cold_start(FILE *out, const struct faultline_device *d)
{
	uint64_t pages = counter(d, FL_CNT_page_faults), us = total_us(d->histogram[FL_HIST_fault_time]);
	char b[32];

	if (us < COLD_US || pages < COLD_PAGES || thrashes(d) || counter(d, FL_CNT_page_prefetch) > pages)
		return;
	say(out,
	    "cold start: page faults took %s in all, %llu pages in %llu faults. Prefetch what will be used before it "
	    "is (ibv_advise_mr() with IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE), or let the program touch it first",
	    human_us(us, b), (unsigned long long)pages, (unsigned long long)counter(d, FL_CNT_page_fault_events));
}

/* One is enough: data goes where the program does not look. */
static void stale(FILE *out, const struct faultline_device *d)
{
	unsigned long long n = counter(d, FL_CNT_mr_pinned_stale);

	if (n)
		say(out,
		    "a bug of the program: the device used pinned memory %llu time%s after the program had freed, unmapped "
		    "or discarded it. Deregister before that, or register on demand; a warning above names the region",
		    n, n == 1 ? "" : "s");
}

/*
 * To register and deregister costs microseconds to milliseconds each time: a thousand of them are not set-up
 * any more, and of 64 KiB a copy into a registered buffer would have been cheaper.
 */
#define CHURN_MIN   1000
#define CHURN_BYTES 65536

static void churn(FILE *out, const struct faultline_device *d)
{
	uint64_t total = counter(d, FL_CNT_mr_pinned_total) + counter(d, FL_CNT_mr_odp_total);
	uint64_t bytes = counter(d, FL_CNT_mr_bytes_pinned) + counter(d, FL_CNT_mr_bytes_odp);
	uint64_t now = counter(d, FL_CNT_mr_pinned) + counter(d, FL_CNT_mr_odp);
	char b[32];

	if (total < CHURN_MIN || now > total / 10 || bytes / total > CHURN_BYTES)
		return;
	say(out,
	    "%llu regions of %s on average were registered, and nearly all deregistered again. Register a pool once, or "
	    "all of the memory on demand, and use parts of it",
	    (unsigned long long)total, human_bytes(bytes / total, b));
}

/* An RNR NAK costs its sender the timer's time, 0.01 to 655 ms: a few at the start are usual. */
#define RNR_MIN 10

static void rnr(FILE *out, const struct faultline_device *d)
{
	unsigned long long faults = counter(d, FL_CNT_send_rnr_page_fault), sent = counter(d, FL_CNT_send_rnr_err),
			   rcvd = counter(d, FL_CNT_rcvd_rnr_err);

	if (faults >= RNR_MIN)
		say(out,
		    "%llu RNR NAKs were sent since a page fault took long; each costs the peer its RNR timer. Prefetch "
		    "receive buffers and targets (ibv_advise_mr()), or pin them",
		    faults);
	if (sent >= faults + RNR_MIN)
		say(out, "%llu RNR NAKs were sent for want of a receive: post more receives, and earlier", sent - faults);
	if (rcvd >= RNR_MIN)
		say(out,
		    "%llu RNR NAKs came from the peer, which was not ready; a min_rnr_timer of 0 there means 655 ms each, "
		    "12 means 0.64 ms",
		    rcvd);
}

void advice_print(FILE *out, const struct faultline_device *d)
{
	stale(out, d);
	thrash(out, d);
	reclaim(out, d);
	cold_start(out, d);
	churn(out, d);
	rnr(out, d);
}
