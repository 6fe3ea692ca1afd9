#!/usr/bin/env bash
# Makes troupe's Debian packages, a folder that apt takes as a source of packages, and an archive for any x86-64 Linux.
#
#   tools/package.sh                                  # compiles build/release if it is not up to date; into build/package
#   tools/package.sh --from build/release             # of what is compiled there, without compiling: half a minute
#   tools/package.sh --repository /srv/apt/troupe     # and a source for apt; the line for sources.list is printed
#   tools/package.sh --repository DIR --sign KEY      # signed with that key of gpg's
#   tools/package.sh --tarball                        # and troupe-VERSION-linux-x86_64.tar.gz, which runs from any folder
#
# Options:
#   --from BUILD        the folder of a release build, with its target `installation` built
#   --output DIR        where packages and archive are put (build/package); packages of earlier runs there are removed
#   --repository DIR    puts the packages into a source for apt as well, with Packages, Packages.gz and Release
#   --sign KEY          signs it: Release.gpg, InRelease, and the public key as troupe.gpg
#   --tarball           makes the archive as well; it has the libraries that it needs, but for glibc and libstdc++
#
# The version is that of CMakeLists.txt where the commit has the tag vVERSION. Any other commit comes before it:
# VERSION~DATE.NUMBER.gCOMMIT, DATE being the commit's and NUMBER how many there are up to it, since two may be of one
# second; a tree with changes is VERSION~DATE.NUMBER.gCOMMIT+dirty. Two runs for one commit make the same bytes, wherever
# the tree lies, with the same compiler and Debian packages. SOURCE_DATE_EPOCH replaces the commit's time in the files.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/setup.sh
export LC_ALL=C TZ=UTC

fail() { say "$*"; exit 1; }

from='' output=build/package repository='' key='' tarball=''
while [ $# -gt 0 ]; do
  case "$1" in
    --from) from=${2:?--from needs the folder of a build: build/release}; shift 2 ;;
    --output) output=${2:?--output needs a folder}; shift 2 ;;
    --repository) repository=${2:?--repository needs a folder}; shift 2 ;;
    --sign) key=${2:?--sign needs a key: gpg --list-secret-keys}; shift 2 ;;
    --tarball) tarball=yes; shift ;;
    -h|--help) sed -n '2,/^set /p' "$0" | sed '$d; s/^# \{0,1\}//'; exit 0 ;;
    *) fail "tools/package.sh: what is '$1'? --help lists the options." ;;
  esac
done
[ -z "$key" ] || [ -n "$repository" ] || fail "--sign signs a source for apt: name its folder with --repository."
[ -z "$key" ] || gpg --list-secret-keys "$key" >/dev/null 2>&1 || fail "gpg has no secret key '$key': gpg --list-secret-keys"

need_packages "${kPackagePackages[@]}"
if [ -z "$from" ]; then
  need_packages "${kBuildPackages[@]}"
  from=build/release
  cmake --preset release >/dev/null || { cmake --preset release; exit 1; }
  cmake --build --preset release --target installation -j "$(nproc)"
fi

# A build that would run on this machine alone, or is not what is tested, is not packaged.
from=$(cd "$from" 2>/dev/null && pwd) || fail "--from: there is no folder $from; cmake --preset release makes build/release."
cached() { sed -n "s/^$1:[A-Z]*=//p" "$from/CMakeCache.txt"; }
[ -e "$from/CMakeCache.txt" ] || fail "$from is not the folder of a build: it has no CMakeCache.txt."
[ "$(cached CMAKE_HOME_DIRECTORY)" = "$PWD" ] || fail "$from is a build of $(cached CMAKE_HOME_DIRECTORY), not of $PWD."
[ "$(cached CMAKE_BUILD_TYPE)" = Release ] || fail "$from is no release build: cmake --preset release"
[ "$(cached TROUPE_CPU)" = any ] ||
  fail "$from is compiled for the CPU of this machine only (TROUPE_CPU=this, as demo.sh does): cmake --preset release"
for made in troupe deploy/troupe.1 deploy/completions/bash ipc/installed/libtroupe_client.so clients/python/troupe/troupe_pb2.py; do
  [ -e "$from/$made" ] || fail "$from has no $made: cmake --build --preset release --target installation"
