#!/usr/bin/env bash
# Makes the environments of the programs that the tests with the label `programs` run against the server:
#
#   tools/programs.sh             make what is missing, and print the folder: some minutes and 3 GB
#   tools/programs.sh clients     one of them: clients, evaluation (lm-eval), aider, agents (coding agents, from npm) or
#                                 node (libraries, from npm)
#   ctest --preset release -L programs
#
# The packages come from Python's package index (the one that pip is set up for), those of agents and node from npm's, into
# $XDG_CACHE_HOME/troupe-tests/programs, by default ~/.cache/troupe-tests/programs, in the versions that
# tests/programs/*.txt and node/package-lock.json pin. Nothing of them is part of this project. TROUPE_PROGRAMS_PYTHON names the Python to take (3.11
# or 3.12), by default python3.
#
# Ends with 77 where there is no such Python, no venv, no node 20 or no index: the tests then say that they skip.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=${XDG_CACHE_HOME:-$HOME/.cache}/troupe-tests/programs
python=${TROUPE_PROGRAMS_PYTHON:-python3}

say() { printf '%s\n' "$*" >&2; }

install_from_pip() {
  local name=$1 wanted=$2
  "$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 13))' 2>/dev/null ||
    { say "programs: the versions are pinned for Python 3.11 and 3.12; TROUPE_PROGRAMS_PYTHON names one"; exit 77; }
  "$python" -c 'import ensurepip, venv' 2>/dev/null ||
    { say "programs: $python makes no environments (Debian: apt-get install python3-venv)"; exit 77; }
  "$python" -m venv --clear "$folder/$name"
  # The list is whole, so that pip resolves nothing.
  "$folder/$name/bin/python" -m pip install -q --disable-pip-version-check --no-deps --timeout 20 --retries 1 -r "$wanted" >&2 ||
    { say "programs: pip found no package index, or none that has all of $wanted"; exit 77; }
  "$folder/$name/bin/python" -m pip check --disable-pip-version-check >&2
}

make_folder_for_npm() {
  node -e 'process.exit(process.versions.node.split(".")[0] >= 20 ? 0 : 1)' 2>/dev/null && command -v npm >/dev/null ||
    { say "programs: $1 needs node 20 and npm"; exit 77; }
  rm -rf "${folder:?}/$1"
  mkdir "$folder/$1"
}

install_agents() {
  local name=$1 wanted=$2
  make_folder_for_npm "$name"
  # Each package names the versions of all that it brings. Of their scripts only the two run that put a program in place.
  xargs npm install --prefix "$folder/$name" --ignore-scripts --no-audit --no-fund --loglevel=error \
    --fetch-retries=1 --fetch-timeout=30000 <"$wanted" >&2 ||
    { say "programs: npm found no package index, or none that has all of $wanted"; exit 77; }
  (cd "$folder/$name/node_modules/@anthropic-ai/claude-code" && node install.cjs >&2)
  (cd "$folder/$name/node_modules/opencode-ai" && node postinstall.mjs >&2)
}

install_from_lock() {
  local name=$1 wanted=$2
  make_folder_for_npm "$name"
  cp "$wanted" "${wanted%-lock.json}.json" "$folder/$name"
  (cd "$folder/$name" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error --fetch-retries=1 --fetch-timeout=30000 >&2) ||
    { say "programs: npm found no package index, or none that has all of $wanted"; exit 77; }
}

for name in "$@"; do
  case $name in
    clients | evaluation | aider | agents | node) ;;
    *) sed -n '2,/^set /p' "$0" | sed '$d; s/^# \{0,1\}//'; exit 0 ;;
  esac
done
[ $# -gt 0 ] || set -- clients evaluation aider agents node

mkdir -p "$folder"
exec 9>"$folder/.lock"
flock 9  # another run is at it

for name in "$@"; do
  wanted=tests/programs/$name.txt
  if [ "$name" = node ]; then wanted=tests/programs/node/package-lock.json; fi
  if cmp -s "$wanted" "$folder/$name/installed.txt"; then continue; fi
  say "programs: installing the packages of $wanted"
  case $name in
    agents) install_agents "$name" "$wanted" ;;
    node) install_from_lock "$name" "$wanted" ;;
    *) install_from_pip "$name" "$wanted" ;;
  esac
  cp "$wanted" "$folder/$name/installed.txt"
done
echo "$folder"
