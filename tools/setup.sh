# Sourced by demo.sh, test.sh and tools/package.sh: makes sure that the Debian packages named in the arguments are there.
#
#   need_packages ninja-build libcaf-dev ...
#
# Installs what is missing with apt-get (through sudo where not root) and says so; does nothing, quickly,
# when all are there.

kBuildPackages=(g++ cmake ninja-build ccache pkg-config libcaf-dev libasio-dev libprotobuf-dev protobuf-compiler
  libspdlog-dev libfmt-dev libcli11-dev libtomlplusplus-dev nlohmann-json3-dev libboost-dev libhwloc-dev libpcre2-dev
  libutf8proc-dev libxxhash-dev libsystemd-dev libsqlite3-dev libedit-dev libssl-dev prometheus-cpp-dev zlib1g-dev
  libcurl4-openssl-dev)
kTestPackages=(catch2 clang-format-14 doxygen mypy python3 python3-httpx python3-jinja2 python3-jsonschema python3-numpy python3-pip python3-protobuf)
# What makes Debian packages of a build, and checks them.
kPackagePackages=(debhelper dh-python dpkg-dev lintian patchelf python3)

say() { printf '%s\n' "$*" >&2; }

need_packages() {
  local package missing=()
  for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
  done
  [ "${#missing[@]}" -eq 0 ] && return 0
  if ! command -v apt-get >/dev/null; then
    say "This needs Debian's packages ${missing[*]}, and there is no apt-get here. Install them and run this again."
    return 1
  fi
  local sudo=()
  if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
      say "Not root and no sudo: please run 'apt-get install ${missing[*]}' as root, then this again."
      return 1
    fi
    sudo=(sudo)
  fi
  say "Installing Debian packages: ${missing[*]}"
  "${sudo[@]}" apt-get update -q >/dev/null ||
    say "apt-get update failed; trying with the package lists that are there"
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" >/dev/null
}
