/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The files that the kernel would have for the devices, in a directory of their own, for as long as the program
 * runs: preload/sysfs.c lets it find them at their usual places. They are laid out as the kernel's (below
 * /sys/devices, with links from /sys/class), say what verbs say, and are not kept up to date.
 *
 * Who is killed leaves its directory behind. So each holds a lock on its own, and who comes next removes those of
 * this user that nobody holds.
 */
#include "cli/cli.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "core/core.h"

#define PREFIX "faultline-sysfs."

/* ---- writing ---- */

/* path: of a file in the tree; makes the directories above it */
static int make_above(char *path, size_t root)
{
	for (char *p = path + root + 1; (p = strchr(p, '/')); *p++ = '/') {
		*p = '\0';
		if (mkdir(path, 0755) && errno != EEXIST)
			return -errno;
	}
	return 0;
}

static int place(const struct sysfs *s, char path[PATH_MAX], const char *fmt, va_list ap)
{
	size_t root = strlen(s->root);
	int n;

	memcpy(path, s->root, root);
	path[root] = '/';
	n = vsnprintf(path + root + 1, PATH_MAX - root - 1, fmt, ap);
	return n < 0 || (size_t)n >= PATH_MAX - root - 1 ? -ENAMETOOLONG : make_above(path, root);
}

/* Both: what went wrong first stays in s->err, and nothing is done after it. */
static void put(struct sysfs *s, const char *text, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void put(struct sysfs *s, const char *text, const char *fmt, ...)
{
	char path[PATH_MAX];
	va_list ap;
	FILE *f;

	if (s->err)
		return;
	va_start(ap, fmt);
	s->err = place(s, path, fmt, ap);
	va_end(ap);
	if (s->err)
		return;
	f = fopen(path, "we");
	if (!f) {
		s->err = -errno;
		return;
	}
	fprintf(f, "%s\n", text);
	fchmod(fileno(f), 0444);
	if (fclose(f))
		s->err = -errno;
}

static void put_link(struct sysfs *s, const char *to, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void put_link(struct sysfs *s, const char *to, const char *fmt, ...)
{
	char path[PATH_MAX];
	va_list ap;

	if (s->err)
		return;
	va_start(ap, fmt);
	s->err = place(s, path, fmt, ap);
	va_end(ap);
	if (!s->err && symlink(to, path))
		s->err = -errno;
}

/* ---- what is in them ---- */

static const char *groups_of_16(const uint8_t *bytes, size_t len, char buf[40])
{
	char *p = buf;

	for (size_t i = 0; i < len; i += 2)
		p += sprintf(p, "%s%02x%02x", i ? ":" : "", bytes[i], bytes[i + 1]);
	return buf;
}

/* "100 Gb/sec (4X EDR)" */
static void put_rate(struct sysfs *s, const struct hca_profile *p, const char *port)
{
	static const struct {
		uint8_t speed;
		const char *name;
		unsigned tenths; /* of Gb/s, of one lane */
	} speeds[] = {{1, "", 25},	{2, " DDR", 50},  {4, " QDR", 100},  {8, " FDR10", 100},
		      {16, " FDR", 140}, {32, " EDR", 250}, {64, " HDR", 500}, {128, " NDR", 1000}};
	static const unsigned widths[][2] = {{1, 1}, {2, 4}, {4, 8}, {8, 12}, {16, 2}};
	char text[64];

	for (size_t i = 0; i < sizeof(speeds) / sizeof(speeds[0]); i++) {
		for (size_t k = 0; k < sizeof(widths) / sizeof(widths[0]); k++) {
			unsigned rate = widths[k][1] * speeds[i].tenths;

			if (speeds[i].speed != p->active_speed || widths[k][0] != p->active_width)
				continue;
			snprintf(text, sizeof(text), "%u%s Gb/sec (%uX%s)", rate / 10, rate % 10 ? ".5" : "",
				 widths[k][1], speeds[i].name);
			put(s, text, "%s/rate", port);
		}
	}
}

static void put_port(struct sysfs *s, const struct ib_device *dev, const char *port)
{
	static const uint8_t none[16];
	const struct hca_profile *p = dev->profile;
	char text[64];

	put(s, dev->netdev.up ? "4: ACTIVE" : "1: DOWN", "%s/state", port);
	put(s, dev->netdev.up ? "5: LinkUp" : "3: Disabled", "%s/phys_state", port);
	put_rate(s, p, port);
	put(s, p->unspecified ? "Unspecified" : "Ethernet", "%s/link_layer", port);
	snprintf(text, sizeof(text), "0x%x", p->lid);
	put(s, text, "%s/lid", port);
	snprintf(text, sizeof(text), "%u", p->lmc);
	put(s, text, "%s/lid_mask_count", port);
	put(s, "0x0", "%s/sm_lid", port);
	put(s, "0", "%s/sm_sl", port);
	snprintf(text, sizeof(text), "0x%08x", p->port_cap_flags);
	put(s, text, "%s/cap_mask", port);
	put(s, "0xffff", "%s/pkeys/0", port);
	for (unsigned i = 0; i < dev->num_gids; i++) {
		if (!memcmp(dev->gid[i], none, 16))
			continue;
		put(s, groups_of_16(dev->gid[i], 16, text), "%s/gids/%u", port, i);
		put(s, "RoCE v2", "%s/gid_attrs/types/%u", port, i);
		put(s, dev->netdev.name, "%s/gid_attrs/ndevs/%u", port, i);
	}
}

static void put_device(struct sysfs *s, const struct ib_device *dev)
{
	const char *name = dev->name;
	char at[64], text[128], class[256], port[256];

	/*
	 * Two directories above the one of its name is the function of PCI that it is. UCX looks there for vendor and
	 * device, which are those that verbs give; libfabric wants that address. No machine has one in this domain.
	 */
	snprintf(at, sizeof(at), "sys/devices/pcifa17:00/fa17:00:%02x.0", dev->index);
	snprintf(text, sizeof(text), "0x%04x", dev->vendor_id & 0xffff);
	put(s, text, "%s/vendor", at);
	snprintf(text, sizeof(text), "0x%04x", dev->vendor_part_id & 0xffff);
	put(s, text, "%s/device", at);
	put(s, "-1", "%s/numa_node", at);
	snprintf(text, sizeof(text), "../../../bus/pci/drivers/%s", dev->profile->name);
	put_link(s, text, "%s/driver", at);
	snprintf(class, sizeof(class), "../../../../%s", at + strlen("sys/"));
	put_link(s, class, "sys/bus/pci/drivers/%s/fa17:00:%02x.0", dev->profile->name, dev->index);

	put(s, dev->profile->unspecified ? "7: unspecified" : "1: CA", "%s/infiniband/%s/node_type", at, name);
	groups_of_16((const uint8_t *)&dev->node_guid, sizeof(dev->node_guid), text);
	put(s, text, "%s/infiniband/%s/node_guid", at, name);
	put(s, text, "%s/infiniband/%s/sys_image_guid", at, name);
	put(s, dev->profile->attr.fw_ver, "%s/infiniband/%s/fw_ver", at, name);
	put(s, dev->profile->description, "%s/infiniband/%s/node_desc", at, name);
	snprintf(text, sizeof(text), "../../../fa17:00:%02x.0", dev->index);
	put_link(s, text, "%s/infiniband/%s/device", at, name);
	snprintf(port, sizeof(port), "%s/infiniband/%s/ports/1", at, name);
	put_port(s, dev, port);
	snprintf(class, sizeof(class), "../../%s/infiniband/%s", at + strlen("sys/"), name);
	put_link(s, class, "sys/class/infiniband/%s", name);

	put(s, name, "%s/infiniband_verbs/uverbs%u/ibdev", at, dev->index);
	put(s, "1", "%s/infiniband_verbs/uverbs%u/abi_version", at, dev->index);
	put_link(s, text, "%s/infiniband_verbs/uverbs%u/device", at, dev->index);
	snprintf(class, sizeof(class), "../../%s/infiniband_verbs/uverbs%u", at + strlen("sys/"), dev->index);
	put_link(s, class, "sys/class/infiniband_verbs/uverbs%u", dev->index);
	/* may be opened by anybody, and answers nothing */
	put_link(s, "/dev/null", "dev/infiniband/uverbs%u", dev->index);
}

/* ---- the directory ---- */

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path) && errno != ENOENT;
}

