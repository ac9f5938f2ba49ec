/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The rules of dmabuf/dma-buf.h, each broken in a child of its own, which must die saying which; and the ways
 * beside them that are allowed. With the checks on, whatever the build has.
 */
#include "importer.h"
#include "tests/util/child.h"

#define PAGE 4096ul

/* does a child that runs fn abort, saying `says`? NULL: it must not */
static void dies(void (*fn)(void), const char *says)
{
	char text[4096];
	int status = child_status(fn, text, sizeof(text));

	if (!says) {
		if (!WIFEXITED(status) || WEXITSTATUS(status))
			fail_msg("a rule that was kept stops it: %s", text);
		return;
	}
	if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT || !strstr(text, says))
		fail_msg("'%s' was not said: %s", says, text);
}

/* ---- an exporter that does as it is told ---- */

static char memory[2][PAGE] __attribute__((aligned(4096)));
static unsigned pins, unpins, maps, unmaps;

static int ex_pin(struct dma_buf_attachment *a)
{
	pins++;
	return 0;
}

static void ex_unpin(struct dma_buf_attachment *a)
{
	unpins++;
}

static int ex_map(struct dma_buf_attachment *a, enum dma_data_direction dir, struct sg_table **sgt)
{
	*sgt = dma_buf_alloc_sgt(1);
	(*sgt)->sgl[0] = (struct scatterlist){(uint64_t)(uintptr_t)memory[0], PAGE};
	maps++;
	return 0;
}

static void ex_unmap(struct dma_buf_attachment *a, struct sg_table *sgt, enum dma_data_direction dir)
{
	unmaps++;
	free(sgt);
}

static void ex_release(struct dma_buf *d)
{
}

static const struct dma_buf_ops ex_ops = {
	.pin = ex_pin,
	.unpin = ex_unpin,
	.map_dma_buf = ex_map,
	.unmap_dma_buf = ex_unmap,
	.release = ex_release,
};

static struct dma_buf *export_one(void)
{
	struct dma_buf *d;

	if (dma_buf_export(&(struct dma_buf_export_info){.exp_name = "test", .ops = &ex_ops, .size = PAGE,
							 .storage = -1},
			   &d))
		abort();
	return d;
}

static struct dma_buf_dev nic = {.name = "nic"};

static void told_nothing(struct dma_buf_attachment *a)
{
}

static const struct dma_buf_attach_ops pinned_ops = {.allow_peer2peer = true};
static const struct dma_buf_attach_ops dynamic_ops = {.invalidate_mappings = told_nothing};

static struct dma_buf *d;
static struct dma_buf_attachment *a;

static void start(const struct dma_buf_attach_ops *ops)
{
	d = export_one();
	if (dma_buf_dynamic_attach(d, &nic, ops, NULL, &a))
		abort();
}

static void start_locked(const struct dma_buf_attach_ops *ops)
{
	start(ops);
	dma_resv_lock(d->resv, NULL);
}

/* ---- 1: who holds the reservation lock where ---- */

static void pin_unlocked(void)
{
	start(&pinned_ops);
	dma_buf_pin(a);
}

static void unpin_unlocked(void)
{
	start_locked(&pinned_ops);
	dma_buf_pin(a);
	dma_resv_unlock(d->resv);
	dma_buf_unpin(a);
}

static void map_unlocked(void)
{
	struct sg_table *t;

	start(&dynamic_ops);
	dma_buf_map_attachment(a, DMA_BIDIRECTIONAL, &t);
}

static void unmap_unlocked(void)
{
	struct sg_table *t;

	start_locked(&dynamic_ops);
	dma_buf_map_attachment(a, DMA_BIDIRECTIONAL, &t);
	dma_resv_unlock(d->resv);
	dma_buf_unmap_attachment(a, t, DMA_BIDIRECTIONAL);
}

static void invalidate_unlocked(void)
{
	start(&dynamic_ops);
	dma_buf_invalidate_mappings(d);
}

static void attach_locked(void)
{
	d = export_one();
	dma_resv_lock(d->resv, NULL);
	dma_buf_dynamic_attach(d, &nic, &dynamic_ops, NULL, &a);
}

static void detach_locked(void)
{
	start_locked(&dynamic_ops);
	dma_buf_detach(d, a);
}

