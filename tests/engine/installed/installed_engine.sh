#!/bin/sh
# Installs the engine alone, builds the examples of docs/extending.md against it, as a stranger would, and runs them:
# installed_engine.sh CMAKE BUILD_DIR COMPILER MODEL
set -eu
cmake=$1 build=$2 compiler=$3 model=$4
here=$(cd "$(dirname "$0")" && pwd)
top=$here/../../..

[ -w "$build" ] || { echo "skipped: cmake --install writes a list into $build, which is read-only"; exit 77; }
dir=$(realpath "$(mktemp -d)")
trap 'rm -rf "$dir"' EXIT INT TERM
"$cmake" --install "$build" --prefix "$dir/prefix" --component engine >/dev/null
# Outside, headers are <troupe/...>; the writer of GGUF files that one example borrows comes along.
mkdir -p "$dir/sources/troupe/tests/engine"
for source in docs/examples/step_trace.cpp docs/examples/kernel_variant.cpp docs/examples/weight_type.cpp \
  docs/examples/memory_policy.cpp; do
  sed 's|^#include "\(.*\)"|#include <troupe/\1>|' "$top/$source" >"$dir/sources/$(basename "$source")"
done
for header in tests/engine/gguf_copy.h tests/engine/gguf_writer.h; do
  sed 's|^#include "\(.*\)"|#include <troupe/\1>|' "$top/$header" >"$dir/sources/troupe/$header"
done
"$cmake" -S "$here" -B "$dir/build" -DCMAKE_PREFIX_PATH="$dir/prefix" -DCMAKE_CXX_COMPILER="$compiler" \
  -DSOURCES="$dir/sources" >/dev/null
"$cmake" --build "$dir/build"
for example in kernel_variant weight_type memory_policy; do "$dir/build/$example" "$model"; done
"$dir/build/step_trace" "$model" | grep -c '"dur"'
