#!/usr/bin/env bash
# Installs, uses, upgrades, removes and purges troupe's packages as an administrator does, in a Debian 12 of its own:
# debootstrap's, in a folder, with chroot. What the packages promise is checked after each step; the first thing that is
# not so ends it. Before that a user runs the archive there. At the end: what each step took. Root only; it changes
# nothing outside of its folder.
#
#   tools/package_roundtrip.sh                        # the packages of HEAD, after those of the commit before
#   tools/package_roundtrip.sh --from build/release   # of what is compiled there, without compiling
#   tools/package_roundtrip.sh --before v0.1.0        # an upgrade from another commit: of one with tools/package.sh
#   tools/package_roundtrip.sh --older /srv/apt/troupe    # from packages that were made before: nothing is compiled for them
#
# Options:
#   --from BUILD       the release build whose packages are the newer ones
#   --before COMMIT    what is upgraded (HEAD~1); it is compiled
#   --older DIR        the folder of packages that are upgraded, in place of a commit's
#   --keep             leaves the folder, and says where it is
#
# Minutes: most of it is debootstrap, whose downloads stay in ~/.cache/troupe-tests/debootstrap, and compiling the commit before.
# The mirror is that of this machine's apt.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/setup.sh
export LC_ALL=C

fail() { say "FAILED: $*"; exit 1; }

from=() before=HEAD~1 older='' keep=''
given=("$@")
while [ $# -gt 0 ]; do
  case "$1" in
    --from) from=(--from "${2:?--from needs the folder of a build}"); shift 2 ;;
    --before) before=${2:?--before needs a commit}; shift 2 ;;
    --older) older=$(cd "${2:?--older needs a folder of packages}" && pwd); shift 2 ;;
    --keep) keep=yes; shift ;;
    -h|--help) sed -n '2,/^set /p' "$0" | sed '$d; s/^# \{0,1\}//'; exit 0 ;;
    *) say "tools/package_roundtrip.sh: what is '$1'? --help lists the options."; exit 2 ;;
  esac
done
[ "$(id -u)" -eq 0 ] || fail "Only root can chroot: sudo $0"
if [ -z "$older" ]; then
  before=$(git rev-parse --verify --quiet "$before^{commit}") || fail "There is no commit $before."
  git cat-file -e "$before:tools/package.sh" 2>/dev/null || fail "$before cannot make packages: it has no tools/package.sh."
fi
if [ -z "${TROUPE_ROUNDTRIP:-}" ]; then
  need_packages "${kPackagePackages[@]}" debootstrap gpg procps systemd util-linux
  # Mounts and processes of its own, which end with it.
  TROUPE_ROUNDTRIP=yes exec unshare --mount --pid --fork --kill-child "$PWD/tools/package_roundtrip.sh" "${given[@]}"
fi
mount -t proc proc /proc

work=$(mktemp -d /tmp/troupe-roundtrip-XXXXXX)
root=$work/root
umounts() { local at; for at in srv/troupe proc dev; do umount --recursive --lazy "$root/$at" 2>/dev/null || true; done; }
cleanup() {
  local status=$?
  umounts
  if [ -n "$keep" ]; then say "Left: $root, with the output of each step in $work"; else rm -rf --one-file-system "$work"; fi
  exit "$status"
}
trap cleanup EXIT

steps=()
# step NAME COMMAND...: runs it quietly, and notes what it took.
step() {
  local name=$1 begin end
  shift
  begin=$(date +%s%N)
  "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "$name"; }
  end=$(date +%s%N)
  cp "$work/log" "$work/$name.log"
  took=$(( (end - begin) / 1000000 ))
  steps+=("$(printf '%8d.%02d s  %s' $((took / 1000)) $((took % 1000 / 10)) "$name")")
  say "${steps[-1]}"
}
# expect WHAT COMMAND...: the command succeeds.
expect() { local what=$1; shift; "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "$what"; }; }
in_root() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive "$@"; }
apt() { in_root apt-get -y -q --no-install-recommends "$@"; }
as() { local user=$1; shift; in_root setpriv --reuid="$user" --regid="$user" --init-groups --reset-env "$@"; }

