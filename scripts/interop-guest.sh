#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Makes the guest of `make interop` in DIR: a current Debian kernel, and an initramfs with its soft RoCE (rxe),
# and Debian's own verbs library and programs as they are installed here. Nothing in it is ours. What is there
# is kept; needs no root.
#   interop-guest.sh DIR      makes DIR/vmlinuz, DIR/initrd, DIR/version
# INTEROP_SUITE names the Debian release the kernel is from (sid).
set -eu
dir=$1
suite=${INTEROP_SUITE:-sid}
[ -f "$dir/initrd" ] && [ -f "$dir/vmlinuz" ] && [ "$dir/initrd" -nt "$0" ] && exit 0

mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
work=$dir/work
rm -rf "$work"
mkdir -p "$work/lists/partial" "$work/archives/partial" "$work/kernel" "$work/root" "$work/packages"
exec 3>&1 >"$dir/guest.log" 2>&1

fail() {
	echo "interop-guest: $*, see $dir/guest.log" >&3
	exit 1
}

# ---- the kernel, by an apt that knows of one release and has nothing installed ----

mirror=$(sed -n 's/^URIs: *\(http[^ ]*\).*/\1/p; s/^deb \(\[.*\] \)*\(http[^ ]*\).*/\2/p' \
	/etc/apt/sources.list.d/debian.sources /etc/apt/sources.list 2>/dev/null | head -n 1)
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] ${mirror:-http://deb.debian.org/debian} $suite main" \
	>"$work/sources.list"
: >"$work/status"
apt_here() {
	cmd=$1
	shift
	"$cmd" -o Dir::Etc::SourceList="$work/sources.list" -o Dir::Etc::SourceParts=/dev/null \
		-o Dir::State::Lists="$work/lists" -o Dir::State::status="$work/status" \
		-o Dir::Cache="$work" -o Dir::Cache::Archives="$work/archives" \
		-o APT::Sandbox::User="$(id -un)" -o APT::Get::List-Cleanup=0 "$@"
}
apt_here apt-get update -q -o APT::Update::Error-Mode=any || fail "no package list of $suite to be had (no network?)"
names=$(apt_here apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks \
	--no-replaces --no-enhances linux-image-amd64 | grep -E '^linux-(image|binary|modules)-[0-9]' | sort -u)
[ -n "$names" ] || fail "$suite has no kernel"
# shellcheck disable=SC2086
(cd "$work/packages" && apt_here apt-get download -q $names) || fail "no kernel package to be had"
for deb in "$work"/packages/*.deb; do
	dpkg-deb -x "$deb" "$work/kernel"
done
image=$(find "$work/kernel" -name 'vmlinuz*' | head -n 1)
[ -n "$image" ] || fail "no kernel in its package"
tree=$(dirname "$(find "$work/kernel" -path '*/modules/*/kernel' | head -n 1)")
basename "$tree" >"$dir/version"

# ---- modules, those that are needed before those that need them ----

root=$work/root
mkdir -p "$root/bin" "$root/modules" "$root/proc" "$root/sys" "$root/dev" "$root/tmp" "$root/etc"
done_modules=' ' number=100
add_module() { # name
	case $done_modules in *" $1 "*) return ;; esac
	done_modules="$done_modules$1 "
	file=$(find "$tree" -name "$(echo "$1" | sed 's/[-_]/[-_]/g').ko*" | head -n 1)
	[ -n "$file" ] || return 0 # built in, or gone
	case $file in
	*.xz) xz -dc "$file" ;;
	*.zst) zstd -dc "$file" ;;
	*) cat "$file" ;;
	esac >"$work/$1.ko"
	for needed in $(tr '\0' '\n' <"$work/$1.ko" | sed -n 's/^depends=//p' | tr ',' ' '); do
		add_module "$needed"
	done
	mv "$work/$1.ko" "$root/modules/$number-$1.ko"
	number=$((number + 1))
}
for module in virtio_net ib_uverbs rdma_rxe sch_netem sch_ingress cls_flower act_mirred ifb; do
	add_module "$module"
done

# ---- programs, with the libraries they name and those that libibverbs opens ----

add_file() {
	[ -e "$root$1" ] && return
	mkdir -p "$root$(dirname "$1")"
	cp -L "$1" "$root$1"
}
add_program() {
	add_file "$1"
	ldd "$1" | grep -o '/[^ ]*' | while read -r lib; do
		add_file "$lib"
	done
}
cp "$(command -v busybox)" "$root/bin/busybox"
for applet in sh cat ls mount ip ping ping6 mkdir sleep kill ps grep insmod chmod timeout dmesg nc; do
	ln -sf busybox "$root/bin/$applet"
done
for program in rdma tc ibv_rc_pingpong ibv_uc_pingpong ibv_ud_pingpong ibv_srq_pingpong ibv_devinfo ib_write_bw \
	ib_read_bw ib_send_bw ib_atomic_lat ib_send_lat; do
	path=$(PATH=$PATH:/sbin:/usr/sbin command -v "$program") || fail "$program is not installed"
	add_program "$path"
	ln -sf "$path" "$root/bin/$program"
done
for file in /etc/libibverbs.d/rxe.driver /usr/lib/*/libibverbs/librxe-*.so; do
	add_program "$file"
done

cat >"$root/init" <<'INIT'
#!/bin/sh
# Brings up the network and rxe, then runs what comes on TCP port 7000: one connection, one shell.
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm
mount -t tmpfs shm /dev/shm
for module in /modules/*; do
	insmod "$module" || echo "no $module"
done
for argument in $(cat /proc/cmdline); do
	case $argument in fl.*) export "${argument#fl.}" ;; esac
done
i=0
while [ ! -e /sys/class/net/eth0 ] && [ $i -lt 100 ]; do
	sleep 0.1
	i=$((i + 1))
done
echo 0 >/proc/sys/net/ipv6/conf/eth0/accept_dad
ip link set lo up
ip link set eth0 mtu "$MTU" up
ip addr add "$IPV4" dev eth0
ip addr add "$IPV6" dev eth0
rdma link add rxe0 type rxe netdev eth0
sleep 1
chmod 666 /dev/infiniband/*
exec nc -ll -p 7000 -e /bin/sh
INIT
chmod +x "$root/init"

(cd "$root" && find . | busybox cpio -o -H newc | gzip -1) >"$work/initrd"
cp "$image" "$dir/vmlinuz"
mv "$work/initrd" "$dir/initrd"
rm -rf "$work"
