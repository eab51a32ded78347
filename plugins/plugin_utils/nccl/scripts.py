# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The POSIX shell scripts of the NCCL test: what a worker and the launcher run, and what a pod finds out about itself.

The launcher's script serves both ways: with the MPI operator, hostfile and keys are mounted; with plain pods it makes
them. It says ``railyard-key`` (its public key), ``railyard-rail`` (a rail of a pod) and ``railyard-error:``, which
:mod:`discovery` and :mod:`errors` read from its log.
"""

from __future__ import annotations

import ipaddress

# A worker is an ssh server. With the MPI operator $HOME/.ssh is a mounted Secret, else the launcher's key comes by
# RAILYARD_KEY.
WORKER = r"""set -eu
mkdir -p /var/run/sshd "$HOME/.ssh"
if [ -n "${RAILYARD_KEY:-}" ]; then
  umask 077
  printf '%s\n' "$RAILYARD_KEY" > "$HOME/.ssh/authorized_keys"
fi
ssh-keygen -A >/dev/null
exec /usr/sbin/sshd -De -p "$RAILYARD_SSH_PORT"
"""

# What a pod has of each rail, as its processes see it: interface, RDMA device, and the first RoCE v2 row of a routed
# address. Interfaces are named, or given by the PCI address of their function (host network). It leaves a file that
# sets NCCL_IB_HCA, and NCCL_IB_GID_INDEX where one index fits all rails of the pod; what is set already wins.
DISCOVER = r"""set -u
S=/sys/class
host=$(uname -n)
names=""
for word in $RAILYARD_INTERFACES; do
  case $word in
    *:*:*.*) for path in "/sys/bus/pci/devices/$word/net"/*; do [ -e "$path" ] && names="$names ${path##*/}"; done ;;
    *) [ -e "$S/net/$word" ] && names="$names $word" ;;
  esac
done
[ -n "$names" ] || { echo "railyard-error: $host has none of the interfaces $RAILYARD_INTERFACES"; exit 1; }

# Rows that no other node can reach: empty, link-local, and placeholders whose routed address comes from a router.
skipped() {
  case $1 in
    0000:0000:0000:0000:0000:0000:0000:0000|fe80:*|0000:0000:0000:0000:0000:ffff:a9fe:*) return 0 ;;
  esac
  for pattern in $RAILYARD_PLACEHOLDERS; do
    case $1 in $pattern) return 0 ;; esac
  done
  return 1
}

# The first usable row of device $1 whose interface is one of $2, as interface/index/gid. Rows of other namespaces read
# as zero or fail with EINVAL, and the scan goes on.
row_of() {
  for port in "$S/infiniband/$1/ports"/*; do
    index=0
    while [ -e "$port/gids/$index" ]; do
      gid="" kind="" ndev=""
      { read -r gid < "$port/gids/$index"; } 2>/dev/null
      if [ -n "$gid" ] && ! skipped "$gid"; then
        { read -r kind < "$port/gid_attrs/types/$index"; } 2>/dev/null
        { read -r ndev < "$port/gid_attrs/ndevs/$index"; } 2>/dev/null
        if [ "$kind" = "RoCE v2" ]; then
          case " $2 " in *" $ndev "*) echo "$ndev/$index/$gid"; return 0 ;; esac
        fi
      fi
      index=$((index + 1))
    done
  done
  return 1
}

# Sets found (interface/device/index/gid ...) and missing (interfaces without a usable row).
look() {
  found="" missing="" children=""
  for name in $names; do
    device=""
    for path in "$S/net/$name/device/infiniband"/*; do
      [ -e "$path" ] && device=${path##*/}
    done
    if [ -z "$device" ]; then
      children="$children $name"
    elif row=$(row_of "$device" "$name"); then
      found="$found $name/$device/${row#*/}"
    else
      missing="$missing $name"
    fi
  done
  # IPvlan and macvlan children have no device of their own: their rows are in the table of their rail.
  [ -n "$children" ] || return 0
  for path in "$S/infiniband"/*; do
    [ -e "$path" ] && row=$(row_of "${path##*/}" "$children") && found="$found ${row%%/*}/${path##*/}/${row#*/}"
  done
  for name in $children; do
    case "$found " in *" $name/"*) ;; *) missing="$missing $name" ;; esac
  done
}

# absent: the driver cannot force a class. In shared mode a pod does not see what its device forces.
class_of() {
  for file in "$S/infiniband/$1/tc"/*/traffic_class; do
    [ -e "$file" ] || { echo absent; return; }
    line=""
    { read -r line < "$file"; } 2>/dev/null
    case $line in *tclass=*) echo "${line##*tclass=}" ;; *) echo unset ;; esac
    return
  done
}

end=$(($(date +%s) + RAILYARD_ADDRESS_WAIT))
look
while [ -n "$missing" ] && [ "$(date +%s)" -lt "$end" ]; do
  sleep 1
  look
done
devices="" first="" same=yes
for entry in $found; do
  name=${entry%%/*} rest=${entry#*/}
  device=${rest%%/*} rest=${rest#*/}
  index=${rest%%/*} gid=${rest#*/}
  place=$(readlink -f "$S/infiniband/$device/device")
  pf=$place
  [ -e "$place/physfn" ] && pf=$(readlink -f "$place/physfn")
  devices="$devices${devices:+,}$device"
  [ -z "$first" ] && first=$index
  [ "$index" = "$first" ] || same=no
  echo "railyard-rail host=$host interface=$name device=$device pci=${place##*/} pf=${pf##*/} gid_index=$index gid=$gid" \
    "class=$(class_of "$device")"
