#!/usr/bin/env bash
# Attacks a server from outside and checks that it keeps its promises (tests/adversary; `adversary --help` lists them).
#
#   tools/adversary.sh                       a minute, in the release build: what .ci/run does
#   tools/adversary.sh 3600                  an hour
#   tools/adversary.sh 3600 asan             an hour under AddressSanitizer and UBSan, without bounds on times
#   tools/adversary.sh 10 release --attack pipeline:kind=health --seed 7
#                                            what follows the preset goes to the program
#
# Figures and findings are written to build/adversary-PRESET.json. As root the attackers, the neighbour and the server's
# owner are different users; without, what is promised to neighbours is not checked.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/setup.sh

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  sed -n '2,/^set /p' "$0" | sed '$d; s/^# \{0,1\}//'
  exit 0
fi
seconds=${1:-60} preset=${2:-release}
shift $(($# < 2 ? $# : 2))

packages=("${kBuildPackages[@]}" "${kTestPackages[@]}")
bounds=()
if [[ $preset == asan ]]; then
  packages+=(clang-14 libclang-rt-14-dev)
  # What was freed stays resident for a while, so that its use is noticed.
  bounds=(--no-latency --max-rss 6GiB --stop-rss 8GiB)
fi
need_packages "${packages[@]}"
cmake --preset "$preset" >/dev/null
cmake --build --preset "$preset" -j "$(nproc)" --target troupe adversary
say "attacking build/$preset/troupe for $seconds seconds"
# Another order and other kinds each time; the seed of what breaks is printed with it.
"build/$preset/tests/adversary/adversary" --troupe "build/$preset/troupe" --seconds "$seconds" --seed "$(date +%s)" \
  --report "build/adversary-$preset.json" "${bounds[@]}" "$@"
