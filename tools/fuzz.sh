#!/usr/bin/env bash
# Runs the libFuzzer targets of tests/fuzz (clang 14, AddressSanitizer and UBSan; the asan preset builds them).
#
#   tools/fuzz.sh                    every target for 5 seconds, always from the same seed: what .ci/run does
#   tools/fuzz.sh gguf 3600          one target for an hour; a third argument is the number of processes
#   tools/fuzz.sh --mutations N      N mutated model files, 10 N mutated frames and 20 N mutated chat templates
#                                    instead (docs/numbers.md reports N = 10,000)
#
# New inputs are collected in build/fuzz/TARGET and are the next run's start. One that breaks something lies in
# build/fuzz/TARGET-crash-*: fix what it shows, and keep it as tests/fuzz/regressions/TARGET/WHAT-IT-WAS, which every
# ctest run replays.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/setup.sh

targets=(api call_grammar chat_template config frame gbnf gguf http metadata pattern pull sampler schema sequence_file server_frame
  tokenizer tool_calls weights_file)
preset=asan
programs=build/$preset/tests/fuzz

build() {
  need_packages "${kBuildPackages[@]}" "${kTestPackages[@]}" clang-14 libclang-rt-14-dev
  cmake --preset "$preset" >/dev/null
  cmake --build --preset "$preset" -j "$(nproc)" --target "$@"
}

# A landing should not depend on chance: longer runs, of other seeds, look for what is new.
# Bounds of one input: 10 seconds, and memory far above what the limits in docs/limits.md allow it to take.
fuzz() {
  local target=$1 seconds=$2 processes=$3 seed=$4 dictionary=tests/fuzz/dictionaries/$1 found=build/fuzz/$1
  local options=(-seed="$seed" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=3000 -max_len=20000
    -print_final_stats=1 -artifact_prefix="build/fuzz/$target-")
  [ ! -f "$dictionary" ] || options+=(-dict="$dictionary")
  [ "$processes" = 1 ] || options+=(-fork="$processes")
  mkdir -p "$found" "tests/fuzz/regressions/$target"
  say "fuzzing $target for $seconds seconds"
  "$programs/fuzz_$target" "${options[@]}" "$found" "tests/fuzz/corpus/$target" "tests/fuzz/regressions/$target" \
    >"build/fuzz/$target.log" 2>&1 || { tail -n 60 "build/fuzz/$target.log"; exit 1; }
  grep -E 'number_of_executed_units|new_units_added' "build/fuzz/$target.log" || true
}

case "${1:-}" in
  -h|--help) sed -n '2,/^set /p' "$0" | sed '$d; s/^# \{0,1\}//'; exit 0 ;;
  --mutations)
    count=${2:?--mutations needs a number}
    build model_mutation_test frame_mutation_test chat_mutation_test
    TROUPE_MUTATIONS=$count "$programs/model_mutation_test"
    TROUPE_MUTATIONS=$((10 * count)) "$programs/frame_mutation_test"
    TROUPE_MUTATIONS=$((20 * count)) "$programs/chat_mutation_test"
    ;;
  '')
    build "${targets[@]/#/fuzz_}"
    for target in "${targets[@]}"; do fuzz "$target" 5 1 1; done
    ;;
  *)
    build "fuzz_$1"
    fuzz "$1" "${2:-60}" "${3:-1}" 0  # 0: another one each time
    ;;
esac