# The packages, as a signed source.
export GNUPGHOME=$work/gnupg
mkdir -m 700 "$GNUPGHOME"
gpg --batch --quiet --passphrase '' --quick-generate-key roundtrip default default never 2>"$work/log"
make_before() {
  if [ -n "$older" ]; then
    mkdir "$work/apt-before"
    cp "$older"/*.deb "$work/apt-before"
    (cd "$work/apt-before" && dpkg-scanpackages --multiversion . >Packages)
    return
  fi
  git clone --quiet --no-checkout . "$work/before"
  git -C "$work/before" checkout --quiet --detach "$before"
  # In the place of this tree, whose files ccache knows.
  unshare --mount bash -euc 'mount --bind "$1/before" "$2"; cd "$2"; tools/package.sh --output "$1/debs-before" --repository "$1/apt-before" --sign roundtrip' \
    bash "$work" "$PWD"
}
step "packages and archive of the newer commit" tools/package.sh "${from[@]}" --output "$work/debs" --tarball --repository "$work/apt-after" --sign roundtrip
step "packages of the version before" make_before
version_of() { sed -n '/^Package: troupe$/,/^$/s/^Version: //p' "$work/apt-$1/Packages"; }
dpkg --compare-versions "$(version_of before)" lt "$(version_of after)" ||
  fail "$(version_of before) is not older than $(version_of after)."

# What docs/stability.md promises between the two, from their files.
unpack() { local deb; for deb in "$work/apt-$1"/*.deb; do dpkg-deb -x "$deb" "$work/tree-$1"; done; }
compare() {
  unpack before && unpack after
  python3 -B tests/compatibility/compatibility_test.py "$work/tree-before/usr" "$work/tree-after/usr"
}
step "clients of each with the server of the other; what the older has kept" compare

# A Debian 12 with nothing but what is required, from the mirror and by the settings of this machine's apt.
sources=$(apt-get indextargets --format 'deb $(SITE) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' | grep -E ' bookworm(-security|-updates)? ' | sort -u)
mirror=$(awk '$3 == "bookworm" { print $2; exit }' <<<"$sources")
[ -n "$mirror" ] || fail "This machine's apt has no mirror of Debian 12 (bookworm)."
cache=${XDG_CACHE_HOME:-$HOME/.cache}/troupe-tests/debootstrap
mkdir -p "$cache"
step "debootstrap" debootstrap --variant=minbase --cache-dir="$cache" bookworm "$root" "$mirror"
echo "$sources" >"$root/etc/apt/sources.list"
apt-config dump Acquire | grep -E '^Acquire::(http|https)::' >"$root/etc/apt/apt.conf.d/90machine" || true
cp --dereference /etc/resolv.conf /etc/hosts "$root/etc"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mkdir "$root/srv/troupe"
install -D -m 644 "$work/apt-after/troupe.gpg" "$root/etc/apt/keyrings/troupe.gpg"
use_source() {
  local option=signed-by=/etc/apt/keyrings/troupe.gpg
  [ -e "$work/apt-$1/InRelease" ] || option=trusted=yes
  rm -f "$root"/srv/troupe/*
  cp -p "$work/apt-$1"/* "$root/srv/troupe"
  echo "deb [$option] file:/srv/troupe ./" >"$root/etc/apt/sources.list.d/troupe.list"
}
use_source before
in_root useradd --create-home alice
in_root useradd --create-home mallory

# The archive, as a user without rights unpacks it where no library of troupe's is.
archive() {
  tar xzf "$work"/debs/troupe-*.tar.gz -C "$root/home/alice"
  as alice sh -ec 'cd ~/troupe-*
    bin/troupe serve 2>~/log & server=$!
    until bin/troupe status >/dev/null 2>&1; do kill -0 "$server" || { cat ~/log; exit 1; }; sleep 0.02; done
    bin/troupe run -n 32 "Once upon a time" </dev/null
    kill "$server"
    wait "$server"'
  rm -rf "$root/home/alice" && in_root install -d -o alice -g alice /home/alice
}
step "archive: unpacked, first answer" archive
step "apt update" apt update
files() { (cd "$root" && find . -xdev ! -path './proc/*' ! -path './dev/*' ! -path './srv/*' | sort); }
files >"$work/files-before"

# As if systemd ran: what the packages ask of it is noted. calls: what they asked in the step before.
fake_systemd() {
  mkdir -p "$root/run/systemd/system"
  : >"$root/srv/systemctl.log"
  printf '#!/bin/sh\necho "$*" >>/srv/systemctl.log\n' >"$root/usr/bin/systemctl"
  chmod 755 "$root/usr/bin/systemctl"
}
calls() {
  rm -r "$root/run/systemd" "$root/usr/bin/systemctl"
  { grep -vE 'daemon-reload|--version|list-units' "$root/srv/systemctl.log" || true; } | sed 's/ --[a-z]*//g; s/^--[a-z]* //' | sort | xargs
}

