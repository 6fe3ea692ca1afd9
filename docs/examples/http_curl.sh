#!/bin/sh
# The HTTP API from a shell: http_curl.sh SOCKET
set -eu
socket=$1
ask() { curl --silent --show-error --fail --unix-socket "$socket" "$@"; }

ask http://localhost/v1/models
ask http://localhost/v1/chat/completions -d '{
  "messages": [{"role": "user", "content": "Tell me of a little fox"}],
  "max_tokens": 40
}'
ask --no-buffer http://localhost/v1/completions -d '{"prompt": "Once upon a time", "max_tokens": 40, "stream": true}'
ask http://localhost/v1/messages/count_tokens -d '{"model": "", "messages": [{"role": "user", "content": "Hello"}]}'
