#!/bin/sh
# Installs what the scenario needs, where it is missing: mmdebstrap, e2fsprogs, an ssh client, and a QEMU that has the
# device igb (8.0 or newer). Where this machine's apt offers an older QEMU, it comes from the backports of the same
# Debian source; for that one command apt gets a configuration of its own below .cache/vm/apt, so the machine's sources
# and package lists stay as they are.
# Ends with code 3 and a sentence on standard output where QEMU cannot be had.
set -eu
export DEBIAN_FRONTEND=noninteractive
here=$(cd "$(dirname "$0")" && pwd)
own=$here/../../.cache/vm/apt

has() { PATH="$PATH:/usr/sbin:/sbin" command -v "$1" >/dev/null; }
has_igb() { has qemu-system-x86_64 && qemu-system-x86_64 -device help 2>&1 | grep -q '^name "igb"'; }
give_up() {
  echo "$1"
  exit 3
}

missing=""
has mmdebstrap || missing="$missing mmdebstrap"
has mke2fs || missing="$missing e2fsprogs"
has ssh || missing="$missing openssh-client"
has unshare || missing="$missing util-linux"
if [ -z "$missing" ] && has_igb; then exit 0; fi

has apt-get || give_up "QEMU with the device igb, mmdebstrap, e2fsprogs and ssh are needed, and there is no apt-get to install them"
[ "$(id -u)" -eq 0 ] || give_up "not root: as root run $here/packages.sh (and the scenario, which builds root file systems)"
apt-get -qq update >&2 || give_up "apt-get update failed"
# shellcheck disable=SC2086  # a list of package names
[ -z "$missing" ] || apt-get -qq install -y --no-install-recommends $missing >&2 || give_up "apt-get cannot install$missing"
has_igb && exit 0

offered=$(apt-cache policy qemu-system-x86 | sed -n 's/^ *Candidate: \([0-9]*:\)\{0,1\}\([0-9]*\).*/\2/p')
if [ "${offered:-0}" -ge 8 ]; then
  apt-get -qq install -y --no-install-recommends qemu-system-x86 >&2 || give_up "apt-get cannot install qemu-system-x86"
else
  backports=$("$here/debian-sources.sh" | awk '$4 !~ /-/ { print $1, $2, $3, $4 "-backports", "main"; exit }')
  [ -n "$backports" ] || give_up "apt offers QEMU ${offered:-none}, igb needs 8.0, and it knows no Debian source that could have backports"
  mkdir -p "$own/sources" "$own/lists/partial"
  { "$here/debian-sources.sh" && echo "$backports"; } >"$own/sources/vm.list"
  backports_apt() {
    apt-get -qq -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts="$own/sources" -o Dir::State::Lists="$own/lists" \
      -o APT::Sandbox::User=root "$@" >&2
  }
  release=$(echo "$backports" | cut -d' ' -f4)
  backports_apt update || give_up "apt-get update with $release failed"
  backports_apt install -y --no-install-recommends -t "$release" qemu-system-x86 || give_up "apt-get cannot install qemu-system-x86 from $release"
fi
has_igb || give_up "$(qemu-system-x86_64 --version | head -n 1) is installed and has no device igb"
