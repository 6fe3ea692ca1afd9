#!/bin/bash
# The Python package installs without a network, from the source tree and from an installation, and its types and those of
# the examples hold: python_install.sh CMAKE BUILD_DIR PYTHON
set -euo pipefail
cmake=$1 build=$2 python=$3
top=$(cd "$(dirname "$0")/../.." && pwd)
{ "$python" -m pip --version && "$python" -c 'import setuptools, wheel, venv'; } >/dev/null 2>&1 ||
  { echo "skipped: $python has no pip, setuptools or wheel (Debian: python3-pip)"; exit 77; }
[ -w "$build" ] || { echo "skipped: cmake --install writes a list into $build, which is read-only"; exit 77; }
dir=$(realpath "$(mktemp -d)")
trap 'rm -rf "$dir"' EXIT
unset PYTHONPATH
export PYTHONDONTWRITEBYTECODE=1 PIP_NO_CACHE_DIR=1 PIP_CONFIG_FILE=/dev/null PIP_DISABLE_PIP_VERSION_CHECK=1
fail() { echo "$*" >&2; exit 1; }

as=()  # how another user runs a command
# try NAME PACKAGE: installs it as clients/python/README.md says, and looks at what is there.
try() {
  "${as[@]}" "$python" -m venv --system-site-packages --without-pip "$dir/$1"
  (cd / && "${as[@]}" "$python" -m pip --python "$dir/$1/bin/python3" install --quiet --no-index --no-build-isolation "$2") ||
    fail "pip does not install $1"
  (cd / && "$dir/$1/bin/python3" -c "
import pathlib, sys, troupe, troupe_pb2
folder = pathlib.Path(troupe.__file__).parent
assert folder.is_relative_to('$dir/$1'), folder
assert troupe_pb2 is troupe.troupe_pb2
for name in ('py.typed', 'troupe_pb2.pyi'):
    assert (folder / name).exists(), name
") || fail "what $1 installs is not whole"
}

version=$(sed -n 's/^project(troupe VERSION \([0-9.]*\).*/\1/p' "$top/CMakeLists.txt")
grep -qxF "version = \"$version\"" "$top/clients/python/pyproject.toml" || fail "pyproject.toml is not of version $version"
mkdir -p "$dir/tree/clients" "$dir/tree/ipc"
cp "$top/ipc/troupe.proto" "$dir/tree/ipc"
cp -r "$top/clients/python" "$dir/tree/clients"
rm -rf "$dir"/tree/clients/python/{build,*.egg-info,troupe/troupe_pb2.py,troupe/troupe_pb2.pyi}
try tree "$dir/tree/clients/python"

"$cmake" --install "$build" --prefix "$dir/prefix" --component client >/dev/null
mkdir "$dir/bin"
printf '#!/bin/sh\necho "protoc is not needed here" >&2\nexit 1\n' >"$dir/bin/protoc"
chmod +x "$dir/bin/protoc"
# By a user that cannot write there.
chmod -R a+rX,a-w "$dir/prefix/share/troupe/python"
if [ "$(id -u)" -eq 0 ]; then
  chmod 755 "$dir"
  mkdir -m 777 "$dir/installed" "$dir/home"
  as=(setpriv --reuid=65534 --regid=65534 --clear-groups env "HOME=$dir/home" "TMPDIR=$dir/home")
fi
PATH=$dir/bin:$PATH try installed "$dir/prefix/share/troupe/python"
[ -z "$(ls -A "$dir/home" 2>/dev/null)" ] || fail "pip leaves files: $(ls -A "$dir/home")"
chmod -R u+w "$dir/prefix"

if command -v mypy >/dev/null; then
  cd "$build/clients/python"
  mypy --cache-dir "$dir/cache" troupe troupe_pb2.py || fail "types of the package"
  for example in "$top"/docs/examples/python_*.py; do
    MYPYPATH=. mypy --cache-dir "$dir/cache" --config-file pyproject.toml "$example" || fail "types of $example"
  done
else
  echo "no mypy: types are not checked"
fi
