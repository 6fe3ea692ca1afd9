"""Makes text of a server safe for a terminal or a log. As the C++ library does it (config/printable.h)."""
from __future__ import annotations

import re

_MOST = 8192  # characters of a message, which may have several names in it
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
# Control characters (C0, DEL, C1), zero-width characters, line and paragraph separators, marks and overrides of writing
# direction, and halves of surrogate pairs, which no terminal can be sent.
_HIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff\ud800-\udfff]")


def printable(text: str) -> str:
    """The text on one line of bounded length, without escape sequences, and without characters that make it look like
    another: they become "\\n", "\\x1b" or "\\u202e". Printable text is not changed."""
    shown = _HIDDEN.sub(_escaped, text[:_MOST + 1])
    return shown if len(shown) <= _MOST else shown[:_MOST - 1] + "\u2026"


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return _NAMED.get(match[0]) or (f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}")
