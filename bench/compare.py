#!/usr/bin/env python3
"""Compare the engine's speed with a peer's, alternating both in one run.

usage: bench/compare.py --troupe build/release/troupe --peer PATH/llama-bench -m MODEL.gguf [-m MODEL2.gguf ...]
                        [-p 512] [-n 64] [-t 2] [-r 5] [--kernels avx2] [-o md|json]

Each round runs `troupe bench` and the peer's llama-bench once, one after the other, with the same file, prompt
length, generated tokens and threads. Medians over the rounds are compared; the spread is half the range. These are
ratios of one run on one machine: absolute figures depend on what else the machine does. Where `troupe probe` has
measured the machine, the last column says which share of its limit troupe reached.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--troupe", required=True, help="the troupe binary")
    parser.add_argument("--peer", required=True, help="the peer's llama-bench")
    parser.add_argument("-m", "--model", action="append", required=True, help="a GGUF file; may be repeated")
    parser.add_argument("-p", "--prompt", type=int, default=512, help="tokens of the prefill")
    parser.add_argument("-n", "--gen", type=int, default=64, help="tokens of the decode")
    parser.add_argument("-t", "--threads", type=int, default=os.cpu_count())
    parser.add_argument("-r", "--rounds", type=int, default=5)
    parser.add_argument("--kernels", help="troupe's variant (TROUPE_KERNELS); default: the best")
    parser.add_argument("-o", "--output", choices=["md", "json"], default="md")
    return parser.parse_args()


def run_json(command, environment=None):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nended with {done.returncode}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


def measure_troupe(options, model):
    environment = dict(os.environ)
    if options.kernels:
        environment["TROUPE_KERNELS"] = options.kernels
    report = run_json([options.troupe, "bench", "-m", model, "-p", str(options.prompt), "-n", str(options.gen), "-b",
                       "1", "-r", "1", "-t", str(options.threads), "-o", "json"], environment)
    return {("prefill" if row["n_prompt"] else "decode"): row for row in report["results"]}


def measure_peer(options, model):
    rows = run_json([options.peer, "-m", model, "-p", str(options.prompt), "-n", str(options.gen), "-r", "1", "-t",
                     str(options.threads), "-o", "json"])
    return {("prefill" if row["n_prompt"] else "decode"): row["avg_ts"] for row in rows}


def compare(options, model):
    ours, peers = [], []
    for number in range(options.rounds):
        print(f"{os.path.basename(model)}: round {number + 1} of {options.rounds}", file=sys.stderr)
        ours.append(measure_troupe(options, model))
        peers.append(measure_peer(options, model))
    rows = []
    for work in ("prefill", "decode"):
        mine = [sample[work]["median_ts"] for sample in ours]
        shares = [sample[work]["share"] for sample in ours if "share" in sample[work]]
        theirs = [sample[work] for sample in peers]
        rows.append({"model": os.path.basename(model), "work": work, "troupe": statistics.median(mine),
                     "troupe_spread": (max(mine) - min(mine)) / 2, "peer": statistics.median(theirs),
                     "peer_spread": (max(theirs) - min(theirs)) / 2,
                     "ratio": statistics.median(mine) / statistics.median(theirs),
                     "share": statistics.median(shares) if shares else None,
                     "limit": ours[0][work].get("limit")})
    return rows


def share_text(row):
    return "unknown" if row["share"] is None else f"{100 * row['share']:.0f} % of {row['limit']}"


def main():
    options = parse_arguments()
    rows = [row for model in options.model for row in compare(options, model)]
    if options.output == "json":
        print(json.dumps(rows, indent=2))
        return
    if any(row["share"] is None for row in rows):
        print("no limits to compare with: run `troupe probe`", file=sys.stderr)
    print("| model | work | troupe tok/s | peer tok/s | ratio | troupe of the limit |\n|---|---|---:|---:|---:|---:|")
    for row in rows:
        print(f"| {row['model']} | {row['work']} {options.prompt if row['work'] == 'prefill' else options.gen} | "
              f"{row['troupe']:.1f} ± {row['troupe_spread']:.1f} | {row['peer']:.1f} ± {row['peer_spread']:.1f} | "
              f"{row['ratio']:.2f} | {share_text(row)} |")


main()
