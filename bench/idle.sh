#!/bin/sh
# CPU use of an idle `troupe serve`: user and system time over a minute, as a share of one core.
#
#   bench/idle.sh [TROUPE [SECONDS [ARGUMENTS OF SERVE...]]]     exits 1 at 0.5 % or more
#
# The model is loaded and one answer has been given before the clock starts: what it needed is running.
set -eu
troupe=${1:-build/release/troupe}
seconds=${2:-60}
[ $# -ge 2 ] && shift 2 || shift $#

folder=$(mktemp -d)
"$troupe" serve --socket "$folder/troupe.sock" --log-level error "$@" &
server=$!
trap 'kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; rm -rf "$folder"' EXIT
until "$troupe" status --socket "$folder/troupe.sock" >/dev/null 2>&1; do
  kill -0 "$server"
  sleep 0.1
done
"$troupe" run --socket "$folder/troupe.sock" -n 8 --temp 0 "Once upon a time" </dev/null >/dev/null

# Nanoseconds that all its threads have run: /proc/PID/stat counts in hundredths of a second, which is too coarse.
used() { cat /proc/"$server"/task/*/schedstat | awk '{ sum += $1 } END { printf "%.0f\n", sum }'; }
before=$(used)
sleep "$seconds"
after=$(used)
awk -v ns="$((after - before))" -v s="$seconds" 'BEGIN {
  share = ns / s / 1e7
  printf "%.3f ms of CPU time in %d s: %.4f %% of a core\n", ns / 1e6, s, share
  exit !(share < 0.5)
}'
