#!/usr/bin/env python3
"""Answers to many prompts, behind everything else that the server does: python_batch.py PROMPTS.jsonl ANSWERS.jsonl [SOCKET]

A line of PROMPTS is an object with `id` (a text of its own) and `prompt` (a text, or a list of messages); further members are
options of the request (docs/python.md). Each answer is a line of ANSWERS as soon as it is there. Started again, it asks for
what is not in ANSWERS yet. Ends with 75 if something is left, with 2 for a line that is wrong.

Needs the package of clients/python: pip install, PYTHONPATH=build/release/clients/python, or Debian's python3-troupe.
"""
import asyncio
import json
import os
import sys
from typing import Any, TextIO

import troupe

AT_ONCE = 32  # requests of this program that wait or run
OPTIONS = {"priority": 100, "max_tokens": 200, "seed": 1}  # what a line does not say; later than all that have no priority
PATIENT = troupe.RetryPolicy(max_retries=20, max_delay=60)


def read_answers(path: str) -> set[str]:
    """The ids that are answered. A line that was cut by the end of an earlier run is taken away."""
    if not os.path.exists(path):
        return set()
    with open(path, "rb+") as file:
        text = file.read()
        whole = text.rfind(b"\n") + 1
        file.truncate(whole)
    return {json.loads(line)["id"] for line in text[:whole].splitlines()}


def read_prompts(path: str) -> dict[str, dict[str, Any]]:
    prompts: dict[str, dict[str, Any]] = {}
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                row = json.loads(line)
                name = str(row.pop("id"))
                if "prompt" not in row or name in prompts:
                    raise ValueError("it needs a prompt, and an id of its own")
                prompts[name] = row
            except (ValueError, KeyError, AttributeError) as error:
                print(f"{path}:{number}: {error}", file=sys.stderr)
                raise SystemExit(2)
    return prompts


async def answer(client: troupe.Client, name: str, row: dict[str, Any], answers: TextIO) -> bool:
    options: dict[str, Any] = {**OPTIONS, **row}
    try:
        got = await client.generate(options.pop("prompt"), retry=PATIENT, **options)
    except troupe.TroupeError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return False
    if got.outcome in ("cancelled", "deadline"):  # the server stops, or the line's deadline: not an answer
        print(f"{name}: {got.outcome}", file=sys.stderr)
        return False
    row_of_it = {"id": name, "outcome": got.outcome, "tokens": len(got.ids), "text": got.text}
    answers.write(json.dumps(row_of_it, ensure_ascii=False) + "\n")
    answers.flush()
    return True


async def main(prompts: str, answers: str, socket: str | None) -> int:
    done = read_answers(answers)
    left = {name: row for name, row in read_prompts(prompts).items() if name not in done}
    places = asyncio.Semaphore(AT_ONCE)
    with open(answers, "a", encoding="utf-8") as out:
        async with troupe.Client(socket) as client:
            async def in_turn(name: str, row: dict[str, Any]) -> bool:
                async with places:
                    return await answer(client, name, row, out)
            ends = await asyncio.gather(*(in_turn(name, row) for name, row in left.items()))
    print(f"{len(done)} were there, {sum(ends)} came, {len(ends) - sum(ends)} are left", file=sys.stderr)
    return 0 if all(ends) else 75


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        raise SystemExit(__doc__)
    sys.exit(asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3] if len(sys.argv) == 4 else None)))
