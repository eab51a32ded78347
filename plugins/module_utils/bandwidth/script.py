# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The shell script that runs ib_write_bw in one pod for one round, what it is told and what it says.

How to use it without a cluster (over ssh into a network namespace, or on this machine)::

    server = script.command("server", deadline=60)         # argv; start it with pipes for standard input and output
    client = script.command("client", deadline=60)
    send(server, script.order(server_tests))               # tests: [{rail, port, device, argv}], see commands.py
    ... read lines until "@ ready RAIL" or "@ result RAIL …" came for every rail
    send(client, script.order(client_tests, each=False))   # starts at once
    ... read until "@ end", then send(server, script.STOP) and read until "@ end"
    transcript.read(all the text)                          # -> results and counters by rail

:func:`session.run_leg` does all that with two functions that start a process; ``session.ProcessStream`` starts one with a
prefix such as ``["ssh", "machine", "ip", "netns", "exec", "pod-1"]``.

Told on standard input, one line each: ``RAIL PORT DEVICE WORD …`` is a test and its command, ``together`` or ``each``
ends the list and starts it. After that standard input stays open: when it closes, or says ``stop``, the script ends its own
children by their ids and itself. So it does on TERM, on a broken output and after ``deadline`` seconds.

Said on standard output::

    @ hello ROLE              it is up and reads the list
    @ before RAIL             the rail's counters before the test follow, "|NAME VALUE" a line
    @ ready RAIL              server: the port listens
    @ taken RAIL PORT         server: the port was in use before, nothing was started
    @ result RAIL CODE        the output of ib_write_bw follows, "|…" a line; CODE is "-" when it had to be ended
    @ after RAIL              counters after the test
    @ stopped REASON          it ends early: input, signal, deadline
    @ trouble TEXT            the script itself cannot work
    @ end

