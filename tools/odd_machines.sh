#!/usr/bin/env bash
# Runs tests as other machines would: with one CPU, other kernels, a busy neighbour, few descriptors, another user, an
# unusual environment. By hand, after a build; some minutes for each condition.
#
#   tools/odd_machines.sh                        every condition
#   tools/odd_machines.sh one-cpu umask-000      these
#   tools/odd_machines.sh --list                 what they are
#   tools/odd_machines.sh --preset debug ...     another build; release where nothing is said
#   tools/odd_machines.sh -R test_cli_serve ...  others, as ctest -R names them; '.' is all
#
# At the end a line for each condition: what passed, what failed, or why it could not be run (many need root). Logs of
# conditions that failed stay in a folder that is named.
set -euo pipefail
cd "$(dirname "$0")/.."

preset=release
# The tests that depend on CPUs, caches, kernels, sockets, users, folders or variables.
tests='cli|ipc|load|gateway|protocol_test|team|memory|probe|profiler|determinism|weights_cache|sequence|extensions|config'
tests+='|compare|kernel_ratios|random_model|deploy|isa_objects|installed|kernels'
wanted=()
while [ $# -gt 0 ]; do
  case "$1" in
    --preset) preset=${2:?--preset needs a name}; shift 2 ;;
    -R) tests=${2:?-R needs an expression}; shift 2 ;;
    --list) wanted=(list); shift ;;
    -h|--help) sed -n '2,/^set /p' "$0" | sed '$d; s/^# \{0,1\}//'; exit 0 ;;
    *) wanted+=("$1"); shift ;;
  esac
done

build=$PWD/build/$preset
work=
undo=()
finish() {
  local command
  for command in "${undo[@]}"; do eval "$command" || true; done
  [ -z "$work" ] || rmdir "$work" 2>/dev/null || true
}
trap finish EXIT

is_root() { [ "$(id -u)" -eq 0 ]; }
has_kernels() { "$build/troupe" version --json | grep -q "\"$1\""; }
left_out() { printf '%s' "$*" >"$work/left_out"; }

# check COMMAND...: the tests under COMMAND, in a copy of ctest's own files, so that another user can write its logs.
# One at a time, as they would share the CPU or the descriptors that the condition leaves.
check() {
  local logs=$work/$condition
  mkdir -m 0777 "$logs"
  (cd "$build" && find . -name CTestTestfile.cmake -exec cp --parents {} "$logs" \;)
  "$@" ctest --test-dir "$logs" -R "$tests" -E "${except:-^$}" --output-on-failure --timeout 1200 >"$logs.log" 2>&1 || true
}

# ---- Conditions: `NAME | WHAT IT IS`, then the function. ----------------------------------------------------------

conditions=(
  "one-cpu|one CPU (taskset)"
  "cpu-quota|half a CPU's time (a control group)"
  "scalar|TROUPE_KERNELS=scalar"
  "avx2|TROUPE_KERNELS=avx2"
  "avxvnni|TROUPE_KERNELS=avxvnni"
  "no-amx|the kernel refuses the matrix unit (a seccomp filter)"
  "busy|two processes of higher priority that never sleep"
  "files-64|64 descriptors (ulimit -n)"
  "files-128|128 descriptors"
  "files-256|256 descriptors"
  "small-stack|a stack of 1 MiB (ulimit -s)"
  "core-files|core files of any size (ulimit -c)"
  "other-user|another user, no home, build and sources read-only"
  "no-home|no HOME, XDG_RUNTIME_DIR, USER, LOGNAME or TERM"
  "read-only-home|a HOME and XDG folders that nothing can be written to"
  "locale|LANG and LC_ALL of a language that is not installed, an unusual TZ"
  "umask-077|files are the user's own"
  "umask-000|files are open to all users"
  "relative-tmpdir|TMPDIR=."
  "long-tmpdir|TMPDIR longer than the address of a socket"
  "private-tmpdir|TMPDIR that other users cannot enter"
  "small-tmpdir|TMPDIR of 64 MiB (a tmpfs)"
  "private-tree|the project lies below a folder of mode 0700"
  "variables|TROUPE_ variables, NO_COLOR, a cache and a socket of another service"
  "closed-stdin|no standard input"
  "no-shared|no reference data"
)

