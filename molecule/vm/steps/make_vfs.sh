#!/bin/sh
# Makes VFs on a PF and waits until all have what udev gives them: a netdev whose link is up, with an IPv6 address past
# its duplicate check, and a soft-RoCE device. The link comes a second or two after the netdev (igbvf polls for it).
#   make_vfs.sh PF NUMBER
set -eu
pf=$1
echo "$2" >"/sys/class/net/$pf/device/sriov_numvfs"
udevadm settle --timeout 240

left=480
for folder in "/sys/class/net/$pf/device/virtfn"*/net/*; do
  vf=${folder##*/}
  until [ -e "/sys/class/infiniband/rxe_$vf" ] && [ -n "$(ip -6 address show dev "$vf" scope link -tentative)" ]; do
    left=$((left - 1))
    if [ "$left" -eq 0 ]; then
      echo "$vf does not come up:" >&2
      ip address show dev "$vf" >&2
      rdma link show >&2
      exit 1
    fi
    sleep 0.5
  done
done