done

version=$(sed -n 's/^project(troupe VERSION \([0-9.]*\) .*/\1/p' CMakeLists.txt)
[ -n "$version" ] || fail "CMakeLists.txt says no version: project(troupe VERSION ...)"
if commit=$(git rev-parse --short=12 HEAD 2>/dev/null); then
  time=$(git log -1 --format=%ct)
  at=$(date -d "@$time" +%Y%m%d%H%M%S).$(git rev-list --count HEAD).g${commit:0:8}
  if ! git diff --quiet HEAD; then
    version+=~$at+dirty
  elif ! git tag --points-at HEAD | grep -qx "v$version"; then
    version+=~$at
  fi
  grep -qF "($commit)" <<<"$("$from/troupe" version)" ||
    say "Note: $from is a build of another commit than $commit; cmake --preset release, and build it again."
else
  time=$(dpkg-parsechangelog -l debian/changelog -S Timestamp)
fi
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$time}

mkdir -p "$output"
output=$(cd "$output" && pwd)
stage=$(mktemp -d "$output/.stage-XXXXXX")
trap 'rm -rf "$stage"' EXIT

# debian/ alone: what is packaged is installed from the build, and the pages from the tree that it is of.
make_packages() {
  local log=$stage/log
  mkdir "$stage/troupe"
  cp -R debian "$stage/troupe"
  # The topmost entry is of the version that the tree becomes: it gets this version, and this time.
  awk -v version="$version" -v date="$(date -R -d "@$SOURCE_DATE_EPOCH")" '
    !done && /^troupe \(/ { sub(/\([^)]*\)/, "(" version ")") }
    !done && /^ -- / { sub(/>  .*/, ">  " date); done = 1 }
    { print }' debian/changelog >"$stage/troupe/debian/changelog"
  (cd "$stage/troupe" && TROUPE_BUILD=$from dpkg-buildpackage --build=binary --no-sign --no-check-builddeps \
    --no-pre-clean) >"$log" 2>&1 || { cat "$log" >&2; fail "dpkg-buildpackage failed."; }
  rm -f "$output"/*.deb "$output"/troupe_*.changes "$output"/troupe_*.buildinfo
  mv "$stage"/*.deb "$stage"/troupe_*.changes "$stage"/troupe_*.buildinfo "$output"
}

# A flat repository: apt reads Packages for the names, and Release for the hashes of Packages.
make_repository() {
  mkdir -p "$repository"
  repository=$(cd "$repository" && pwd)
  rm -f "$repository"/{Release,Release.gpg,InRelease}
  cp --preserve=timestamps "$output"/*.deb "$repository"
  (
    cd "$repository"
    dpkg-scanpackages --multiversion . 2>/dev/null >Packages
    gzip -9nk --force Packages
    { echo "Origin: troupe"
      echo "Label: troupe"
      echo "Suite: stable"
      echo "Architectures: amd64 all"
      echo "Date: $(date -R -u -d "@$SOURCE_DATE_EPOCH")"
      echo "SHA256:"
      for file in Packages Packages.gz; do
        echo " $(sha256sum "$file" | cut -d' ' -f1) $(stat -c %s "$file") $file"
      done; } >Release
    [ -n "$key" ] || exit 0
    gpg --batch --yes --local-user "$key" --armor --detach-sign --output Release.gpg Release
    gpg --batch --yes --local-user "$key" --clearsign --output InRelease Release
    gpg --batch --yes --export --output troupe.gpg "$key"
  ) || fail "The source for apt could not be made in $repository."
  local trusted='trusted=yes'
  if [ -n "$key" ]; then
    trusted='signed-by=/etc/apt/keyrings/troupe.gpg'
    echo "sudo install -D -m 644 $repository/troupe.gpg /etc/apt/keyrings/troupe.gpg"
  fi
  echo "echo 'deb [$trusted] file:$repository ./' | sudo tee /etc/apt/sources.list.d/troupe.list"
  echo "sudo apt update && sudo apt install troupe"
}

# The libraries that a program needs, but for those that every system has, and a newer one in a compatible form: glibc's,
# which belong to the machine's kernel and name service, and GCC's.
libraries_of() {
  ldd "$1" | awk '$2 == "=>" { print $3 }' | while IFS= read -r library; do
    case $(basename "$library") in
      ld-linux*|libc.so.*|libm.so.*|libmvec.so.*|libdl.so.*|librt.so.*|libpthread.so.*|libresolv.so.*|libutil.so.* | \
        libgcc_s.so.*|libstdc++.so.*) ;;
      *) echo "$library" ;;
    esac
  done
}

make_tarball() {
  local name=troupe-${version//\~/-}-linux-x86_64 root library package licence glibc libstdcxx
  root=$stage/$name
  local archive=$output/$name.tar.gz
  mkdir -p "$root" "$stage/whole"
  DESTDIR=$stage/whole cmake --install "$from" --prefix /usr >/dev/null
  mkdir -p "$root/bin" "$root/lib" "$root/share/doc/troupe/licenses"
  cp "$stage/whole/usr/bin/troupe" "$root/bin"
  cp -R "$stage/whole/usr/share/troupe" "$root/share"
  cp -R "$stage/whole/usr/share/man" "$stage/whole/usr/share/bash-completion" "$stage/whole/usr/share/zsh" \
    "$stage/whole/usr/share/fish" "$root/share"
  cp -R "$stage/whole/usr/share/doc/troupe" "$root/share/doc"
  cp LICENSE "$root"
  while IFS= read -r library; do
    cp "$library" "$root/lib/$(basename "$library")"
    # dpkg names files by the folders that they had before /lib became a link.
    package=$(dpkg -S "$(realpath "$library")" 2>/dev/null || dpkg -S "/usr$(realpath "$library")" 2>/dev/null ||
      dpkg -S "$(realpath "$library" | sed 's,^/usr,,')" 2>/dev/null) || fail "$library is of no Debian package: no licence of it."
    package=${package%%:*}
    cp --dereference "/usr/share/doc/$package/copyright" "$root/share/doc/troupe/licenses/$package.copyright"
  done < <(libraries_of "$root/bin/troupe" | sort -u)
  # The licences that those files refer to.
  for licence in $(grep -rhoE '/usr/share/common-licenses/[A-Za-z0-9.-]*[A-Za-z0-9]' "$root/share/doc/troupe/licenses" | sort -u); do
    [ ! -e "$licence" ] || cp --dereference "$licence" "$root/share/doc/troupe/licenses"
  done
  chmod -R u+w,go+rX,go-w "$root"
  strip --strip-unneeded "$root/bin/troupe"
  patchelf --set-rpath "\$ORIGIN/../lib" "$root/bin/troupe"
  for library in "$root"/lib/*; do patchelf --set-rpath "\$ORIGIN" "$library"; done
  # symbols PREFIX: the newest version of a system library's symbols that is needed.
  symbols() { objdump -T "$root/bin/troupe" "$root"/lib/* | grep -oE "\b$1_[0-9.]+" | sort -u -V | tail -n 1; }
  glibc=$(symbols GLIBC) libstdcxx=$(symbols GLIBCXX)
  cat >"$root/README" <<TEXT
troupe $version for Linux on x86-64

What it needs of the system: glibc ${glibc#GLIBC_} or newer, and libstdc++ with $libstdcxx, as Debian 12 and Ubuntu 22.04 have and
whatever is newer. Its other libraries, of Debian 12, are in lib/.

    bin/troupe serve &
    bin/troupe run "Once upon a time"

It runs from any folder. share/doc/troupe has its pages, and share/doc/troupe/licenses what applies to each library of
lib/. Those get no security updates of a system: take a newer archive, or the Debian packages.
TEXT
  tar --create --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --format=gnu \
    -C "$stage" "$name" | gzip -9n >"$archive"
  say "It needs glibc ${glibc#GLIBC_} or newer, and libstdc++ with $libstdcxx."
  echo "$archive"
}

make_packages
(cd "$output" && ls -- *.deb | sed "s,^,$output/,")
[ -z "$tarball" ] || make_tarball
[ -z "$repository" ] || make_repository
