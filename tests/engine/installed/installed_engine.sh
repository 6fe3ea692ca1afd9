#!/bin/sh
# Installs the engine alone, builds the examples that come with it (docs/extending.md) against it, as a stranger would, and runs them:
# installed_engine.sh CMAKE BUILD_DIR COMPILER MODEL
set -eu
cmake=$1 build=$2 compiler=$3 model=$4
here=$(cd "$(dirname "$0")" && pwd)

[ -w "$build" ] || { echo "skipped: cmake --install writes a list into $build, which is read-only"; exit 77; }
dir=$(realpath "$(mktemp -d)")
trap 'rm -rf "$dir"' EXIT INT TERM
"$cmake" --install "$build" --prefix "$dir/prefix" --component engine >/dev/null
"$cmake" -S "$here" -B "$dir/build" -DCMAKE_PREFIX_PATH="$dir/prefix" -DCMAKE_CXX_COMPILER="$compiler" \
  -DSOURCES="$(dirname "$(find "$dir/prefix" -name step_trace.cpp)")" >/dev/null
"$cmake" --build "$dir/build"
for example in kernel_variant weight_type memory_policy; do "$dir/build/$example" "$model"; done
"$dir/build/step_trace" "$model" | grep -c '"dur"'