done
if [ -n "$missing" ]; then
  echo "railyard-error: $host has no RDMA device with a routed RoCE v2 address on${missing}" \
    "(waited $RAILYARD_ADDRESS_WAIT s for addresses)"
  exit 1
fi
{
  echo "NCCL_IB_HCA=\"\${NCCL_IB_HCA-=$devices}\"; export NCCL_IB_HCA"
  [ "$same" = no ] || echo "NCCL_IB_GID_INDEX=\"\${NCCL_IB_GID_INDEX-$first}\"; export NCCL_IB_GID_INDEX"
} > "/tmp/railyard-$RAILYARD_JOB.env"
"""

# One rank of the test.
RANK = r"""set -u
. "/tmp/railyard-$RAILYARD_JOB.env"
for program in $RAILYARD_PROGRAMS; do
  path=$(command -v "$program") && exec "$path" "$@"
done
echo "railyard-error: $(uname -n) has none of $RAILYARD_PROGRAMS: the image must hold all_reduce_perf of nccl-tests"
exit 127
"""

LAUNCHER = r"""set -u
fail() { echo "railyard-error: $*"; exit 1; }
hosts=/etc/mpi/hostfile  # where the MPI operator mounts it
options="-o BatchMode=yes -o ConnectTimeout=5 -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
options="$options -p $RAILYARD_SSH_PORT"
# Open MPI 4, and the runtime of Open MPI 5.
export OMPI_MCA_plm_rsh_args="$options" PRTE_MCA_plm_ssh_args="$options"
work=$(mktemp -d)
if [ ! -e "$hosts" ]; then
  hosts=$work/hostfile
  printf '%s\n' "$RAILYARD_HOSTS" | tr ' ' '\n' | sed "s/\$/ slots=$RAILYARD_GPUS/" > "$hosts"
  mkdir -p "$HOME/.ssh"
  ssh-keygen -q -t ed25519 -N '' -C railyard-nccl -f "$HOME/.ssh/id_ed25519" < /dev/null || fail "ssh-keygen made no key"
  echo "railyard-key $(cat "$HOME/.ssh/id_ed25519.pub")"
fi
end=$(($(date +%s) + RAILYARD_SSH_WAIT))
pods=0
for host in $(cut -d' ' -f1 "$hosts"); do
  pods=$((pods + 1))
  echo "railyard: waiting for ssh to $host"
  # shellcheck disable=SC2086
  until ssh $options "$host" true 2> "$work/why"; do
    [ "$(date +%s)" -lt "$end" ] || fail "$host does not answer to ssh after $RAILYARD_SSH_WAIT s: $(tail -n 1 "$work/why")"
    sleep 2
  done
done

# mpi RANKS-A-POD COMMAND...: each name in RAILYARD_NAMES is given to the ranks with its value.
mpi() {
  each=$1
  shift
  # The image's own PATH and libraries: a shell that ssh starts does not have them.
  export_names="-x PATH"
  [ -n "${LD_LIBRARY_PATH:-}" ] && export_names="$export_names -x LD_LIBRARY_PATH"
  for name in $RAILYARD_NAMES; do export_names="$export_names -x $name"; done
  # shellcheck disable=SC2086
  mpirun --allow-run-as-root --hostfile "$hosts" -np $((pods * each)) --map-by "ppr:$each:node" \
    $RAILYARD_MPI_ARGUMENTS $export_names "$@"
}
echo "railyard: $pods pods answer, looking for their rails"
mpi 1 sh -c "$RAILYARD_DISCOVER" || fail "a pod has not what the test needs, see above"
echo "railyard: starting all_reduce_perf"
# shellcheck disable=SC2086
mpi "$RAILYARD_GPUS" sh -c "$RAILYARD_RANK" railyard $RAILYARD_ARGUMENTS
code=$?
echo "railyard: all_reduce_perf ended with code $code"
exit $code
"""


def gid_patterns(subnets: list[str]) -> list[str]:
    """Shell patterns of GIDs, in the kernel's full form, that match the addresses of the subnets.

    A prefix that ends within a hexadecimal digit becomes a set of digits. Raises ValueError for what is no subnet.
    """
    found = []
    for text in subnets:
        network = ipaddress.ip_network(text, strict=False)
        value, length = int(network.network_address), network.prefixlen
        if network.version == 4:
            value, length = 0xFFFF << 32 | value, length + 96  # as a GID holds an IPv4 address
        digits = f"{value:032x}"
        whole, bits = divmod(length, 4)
        parts = list(digits[:whole])
        if bits:
            first = int(digits[whole], 16)
            parts.append("[" + "".join(f"{number:x}" for number in range(first, first + (1 << (4 - bits)))) + "]")
        groups = ["".join(parts[at : at + 4]) for at in range(0, len(parts), 4)]
        ends = len(parts) % 4 == 0 and len(parts) < 32
        found.append(":".join(groups) + (":" if ends and groups else "") + ("*" if len(parts) < 32 else ""))
    return found
