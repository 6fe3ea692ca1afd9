#!/usr/bin/env bash
# Packages a release build, and checks what comes of it: the files of each package against the lists beside this script,
# scripts and conffiles, two runs byte by byte, an answer of the unpacked program, the client library and the Python
# package, and what lintian says. .ci/run runs it.
#
#   tests/package/run.sh build/release            # half a minute, without compiling
#   tests/package/run.sh build/release --write    # writes the lists anew: look at the difference before you commit it
set -euo pipefail
cd "$(dirname "$0")/../.."
source tools/setup.sh
export LC_ALL=C
export DPKG_DEB_COMPRESSOR_TYPE=gzip  # what ships is smaller, and takes longer

fail() { say "$*"; exit 1; }
build=${1:?the folder of a release build}
lists=tests/package
work=$(mktemp -d /tmp/troupe-package-XXXXXX)  # holds the address of a socket, which TMPDIR may be too long for
server=
cleanup() {
  if [ -n "$server" ] && kill -0 "$server" 2>/dev/null; then kill "$server"; wait "$server" || true; fi
  rm -rf "$work"
}
trap cleanup EXIT

need_packages python3-protobuf
tools/package.sh --from "$build" --output "$work/debs" --repository "$work/apt" >"$work/said" || { cat "$work/said"; exit 1; }
packages=$(sed -n 's/^Package: //p' debian/control)
deb_of() { ls "$work/debs/$1"_*.deb; }

# Mode, owner, path and where a link leads; sizes and times differ from build to build.
wrong=
for package in $packages; do
  deb=$(deb_of "$package") || fail "No package $package was made."
  dpkg-deb --contents "$deb" | awk '{ printf "%s %s", $1, $2; for (i = 6; i <= NF; ++i) printf " %s", $i; print "" }' |
    sort -k3 >"$work/$package.list"
  if [ "${2:-}" = --write ]; then
    cp "$work/$package.list" "$lists/$package.list"
  elif ! diff -u "$lists/$package.list" "$work/$package.list" >&2; then
    say "$lists/$package.list (-) is not what the package $package has now (+)."
    wrong=yes
  fi
done
[ -z "$wrong" ] || fail "A file that is meant to be installed, or no more, belongs into the lists: $0 $build --write.
One that is not meant to: debian/*.install say which package has what."

# The version of CMakeLists.txt is the one of the changelog, and of the Python package.
version=$(sed -n 's/^project(troupe VERSION \([0-9.]*\) .*/\1/p' CMakeLists.txt)
[ "$version" = "$(dpkg-parsechangelog -l debian/changelog -S Version)" ] ||
  fail "CMakeLists.txt says version $version, and debian/changelog another one."
grep -qx "version = \"$version\"" clients/python/pyproject.toml ||
  fail "CMakeLists.txt says version $version, and clients/python/pyproject.toml another one."
made=$(dpkg-deb --field "$(deb_of troupe)" Version)
case $made in "$version" | "$version"~*) ;; *) fail "The package's version $made is not of $version." ;; esac

# What dpkg asks about before it replaces it.
root=$work/root
mkdir "$work/control"
for package in $packages; do dpkg-deb --raw-extract "$(deb_of "$package")" "$work/control/$package"; done
[ "$(sort "$work/control/troupe/DEBIAN/conffiles" | xargs)" = "/etc/logrotate.d/troupe /etc/troupe/troupe.toml" ] ||
  fail "Other conffiles than expected: $(cat "$work/control/troupe/DEBIAN/conffiles")"
# Nothing begins to run by an installation, and the socket outlives an upgrade.
scripts=$(cat "$work/control/troupe/DEBIAN/postinst")
! grep -qE "(invoke|systemctl) (start|restart)|deb-systemd-helper enable .*\|\| exit" <<<"$scripts" ||
  fail "The package's postinst starts something: $scripts"
