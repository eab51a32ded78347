#!/bin/sh
# Makes a small root file system (a tar archive) with the real builders of boot images and a few real kernel modules:
#   make_root.sh ARCHIVE
# All packages come from the APT sources of this machine, which must be a Debian. mmdebstrap is installed when missing.
# Ends with 75 (EX_TEMPFAIL) where that cannot be had.
set -eu
archive=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

unavailable() {
  echo "$*" >&2
  exit 75
}

[ "$(id -u)" -eq 0 ] || unavailable "only root can make a root file system"
command -v apt-get >/dev/null || unavailable "this machine has no apt-get"
# shellcheck source=/dev/null
. /etc/os-release
[ "$ID" = debian ] || unavailable "this machine is no Debian"
export DEBIAN_FRONTEND=noninteractive
if ! command -v mmdebstrap >/dev/null; then
  { apt-get -qq install -y --no-install-recommends mmdebstrap || { apt-get -qq update && apt-get -qq install -y --no-install-recommends mmdebstrap; }; } \
    >"$work/log" 2>&1 || unavailable "mmdebstrap cannot be installed: $(tail -n 1 "$work/log")"
fi

architecture=$(dpkg --print-architecture)
kernel=$(apt-cache depends "linux-image-$architecture" 2>/dev/null | awk '/Depends: linux-image-/ {print $2; exit}')
[ -n "$kernel" ] || { apt-get -qq update; kernel=$(apt-cache depends "linux-image-$architecture" | awk '/Depends: linux-image-/ {print $2; exit}'); }
[ -n "$kernel" ] || unavailable "APT knows no kernel for $architecture"
chmod 755 "$work"
(cd "$work" && apt-get -qq -o APT::Sandbox::User=root download "$kernel") >"$work/log" 2>&1 ||
  unavailable "$kernel cannot be fetched: $(tail -n 1 "$work/log")"
mv "$work"/linux-image-*.deb "$work/kernel.deb"

# The machine's own sources, in whichever of the two forms they are.
set --
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/debian.sources; do
  if [ -s "$file" ]; then set -- "$@" "$file"; fi
done

cat >"$work/fill" <<'FILL'
#!/bin/sh
# Run by mmdebstrap with the root as argument.
set -eu
cd "$1"
dpkg-deb --fsys-tarfile "$KERNEL" | tar --extract --keep-directory-symlink --wildcards \
  './boot/config-*' './lib/modules/*/modules.*' './lib/modules/*/kernel/drivers/infiniband/core/*' \
  './lib/modules/*/kernel/fs/ext4/*' './lib/modules/*/kernel/fs/jbd2/*' './lib/modules/*/kernel/fs/mbcache.ko*' \
  './lib/modules/*/kernel/fs/configfs/*' './lib/modules/*/kernel/drivers/nvme/host/nvme*' './lib/modules/*/kernel/lib/*' \
  './lib/modules/*/kernel/drivers/virtio/*' './lib/modules/*/kernel/drivers/block/virtio_blk.ko*' \
  './lib/modules/*/kernel/block/*' './lib/modules/*/kernel/crypto/*'
version=$(ls lib/modules)
chroot . depmod "$version"
: >"boot/vmlinuz-$version"
mkdir -p lib/firmware/amd-ucode
head -c 5000 /dev/zero >lib/firmware/amd-ucode/microcode_amd.bin
FILL
chmod 755 "$work/fill"

KERNEL="$work/kernel.deb" mmdebstrap --quiet --mode=root --variant=essential --format=tar \
  --aptopt='APT::Install-Recommends "false"' \
  --dpkgopt=force-unsafe-io --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
  --dpkgopt='path-exclude=/usr/share/locale/*' \
  --include=initramfs-tools,dracut-core,kmod,udev,zstd,lz4,lzop,xz-utils,bzip2,cpio,python3 \
  --customize-hook="$work/fill \"\$1\"" \
  "$VERSION_CODENAME" "$work/root.tar" "$@" >"$work/log" 2>&1 || {
  cat "$work/log" >&2
  exit 1
}
mkdir -p "$(dirname "$archive")"
mv "$work/root.tar" "$archive.part"
mv "$archive.part" "$archive"
