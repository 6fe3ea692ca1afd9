#!/bin/bash
# Installs into a prefix of its own, has systemd check the units there, also as docs/operations.md changes them, and starts the
# server as the unit does, with the installed configuration file changed. Usage: units.sh CMAKE BUILD_DIR
set -euo pipefail
command -v systemd-analyze >/dev/null || { echo "skipped: there is no systemd-analyze"; exit 77; }
[ -w "$2" ] || { echo "skipped: cmake --install writes a list into $2, which is read-only"; exit 77; }
prefix=$(mktemp -d /tmp/troupe-units-XXXXXX)  # holds the address of a socket, which TMPDIR may be too long for
trap 'rm -rf "$prefix"' EXIT
"$1" --install "$2" --prefix "$prefix" >/dev/null

fail() { echo "$*" >&2; exit 1; }
# The names of units that others depend on (sysinit.target...) need a manager; what is said about ours counts.
verify() {
  local said
  said=$(XDG_RUNTIME_DIR=$prefix systemd-analyze verify --man=no --recursive-errors=no "$@" 2>&1) || fail "$said"
  [ -z "$(grep -F troupe <<<"$said" || true)" ] || fail "$said"
}
verify "$prefix"/lib/systemd/system/{troupe.{socket,service},troupe-metrics.{timer,service}}
verify --user "$prefix"/lib/systemd/user/troupe.{socket,service}

# A flag would hide what the configuration file says of the same.
for kind in system user; do
  unit=$prefix/lib/systemd/$kind/troupe.service
  [ "$(grep '^ExecStart=' "$unit")" = "ExecStart=$prefix/bin/troupe serve" ] ||
    fail "the $kind's service is not started as $prefix/bin/troupe serve, without flags"
  # The check looks at what the server will, and keeps it neither from starting nor from a second try.
  [ "$(grep '^ExecStartPre=' "$unit")" = "ExecStartPre=-$prefix/bin/troupe serve --check" ] ||
    fail "the $kind's service is not checked before its start"
done
[ -z "$(grep -rF @ "$prefix/lib/systemd" | grep -v SystemCallFilter || true)" ] || fail "something is not filled in"

# A stop must leave the drain its time, and a watchdog's period the longest step.
stop=$(sed -n 's/^TimeoutStopSec=//p' "$prefix/lib/systemd/system/troupe.service")
drain=$("$prefix/bin/troupe" serve --config /dev/null --print-config | sed -n 's/^drain-timeout = "\([0-9]*\)s".*/\1/p')
[ "$stop" -gt "$drain" ] || fail "TimeoutStopSec=$stop is not above the drain's $drain s"

# Drop-ins of docs/operations.md: each block that begins with a section of a unit.
page=$(dirname "$0")/../../docs/operations.md
mkdir "$prefix/lib/systemd/system/troupe."{service,socket}.d
awk -v folder="$prefix/lib/systemd/system" '
  /^    \[(Service|Socket)\]$/ { unit = tolower(substr($1, 2, length($1) - 2)); file = folder "/troupe." unit ".d/" ++count ".conf" }
  /^    / && file { print substr($0, 5) > file; next }
  { file = "" }' "$page"
drop_ins=$(find "$prefix/lib/systemd/system" -name '*.conf' | wc -l)
[ "$drop_ins" -ge 3 ] || fail "only $drop_ins drop-ins were found in $page"
grep -rqx 'SocketMode=0666' "$prefix/lib/systemd/system/troupe.socket.d" || fail "no drop-in of $page opens the socket"
[ -z "$(grep -rl '^ExecStart' "$prefix"/lib/systemd/system/troupe.*.d)" ] || fail "a drop-in of $page has flags of the server"
verify "$prefix"/lib/systemd/system/troupe.{socket,service}

