# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The shell script that reads RDMA facts inside a pod, and the reader of its output.

The image may have nothing but a POSIX shell: the script uses built-ins only and treats ``cat`` and ``ip`` as extras.

Output, one record after the other::

    @ STATE PATH        STATE: ok | empty | absent | unreadable | dir | link
    |a line of content  (records ok, dir and link; every content line starts with a bar)
    @ end

No content can look like a record, since every line of it starts with a bar, and a cut output lacks the last line.
``read`` gives the same answer for an empty file and for a failed read; ``cat`` tells them apart, and without it such
a file counts as unreadable: unknown is the safe reading.
``grep`` finds the rows that hold a GID in one go, since ``read`` takes a system call for each character; without it, or
when it meets a file that it cannot read, every row is read one by one.
Whether a device file can be used is found out by opening it: the device cgroup and the kernel's own check of the network
namespace refuse what the mode allows. ``true <> FILE`` opens for reading and writing, and a failed redirection of
``true``, which is no special built-in, does not end the shell (POSIX, 2.8.1).
A zero GID row has no readable attributes (drivers/infiniband/core/sysfs.c answers EINVAL), so these are not even tried.
"""

from __future__ import annotations

# The script travels in the query of a URL: keep it short, or proxies in front of the API server refuse it (8 KB is
# usual).
SCRIPT = r"""
R=$1
w() { printf '%s\n' "$1"; }
f() {
if [ ! -e "$R$1" ]; then w "@ absent $1"; return; fi
if ! { true <"$R$1"; } 2>/dev/null; then w "@ unreadable $1"; return; fi
v=; t=
while IFS= read -r l || [ -n "$l" ]; do v="$v|$l
"; t=1; l=; done 2>/dev/null <"$R$1"
if [ "$t" ]; then printf '@ ok %s\n%s' "$1" "$v"
elif cat "$R$1" >/dev/null 2>&1; then w "@ empty $1"
else w "@ unreadable $1"; fi
}
g() {
for h in $2; do f "$1/$h"; done
}
s() {
for r in *; do v=; { IFS= read -r v <"$r"; } 2>/dev/null; [ "$v" = $Z ] || w "$r"; done
}
n() {
if [ ! -d "$R$1" ]; then w "@ absent $1"; return; fi
w "@ dir $1"
for j in "$R$1"/*; do j=${j##*/}; if [ "$j" != '*' ] || [ -e "$R$1/*" ]; then w "|$j"; fi; done
}
p() {
if d=$(cd -P "$R$1" 2>/dev/null && pwd -P); then d=${d#"$R"}; printf '@ link %s\n|%s\n' "$1" "$d"
else d=; w "@ absent $1"; fi
}
c() {
p "$1/device"; [ "$d" ] || return
z=$d; f "$z/numa_node"; n "$z/net"; p "$z/driver"; p "$z/physfn"; [ "$d" ] || return
k=$d
for v in "$R$k"/virtfn*; do [ ! -e "$v" ] || p "$k/${v##*/}"; done
}
S=/sys/class
Z=0000:0000:0000:0000:0000:0000:0000:0000
f /sys/module/ib_core/parameters/netns_mode
n $S/net
n $S/infiniband
n /dev/infiniband
for x in "$R"/dev/infiniband/uverbs* "$R"/dev/infiniband/rdma_cm; do [ -e "$x" ] || continue
i=${x##*/}
v=$( { true <>"$x"; } 2>&1 ) && v=yes
printf '@ ok open/%s\n|%s\n' "$i" "${v##*: }"
f "$S/infiniband_verbs/$i/ibdev"
done
printf '@ ok memlock\n|%s\n|%s\n' "$(ulimit -l 2>/dev/null)" "$(ulimit -H -l 2>/dev/null)"
w '@ ok status'
while IFS= read -r l; do case $l in Cap*|Uid*|Secc*) w "|$l";; esac; done 2>/dev/null </proc/self/status
w '@ ok env'
env 2>/dev/null | while IFS= read -r l; do case $l in NCCL_*|UCX_*) w "|$l";; esac; done
for k in net/if_inet6 net/fib_trie net/route; do f /proc/$k; done
u() {
w "@ ok $1"; shift
"$@" 2>/dev/null | { j=0; while [ $j -lt 999 ] && IFS= read -r l; do w "|$l"; j=$((j+1)); done; }
}
if [ -z "$R" ] && command -v ip >/dev/null; then
u ip ip -o addr
for k in 4 6; do
u rule$k ip -$k rule
u route$k ip -$k route show table all
done
else w '@ absent ip'; fi
P=/proc/driver/nvidia/gpus
n $P
for x in "$R"$P/*; do [ ! -e "$x" ] || f "$P/${x##*/}/information"; done
n /dev/dri
for x in "$R"/dev/dri/renderD*; do [ ! -e "$x" ] || p "$S/drm/${x##*/}/device"; done
w '@ ok nvidia'
for x in "$R"/dev/nvidia[0-9]*; do [ ! -e "$x" ] || w "|${x##*/}"; done
C=/proc/sys/net/ipv
y() {
g "${C}4/conf/$1" 'arp_ignore arp_announce rp_filter arp_filter accept_local'
g "${C}6/conf/$1" 'disable_ipv6 accept_ra accept_ra_defrtr forwarding autoconf'
}
y all
for e in "$R"$S/net/*; do [ -d "$e" ] || continue
i=${e##*/}
g "$S/net/$i" 'dev_port phys_port_name ifindex iflink mtu address operstate'
c "$S/net/$i"
y "$i"
done
for e in "$R"$S/infiniband/*; do [ -d "$e" ] || continue
b=$S/infiniband/${e##*/}
g "$b" 'node_guid fw_ver'
c "$b"
for q in "$e"/ports/*; do [ -d "$q" ] || continue
o=${q##*/}; d=$b/ports/$o
g "$d" 'state phys_state rate link_layer'
f "$b/tc/$o/traffic_class"
f "/sys/kernel/config/rdma_cm/${e##*/}/ports/$o/default_roce_tos"
n "$d/gids"
k=$(cd "$q/gids" && grep -lv $Z * 2>/dev/null)
[ $? -lt 2 ] || k=$(cd "$q/gids" && s)
for x in $k; do f "$d/gids/$x"; g "$d/gid_attrs" "types/$x ndevs/$x"; done
done
done
w '@ end'
"""

OK, EMPTY, ABSENT, UNREADABLE, DIR, LINK = "ok", "empty", "absent", "unreadable", "dir", "link"
STATES = frozenset({OK, EMPTY, ABSENT, UNREADABLE, DIR, LINK})


class ProbeError(ValueError):
    """The output is not a complete answer of the probe; the text says what is wrong."""


def command(root=""):
    """The command to execute in the pod (root: another tree to read, for tests)."""
    return ["sh", "-c", SCRIPT.strip(), "railyard-probe", root]


def parse_records(output):
    """{path: (state, [lines])} of the probe's output. Raises ProbeError when it is cut or is something else."""
    records, current, ended = {}, None, False
    for number, line in enumerate(output.split("\n"), 1):
        if line.startswith("|"):
            if current is None:
                raise ProbeError(f"line {int(number)} of the probe's output has content before any record")
            current.append(line[1:])
        elif line == "@ end":
            ended = True
            break
        elif line.startswith("@ "):
            state, _space, path = line[2:].partition(" ")
            if state not in STATES or not path:
                raise ProbeError(f"line {int(number)} of the probe's output is not a record: {line!r:.80}")
            current = []
            records[path] = (state, current)
        elif line:
            raise ProbeError(f"line {int(number)} of the probe's output is not a record: {line!r:.80}")
    if not ended:
        raise ProbeError(f"the probe's output ends early, after {len(records)} records")
    return records
