#!/usr/bin/env python3
"""Writes tests/data/chat/language.jsonl: small templates, and what Jinja2 renders them to in transformers' set-up.

    tools/chat/make_language_cases.py            writes the file (Debian's python3-jinja2)
    tools/chat/make_language_cases.py --verify   exits 1 if the file is another one, 77 without Jinja2
"""
import json
import pathlib
import sys

from transformers_jinja import environment

CASES = pathlib.Path(__file__).parent / "language_cases.txt"
OUT = pathlib.Path(__file__).parents[2] / "tests/data/chat/language.jsonl"

# What every case may use.
VARIABLES = {
    "n": 7, "neg": -3, "x": 2.5, "t": True, "f": False, "nil": None, "s": "Hello, World", "empty": "",
    "uni": "Grüße, 世界 👋", "pad": "  two words \n", "csv": "a,b,,c", "multi": "one\ntwo\r\nthree\n",
    "l": [3, 1, 2], "names": ["bob", "Alice", "carol"], "none_list": [], "nested": [[1, 2], [3, 4]],
    "d": {"b": 1, "a": {"deep": [10, 20]}, "items": 5, "key with space": "v"}, "empty_map": {},
    "rows": [{"name": "x", "size": 2, "tag": {"k": "p"}}, {"name": "y", "size": 1, "tag": {"k": "q"}},
             {"name": "z", "size": 2}],
    "messages": [{"role": "system", "content": "Be nice."}, {"role": "user", "content": "Hi <there>"},
                 {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": {"q": "é", "n": [1, 2.0]}}}]}],
}


def lines():
    env = environment()
    yield json.dumps({"variables": VARIABLES}, ensure_ascii=False)
    for source in CASES.read_text(encoding="utf-8").split("\n====\n"):
        source = source.replace("\\r", "\r") if source.startswith("{# CR #}") else source
        case = {"template": source}
        try:
            case["expected"] = env.from_string(source).render(**VARIABLES)
        except Exception as error:  # Python's own errors are a template's errors as well
            case["error"] = str(error)
        yield json.dumps(case, ensure_ascii=False)


def main():
    text = "\n".join(lines()) + "\n"
    if sys.argv[1:] == ["--verify"]:
        sys.exit(0 if OUT.read_text(encoding="utf-8") == text else f"{OUT} is not what this tool makes")
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(text, encoding="utf-8")


main()
