#!/usr/bin/env bash
# Tests what docs/stability.md promises against another commit's build: its clients with this server, this one's clients
# with its server, and the sessions, accounts, keys, packed weights, backups and metrics that it leaves.
#
#   tools/compatibility.sh                        # build/release, and the commit before HEAD
#   tools/compatibility.sh --before v0.1.0        # another commit
#   tools/compatibility.sh --from build/release --before HEAD~3 -- -k sessions    # behind --: for the tests
#
# Options:
#   --before COMMIT    the older one (HEAD~1)
#   --from BUILD       the release build of this tree, compiled first (build/release)
#
# The older one is compiled once, which takes minutes, and kept by its hash in $XDG_CACHE_HOME/troupe-tests/builds, by
# default ~/.cache/troupe-tests/builds; the last five stay.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/setup.sh

before=HEAD~1 from=build/release
while [ $# -gt 0 ]; do
  case "$1" in
    --before) before=${2:?--before needs a commit}; shift 2 ;;
    --from) from=${2:?--from needs the folder of a build}; shift 2 ;;
    --) shift; break ;;
    -h|--help) sed -n '2,/^set /p' "$0" | sed '$d; s/^# \{0,1\}//'; exit 0 ;;
    *) say "tools/compatibility.sh: what is '$1'? --help lists the options."; exit 2 ;;
  esac
done
commit=$(git rev-parse --verify --quiet "$before^{commit}") || { say "There is no commit $before."; exit 2; }
builds=${XDG_CACHE_HOME:-$HOME/.cache}/troupe-tests/builds
older=$builds/$commit
work=$(mktemp -d "${TMPDIR:-/tmp}/troupe-compatibility-XXXXXX")
trap 'rm -rf "$work"' EXIT

if [ ! -x "$older/bin/troupe" ]; then
  need_packages "${kBuildPackages[@]}"
  say "Compiling $(git log -1 --format='%h %s' "$commit"), which is kept in $older"
  git clone --quiet --no-checkout . "$work/before"
  git -C "$work/before" checkout --quiet --detach "$commit"
  build=(bash -euc 'cd "$1"; cmake --preset release >/dev/null; cmake --build --preset release --target installation -j "$(nproc)" >/dev/null
    cmake --install build/release --prefix "$2" >/dev/null' bash)
  mkdir -p "$builds"
  if [ "$(id -u)" -eq 0 ]; then
    # In the place of this tree, for ccache.
    unshare --mount bash -euc 'mount --bind "$1" "$2"; shift 2; exec "$@"' bash "$work/before" "$PWD" "${build[@]}" "$PWD" "$work/older"
  else
    "${build[@]}" "$work/before" "$work/older"
  fi
  mv "$work/older" "$older"
  ls -dt "$builds"/*/ | tail -n +6 | xargs -r rm -rf
fi
touch "$older"
cmake --preset release >/dev/null
cmake --build "$from" --target installation -j "$(nproc)" >/dev/null
cmake --install "$from" --prefix "$work/newer" >/dev/null
python3 -B tests/compatibility/compatibility_test.py "$older" "$work/newer" "$@"
