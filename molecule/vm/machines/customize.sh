#!/bin/sh
# A customize hook of mmdebstrap: finishes the root file system in $1 for both kinds of machine, one after the other, and
# writes their disks into the folder $2. initramfs-tools and dracut cannot be installed together, all else is the same.
set -eu
root=$1
out=$2
here=$(dirname "$(readlink -f "$0")")

write_disks() { # kind
  chroot "$root" ssh-keygen -q -t ed25519 -N "" -C "$1" -f /etc/ssh/ssh_host_ed25519_key
  printf '%s %s\n' "$1" "$(cut -d' ' -f1,2 "$root/etc/ssh/ssh_host_ed25519_key.pub")" >>"$out/known_hosts"
  echo "$1" >"$root/etc/hostname"
  tr -d - </proc/sys/kernel/random/uuid >"$root/etc/machine-id" # udev makes the MAC addresses of VFs from it
  printf '127.0.0.1 localhost\n127.0.1.1 %s\n' "$1" >"$root/etc/hosts"
  mkdir -p "$out/plain"
  # In a mount namespace: a view without /proc, /sys and /dev, where folders that stay empty are hidden.
  # shellcheck disable=SC2016  # the numbered words are those of the inner shell
  unshare --mount sh -euc '
    mount --bind "$1" "$2/plain"
    mke2fs -q -F -t ext4 -L boot -d "$2/plain/boot" "$2/$3.boot.img" 96M
    for folder in boot var/lib/apt/lists var/cache/apt; do mount -t tmpfs none "$2/plain/$folder"; done
    mke2fs -q -F -t ext4 -L root -d "$2/plain" "$2/$3.root.img" 3G
  ' sh "$root" "$out" "$1"
  rm -r "$out/plain" "$root"/etc/ssh/ssh_host_*
}

copy() { # kind: lays the files of a folder over the root file system
  (cd "$here/guest/$1" && find . -type f) | while read -r file; do
    install -D -m 0644 "$here/guest/$1/$file" "$root/$file"
  done
}

grub_menu() { # kernel version: what grub-mkconfig writes, less what a menu of one entry does not need
  # shellcheck source=/dev/null
  . "$root/etc/default/grub"
  mkdir -p "$root/boot/grub"
  cat >"$root/boot/grub/grub.cfg" <<MENU
set default="0"
set timeout=0

menuentry 'Debian GNU/Linux' --class debian --class gnu-linux --class gnu --class os \$menuentry_id_option 'gnulinux-simple' {
	insmod ext2
	search --no-floppy --label --set=root boot
	linux	/vmlinuz-$1 $GRUB_CMDLINE_LINUX $GRUB_CMDLINE_LINUX_DEFAULT
	initrd	/initrd.img-$1
}
MENU
}

kernel=$(ls "$root/lib/modules")
rm -f "$root"/etc/ssh/ssh_host_*
copy both
packages=$root/usr/lib/python3/dist-packages
install -m 0644 "$here/../../../rehearsal/machine/kept_zip_code.py" "$packages/"
echo "import kept_zip_code" >"$packages/kept_zip_code.pth"
mkdir -p "$root/var/cache/kept_zip_code"
install -D -m 0600 "$out/id_ed25519.pub" "$root/root/.ssh/authorized_keys"
for unit in ssh note-boot; do chroot "$root" systemctl --quiet enable $unit; done
for unit in getty.target serial-getty@ttyS0 apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer e2scrub_reap fstrim.timer \
  dpkg-db-backup.timer systemd-binfmt systemd-rfkill.socket systemd-pstore systemd-hwdb-update systemd-update-utmp systemd-update-utmp-runlevel \
  systemd-sysusers systemd-random-seed systemd-machine-id-commit systemd-boot-system-token \
  modprobe@drm modprobe@efi_pstore modprobe@fuse modprobe@dm_mod modprobe@loop sys-kernel-debug.mount sys-kernel-tracing.mount \
  dev-mqueue.mount dev-hugepages.mount proc-sys-fs-binfmt_misc.automount systemd-ask-password-console.path \
  systemd-ask-password-wall.path remote-fs.target rdma-ndd systemd-tmpfiles-clean.timer \
  systemd-network-generator kmod-static-nodes systemd-user-sessions systemd-networkd; do
  chroot "$root" systemctl --quiet mask "$unit"
done
chroot "$root" systemctl --quiet set-default multi-user.target
grub_menu "$kernel"
# The real boot loader, in the form that QEMU takes as a kernel: it reads the guest's own /boot at every boot.
cat >"$root/tmp/early.cfg" <<'EARLY'
search --no-floppy --label --set=root boot
set prefix=($root)/grub
configfile $prefix/grub.cfg
EARLY
chroot "$root" grub-mkimage -O i386-pc -p /grub -c /tmp/early.cfg -o /tmp/core.img \
  biosdisk ext2 search search_label linux configfile normal test echo serial terminal
cat "$root/usr/lib/grub/i386-pc/lnxboot.img" "$root/tmp/core.img" >"$out/grub.img"
rm "$root/tmp/early.cfg" "$root/tmp/core.img"

# The fault of the field: somebody has changed the option file after the boot image was built.
set_mode() { # value of netns_mode: that of rails_netns_mode of the machine (inventory/host_vars)
  echo "options ib_core netns_mode=$1" >"$root/etc/modprobe.d/ib_core.conf"
}

copy initramfs-tools
chroot "$root" update-initramfs -u -k "$kernel"
set_mode 1
write_disks vm-initramfs

rm -r "$root/etc/initramfs-tools" "$root/etc/modprobe.d/ib_core.conf" "$root/boot/initrd.img-$kernel"
copy dracut
chroot "$root" apt-get -qq install -y --no-install-recommends --purge dracut dracut-core
set_mode 0
write_disks vm-dracut