condition_one-cpu() { check taskset -c "$(taskset -pc $$ | sed 's/.*: //; s/[,-].*//')"; }
condition_cpu-quota() {
  local group=/sys/fs/cgroup/cpu/troupe-odd-$$
  is_root && [ -w /sys/fs/cgroup ] || { left_out "needs root and writable control groups"; return; }
  if [ -f /sys/fs/cgroup/cgroup.controllers ]; then group=/sys/fs/cgroup/troupe-odd-$$; fi
  mkdir "$group" 2>/dev/null || { left_out "cannot make $group"; return; }
  undo+=("rmdir $group")
  if [ -f "$group/cpu.max" ]; then
    echo '50000 100000' >"$group/cpu.max"
  elif [ -f "$group/cpu.cfs_quota_us" ]; then
    echo 50000 >"$group/cpu.cfs_quota_us"
  else
    left_out "$group has no quota"
    return
  fi
  check sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group"
}
kernels() {
  has_kernels "$1" || { left_out "this CPU cannot run them"; return; }
  check env TROUPE_KERNELS="$1"
}
condition_scalar() { kernels scalar; }
condition_avx2() { kernels avx2; }
condition_avxvnni() { kernels avxvnni; }
condition_no-amx() {
  has_kernels amx || { left_out "this CPU has none, or this process may not use it"; return; }
  check python3 -c '
import ctypes, os, struct, sys
def op(code, jt, jf, k): return struct.pack("HBBI", code, jt, jf, k)
# arch_prctl (158) with ARCH_REQ_XCOMP_PERM (0x1023) fails with EPERM; all else is allowed.
code = (op(0x20, 0, 0, 0) + op(0x15, 0, 3, 158) + op(0x20, 0, 0, 16) + op(0x15, 0, 1, 0x1023) +
        op(0x06, 0, 0, 0x00050001) + op(0x06, 0, 0, 0x7fff0000))
memory = ctypes.create_string_buffer(code)
program = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(memory))
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, program): sys.exit("cannot set a filter of system calls")
os.execvp(sys.argv[1], sys.argv[1:])'
}
condition_busy() {
  local nice=() burners=()
  if is_root; then nice=(nice -n -5); fi
  for _ in 1 2; do
    timeout 3600 "${nice[@]}" sh -c 'while :; do :; done' &
    burners+=($!)
  done
  check
  kill "${burners[@]}"
  wait "${burners[@]}" 2>/dev/null || true
}
limited() { check bash -c "ulimit $1 && exec \"\$@\"" limited; }
condition_files-64() { limited '-n 64'; }
condition_files-128() { limited '-n 128'; }
condition_files-256() { limited '-n 256'; }
condition_small-stack() { limited '-s 1024'; }
condition_core-files() { limited '-c unlimited'; }
condition_other-user() {
  is_root || { left_out "needs root"; return; }
  local except=documentation  # doxygen writes into the build folder
  check env -u HOME -u XDG_RUNTIME_DIR setpriv --reuid 12345 --regid 12345 --clear-groups
}
condition_no-home() { check env -u HOME -u XDG_RUNTIME_DIR -u USER -u LOGNAME -u TERM; }
condition_read-only-home() {
  # Not even root writes here.
  check env HOME=/proc XDG_RUNTIME_DIR=/proc XDG_CACHE_HOME=/proc XDG_CONFIG_HOME=/proc
}
condition_locale() { check env LANG=C LC_ALL=tr_TR.UTF-8 TZ=Asia/Kathmandu; }
condition_umask-077() { check sh -c 'umask 077 && exec "$@"' umask; }
condition_umask-000() { check sh -c 'umask 000 && exec "$@"' umask; }
condition_relative-tmpdir() { check env TMPDIR=.; }
condition_long-tmpdir() {
  local folder
  folder=$work/long/$(printf 'x%.0s' {1..120})
  mkdir -p "$folder"
  check env TMPDIR="$folder"
  rm -r "$work/long"
}
condition_private-tmpdir() {
  mkdir -m 0700 "$work/private"
  check env TMPDIR="$work/private"
  rm -r "$work/private"
}
condition_small-tmpdir() {
  local folder=$work/small
  mkdir "$folder"
  mount -t tmpfs -o size=64m,mode=1777 troupe-odd "$folder" 2>/dev/null || { rmdir "$folder"; left_out "cannot mount"; return; }
  undo+=("umount $folder && rmdir $folder")
  check env TMPDIR="$folder"
}
condition_private-tree() {
  local mode
  mode=$(stat -c %a .)
  undo+=("chmod $mode '$PWD'")
  chmod 0700 .
  check
}
condition_variables() {
  check env TROUPE_HOST=unix:///nonexistent.sock TROUPE_SOCKET=/nonexistent.sock TROUPE_MODEL=/nonexistent.gguf \
    TROUPE_THREADS=1 TROUPE_MEMORY=1M TROUPE_CTX_SIZE=32 TROUPE_LOG_LEVEL=error TROUPE_CONFIG=/nonexistent.toml \
    TROUPE_TERNARY=lookup TROUPE_TEST_KILL=period=1s,seed=1 NO_COLOR=1 COLUMNS=20 CACHE_DIRECTORY=/nonexistent \
    NOTIFY_SOCKET=/nonexistent LISTEN_FDS=3 LISTEN_PID=1 WATCHDOG_USEC=1000
}
condition_closed-stdin() { check sh -c 'exec "$@" <&-' closed; }
condition_no-shared() { check env TROUPE_SHARED_DIR=/nonexistent; }

