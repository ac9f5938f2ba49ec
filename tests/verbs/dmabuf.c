/* SPDX-License-Identifier: BSD-2-Clause */
/* ibv_reg_mr_ex(), which newer headers declare, and dma-buf regions as ibv_mr and ibv_dereg_mr() have them. */
#include "tests/verbs/test.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* as <infiniband/verbs.h> of rdma-core 64 declares it */
struct mr_init_attr {
	size_t length;
	int access;
	uint64_t comp_mask;
	uint64_t iova;
	void *addr;
	int fd;
	uint64_t fd_offset;
	void *dmah;
	void *buf;
};
_Static_assert(offsetof(struct mr_init_attr, comp_mask) == 16 && offsetof(struct mr_init_attr, addr) == 32 &&
		       offsetof(struct mr_init_attr, fd_offset) == 48 && sizeof(struct mr_init_attr) == 72,
	       "the layout of x86-64");
enum { IOVA = 1, ADDR = 2, FD = 4, FD_OFFSET = 8, DMAH = 16, BUF = 32 };
struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd, struct mr_init_attr *attr);

static struct ibv_pd *pd;
static char *mem;
static int lent;

/* a buffer as another process of ours would have sent it: a memfd by the exporters' name, sealed */
static int lend(void)
{
	int fd = memfd_create("faultline-dmabuf:memfd", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (ftruncate(fd, 16384) || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW))
		return -1;
	return fd;
}

static int up(void **state)
{
	if (open_first(state))
		return -1;
	pd = ibv_alloc_pd(ctx);
	mem = mmap(NULL, 16384, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	lent = lend();
	return pd && mem != MAP_FAILED && lent >= 0 ? 0 : -1;
}

static int down(void **state)
{
	close(lent);
	return ibv_dealloc_pd(pd) || close_it(state) ? -1 : 0;
}

static struct mr_init_attr attr_of(uint64_t mask)
{
	return (struct mr_init_attr){.length = 8192, .access = IBV_ACCESS_LOCAL_WRITE, .comp_mask = mask,
				     .iova = 4096 + 100, .addr = mem + 100, .fd = lent, .fd_offset = 4096 + 100};
}

static void by_address(void **state)
{
	struct mr_init_attr attr = attr_of(ADDR);
	struct ibv_mr *mr = ibv_reg_mr_ex(pd, &attr);

	assert_non_null(mr);
	assert_ptr_equal(mr->addr, mem + 100);
	assert_int_equal(mr->length, 8192);
	assert_ptr_equal(mr->pd, pd);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	attr.comp_mask |= IOVA;
	mr = ibv_reg_mr_ex(pd, &attr);
	assert_non_null(mr);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	attr.iova = 1; /* another offset in its page */
	assert_null_errno(ibv_reg_mr_ex(pd, &attr), EINVAL);
	/* all of the address space */
	attr = (struct mr_init_attr){.length = SIZE_MAX, .access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND,
				     .comp_mask = ADDR};
	mr = ibv_reg_mr_ex(pd, &attr);
	assert_non_null(mr);
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

static void by_fd(void **state)
{
	struct mr_init_attr attr = attr_of(FD | FD_OFFSET | IOVA);
	struct ibv_mr *mr = ibv_reg_mr_ex(pd, &attr);

	assert_non_null(mr);
	assert_ptr_equal(mr->addr, (void *)(4096 + 100));
	assert_int_equal(mr->length, 8192);
	assert_int_equal(ibv_dealloc_pd(pd), EBUSY);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	attr.fd_offset = 4096;
	assert_null_errno(ibv_reg_mr_ex(pd, &attr), EINVAL);
	attr = attr_of(FD | FD_OFFSET | IOVA);
	attr.fd = -1;
	assert_null_errno(ibv_reg_mr_ex(pd, &attr), EBADF);
}

static void masks(void **state)
{
	static const struct {
		uint64_t mask;
		int want;
	} refused[] = {
		{0, EINVAL},		   {IOVA, EINVAL},
		{FD, EINVAL},		   {FD | FD_OFFSET, EINVAL}, /* iova must be said */
		{FD | IOVA, EINVAL},	   {ADDR | FD_OFFSET, EINVAL},
		{FD_OFFSET | IOVA, EINVAL}, {ADDR | FD | FD_OFFSET | IOVA, EINVAL},
		{ADDR | DMAH, EOPNOTSUPP}, {FD | FD_OFFSET | IOVA | DMAH, EOPNOTSUPP},
		{ADDR | BUF, EOPNOTSUPP},  {ADDR | 1ull << 40, EOPNOTSUPP},
	};

	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		struct mr_init_attr attr = attr_of(refused[i].mask);

		assert_null_errno(ibv_reg_mr_ex(pd, &attr), refused[i].want);
	}
}

/* the descriptor is the application's own to close, and the child's copy of the region is nobody's */
static void lives(void **state)
{
	int fd = lend(), status;
	struct ibv_mr *mr = ibv_reg_dmabuf_mr(pd, 0, 16384, 0, fd, IBV_ACCESS_LOCAL_WRITE);
	pid_t pid;

	assert_non_null(mr);
	assert_int_equal(close(fd), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid)
		_exit(ibv_dereg_mr(mr) == EIO && !ibv_reg_dmabuf_mr(pd, 0, 4096, 0, lent, 0) && errno == EIO ? 0 : 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(by_address),
		cmocka_unit_test(by_fd),
		cmocka_unit_test(masks),
		cmocka_unit_test(lives),
	};

	return cmocka_run_group_tests(tests, up, down);
}
