/* SPDX-License-Identifier: BSD-2-Clause */
/* faultline devices: the models there are, and the devices that a program would find with the
 * settings as they are. */
#include "cli/cli.h"

#include <arpa/inet.h>
#include <cjson/cJSON.h>
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include "hw/profile.h"
#include "net/net.h"
#include "util/config.h"

struct flag {
	uint32_t bit;
	const char *word;
};

static const struct flag odp_flags[] = {
	{IBV_ODP_SUPPORT_SEND, "send"},
	{IBV_ODP_SUPPORT_RECV, "recv"},
	{IBV_ODP_SUPPORT_WRITE, "write"},
	{IBV_ODP_SUPPORT_READ, "read"},
	{IBV_ODP_SUPPORT_ATOMIC, "atomic"},
	{IBV_ODP_SUPPORT_SRQ_RECV, "srq"},
	{0},
};

#define TYPE_SRD (1u << 31) /* among the bits of ordinary QP types, none of which is 31 */

static const struct flag qp_flags[] = {
	{1u << IBV_QPT_RC, "RC"},
	{1u << IBV_QPT_UC, "UC"},
	{1u << IBV_QPT_UD, "UD"},
	{1u << IBV_QPT_XRC_SEND, "XRC"},
	{TYPE_SRD, "SRD"},
	{0},
};

static uint32_t types_of(const struct hca_profile *p)
{
	return p->qp_types | (p->srd_max_rdma_size ? TYPE_SRD : 0);
}

static const struct flag access_flags[] = {
	{IBV_ACCESS_LOCAL_WRITE, "local write"},
	{IBV_ACCESS_REMOTE_WRITE, "remote write"},
	{IBV_ACCESS_REMOTE_READ, "remote read"},
	{IBV_ACCESS_REMOTE_ATOMIC, "remote atomic"},
	{IBV_ACCESS_MW_BIND, "mw bind"},
	{IBV_ACCESS_ZERO_BASED, "zero based"},
	{IBV_ACCESS_ON_DEMAND, "on demand"},
	{IBV_ACCESS_HUGETLB, "hugetlb"},
	{0},
};

static const char *const dmabuf_words[] = {
	[HCA_DMABUF_NONE] = "none",
	[HCA_DMABUF_DYNAMIC] = "dynamic",
	[HCA_DMABUF_PINNED] = "pinned",
	[HCA_DMABUF_PINNED_REVOCABLE] = "pinned, revocable",
};

static const char *const atomic_words[] = {
	[IBV_ATOMIC_NONE] = "none", /* HCA: among QPs of the device; GLOB: and with CPUs */
	[IBV_ATOMIC_HCA] = "hca",
	[IBV_ATOMIC_GLOB] = "glob",
};

/* the words of the bits that are set; "-" for none */
static const char *words(uint32_t bits, const struct flag *flags, char *buf, size_t size)
{
	FILE *f = fmemopen(buf, size, "w");
	const char *sep = "";

	snprintf(buf, size, "-");
	if (!f)
		return buf;
	for (; flags->word; flags++) {
		if (bits & flags->bit) {
			fprintf(f, "%s%s", sep, flags->word);
			sep = " ";
		}
	}
	fclose(f);
	return buf;
}

static const char *odp_words(const struct hca_profile *p)
{
	if (!(p->odp.general_caps & IBV_ODP_SUPPORT))
		return "none";
	return p->odp.general_caps & IBV_ODP_SUPPORT_IMPLICIT ? "explicit, implicit" : "explicit";
}

static const char *gid_text(const uint8_t gid[16], char buf[INET6_ADDRSTRLEN])
{
	if (IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)gid))
		return inet_ntop(AF_INET, gid + 12, buf, INET6_ADDRSTRLEN);
	return inet_ntop(AF_INET6, gid, buf, INET6_ADDRSTRLEN);
}

struct named {
	const struct hca_profile *profile;
	char name[64];
};

/* the devices of the settings, named as the library names them: numbers count within a profile */
static unsigned name_devices(const struct fl_config *cfg, struct named out[FAULTLINE_MAX_DEVICES])
{
	char list[sizeof(cfg->device)], *p, *save;
	unsigned n = 0;

	strcpy(list, cfg->device);
	for (p = strtok_r(list, ",", &save); p && n < FAULTLINE_MAX_DEVICES;
	     p = strtok_r(NULL, ",", &save)) {
		unsigned same = 0;

		out[n].profile = hca_profile_find(p);
		for (unsigned i = 0; i < n; i++)
			same += out[i].profile == out[n].profile;
		if (cfg->name[0])
			snprintf(out[n].name, sizeof(out[n].name), "%s", cfg->name);
		else
			snprintf(out[n].name, sizeof(out[n].name), "%.40s_fl%u", p, same);
		n++;
	}
	return n;
}

