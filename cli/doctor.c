/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * faultline doctor: tries what a device needs of this machine, as this user, and says of each in a line
 * whether it is there; where it is not, what that costs and the remedy. What is tried is undone.
 */
#include "cli/cli.h"

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>
#include "mm/mm.h"
#include "net/net.h"
#include "net/roce.h"
#include "util/config.h"
#include "util/log.h"

#define MEMLOCK_ENOUGH (64ull << 20) /* a few buffers of a test; 8 MiB, the usual default, is soon full */
#define FILES_ENOUGH   256	     /* a device takes ten, a peer two, a completion channel one */

enum verdict { OK, DEGRADED, MISSING };
static const char *const verdict_name[] = {"ok", "degraded", "missing"};
static unsigned count[3];

static void verdict(enum verdict v, const char *what, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void verdict(enum verdict v, const char *what, const char *fmt, ...)
{
	va_list ap;

	count[v]++;
	printf("%-9s %-14s ", verdict_name[v], what);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
}

/* a number from a file of /proc or /sys; -1: not to be had */
static long long number_of(const char *path)
{
	FILE *f = fopen(path, "re");
	long long n = -1;

	if (f && fscanf(f, "%lld", &n) != 1)
		n = -1;
	if (f)
		fclose(f);
	return n;
}

static void check_libs(void)
{
	static struct lib_paths libs;

	if (find_libs(&libs))
		verdict(MISSING, "libraries", "libibverbs.so.1 is not beside this command: nothing runs; build or install again");
	else if (!libs.preload[0])
		verdict(DEGRADED, "libraries",
			"%s, without the preload library: munmap() of device-mapped memory is five times dearer; install again",
			libs.libdir);
	else
		verdict(OK, "libraries", "%s", libs.libdir);
}

static void check_kernel(void)
{
	struct utsname u;
	unsigned major = 0, minor = 0;

	uname(&u);
	sscanf(u.release, "%u.%u", &major, &minor);
	if (major < 5 || (major == 5 && minor < 14))
		verdict(DEGRADED, "kernel", "%s: pages are faulted in one by one; 5.14 or later populates, 6.7 is best", u.release);
	else if (major < 6 || (major == 6 && minor < 7))
		verdict(DEGRADED, "kernel",
			"%s: changes of file mappings may go unnoticed, looks at page tables are slow; 6.7 or later has both",
			u.release);
	else
		verdict(OK, "kernel", "%s", u.release);
	if (access("/proc/self/maps", R_OK))
		verdict(DEGRADED, "/proc", "not mounted: what needs to wait for swap or disk cannot be told; mount -t proc proc /proc");
	else if (!mm_probe_pagemap_scan())
		verdict(DEGRADED, "PAGEMAP_SCAN", "not to be had: looks at page tables are slow; Linux 6.7 or later has it");
	else
		verdict(OK, "PAGEMAP_SCAN", "there");
}

static void check_notifier(void)
{
	bool async = false;
	int err = mm_probe_userfaultfd(&async);

	if (err)
		verdict(DEGRADED, "userfaultfd",
			"%s: the device is not told of all that unmaps memory (access stays safe); allow the system call "
			"(containers: the seccomp profile), before Linux 5.11 vm.unprivileged_userfaultfd=1",
			strerror(-err));
	else if (!async)
		verdict(DEGRADED, "userfaultfd", "without WP_ASYNC: not for memory of every kind; Linux 6.7 or later has it");
	else
		verdict(OK, "userfaultfd", "with WP_ASYNC");
	err = mm_probe_psi();
	if (err)
		verdict(DEGRADED, "PSI",
			"%s: what is swapped out is noticed by the stalls it causes only; Linux 6.5 or later, booted with psi=1",
			strerror(-err));
	else
		verdict(OK, "PSI", "memory pressure is told");
}

static void check_pin(const struct fl_config *cfg)
{
	long page = sysconf(_SC_PAGESIZE);
	void *m = mmap(NULL, (size_t)page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct rlimit rl = {0, 0};
	struct mm_pin *pin;
	char b[32];
	int err = m == MAP_FAILED ? -ENOMEM : mm_init(cfg);

	if (!err)
		err = pin_user_pages((uintptr_t)m, (size_t)page, true, &pin);
	if (err) {
		verdict(MISSING, "pinning", "%s: no memory can be registered but on demand; raise RLIMIT_MEMLOCK (ulimit -l)",
			strerror(-err));
	} else if (strcmp(pin_how(pin), "io_uring")) {
		verdict(DEGRADED, "io_uring",
			"refused, mlock pins: pinned memory that the program unmaps is lost; sysctl kernel.io_uring_disabled=0, or "
			"the container's seccomp profile");
	} else {
		verdict(OK, "io_uring", "pins memory");
	}
	if (!err)
		unpin_user_pages(pin);
	getrlimit(RLIMIT_MEMLOCK, &rl);
	if (rl.rlim_cur == RLIM_INFINITY || rl.rlim_cur >= MEMLOCK_ENOUGH)
		verdict(OK, "RLIMIT_MEMLOCK", "%s",
			rl.rlim_cur == RLIM_INFINITY ? "unlimited" : human_bytes(rl.rlim_cur, b));
	else
		verdict(mm_probe_ipc_lock() ? OK : DEGRADED, "RLIMIT_MEMLOCK", "%s%s", human_bytes(rl.rlim_cur, b),
			mm_probe_ipc_lock()
				? ", which does not hold here (CAP_IPC_LOCK)"
				: ": no more can be registered pinned; ulimit -l, /etc/security/limits.d, LimitMEMLOCK=");
	getrlimit(RLIMIT_NOFILE, &rl);
	if (rl.rlim_cur < FILES_ENOUGH)
		verdict(DEGRADED, "RLIMIT_NOFILE", "%llu descriptors: few peers; ulimit -n %d or more",
			(unsigned long long)rl.rlim_cur, FILES_ENOUGH);
	else
		verdict(OK, "RLIMIT_NOFILE", "%llu", (unsigned long long)rl.rlim_cur);
}

static void check_huge_pages(void)
{
	long long n = number_of("/proc/sys/vm/nr_hugepages");

	if (n > 0)
		verdict(OK, "huge pages", "%lld", n);
	else
		verdict(DEGRADED, "huge pages", "none: programs that map them (MAP_HUGETLB) fail; sysctl vm.nr_hugepages=64");
}

static void check_port(const struct netdev_info *nd)
{
	struct sockaddr_in6 a6 = {.sin6_family = AF_INET6, .sin6_port = htons(ROCE_UDP_PORT)};
	struct sockaddr_in a4 = {.sin_family = AF_INET, .sin_port = htons(ROCE_UDP_PORT)};
	const uint8_t *gid = nd->gid[0];
	bool v4 = IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)gid);
	int one = 1, fd = socket(v4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0), err;

	memcpy(&a4.sin_addr, gid + 12, 4);
	memcpy(&a6.sin6_addr, gid, 16);
	a6.sin6_scope_id = (uint32_t)nd->ifindex;
	setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one));
	err = bind(fd, v4 ? (struct sockaddr *)&a4 : (struct sockaddr *)&a6, v4 ? sizeof(a4) : sizeof(a6)) ? errno : 0;
	close(fd);
	if (err)
		verdict(DEGRADED, "UDP port 4791",
			"%s: peers are processes of this user on this host only; see who has it (ss -lunp 'sport = :4791'; rdma link), "
			"or use another interface (--netdev)",
			strerror(err));
	else
		verdict(OK, "UDP port 4791", "free, or shared with this user's processes");
}

