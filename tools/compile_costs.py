#!/usr/bin/env python3
"""What compiling costs, by header and by template.

    tools/compile_costs.py                     builds build/trace (clang 14, -ftime-trace) and prints its tables
    tools/compile_costs.py --target troupe_ipc one target alone, and what it needs
    tools/compile_costs.py --no-build          sums what an earlier run left

A header's own time is what its text takes to parse, without the headers that it includes; a template's is that of all
its instantiations, without those that they cause. Files are compiled as the build does it, in batches, but without
precompiled headers: these would hide what they hold.
"""
import argparse
import collections
import json
import os
import pathlib
import re
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parent.parent
BUILD = TOP / "build" / "trace"
TIMED = ("Source", "InstantiateFunction", "InstantiateClass", "ParseClass", "OptFunction", "CodeGen Function")


def build(targets):
    subprocess.run(["cmake", "-S", TOP, "-B", BUILD, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                    "-DCMAKE_CXX_COMPILER=clang++-14", "-DCMAKE_C_COMPILER=clang-14", "-DTROUPE_PCH=OFF",
                    "-DTROUPE_CPU=this", "-DCMAKE_CXX_FLAGS=-ftime-trace"], check=True, stdout=subprocess.DEVNULL)
    command = ["cmake", "--build", BUILD, "-j", str(os.cpu_count())]
    for target in targets:
        command += ["--target", target]
    # ccache keeps objects, not the traces beside them.
    subprocess.run(command, check=True, env={**os.environ, "CCACHE_DISABLE": "1"})


def own_times(events):
    """Yields (name, detail, seconds) of nested events, each without those inside it."""
    spans = sorted((e for e in events if e.get("ph") == "X" and e["name"] in TIMED),
                   key=lambda e: (e["tid"], e["ts"], -e["dur"]))
    stack = []
    for event in spans:
        event["own"] = event["dur"]
        while stack and (stack[-1]["tid"] != event["tid"] or stack[-1]["ts"] + stack[-1]["dur"] <= event["ts"]):
            stack.pop()
        if stack:
            stack[-1]["own"] -= event["dur"]
        stack.append(event)
    for event in spans:
        yield event["name"], event.get("args", {}).get("detail", ""), event["own"] / 1e6


def header_name(path):
    path = os.path.normpath(path)
    for begin in (str(TOP) + "/", "/usr/include/", "/usr/lib/gcc/x86_64-linux-gnu/"):
        if path.startswith(begin):
            return path[len(begin):]
    return path


def template_name(detail):
    """The template without its arguments."""
    depth, name = 0, []
    for character in detail.replace("operator<", "operator_less").replace("->", "_arrow"):
        depth += character == "<"
        if depth == 0:
            name.append(character)
        depth -= character == ">"
    return re.sub(r"\(.*", "", "".join(name))


def table(title, seconds, counts, rows):
    print(f"\n{title}\n\n| seconds | times | what |\n|---:|---:|---|")
    for name, value in seconds.most_common(rows):
        print(f"| {value:.1f} | {counts[name]} | `{name}` |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", action="append", default=[], help="build and sum this target (may be repeated)")
    parser.add_argument("--no-build", action="store_true", help="sum the traces that are there")
    parser.add_argument("--rows", type=int, default=20)
    arguments = parser.parse_args()
    if not arguments.no_build:
        build(arguments.target)
    headers, templates, phases = collections.Counter(), collections.Counter(), collections.Counter()
    groups = collections.Counter()
    header_counts, template_counts = collections.Counter(), collections.Counter()
    files = sorted(BUILD.rglob("*.json"))
    files = [f for f in files if "CMakeFiles" in str(f) and f.suffixes[-1] == ".json" and ".cpp" in f.name or ".cxx" in f.name]
    for file in files:
        events = json.loads(file.read_text())["traceEvents"]
        folder = str(file.relative_to(BUILD)).split("/CMakeFiles")[0]
        for name, detail, own in own_times(events):
            if name == "Source":
                headers[header_name(detail)] += own
                header_counts[header_name(detail)] += 1
            elif name.startswith("Instantiate"):
                templates[template_name(detail)] += own
                template_counts[template_name(detail)] += 1
        for event in events:
            if event["name"] in ("Total Frontend", "Total Backend", "Total Source", "Total InstantiateFunction",
                                 "Total InstantiateClass", "Total ExecuteCompiler"):
                phases[event["name"].removeprefix("Total ")] += event["dur"] / 1e6
                if event["name"] == "Total ExecuteCompiler":
                    groups[folder] += event["dur"] / 1e6
    if not files:
        sys.exit(f"no traces in {BUILD}: run this without --no-build")
    print(f"{len(files)} files compiled: " + ", ".join(f"{k} {v:.0f} s" for k, v in phases.most_common()))
    table("Folders", groups, collections.Counter({g: sum(str(f).startswith(f"{BUILD}/{g}/CMakeFiles") for f in files) for g in groups}), arguments.rows)
    table("Headers, own time", headers, header_counts, arguments.rows)
    table("Templates, own time of all instantiations", templates, template_counts, arguments.rows)


if __name__ == "__main__":
    main()
