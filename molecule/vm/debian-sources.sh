#!/bin/sh
# Prints the Debian sources that this machine's apt uses, one "deb" line each; nothing where it uses none (Ubuntu).
# VM_DEBIAN_SOURCES names a file of such lines to print instead, for machines of another distribution.
set -eu

if [ -n "${VM_DEBIAN_SOURCES:-}" ]; then exec cat -- "$VM_DEBIAN_SOURCES"; fi
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
command -v apt-get >/dev/null && [ -e "$keyring" ] || exit 0
# shellcheck disable=SC2016  # the names are for apt-get
apt-get indextargets --format '$(ORIGIN) $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
  sed -n "s|^Debian |deb [signed-by=$keyring] |p" | sort -u
