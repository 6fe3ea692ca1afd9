#!/usr/bin/env python3
"""Validates answers against the published schemas of OpenAI's API.

    answer_schemas.py SAMPLES OPENAPI.json

SAMPLES is a program that writes lines {"schema": NAME, "value": JSON}. Exit status 77, and a line that says why, where
python3-jsonschema or the schemas are missing.
"""
import json
import subprocess
import sys

from schemas import Schemas


def main():
    program, file = sys.argv[1:]
    schemas = Schemas(file)
    failures = 0
    for line in subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines():
        sample = json.loads(line)
        error = schemas.error(sample["schema"], sample["value"])
        if error is not None:
            failures += 1
            if failures <= 20:
                print(f"{error}\n  {line[:400]}")
    for name, count in sorted(schemas.counts.items()):
        print(f"{count:5} {name}")
    print(f"{failures} of {sum(schemas.counts.values())} samples are invalid")
    sys.exit(failures > 0 or not schemas.counts)


main()
