/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Devices that lend their memory as dma-bufs, in software: what a GPU, an accelerator or a vfio driver is to
 * ibv_reg_dmabuf_mr(), with no such hardware. A program allocates a buffer, gets its file descriptor, registers
 * that with a NIC, fills and reads it from the device's side, and makes it move, be evicted or be revoked
 * while RDMA is under way. Link with -lfaultline.
 *
 * A buffer lives until its descriptor is closed, with every copy of it (dup(), fork(), SCM_RIGHTS) in any
 * process, and no region is registered on it. There is no other call to free it. Its size is to be had by
 * lseek(fd, 0, SEEK_END), as of every dma-buf.
 *
 * All calls are thread-safe, and return 0 or a positive errno, as verbs do. EOPNOTSUPP also where the program
 * runs on another libibverbs. Where a descriptor is asked for: EBADF; EINVAL: it is no buffer of this
 * process's devices. A device that was opened before a fork() is the parent's: EIO in the child. Other processes
 * that are sent a descriptor can register it, and are told of moves and revocations as this one is.
 */
#ifndef FAULTLINE_DMABUF_H
#define FAULTLINE_DMABUF_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- devices ---- */

enum faultline_dmabuf_kind {
	/* System memory, as udmabuf or a dma-heap gives it. Never moves; the application may mmap() the
	 * descriptor. */
	FAULTLINE_DMABUF_MEMFD,
	/* An accelerator (as Habana's): device memory that never moves, so pins are granted where it is. The
	 * application may mmap() the descriptor (a PCI BAR). */
	FAULTLINE_DMABUF_ACCEL,
	/* A GPU (as amdgpu): a small device memory whose buffers are moved about in it, evicted to system
	 * memory when another wants the room, the least recently used first, and brought back when the device
	 * uses them. Importers get them where they are, those that cannot do with device memory in system memory.
	 * A pinned buffer stays in its place. */
	FAULTLINE_DMABUF_VRAM,
	/* A device assigned by vfio: memory that may be revoked for good, at once. Importers that cannot let
	 * go of a registration when told to are refused (EOPNOTSUPP). */
	FAULTLINE_DMABUF_VFIO,
};

/* The CPU cannot reach the device's memory: every importer is refused at attach, since RDMA is a copy by the
 * CPU here, and mmap() as well; faultline_dmabuf_read() and _write() work. ACCEL only. */
#define FAULTLINE_DMABUF_NO_CPU (1u << 0)
/* pins are refused with EOPNOTSUPP, so NICs without on-demand paging cannot register its memory. VRAM only. */
#define FAULTLINE_DMABUF_NO_PIN (1u << 1)
/* no path from peer devices to this one: VRAM goes to system memory before it is mapped, and is pinned there;
 * ACCEL and VFIO refuse importers (EOPNOTSUPP) */
#define FAULTLINE_DMABUF_NO_P2P (1u << 2)

struct faultline_dmabuf_device_attr {
	enum faultline_dmabuf_kind kind;
	unsigned flags;	   /* FAULTLINE_DMABUF_NO_* that the kind knows; others EINVAL */
	size_t size;	   /* of the device's memory in bytes, rounded up to pages; 0: 16 MiB. MEMFD: ignored */
	const char *name;  /* for messages; NULL: the kind's */
};

struct faultline_dmabuf_device;

int faultline_dmabuf_open(const struct faultline_dmabuf_device_attr *attr,
			  struct faultline_dmabuf_device **device);
/* EBUSY: some of its buffers still live */
int faultline_dmabuf_close(struct faultline_dmabuf_device *device);

struct faultline_dmabuf_device_info {
	uint64_t size, used;	/* bytes of device memory; used: by buffers that are in it */
	uint64_t largest_free;	/* the largest hole: with size - used, how fragmented it is */
	uint64_t pinned;	/* bytes of device memory that cannot move */
	uint64_t stale;		/* bytes that buffers have left but importers have not unmapped yet */
	uint64_t buffers;
	uint64_t moves, evictions, returns; /* since it was opened; returns: brought back from system memory */
	uint64_t alloc_failures;
};

int faultline_dmabuf_device_info(struct faultline_dmabuf_device *device,
				 struct faultline_dmabuf_device_info *info);

/* ---- buffers ---- */

