#!/usr/bin/env bash
# skip_test.sh SAMPLE SKIPPED: what skip_sample prints of its cases, and what tools/skipped.sh makes of ctest's log.
set -euo pipefail
sample=$1
skipped=$2
export TROUPE_SHARED_DIR=/nonexistent
log=$(mktemp)
trap 'rm -f "$log"' EXIT

failed=0
expect() {  # expect WHAT GOT WANTED
  [ "$2" != "$3" ] || return 0
  printf '%s:\n%s\nexpected:\n%s\n' "$1" "$2" "$3"
  failed=1
}
lines_of() { "$sample" "$@" | grep '^skipped' || true; }

no_data='no reference data in /nonexistent (TROUPE_SHARED_DIR)'
of_file=$'\tchecks nothing for lack of a file'
whole=$'skipped\tcase\t'"$no_data: golden/first.json$of_file"$'
skipped\tcase\t'"$no_data: golden/second.json$of_file"$'
skipped\tcase\tonly root can become another user\tchecks nothing, in the older words'
part=$'skipped\tpart\tthis CPU lacks kernels: amx\tchecks something, and skips a variant'
expect 'cases that check nothing' "$(lines_of '[whole]')" "$whole"$'\nskipped: all 2 test cases'
expect 'a case that checks something' "$(lines_of '[part]')" "$part"
expect 'both' "$(lines_of '[whole],[part]')" "$whole"$'\n'"$part"
expect 'a warning of another kind' "$(lines_of '[other]')" ''
expect 'a failure' "$(lines_of '[failure]')" \
  $'skipped\tpart\tthis CPU lacks kernels: amx\tfails in front of what it skips'
if "$sample" '[failure]' >/dev/null; then expect 'the exit code of a failure' 0 1; fi

{
  printf '1/3 Test: whole\n'
  "$sample" '[whole]'
  printf '2/3 Test: part\n'
  "$sample" '[part]'
  printf '3/3 Test: manual\nskipped: there is no man\n'
} >"$log"
expect 'the sum' "$("$skipped" "$log")" 'Skipped: 1 program, 2 test cases, parts of 1 test case; all cases of 1 program
  1 test case: no reference data in /nonexistent (TROUPE_SHARED_DIR): golden/first.json, golden/second.json
  1 test case: only root can become another user
  parts of 1 test case: this CPU lacks kernels: amx
  1 program: there is no man'
printf '1/1 Test: quiet\n' >"$log"
expect 'nothing skipped' "$("$skipped" "$log")" ''
exit "$failed"