static void put_locked(void)
{
	d = export_one();
	dma_resv_lock(d->resv, NULL);
	dma_buf_put(d);
}

static void mmap_locked(void)
{
	void *p;

	d = export_one();
	dma_resv_lock(d->resv, NULL);
	dma_buf_mmap(d, 0, PAGE, 0, &p);
}

static void cpu_locked(void)
{
	d = export_one();
	dma_resv_lock(d->resv, NULL);
	dma_buf_begin_cpu_access(d, DMA_BIDIRECTIONAL);
}

static void get_locked(void)
{
	struct dma_buf *same;
	int fd;

	d = export_one();
	fd = dma_buf_fd(d, 0);
	dma_resv_lock(d->resv, NULL);
	dma_buf_get(fd, &same);
}

static void two_without_context(void)
{
	struct dma_buf *e = export_one();

	d = export_one();
	dma_resv_lock(d->resv, NULL);
	dma_resv_lock(e->resv, NULL);
}

static void out_of_order(void)
{
	struct fl_mutex umem = FL_MUTEX_INIT(LOCK_UMEM_MUTEX);

	d = export_one();
	fl_lock(&umem);
	dma_resv_lock(d->resv, NULL);
}

static void context_out_of_order(void)
{
	struct fl_mutex umem = FL_MUTEX_INIT(LOCK_UMEM_MUTEX);
	struct dma_buf *e = export_one();
	struct ww_acquire_ctx ctx;

	d = export_one();
	ww_acquire_init(&ctx);
	dma_resv_lock(d->resv, &ctx);
	fl_lock(&umem);
	dma_resv_lock(e->resv, &ctx);
}

static void context_left_held(void)
{
	struct ww_acquire_ctx ctx;

	d = export_one();
	ww_acquire_init(&ctx);
	dma_resv_lock(d->resv, &ctx);
	ww_acquire_fini(&ctx);
}

static void rule_1(void **state)
{
	void (*const unlocked[])(void) = {pin_unlocked, unpin_unlocked, map_unlocked, unmap_unlocked,
					  invalidate_unlocked};
	void (*const locked[])(void) = {attach_locked, detach_locked, put_locked, mmap_locked, cpu_locked};

	for (unsigned i = 0; i < sizeof(unlocked) / sizeof(unlocked[0]); i++)
		dies(unlocked[i], "dma-buf rule 1: the reservation is not held");
	for (unsigned i = 0; i < sizeof(locked) / sizeof(locked[0]); i++)
		dies(locked[i], "with the reservation held");
	dies(get_locked, "lock order: taking 'dma-buf table'");
	dies(two_without_context, "lock order: taking 'dma-buf reservation'");
	dies(out_of_order, "lock order: taking 'dma-buf reservation'");
	dies(context_out_of_order, "lock order: taking");
	dies(context_left_held, "still holds reservations");
}

/* ---- 2: pin before map ---- */

static void map_unpinned(void)
{
	struct sg_table *t;

	start_locked(&pinned_ops);
	dma_buf_map_attachment(a, DMA_BIDIRECTIONAL, &t);
}

static void pin_static(void)
{
	start_locked(NULL);
	dma_buf_pin(a);
}

/* allowed: pinned first; revocable without a pin is dynamic; static is pinned by the framework meanwhile */
static void map_rightly(void)
{
	const struct dma_buf_attach_ops *const ops[] = {&pinned_ops, &dynamic_ops, NULL};
	struct sg_table *t;

	for (int i = 0; i < 3; i++) {
		pins = unpins = maps = unmaps = 0;
		start_locked(ops[i]);
		if (i == 0 && dma_buf_pin(a))
			abort();
		if (dma_buf_map_attachment(a, DMA_BIDIRECTIONAL, &t) || dma_buf_is_pinned(d) != (i != 1) ||
		    pins != (i != 1))
			abort();
		dma_buf_unmap_attachment(a, t, DMA_BIDIRECTIONAL);
		if (i == 0)
			dma_buf_unpin(a);
		if (dma_buf_is_pinned(d) || unpins != pins || unmaps != maps)
			abort();
		dma_resv_unlock(d->resv);
		dma_buf_detach(d, a);
		dma_buf_put(d);
	}
}

static void rule_2(void **state)
{
	dies(map_unpinned, "dma-buf rule 2");
	dies(pin_static, "dma-buf rule 2");
	dies(map_rightly, NULL);
}

