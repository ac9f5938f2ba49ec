/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A GPU's process and a NIC's: this one has the devices, allocates, and sends the descriptors; its peer registers what it
 * is sent. Meanwhile this one, which is a NIC of its own too, WRITEs and READs the peer's regions, and moves, evicts and
 * revokes the memory behind them. Every byte is checked from the device's side. Last the peer is killed.
 */
#include <faultline/dmabuf.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "rc.h"

#define SIZE (40 * PAGE)
#define OFF  (PAGE + 64) /* of the region in the buffer */
#define LEN  (SIZE - 3 * PAGE)
#define IOVA (7 * PAGE + 64)

#define ENV "E2E_DMABUF_SOCK" /* by which the descriptors go */

static enum { NONE, DYNAMIC, PINNED, REVOCABLE } nic;

/* ---- the peer ---- */

enum own { REG, DEREG, LEFT };

static int receive(void)
{
	char control[CMSG_SPACE(sizeof(int))], byte;
	struct iovec iov = {.iov_base = &byte, .iov_len = 1};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
	int fd = -1;

	CHECK(recvmsg(atoi(getenv(ENV)), &m, MSG_CMSG_CLOEXEC) == 1 && CMSG_FIRSTHDR(&m), "no descriptor");
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(int));
	return fd;
}

static uint64_t left(void)
{
	struct faultline_dmabuf_totals t;

	CHECK(!faultline_dmabuf_totals(&t), "totals");
	return t.buffers + t.attachments + t.maps + t.pins + t.rule_breaks;
}

static void peer_own(struct rc_side *s, struct rc_msg *m)
{
	static struct ibv_mr *mr[2];
	uint64_t i = m->arg[1];
	int fd;

	switch ((enum own)m->arg[0]) {
	case REG:
		fd = receive();
		mr[i] = ibv_reg_dmabuf_mr(s->pd, OFF, LEN, IOVA, fd, (int)m->arg[2]);
		m->arg[0] = mr[i] ? 0 : (uint64_t)errno;
		m->arg[1] = mr[i] ? mr[i]->rkey : 0;
		close(fd);
		break;
	case DEREG:
		m->arg[0] = (uint64_t)ibv_dereg_mr(mr[i]);
		break;
	case LEFT:
		m->arg[0] = left();
	}
}

/* ---- this side ---- */

static struct rc_side s;
static struct rc_peer *peer;
static int sock;
static uint8_t *buf;
static struct ibv_mr *buf_mr;
static int access_flags;

#define THERE(...) rc_call(peer, RC_OWN, __VA_ARGS__)

static void send_to_peer(int fd)
{
	char control[CMSG_SPACE(sizeof(int))] = {0}, byte = 'f';
	struct iovec iov = {.iov_base = &byte, .iov_len = 1};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(int));
	CHECK(sendmsg(sock, &m, 0) == 1, "sendmsg: %s", strerror(errno));
}

/* 0 and the key, or an errno */
static uint64_t reg(unsigned i, int fd, uint32_t *rkey)
{
	struct rc_msg m = {.op = RC_OWN, .arg = {REG, i, (uint64_t)access_flags}};

	send_to_peer(fd);
	m = rc_call_msg(peer, m);
	*rkey = (uint32_t)m.arg[1];
	return m.arg[0];
}

static void device_fill(int fd, uint64_t off, uint64_t len, uint64_t seed)
{
	uint8_t *copy = malloc(len);

	rc_fill(copy, len, off, seed);
	CHECK(!faultline_dmabuf_write(fd, off, copy, len), "from the device's side");
	free(copy);
}

static void device_check(const char *what, int fd, uint64_t off, uint64_t len, uint64_t seed)
{
	uint8_t *copy = malloc(len);
	uint64_t at;

	CHECK(!faultline_dmabuf_read(fd, copy, off, len), "from the device's side");
	at = rc_differs(copy, len, off, seed);
	CHECK(at == UINT64_MAX, "%s: wrong byte at %lu", what, (unsigned long)at);
	free(copy);
}

static enum ibv_wc_status rdma(enum ibv_wr_opcode opcode, uint64_t off, uint32_t len, uint32_t rkey)
{
	CHECK(!rc_post(&s, opcode, (uintptr_t)buf + off, len, buf_mr->lkey, IOVA + off, rkey), "post");
	return rc_wait(&s);
}