No output of a test can look like a record, since every line of it starts with a bar.
"""

from __future__ import annotations

import shlex

SERVER, CLIENT = "server", "client"
ROLES = (SERVER, CLIENT)
STOP = b"stop\n"
# Counters that tell what happened on the way; in /sys/class/infiniband/DEVICE/ports/1 of the pod. Units and meaning:
# Documentation/ABI/stable/sysfs-class-infiniband and Mellanox' list of hw_counters.
COUNTERS = (
    "counters/port_xmit_packets counters/port_rcv_packets counters/port_xmit_data counters/port_rcv_data "
    "counters/unicast_xmit_packets counters/unicast_rcv_packets counters/port_xmit_wait "
    "hw_counters/out_of_sequence hw_counters/packet_seq_err hw_counters/implied_nak_seq_err "
    "hw_counters/local_ack_timeout_err hw_counters/duplicate_request hw_counters/rnr_nak_retry_err "
    "hw_counters/out_of_buffer hw_counters/np_cnp_sent hw_counters/np_ecn_marked_roce_packets "
    "hw_counters/rp_cnp_handled hw_counters/rp_cnp_ignored hw_counters/roce_adp_retrans "
    "hw_counters/roce_slow_restart hw_counters/rx_icrc_encapsulated hw_counters/req_cqe_error "
    "hw_counters/resp_cqe_error hw_counters/sent_pkts hw_counters/rcvd_pkts hw_counters/rcvd_seq_err "
    "hw_counters/completer_retry_err"
)
# The list travels on standard input and the script in the query of a URL: keep the script short, or proxies in front of
# the API server refuse it (8 KB is usual). Children are started without the script's traps and standard input; the
# watchers of input and time are children, too, and are ended by id. A stop may come amid the output of a test: then that
# result is said again, whole, before the end.
SCRIPT = r"""
role=$1; limit=$2; names=$3; n=0; why=; W=; T=; D=
w() { printf '%s\n' "$1"; }
show() { while IFS= read -r l || [ -n "$l" ]; do printf '|%s\n' "$l"; l=; done; }
count() {
eval "r=\$r$2 d=\$d$2"
w "@ $1 $r"
for f in $names; do v=
{ IFS= read -r v <"/sys/class/infiniband/$d/ports/1/$f"; } 2>/dev/null
[ -z "$v" ] || w "|$f $v"
done
}
go() {
p=; eval "r=\$r$1 k=\$k$1"
eval "exec $k" </dev/null >"$D/$1" 2>&1 &
eval "p$1=\$! c$1="
}
reap() {
eval "r=\$r$1 p=\$p$1 c=\$c$1 t=\$t$1"
if [ -z "$p" ] || [ -n "$t" ]; then return; fi
if [ -z "$c" ]; then
wait "$p"; c=$?
[ -z "$why" ] || c=-
eval "c$1=\$c"
fi
w "@ result $r $c"
show <"$D/$1"
eval "t$1=1"
}
listening() { grep -h ' 0A ' /proc/net/tcp /proc/net/tcp6 2>/dev/null; }
open() { eval "h=\$h$1"; case $L in *":$h 00000000"*) ;; *) return 1;; esac; }
finish() {
trap '' TERM HUP INT PIPE ALRM USR1
[ -z "$W$T" ] || kill $W $T 2>/dev/null
i=0; while [ $i -lt $n ]; do i=$((i + 1)); eval "p=\$p$i c=\$c$i"
[ -z "$p" ] || [ -n "$c" ] || kill "$p" 2>/dev/null
done
[ -z "$why" ] || w "@ stopped $why"
i=0; while [ $i -lt $n ]; do i=$((i + 1)); reap $i; done
wait
[ -z "$D" ] || rm -rf "$D"
w '@ end'
exit 0
}
stop() { why=$1; finish; }
trap 'stop signal' TERM HUP INT PIPE
trap 'stop input' USR1
trap 'stop deadline' ALRM
w "@ hello $role"
D=$(mktemp -d 2>/dev/null || TMPDIR=/dev/shm mktemp -d 2>/dev/null) || { w '@ trouble no writable temporary directory'; finish; }
how=
while IFS=' ' read -r r o d k; do
case $r in together|each) how=$r; break;; esac
n=$((n + 1)); eval "r$n=\$r o$n=\$o d$n=\$d k$n=\$k p$n= c$n= t$n= h$n=$(printf %04X "$o")"
done
[ "$how" ] || stop input
exec 3<&0
(trap - TERM HUP INT PIPE USR1 ALRM; while IFS= read -r l && [ "$l" != stop ]; do :; done; kill -USR1 $$) <&3 >/dev/null 2>&1 &
W=$!
(trap 'kill $!; exit 0' TERM; trap - HUP INT PIPE USR1 ALRM
sleep "$limit" & wait $!; trap - TERM; kill -ALRM $$) </dev/null >/dev/null 2>&1 3<&- &
T=$!
exec 3<&-
i=0; while [ $i -lt $n ]; do i=$((i + 1)); count before $i; done
if [ "$role" = server ]; then
L=$(listening)
i=0; while [ $i -lt $n ]; do i=$((i + 1))
if open $i; then eval "w \"@ taken \$r$i \$o$i\""; else go $i; fi
done
left=1
while [ $left = 1 ]; do left=0; L=$(listening); i=0
while [ $i -lt $n ]; do i=$((i + 1)); eval "p=\$p$i y=\$y$i"
if [ -z "$p" ] || [ -n "$y" ]; then continue; fi
if ! kill -0 "$p" 2>/dev/null; then eval "y$i=1"; reap $i
elif open $i; then eval "y$i=1"; eval "w \"@ ready \$r$i\""
else left=1; fi
done
[ $left = 0 ] || sleep 0.1 2>/dev/null || sleep 1
done
fi
i=0; while [ $i -lt $n ]; do i=$((i + 1))
if [ "$role" = client ] && { [ "$how" = each ] || [ $i = 1 ]; }; then
j=$i; while [ $j -le $n ]; do go $j; [ "$how" = together ] || break; j=$((j + 1)); done
fi
reap $i
done
i=0; while [ $i -lt $n ]; do i=$((i + 1)); count after $i; done
finish
"""


def command(role: str, deadline: int, counters: str = COUNTERS) -> list[str]:
    """The command that runs the script.

    :param role: ``server`` or ``client``.
    :param deadline: seconds after which the script ends whatever still runs.
    :raises ValueError: another role, or no positive number of seconds.
    """
    if role not in ROLES:
        raise ValueError(f"role: got {role!r}, allowed are {', '.join(ROLES)}")
    if not isinstance(deadline, int) or deadline < 1:
        raise ValueError(f"deadline: got {deadline!r}, want seconds from 1 up")
    return ["sh", "-c", SCRIPT.strip(), "railyard-bandwidth", role, str(deadline), counters]


def order(tests: list[dict]) -> bytes:
    """The list of tests for standard input, without the line that starts them.

    :param tests: ``[{rail, port, device, argv}]``; argv is the command of :mod:`commands`.
    """
    lines = [
        f"{int(test['rail'])} {int(test['port'])} {word(test['device'])} {' '.join(shlex.quote(part) for part in test['argv'])}"
        for test in tests
    ]
    return "".join(f"{line}\n" for line in lines).encode()


def start(each: bool = False) -> bytes:
    """The line that starts the tests: all at once, or one after the other."""
    return b"each\n" if each else b"together\n"


def word(text: str) -> str:
    """Text that is one word for the script. ValueError for any other."""
    if not text or any(letter.isspace() or ord(letter) < 0x21 or letter in "/\\'\"$`;|&<>()" for letter in text):
        raise ValueError(f"got {text!r}, want the name of an RDMA device")
    return text
