#!/bin/sh
# Installs the client library alone and builds a program and the installed examples against it, as a stranger would, by
# CMake's package and by pkg-config; then runs them: installed_client.sh CMAKE BUILD_DIR COMPILER PYTHON TROUPE MODEL
set -eu
cmake=$1 build=$2 compiler=$3 python=$4 troupe=$5 model=$6
here=$(cd "$(dirname "$0")" && pwd)

[ -w "$build" ] || { echo "skipped: cmake --install writes a list into $build, which is read-only"; exit 77; }
dir=$(realpath "$(mktemp -d)")
run() { "$here/../../../docs/examples/run_example.sh" "$troupe" "$model" "$@"; }
trap 'rm -rf "$dir"' EXIT INT TERM
"$cmake" --install "$build" --prefix "$dir/prefix" --component client >/dev/null
examples=$(dirname "$(find "$dir/prefix" -name streaming.cpp)")
"$cmake" -S "$here" -B "$dir/build" -DCMAKE_PREFIX_PATH="$dir/prefix" -DCMAKE_CXX_COMPILER="$compiler" \
  -DEXAMPLES="$examples" >/dev/null
"$cmake" --build "$dir/build"
for example in basic streaming timeout_and_cancel custom_sampling conversation; do
  run "$dir/build/$example"
done
if "$python" -c 'import google.protobuf' 2>/dev/null; then
  PYTHONPATH=$dir/prefix/share/troupe/python run "$python" -B "$examples/python_streaming.py"
fi
run "$dir/build/installed_client"
run "$dir/build/with_shared"

if ! command -v pkg-config >/dev/null; then
  echo "skipped: no pkg-config" && exit 0
fi
package=$(find "$dir/prefix" -name troupe-client.pc)
flags=$(PKG_CONFIG_PATH=$(dirname "$package") pkg-config --cflags --libs troupe-client)
# shellcheck disable=SC2086  # words, each a flag
"$compiler" -std=c++20 "$here/installed_client.cpp" $flags -o "$dir/by_pkg_config"
LD_LIBRARY_PATH=$(dirname "$package")/.. run "$dir/by_pkg_config"
