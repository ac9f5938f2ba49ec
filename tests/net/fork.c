/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fork() while another thread connects to a peer and leaves it again: the child, which undoes what it has a copy of,
 * finds all of it whole. Argument: seconds.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include "mm/mm.h"
#include "node.h"

static bool joined(void *ctx, uint32_t slot, int sock)
{
	return true;
}

static void left(void *ctx, uint32_t slot, int sock)
{
}

static const struct net_ops open_ops = {.rx = node_rx, .tx_ready = node_ready, .kick = node_kick,
					.peer_joined = joined, .peer_left = left};

static struct node me;
static uint32_t peer_slot;
static _Atomic bool stop;
static _Atomic unsigned leaves; /* how often it was about to */

/* lets others in, and waits */
static pid_t start_peer(void)
{
	struct pollfd pfd = {.events = POLLIN};
	struct node n;
	int fd[2];
	pid_t pid;

	CHECK(!pipe(fd));
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		node_open_as(&n, "auto", &open_ops);
		peer_slot = net_slot(n.net);
		CHECK(write(fd[1], &peer_slot, sizeof(peer_slot)) == sizeof(peer_slot));
		pfd.fd = net_fd(n.net);
		for (;;) {
			node_turn(&n);
			if (net_prepare_sleep(n.net))
				poll(&pfd, 1, -1);
			net_awake(n.net);
		}
	}
	CHECK(read(fd[0], &peer_slot, sizeof(peer_slot)) == sizeof(peer_slot));
	close(fd[0]);
	close(fd[1]);
	return pid;
}

static void *come_and_go(void *unused)
{
	struct net_peer *peer;
	struct net_path *path;

	while (!atomic_load(&stop)) {
		path = path_to(&me, peer_slot);
		CHECK(TURN_UNTIL(&me, (peer = net_path_peer(path)), 20000));
		net_peer_done(peer);
		atomic_fetch_add(&leaves, 1);
		net_path_close(path);
	}
	return NULL;
}

static void fork_once(void)
{
	unsigned before = atomic_load(&leaves);
	int status;
	pid_t pid;

	while (atomic_load(&leaves) == before)
		sched_yield();
	net_fork_begin(me.net);
	pid = fork();
	CHECK(pid >= 0);
	net_fork_end(me.net);
	if (!pid) {
		mm_fork_child();
		net_fork_child(me.net);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	if (status) {
		fprintf(stderr, "the child of a fork() ended with status %#x\n", status);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	uint64_t end = test_now() + (uint64_t)((argc > 1 ? atof(argv[1]) : 2) * 1e9);
	unsigned forks = 0;
	pthread_t thread;
	pid_t peer;

	alarm(60); /* a child that waits for ever fails */
	private_net();
	peer = start_peer();
	node_open(&me, "auto");
	CHECK(!pthread_create(&thread, NULL, come_and_go, NULL));
	while (test_now() < end) {
		fork_once();
		forks++;
	}
	atomic_store(&stop, true);
	pthread_join(thread, NULL);
	kill(peer, SIGKILL);
	node_close(&me);
	printf("%u forks, %u connections\n", forks, atomic_load(&leaves));
	return 0;
}
