#!/bin/bash
# docs/operations.md tells to install the packages that tools/setup.sh installs, and debian/control names them, too.
# Usage: packages.sh CMAKE BUILD_DIR
set -euo pipefail
cd "$(dirname "$0")/../.."
source tools/setup.sh
# The command and the lines that it continues on; ccache only saves time.
told=$(sed -n '/sudo apt-get install/,/[^\\]$/p' docs/operations.md | tr -d '\\' | sed 's/sudo apt-get install//' | xargs -n1 | sort)
needed=$(printf '%s\n' "${kBuildPackages[@]}" | grep -vx ccache | sort)
[ -n "$told" ] || { echo "no apt-get line was found in docs/operations.md" >&2; exit 1; }
diff <(echo "$needed") <(echo "$told") >&2 || { echo "docs/operations.md (>) is not tools/setup.sh (<)" >&2; exit 1; }
# Beside them what makes packages: debhelper, and the Python package's helper.
named=$(sed -n '/^Build-Depends:/,/^$/s/^ \([^ ,]*\).*,$/\1/p' debian/control | grep -vxE 'debhelper-compat|dh-python|python3' | sort)
diff <(echo "$needed") <(echo "$named") >&2 || { echo "Build-Depends of debian/control (>) is not tools/setup.sh (<)" >&2; exit 1; }
echo "$(wc -l <<<"$told") packages in all three"
