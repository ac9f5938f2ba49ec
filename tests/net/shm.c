/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Paths between processes of a host: loop, two processes with traffic both ways and sleeping engines, back
 * pressure, a peer that is killed and comes back, another user's process, a `stat` client, a stranger
 * at the door, a peer that means no good.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/un.h>
#include <sys/eventfd.h>
#include "node.h"
#include "net/impl.h"

static struct node me;

static unsigned count_dir(const char *path)
{
	DIR *d = opendir(path);
	unsigned n = 0;

	CHECK(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static int fill_fails(void *arg, uint8_t *dst, uint32_t off, uint32_t len)
{
	return -EFAULT;
}

static void loop(void)
{
	struct net_path *path;
	uint32_t psn = 0xfffff0, i, len;
	bool full = false;
	struct roce_pkt failing = {.opcode = IBV_OPCODE_RC_SEND_ONLY, .npkts = 1, .payload_len = 8};

	node_open(&me, "udp"); /* a process reaches itself by its ring whatever the setting */
	me.psn = psn;
	path = path_to(&me, net_slot(me.net));
	CHECK(!strcmp(net_path_link(path), "loop"));
	for (i = 0; i < 3000; i++) {
		len = i * 2654435761u % (net_path_max_train(path) + 1);
		while (send_write(path, make_qpn(net_slot(me.net), 18), &psn, len, 1024) == -EAGAIN) {
			full = true;
			CHECK(node_turn(&me) > 0);
		}
	}
	while (node_turn(&me))
		;
	CHECK(full && me.ready && !me.bad && me.psn == psn);
	CHECK(me.last.va == 0x1234 && me.last.rkey == 5 && me.last.ackreq);

	/* fill fails: its error, and nothing is sent */
	me.pkts = 0;
	CHECK(net_xmit(path, &failing, fill_fails, NULL) == -EFAULT);
	CHECK(!node_turn(&me) && !me.pkts);

	/* asleep: a send makes the descriptor readable, once per sleep */
	struct pollfd pfd = {.fd = net_fd(me.net), .events = POLLIN};

	net_service(me.net);
	CHECK(net_prepare_sleep(me.net));
	CHECK(me.seg.s->asleep && poll(&pfd, 1, 0) == 0);
	CHECK(!send_write(path, make_qpn(net_slot(me.net), 18), &psn, 8, 1024));
	CHECK(poll(&pfd, 1, 1000) == 1);
	net_awake(me.net);
	CHECK(!me.seg.s->asleep);
	CHECK(node_turn(&me) == 1);
	CHECK(poll(&pfd, 1, 0) == 0);
	/* awake: no wake-up is sent */
	CHECK(!send_write(path, make_qpn(net_slot(me.net), 18), &psn, 8, 1024));
	CHECK(poll(&pfd, 1, 0) == 0);
	CHECK(!net_prepare_sleep(me.net)); /* there is work */
	CHECK(node_turn(&me) == 1);
	net_path_close(path);
	node_close(&me);
}

/* sleeps as an engine does; the peer must wake us */
static void engine_sleep(struct node *n)
{
	struct pollfd pfd = {.fd = net_fd(n->net), .events = POLLIN};

	if (!net_prepare_sleep(n->net))
		return;
	CHECK(poll(&pfd, 1, 10000) == 1);
	net_awake(n->net);
}

#define PINGS 2000

/* Echoes a packet for each that comes; tells its slot through fd. */
static void echo_child(int fd, const char *link, bool sleepy)
{
	struct net_path *path;
	struct node n;
	uint32_t slot, psn = 0, seen = 0;
	int i;

	node_open(&n, link);
	slot = net_slot(n.net);
	CHECK(write(fd, &slot, 4) == 4);
	CHECK(read(fd, &slot, 4) == 4);
	path = path_to(&n, slot);
	for (;;) {
		for (i = 0; i < 200 && n.pkts == seen; i++)
			node_turn(&n);
		if (n.pkts == seen && sleepy)
			engine_sleep(&n);
		for (; seen < n.pkts; seen++) {
			while (send_write(path, make_qpn(slot, 17), &psn, seen % 5000 % 1024, 1024) == -EAGAIN)
				node_turn(&n);
		}
		if (n.bad)
			_exit(3);
	}
}

static pid_t spawn_echo(uint32_t *slot, const char *link, bool sleepy, int *out_fd)
{
	int sv[2];
	pid_t pid;

	CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv));
	pid = fork();
	if (!pid) {
		if (me.net)
			net_fork_child(me.net);
		close(sv[0]);
		echo_child(sv[1], link, sleepy);
	}
	close(sv[1]);
	CHECK(read(sv[0], slot, 4) == 4);
	*out_fd = sv[0];
	return pid;
}

