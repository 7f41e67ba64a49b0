# Sourced: a minimal Debian 12 root, to try things where nothing is installed yet. Root only.
#
#   fresh_root FOLDER    makes FOLDER/root anew, from FOLDER/root.tar, which it makes once with debootstrap; $root is its
#                        path. /proc and /dev are mounted in it until the script ends; apt in it uses this machine's
#                        mirror and proxies.

fail() { echo "Error: $*" >&2; exit 1; }

unmount_root() {
  local place
  for place in proc sys dev; do
    if mountpoint -q "$root/$place"; then umount -R -l "$root/$place"; fi
  done
}

fresh_root() {
  local folder=$1 mirror
  [[ $(id -u) -eq 0 ]] || fail "must be root, for debootstrap and chroot"
  command -v debootstrap >/dev/null || fail "debootstrap is missing: apt-get install debootstrap"
  root=$folder/root
  mkdir -p "$folder"
  trap unmount_root EXIT
  if [[ ! -f $folder/root.tar ]]; then
    # The first Debian mirror that this machine's own apt uses.
    mirror=$(apt-get indextargets --format '$(SITE)' 'Origin: Debian' 2>/dev/null | grep -v security | head -n 1 || true)
    mirror=${mirror:-http://deb.debian.org/debian}
    echo "== Minimal Debian 12 from $mirror"
    rm -rf --one-file-system "$root"  # never follows a mount into this machine
    debootstrap --variant=minbase bookworm "$root" "$mirror" >"$folder/debootstrap.log" ||
      { tail -n 20 "$folder/debootstrap.log" >&2; fail "debootstrap failed"; }
    tar -C "$root" -cf "$folder/root.tar" .
  fi
  unmount_root
  rm -rf --one-file-system "$root"
  mkdir -p "$root"
  tar -C "$root" -xf "$folder/root.tar"
  # This machine's network, for the check only: name servers and apt's proxy.
  cp -L /etc/resolv.conf "$root/etc/resolv.conf"
  apt-config dump | grep -E '^Acquire::(http|https|Check)[^ ]* "[^"]+";$' >"$root/etc/apt/apt.conf.d/99host" || true
  mount -t proc proc "$root/proc"
  mount --rbind /dev "$root/dev" && mount --make-rslave "$root/dev"
}
