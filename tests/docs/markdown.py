"""Reads the project's markdown: pages, code spans, links and the anchors of headings."""
import os
import re

TOP_FOLDERS = ("actors bench cache cli clients cmake config deploy docs engine ipc kernels models scheduler tests tools").split()
SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\[\]]*\])*\]\(([^()\s]*)\)")


def pages_below(folder):
    """The markdown files, relative to the folder; builds and what git keeps are none of them."""
    found = []
    for path, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "build")
        found += [os.path.relpath(os.path.join(path, name), folder) for name in sorted(files) if name.endswith(".md")]
    return found


class Page:
    """A page, cut into text and blocks of code. Each part is (number of its first line, text)."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            lines = file.read().split("\n")
        self.prose, self.blocks, self.headings = [], [], []
        text, block, fenced = [], None, False
        for number, line in enumerate(lines, 1):
            if line.startswith("```"):
                fenced = not fenced
                if fenced:
                    self.blocks.append((number + 1, block := []))
                    self._end(text)
                else:
                    block = None
            elif fenced:
                block.append(line)
            elif line.startswith("    ") and (block is not None or not text):
                if block is None:
                    self.blocks.append((number, block := []))
                block.append(line[4:])
            elif not line.strip():
                if block is not None:
                    block.append("")
                self._end(text)
            else:
                block = None
                if re.match(r"#{1,6} ", line):
                    self._end(text)
                    self.headings.append(line.lstrip("#").strip())
                if line.startswith(("|", "- ", "#")):
                    self._end(text)
                text.append((number, line))
        self._end(text)
        self.blocks = [(number, "\n".join(block).rstrip()) for number, block in self.blocks]

    def _end(self, text):
        """A paragraph, a row of a table or an item of a list ends: a code span or a link does not go beyond it."""
        if text:
            self.prose.append((text[0][0], "\n".join(line for _, line in text)))
        text.clear()

    def spans(self):
        """The code spans of the text: (line, text)."""
        for number, text in self.prose:
            for match in SPAN.finditer(text):
                yield number + text.count("\n", 0, match.start()), " ".join(match[2].split())

    def links(self):
        """The targets of links and pictures: (line, target)."""
        for number, text in self.prose:
            bare = SPAN.sub(lambda match: re.sub(r"[\[\]()]", " ", match[0]), text)
            for match in LINK.finditer(bare):
                yield number + text.count("\n", 0, match.start()), match[1]

    def anchors(self):
        """What a link may have behind its `#`: the headings as forges write them."""
        anchors = set()
        for heading in self.headings:
            name = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
            anchor, number = name, 0
            while anchor in anchors:
                number += 1
                anchor = f"{name}-{number}"
            anchors.add(anchor)
        return anchors
