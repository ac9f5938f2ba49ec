/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Buffers whose memory moves or is revoked, between two processes. The importing process has a dma_buf of its own that
 * stands for the other's (remote_import.c): its exporter's functions are calls to the exporting process. There each
 * attachment has a *proxy* (remote_proxy.c), an importer of the real buffer that hands on what it is told. The two talk
 * by a connection a buffer (remote_serve.c has the exporter's end of it, with its threads).
 *
 *	importing process			exporting process
 *	importer <-> dma_buf, remote_ops  <-->  proxy <-> dma_buf, the exporter's ops
 *	          its reservation                its reservation
 *
 * Finding it. The name of the file behind the descriptor ends in a token, which names the exporting process's socket.
 * Who connects sends the descriptor itself: it shows that he has it, and says which buffer. Both sides are of one user
 * (util/usock.h), or go no further.
 *
 * Two reservations, one order. The importer's end reads the connection only with its own reservation held, and it
 * makes calls only under it. So a call's answer and what the exporter says on its own (INVALIDATE) come in the order in
 * which the exporter's reservation was held, and whoever waits for an answer deals with an INVALIDATE that comes before
 * it, as an importer in the exporter's process may be told inside map. A thread of the connection waits for
 * what comes when nobody calls. The exporter sends what depends on its reservation while it holds that; and it takes
 * answers (ACK) by a thread that never waits for a reservation. So who holds the exporter's reservation waits for the
 * importer's, and never the other way round. An importer holds one reservation of this kind at a time.
 *
 * What is undone (UNMAP, UNPIN) is not answered: it may be done inside invalidate_mappings, or with the exporter's
 * reservation taken for long. DETACH is, and what was sent before it has been done then.
 *
 * A move: the proxy's invalidate_mappings sends INVALIDATE and leaves a fence; the importer unmaps, accesses under way
 * have ended then, and ACKs, which signals the fence. A revocation of what is pinned: the same, but the callback itself
 * waits, so that the key is dead when it returns.
 *
 * The end of the importing process is the end of its connection: no thread of it runs any more, its proxies are
 * unmapped, unpinned and detached, once. The end of the exporting process is no end of the memory: what is mapped stays
 * mapped where it is, and never moves again; what is not mapped is lost, and mapping it fails (-ENODEV).
 *
 * An importer that is stopped, or hangs, must not stop a GPU for ever. Waiting has an end (dma_remote_patience_ms), as
 * a driver's wait for a fence has; then the importer is *lost*: marked in the page that both have mapped, told by a
 * shut connection, unpinned. A copy that it was stopped in may still be made when it goes on, so its mappings keep
 * their places from being used for anything else until it lets go of them; and after each copy it looks at the mark,
 * so that none that was made too late counts as done. Its regions are dead from then on. An exporter
 * that does not answer makes a call fail (-ETIMEDOUT) after six times that long, since it may have to wait for another importer
 * meanwhile, and no more than the call.
 */
#ifndef FL_DMABUF_REMOTE_H
#define FL_DMABUF_REMOTE_H

#include "dmabuf/dma-buf.h"

extern _Atomic int dma_remote_patience_ms; /* 10 s; tests have less */

/* The token of this process, which is ready to be asked from now on; 0: it cannot be. */
uint64_t dma_remote_serve(void);
/* A buffer of the process with that token; fd, its descriptor, is taken over, also where it fails; one reference. */
int dma_remote_import(int fd, uint64_t token, struct dma_buf **dmabuf);
/* around fork() */
void dma_remote_fork_begin(void);
void dma_remote_fork_end(void);
void dma_remote_fork_child(void);

/* ---- between the files of it ---- */

#define DMA_REMOTE_VERSION 1
#define DMA_REMOTE_NAME	   "faultline-dmabuf/%" PRIx64 /* the socket of a token */
#define DMA_REMOTE_ATTACHMENTS 65536 /* of one process to one buffer, at most */
#define DMA_REMOTE_MAPS	       256   /* of one attachment, at once */

enum dma_remote_type {
	/* calls, answered by ANSWER */
	DMA_REMOTE_HELLO = 1, /* num: version; the descriptor -> num: size, page; the page's descriptor */
	DMA_REMOTE_ATTACH,    /* id, flags, name */
	DMA_REMOTE_PIN,	      /* id */
	DMA_REMOTE_MAP,	      /* id -> map, num: pieces, in the page; flags; the memory's descriptor */
	DMA_REMOTE_DETACH,    /* id */
	DMA_REMOTE_BYE,	      /* all is detached: the buffer may go */
	/* not answered */
	DMA_REMOTE_UNMAP, /* id, map */
	DMA_REMOTE_UNPIN, /* id */
	DMA_REMOTE_ACK,	  /* seq of the INVALIDATE: no access is under way, what is to be unmapped is said */
	/* the exporter's */
	DMA_REMOTE_ANSWER,     /* seq and type of the call, id, err */
	DMA_REMOTE_INVALIDATE, /* id */
};

#define DMA_REMOTE_TOLD 1u /* attachment: it has invalidate_mappings */
#define DMA_REMOTE_P2P	2u /* attachment: allow_peer2peer; map: device memory */

struct dma_remote_msg {
	uint16_t type, call; /* call: an ANSWER's */
	uint32_t seq;
	uint64_t id, map, num;
	int32_t err;
	uint32_t flags;
	char name[32];
};

/* What both have mapped, in a memfd that the exporter makes for each connection. */
struct dma_remote_page {
	uint32_t revoked;	  /* sg_table.revoked */
	_Alignas(64) struct {
		uint64_t offset, length;
	} piece[]; /* of what was mapped last; as many as the buffer has pages */
};

static inline size_t dma_remote_page_size(size_t buffer)
{
	return (sizeof(struct dma_remote_page) + buffer / 4096 * 16 + 4095) & ~4095ul;
}

/* ---- remote_serve.c, for the proxies ---- */

struct dma_remote_call {
	struct cds_list_head node;
	struct dma_remote_msg msg;
	int fd; /* or -1 */
};

struct dma_remote_conn {
	struct cds_list_head node; /* of the service's list */
	int sock;
	pid_t pid; /* for messages */

	/* under the service's lock */
	struct cds_list_head calls; /* to be worked off */
	unsigned num_calls;
	struct cds_list_head pending; /* what the importer was told and has not ACKed: struct dma_remote_told */
	uint32_t seq;
	bool over;	/* nothing is told any more: it is gone */
	bool released;	/* the service has no more to do with it */
	pthread_cond_t work;	 /* for the worker */
	pthread_cond_t answered; /* pending has become less */
	struct dma_remote_page *page;

	bool lost;	     /* atomic, never taken back */
	size_t page_size;    /* this and below: the worker's */
	bool given_up;	     /* what follows from being lost is done */
	struct dma_buf *dmabuf;
	struct cds_list_head proxies;
	unsigned num_proxies;
};

/* an attachment's, at most one at a time */
struct dma_remote_told {
	struct cds_list_head node;
	uint32_t seq;
	uint64_t until_ns;
	struct dma_fence *fence; /* NULL: the teller waits himself */
};

/* Sends, and waits for room for it as long as our patience goes. 0; -EPIPE: the importer is gone or lost. */
int dma_remote_send(struct dma_remote_conn *c, const struct dma_remote_msg *msg, int fd);
/*
 * Begins to wait for an answer, and returns its seq; 0: there is nobody to be told. *fence, of which it takes a reference,
 * is signalled then. It is put and made NULL where one is waited for already, or was NULL: then the teller waits.
 */
uint32_t dma_remote_tell(struct dma_remote_conn *c, struct dma_remote_told *t, struct dma_fence **fence);
/* until it has come, or will not */
void dma_remote_wait_told(struct dma_remote_conn *c, struct dma_remote_told *t);
/* From now on the page says whether the importer is lost. */
void dma_remote_set_page(struct dma_remote_conn *c, struct dma_remote_page *page);
/* The next call. NULL: the importer is gone, or lost and not given up. undo: only one that undoes something and is there
 * already, else NULL. */
struct dma_remote_call *dma_remote_next(struct dma_remote_conn *c, bool undo);
void dma_remote_free_call(struct dma_remote_call *call);

/* remote_proxy.c: the worker of a connection, from its first call to the end of it */
void dma_remote_work(struct dma_remote_conn *c);

/* ---- remote_fds.c: sockets that the child of a fork must not keep, or nobody would see our end ---- */

/* A socket made by usock_dial() or usock_accept() and remembered; -EMFILE: there are too many. */
int dma_remote_dial(const char *name);
int dma_remote_accept(int listen_fd);
int dma_remote_keep(int fd); /* returns fd, or -EMFILE and closes it */
void dma_remote_close(int fd);
void dma_remote_fds_fork_child(void);

#endif
