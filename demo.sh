#!/usr/bin/env bash
# From a bare Debian 12 to an answer: installs what is missing, builds troupe, serves the embedded model on a
# private socket, asks it a few things, and stops it cleanly.
#
#   ./demo.sh          about four minutes on two cores the first time, seconds after that
set -euo pipefail
cd "$(dirname "$0")"
source tools/setup.sh

step() { printf '\n\033[1m== %s\033[0m\n' "$*" >&2; }
[ -t 2 ] || step() { printf '\n== %s\n' "$*" >&2; }

step "1. What it is built with (Debian 12 packages)"
need_packages "${kBuildPackages[@]}"
say "All there."

step "2. Building build/release/troupe"
if [ ! -e build/release/CMakeCache.txt ]; then
  say "With kernels for this CPU only, which is quicker; \`cmake --preset release\` is for them all."
  cmake --preset release -DTROUPE_CPU=this >/dev/null || { cmake --preset release; exit 1; }
fi
cmake --build --preset release --target installation -j "$(nproc)"

troupe=$PWD/build/release/troupe
work=$(mktemp -d)
server=
cleanup() {
  if [ -n "$server" ] && kill -0 "$server" 2>/dev/null; then kill "$server"; wait "$server" || true; fi
  rm -rf "$work"
}
trap cleanup EXIT

step "3. Serving the embedded model on a private socket"
chmod 700 "$work"
export TROUPE_HOST=unix://$work/troupe.sock
"$troupe" serve --socket "$work/troupe.sock" --usage-db "$work/usage.db" 2>"$work/server.log" &
server=$!
ready=
for _ in $(seq 300); do
  if "$troupe" status >/dev/null 2>&1; then ready=yes; break; fi
  kill -0 "$server" 2>/dev/null || break
  sleep 0.1
done
if [ -z "$ready" ]; then
  say "The server did not get ready; its log:"
  cat "$work/server.log" >&2
  exit 1
fi
cat "$work/server.log" >&2

exec </dev/null  # `troupe run` puts what is piped in before its prompt
step "4. One client: \"Once upon a time\""
"$troupe" run -v -n 120 --seed 1 "Once upon a time"

step "5. Two clients at the same time, with a common beginning"
common="Once upon a time, in a small house near the forest, there lived a little girl named Lily and her dog Max. \
Every morning they went outside to play with the big red ball that her grandmother gave her. One sunny day,"
"$troupe" run -v -n 60 --seed 2 "$common the ball" >"$work/a" 2>"$work/a.numbers" &
first=$!
"$troupe" run -v -n 60 --seed 3 "$common the dog" >"$work/b" 2>"$work/b.numbers" &
second=$!
wait "$first" "$second"
for client in a b; do
  printf '%s\n' "--- client $client"
  cat "$work/$client" "$work/$client.numbers"
done

step "6. What the server counted"
"$troupe" status

step "7. Stopping it cleanly (SIGTERM: running answers would be finished first)"
kill "$server"
wait "$server" && say "Stopped with exit code 0."
server=

cat >&2 <<TEXT

What to type next:
  build/release/troupe serve &                        # on \$XDG_RUNTIME_DIR/troupe/troupe.sock, for you alone
  build/release/troupe run "One day, a little cat"    # from any terminal of yours
  build/release/troupe serve -m your-model.gguf       # a Llama-type or BitNet model of your own
  build/release/troupe bench -p 512 -n 64             # how fast this machine is
  build/release/troupe --help
TEXT