# ---- One after another --------------------------------------------------------------------------------------------

if [ "${wanted[*]:-}" = list ]; then
  for entry in "${conditions[@]}"; do printf '%-16s %s\n' "${entry%%|*}" "${entry#*|}"; done
  exit 0
fi
for name in "${wanted[@]}"; do
  declare -F "condition_$name" >/dev/null || { echo "there is no condition '$name'; --list has them" >&2; exit 2; }
done
[ -x "$build/troupe" ] || { echo "there is no build/$preset: ./test.sh --preset $preset makes it" >&2; exit 1; }
[ "${#wanted[@]}" -gt 0 ] || for entry in "${conditions[@]}"; do wanted+=("${entry%%|*}"); done

work=$(mktemp -d /tmp/troupe-odd-XXXXXX)
chmod 0755 "$work"
failed=0
for condition in "${wanted[@]}"; do
  rm -f "$work/left_out"
  begin=$SECONDS
  "condition_$condition"
  for command in "${undo[@]}"; do eval "$command" || true; done
  undo=()
  if [ -f "$work/left_out" ]; then
    printf '%-16s left out: %s\n' "$condition" "$(cat "$work/left_out")"
    rm "$work/left_out"
    continue
  fi
  log=$work/$condition.log
  summary=$(sed -n 's/.*tests passed, \([0-9]* tests failed out of [0-9]*\).*/\1/p' "$log")
  printf '%-16s %s, %s s' "$condition" "${summary:-nothing ran}" "$((SECONDS - begin))"
  rm -rf "${work:?}/$condition"
  case $summary in
    '0 tests failed out of '[1-9]*)
      skipped=$(grep -c '\*\*\*Skipped' "$log" || true)
      [ "$skipped" -eq 0 ] || printf ', %s skipped' "$skipped"
      rm "$log" ;;
    *)
      failed=1
      sed -n 's/^\t *[0-9]* - \([^ ]*\) .*/ \1/p' "$log" | tr -d '\n'
      printf '; %s' "$log" ;;
  esac
  printf '\n'
done
exit "$failed"
