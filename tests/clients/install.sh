#!/bin/sh
# Installs the packages of package.json, as package-lock.json pins them, into a folder: install.sh FOLDER
# Exit status 77, with a word, where node, npm or the registry are missing.
set -eu
here=$(dirname "$0") folder=$1
for program in node npm; do
  command -v $program >/dev/null || { echo "skipped: $program is not installed"; exit 77; }
done
node -e 'process.exit(process.versions.node.split(".")[0] >= 20 ? 0 : 1)' ||
  { echo "skipped: node $(node --version) is older than 20"; exit 77; }
mkdir -p "$folder"
[ -w "$folder" ] || { echo "skipped: $folder is read-only"; exit 77; }
cp "$here/package.json" "$folder"
if cmp -s "$here/package-lock.json" "$folder/node_modules/.installed"; then exit 0; fi
cp "$here/package-lock.json" "$folder"
cd "$folder"
timeout 180 npm ci --ignore-scripts --no-audit --no-fund --fetch-retries=1 --fetch-timeout=30000 >npm.log 2>&1 ||
  { tail -n 5 npm.log; echo "skipped: npm could not install the packages"; exit 77; }
cp package-lock.json node_modules/.installed
