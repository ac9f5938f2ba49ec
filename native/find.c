/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds the device that runs in this process, for the libraries beside libibverbs.so.1 (native/native.h). */
#include "native/native.h"

#include <dlfcn.h>
#include <pthread.h>

static const struct faultline_native *table;

static void find(void)
{
	/* NOLOAD: the one the program runs on, however it was loaded, or none at all */
	void *lib = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_NOLOAD);

	if (!lib)
		return;
	table = dlsym(lib, "faultline_native");
	dlclose(lib);
}

const struct faultline_native *faultline_native_get(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, find);
	return table;
}