/* asks for it as the device does; the kernel doubles what it grants, and says that */
static void check_buffer(void)
{
	int size = NET_SOCKET_BUFFER, fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	socklen_t len = sizeof(size);
	char b[32];

	if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size)))
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
	if (getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, &len))
		size = 0;
	close(fd);
	if (size / 2 < NET_SOCKET_BUFFER)
		verdict(DEGRADED, "rmem_max", "%s: bursts over UDP are lost and sent again; sysctl net.core.rmem_max=%d",
			human_bytes((uint64_t)size / 2, b), NET_SOCKET_BUFFER);
	else
		verdict(OK, "rmem_max", "%s are granted", human_bytes((uint64_t)size / 2, b));
}

static void check_net(const struct fl_config *cfg)
{
	struct netdev_info nd;

	if (netdev_query(cfg->netdev, &nd) || !nd.num_gids) {
		verdict(MISSING, "interface", "no network interface with an address: no device; ip link set lo up");
		return;
	}
	if (!strcmp(nd.name, "lo"))
		verdict(DEGRADED, "interface", "lo: other hosts cannot be reached; give an interface an address, or --netdev");
	else
		verdict(OK, "interface", "%s, MTU %d", nd.name, nd.mtu);
	check_port(&nd);
	check_buffer();
}

static void check_cpus(void)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);

	if (n < 2)
		verdict(DEGRADED, "processors", "one: a device and its program take turns; latencies are those of the scheduler");
	else
		verdict(OK, "processors", "%ld", n);
}

static void help(void)
{
	printf("Usage: faultline doctor\n\n"
	       "Says what a device needs of this machine and whether it is there for this user: ok, degraded or\n"
	       "missing, with what that costs and the remedy.\n\n"
	       "  -h, --help\n\n"
	       "The status is 1 when something is missing without which no device works.\n");
}

int cmd_doctor(int argc, char **argv)
{
	static const struct option options[] = {{"help", no_argument, NULL, 'h'}, {0}};
	struct fl_config cfg;
	int c;

	while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		if (c != 'h')
			return usage_hint("doctor");
		help();
		return finish_output(0);
	}
	if (optind != argc)
		return usage_error("doctor", "takes no arguments");
	fl_config_option = option_of;
	if (fl_config_load(&cfg))
		return usage_hint("doctor");
	fl_log_configure(LOG_NONE); /* all of it is said here */
	check_libs();
	check_kernel();
	check_notifier();
	check_pin(&cfg);
	check_huge_pages();
	check_net(&cfg);
	check_cpus();
	printf("\n%u ok, %u degraded, %u missing\n", count[OK], count[DEGRADED], count[MISSING]);
	return finish_output(count[MISSING] ? 1 : 0);
}
