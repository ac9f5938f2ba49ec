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

static void text(const struct fl_config *cfg, const struct netdev_info *nd)
{
	struct named dev[FAULTLINE_MAX_DEVICES];
	unsigned num = name_devices(cfg, dev);
	char gid[INET6_ADDRSTRLEN];

	printf("%-10s %-19s %s\n", "PROFILE", "ON DEMAND", "DESCRIPTION");
	for (unsigned i = 0; hca_profiles[i]; i++)
		printf("%-10s %-19s %s\n", hca_profiles[i]->name, odp_words(hca_profiles[i]),
		       hca_profiles[i]->description);

	printf("\n%-16s %-10s %-10s %5s  %s\n", "DEVICE", "PROFILE", "NETDEV", "MTU", "GIDS");
	for (unsigned i = 0; i < num; i++) {
		printf("%-16s %-10s %-10s %5d ", dev[i].name, dev[i].profile->name, nd->name,
		       nd->mtu);
		for (unsigned g = 0; g < nd->num_gids; g++)
			printf(" %u:%s", g, gid_text(nd->gid[g], gid));
		putchar('\n');
	}
}

static void json(const struct fl_config *cfg, const struct netdev_info *nd)
{
	struct named dev[FAULTLINE_MAX_DEVICES];
	unsigned num = name_devices(cfg, dev);
	char gid[INET6_ADDRSTRLEN], *out;
	cJSON *root = cJSON_CreateObject();
	cJSON *profiles = cJSON_AddArrayToObject(root, "profiles");
	cJSON *devices = cJSON_AddArrayToObject(root, "devices");

	for (unsigned i = 0; hca_profiles[i]; i++) {
		cJSON *obj = cJSON_CreateObject();

		cJSON_AddStringToObject(obj, "name", hca_profiles[i]->name);
		cJSON_AddStringToObject(obj, "on_demand", odp_words(hca_profiles[i]));
		cJSON_AddStringToObject(obj, "description", hca_profiles[i]->description);
		cJSON_AddItemToArray(profiles, obj);
	}
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
	       "Lists the device profiles, and the devices that a program under 'faultline run' would\n"
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
			setenv("FAULTLINE_DEVICE", optarg, 1);
			break;
		case 'i':
			setenv("FAULTLINE_NETDEV", optarg, 1);
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
	if (fl_config_load(&cfg) || check_settings("devices", &cfg) ||
	    netdev_query(cfg.netdev, &nd))
		return usage_hint("devices");
	if (as_json)
		json(&cfg, &nd);
	else
		text(&cfg, &nd);
	return finish_output(0);
}