static void profile_tables(void)
{
	const struct hca_profile *const *p;
	char buf[4][64];

	printf("%-9s %-19s %-18s %-12s %-7s %-4s %s\n", "PROFILE", "ON DEMAND", "DMA-BUF",
	       "QP TYPES", "ATOMICS", "SRQ", "DESCRIPTION");
	for (p = hca_profiles; *p; p++)
		printf("%-9s %-19s %-18s %-12s %-7s %-4s %s\n", (*p)->name, odp_words(*p),
		       dmabuf_words[(*p)->dmabuf],
		       words(types_of(*p), qp_flags, buf[0], sizeof(buf[0])),
		       atomic_words[(*p)->attr.atomic_cap], (*p)->attr.max_srq ? "yes" : "no",
		       (*p)->description);

	printf("\n%-9s %-36s %-6s %-14s %s\n", "ON DEMAND", "RC", "UC", "UD", "XRC");
	for (p = hca_profiles; *p; p++)
		printf("%-9s %-36s %-6s %-14s %s\n", (*p)->name,
		       words((*p)->odp.per_transport_caps.rc_odp_caps, odp_flags, buf[0],
			     sizeof(buf[0])),
		       words((*p)->odp.per_transport_caps.uc_odp_caps, odp_flags, buf[1],
			     sizeof(buf[1])),
		       words((*p)->odp.per_transport_caps.ud_odp_caps, odp_flags, buf[2],
			     sizeof(buf[2])),
		       words((*p)->xrc_odp_caps, odp_flags, buf[3], sizeof(buf[3])));

	printf("\n%-9s %6s %8s %5s %7s %6s %8s %7s %11s\n", "LIMITS", "QPS", "WRS", "SGES",
	       "INLINE", "READS", "CQES", "MRS", "MESSAGE");
	for (p = hca_profiles; *p; p++) {
		const struct ibv_device_attr *a = &(*p)->attr;

		printf("%-9s %6d %8d %5d %7u %6d %8d %7d %11u\n", (*p)->name, a->max_qp,
		       a->max_qp_wr, a->max_sge, (*p)->max_inline_data, a->max_qp_rd_atom,
		       a->max_cqe, a->max_mr, (*p)->max_msg_sz);
	}
}

static void text(const struct fl_config *cfg, const struct netdev_info *nd)
{
	struct named dev[FAULTLINE_MAX_DEVICES];
	unsigned num = name_devices(cfg, dev);
	char gid[INET6_ADDRSTRLEN];

	profile_tables();
	printf("\n%-16s %-10s %-10s %5s  %s\n", "DEVICE", "PROFILE", "NETDEV", "MTU", "GIDS");
	for (unsigned i = 0; i < num; i++) {
		printf("%-16s %-10s %-10s %5d ", dev[i].name, dev[i].profile->name, nd->name,
		       nd->mtu);
		for (unsigned g = 0; g < nd->num_gids; g++)
			printf(" %u:%s", g, gid_text(nd->gid[g], gid));
		putchar('\n');
	}
}

static void add_words(cJSON *obj, const char *name, uint32_t bits, const struct flag *flags)
{
	cJSON *array = cJSON_AddArrayToObject(obj, name);

	for (; flags->word; flags++) {
		if (bits & flags->bit)
			cJSON_AddItemToArray(array, cJSON_CreateString(flags->word));
	}
}

static cJSON *profile_json(const struct hca_profile *p)
{
	const struct ibv_device_attr *a = &p->attr;
	cJSON *obj = cJSON_CreateObject(), *odp, *limits;

	cJSON_AddStringToObject(obj, "name", p->name);
	cJSON_AddStringToObject(obj, "description", p->description);
	cJSON_AddStringToObject(obj, "on_demand", odp_words(p));
	odp = cJSON_AddObjectToObject(obj, "on_demand_operations");
	add_words(odp, "rc", p->odp.per_transport_caps.rc_odp_caps, odp_flags);
	add_words(odp, "uc", p->odp.per_transport_caps.uc_odp_caps, odp_flags);
	add_words(odp, "ud", p->odp.per_transport_caps.ud_odp_caps, odp_flags);
	add_words(odp, "xrc", p->xrc_odp_caps, odp_flags);
	cJSON_AddStringToObject(obj, "dma_buf", dmabuf_words[p->dmabuf]);
	add_words(obj, "qp_types", types_of(p), qp_flags);
	cJSON_AddStringToObject(obj, "atomics", atomic_words[a->atomic_cap]);
	add_words(obj, "access", p->access_supported, access_flags);
	cJSON_AddNumberToObject(obj, "vendor_id", a->vendor_id);
	cJSON_AddNumberToObject(obj, "vendor_part_id", a->vendor_part_id);
	limits = cJSON_AddObjectToObject(obj, "limits");
	cJSON_AddNumberToObject(limits, "qp", a->max_qp);
	cJSON_AddNumberToObject(limits, "qp_wr", a->max_qp_wr);
	cJSON_AddNumberToObject(limits, "sge", a->max_sge);
	cJSON_AddNumberToObject(limits, "inline_data", p->max_inline_data);
	cJSON_AddNumberToObject(limits, "qp_rd_atom", a->max_qp_rd_atom);
	cJSON_AddNumberToObject(limits, "qp_init_rd_atom", a->max_qp_init_rd_atom);
	cJSON_AddNumberToObject(limits, "cq", a->max_cq);
	cJSON_AddNumberToObject(limits, "cqe", a->max_cqe);
	cJSON_AddNumberToObject(limits, "mr", a->max_mr);
	cJSON_AddNumberToObject(limits, "mr_size", (double)a->max_mr_size);
	cJSON_AddNumberToObject(limits, "srq", a->max_srq);
	cJSON_AddNumberToObject(limits, "gid", p->gid_tbl_len);
	cJSON_AddNumberToObject(limits, "msg_size", p->max_msg_sz);
	return obj;
}

