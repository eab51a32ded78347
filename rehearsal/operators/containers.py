# Copyright (c) 2026 Railyard contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a container's process has of its node: the device files of its devices, GPUs, its limit for locked memory.

A process in a pod runs on the node in the pod's network namespace. Here it gets a mount namespace as well, in which /dev
and /proc show what the device plugins gave it. The node's own device files have no driver behind them: /dev/null takes
their place, which opens; a device that is broken keeps the node's file, which does not.
"""

from __future__ import annotations

GPU_RESOURCE = "nvidia.com/gpu"

# $1 PCI addresses of the RDMA devices, $2 minors and addresses of the GPUs (0=0000:0f:00.0), $3 "yes" with the capability
# IPC_LOCK, $4 addresses of devices whose file does not open; then the command. The names of verbs devices are looked up by
# the process itself: in exclusive mode only the pod sees its own. Where nobody may raise a limit (a machine without
# CAP_SYS_RESOURCE) IPC_LOCK does instead: with it no limit counts.
SCRIPT = r"""
own=" $1 "; gpus=$2; lock=$3; broken=" $4 "; shift 4
files=
for link in /sys/class/infiniband_verbs/uverbs*/device /sys/class/infiniband_mad/umad*/device; do
  [ -e "$link" ] || continue
  pci=$(readlink -f "$link"); pci=${pci##*/}
  case $own in *" $pci "*) ;; *) continue;; esac
  name=${link%/device}; name=${name##*/}
  case $broken in *" $pci "*) files="$files $name=broken";; *) files="$files $name";; esac
done
if [ -e /dev/infiniband/rdma_cm ]; then files="$files rdma_cm"; fi
node=$(mktemp -d)
mount --rbind /dev "$node"
mount -t tmpfs -o mode=755 pod /dev
give() { : > "/dev/$2"; mount --bind "$node/$1" "/dev/$2"; }
for name in null zero full random urandom tty; do if [ -e "$node/$name" ]; then give "$name" "$name"; fi; done
mkdir -m 1777 /dev/shm; ln -s /proc/self/fd /dev/fd
for number in 0,stdin 1,stdout 2,stderr; do ln -s "/proc/self/fd/${number%,*}" "/dev/${number#*,}"; done
if [ "$own" != "  " ] && [ -d "$node/infiniband" ]; then
  mkdir /dev/infiniband
  for file in $files; do
    name=infiniband/${file%=broken}
    case $file in *=broken) give "$name" "$name";; *) give null "$name";; esac
  done
fi
if [ -n "$gpus" ] && [ -d /proc/driver ]; then
  mount -t tmpfs -o mode=755 pod /proc/driver
  for gpu in $gpus; do
    give null "nvidia${gpu%%=*}"
    place=/proc/driver/nvidia/gpus/${gpu#*=}; mkdir -p "$place"
    printf 'Model: \t\t Rehearsal\nBus Location: \t %s\nDevice Minor: \t %s\n' "${gpu#*=}" "${gpu%%=*}" > "$place/information"
  done
fi
umount -l "$node"; rmdir "$node"
limit=
for comm in /proc/[0-9]*/comm; do
  read -r name < "$comm" || continue
  case $name in containerd | crio) ;; *) continue;; esac
  while read -r one two three soft _rest; do
    [ "$one $two $three" != "Max locked memory" ] || limit=$soft
  done < "${comm%/comm}/limits"
  if [ "$name" = crio ]; then
    given=$(grep -rhs memlock= /etc/crio | sed -n 's/.*memlock=\(-\{0,1\}[0-9]*\).*/\1/p' | tail -n 1)
    limit=${given:-$limit}
  fi
done 2>/dev/null
case $limit in
  "" ) ;;
  unlimited | -1) ulimit -l unlimited || lock=yes;;
  *) ulimit -l $((limit / 1024)) || lock=yes;;
esac 2>/dev/null
if [ "$lock" = yes ]; then exec "$@"; fi
exec setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock --ambient-caps=-ipc_lock -- "$@"
"""


def devices_of(sandbox: dict) -> tuple[list[str], list[str]]:
    """(PCI addresses of the pod's RDMA devices, those of its GPUs) from the kubelet's checkpoint of a sandbox."""
    rows = sandbox.get("devices") or {}
    rdma = [pci for resource, devices in rows.items() if resource != GPU_RESOURCE for pci in devices]
    return rdma, list(rows.get(GPU_RESOURCE) or [])


def has_ipc_lock(pod: dict, container: str) -> bool:
    """Whether a container has the capability IPC_LOCK: it asked for it, or it is privileged."""
    row = next(item for item in pod["spec"]["containers"] if item["name"] == container)
    security = row.get("securityContext") or {}
    return bool(security.get("privileged")) or "IPC_LOCK" in ((security.get("capabilities") or {}).get("add") or [])


def inside(command: list[str], pod: dict, container: str, sandbox: dict, spec: dict) -> list[str]:
    """The command line that runs ``command`` as a process of a container.

    :param spec: of the node; its GPUs have minors in the order of their addresses.
    """
    rdma, gpus = devices_of(sandbox)
    minors = {pci: number for number, pci in enumerate(gpus_of(spec))}
    broken = [
        pci for pci in rdma if spec.get("refused_device") is not None and rail_of(spec, pci) == spec["refused_device"]
    ]
    words = [" ".join(rdma), " ".join(f"{minors[pci]}={pci}" for pci in gpus)]
    words += ["yes" if has_ipc_lock(pod, container) else "no", " ".join(broken)]
    return ["unshare", "--mount", "--propagation", "private", "/bin/sh", "-c", SCRIPT, "sh", *words, *command]


def gpus_of(spec: dict) -> list[str]:
    """PCI addresses of a node's GPUs, in order."""
    return sorted({rail["gpu_pci"] for rail in spec.get("rails") or [] if rail.get("gpu_pci")})


def rail_of(spec: dict, pci: str) -> int | None:
    """The rail whose PF or VF has an address: VFs follow their card's PFs on its bus."""
    buses = [rail["pci"].rpartition(":")[0] for rail in spec.get("rails") or []]
    bus = pci.rpartition(":")[0]
    return buses.index(bus) if bus in buses else None