# The configuration file: made where there is none, and left alone where there is one.
file=$prefix/root/etc/troupe/troupe.toml
if [ "$(id -u)" -eq 0 ]; then
  mkdir -p "$prefix/root$prefix/share"
  cp -r "$prefix/share/troupe" "$prefix/root$prefix/share"
  create() { systemd-tmpfiles --create --root="$prefix/root" "$prefix/lib/tmpfiles.d/troupe.conf"; }
  create
  cmp "$file" "$prefix/share/troupe/troupe.toml" || fail "systemd-tmpfiles has not made the configuration file"
  echo "# mine" >>"$file"
  create
  [ "$(tail -n 1 "$file")" = "# mine" ] || fail "systemd-tmpfiles replaces a configuration file that is there"
else
  mkdir -p "$(dirname "$file")"
  cp "$prefix/share/troupe/troupe.toml" "$file"
fi
chmod 755 "$prefix"
grep -qxF 'allow-group = ["troupe"]' "$file" || fail "the installed file does not let in the group troupe"

# As the unit starts it, on a socket that is already there; the file's place alone is another one.
group=games
gid=$(getent group "$group" | cut -d: -f3) || { echo "the units pass; skipped: no group $group for a start"; exit 0; }
sed -i "s/^allow-group = .*/allow-group = [\"$group\"]/" "$file"
log=$prefix/log
command=$(sed -n 's/^ExecStart=//p' "$prefix/lib/systemd/system/troupe.service")
# shellcheck disable=SC2086  # words
systemd-socket-activate -l "$prefix/socket" -E "STATE_DIRECTORY=$prefix/state" $command --config "$file" 2>"$log" &
server=$!
trap 'kill "$server" 2>/dev/null || true; rm -rf "$prefix"' EXIT
until [ -S "$prefix/socket" ]; do kill -0 "$server" || fail "no socket: $(cat "$log")"; sleep 0.05; done
guest() { setpriv --reuid=65534 --regid="$gid" --clear-groups "$prefix/bin/troupe" status --socket "$prefix/socket" 2>&1; }
own() { "$prefix/bin/troupe" run --socket "$prefix/socket" -n 1 Once 2>&1; }
own >/dev/null || fail "the server does not answer: $(cat "$log")"
if [ "$(id -u)" -eq 0 ]; then
  chmod 0660 "$prefix/socket"  # the unit's
  said=$(guest || true)
  grep -q 'Permission denied' <<<"$said" || fail "a guest at a closed socket is told: $said"
  chmod 0666 "$prefix/socket"  # the drop-in's
  said=$(guest) || fail "allow-group of the file does not let a guest in: $said"
fi
# The metrics that the timer's service writes, with two paths of its own.
command=$(sed -n "s/^ExecStart=.bin.sh -c '\(.*\)'$/\1/p" "$prefix/lib/systemd/system/troupe-metrics.service")
command=${command//\$\$/\$}
mkdir "$prefix/textfiles"
TEXTFILE_DIRECTORY=$prefix/textfiles sh -c "${command//\/run\/troupe\/troupe.sock/$prefix/socket}"
grep -q '^troupe:requests_received_total' "$prefix/textfiles/troupe.prom" || fail "no metrics: $command"
sed -i "s/^allow-group = .*/allow-group = []/" "$file"
kill -HUP "$server"
until grep -q "reload: " "$log"; do kill -0 "$server" || fail "the server has ended: $(cat "$log")"; sleep 0.05; done
grep -qF "reload: allow-group = [] ($file:" "$log" || fail "a reload does not take the file's allow-group: $(cat "$log")"
if [ "$(id -u)" -eq 0 ]; then
  if said=$(guest); then fail "a guest that the file does not name any more is let in: $said"; fi
  grep -q 'may not use this server' <<<"$said" || fail "a guest is told: $said"
  grep -q 'not allowed' "$log" || fail "the log does not tell of a refused guest: $(cat "$log")"
fi
kill "$server"
wait "$server" || fail "the server has not stopped cleanly: $(cat "$log")"
echo "the units pass"
