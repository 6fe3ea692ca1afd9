#!/usr/bin/env python3
"""Draws docs/chat.svg: what a terminal shows of `troupe chat` with the embedded model.

    tools/chat/terminal_picture.py TROUPE [OUT.svg]

Starts a server and a chat on a pseudo-terminal, types LINES, and draws the characters with their colours.
"""
import html
import os
import pathlib
import pty
import re
import select
import subprocess
import sys
import tempfile
import time

COLUMNS, ROWS = 104, 40
# What is typed.
LINES = ["Once upon a time, a little fox found a boat.", "The next morning,", "/stats"]
COLORS = {"1;32": "#7ec699", "36": "#6fb3d2", "2": "#8a8f98"}
STEP, LINE, PAD = 8.4, 19, 14  # pixels


class Screen:
    """As much of a terminal as libedit and troupe use."""

    def __init__(self):
        self.rows, self.row, self.column, self.style, self.rest = [{}], 0, 0, "", ""

    def write(self, text):
        text, self.rest = self.rest + text, ""
        while text:
            escape = re.match(r"\x1b\[([?0-9;]*)([A-Za-z])", text)
            if escape:
                self.escape(*escape.groups())
                text = text[escape.end():]
            elif text[0] == "\x1b" and len(text) < 12:
                self.rest = text
                return
            else:
                self.put(text[0])
                text = text[1:]

    def escape(self, numbers, letter):
        count = int(numbers) if numbers.isdigit() else 1
        if letter == "m":
            self.style = "" if numbers in ("", "0") else numbers
        elif letter == "K":
            self.rows[self.row] = {at: cell for at, cell in self.rows[self.row].items() if at < self.column}
        elif letter == "C":
            self.column += count
        elif letter == "D":
            self.column = max(0, self.column - count)
        elif letter == "A":
            self.row = max(0, self.row - count)

    def put(self, c):
        if c == "\r":
            self.column = 0
        elif c == "\b":
            self.column = max(0, self.column - 1)
        elif c == "\n":
            self.next_row()
        elif c >= " ":
            if self.column == COLUMNS:
                self.column = 0
                self.next_row()
            self.rows[self.row][self.column] = (c, self.style)
            self.column += 1

    def next_row(self):
        self.row += 1
        if self.row == len(self.rows):
            self.rows.append({})


def runs(row):
    """(column, text, style) of neighbours with one style."""
    made = []
    for at in sorted(row):
        c, style = row[at]
        if made and made[-1][2] == style and made[-1][0] + len(made[-1][1]) == at:
            made[-1] = (made[-1][0], made[-1][1] + c, style)
        else:
            made.append((at, c, style))
    return [each for each in made if each[1].strip()]


def svg(rows):
    width, height = int(COLUMNS * STEP + 2 * PAD), int(len(rows) * LINE + 2 * PAD)
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
             f'<rect width="{width}" height="{height}" rx="6" fill="#1e2127"/>',
             '<g font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="14" fill="#d7dae0" xml:space="preserve">']
    for number, row in enumerate(rows):
        for column, text, style in runs(row):
            fill = f' fill="{COLORS[style]}"' if style in COLORS else ""
            lines.append(f'<text x="{PAD + column * STEP:.1f}" y="{PAD + number * LINE + 14}"{fill} '
                         f'textLength="{len(text) * STEP:.1f}">{html.escape(text)}</text>')
    return "\n".join(lines + ["</g>", "</svg>"]) + "\n"


def talk(troupe, socket):
    environment = {"TERM": "xterm", "PATH": os.environ["PATH"], "HOME": "/nonexistent", "LANG": "C.UTF-8"}
    child, terminal = pty.fork()
    if child == 0:
        os.execve(troupe, ["troupe", "chat", "--socket", socket, "--temp", "0.7", "--seed", "11", "-n", "48"], environment)
    import fcntl, struct, termios
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    screen, seen = Screen(), ""

    def read_until(text, since):
        nonlocal seen
        deadline = time.monotonic() + 60
        while text not in seen[since:]:
            if not select.select([terminal], [], [], max(0, deadline - time.monotonic()))[0]:
                sys.exit(f"the chat does not show {text!r}: {seen!r}")
            part = os.read(terminal, 65536).decode(errors="replace")
            seen += part
            screen.write(part)

    screen.write("$ troupe chat\r\n")
    prompt = ">\x1b[0m "
    read_until(prompt, 0)
    for line in LINES:
        since = len(seen)
        os.write(terminal, (line + "\r").encode())
        read_until(prompt, since)
    rows = [dict(row) for row in screen.rows]
    os.write(terminal, b"/quit\r")
    os.waitpid(child, 0)
    return rows


def main():
    troupe = os.path.abspath(sys.argv[1])
    out = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else pathlib.Path(__file__).parents[2] / "docs/chat.svg"
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o700)
        socket = folder + "/troupe.sock"
        server = subprocess.Popen([troupe, "serve", "--socket", socket], stderr=subprocess.PIPE, text=True)
        for line in server.stderr:
            if "ready" in line:
                break
        try:
            rows = talk(troupe, socket)
        finally:
            server.terminate()
            server.wait()
    out.write_text(svg(rows), encoding="utf-8")
    print(f"{out}: {len(rows)} lines, {out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