static void reap(pid_t pid)
{
	int status;

	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void two_processes(bool sleepy)
{
	struct net_path *path;
	uint32_t slot, mine, psn = 0, i;
	pid_t pid;
	int fd;

	node_open(&me, "auto");
	pid = spawn_echo(&slot, "auto", sleepy, &fd);
	mine = net_slot(me.net);
	CHECK(slot != mine);
	CHECK(write(fd, &mine, 4) == 4);
	path = path_to(&me, slot);
	CHECK(!strcmp(net_path_link(path), "shm"));
	for (i = 1; i <= PINGS; i++) {
		CHECK(!send_write(path, make_qpn(slot, 18), &psn, i % 1024, 1024));
		if (sleepy) {
			uint64_t end = test_now() + 10000000000ull;

			while (me.pkts != i && test_now() < end) {
				if (!node_turn(&me))
					engine_sleep(&me);
			}
			CHECK(me.pkts == i);
		} else {
			CHECK(TURN_UNTIL(&me, me.pkts == i, 10000));
		}
	}
	CHECK(!me.bad);
	CHECK(!kill(pid, SIGKILL));
	reap(pid);
	close(fd);
	net_path_close(path);
	node_close(&me);
}

/*
 * The peer does not take anything: -EAGAIN; it is killed: the path takes (and loses) packets again, within a
 * moment, and tells. Another process gets its slot's place only by a new connection.
 */
static void killed_peer(void)
{
	struct net_path *path;
	uint32_t slot, psn = 0, i, mine;
	unsigned long lost;
	pid_t pid;
	int fd;

	node_open(&me, "auto");
	pid = spawn_echo(&slot, "auto", false, &fd); /* waits for our slot, so it takes nothing */
	path = path_to(&me, slot);
	for (i = 0; i < 1000 && !send_write(path, make_qpn(slot, 18), &psn, 60000, 4096); i++)
		;
	CHECK(i > 4 && i < 1000);
	node_turn(&me);
	CHECK(!me.ready);
	CHECK(!kill(pid, SIGKILL));
	reap(pid);
	close(fd);
	CHECK(TURN_UNTIL(&me, me.ready, 2000));
	lost = me.stat.counter[FL_CNT_send_err];
	for (i = 0; i < 10; i++)
		CHECK(!send_write(path, make_qpn(slot, 18), &psn, 60000, 4096));
	CHECK(me.stat.counter[FL_CNT_send_err] == lost + 10);
	usleep(60000);
	CHECK(!send_write(path, make_qpn(slot, 18), &psn, 8, 4096));
	CHECK(me.kicks); /* asked for service: a new connection is due */
	node_turn(&me);
	CHECK(!send_write(path, make_qpn(slot, 18), &psn, 8, 4096));
	net_path_close(path);

	/* nobody there at all: no error, all is lost */
	mine = net_slot(me.net);
	path = path_to(&me, mine == 1 ? 2 : mine - 1);
	CHECK(!send_write(path, 18, &psn, 8, 4096));
	net_path_close(path);
	node_close(&me);
}

/* A peer that starts later at the slot we send to is found. */
static void late_peer(void)
{
	struct net_path *path;
	uint32_t psn = 0, slot, mine;
	struct node later;

	node_open(&later, "auto");
	slot = net_slot(later.net);
	node_close(&later);

	node_open(&me, "auto"); /* takes the same number, as this is the same process */
	CHECK(net_slot(me.net) == slot);
	mine = slot;
	slot = slot % FAULTLINE_MAX_SLOT + 1;
	path = path_to(&me, slot);
	CHECK(!send_write(path, make_qpn(slot, 18), &psn, 8, 1024));
	node_open(&later, "auto"); /* the next */
	if (net_slot(later.net) == slot) {
		later.psn = psn + 1;
		usleep(60000);
		CHECK(!send_write(path, make_qpn(slot, 18), &psn, 8, 1024)); /* lost, and asks */
		node_turn(&me);
		later.psn = psn;
		CHECK(!send_write(path, make_qpn(slot, 18), &psn, 8, 1024));
		CHECK(TURN_UNTIL(&later, later.pkts == 1, 2000));
		CHECK(!later.bad);
	}
	CHECK(mine != slot);
	net_path_close(path);
	node_close(&later);
	node_close(&me);
}

static int dial(uint32_t slot)
{
	struct sockaddr_un sun = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	int n = snprintf(sun.sun_path + 1, 64, FAULTLINE_SOCKET_PREFIX "%u", slot);

	CHECK(fd >= 0);
	CHECK(!connect(fd, (struct sockaddr *)&sun, offsetof(struct sockaddr_un, sun_path) + 1 + n));
	return fd;
}

/* `faultline stat`: one byte, one descriptor, read only */
static void stat_client(void)
{
	union {
		char buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	char byte;
	struct iovec iov = {&byte, 1};
	struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.buf,
			    .msg_controllen = sizeof(control.buf)};
	const struct faultline_segment *peer;
	int fd, got;

	node_open(&me, "auto");
	fd = dial(net_slot(me.net));
	CHECK(write(fd, "S", 1) == 1);
	net_service(me.net);
	CHECK(recvmsg(fd, &mh, MSG_DONTWAIT) == 1 && CMSG_FIRSTHDR(&mh));
	memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&mh)), sizeof(got));
	CHECK(!seg_map_peer(got, &peer));
	CHECK(peer->pid == (uint32_t)getpid() && peer->slot == net_slot(me.net));
	seg_unmap_peer(peer);
	CHECK((fcntl(got, F_GETFL) & O_ACCMODE) == O_RDONLY);
	close(got);
	close(fd);

	/* strangers: nonsense, a connect without descriptors, silence; all are shown out or left alone */
	fd = dial(net_slot(me.net));
	CHECK(write(fd, "nonsense", 8) == 8);
	net_service(me.net);
	CHECK(read(fd, &byte, 1) == 0);
	close(fd);
	fd = dial(net_slot(me.net));
	CHECK(write(fd, "C\1\0\0\5\0\0\0", 8) == 8);
	net_service(me.net);
	CHECK(read(fd, &byte, 1) == 0);
	close(fd);
	fd = dial(net_slot(me.net));
	net_service(me.net);
	close(fd);
	net_service(me.net);
	CHECK(node_turn(&me) == 0);
	node_close(&me);
}

