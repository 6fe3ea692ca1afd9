#!/usr/bin/env python3
"""How many times as fast as its scalar twin every kernel of every variant is, as a table in Markdown.

Runs kernels_bench and prints the median of its `x_scalar`, and in brackets that of `x_plain`: the same twin without the
vectors that the compiler makes of it (SSE2). Of a variant a factor is asked, 3 with AVX2 and 5 with AVX-512: bold is
what misses it against the plain twin, italic what misses it only against the other one. Standard library only.

    bench/kernel_ratios.py --kernels-bench build/release/bench/kernels_bench
    bench/kernel_ratios.py --kernels-bench build/release/bench/kernels_bench --filter '^matmul/.*/Q4_K/'
"""

import argparse
import json
import subprocess
import sys

FACTORS = {"avx2": 3, "avxvnni": 3, "avx512": 5, "avx512vnni": 5, "amx": 5}  # columns of the table, in this order
FILTER = "^(matmul/[^/]+/[^/]+/m(1|1_cached|64)|attention/.*|[a-z0-9_]+/(avx[^/]*|amx))$"
MATMUL_SIZES = {"m1": "1 row, from memory", "m1_cached": "1 row, from the cache", "m64": "64 rows"}
ATTENTION_SIZES = {"t1": "8 query rows", "t16": "128 query rows"}


def kernel_and_variant(name):
    """("matmul Q8_0, 64 rows", "avx2") of a benchmark's name; None for those that are no kernel of a variant."""
    parts = name.split("/")
    if parts[0] == "matmul" and len(parts) == 4:
        return f"matmul {parts[2]}, {MATMUL_SIZES.get(parts[3], parts[3])}", parts[1]
    if parts[0] == "attention" and len(parts) == 4:
        return f"attend_split {parts[2]}, {ATTENTION_SIZES.get(parts[3], parts[3])}", parts[1]
    return (parts[0], parts[1]) if len(parts) == 2 else None


def read_ratios(report):
    """{kernel: {variant: (x_scalar, x_plain)}} of kernels_bench's JSON, in its order; medians where it has them."""
    ratios = {}
    for entry in report["benchmarks"]:
        if entry.get("run_type") == "aggregate" and entry.get("aggregate_name") != "median":
            continue
        found = kernel_and_variant(entry.get("run_name", entry["name"]))
        if found and found[1] in FACTORS and "x_plain" in entry:
            ratios.setdefault(found[0], {})[found[1]] = (entry["x_scalar"], entry["x_plain"])
    return ratios


def number(x):
    return f"{x:.1f}" if x < 10 else f"{x:.0f}"


def cell(variant, ratio):
    if ratio is None:
        return ""
    text = f"{number(ratio[0])} ({number(ratio[1])})"
    if ratio[1] < FACTORS[variant]:
        return f"**{text}**"
    return text if ratio[0] >= FACTORS[variant] else f"*{text}*"


def table(ratios):
    variants = [v for v in FACTORS if any(v in row for row in ratios.values())]
    lines = ["| kernel | " + " | ".join(variants) + " |", "|---|" + "---:|" * len(variants)]
    for kernel, row in ratios.items():
        lines.append(f"| {kernel} | " + " | ".join(cell(v, row.get(v)) for v in variants) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels-bench", required=True, help="the program")
    parser.add_argument("--filter", default=FILTER, help="of its benchmarks; default: all that have a twin")
    parser.add_argument("--repetitions", type=int, default=5, help="of each benchmark; medians are printed (5)")
    parser.add_argument("--min-time", type=float, default=0.02, help="seconds of each repetition (0.02)")
    options = parser.parse_args()
    if options.repetitions < 2:
        parser.error("--repetitions: at least 2, so that there is a median")
    command = [options.kernels_bench, f"--benchmark_filter={options.filter}", "--benchmark_format=json",
               f"--benchmark_repetitions={options.repetitions}", f"--benchmark_min_time={options.min_time}",
               "--benchmark_report_aggregates_only=true"]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    except OSError as error:
        sys.exit(f"{options.kernels_bench}: {error.strerror}")
    if done.returncode != 0:
        sys.exit(f"{options.kernels_bench} failed ({done.returncode}):\n{done.stderr}")
    try:
        ratios = read_ratios(json.loads(done.stdout))
    except (ValueError, KeyError) as error:
        sys.exit(f"{options.kernels_bench} printed what cannot be understood: {error}")
    if not ratios:
        sys.exit(f"no kernel with a twin among those that --filter {options.filter!r} leaves")
    print(table(ratios))


if __name__ == "__main__":
    main()
