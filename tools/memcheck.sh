#!/usr/bin/env bash
# Valgrind's memcheck over the release build: the tests of the kernels, then tokens computed and an answer served by the
# embedded model, with the scalar and the AVX2 kernels.
#
#   tools/memcheck.sh            all of it
#   tools/memcheck.sh answers    without the tests of the kernels, which take most of the time
#
# It sees what the sanitizers do not: memory that is used before it was written, also inside of libraries. Its CPU has
# AVX2 but neither AVX-512 nor AMX, so troupe finds none, and those kernels are left to ./test.sh --preset asan. Weights,
# KV cache and step buffers are mapped, and mapped pages count as written.
# Lost memory is an error where nothing points to it any more; protobuf keeps pointers into the middle of what it holds.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/setup.sh

case "${1:-}" in
  ''|answers) ;;
  *) sed -n '2,/^set /p' "$0" | sed '$d; s/^# \{0,1\}//'; [ "$1" = -h ] || [ "$1" = --help ]; exit ;;
esac

need_packages "${kBuildPackages[@]}" "${kTestPackages[@]}" valgrind
cmake --preset release >/dev/null
cmake --build --preset release -j "$(nproc)" --target troupe kernels_test
troupe=build/release/troupe
memcheck=(valgrind --quiet --error-exitcode=9 --leak-check=full --show-leak-kinds=definite,indirect
  --errors-for-leak-kinds=definite,indirect)
folder=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server"; rm -r "$folder"' EXIT

# Tokens come out the same as on the real CPU.
compute() {
  local kernels=$1 kv_type=$2 runner
  say "computing with $kernels kernels, $kv_type cache"
  echo '[1, 424, 437, 261, 399]' >"$folder/ids.json"
  for runner in checked bare; do
    local command=("$troupe" eval --tokens "$folder/ids.json" --greedy 16 -o "$folder/$runner.f32" --kernels "$kernels"
      --kv-type "$kv_type" -t 2)
    [ "$runner" = bare ] || command=("${memcheck[@]}" "${command[@]}")
    "${command[@]}" >"$folder/$runner.ids" 2>"$folder/$runner.log" || { cat "$folder/$runner.log" >&2; return 1; }
  done
  cmp "$folder/checked.ids" "$folder/bare.ids"
  cmp "$folder/checked.f32" "$folder/bare.f32"
}

serve() {
  local kernels=$1 ready=
  say "serving with $kernels kernels"
  "${memcheck[@]}" "$troupe" serve --socket "$folder/troupe.sock" --usage-db "$folder/usage.db" --kernels "$kernels" -t 1 \
    2>"$folder/server.log" &
  server=$!
  until [ -n "$ready" ]; do
    ! grep -q ready "$folder/server.log" || ready=yes
    kill -0 "$server" 2>/dev/null || { cat "$folder/server.log" >&2; server=; return 1; }
    sleep 0.2
  done
  "${memcheck[@]}" "$troupe" run --socket "$folder/troupe.sock" -n 16 --seed 1 'Once upon a time' </dev/null >/dev/null
  kill -TERM "$server"
  wait "$server" || { cat "$folder/server.log" >&2; server=; return 1; }
  server=
}

for kernels in scalar avx2; do
  compute "$kernels" f16
  compute "$kernels" int8
  serve "$kernels"
done
if [ "${1:-}" != answers ]; then
  say "the tests of the kernels"
  "${memcheck[@]}" build/release/tests/kernels/kernels_test
fi
say "memcheck found nothing"