/* Connects to us as a peer would, with the descriptors it is given. */
static int connect_as_peer(int memfd, int data_fd, int space_fd)
{
	struct slot_connect msg = {.type = SLOT_MSG_CONNECT, .version = SLOT_CONNECT_VERSION, .slot = 3};
	int fds[3] = {memfd, data_fd, space_fd}, fd = dial(net_slot(me.net));

	CHECK(!usock_send(fd, &msg, sizeof(msg), fds, 3));
	net_service(me.net);
	return fd;
}

static bool shown_out(int fd)
{
	char byte;
	bool out = recv(fd, &byte, 1, MSG_DONTWAIT) == 0;

	close(fd);
	return out;
}

/* A peer of our own user that means no good: it loses its connection, and nothing else happens. */
static void hostile_peer(void)
{
	int data = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), space = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	int fd, memfd, p[2], plain = memfd_create("x", MFD_CLOEXEC);
	struct roce_pkt pkt = {.opcode = IBV_OPCODE_RC_SEND_ONLY, .npkts = 1};
	uint8_t line[REC_LINE];
	struct ring_tx tx;
	uint32_t off, len, i;

	node_open(&me, "auto");
	CHECK(!pipe(p) && !ftruncate(plain, RING_HEADER + RING_BYTES));
	memfd = ring_create();
	CHECK(shown_out(connect_as_peer(plain, data, space))); /* could be shrunk under us */
	CHECK(shown_out(connect_as_peer(memfd, data, p[1])));  /* a write to it could block */
	CHECK(shown_out(connect_as_peer(data, data, space)));

	/* a good packet, one whose headers are wrong, a good one, and a record that cannot be */
	fd = connect_as_peer(memfd, data, space);
	CHECK(!ring_tx_attach(&tx, memfd, data));
	len = train_encode(&pkt, line, &off);
	for (i = 0; i < 4; i++) {
		CHECK(ring_reserve(&tx, len));
		line[16] = i == 1 ? 0xff : IBV_OPCODE_RC_SEND_ONLY;
		line[0] = i == 3 ? 7 : len;
		ring_publish(&tx, len, line);
	}
	while (node_turn(&me))
		;
	CHECK(me.pkts == 2 && me.stat.counter[FL_CNT_rx_malformed] == 1);
	node_turn(&me);
	CHECK(shown_out(fd));
	ring_publish(&tx, 64, line); /* what it writes now goes nowhere */
	CHECK(!node_turn(&me));
	ring_tx_detach(&tx);
	close(memfd);
	close(plain);
	close(data);
	close(space);
	close(p[0]);
	close(p[1]);
	node_close(&me);
}

