#!/bin/sh
# What the shared client library shows, and the layouts that programs share with it, are those in abi.txt, under the same
# soname: abi.sh LIBRARY INCLUDES COMPILER [--write]
set -eu
library=$1 includes=$2 compiler=$3
here=$(cd "$(dirname "$0")" && pwd)
for tool in nm readelf; do
  command -v "$tool" >/dev/null || { echo "skipped: no $tool (binutils)"; exit 77; }
done
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT INT TERM
"$compiler" -std=c++20 "-I$includes" "$here/layout.cpp" -o "$dir/layout"
{
  readelf -d "$library" | sed -n 's/.*(SONAME).*\[\(.*\)\]/soname \1/p'
  nm -DC --defined-only --without-symbol-versions "$library" | sed -n 's/^[0-9a-f]* T //p' | LC_ALL=C sort -u
  "$dir/layout"
} >"$dir/abi.txt"
if [ "${4:-}" = --write ]; then
  cp "$dir/abi.txt" "$here/abi.txt"
elif ! diff -u "$here/abi.txt" "$dir/abi.txt"; then
  echo "Programs that were linked with the library before no longer fit, unless only functions were added. After the" >&2
  echo "release of a version, raise the minor one in CMakeLists.txt with such a change (docs/stability.md); then:" >&2
  echo "$0 $library $includes $compiler --write" >&2
  exit 1
fi