/* ---- 4: pins nest ---- */

static void unpin_twice(void)
{
	start_locked(&pinned_ops);
	dma_buf_pin(a);
	dma_buf_unpin(a);
	dma_buf_unpin(a);
}

static void unmap_twice(void)
{
	struct sg_table *t;

	start_locked(&dynamic_ops);
	dma_buf_map_attachment(a, DMA_BIDIRECTIONAL, &t);
	dma_buf_unmap_attachment(a, t, DMA_BIDIRECTIONAL);
	dma_buf_unmap_attachment(a, t, DMA_BIDIRECTIONAL);
}

static void pins_nest(void)
{
	start_locked(&pinned_ops);
	if (dma_buf_pin(a) || dma_buf_pin(a) || pins != 1) /* the exporter sees the first and the last */
		abort();
	dma_buf_unpin(a);
	if (!dma_buf_is_pinned(d) || unpins)
		abort();
	dma_buf_unpin(a);
	if (dma_buf_is_pinned(d) || unpins != 1)
		abort();
}

static void rule_4(void **state)
{
	dies(unpin_twice, "dma-buf rule 4: more unpins");
	dies(unmap_twice, "dma-buf rule 4: more unmaps");
	dies(pins_nest, NULL);
}

/* ---- 5: pinned is pinned ---- */

static void move_pinned(void)
{
	start_locked(&pinned_ops);
	dma_buf_pin(a);
	dma_buf_invalidate_mappings(d);
}

static void move_static(void)
{
	struct sg_table *t;

	start_locked(NULL);
	dma_buf_map_attachment(a, DMA_BIDIRECTIONAL, &t);
	dma_buf_invalidate_mappings(d);
}

static void move_others(void)
{
	start_locked(&pinned_ops); /* attached only */
	dma_buf_invalidate_mappings(d);
}

static void rule_5(void **state)
{
	dies(move_pinned, "dma-buf rule 5");
	dies(move_static, "dma-buf rule 5");
	dies(move_others, NULL);
}

/* ---- 6: inside invalidate_mappings ---- */

static struct dma_fence *fence;

static void waits_fence(struct dma_buf_attachment *at)
{
	dma_fence_wait_timeout(fence, DMA_FENCE_FOREVER);
}

static void waits_resv(struct dma_buf_attachment *at)
{
	dma_resv_wait_timeout(at->dmabuf->resv, DMA_RESV_USAGE_BOOKKEEP, DMA_FENCE_FOREVER);
}

static void maps_inside(struct dma_buf_attachment *at)
{
	struct sg_table *t;

	dma_buf_map_attachment(at, DMA_BIDIRECTIONAL, &t);
}

static void inside(void (*what)(struct dma_buf_attachment *))
{
	struct dma_buf_attach_ops ops = {.invalidate_mappings = what};

	fence = dma_fence_create(1, 1);
	start_locked(&ops);
	dma_buf_invalidate_mappings(d);
}

static void wait_inside(void) { inside(waits_fence); }
static void wait_resv_inside(void) { inside(waits_resv); }
static void map_inside(void) { inside(maps_inside); }

static void rule_6(void **state)
{
	dies(wait_inside, "dma-buf rule 6");
	dies(wait_resv_inside, "dma-buf rule 6");
	dies(map_inside, "dma-buf rule 6");
}

/* ---- 7: after it ---- */

static struct sg_table *kept;
static const struct dma_buf_attach_ops deaf = {.allow_peer2peer = true, .invalidate_mappings = told_nothing};

/* an importer that unmaps later, which is allowed, and in the meantime does what is not */
static void keep_stale(bool write)
{
	struct faultline_dmabuf_device *dev = device(FAULTLINE_DMABUF_VRAM, 1 << 20, 0);
	int fd = buffer(dev, PAGE);
	volatile char *p;
	char seen;

	if (dma_buf_get(fd, &d) || dma_buf_dynamic_attach(d, &nic, &deaf, NULL, &a))
		abort();
	dma_resv_lock(d->resv, NULL);
	if (dma_buf_map_attachment(a, DMA_BIDIRECTIONAL, &kept))
		abort();
	dma_resv_unlock(d->resv);
	p = (volatile char *)(uintptr_t)kept->sgl[0].dma_address;
	*p = 1;
	if (exporter_move(fd, FAULTLINE_DMABUF_SYSTEM) || device_info(dev).stale != PAGE)
		abort();
	seen = *p; /* to throw away; it is not another buffer's */
	if (seen == 1)
		abort();
	if (write)
		*p = 2;
	dma_resv_lock(d->resv, NULL);
	dma_buf_unmap_attachment(a, kept, DMA_BIDIRECTIONAL);
	dma_resv_unlock(d->resv);
	if (device_info(dev).stale || device_info(dev).used)
		abort();
}