/* Without a descriptor to spare a connection is refused, not left to keep us awake. */
static void out_of_descriptors(void)
{
	struct pollfd pfd = {.events = POLLIN};
	struct rlimit old, low;
	int fd;

	node_open(&me, "auto");
	fd = dial(net_slot(me.net));
	CHECK(!getrlimit(RLIMIT_NOFILE, &old));
	low = old;
	low.rlim_cur = fd + 1;
	CHECK(!setrlimit(RLIMIT_NOFILE, &low));
	net_service(me.net);
	pfd.fd = net_fd(me.net);
	CHECK(poll(&pfd, 1, 0) == 0);
	CHECK(!setrlimit(RLIMIT_NOFILE, &old));
	CHECK(shown_out(fd));
	/* and the next one is welcome */
	fd = dial(net_slot(me.net));
	CHECK(write(fd, "S", 1) == 1);
	net_service(me.net);
	CHECK(!shown_out(fd));
	net_service(me.net);
	node_close(&me);
}

/* Descriptors that came and could not be taken: said, with the limit, and not as a peer's fault. */
static void no_room_for_descriptors(void)
{
	int sv[2], said[2], err, fds[USOCK_MAX_FDS], num, sent[2] = {0, 1};
	struct rlimit old, low;
	char text[512] = "";

	CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sv) && !pipe(said));
	err = dup(2);
	CHECK(err >= 0 && dup2(said[1], 2) == 2);
	CHECK(!usock_send(sv[0], "C", 1, sent, 2));
	CHECK(!getrlimit(RLIMIT_NOFILE, &old));
	low = old;
	low.rlim_cur = err + 2; /* for one of the two */
	CHECK(!setrlimit(RLIMIT_NOFILE, &low));
	CHECK(usock_recv(sv[1], text, 1, fds, &num) == -EMFILE);
	CHECK(!setrlimit(RLIMIT_NOFILE, &old));
	CHECK(dup2(err, 2) == 2 && !close(err) && !close(said[1]));
	CHECK(num == 0 && read(said[0], text, sizeof(text) - 1) > 0 && strstr(text, "ulimit -n"));
	CHECK(!close(said[0]) && !close(sv[0]) && !close(sv[1]));
}

/* Another user's process: not over shm; nor does it get anything from our socket. */
static void other_user(void)
{
	uint32_t slot;
	int status;
	pid_t pid;

	if (geteuid()) {
		fprintf(stderr, "not root: no other user to be, this part is left out\n");
		return;
	}
	node_open(&me, "auto");
	slot = net_slot(me.net);
	pid = fork();
	if (!pid) {
		struct node n;
		struct net_path *path;
		char byte;
		int fd;

		net_fork_child(me.net);
		CHECK(!setgid(65534) && !setuid(65534));
		fd = dial(slot);
		if (write(fd, "S", 1) == 1)
			CHECK(read(fd, &byte, 1) <= 0);
		close(fd);
		node_open(&n, "auto");
		path = path_to(&n, slot);
		CHECK(!strcmp(net_path_link(path), "udp"));
		net_path_close(path);
		node_close(&n);
		_exit(0);
	}
	CHECK(TURN_UNTIL(&me, waitpid(pid, &status, WNOHANG) == pid, 10000));
	CHECK(WIFEXITED(status) && !WEXITSTATUS(status));
	node_close(&me);
}

int main(void)
{
	unsigned fds = count_dir("/proc/self/fd"), shm = count_dir("/dev/shm");

	private_net();
	loop();
	two_processes(false);
	two_processes(true);
	killed_peer();
	late_peer();
	stat_client();
	hostile_peer();
	out_of_descriptors();
	no_room_for_descriptors();
	other_user();
	CHECK(count_dir("/proc/self/fd") == fds);
	CHECK(count_dir("/dev/shm") == shm);
	return 0;
}
