#!/usr/bin/env bash
# Behind nginx as it comes (HTTP/1.0 to the server, answers buffered) events arrive when they are sent, also those that
# only show that the connection is alive. Argument: the program.
set -euo pipefail
troupe=$1
for tool in curl nginx; do
  command -v "$tool" >/dev/null || PATH=$PATH:/usr/sbin:/sbin command -v "$tool" >/dev/null ||
    { echo "Skipped: $tool is not installed"; exit 77; }
done
PATH=$PATH:/usr/sbin:/sbin
folder=$(mktemp -d "${TMPDIR:-/tmp}/troupe-nginx.XXXXXX")
cat >"$folder/nginx.conf" <<CONFIG
pid $folder/nginx.pid;
events {}
http {
  access_log off;
  client_body_temp_path $folder/body;
  proxy_temp_path $folder/proxy;
  fastcgi_temp_path $folder/fastcgi;
  uwsgi_temp_path $folder/uwsgi;
  scgi_temp_path $folder/scgi;
  server {
    listen unix:$folder/proxy.sock;
    location / { proxy_pass http://unix:$folder/t.sock:; }
  }
}
CONFIG
# One answer at a time: the second waits for as long as the first goes on.
"$troupe" serve --socket "$folder/t.sock" --parallel 1 -c 65536 --usage-db off 2>"$folder/log" &
children=$!
# In one process, with the rights of this user, whom the server lets in.
nginx -p "$folder" -e "$folder/errors" -c "$folder/nginx.conf" -g 'daemon off; master_process off;' 2>>"$folder/errors" &
children="$children $!"
trap 'kill $children 2>/dev/null || true; wait $children 2>/dev/null || true; rm -rf "$folder"' EXIT

fail() { echo "$*" >&2; cat "$folder/log" "$folder/errors" >&2; exit 1; }
ask() { curl --silent --no-buffer --max-time 60 --unix-socket "$folder/proxy.sock" "$@"; }
health=$(ask --retry 100 --retry-connrefused --retry-all-errors --retry-delay 0 --fail http://localhost/health) ||
  fail "no health through nginx"
[ "$health" = '{"status":"ok"}' ] || fail "health is $health"

endless='{"prompt": "Once", "max_tokens": 60000, "ignore_eos": true, "stream": true}'
# What comes behind the first line is read, too: an answer that nobody reads lets others go first.
exec 3< <(ask http://localhost/v1/completions -d "$endless" | { IFS= read -r line && echo "$line" && cat >/dev/null; })
children="$children $!"
IFS= read -r -t 60 line <&3 || fail "no event of a running answer"
[[ $line == 'data: {'* ]] || fail "an answer begins with: $line"
exec 4< <(ask http://localhost/v1/completions -d "$endless")
children="$children $!"
IFS= read -r -t 60 line <&4 || fail "nothing of an answer that waits"
[ "$line" = ': keep-alive' ] || fail "an answer that waits begins with: $line"
