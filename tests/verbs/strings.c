/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Programs print these strings, and scripts read what they print: the words, and the arithmetic of
 * rates, are those of rdma-core's library where that is installed. argv: our library.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define THEIRS "/usr/lib/x86_64-linux-gnu/libibverbs.so.1"

typedef const char *(*str_fn)(int value);
typedef int (*int_fn)(int value);

int main(int argc, char **argv)
{
	static const char *const str[] = {"ibv_wc_status_str", "ibv_node_type_str",
					  "ibv_port_state_str", "ibv_event_type_str"};
	static const char *const num[] = {"ibv_rate_to_mult", "ibv_rate_to_mbps", "mult_to_ibv_rate",
					  "mbps_to_ibv_rate"};
	void *ours, *theirs;
	int bad = 0;

	theirs = dlmopen(LM_ID_NEWLM, THEIRS, RTLD_NOW);
	if (!theirs)
		return 77;
	ours = argc == 2 ? dlopen(argv[1], RTLD_NOW) : NULL;
	if (!ours)
		return 1;
	for (int i = 0; i < 4; i++) {
		str_fn a = (str_fn)dlsym(ours, str[i]), b = (str_fn)dlsym(theirs, str[i]);

		for (int v = -2; v < 40; v++) {
			if (strcmp(a(v), b(v))) {
				printf("%s(%d): \"%s\", not \"%s\"\n", str[i], v, b(v), a(v));
				bad++;
			}
		}
	}
	for (int i = 0; i < 4; i++) {
		int_fn a = (int_fn)dlsym(ours, num[i]), b = (int_fn)dlsym(theirs, num[i]);

		for (int v = -2; v < 1400000; v++) {
			if (a(v) != b(v)) {
				printf("%s(%d): %d, not %d\n", num[i], v, b(v), a(v));
				bad++;
			}
		}
	}
	return bad != 0;
}