static struct faultline_dmabuf_info info(int fd)
{
	struct faultline_dmabuf_info i;

	CHECK(!faultline_dmabuf_info(fd, &i), "info");
	return i;
}

/* one round: WRITE, seen by the device; what the device writes, by READ */
static void round_trip(int fd, uint32_t rkey, uint64_t seed)
{
	uint32_t at = 1001 + (uint32_t)seed % 977, n = LEN - 4000 - (uint32_t)seed % 1024;
	uint64_t wrong;

	rc_fill(buf + at, n, OFF + at, seed);
	CHECK(rdma(IBV_WR_RDMA_WRITE, at, n, rkey) == IBV_WC_SUCCESS, "WRITE");
	device_check("WRITE", fd, OFF + at, n, seed);
	device_fill(fd, OFF + at, n, seed + 1);
	memset(buf, 0, LEN);
	CHECK(rdma(IBV_WR_RDMA_READ, at, n, rkey) == IBV_WC_SUCCESS, "READ");
	wrong = rc_differs(buf + at, n, OFF + at, seed + 1);
	CHECK(wrong == UINT64_MAX, "READ: wrong byte at %lu", (unsigned long)wrong);
}

/* ---- somebody moves it meanwhile ---- */

struct mover {
	struct faultline_dmabuf_device *dev;
	int fd, stop;
	unsigned long moves, busy;
};

static void *mover_thread(void *arg)
{
	struct mover *m = arg;

	for (unsigned i = 0; !__atomic_load_n(&m->stop, __ATOMIC_RELAXED); i++) {
		int other, err;

		if (i % 3) {
			err = faultline_dmabuf_move(m->fd, i & 1 ? FAULTLINE_DMABUF_DEVICE : FAULTLINE_DMABUF_SYSTEM);
		} else { /* by who wants all the room */
			err = faultline_dmabuf_alloc(m->dev, SIZE + 8 * PAGE, 0, &other);
			if (!err)
				close(other);
		}
		CHECK(!err || err == EBUSY || err == ENOMEM, "a move: %s", strerror(err));
		__atomic_fetch_add(err ? &m->busy : &m->moves, 1, __ATOMIC_RELAXED);
		usleep(300);
	}
	return NULL;
}

static void moved_meanwhile(struct faultline_dmabuf_device *dev, int fd, uint32_t rkey)
{
	struct mover m = {.dev = dev, .fd = fd};
	unsigned long *some = nic == DYNAMIC ? &m.moves : &m.busy;
	pthread_t t;
	unsigned n;

	CHECK(!pthread_create(&t, NULL, mover_thread, &m), "thread");
	for (n = 0; n < 20 || __atomic_load_n(some, __ATOMIC_RELAXED) < 8; n++)
		round_trip(fd, rkey, 100 + n);
	__atomic_store_n(&m.stop, 1, __ATOMIC_RELAXED);
	pthread_join(t, NULL);
	if (nic == DYNAMIC)
		CHECK(info(fd).moves >= 8, "it did not move");
	else
		CHECK(!info(fd).moves && info(fd).pins == 1, "it is pinned there, and moved");
}

static void vram(struct faultline_dmabuf_device *dev, int fd, uint32_t rkey)
{
	struct faultline_dmabuf_device_info d;
	uint64_t want = nic == DYNAMIC ? 0 : EBUSY;

	CHECK((uint64_t)faultline_dmabuf_move(fd, FAULTLINE_DMABUF_SYSTEM) == want, "a move is not %s", strerror((int)want));
	round_trip(fd, rkey, 50);
	moved_meanwhile(dev, fd, rkey);
	CHECK(!faultline_dmabuf_device_info(dev, &d) && !d.stale, "somebody did not unmap");
}

static void vfio(int fd, uint32_t rkey)
{
	CHECK(!faultline_dmabuf_revoke(fd), "revoke");
	CHECK(!info(fd).maps && !info(fd).pins, "it is mapped still, or pinned");
	CHECK(rdma(IBV_WR_RDMA_WRITE, 0, 64, rkey) == IBV_WC_REM_ACCESS_ERR, "the key lives");
	rc_connect_peer(&s, peer, &rc_default);
}

