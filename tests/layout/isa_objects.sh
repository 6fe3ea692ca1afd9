#!/bin/sh
# Looks at the symbols of the kernels' archive: isa_objects.sh NM ARCHIVE
# An object compiled for a newer CPU must define no weak symbol: the linker may take a shared inline function from
# it for the whole program, which then crashes on an older CPU.
set -eu
nm=$1 archive=$2
found=0
for object in $(ar t "$archive" | grep -E '_(avx2|avxvnni|avx512|avx512vnni|amx)\.cpp\.o$'); do
  found=$((found + 1))
  weak=$("$nm" -C --defined-only "$archive" 2>/dev/null |
    awk -v object="$object:" '/^[^ ]+:$/ {mine = ($0 == object)} mine && $2 ~ /^[WVu]$/' || true)
  if [ -n "$weak" ]; then
    echo "$object defines weak symbols:" >&2
    echo "$weak" >&2
    exit 1
  fi
done
if [ "$found" -eq 0 ]; then
  echo "no object of a newer CPU in $archive" >&2
  exit 1
fi
echo "$found objects, no weak symbols"
