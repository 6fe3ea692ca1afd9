#!/usr/bin/env bash
# Builds troupe and runs all its tests, from a bare Debian 12.
#
#   ./test.sh                 release build by g++, all tests
#   ./test.sh --preset asan   AddressSanitizer and UBSan, clang 14
#   ./test.sh --preset tsan   ThreadSanitizer, clang 14: the tests that link no CAF
#   ./test.sh --coverage      line coverage per folder (gcovr)
#   ./test.sh -R NAME         what follows goes to ctest: here, tests whose name matches
#
# What cannot be run here is skipped, and summed up by reason at the end: kernels that the CPU lacks, reference data
# (in ../shared, or TROUPE_SHARED_DIR) that is not there, rights that the user has not.
set -euo pipefail
cd "$(dirname "$0")"
source tools/setup.sh

preset=release
ctest_args=()
while [ $# -gt 0 ]; do
  case "$1" in
    --preset) preset=${2:?--preset needs a name: release, debug, asan, tsan, coverage}; shift 2 ;;
    --coverage) preset=coverage; shift ;;
    -h|--help) sed -n '2,/^set /p' "$0" | sed '$d; s/^# \{0,1\}//'; exit 0 ;;
    *) ctest_args+=("$1"); shift ;;
  esac
done

need_packages "${kBuildPackages[@]}" "${kTestPackages[@]}"
case "$preset" in
  asan|tsan) need_packages clang-14 libclang-rt-14-dev lld-14 ;;
  coverage) need_packages gcovr ;;
esac

jobs=$(nproc)
cmake --preset "$preset" >/dev/null || { cmake --preset "$preset"; exit 1; }
cmake --build --preset "$preset" -j "$jobs"
if [ "$preset" = coverage ]; then find build/coverage -name '*.gcda' -delete; fi
status=0
ctest --preset "$preset" -j "$jobs" "${ctest_args[@]}" || status=$?
tools/skipped.sh "build/$preset/Testing/Temporary/LastTest.log"
[ "$status" -eq 0 ] || exit "$status"

# Lines per folder; below the floor in one of the folders that decide things, the run fails. Counters of several
# threads are not atomic, so gcov reports a few negative branches: they are passed over.
if [ "$preset" = coverage ]; then
  report=build/coverage/lines.csv
  gcovr -r . --gcov-ignore-parse-errors --csv -o "$report" build/coverage 2>build/coverage/gcovr.log ||
    { tail -n 20 build/coverage/gcovr.log >&2; exit 1; }
  floor=90
  too_low=
  for folder in scheduler cache config ipc actors engine kernels cli bench; do
    read -r lines covered percent < <(awk -F, -v folder="$folder/" 'index($1, folder) == 1 {n += $2; hit += $3}
      END {print n + 0, hit + 0, n ? int(100 * hit / n) : 0}' "$report")
    printf '%-10s %5s lines %5s covered %3s %%\n' "$folder" "$lines" "$covered" "$percent"
    case "$folder" in kernels|cli|bench) continue ;; esac
    [ "$percent" -ge "$floor" ] || too_low="$too_low $folder"
  done
  if [ -n "$too_low" ]; then
    say "Below $floor % of lines:$too_low"
    exit 1
  fi
fi
