/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Regions on memory that another device lends (dma-buf), in the three ways a driver can import it; see
 * dmabuf/dma-buf.h for the contract and umem_dmabuf.c for how it is kept. Names are the kernel's.
 *
 * A region's address is its offset in the buffer: there are no virtual addresses to go by.
 */
#ifndef FL_UMEM_DMABUF_H
#define FL_UMEM_DMABUF_H

#include "umem/umem.h"

struct ib_umem_dmabuf;

/*
 * Dynamic: nothing is pinned; the exporter may move the buffer, the next access faults and finds it anew.
 * It is mapped once at the start, so that what cannot be mapped fails here.
 * -EINVAL: length 0, offset + size wraps or is past the end, or fd is no dma-buf; -EBADF; and what the
 * exporter says.
 */
int ib_umem_dmabuf_get(struct umem_device *dev, uint64_t offset, size_t size, int fd, unsigned access,
		       struct ib_umem **umem);

/* Pinned and mapped until it is released: never faults. Errors as above, and the exporter's of pinning. */
int ib_umem_dmabuf_get_pinned(struct umem_device *dev, uint64_t offset, size_t size, int fd, unsigned access,
			      struct ib_umem **umem);

/*
 * Pinned, and told when the exporter takes the memory away for good. Returns with the reservation lock
 * held, under which the owner makes its key and says what is to be done then; after
 * ib_umem_dmabuf_revoke_unlock() it may happen.
 */
int ib_umem_dmabuf_get_pinned_revocable_and_lock(struct umem_device *dev, uint64_t offset, size_t size, int fd,
						 unsigned access, struct ib_umem **umem);
/*
 * revoke(priv): the memory is going; when it returns no access is under way, nor will be. Called at most
 * once, with the reservation lock held, never after ib_umem_release() has begun to release. At once, where it
 * has gone already.
 */
void ib_umem_dmabuf_set_revoke_locked(struct ib_umem *umem, void (*revoke)(void *priv), void *priv);
void ib_umem_dmabuf_revoke_unlock(struct ib_umem *umem);

/* Says in the key table, once umem->stat is set, what is mapped and pinned. With the lock held, or without. */
void ib_umem_dmabuf_publish(struct ib_umem *umem);

#endif
