#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# run: what the report says of processes that closed everything, that did not, and that had no device.
. "$(dirname "$0")/lib.sh"

expect 0 "$FAULTLINE" run -- "$STUB" clean
says err 'faultline: stub \(pid [0-9]+\) on mlx5_fl0 \(eth\?0, 192\.0\.2\.7\)' \
	'memory +1 MR pinned \(8192 bytes\), 2 MRs on demand \(5\.0 MiB\)' \
	'operations +42 RDMA WRITEs' 'traffic +1000 bytes sent' \
	'paging +3 page faults \(9007199254740993 pages\)' 'left over +nothing'
silent out

expect 0 "$FAULTLINE" run -- "$STUB" leak
says err 'left over: .*1 context, 1 QP, 1 MR \(pinned, 8192 bytes\), 1 MR \(on demand, 5\.0 MiB\), 2 DMA-mapped pages'

# of each process, also of one that is gone before the program
expect 5 "$FAULTLINE" run -- sh -c "'$STUB' leak; '$STUB' clean; exit 5"
[ "$(grep -c 'stub (pid [0-9]*, a child)' "$tmp/err")" = 2 ] || fail "not two children in the report"

# killed: what it had is left over
expect 137 "$FAULTLINE" run -- sh -c "'$STUB' leak 1010 >/dev/null & sleep 0.5; kill -9 \$!; kill -9 \$\$"
says err 'killed by signal 9' 'left over: .*1 QP'

# one that still runs has nothing left over yet
mkfifo "$tmp/fifo"
sleep 30 >"$tmp/fifo" &
holder=$!
expect 0 "$FAULTLINE" run -- sh -c "'$STUB' leak 1011 <'$tmp/fifo' >'$tmp/ready' & while ! grep -q ready '$tmp/ready'; do sleep 0.05; done"
says err 'in use +.*1 QP.*still runs'
kill $holder

expect 0 "$FAULTLINE" run -o "$tmp/file" -- "$STUB" leak
silent err
says file 'left over: '
rm "$tmp/file"
expect 0 "$FAULTLINE" run -q -o "$tmp/file" -- "$STUB" leak
silent err
says file 'left over: '
expect 0 "$FAULTLINE" run -q -- "$STUB" leak
silent err

# a file that does not take it: that is said, and the report as well
expect 1 "$FAULTLINE" run -o /nonexistent/file -- "$STUB" leak
says err '/nonexistent/file: No such file' 'left over: .*1 QP'
expect 4 "$FAULTLINE" run -o /nonexistent/file -- sh -c 'exit 4'
expect 1 "$FAULTLINE" run -o /dev/full -- "$STUB" leak
says err '/dev/full: No space left' 'left over: .*1 QP'
expect 1 "$FAULTLINE" run -q -o /dev/full -- "$STUB" leak
says err '/dev/full: No space left' 'left over: .*1 QP'
{
	sh -c 'ulimit -S -f 0; exec "$@"' - "$FAULTLINE" run -o "$tmp/file" -- \
		sh -c 'ulimit -S -f unlimited; exec "$@"' - "$STUB" leak
	echo "status $?"
} 2>&1 | cat >"$tmp/err"
says err 'status 1' '/file: File too large' 'left over: .*1 QP'

# what is no segment is left out, without harm
expect 0 "$FAULTLINE" run -- "$STUB" odd
says err 'opened no device'

expect 0 "$FAULTLINE" run -- true
says err '^faultline: true opened no device: '
printf '#!/bin/sh\nexit 0\n' >"$tmp/script"
chmod +x "$tmp/script"
expect 0 "$FAULTLINE" run -- "$tmp/script"
says err 'script'
if printf 'int main(void) { return 0; }' | cc -static -x c - -o "$tmp/static" 2>/dev/null; then
	expect 0 "$FAULTLINE" run -- "$tmp/static"
	says err 'statically linked'
fi
if printf 'int main(void) { return 0; }' | cc -Wl,-rpath,/x,--disable-new-dtags -x c - -o "$tmp/rpath" 2>/dev/null; then
	expect 0 "$FAULTLINE" run -- "$tmp/rpath"
	says err 'RPATH'
fi
# nobody reads: the status is the program's all the same
{ "$FAULTLINE" run -- sh -c 'sleep 0.3; exit 3' 2>&1; echo $? >"$tmp/status"; } | true
sleep 0.1
wait_until 10 test -s "$tmp/status" || fail 'no status'
says status '^3$'
finish
