#!/bin/bash
# The code is formatted as .clang-format says. Usage: format.sh SOURCE
set -euo pipefail
cd "$1"
command -v clang-format-14 >/dev/null || { echo "skipped: there is no clang-format-14"; exit 77; }
find actors bench cache cli config docs engine ipc kernels scheduler tests \( -name '*.h' -o -name '*.cpp' \) -print0 |
  xargs -0 -n 50 -P "$(nproc)" clang-format-14 --dry-run --Werror || { echo "format them: clang-format-14 -i FILE" >&2; exit 1; }
