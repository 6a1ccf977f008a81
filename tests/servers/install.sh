#!/usr/bin/env bash
# Install the servers that come as Debian packages, and start none of them.  Quick if all is there.
set -euo pipefail

packages=(
  ceph-mon ceph-osd radosgw
  redis-server
  openssh-client openssh-server openssh-sftp-server
  samba
  # What agents that sit at a terminal are woken through.
  tmux
  # A file system without hard links.
  exfat-fuse exfatprogs mount
  # NFS: the server, and clients in guests.
  nfs-ganesha nfs-ganesha-vfs rpcbind nfs-common user-mode-linux kmod iproute2
)

missing=()
for each in "${packages[@]}"; do
  [ "$(dpkg-query --show --showformat='${db:Status-Status}' "$each" 2>/dev/null)" = installed ] || missing+=("$each")
done
if [ ${#missing[@]} = 0 ]; then
  echo "Installed already: ${packages[*]}"
  exit
fi
if ! command -v apt-get >/dev/null; then
  echo "${missing[*]}: this script knows only apt-get; install them with what your system has." >&2
  exit 1
fi
if [ "$(id -u)" != 0 ]; then
  echo "${missing[*]}: installing packages needs root; run 'sudo make servers'." >&2
  exit 1
fi

# Debian starts what it installs, unless this script says no.
policy=/usr/sbin/policy-rc.d
saved=$(mktemp --directory)
restore() {
  rm -f "$policy"
  [ ! -e "$saved/policy-rc.d" ] || mv "$saved/policy-rc.d" "$policy"
  rm -rf "$saved"
}
trap restore EXIT
[ ! -e "$policy" ] || mv "$policy" "$saved/"
printf '#!/bin/sh\nexit 101\n' >"$policy"
chmod 755 "$policy"

export DEBIAN_FRONTEND=noninteractive
install() { apt-get install --yes --no-install-recommends "${missing[@]}" >"$saved/log" 2>&1; }
echo "Installing: ${missing[*]}"
# The lists of packages may be missing or old.
install || { apt-get update --quiet --quiet && install; } || {
  cat "$saved/log" >&2
  exit 1
}
