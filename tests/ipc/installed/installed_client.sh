#!/bin/sh
# Installs the client library alone and builds a program against it, as a stranger would, by CMake's package and by
# pkg-config; then runs it: installed_client.sh CMAKE BUILD_DIR COMPILER TROUPE MODEL
set -eu
cmake=$1 build=$2 compiler=$3 troupe=$4 model=$5
here=$(cd "$(dirname "$0")" && pwd)

[ -w "$build" ] || { echo "skipped: cmake --install writes a list into $build, which is read-only"; exit 77; }
dir=$(realpath "$(mktemp -d)")
trap 'rm -rf "$dir"' EXIT INT TERM
"$cmake" --install "$build" --prefix "$dir/prefix" --component client >/dev/null
"$cmake" -S "$here" -B "$dir/build" -DCMAKE_PREFIX_PATH="$dir/prefix" -DCMAKE_CXX_COMPILER="$compiler" >/dev/null
"$cmake" --build "$dir/build"
"$here/../../../docs/examples/run_example.sh" "$troupe" "$model" "$dir/build/installed_client"

if ! command -v pkg-config >/dev/null; then
  echo "skipped: no pkg-config" && exit 0
fi
package=$(find "$dir/prefix" -name troupe-client.pc)
flags=$(PKG_CONFIG_PATH=$(dirname "$package") pkg-config --cflags --libs troupe-client)
# shellcheck disable=SC2086  # words, each a flag
"$compiler" -std=c++20 "$here/installed_client.cpp" $flags -o "$dir/by_pkg_config"
"$here/../../../docs/examples/run_example.sh" "$troupe" "$model" "$dir/by_pkg_config"
