/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two hosts, a case at a time: every operation of RC, UC and UD, memory that comes and goes, and
 *what must be refused, with the statuses and the data checked at both ends. It runs on any device:
 *`make interop` has ours at one end and the kernel's rxe at the other, each as client (which
 *requests) and as server.
 *
 *	interop-exchange DEVICE GID-INDEX PORT [SERVER-ADDRESS [CASE...]]
 *
 * Data has a pattern by position, at odd offsets and lengths beyond the path MTU.
 */
#include <stdlib.h>
#include <string.h>
#include "exchange.h"

static const struct {
	const char *name;
	void (*run)(void);
	struct opt opt;
} cases[] = {
	{"rc-send", case_send, {IBV_QPT_RC, 7, 12, RIGHTS}},
	{"rc-write", case_write, {IBV_QPT_RC, 7, 12, RIGHTS}},
	{"rc-read", case_read, {IBV_QPT_RC, 7, 12, RIGHTS}},
	{"rc-atomic", case_atomic, {IBV_QPT_RC, 7, 12, RIGHTS}},
	{"rc-odp", case_odp, {IBV_QPT_RC, 7, 12, RIGHTS}},
	{"rc-odp-implicit", case_odp_implicit, {IBV_QPT_RC, 7, 12, RIGHTS}},
	{"rc-odp-moving", case_odp_moving, {IBV_QPT_RC, 7, 12, RIGHTS}},
	{"rc-odp-unmapped", case_odp_unmapped, {IBV_QPT_RC, 7, 12, RIGHTS}},
	{"rc-dmabuf-memfd", case_dmabuf_memfd, {IBV_QPT_RC, 7, 12, RIGHTS}},
	{"rc-dmabuf-vram", case_dmabuf_vram, {IBV_QPT_RC, 7, 12, RIGHTS}},
	{"rc-dmabuf-moving", case_dmabuf_moving, {IBV_QPT_RC, 7, 12, RIGHTS}},
	{"rc-burst", case_burst, {IBV_QPT_RC, 7, 12, RIGHTS}},
	{"rc-rnr", case_rnr, {IBV_QPT_RC, 7, 20, RIGHTS}},
	{"rc-rnr-exceeded", case_rnr_exceeded, {IBV_QPT_RC, 2, 14, RIGHTS}},
	{"rc-bad-rkey", case_bad_rkey, {IBV_QPT_RC, 7, 12, RIGHTS}},
	{"rc-out-of-bounds", case_out_of_bounds, {IBV_QPT_RC, 7, 12, RIGHTS}},
	{"rc-no-right", case_no_right, {IBV_QPT_RC, 7, 12, IBV_ACCESS_REMOTE_WRITE}},
	{"rc-too-long", case_too_long, {IBV_QPT_RC, 7, 12, RIGHTS}},
	{"rc-gone", case_gone, {IBV_QPT_RC, 7, 12, RIGHTS, 6}},
	{"uc-send", case_send, {IBV_QPT_UC, 0, 0, RIGHTS}},
	{"uc-write", case_write, {IBV_QPT_UC, 0, 0, RIGHTS}},
	{"uc-dropped", case_uc_dropped, {IBV_QPT_UC, 0, 0, RIGHTS}},
	{"ud", case_ud, {IBV_QPT_UD, 0, 0, RIGHTS}},
	{"ud-multicast", case_multicast, {IBV_QPT_UD, 0, 0, RIGHTS}},
};
#define NUM_CASES ((int)(sizeof(cases) / sizeof(cases[0])))

static bool wanted(const char *name, int argc, char **argv)
{
	for (int i = 5; i < argc; i++)
		if (!strcmp(argv[i], name))
			return true;
	return argc <= 5;
}

int main(int argc, char **argv)
{
	int mine = 0, index;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc < 4) {
		fprintf(stderr, "usage: %s DEVICE|- GID-INDEX PORT [SERVER-ADDRESS [CASE...]]\n",
			argv[0]);
		return 2;
	}
	server = argc == 4;
	gid_index = atoi(argv[2]);
	open_device(argv[1]);
	connect_control(server ? NULL : argv[4], atoi(argv[3]));
	for (;;) {
		while (!server && mine < NUM_CASES && !wanted(cases[mine].name, argc, argv))
			mine++;
		swap_info(&mine, &index, sizeof(mine));
		if (!server)
			index = mine;
		if (index >= NUM_CASES)
			break;
		case_name = cases[index].name;
		new_qp(&cases[index].opt);
		cases[index].run();
		mine++;
	}
	printf("%u wrong\n", failures);
	return failures ? 1 : 0;
}