fake_systemd
step "apt install troupe" apt install troupe
called=$(calls)
[ -z "$called" ] || fail "The installation asks systemd: $called"
install_ms=$took
[ -z "$(pgrep -x troupe || true)" ] || fail "The installation has started a server."
[ "$(stat -c '%a %U %G' "$root/etc/troupe/troupe.toml")" = "644 root root" ] || fail "/etc/troupe/troupe.toml is not as it should be."
owned() { [ "$(in_root stat -c '%a %U %G' "$2")" = "$1" ] || fail "$2 is $(in_root stat -c '%a %U %G' "$2"), not $1."; }
owned "711 troupe troupe" /var/lib/troupe
owned "755 troupe troupe" /var/lib/troupe/models
# Where systemd-tmpfiles is not, nothing but the unit makes it.
[ ! -d "$root/run/troupe" ] || owned "755 root root" /run/troupe
[ "$(in_root getent passwd troupe | cut -d: -f6,7)" = "/nonexistent:/usr/sbin/nologin" ] || fail "The user troupe is another one."
in_root usermod --append --groups troupe alice

# As the units do: root makes the socket, and the server gets it.
serve() {
  mkdir -p "$root/run/troupe"
  rm -f "$root/run/troupe/troupe.sock"
  systemd-socket-activate --listen="$root/run/troupe/troupe.sock" chroot "$root" setpriv --reuid=troupe --regid=troupe --init-groups \
    --no-new-privs --bounding-set=-all env --unset=HOME PATH=/usr/bin:/bin TROUPE_CONFIG=/etc/troupe/troupe.toml STATE_DIRECTORY=/var/lib/troupe \
    troupe serve >"$work/server.log" 2>&1 &
  server=$!
  until [ -S "$root/run/troupe/troupe.sock" ]; do kill -0 "$server" || fail "no socket: $(cat "$work/server.log")"; sleep 0.01; done
  in_root chgrp troupe /run/troupe/troupe.sock
  in_root chmod 660 /run/troupe/troupe.sock
}
stop() { kill "$server"; wait "$server" || fail "The server has not ended well: $(cat "$work/server.log")"; }
ask() { as alice troupe "$@" </dev/null; }

first() { serve && ask run -n 32 "Once upon a time"; }
step "first answer (start of the server, troupe run)" first
[ -s "$work/$(basename "first answer (start of the server, troupe run).log")" ] || fail "The first answer is empty."
[ "$took" -lt 10000 ] || fail "The first answer has taken more than 10 s."
steps+=("$(printf '%8d.%02d s  %s' $(((install_ms + took) / 1000)) $(((install_ms + took) % 1000 / 10)) "of both: from apt install to the answer")")
if as mallory troupe run -n 1 Once </dev/null >"$work/log" 2>&1; then fail "A user who is not in the group troupe gets an answer."; fi

# What must outlive an upgrade: a conversation, a key, what was used, and a changed configuration.
expect "a session" ask run --session tea -n 8 --temp 0 "Once upon a time"
expect "a key" as troupe troupe key add ci --keys-file /var/lib/troupe/keys
echo 'max-stall = "200ms"' >>"$root/etc/troupe/troupe.toml"
stop
serve
ask session list >"$work/sessions"
grep -q tea "$work/sessions" || fail "There is no session to keep: $(cat "$work/sessions")"
as troupe troupe key list --keys-file /var/lib/troupe/keys >"$work/keys"
ask usage >"$work/usage"

