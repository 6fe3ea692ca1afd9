#!/bin/sh
# Runs an example against a server of its own: run_example.sh TROUPE MODEL EXAMPLE...
# Starts `TROUPE serve` on a private socket, with a chat template, runs EXAMPLE (a program, and what goes before its last
# argument) with the socket's path, stops the server, and ends with the example's exit code, or the server's if that one
# is worse.
set -eu
troupe=$1 model=$2
shift 2

dir=$(mktemp -d /tmp/troupe-example-XXXXXX)  # TMPDIR may be too long for the address of a socket
server=
cleanup() {
  if [ -n "$server" ]; then kill "$server" 2>/dev/null || true; fi
  rm -rf "$dir"
}
trap cleanup EXIT INT TERM

"$troupe" serve -m "$model" --socket "$dir/troupe.sock" --usage-db "$dir/usage.db" \
  --sessions-dir "$dir/sessions" --chat-template chatml 2>"$dir/log" &
server=$!
# The socket exists before the model is loaded: clients that connect early wait in its queue.
for _ in $(seq 600); do
  if [ -S "$dir/troupe.sock" ]; then break; fi
  if ! kill -0 "$server" 2>/dev/null; then break; fi
  sleep 0.05
done
export HOME="${HOME:-$dir}"  # httpx does not start without one
result=0
"$@" "$dir/troupe.sock" || result=$?
kill "$server" 2>/dev/null || true
stopped=0
wait "$server" || stopped=$?
server=
if [ "$result" -ne 0 ] || [ "$stopped" -ne 0 ]; then
  echo "example: exit $result, server: exit $stopped; the server's log:" >&2
  cat "$dir/log" >&2
fi
if [ "$result" -ne 0 ]; then exit "$result"; fi
exit "$stopped"
