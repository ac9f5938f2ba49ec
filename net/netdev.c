/* SPDX-License-Identifier: BSD-2-Clause */
/* What the kernel says of a network device: getifaddrs() for the addresses, ioctl for the rest. */
#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include "net/impl.h"

void gid_from_sockaddr(const struct sockaddr *sa, uint8_t gid[16])
{
	if (sa->sa_family == AF_INET) {
		memset(gid, 0, 10);
		gid[10] = gid[11] = 0xff;
		memcpy(gid + 12, &((const struct sockaddr_in *)sa)->sin_addr, 4);
	} else {
		memcpy(gid, &((const struct sockaddr_in6 *)sa)->sin6_addr, 16);
	}
}

/* order of the GIDs: IPv4, global IPv6, link-local; -1: not an address that makes a GID */
static int gid_class(const struct ifaddrs *ifa)
{
	uint8_t gid[16];

	if (!ifa->ifa_addr)
		return -1;
	if (ifa->ifa_addr->sa_family == AF_INET)
		return 0;
	if (ifa->ifa_addr->sa_family != AF_INET6)
		return -1;
	gid_from_sockaddr(ifa->ifa_addr, gid);
	return gid_is_link_local(gid) ? 2 : 1;
}

/* An alias ("eth0:1") is an address of its device. */
static bool same_device(const struct ifaddrs *ifa, const char *name)
{
	size_t n = strlen(name);

	return !strncmp(ifa->ifa_name, name, n) && (!ifa->ifa_name[n] || ifa->ifa_name[n] == ':');
}

static const char *default_device(const struct ifaddrs *list)
{
	const struct ifaddrs *ifa;

	for (ifa = list; ifa; ifa = ifa->ifa_next) {
		if (gid_class(ifa) == 0 && ifa->ifa_flags & IFF_UP &&
		    ifa->ifa_flags & IFF_RUNNING && !(ifa->ifa_flags & IFF_LOOPBACK))
			return ifa->ifa_name;
	}
	return "lo";
}

int netdev_query(const char *name, struct netdev_info *info)
{
	struct ifaddrs *list, *ifa;
	struct ifreq ifr = {0};
	char *colon;
	int class, fd, ret = 0;

	if (strlen(name) >= IFNAMSIZ)
		return -ENODEV;
	if (getifaddrs(&list))
		return -errno;
	memset(info, 0, sizeof(*info));
	strncpy(info->name, *name ? name : default_device(list), IFNAMSIZ - 1);
	colon = strchr(info->name, ':');
	if (colon)
		*colon = '\0';

	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0) {
		ret = -errno;
		goto out_list;
	}
	memcpy(ifr.ifr_name, info->name, IFNAMSIZ);
	if (ioctl(fd, SIOCGIFINDEX, &ifr)) {
		ret = -ENODEV;
		goto out_fd;
	}
	info->ifindex = ifr.ifr_ifindex;
	if (!ioctl(fd, SIOCGIFMTU, &ifr))
		info->mtu = ifr.ifr_mtu;
	if (!ioctl(fd, SIOCGIFHWADDR, &ifr))
		memcpy(info->mac, ifr.ifr_hwaddr.sa_data, sizeof(info->mac));
	if (!ioctl(fd, SIOCGIFFLAGS, &ifr))
		info->up = (ifr.ifr_flags & (IFF_UP | IFF_RUNNING)) == (IFF_UP | IFF_RUNNING);

	for (class = 0; class < 3; class++) {
		for (ifa = list; ifa && info->num_gids < NETDEV_MAX_GIDS; ifa = ifa->ifa_next) {
			if (same_device(ifa, info->name) && gid_class(ifa) == class)
				gid_from_sockaddr(ifa->ifa_addr, info->gid[info->num_gids++]);
		}
	}
out_fd:
	close(fd);
out_list:
	freeifaddrs(list);
	return ret;
}

bool gid_is_local(const uint8_t gid[16])
{
	struct ifaddrs *list, *ifa;
	uint8_t mine[16];
	bool found = false;

	if (gid_is_ipv4(gid) && gid[12] == 127)
		return true;
	if (getifaddrs(&list))
		return false;
	for (ifa = list; ifa && !found; ifa = ifa->ifa_next) {
		if (gid_class(ifa) < 0)
			continue;
		gid_from_sockaddr(ifa->ifa_addr, mine);
		found = !memcmp(mine, gid, sizeof(mine));
	}
	freeifaddrs(list);
	return found;
}

/* the device that has this address, for the scope of link-local ones; 0: none */
int gid_ifindex(const uint8_t gid[16])
{
	struct ifaddrs *list, *ifa;
	uint8_t mine[16];
	int ifindex = 0;

	if (getifaddrs(&list))
		return 0;
	for (ifa = list; ifa && !ifindex; ifa = ifa->ifa_next) {
		if (gid_class(ifa) < 0)
			continue;
		gid_from_sockaddr(ifa->ifa_addr, mine);
		if (!memcmp(mine, gid, sizeof(mine)))
			ifindex = if_nametoindex(ifa->ifa_name);
	}
	freeifaddrs(list);
	return ifindex;
}
