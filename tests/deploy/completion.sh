#!/bin/bash
# The scripts that complete commands: bash completes by the one that is installed, and zsh and fish, where they are
# there, read theirs. Usage: completion.sh CMAKE BUILD_DIR
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for shell in bash zsh fish; do
  file=$2/deploy/completions/$shell
  [ -f "$file" ] || { echo "$file is not there: build the target 'completions'" >&2; exit 1; }
  "$2/troupe" completion "$shell" | cmp - "$file"
  if command -v "$shell" >/dev/null; then "$shell" -n "$file"; else echo "not read, for there is no $shell: $file"; fi
done
grep -q '^#compdef troupe$' "$2/deploy/completions/zsh" || { echo "zsh's script has no #compdef" >&2; exit 1; }

# A server whose second model has a name that must not be run.
cat >"$folder/troupe" <<END
#!/bin/bash
[ "\$*" = "model ls" ] || exit 1
printf '%s\n' 'NAME                  WEIGHTS    KV CACHE  REQUESTS  STATE' 'llama             1 GiB  1 GiB  0  ready (default)' \
  'la\$(touch $folder/run)  1 GiB  1 GiB  0  ready'
END
chmod +x "$folder/troupe"

source "$2/deploy/completions/bash"
compopt() { asked+=" $*"; }  # bash has it within a completion alone

# expect WORDS... : ANSWERS: bash completes the last of the words.
expect() {
  COMP_WORDS=("$folder/troupe")
  while [ "$1" != : ]; do COMP_WORDS+=("$1"); shift; done
  shift
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) asked=''
  COMP_LINE=${COMP_WORDS[*]} COMP_POINT=${#COMP_LINE}
  _troupe "${COMP_WORDS[0]}" || true
  local got="${COMPREPLY[*]-}$asked"
  [ "$got" = "$*" ] && return
  printf 'of "%s" bash completes "%s" and not "%s"\n' "${COMP_WORDS[*]:1}" "$got" "$*" >&2
  exit 1
}

expect se : serve session
expect -- : --help --version
expect help ver : verify version
expect completion '' : bash zsh fish
expect serve --log-l : --log-level
expect serve --log-level w : warn
expect serve --log-level = '' : trace debug info warn error off
expect serve --log-level = : trace debug info warn error off
expect serve --log-level = e : error
expect run --spec-type s : suffix
expect eval --compare-kernels sa : same
expect serve -m '' : ' -o default'
expect serve -m llama = /srv/ : ' -o default'
expect serve '' : ' -o default'
expect serve --sessions-dir '' : ' -o dirnames'
expect serve --models-dir '' : ' -o dirnames'
expect serve --models- : --models-dir --models-store --models-max
expect serve -t '' :
expect run --stop -- :
expect run Once '' :
expect model '' : ls load unload info check
expect model load '' : ' -o default'
expect model ls '' :
expect model unload l : llama 'la\$\(touch\ '"$folder"'/run\)'
expect run --model-name ll : llama
expect session f : fork
expect top --n : --no-strict-modes
[ ! -e "$folder/run" ] || { echo "the name of a model was run" >&2; exit 1; }

for wrong in "" tcsh "bash zsh"; do
  code=0
  message=$("$2/troupe" completion $wrong 2>&1) || code=$?
  [[ $code == 2 && $message == *"bash, zsh"* ]] || { echo "completion $wrong: $code $message" >&2; exit 1; }
done

[ -w "$2" ] || { echo "not installed: cmake --install writes a list into $2, which is read-only"; exit 0; }
DESTDIR=$folder/root "$1" --install "$2" --prefix /usr >/dev/null
cd "$folder/root/usr/share"
ls bash-completion/completions/troupe zsh/site-functions/_troupe fish/vendor_completions.d/troupe.fish
