#!/usr/bin/env python3
"""Prints where the time of .ci/run went: its parts, and the slowest tests and objects of the builds in build/.

    tools/ci_times.py PARTS    PARTS: a file of lines "name<TAB>wall user system", in seconds
"""
import pathlib
import re
import sys

BUILD = pathlib.Path(__file__).resolve().parent.parent / "build"
ROWS = 10


def objects():
    """(seconds, build, object) of each build's log of Ninja: of the last time that an object was made."""
    for log in BUILD.glob("*/.ninja_log"):
        last = {}
        for line in log.read_text().splitlines()[1:]:
            begin, end, _, output, _ = line.split("\t")
            last[output] = (int(end) - int(begin)) / 1000
        for output, seconds in last.items():
            yield seconds, log.parent.name, re.sub(r"CMakeFiles/|\.dir(?=/)|Unity/", "", output)


def tests():
    """(seconds, build, test) of each build's last run of ctest."""
    for log in BUILD.glob("*/Testing/Temporary/LastTest.log"):
        name = None
        for line in log.read_text(errors="replace").splitlines():
            if begin := re.match(r"\d+/\d+ Testing: (\S+)", line):
                name = begin[1]
            elif (end := re.match(r"Test time = +([\d.]+) sec", line)) and name:
                yield float(end[1]), log.parents[2].name, name


def main():
    rows = [line.split("\t") for line in pathlib.Path(sys.argv[1]).read_text().splitlines()]
    print("\nSeconds          wall     CPU")
    total = [0.0, 0.0]
    for name, times in rows:
        wall, user, system = map(float, times.split())
        total = [total[0] + wall, total[1] + user + system]
        print(f"{'':12} {wall:8.0f} {user + system:7.0f}  {name}")
    print(f"{'':12} {total[0]:8.0f} {total[1]:7.0f}  together")
    for title, found in (("tests", tests()), ("objects (by wall)", objects())):
        print(f"\nSlowest {title}")
        for seconds, build, name in sorted(found, reverse=True)[:ROWS]:
            print(f"{seconds:8.1f}  {build:8} {name}")


if __name__ == "__main__":
    main()
