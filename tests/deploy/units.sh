#!/bin/bash
# Installs into a prefix of its own and has systemd check the units there. Usage: units.sh CMAKE BUILD_DIR
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
verify "$prefix"/lib/systemd/system/troupe.{socket,service}
verify --user "$prefix"/lib/systemd/user/troupe.{socket,service}

grep -qxF "ExecStart=$prefix/bin/troupe serve --allow-group troupe" "$prefix/lib/systemd/system/troupe.service" ||
  fail "the system's service does not start the binary of its prefix"
grep -qxF "ExecStart=$prefix/bin/troupe serve" "$prefix/lib/systemd/user/troupe.service" ||
  fail "the user's service does not start the binary of its prefix"
[ -z "$(grep -rF @ "$prefix/lib/systemd" | grep -v SystemCallFilter || true)" ] || fail "something is not filled in"

# A stop must leave the drain its time, and a watchdog's period the longest step.
stop=$(sed -n 's/^TimeoutStopSec=//p' "$prefix/lib/systemd/system/troupe.service")
drain=$("$prefix/bin/troupe" serve --config /dev/null --print-config | sed -n 's/^drain-timeout = "\([0-9]*\)s".*/\1/p')
[ "$stop" -gt "$drain" ] || fail "TimeoutStopSec=$stop is not above the drain's $drain s"
echo "the units pass"
