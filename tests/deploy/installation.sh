#!/bin/bash
# The target `installation` builds every file that cmake --install takes out of the build folder.
# Usage: installation.sh CMAKE BUILD_DIR
set -euo pipefail
build=$2
[ -f "$build/build.ninja" ] && ninja --version >/dev/null 2>&1 || { echo "skipped: not built by ninja"; exit 77; }
inputs=$(ninja -n -C "$build" -t inputs installation 2>/dev/null | sort -u) ||
  { echo "skipped: this ninja does not list inputs"; exit 77; }
outputs=$(ninja -n -C "$build" -t targets all | sed -n 's/: [^:]*$//p' | sort -u)
count=0
# Files that the generator wrote are there as soon as the tree is configured; those that ninja makes have to be asked for.
while IFS= read -r file; do
  grep -qxF -e "$file" -e "$build/$file" <<<"$outputs" || continue
  count=$((count + 1))
  grep -qxF -e "$file" -e "$build/$file" <<<"$inputs" ||
    { echo "cmake --install takes $file, and the target installation does not build it" >&2; exit 1; }
done < <(find "$build" -name cmake_install.cmake -exec grep -ohP "\"\Q$build/\E\K[^\"\$]+(?=\")" {} + | sort -u)
[ "$count" -ge 4 ] || { echo "only $count files were found: the binary, its page and two archives are installed" >&2; exit 1; }
echo "$count files are built by the target installation"
