#!/bin/bash
# Every test that docs/security.md names exists. Usage: security_page.sh CMAKE BUILD_DIR
set -euo pipefail
cd "$(dirname "$0")/../.."
sources=$(find tests \( -name '*.cpp' -o -name '*.py' \) -exec cat {} + | tr '\n' ' ')
count=0
while IFS= read -r name; do
  count=$((count + 1))
  case $sources in
    *"\"$name\""* | *"def $name("*) ;;
    *) echo "docs/security.md names a test that is not there: $name" >&2; exit 1 ;;
  esac
done < <(tr '\n' ' ' <docs/security.md | grep -oP '\*"\K[^"]+(?="\*)')
[ "$count" -ge 30 ] || { echo "only $count names were found in docs/security.md" >&2; exit 1; }
echo "$count tests are where docs/security.md says"
