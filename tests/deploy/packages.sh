#!/bin/bash
# docs/operations.md tells to install the packages that tools/setup.sh installs. Usage: packages.sh CMAKE BUILD_DIR
set -euo pipefail
cd "$(dirname "$0")/../.."
source tools/setup.sh
# The command and the lines that it continues on; ccache only saves time.
told=$(sed -n '/sudo apt-get install/,/[^\\]$/p' docs/operations.md | tr -d '\\' | sed 's/sudo apt-get install//' | xargs -n1 | sort)
needed=$(printf '%s\n' "${kBuildPackages[@]}" | grep -vx ccache | sort)
[ -n "$told" ] || { echo "no apt-get line was found in docs/operations.md" >&2; exit 1; }
diff <(echo "$needed") <(echo "$told") >&2 || { echo "docs/operations.md (>) is not tools/setup.sh (<)" >&2; exit 1; }
echo "$(wc -l <<<"$told") packages in both"
