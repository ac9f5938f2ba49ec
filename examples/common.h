/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the examples share: two ends, a TCP connection (or a socket pair) between them, and an RC QP
 * over it. Whatever fails ends the program with a line that says what; an example shows what it is
 * about, not how errors are handled.
 */
#ifndef EXAMPLES_COMMON_H
#define EXAMPLES_COMMON_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

extern const char *example_name; /* each example defines it */

void die(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));
/* for a program that takes none: ends it with 2 when there are any */
void no_arguments(int argc, char **argv);

/* ---- the two ends ---- */

/* TCP; connecting goes on for some seconds, since the other end may have been started just now */
int tcp_accept(void);
int tcp_connect(const char *host);
/* both ends on this host: a process each, with a socket pair. Which of the two is this? */
enum end { SERVER, CLIENT };
enum end two_processes(int *sock);
/* the client's exit status; the server calls it last */
int client_status(void);

void send_all(int sock, const void *data, size_t len);
/* false: the other end has closed */
bool recv_all(int sock, void *data, size_t len);
void exchange(int sock, const void *out, void *in, size_t len);
/* both are here before either goes on */
void meet(int sock);

/* ---- verbs ---- */

struct side {
	struct ibv_context *ctx;
	struct ibv_device_attr_ex attr;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	int sock;
};

/* the first device whose name begins so ("": the first of all), with PD and CQ; sock may be set
 * later */
void open_side(struct side *s, int sock, const char *device);
void close_side(struct side *s);

static inline bool has_odp(const struct side *s)
{
	return s->attr.odp_caps.general_caps & IBV_ODP_SUPPORT;
}

static inline bool has_implicit_odp(const struct side *s)
{
	return s->attr.odp_caps.general_caps & IBV_ODP_SUPPORT_IMPLICIT;
}

/* an RC QP, connected to the other end's, which calls it at the same time */
void connect_qp(struct side *s);

/* registers, or ends the program; what: for the message */
struct ibv_mr *reg_mr(struct side *s, void *addr, size_t len, int access, const char *what);

/* memory of the other end */
struct remote {
	uint64_t addr;
	uint32_t rkey;
};

/* posts one request and waits until it is done */
void rdma(struct side *s, enum ibv_wr_opcode opcode, void *local, uint32_t lkey, uint32_t len,
	  struct remote remote);

/* a pattern that depends on the position, with no period that a page or a packet divides */
uint8_t pattern(uint64_t pos, unsigned seed);

#endif