static void one_kind(enum faultline_dmabuf_kind kind)
{
	struct faultline_dmabuf_device_attr attr = {.kind = kind, .size = SIZE + 16 * PAGE};
	uint64_t want = kind == FAULTLINE_DMABUF_VFIO && nic == PINNED ? EOPNOTSUPP : 0, err;
	struct faultline_dmabuf_device *dev;
	uint32_t rkey[2];
	int fd;

	CHECK(!faultline_dmabuf_open(&attr, &dev) && !faultline_dmabuf_alloc(dev, SIZE, 0, &fd), "device memory");
	device_fill(fd, 0, SIZE, 7);
	err = reg(0, fd, &rkey[0]);
	CHECK(err == want, "kind %d: %s", kind, strerror((int)err));
	if (!err) {
		round_trip(fd, rkey[0], 20);
		device_check("before the region", fd, 0, OFF, 7);
		/* a second region on it, for a while */
		CHECK(!reg(1, fd, &rkey[1]), "a second region");
		round_trip(fd, rkey[1], 30);
		CHECK(!THERE(DEREG, 1), "ibv_dereg_mr");
		round_trip(fd, rkey[0], 40);
		if (kind == FAULTLINE_DMABUF_VRAM)
			vram(dev, fd, rkey[0]);
		if (kind == FAULTLINE_DMABUF_VFIO)
			vfio(fd, rkey[0]);
		CHECK(!THERE(DEREG, 0), "ibv_dereg_mr");
	}
	CHECK(!info(fd).attachments, "it is attached still");
	CHECK(!close(fd) && !faultline_dmabuf_close(dev), "the buffer is in use still");
	CHECK(!left() && !THERE(LEFT), "something is left");
}

/* ---- the end of the peer ---- */

static void peer_killed(void)
{
	struct faultline_dmabuf_device_attr attr = {.kind = FAULTLINE_DMABUF_VRAM};
	struct faultline_dmabuf_totals t = {0};
	struct faultline_dmabuf_device *dev;
	double end = rc_now() + 20;
	uint32_t rkey;
	int fd;

	CHECK(!faultline_dmabuf_open(&attr, &dev) && !faultline_dmabuf_alloc(dev, SIZE, 0, &fd), "device memory");
	CHECK(!reg(0, fd, &rkey), "ibv_reg_dmabuf_mr");
	round_trip(fd, rkey, 60);
	CHECK(!kill(rc_peer_pid(peer), SIGKILL) && waitpid(rc_peer_pid(peer), NULL, 0) > 0, "kill");
	while (!t.importers_ended && rc_now() < end)
		CHECK(!faultline_dmabuf_totals(&t), "totals");
	CHECK(t.importers_ended == 1 && !t.attachments && !t.maps && !t.pins, "%lu ended, %lu attached", t.importers_ended,
	      t.attachments);
	CHECK(!faultline_dmabuf_move(fd, FAULTLINE_DMABUF_SYSTEM), "it does not move");
	device_check("after its end", fd, OFF + 1001 + 60, LEN - 4000 - 60, 61);
	close(fd);
	while (faultline_dmabuf_close(dev) && rc_now() < end)
		usleep(1000);
	CHECK(!left(), "something is left");
}

int main(int argc, char **argv)
{
	const char *name;
	int pair[2];

	rc_own = peer_own;
	rc_main(argc, argv);
	CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), "socketpair");
	sock = pair[0];
	setenv(ENV, (char[]){(char)('0' + pair[1] / 10), (char)('0' + pair[1] % 10), 0}, 1);
	rc_open(&s);
	peer = rc_peer_start();
	if (!rc_peer_is_process(peer))
		rc_skip("needs a peer in another process: E2E_LINK=shm or udp");
	name = ibv_get_device_name(s.ctx->device);
	nic = !strncmp(name, "mlx5", 4) ? DYNAMIC : !strncmp(name, "irdma", 5) ? REVOCABLE : PINNED;
	access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	buf = rc_map(LEN);
	buf_mr = rc_reg(&s, buf, LEN, IBV_ACCESS_LOCAL_WRITE);
	rc_connect_peer(&s, peer, &rc_default);
	for (int kind = FAULTLINE_DMABUF_MEMFD; kind <= FAULTLINE_DMABUF_VFIO; kind++)
		one_kind((enum faultline_dmabuf_kind)kind);
	peer_killed();
	return 0;
}
