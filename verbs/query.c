/* SPDX-License-Identifier: BSD-2-Clause */
/* Queries of a context. What grows from release to release is written only as far as the caller's goes. */
#include "verbs/verbs.h"

#include <arpa/inet.h>

/* The private interface's idea of GID types, which is not the public one's. */
enum fl_gid_type_sysfs { GID_TYPE_SYSFS_IB_ROCE_V1, GID_TYPE_SYSFS_ROCE_V2 };
int ibv_query_gid_type(struct ibv_context *context, uint8_t port_num, unsigned int index,
		       enum fl_gid_type_sysfs *type);

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *device_attr)
{
	struct ibv_device_attr_ex attr;
	int err = ib_query_device(to_fl_context(context)->ib, &attr);

	if (!err)
		*device_attr = attr.orig_attr;
	return fail_errno(err);
}

int fl_query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
		       struct ibv_device_attr_ex *attr, size_t attr_size)
{
	struct ibv_device_attr_ex full;
	int err;

	if ((input && input->comp_mask) || attr_size < sizeof(full.orig_attr))
		return EINVAL;
	err = ib_query_device(to_fl_context(context)->ib, &full);
	if (err)
		return fail_errno(err);
	memset(attr, 0, attr_size);
	memcpy(attr, &full, attr_size < sizeof(full) ? attr_size : sizeof(full));
	return 0;
}

int fl_query_port(struct ibv_context *context, uint8_t port_num, struct ibv_port_attr *attr, size_t len)
{
	struct ibv_port_attr full;
	int err = ib_query_port(to_fl_context(context)->ib, port_num, &full);

	if (err)
		return fail_errno(err);
	memset(attr, 0, len);
	memcpy(attr, &full, len < sizeof(full) ? len : sizeof(full));
	return 0;
}

/* What programs from before the inline version call: their structure ends after `flags`. */
int ibv_query_port(struct ibv_context *context, uint8_t port_num, struct _compat_ibv_port_attr *attr)
{
	return fl_query_port(context, port_num, (struct ibv_port_attr *)attr,
			     offsetof(struct ibv_port_attr, port_cap_flags2));
}

int ibv_query_gid(struct ibv_context *context, uint8_t port_num, int index, union ibv_gid *gid)
{
	uint32_t ifindex;
	int err = ib_query_gid(to_fl_context(context)->ib, port_num, (uint32_t)index, gid, &ifindex);

	/* an empty entry is an answer: zero */
	if (!err || err == -ENODATA)
		return 0;
	errno = -err;
	return -1;
}

static int gid_entry(struct ibv_context *context, uint32_t port, uint32_t index,
		     struct ibv_gid_entry *entry)
{
	int err = ib_query_gid(to_fl_context(context)->ib, port, index, &entry->gid,
			       &entry->ndev_ifindex);

	entry->gid_index = index;
	entry->port_num = port;
	entry->gid_type = IBV_GID_TYPE_ROCE_V2;
	return err;
}

int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port_num, uint32_t gid_index,
		      struct ibv_gid_entry *entry, uint32_t flags, size_t entry_size)
{
	struct ibv_gid_entry full;
	int err;

	if (flags)
		return EOPNOTSUPP;
	if (entry_size < sizeof(full))
		return EINVAL;
	err = gid_entry(context, port_num, gid_index, &full);
	if (err)
		return fail_errno(err);
	memset(entry, 0, entry_size);
	memcpy(entry, &full, sizeof(full));
	return 0;
}

ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
			     size_t max_entries, uint32_t flags, size_t entry_size)
{
	struct ib_ucontext *ib = to_fl_context(context)->ib;
	uint32_t len = ib->device->profile->gid_tbl_len;
	struct ibv_gid_entry full;
	size_t n = 0;

	if (flags)
		return -EOPNOTSUPP;
	if (entry_size < sizeof(full))
		return -EINVAL;
	for (uint32_t i = 0; i < len; i++) {
		char *to = (char *)entries + n * entry_size;
		int err = gid_entry(context, 1, i, &full);

		if (err == -ENODATA)
			continue;
		if (err)
			return err;
		if (n == max_entries)
			return -EINVAL;
		memset(to, 0, entry_size);
		memcpy(to, &full, sizeof(full));
		n++;
	}
	return (ssize_t)n;
}

VERBS_EXPORT int ibv_query_gid_type(struct ibv_context *context, uint8_t port_num, unsigned int index,
				    enum fl_gid_type_sysfs *type)
{
	union ibv_gid gid;
	uint32_t ifindex;
	int err = ib_query_gid(to_fl_context(context)->ib, port_num, index, &gid, &ifindex);

	if (err && err != -ENODATA) {
		errno = -err;
		return -1;
	}
	/* callers ask for the empty ones too, and take this for "nothing special" */
	*type = err ? GID_TYPE_SYSFS_IB_ROCE_V1 : GID_TYPE_SYSFS_ROCE_V2;
	return 0;
}

int ibv_query_pkey(struct ibv_context *context, uint8_t port_num, int index, __be16 *pkey)
{
	uint16_t value;
	int err = ib_query_pkey(to_fl_context(context)->ib, port_num, index, &value);

	if (err) {
		errno = -err;
		return -1;
	}
	*pkey = htons(value);
	return 0;
}

int ibv_get_pkey_index(struct ibv_context *context, uint8_t port_num, __be16 pkey)
{
	__be16 have;

	for (int i = 0; !ibv_query_pkey(context, port_num, i, &have); i++) {
		if (have == pkey)
			return i;
	}
	errno = EINVAL;
	return -1;
}

int fl_query_rt_values(struct ibv_context *context, struct ibv_values_ex *values)
{
	struct ib_ucontext *ib = to_fl_context(context)->ib;
	const struct hca_profile *p = ib->device->profile;
	uint32_t asked = values->comp_mask;
	struct timespec now;
	uint64_t ticks;

	if (!ib_ucontext_alive(ib))
		return EIO;
	values->comp_mask = 0;
	if (!p->completion_timestamp_mask)
		return EOPNOTSUPP;
	if (asked & IBV_VALUES_MASK_RAW_CLOCK) {
		clock_gettime(CLOCK_MONOTONIC, &now);
		ticks = fl_device_clock((uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec,
					p->hca_core_clock, p->completion_timestamp_mask);
		/* a count of ticks, in the field for nanoseconds */
		values->raw_clock.tv_sec = 0;
		values->raw_clock.tv_nsec = (long)ticks;
		values->comp_mask |= IBV_VALUES_MASK_RAW_CLOCK;
	}
	return 0;
}
