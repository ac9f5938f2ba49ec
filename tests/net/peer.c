/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reaching into a peer's memory: a process that lets us in is written to and read from; when it has executed another
 * program since we last looked, that program's memory is left alone, though it may be reached and has memory at
 * the same address; and so is what comes to be at a process that ended. Who offers what is none is named.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include "mm/mm.h"
#include "net/impl.h"
#include "node.h"

/* where the kernel puts nothing by itself, and the sanitizers have nothing */
#ifdef __SANITIZE_THREAD__
#define PLACE 0x5000000000ull
#else
#define PLACE 0x350000000000ull
#endif
#define LEN  100
#define OLD  0x11 /* what the process that lets us in has there, and what the next program has */
#define NEXT 0x22

static bool joined(void *ctx, uint32_t slot, int sock)
{
	return true;
}

static void left(void *ctx, uint32_t slot, int sock)
{
}

static const struct net_ops open_ops = {.rx = node_rx, .tx_ready = node_ready, .kick = node_kick,
					.peer_joined = joined, .peer_left = left};

static uint8_t *memory(uint8_t value)
{
	void *at = (void *)PLACE;
	uint8_t *m = mmap(at, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	CHECK(m == at);
	memset(m, value, 4096);
	return m;
}

static bool all(const uint8_t *m, uint8_t value, unsigned len)
{
	unsigned i;

	for (i = 0; i < len && m[i] == value; i++)
		;
	return i == len;
}

/* The process that lets others in, until it is told to go on as another program. */
static int target(char *self, char *fd_text)
{
	int fd = atoi(fd_text);
	struct node n;
	uint32_t slot;
	char order;

	memory(OLD);
	node_open_as(&n, "auto", &open_ops);
	slot = net_slot(n.net);
	CHECK(write(fd, &slot, sizeof(slot)) == sizeof(slot));
	CHECK(!fcntl(fd, F_SETFL, O_NONBLOCK));
	while (read(fd, &order, 1) != 1)
		node_turn(&n);
	CHECK(!fcntl(fd, F_SETFL, 0));
	CHECK(all((void *)PLACE, 0x33, LEN)); /* what we were to find */
	execl(self, "peer", "next", fd_text, (char *)NULL);
	return 1;
}

static int next_program(int fd)
{
	uint8_t *m = memory(NEXT);
	char order = 0;

	CHECK(write(fd, &order, 1) == 1 && read(fd, &order, 1) == 1);
	/* the one byte that was written without Faultline, so that we know that it could be */
	CHECK(m[LEN] == 0x44);
	CHECK(all(m, NEXT, LEN));
	return 0;
}

static pid_t start(char *self, int *fd)
{
	char text[16];
	int sv[2];
	pid_t pid;

	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, sv) && !fcntl(sv[0], F_SETFD, FD_CLOEXEC));
	snprintf(text, sizeof(text), "%d", sv[1]);
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execl(self, "peer", "target", text, (char *)NULL);
		_exit(127);
	}
	close(sv[1]);
	*fd = sv[0];
	return pid;
}

static struct net_peer *let_in(struct node *n, struct net_path *path)
{
	struct net_peer *peer = NULL;

	CHECK(TURN_UNTIL(n, (peer = net_path_peer(path)), 10000));
	return peer;
}

static void bad_offer(struct node *n)
{
	struct slot_offer msg = {.type = SLOT_MSG_OFFER, .version = SLOT_OFFER_VERSION};
	char log[] = "/tmp/faultline-peer-XXXXXX", said[1024] = "", who[32];
	int fd = mkstemp(log), none = open("/dev/null", O_RDWR | O_CLOEXEC), listener, sock;
	struct net_path *path;
	uint32_t slot;

	listener = slot_claim(&slot);
	CHECK(fd >= 0 && none >= 0 && listener >= 0);
	setenv("VERBS_LOG_FILE", log, 1);
	setenv("FAULTLINE_LOG", "info", 1);
	fl_log_init();
	path = path_to(n, slot);
	sock = usock_accept(listener);
	CHECK(sock >= 0 && !usock_send(sock, &msg, sizeof(msg), (int[]){none, none}, 2));
	CHECK(TURN_UNTIL(n, pread(fd, said, sizeof(said) - 1, 0) > 0 && strstr(said, "no direct placement"), 10000));
	snprintf(who, sizeof(who), "process %d ", getpid());
	CHECK(strstr(said, who));
	net_path_close(path);
	close(sock);
	close(listener);
	close(none);
	close(fd);
	unlink(log);
	unsetenv("VERBS_LOG_FILE"); /* the process that we start would make it anew */
	unsetenv("FAULTLINE_LOG");
	fl_log_init();
}

int main(int argc, char **argv)
{
	static char self[] = "/proc/self/exe";
	uint8_t data[LEN], byte = 0x44;
	struct iovec local = {&byte, 1}, remote = {(void *)(PLACE + LEN), 1};
	struct net_path *path;
	struct net_peer *peer;
	struct node me;
	uint32_t slot;
	int fd, status;
	pid_t pid;

	if (argc == 3)
		return !strcmp(argv[1], "target") ? target(self, argv[2]) : next_program(atoi(argv[2]));
	private_net();
	node_open(&me, "auto");
	bad_offer(&me);
	pid = start(self, &fd);
	CHECK(read(fd, &slot, sizeof(slot)) == sizeof(slot));
	path = path_to(&me, slot);
	if (process_vm_readv(pid, &local, 1, &remote, 1, 0) != 1) {
		printf("skipped: a process may not reach into another here (ptrace_scope?)\n");
		kill(pid, SIGKILL);
		return SKIP;
	}
	byte = 0x44;
	peer = let_in(&me, path);
	/* what we have mapped of the other is not reached through us */
	CHECK(mm_is_private((uintptr_t)peer->segment, (uintptr_t)peer->segment + 1));
	CHECK(mm_is_private((uintptr_t)peer->peers, (uintptr_t)peer->peers + 1));
	CHECK(!net_peer_access(peer, false, data, PLACE, LEN) && all(data, OLD, LEN));
	memset(data, 0x33, LEN);
	CHECK(!net_peer_access(peer, true, data, PLACE, LEN));
	CHECK(!net_peer_access(peer, true, data, PLACE + 64, 3)); /* shorter than the piece that goes last */
	/* a hole is told of, and so is memory that ends amid */
	CHECK(net_peer_access(peer, true, data, PLACE + 4096 - 50, LEN) == -EFAULT);
	CHECK(net_peer_access(peer, false, data, PLACE + 8192, LEN) == -EFAULT);

	/* amid an access of ours the other becomes another program */
	CHECK(write(fd, "x", 1) == 1 && read(fd, data, 1) == 1);
	CHECK(process_vm_writev(pid, &local, 1, &remote, 1, 0) == 1);
	memset(data, 0x55, LEN);
	CHECK(net_peer_access(peer, true, data, PLACE, LEN));
	CHECK(net_peer_access(peer, false, data, PLACE, LEN));
	CHECK(write(fd, "x", 1) == 1);
	CHECK(waitpid(pid, &status, 0) == pid && !status);
	CHECK(net_peer_access(peer, true, data, PLACE, LEN) == -ESRCH);
	net_peer_done(peer);

	CHECK(TURN_UNTIL(&me, !(peer = net_path_peer(path)) || (net_peer_done(peer), false), 10000));
	net_path_close(path);
	node_close(&me);
	return 0;
}
