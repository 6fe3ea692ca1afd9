"""The code of a page is that of the examples: check_page.py PAGE EXAMPLE...

Each excerpt that names its language (```cpp) of the page must stand in one of the examples, line by line, and each example be shown.
"""

import re
import sys

page, *examples = sys.argv[1:]
sources = {}
for path in examples:
    with open(path, encoding="utf-8") as file:
        sources[path] = file.read()
with open(page, encoding="utf-8") as file:
    excerpts = re.findall(r"^```\w+\n(.*?)^```$", file.read(), re.MULTILINE | re.DOTALL)

shown = set()
for excerpt in excerpts:
    found = [path for path, source in sources.items() if "\n" + excerpt in source]
    if not found:
        sys.exit(f"{page}: this is in none of the examples:\n{excerpt}")
    shown.update(found)
for path in examples:
    if path not in shown:
        sys.exit(f"{page}: no code of {path}")
print(f"{len(excerpts)} excerpts of {len(examples)} examples")
