#!/usr/bin/env bash
# A Debian 12 machine with nothing on it: a minimal root entered by pivot_root (in a chroot the kernel refuses user namespaces)
# in mount, pid, ipc and host-name namespaces of its own, with an empty home, a clone of HEAD and the network of this machine.
# In it tests/bare/session.sh does what the README says. Needs root and debootstrap.
#
#   run.sh [--full] [--keep]      --full runs `make test` too; --keep leaves the root behind and says where
set -euo pipefail
# Started in the background, a shell hands ignored signals down for good; the tests press Ctrl-C and hang up.
[ "${SBX_BARE_SIGNALS:-}" ] || SBX_BARE_SIGNALS=default exec env --default-signal=INT,QUIT,HUP,TERM bash "$0" "$@"
unset SBX_BARE_SIGNALS
here=$(cd "$(dirname "$0")" && pwd)
repository=$(git -C "$here" rev-parse --show-toplevel)
suite=bookworm
cache=${SBX_BARE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sbxtui-bare}
depth=short keep=
for argument; do
  case $argument in
    --full) depth=full ;;
    --keep) keep=1 ;;
    *) echo "error: unknown argument \`$argument\`" >&2; exit 2 ;;
  esac
done
[ "$(id -u)" -eq 0 ] || { echo "error: a new root needs uid 0" >&2; exit 2; }
export PATH="$PATH:/usr/sbin:/sbin"

mirror() { # the Debian mirror that this machine already uses
  grep -hsE '^(URIs:|deb ) *https?://' /etc/apt/sources.list /etc/apt/sources.list.d/*.{sources,list} \
    | grep -oE 'https?://[^ ]+/debian/?( |$)' | head -n 1 | tr -d ' '
}

base() { # makes the root once per machine; prints its archive
  local archive=$cache/$suite-minbase.tar tree
  if [ ! -f "$archive" ]; then
    mkdir -p "$cache"
    tree=$(mktemp -d "$cache/making.XXXXXX")
    debootstrap --variant=minbase --include=ca-certificates "$suite" "$tree" $(mirror) >"$cache/debootstrap.log" 2>&1 \
      || { tail -n 20 "$cache/debootstrap.log" >&2; rm -rf "$tree"; return 1; }
    rm -rf "$tree"/var/cache/apt/archives/*.deb
    tar -C "$tree" -cf "$archive.part" . && mv "$archive.part" "$archive"
    rm -rf "$tree"
  fi
  echo "$archive"
}

carry_over_apt() { # sources, keys and how to reach them; never what apt knows of passwords
  local root=$1 file
  rm -f "$root"/etc/apt/sources.list "$root"/etc/apt/sources.list.d/*
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.sources /etc/apt/sources.list.d/*.list; do
    [ -f "$file" ] && grep -q "$suite" "$file" && cp "$file" "$root$file"
  done
  for file in /etc/apt/apt.conf.d/*; do
    [ -f "$file" ] && grep -q '^Acquire::' "$file" && cp "$file" "$root$file"
  done
  cp -rn /usr/share/keyrings/. "$root/usr/share/keyrings/"
}

carry_over_pip() { # where its index is and how to trust it; indexes that are folders of this machine stay here
  local root=$1 key value
  echo '[global]' >"$root/etc/pip.conf"
  for key in index-url extra-index-url proxy trusted-host timeout; do
    value=$(python3 -m pip config get "global.$key" 2>/dev/null) || continue
    case $value in *file://*) ;; *) echo "$key = $value" >>"$root/etc/pip.conf" ;; esac
  done
}

carry_over_network() {
  local root=$1
  cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
  cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
  [ -d /usr/local/share/ca-certificates ] && cp -rL /usr/local/share/ca-certificates "$root/usr/local/share/"
  carry_over_apt "$root"
  carry_over_pip "$root"
  env | grep -iE '^(https?_proxy|no_proxy|all_proxy|pip_(cert|index_url|proxy|default_timeout)|(ssl_cert_file|requests_ca_bundle|node_extra_ca_certs))=' \
    >"$root/etc/sbx-bare.env" || true
}

enter() { # ROOT: becomes the first process of the new machine
  mount --make-rprivate /
  mount --bind "$1" "$1"
  cd "$1"
  mkdir -p old source
  mount --bind -o ro "$repository" source
  mount --rbind /dev dev
  mount --rbind /sys sys
  mount -t tmpfs -o mode=1777,size=2g tmpfs tmp
  mount -t proc proc proc
  hostname bare
  pivot_root . old
  umount -l /old
  cd /
  exec env -i $(tr '\n' ' ' </etc/sbx-bare.env) HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    LANG=C.UTF-8 TERM=dumb DEBIAN_FRONTEND=noninteractive SBX_BARE_DEPTH="$depth" /bin/bash /session.sh
}

if [ "${SBX_BARE_ENTER:-}" ]; then
  depth=$SBX_BARE_DEPTH
  enter "$SBX_BARE_ENTER"
fi

archive=$(base)
root=$(mktemp -d "${TMPDIR:-/tmp}/sbx-bare.XXXXXX")
if [ "$keep" ]; then echo "the root stays in $root" >&2; else trap 'rm -rf --one-file-system "$root"' EXIT; fi
tar -C "$root" -xf "$archive"
chmod 755 "$root"
carry_over_network "$root"
cp "$here/session.sh" "$root/session.sh"
SBX_BARE_ENTER=$root SBX_BARE_DEPTH=$depth unshare --mount --pid --ipc --uts --fork --kill-child "$0" </dev/null