[ "$(grep -oE "deb-systemd-invoke try-restart .*troupe.service'" <<<"$scripts")" = "deb-systemd-invoke try-restart 'troupe.service'" ] ||
  fail "An upgrade does not restart troupe.service, where it runs, and nothing else: $scripts"
[ ! -e "$work/control/troupe/DEBIAN/preinst" ] || fail "A preinst would stop something at an upgrade."

# The bytes depend on the commit alone: not on the time, the folder of the build, or what the files' times are.
tools/package.sh --from "$build" --output "$work/again" >/dev/null
for deb in "$work"/debs/*.deb; do
  cmp "$deb" "$work/again/$(basename "$deb")" || fail "Two runs do not make the same package $(basename "$deb")."
done
here=$PWD here_folders=()
for folder in actors bench build cache cli config engine ipc kernels models scheduler; do here_folders+=(-e "$here/$folder/"); done
found=$(cd "$work/control" && grep -rlaF "${here_folders[@]}" . || true)
[ -z "$found" ] || fail "Paths of $here are in packaged files: $found"

# The program, from the folder that it was unpacked into.
for package in $packages; do dpkg-deb --extract "$(deb_of "$package")" "$root"; done
troupe=$root/usr/bin/troupe
export TROUPE_HOST=unix://$work/t.sock HOME=$work XDG_CACHE_HOME=$work/cache XDG_STATE_HOME=$work/state
"$troupe" serve --config /dev/null --socket "$work/t.sock" 2>"$work/log" &
server=$!
until "$troupe" status >/dev/null 2>&1; do
  kill -0 "$server" 2>/dev/null || fail "The packaged server has ended: $(cat "$work/log")"
  sleep 0.05
done
answer=$("$troupe" run -n 16 --temp 0 "Once upon a time" </dev/null)
[ -n "$answer" ] || fail "The packaged server has given no answer."
PYTHONPATH=$root/usr/lib/python3/dist-packages /usr/bin/python3 -B - <<'P' || fail "The Python package gets no answer."
import asyncio, troupe
async def main():
    async with troupe.Client() as client:
        assert (await client.generate("Once", max_tokens=4)).text
asyncio.run(main())
P
# Alone it says what is missing, and takes no model from where the source has it in a build.
mkdir -p "$work/alone/usr/bin" "$work/alone/models"
cp "$troupe" "$work/alone/usr/bin"
cp "$root"/usr/share/troupe/models/*.gguf "$work/alone/models"
status=0
said=$("$work/alone/usr/bin/troupe" inspect 2>&1) || status=$?
[ "$status" -eq 66 ] && grep -qF "$work/alone/usr/share/troupe/models" <<<"$said" ||
  fail "Without its model the program ends with $status, not 66, and says: $said"
# Programs are linked with the shared library as pkg-config says.
if command -v pkg-config >/dev/null && command -v g++ >/dev/null; then
  printf '#include <troupe/ipc/client/client.h>\nint main() { return troupe::client::Client::connect({}) ? 0 : 1; }\n' >"$work/a.cpp"
  # shellcheck disable=SC2046  # words
  PKG_CONFIG_PATH=$root/usr/lib/pkgconfig g++ -std=c++20 "$work/a.cpp" -o "$work/a.out" \
    $(PKG_CONFIG_PATH=$root/usr/lib/pkgconfig pkg-config --cflags --libs troupe-client) || fail "Nothing can be linked with the library."
  LD_LIBRARY_PATH=$root/usr/lib "$work/a.out" || fail "A program with the library reaches no server."
fi
kill "$server"
wait "$server" || fail "The packaged server has not stopped cleanly: $(cat "$work/log")"
server=

# apt finds what it is told of.
(cd "$work/apt" && sed -n 's/^ \([0-9a-f]\{64\}\) [0-9]* \(.*\)/\1  \2/p' Release | sha256sum --check --quiet) ||
  fail "The hashes in Release are not those of the files."
[ "$(sed -n 's/^Package: //p' "$work/apt/Packages" | sort | xargs)" = "$(sort <<<"$packages" | xargs)" ] ||
  fail "Packages does not list what is there."

if command -v lintian >/dev/null; then
  lintian --fail-on error,warning --allow-root "$work"/debs/troupe_*.changes || fail "lintian is not content (above)."
else
  say "skipped in part: there is no lintian"
fi
say "$(wc -l <<<"$packages") packages of version $made are as listed, and answer"
