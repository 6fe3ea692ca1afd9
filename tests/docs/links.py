"""Follows every link of the markdown pages below a folder: files and anchors are there, and nothing lies outside.

    links.py tree SOURCE              of the source tree, and every path that a page names in code
    links.py installed CMAKE BUILD    of what `cmake --install` puts into a prefix
"""
import glob
import os
import re
import subprocess
import sys
import tempfile

from markdown import TOP_FOLDERS, Page, pages_below

PATH = re.compile(rf"(?<![\w/.*@:-])(?:{'|'.join(TOP_FOLDERS)})/[\w./*-]*")
# Paths that a page names as the map of CONTRIBUTING.md does, below tests/.
BELOW_TESTS = ("cli/interpose/", "engine/installed/", "ipc/installed/")


def broken_links(root):
    wrong, followed = [], 0
    pages = {name: Page(os.path.join(root, name)) for name in pages_below(root)}
    for name, page in pages.items():
        for line, target in page.links():
            followed += 1
            if re.match(r"(https?|mailto):", target):
                continue
            file, _, anchor = target.partition("#")
            path = os.path.normpath(os.path.join(os.path.dirname(name), file)) if file else name
            if path.startswith(("..", "/")):
                wrong.append(f"{name}:{line}: {target} leads out of the folder")
            elif not os.path.exists(os.path.join(root, path)):
                wrong.append(f"{name}:{line}: {target}: there is no {path}")
            elif anchor and (path not in pages or anchor not in pages[path].anchors()):
                wrong.append(f"{name}:{line}: {target}: {path} has no heading with this anchor")
    return wrong, len(pages), followed


def unreachable(root):
    """Each page of docs/ can be found from the README, link by link."""
    reached, waiting = set(), ["README.md"]
    while waiting:
        name = waiting.pop()
        if name in reached or not os.path.exists(os.path.join(root, name)):
            continue
        reached.add(name)
        targets = [target.partition("#")[0] for _, target in Page(os.path.join(root, name)).links()]
        waiting += [os.path.normpath(os.path.join(os.path.dirname(name), target)) for target in targets if target.endswith(".md")]
    return [f"no link leads from README.md to {name}" for name in pages_below(root) if name.startswith("docs/") and name not in reached]


def missing_paths(root):
    """What looks like a path of the tree, anywhere on a page, is there; `*` and names in capitals stand for anything."""
    wrong, looked_up = [], 0
    for name in pages_below(root):
        page = Page(os.path.join(root, name))
        for first, text in page.prose + page.blocks:
            for match in PATH.finditer(text):
                path = match[0].rstrip(".")
                looked_up += 1
                if path in BELOW_TESTS:
                    path = "tests/" + path
                if not glob.glob(os.path.join(root, re.sub(r"\b[A-Z][A-Z-]+\b", "*", path))):
                    wrong.append(f"{name}:{first + text.count(chr(10), 0, match.start())}: there is no {path}")
    return wrong, looked_up


def main():
    if sys.argv[1] == "tree":
        wrong, pages, followed = broken_links(sys.argv[2])
        missing, looked_up = missing_paths(sys.argv[2])
        wrong += missing + unreachable(sys.argv[2])
        print(f"{followed} links of {pages} pages, {looked_up} paths")
        enough = pages > 30 and followed > 100 and looked_up > 300
    else:
        cmake, build = sys.argv[2:4]
        if not os.access(build, os.W_OK):
            print(f"skipped: cmake --install writes a list into {build}, which is read-only")
            return 77
        with tempfile.TemporaryDirectory(prefix="installed-", dir=build) as prefix:
            subprocess.run([cmake, "--install", build, "--prefix", prefix], check=True, stdout=subprocess.DEVNULL)
            wrong, pages, followed = broken_links(prefix)
        print(f"{followed} links of {pages} installed pages")
        enough = pages > 25 and followed > 100
    if not enough:
        wrong.append("so few were found that the pages are not read as they are written")
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