static void remove_tree(const char *root)
{
	nftw(root, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* a directory of this user, locked; -1 also where another process has the lock */
static int lock_dir(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;

	if (fd >= 0 && (fstat(fd, &st) || st.st_uid != geteuid() || flock(fd, LOCK_EX | LOCK_NB))) {
		close(fd);
		fd = -1;
	}
	return fd;
}

static void sweep(const char *above)
{
	DIR *dir = opendir(above);
	char path[PATH_MAX];
	struct dirent *e;

	while (dir && (e = readdir(dir))) {
		int fd;

		if (strncmp(e->d_name, PREFIX, strlen(PREFIX)) ||
		    snprintf(path, sizeof(path), "%s/%s", above, e->d_name) >= (int)sizeof(path))
			continue;
		fd = lock_dir(path);
		if (fd < 0)
			continue;
		remove_tree(path);
		close(fd);
	}
	if (dir)
		closedir(dir);
}

static int make_root(struct sysfs *s, const char *above)
{
	struct stat st;

	/* before ours is locked another may take it for one that is left behind */
	for (int tries = 0; tries < 8; tries++) {
		if (snprintf(s->root, sizeof(s->root), "%s/" PREFIX "XXXXXX", above) >= (int)sizeof(s->root))
			return -ENAMETOOLONG;
		if (!mkdtemp(s->root))
			return -errno;
		s->lock = lock_dir(s->root);
		if (s->lock >= 0 && !stat(s->root, &st))
			return chmod(s->root, 0755) ? -errno : 0; /* mkdtemp() makes it for one user */
		if (s->lock >= 0)
			close(s->lock);
	}
	return -EAGAIN;
}

static int make_in(struct sysfs *s, const char *above)
{
	struct ib_device *const *dev;
	int n = ib_get_devices(&dev);

	sweep(above);
	s->err = make_root(s, above);
	if (s->err)
		return s->err;
	put(s, "6", "sys/class/infiniband_verbs/abi_version");
	for (int i = 0; i < n; i++)
		put_device(s, dev[i]);
	if (s->err)
		sysfs_remove(s);
	return s->err;
}

int sysfs_make(struct sysfs *s)
{
	const char *places[] = {getenv("TMPDIR"), "/tmp", "/dev/shm"};
	/* what RLIMIT_FSIZE refuses is an error like others, for us and not for the program */
	sighandler_t was = signal(SIGXFSZ, SIG_IGN);
	mode_t mask = umask(022); /* a program may go on as another user */
	int err = -ENOENT;

	s->lock = -1;
	for (size_t i = 0; err && i < sizeof(places) / sizeof(places[0]); i++)
		if (places[i] && places[i][0] == '/')
			err = make_in(s, places[i]);
	umask(mask);
	signal(SIGXFSZ, was);
	return err;
}

void sysfs_remove(struct sysfs *s)
{
	if (s->lock < 0)
		return;
	remove_tree(s->root);
	close(s->lock);
	s->lock = -1;
}
