# Sourced by the scripts next to it: bare Debian 12 systems in folders, and commands that run in them.
# $work is a folder that is removed at the end. Mounts are in a namespace of their own, which ends with the script.
command -v debootstrap > /dev/null || fail "debootstrap is missing" "apt-get install debootstrap"
((EUID == 0)) || fail "a chroot needs root" "sudo $0"
if [[ -z ${SHIFTRON_IN_NAMESPACE:-} ]]; then
  SHIFTRON_IN_NAMESPACE=1 exec unshare --mount --pid --fork --kill-child "$0" "$@"
fi
unset SHIFTRON_IN_NAMESPACE
base=$PWD/build/bookworm
work=$(mktemp -d "${TMPDIR:-/tmp}/shiftron-root-XXXXXX")
mounted=()
clean_up() {
  if ((${#mounted[@]})); then umount -R "${mounted[@]}"; fi
  rm -rf --one-file-system "$work"
}
trap clean_up EXIT
if [[ ! -e $base/etc/os-release ]]; then
  printf '%s: makes a bare Debian 12 in build/bookworm\n' "${0##*/}"
  mkdir -p build
  rm -rf "$base.unfinished"
  debootstrap --variant=minbase bookworm "$base.unfinished" > "$work/log" 2>&1 || { tail -n 20 "$work/log" >&2; fail "debootstrap failed" "is the network up?"; }
  mv "$base.unfinished" "$base"
fi

new_root() {  # folder: makes it a bare system, in which the commands below run
  root=$1
  cp -a "$base" "$root"
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  { apt-config dump | grep -E '^Acquire::(http|https|Check)' || true; } > "$root/etc/apt/apt.conf.d/99host"
  mount -t proc proc "$root/proc"
  mount --rbind /dev "$root/dev"
  mount --make-rslave "$root/dev"
  mounted+=("$root/proc" "$root/dev")
}
in_root() {  # command…: with the environment of a fresh login
  chroot "$root" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@" < /dev/null
}
apt_in_root() {  # words of apt-get
  in_root apt-get -qq -y -o Dpkg::Use-Pty=0 "$@" > "$work/log" 2>&1 || { tail -n 20 "$work/log" >&2; fail "apt-get $1 failed in the bare Debian" "is the network up?"; }
}
