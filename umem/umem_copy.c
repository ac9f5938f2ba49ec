/* SPDX-License-Identifier: BSD-2-Clause */
/* Debug access: a look at a region's memory as the device has it, faulting first. */
#include <errno.h>
#include "umem/umem.h"
#include "umem/umem_internal.h"

#define COPY_AT_ONCE (1u << 20)
#define FORCE_TRIES  64 /* its pages are said to be there, and are not: somebody takes them again and again */

static int copy_once(struct ib_umem *umem, uint32_t key, uint64_t addr, void *buf, size_t len, bool to_pages,
		     bool *failed)
{
	struct faultline_hazard *h = dma_begin(addr, addr + len, key);
	enum umem_way way = umem->ops->way(umem, addr, len, to_pages, false);
	void *at = (void *)(uintptr_t)addr;

	*failed = false;
	if (way == UMEM_BY_ADDRESS) {
		*failed = to_pages ? copy_guarded(at, buf, len) : copy_guarded(buf, at, len);
		if (*failed)
			way = umem->ops->way(umem, addr, len, to_pages, true);
	}
	dma_end(h);
	return (int)way;
}

static int copy(struct ib_umem *umem, uint32_t key, uint64_t addr, void *buf, size_t len, bool to_pages)
{
	for (int tries = 0; tries < FORCE_TRIES;) {
		bool failed;
		int rc = copy_once(umem, key, addr, buf, len, to_pages, &failed);

		if (rc == UMEM_BY_ADDRESS && !failed)
			return 0;
		if (rc == UMEM_WAIT) {
			mm_wait_start_dma();
			continue;
		}
		if (rc == UMEM_BY_COPY) {
			rc = umem->ops->copy(umem, key, addr, buf, len, to_pages);
			if (rc != -EFAULT)
				return rc == -EACCES ? -EFAULT : rc;
			failed = true;
		}
		tries += failed;
		cnt_inc(umem->dev->stat, FL_CNT_page_fault_events);
		rc = umem->ops->fault(umem, addr, len,
				      (to_pages ? UMEM_FAULT_WRITE : 0) | (failed ? UMEM_FAULT_FORCE : 0));
		if (rc < 0) {
			UMEM_COUNT(umem, page_faults_denied, 1);
			return rc;
		}
	}
	return -EFAULT;
}

static int copy_all(struct ib_umem *umem, uint32_t key, size_t offset, void *buf, size_t len, bool to_pages)
{
	int rc = 0;

	if (offset > umem->length || len > umem->length - offset)
		return -EINVAL;
	if (to_pages && !umem->writable)
		return -EPERM;
	for (size_t n; len && !rc; len -= n) {
		n = len < COPY_AT_ONCE ? len : COPY_AT_ONCE;
		rc = copy(umem, key, umem->address + offset, buf, n, to_pages);
		offset += n;
		buf = (char *)buf + n;
	}
	return rc;
}

int ib_umem_copy_from(void *dst, struct ib_umem *umem, uint32_t key, size_t offset, size_t length)
{
	return copy_all(umem, key, offset, dst, length, false);
}

int ib_umem_copy_to(struct ib_umem *umem, uint32_t key, size_t offset, const void *src, size_t length)
{
	return copy_all(umem, key, offset, (void *)(uintptr_t)src, length, true);
}