/* in one piece: fails with ENOMEM where no hole is large enough and none can be made. VRAM only; the other
 * kinds' buffers are in one piece anyway */
#define FAULTLINE_DMABUF_CONTIGUOUS (1u << 0)

/* size: rounded up to pages; the bytes are zero. *fd is close-on-exec.
 * ENOMEM: no room, also when all that can be evicted is. */
int faultline_dmabuf_alloc(struct faultline_dmabuf_device *device, size_t size, unsigned flags, int *fd);

/* From the device's side, as a kernel running on it would; waits for a move that is under way, and brings an
 * evicted buffer of VRAM back where there is room. ERANGE: past its end; ENODEV: revoked. */
int faultline_dmabuf_read(int fd, void *dst, size_t offset, size_t length);
int faultline_dmabuf_write(int fd, size_t offset, const void *src, size_t length);

/*
 * For the CPU; offset a multiple of the page. ENODEV: of VFIO, and where the CPU cannot reach it. VRAM stays
 * where it is while it is mapped. Undone by faultline_dmabuf_munmap(), with the same length. Behind a device's memory there
 * are no pages: by the address it cannot be registered (ibv_reg_mr: EFAULT).
 */
int faultline_dmabuf_mmap(int fd, size_t offset, size_t length, int prot, void **addr);
int faultline_dmabuf_munmap(int fd, void *addr, size_t length);

/* what DMA_BUF_IOCTL_SYNC is for a kernel's dma-buf: around CPU access to a mapping */
int faultline_dmabuf_begin_cpu_access(int fd);
int faultline_dmabuf_end_cpu_access(int fd);

/* ---- moving, evicting, revoking ---- */

enum faultline_dmabuf_place { FAULTLINE_DMABUF_SYSTEM, FAULTLINE_DMABUF_DEVICE };

/*
 * Moves a buffer of VRAM: to another place in the device's memory, also when it is there already, or to
 * system memory. Importers are told, accesses under way are waited for, the bytes are copied.
 * EBUSY: pinned, or mapped for the CPU; ENOMEM: no room there; EOPNOTSUPP: another kind.
 */
int faultline_dmabuf_move(int fd, enum faultline_dmabuf_place to);

/* Evicts least recently used buffers until that much of the device's memory is free. ENOSPC: what is left is
 * pinned or in use; as much as could be was evicted. VRAM only. */
int faultline_dmabuf_evict(struct faultline_dmabuf_device *device, size_t bytes);

/*
 * Takes a buffer of VFIO away from whoever has it: when this returns no importer reaches it any more, and
 * every access is an error. For good. EOPNOTSUPP: another kind; EALREADY.
 */
int faultline_dmabuf_revoke(int fd);

struct faultline_dmabuf_info {
	uint64_t size;
	enum faultline_dmabuf_kind kind;
	enum faultline_dmabuf_place place;
	uint32_t pieces;  /* of its memory */
	uint32_t revoked; /* 0 or 1 */
	uint32_t attachments, maps, pins; /* of importers, now */
	uint64_t moves, evictions;	  /* since it was allocated; a move to system memory for room is both */
};

int faultline_dmabuf_info(int fd, struct faultline_dmabuf_info *info);

/* ---- faults on purpose ---- */

enum faultline_dmabuf_call {
	FAULTLINE_DMABUF_CALL_ATTACH,
	FAULTLINE_DMABUF_CALL_PIN,
	FAULTLINE_DMABUF_CALL_MAP,
};

/* The next such call for this buffer fails with err; 0 takes it back. */
int faultline_dmabuf_fail(int fd, enum faultline_dmabuf_call call, int err);

/* ---- the whole process ---- */

struct faultline_dmabuf_totals {
	uint64_t buffers, attachments, maps, pins; /* now; all 0: nothing was left behind */
	uint64_t moves, evictions, invalidations, revocations; /* since the start */
	uint64_t fence_waits; /* for which somebody had to wait */
	uint64_t rule_breaks; /* of the contract between exporters and importers; a bug of Faultline's */
	/* other processes that had buffers of this one registered: that ended with them, or were killed; that did not
	 * let go of memory in time when they were told to (see docs/dmabuf.md), and whose regions are dead since */
	uint64_t importers_ended, importers_lost;
};

int faultline_dmabuf_totals(struct faultline_dmabuf_totals *totals);

#ifdef __cplusplus
}
#endif
#endif
