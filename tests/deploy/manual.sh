#!/bin/bash
# The manual page has every subcommand and flag, and man formats it without a warning. Usage: manual.sh CMAKE BUILD_DIR
set -euo pipefail
command -v man >/dev/null || { echo "skipped: there is no man"; exit 77; }
page=$2/deploy/troupe.1
[ -f "$page" ] || { echo "$page is not there: build the target 'manual'" >&2; exit 1; }
warnings=$(LC_ALL=C MANWIDTH=100 man --warnings -E UTF-8 -l -Tutf8 -Z "$page" 2>&1 >/dev/null)
[ -z "$warnings" ] || { echo "$warnings" >&2; exit 1; }
text=$(LC_ALL=C.UTF-8 MANWIDTH=100 man -P cat -l "$page" | sed 's/\x1b\[[0-9;]*m//g; s/.\x08//g')
for name in $("$2/troupe" help | sed -n 's/^  \([a-z]*\) .*/\1/p'); do
  grep -q "troupe $name" <<<"$text" || { echo "subcommand $name is not in the page" >&2; exit 1; }
  for flag in $("$2/troupe" help "$name" | grep -o -- '--[a-z][a-z-]*' | sort -u); do
    grep -qF -- "$flag" <<<"$text" || { echo "$flag of $name is not in the page" >&2; exit 1; }
  done
done
echo "the page is whole"