use_source after
step "apt update, again" apt update
fake_systemd
step "apt upgrade of troupe, while the server runs" apt install --only-upgrade troupe
called=$(calls)
[ "$called" = "try-restart troupe.service" ] || fail "The upgrade asks systemd: '$called', not to restart the service if it runs, and no more."
[ "$(in_root dpkg-query -W -f '${Version}' troupe)" = "$(version_of after)" ] || fail "The upgrade has not installed $(version_of after)."
ask session list | cmp - "$work/sessions" || fail "The upgrade has disturbed the server that runs."
grep -qx 'max-stall = "200ms"' "$root/etc/troupe/troupe.toml" || fail "The upgrade has replaced a configuration file that was changed."
# Those of the newer version: what was wrong in the older one is not to be mended any more.
expect "the units" systemd-analyze --root="$root" --man=no --recursive-errors=no verify "$root"/lib/systemd/system/troupe.{socket,service}
stop
restart() { serve && ask run -n 1 Once; }
step "restart" restart
ask session list | cmp - "$work/sessions" || fail "The upgrade has changed the sessions."
as troupe troupe key list --keys-file /var/lib/troupe/keys | cmp - "$work/keys" || fail "The upgrade has changed the keys."
expect "the session goes on" ask run --session tea -n 8 --temp 0 " Then"
used() { awk '/alice/ { print $2 }' "$1"; }
ask usage >"$work/usage-after"
[ -n "$(used "$work/usage")" ] && [ "$(used "$work/usage-after")" -gt "$(used "$work/usage")" ] ||
  fail "The usage before the upgrade is gone: $(cat "$work/usage" "$work/usage-after")"
owned "711 troupe troupe" /var/lib/troupe
owned "755 troupe troupe" /var/lib/troupe/models

step "apt install of the libraries" apt install libtroupe-client-dev python3-troupe
expect "the Python package" as alice python3 -c 'import troupe, troupe_pb2; assert troupe_pb2 is troupe.troupe_pb2'
stop

fake_systemd
step "apt remove troupe" apt remove troupe
called=$(calls)
[ "$called" = "stop troupe-metrics.timer troupe.socket troupe.service" ] || fail "The removal asks systemd: '$called', not to stop what is the package's."
[ ! -e "$root/usr/bin/troupe" ] || fail "The program is still there."
for kept in var/lib/troupe/usage.db var/lib/troupe/keys var/lib/troupe/sessions etc/troupe/troupe.toml; do
  [ -e "$root/$kept" ] || fail "The removal has taken /$kept."
done
step "apt install, again" apt install troupe
as troupe troupe key list --keys-file /var/lib/troupe/keys | cmp - "$work/keys" || fail "The keys are not those before the removal."
install -D /dev/null "$root/var/log/troupe/troupe.log"
step "apt purge, autoremove" apt purge --autoremove troupe libtroupe-client0.1 libtroupe-client-dev python3-troupe
rm -rf "$root/run/troupe"  # root's socket, of this script
# What apt, dpkg and others note of any package.
files | grep -vE '^\./(var/lib/(apt|dpkg|ucf|systemd|python)|var/cache|var/log/(apt|dpkg|alternatives)|etc/(alternatives|ld\.so\.cache|.*-$)|run/adduser$)' >"$work/files-after"
left=$(comm -13 "$work/files-before" "$work/files-after")
[ -z "$left" ] || fail "A purge leaves files: $left"
gone=$(comm -23 "$work/files-before" <(files))
[ -z "$gone" ] || fail "A purge has taken files that were there before: $gone"
[ "$(in_root getent passwd troupe | cut -d: -f7)" = /usr/sbin/nologin ] || fail "The user troupe is to stay, without a shell."

printf '\nFrom %s to %s, on Debian %s:\n' "$(version_of before)" "$(version_of after)" "$(cat "$root/etc/debian_version")"
printf '%s\n' "${steps[@]}"
