#!/usr/bin/env bash
# golden_fixtures.sh PYTHON MAKE: tests/data/golden is what MAKE makes, and where there are logits of llama.cpp, its
# passes agree with them.
set -euo pipefail
"$1" -c 'import numpy' 2>/dev/null || { echo "skipped: $1 has no numpy (Debian's python3-numpy)"; exit 77; }
"$1" -B "$2" --verify
shared=${TROUPE_SHARED_DIR:-../shared}
if [ -d "$shared/golden" ]; then
  "$1" -B "$2" --check "$shared/golden"
else
  printf 'skipped\tpart\tno reference data in %s (TROUPE_SHARED_DIR): golden\tpasses of tools/golden\n' "$shared"
fi