static void read_stale(void) { keep_stale(false); }
static void write_stale(void) { keep_stale(true); }

/* revoked, and never unmapped */
static void keeps_revoked(void)
{
	struct faultline_dmabuf_device *dev = device(FAULTLINE_DMABUF_VFIO, 1 << 20, 0);
	int fd = buffer(dev, PAGE);

	if (dma_buf_get(fd, &d) || dma_buf_dynamic_attach(d, &nic, &deaf, NULL, &a))
		abort();
	dma_resv_lock(d->resv, NULL);
	if (dma_buf_map_attachment(a, DMA_BIDIRECTIONAL, &kept))
		abort();
	dma_resv_unlock(d->resv);
	exporter_revoke(fd);
}

static void rule_7(void **state)
{
	dies(read_stale, NULL);
	dies(write_stale, "dma-buf rule 7");
	dies(keeps_revoked, "dma-buf rule 7");
}

/* ---- 8: the move's fence ---- */

static void used_early(void)
{
	struct sg_table *t;

	start_locked(&dynamic_ops);
	dma_resv_reserve_fences(d->resv, 1);
	dma_resv_add_fence(d->resv, dma_fence_create(1, 1), DMA_RESV_USAGE_KERNEL);
	dma_buf_map_attachment(a, DMA_BIDIRECTIONAL, &t);
	dma_buf_assert_usable(a);
}

static void used_stale(void)
{
	struct sg_table *t;

	start_locked(&dynamic_ops);
	dma_buf_map_attachment(a, DMA_BIDIRECTIONAL, &t);
	dma_buf_invalidate_mappings(d);
	dma_buf_assert_usable(a);
}

/* mapped again at once, with the old one still there */
static void used_again(void)
{
	struct sg_table *t, *t2;

	start_locked(&dynamic_ops);
	dma_buf_map_attachment(a, DMA_BIDIRECTIONAL, &t);
	dma_buf_invalidate_mappings(d);
	dma_buf_map_attachment(a, DMA_BIDIRECTIONAL, &t2);
	dma_buf_assert_usable(a);
	dma_buf_unmap_attachment(a, t, DMA_BIDIRECTIONAL);
	dma_buf_assert_usable(a);
}

static void rule_8(void **state)
{
	dies(used_early, "dma-buf rule 8");
	dies(used_stale, "dma-buf rule 8");
	dies(used_again, NULL);
}

/* ---- 9: teardown ---- */

static void detach_mapped(void)
{
	struct sg_table *t;

	start_locked(&dynamic_ops);
	dma_buf_map_attachment(a, DMA_BIDIRECTIONAL, &t);
	dma_resv_unlock(d->resv);
	dma_buf_detach(d, a);
}

static void detach_pinned(void)
{
	start_locked(&pinned_ops);
	dma_buf_pin(a);
	dma_resv_unlock(d->resv);
	dma_buf_detach(d, a);
}

static void put_attached(void)
{
	start(&pinned_ops);
	dma_buf_put(d);
}

static void no_room_for_fence(void)
{
	start_locked(&dynamic_ops);
	dma_resv_add_fence(d->resv, dma_fence_create(1, 1), DMA_RESV_USAGE_BOOKKEEP);
}

static void rule_9(void **state)
{
	dies(detach_mapped, "dma-buf rule 9");
	dies(detach_pinned, "dma-buf rule 9");
	dies(put_attached, "dma-buf rule 9");
	dies(no_room_for_fence, "dma_resv_add_fence() without");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rule_1), cmocka_unit_test(rule_2), cmocka_unit_test(rule_4),
		cmocka_unit_test(rule_5), cmocka_unit_test(rule_6), cmocka_unit_test(rule_7),
		cmocka_unit_test(rule_8), cmocka_unit_test(rule_9),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