static void json(const struct fl_config *cfg, const struct netdev_info *nd)
{
	struct named dev[FAULTLINE_MAX_DEVICES];
	unsigned num = name_devices(cfg, dev);
	char gid[INET6_ADDRSTRLEN], *out;
	cJSON *root = cJSON_CreateObject();
	cJSON *profiles = cJSON_AddArrayToObject(root, "profiles");
	cJSON *devices = cJSON_AddArrayToObject(root, "devices");

	for (unsigned i = 0; hca_profiles[i]; i++)
		cJSON_AddItemToArray(profiles, profile_json(hca_profiles[i]));
	for (unsigned i = 0; i < num; i++) {
		cJSON *obj = cJSON_CreateObject(), *gids;

		cJSON_AddStringToObject(obj, "name", dev[i].name);
		cJSON_AddStringToObject(obj, "profile", dev[i].profile->name);
		cJSON_AddStringToObject(obj, "netdev", nd->name);
		cJSON_AddNumberToObject(obj, "mtu", nd->mtu);
		gids = cJSON_AddArrayToObject(obj, "gids");
		for (unsigned g = 0; g < nd->num_gids; g++)
			cJSON_AddItemToArray(gids, cJSON_CreateString(gid_text(nd->gid[g], gid)));
		cJSON_AddItemToArray(devices, obj);
	}
	out = cJSON_Print(root);
	puts(out);
	cJSON_free(out);
	cJSON_Delete(root);
}

static void help(void)
{
	printf("Usage: faultline devices [OPTIONS]\n\n"
	       "Lists the device profiles with what each can do, and the devices that a program under 'faultline run' would\n"
	       "find with the settings as they are.\n\n"
	       "  -d, --device PROFILE[,PROFILE]\n"
	       "  -i, --netdev INTERFACE\n"
	       "  -j, --json\n"
	       "  -h, --help\n");
}

int check_settings(const char *cmd, const struct fl_config *cfg)
{
	char list[sizeof(cfg->device)], *p, *save;
	struct netdev_info nd;
	int ret = 0;

	strcpy(list, cfg->device);
	for (p = strtok_r(list, ",", &save); p; p = strtok_r(NULL, ",", &save)) {
		if (hca_profile_find(p))
			continue;
		fprintf(stderr,
			"faultline %s: there is no device profile '%s'; 'faultline devices' lists them\n",
			cmd, p);
		ret = -EINVAL;
	}
	if (netdev_query(cfg->netdev, &nd)) {
		fprintf(stderr,
			"faultline %s: there is no network interface '%s'; 'ip link' lists them\n",
			cmd, cfg->netdev[0] ? cfg->netdev : "lo");
		ret = -ENODEV;
	}
	return ret;
}

int cmd_devices(int argc, char **argv)
{
	static const struct option options[] = {
		{"device", required_argument, NULL, 'd'},
		{"netdev", required_argument, NULL, 'i'},
		{"json", no_argument, NULL, 'j'},
		{"help", no_argument, NULL, 'h'},
		{0},
	};
	struct netdev_info nd;
	struct fl_config cfg;
	bool as_json = false;
	int c;

	while ((c = getopt_long(argc, argv, "d:i:jh", options, NULL)) != -1) {
		switch (c) {
		case 'd':
			set_by_option("--device", "FAULTLINE_DEVICE", optarg);
			break;
		case 'i':
			set_by_option("--netdev", "FAULTLINE_NETDEV", optarg);
			break;
		case 'j':
			as_json = true;
			break;
		case 'h':
			help();
			return finish_output(0);
		default:
			return usage_hint("devices");
		}
	}
	if (optind != argc)
		return usage_error("devices", "takes no arguments");
	fl_config_option = option_of;
	if (fl_config_load(&cfg) || check_settings("devices", &cfg) ||
	    netdev_query(cfg.netdev, &nd))
		return usage_hint("devices");
	if (as_json)
		json(&cfg, &nd);
	else
		text(&cfg, &nd);
	return finish_output(0);
}
