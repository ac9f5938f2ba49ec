/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Finding the processes that have a device: by the abstract UNIX sockets on which they listen (this
 * network namespace's); asked for their segment, nothing in them stops. A process that does not answer
 * (stopped, or its engine not started yet) is read through /proc instead.
 */
#include "cli/cli.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

/* the segment by the owner's descriptor table: needs no help of the owner */
static int fd_from_proc(pid_t pid)
{
	char path[64], link[64];
	struct dirent *e;
	int found = -1;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	dir = opendir(path);
	if (!dir)
		return -1;
	while (found < 0 && (e = readdir(dir))) {
		ssize_t n = readlinkat(dirfd(dir), e->d_name, link, sizeof(link) - 1);

		if (n < 0)
			continue;
		link[n] = '\0';
		if (!strncmp(link, "/memfd:faultline ", 17))
			found = openat(dirfd(dir), e->d_name, O_RDONLY | O_CLOEXEC);
	}
	closedir(dir);
	return found;
}

/* the segment of who listens at the slot; *pid: who it is, 0 when that is not even known */
static int ask(unsigned slot, int type, pid_t *pid)
{
	struct timeval patience = {.tv_usec = 300000};
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	struct ucred cred;
	socklen_t len = sizeof(cred);
	int n = snprintf(addr.sun_path + 1, sizeof(addr.sun_path) - 1, FAULTLINE_SOCKET_PREFIX "%u",
			 slot);
	int sock = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
	int fd = -1;

	*pid = 0;
	if (sock < 0)
		return -1;
	setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	setsockopt(sock, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	if (connect(sock, (struct sockaddr *)&addr,
		    (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)) == 0) {
		if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &len) == 0)
			*pid = cred.pid;
		if (send(sock, "S", 1, MSG_NOSIGNAL) == 1)
			fd = process_receive(sock);
	}
	close(sock);
	return fd >= 0 || !*pid ? fd : fd_from_proc(*pid);
}

/* one line of /proc/net/unix: a listener of ours? */
static bool parse_line(const char *line, unsigned *slot, int *type)
{
	static const char prefix[] = "@" FAULTLINE_SOCKET_PREFIX;
	const char *at = strstr(line, prefix);
	unsigned flags, t;
	char *end;

	/* Num RefCount Protocol Flags Type St Inode Path */
	if (!at || sscanf(line, "%*s %*s %*s %x %x", &flags, &t) != 2 || !(flags & 0x10000))
		return false;
	at += sizeof(prefix) - 1;
	*slot = (unsigned)strtoul(at, &end, 10);
	*type = (int)t;
	return end != at && (!*end || isspace((unsigned char)*end)) && *slot <= FAULTLINE_MAX_SLOT;
}

static void look_at(unsigned slot, int type, void (*fn)(struct process *p, void *arg),
		     void (*refused)(pid_t pid, void *arg), void *arg)
{
	struct process p;
	pid_t pid;
	int fd = ask(slot, type, &pid);

	if (fd < 0 || process_open(&p, fd, pid)) {
		if (pid) /* 0: it ended since the list was read */
			refused(pid, arg);
		return;
	}
	fn(&p, arg);
	process_close(&p);
}

int each_process(const char *cmd, void (*fn)(struct process *p, void *arg), void (*refused)(pid_t pid, void *arg),
		 void *arg)
{
	FILE *f = fopen("/proc/net/unix", "re");
	bool seen[FAULTLINE_MAX_SLOT + 1] = {0};
	char line[512];
	unsigned slot;
	int type;

	if (!f) {
		fprintf(stderr, "faultline %s: /proc/net/unix: %s\n", cmd, strerror(errno));
		return 1;
	}
	while (fgets(line, sizeof(line), f)) {
		if (parse_line(line, &slot, &type) && !seen[slot]) {
			seen[slot] = true;
			look_at(slot, type, fn, refused, arg);
		}
	}
	fclose(f);
	return 0;
}
