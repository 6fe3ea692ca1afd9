#!/usr/bin/env bash
# curl speaks with a server, over its Unix socket and over TCP. Argument: the program.
set -euo pipefail
troupe=$1
command -v curl >/dev/null || { echo "Skipped: curl is not installed"; exit 77; }
folder=$(mktemp -d "${TMPDIR:-/tmp}/troupe-curl.XXXXXX")
socket=$folder/t.sock
"$troupe" serve --socket "$socket" --listen tcp://127.0.0.1:0 --no-auth --usage-db off 2>"$folder/log" &
server=$!
trap 'kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; rm -rf "$folder"' EXIT

fail() { echo "$*" >&2; cat "$folder/log" >&2; exit 1; }
ask() { curl --silent --show-error --fail --max-time 60 --retry 100 --retry-connrefused --retry-all-errors --retry-delay 0 \
  --unix-socket "$socket" "$@"; }
holds() { [[ $1 == *"$2"* ]] || fail "no $2 in: $1"; }

holds "$(ask http://localhost/health)" '{"status":"ok"}'
holds "$(ask http://localhost/v1/models)" '"object":"list"'
body='{"prompt": "Once upon a time", "max_tokens": 8, "seed": 1}'
whole=$(ask http://localhost/v1/completions -d "$body")
holds "$whole" '"finish_reason":"length"'
holds "$(ask -N http://localhost/v1/completions -d '{"prompt": "Once", "max_tokens": 8, "stream": true}')" 'data: [DONE]'
holds "$(ask http://localhost/metrics)" 'troupe:requests_received_total'
# The address is in the log, as port 0 means any.
address=$(sed -n 's#.*HTTP on tcp://\(127\.0\.0\.1:[0-9]*\).*#http://\1#p' "$folder/log" | head -n 1)
[ -n "$address" ] || fail "the log names no address"
holds "$(curl --silent --fail --max-time 60 "$address/health")" '{"status":"ok"}'
code=$(curl --silent --max-time 60 -o /dev/null -w '%{http_code}' -H 'Host: evil.example' "$address/health")
[ "$code" = 421 ] || fail "another host was answered with $code"
text() { sed 's/.*"text":"\([^"]*\)".*/\1/' <<<"$1"; }
[ "$(text "$(curl --silent --fail --max-time 60 "$address/v1/completions" -d "$body")")" = "$(text "$whole")" ] ||
  fail "another answer over TCP"
