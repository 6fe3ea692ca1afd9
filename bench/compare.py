#!/usr/bin/env python3
"""Compare the engine's speed with a peer's, alternating them in one run.

Each round runs `troupe bench`, then each peer's llama-bench (prefill and decoding of one sequence) and
llama-batched-bench (decoding of several at once), with the same files, lengths, threads and kind of KV cache. Medians
over the rounds are compared; the spread is half the range. Ratios of one run on one machine mean something; absolute
figures depend on what else the machine does: watch the stolen time. Where `troupe probe` has measured the machine, the
last columns say which share of its limit each program reached. Rows below their goals are named: a ratio to a peer, and
for single streams a share of the limit.

examples:
  bench/compare.py --troupe build/release/troupe --peer llama.cpp/build/bin/llama-bench -m tiny-q8_0.gguf -p 512 -n 64
  bench/compare.py --troupe build/release/troupe --peer plain=b/bin/llama-bench --peer amx=b/bin/llama-bench \\
      --peer-batched plain=b/bin/llama-batched-bench --peer-batched amx=b/bin/llama-batched-bench \\
      --peer-env amx:LD_LIBRARY_PATH=b2/bin -m tiny-q8_0.gguf -b 1,8,32 --save-baseline speed.json
  bench/compare.py ... -p 0 -n 32 -b 1 -d 8192 --kv-type f16         # decoding with 8,192 tokens in the cache
  bench/compare.py ... --baseline speed.json                         # ends with 1 if a ratio has lost more than 10 %
  bench/compare.py ... --baseline auto      # the same with this machine's own file, which the first run writes

exit codes: 0 done, 1 a ratio fell behind the baseline, 2 wrong usage, or a program that is missing, fails or prints
nonsense
"""
import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile

FORMAT = "troupe-compare-1"
# llama-batched-bench logs from another thread, and now and then ends before its last lines are written.
TRIES = 3
# Where others take more of the CPUs' time than this, the ratios are doubtful, and that is said.
BUSY_PERCENT = 5
PEER_KV_TYPES = {"int8": "q8_0"}  # the others have the same name


class Failure(Exception):
    """What is said instead of a result."""


def numbers(text):
    values = [int(part) for part in text.split(",")]
    if min(values) < 0:
        raise ValueError(text)
    return values


def named(text):
    name, equals, path = text.partition("=")
    return (name, path) if equals else ("peer", text)


def setting(text):
    """[NAME:]KEY=VALUE"""
    key, equals, value = text.partition("=")
    name, colon, rest = key.partition(":")
    key = rest if colon else key
    if not equals or not key:
        raise ValueError(text)
    return (name if colon else None, key, value)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--troupe", required=True, metavar="PATH", help="the troupe binary")
    add("--peer", action="append", default=[], type=named, metavar="[NAME=]PATH", help="a peer's llama-bench")
    add("--peer-batched", action="append", default=[], type=named, metavar="[NAME=]PATH",
        help="its llama-batched-bench, for batch sizes above 1 (for all of them where --peer is not given)")
    add("--peer-env", action="append", default=[], type=setting, metavar="[NAME:]KEY=VALUE",
        help="a variable for that peer, or for all peers; may be repeated")
    add("-m", "--model", action="append", required=True, metavar="FILE", help="a GGUF file; may be repeated")
    add("-p", "--prompt", type=int, default=512, metavar="TOKENS", help="prefill; 0: none (default: 512)")
    add("-n", "--gen", type=int, default=64, metavar="TOKENS", help="decoded; 0: none (default: 64)")
    add("-b", "--batch-sizes", type=numbers, default=[1], metavar="N,...",
        help="sequences decoded at once (default: 1)")
    add("-d", "--depth", type=numbers, default=[0], metavar="TOKENS,...",
        help="tokens that are in the cache before (default: 0)")
    add("-t", "--threads", type=int, default=os.cpu_count(), metavar="N", help="default: all CPUs")
    add("-r", "--rounds", type=int, default=5, metavar="N", help="default: 5")
    add("--kv-type", default="f16", metavar="TYPE", help="of both; troupe's name (default: f16)")
    add("--kernels", metavar="VARIANT", help="troupe's (TROUPE_KERNELS); default: the best")
    add("-o", "--output", choices=["md", "json"], default="md")
    add("--save-baseline", metavar="FILE", help="write the whole result, for --baseline")
    add("--baseline", metavar="FILE", help="compare the ratios with those of this earlier result; auto: one for this "
        "kind of machine, beside its probe, written by the first run")
    add("--min-ratio", type=float, default=1.0, metavar="RATIO", help="goal, to each peer (default: 1)")
    add("--min-share", type=float, default=80, metavar="PERCENT",
        help="goal for one stream, of the limit (default: 80)")
    add("--max-loss", type=float, default=10, metavar="PERCENT", help="of a ratio, with --baseline (default: 10)")
    options = parser.parse_args()
    if not options.peer and not options.peer_batched:
        parser.error("there is no peer: give --peer, --peer-batched or both")
    if options.prompt <= 0 and options.gen <= 0:
        parser.error("there is nothing to measure: give -p or -n a length above 0")
    if options.rounds < 1 or 0 in options.batch_sizes:
        parser.error("-r and -b must be above 0")
    return options


class Peer:
    def __init__(self, name, options):
        self.name = name
        self.bench = dict(options.peer).get(name)
        self.batched = dict(options.peer_batched).get(name)
        self.environment = {key: value for whose, key, value in options.peer_env if whose in (None, name)}


def all_peers(options):
    names = list(dict.fromkeys(name for name, _ in options.peer + options.peer_batched))
    for whose, key, _ in options.peer_env:
        if whose not in [None] + names:
            raise Failure(f"--peer-env {whose}:{key}: no peer is named {whose}; there is {', '.join(names)}")
    return [Peer(name, options) for name in names]


def check_files(options):
    for path in [options.troupe] + [path for _, path in options.peer + options.peer_batched]:
        if not os.path.isfile(path):
            raise Failure(f"{path}: there is no such program")
        if not os.access(path, os.X_OK):
            raise Failure(f"{path} cannot be executed")
    for path in options.model:
        if not os.path.isfile(path):
            raise Failure(f"{path}: there is no such model file")


def cpu_times():
    """Seconds of all CPUs: stolen by other guests of the host, busy in this machine, and in all."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            _, user, nice, system, idle, iowait, irq, softirq, steal = file.readline().split()[:9]
        worked = int(user) + int(nice) + int(system) + int(irq) + int(softirq)
        tick = os.sysconf("SC_CLK_TCK")
        return int(steal) / tick, worked / tick, (worked + int(steal) + int(idle) + int(iowait)) / tick
    except (OSError, ValueError):
        return 0, 0, 0


class Run:
    """One program, run to its end."""

    def __init__(self, command, environment):
        self.command = command
        before = cpu_times()
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+", errors="replace") as err:
            try:
                child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                         env={**os.environ, **environment})
            except OSError as error:
                raise Failure(f"{command[0]} cannot be run: {error.strerror}") from error
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            out.seek(0)
            err.seek(0)
            self.out, errors = out.read(), err.read()
        stolen, worked, total = (after - start for after, start in zip(cpu_times(), before))
        others = max(0, worked - usage.ru_utime - usage.ru_stime)
        self.steal_percent = 100 * stolen / max(total, 0.01)
        self.others_percent = 100 * others / max(total, 0.01)
        self.peak_rss_bytes = usage.ru_maxrss * 1024
        if child.returncode != 0:
            raise Failure(f"{self}\nended with {child.returncode}:\n{errors[-2000:].strip()}")

    def __str__(self):
        return " ".join(self.command)

    def nonsense(self, why):
        return Failure(f"{self}\n{why}; it printed:\n{self.out[:500].strip() or '(nothing)'}")


class Samples:
    """What the rounds of one model and depth gave, by program."""

    def __init__(self):
        self.speeds = {}  # (program, work, batch) -> tokens per second of each round
        self.shares = {}  # (work, batch) -> of troupe: share of the machine's limit in each round
        self.limits = {}  # (work, batch) -> the limit: "read", or a unit's name; the same in all rounds
        self.machine = None  # as the probe identifies it, if there is one
        self.peak_rss = {}  # program -> bytes
        self.steal, self.others = {}, {}  # program -> percent of the CPUs' time in each run

    def add(self, program, work, batch, speed):
        self.speeds.setdefault((program, work, batch), []).append(speed)

    def ran(self, program, run):
        self.peak_rss[program] = max(self.peak_rss.get(program, 0), run.peak_rss_bytes)
        self.steal.setdefault(program, []).append(run.steal_percent)
        self.others.setdefault(program, []).append(run.others_percent)


def comma(values):
    return ",".join(str(value) for value in values)


def works(options):
    """(work, batch) in their order."""
    return ([("prefill", 1)] if options.prompt > 0 else []) + \
           ([("decode", batch) for batch in options.batch_sizes] if options.gen > 0 else [])


def measure_troupe(options, model, depth, samples):
    environment = {"TROUPE_KERNELS": options.kernels} if options.kernels else {}
    run = Run([options.troupe, "bench", "-m", model, "-p", str(options.prompt), "-n", str(options.gen), "-b",
               comma(options.batch_sizes), "-d", str(depth), "-r", "1", "-t", str(options.threads), "--kv-type",
               options.kv_type, "-o", "json"], environment)
    try:
        report = json.loads(run.out)
        samples.machine = (report.get("probe") or {}).get("machine")
        for row in report["results"]:
            work = ("prefill", 1) if row["n_prompt"] else ("decode", row["batch_size"])
            samples.add("troupe", *work, float(row["median_ts"]))
            if "share" in row:  # there is a probe of this machine, with what this test needs
                samples.shares.setdefault(work, []).append(float(row["share"]))
                samples.limits[work] = row["limit"]
    except (ValueError, KeyError, TypeError) as error:
        raise run.nonsense(f"is not the JSON of troupe bench ({error!r})") from error
    samples.ran("troupe", run)


def measure_llama_bench(options, peer, model, depth, samples):
    """Prefill, and decoding of one sequence."""
    gen = options.gen if 1 in options.batch_sizes else 0
    if options.prompt <= 0 and gen <= 0:
        return
    kv_type = PEER_KV_TYPES.get(options.kv_type, options.kv_type)
    run = Run([peer.bench, "-m", model, "-p", str(options.prompt), "-n", str(gen), "-d", str(depth), "-r", "1", "-t",
               str(options.threads), "-ctk", kv_type, "-ctv", kv_type, "-o", "json"], peer.environment)
    try:
        for row in json.loads(run.out):
            samples.add(peer.name, "prefill" if row["n_prompt"] else "decode", 1, float(row["avg_ts"]))
    except (ValueError, KeyError, TypeError) as error:
        raise run.nonsense(f"is not the JSON of llama-bench ({error!r})") from error
    samples.ran(peer.name, run)


def measure_batched_bench(options, peer, model, depth, samples):
    """Decoding of several sequences at once, and of one where no other bench measures it."""
    batches = [batch for batch in options.batch_sizes if batch > 1 or not peer.bench]
    if options.gen <= 0 or not batches:
        return
    prompt = max(1, depth)  # troupe begins with one known token, too
    padded = (prompt + options.gen + 255) // 256 * 256  # of one sequence: what the peer rounds it up to
    kv_type = PEER_KV_TYPES.get(options.kv_type, options.kv_type)
    for _ in range(TRIES):
        run = Run([peer.batched, "-m", model, "-c", str(max(batches) * padded), "-npp", str(prompt), "-ntg",
                   str(options.gen), "-npl", comma(batches), "-t", str(options.threads), "-ctk", kv_type, "-ctv",
                   kv_type, "--output-format", "jsonl"], peer.environment)
        speeds = {}
        try:
            for line in run.out.splitlines():
                if line.startswith("{"):
                    row = json.loads(line)
                    speeds[row["pl"]] = float(row["speed_tg"])
        except (ValueError, KeyError, TypeError) as error:
            raise run.nonsense(f"has no JSON lines of llama-batched-bench ({error!r})") from error
        missing = [batch for batch in batches if batch not in speeds]
        if not missing:
            break
    else:
        raise run.nonsense(f"says nothing of batch size {comma(missing)} in {TRIES} runs")
    for batch in batches:
        samples.add(peer.name, "decode", batch, speeds[batch])
    samples.ran(peer.name, run)


def row_of(options, peer, model, depth, work, samples):
    kind, batch = work

    def figures(program):
        values = samples.speeds[(program, kind, batch)]
        one = samples.speeds.get((program, "decode", 1))
        return {"median": statistics.median(values), "spread": (max(values) - min(values)) / 2, "rounds": values,
                "per_batch_1": statistics.median(values) / statistics.median(one) if kind == "decode" and one else None}

    ours, theirs = figures("troupe"), figures(peer.name)
    length = options.prompt if kind == "prefill" else options.gen
    shares = samples.shares.get(work)
    share = statistics.median(shares) if shares else None
    ratio = ours["median"] / theirs["median"]
    return {"model": os.path.basename(model), "work": kind, "length": length, "batch": batch, "depth": depth,
           "kv_type": options.kv_type, "threads": options.threads, "peer": peer.name, "troupe_ts": ours,
           "peer_ts": theirs, "ratio": ratio, "share": share, "peer_share": share and share / ratio,
           "limit": samples.limits.get(work)}


def compare(options, peers, model, depth):
    samples = Samples()
    for number in range(options.rounds):
        print(f"{os.path.basename(model)}, depth {depth}: round {number + 1} of {options.rounds}", file=sys.stderr)
        measure_troupe(options, model, depth, samples)
        for peer in peers:
            if peer.bench:
                measure_llama_bench(options, peer, model, depth, samples)
            if peer.batched:
                measure_batched_bench(options, peer, model, depth, samples)
    rows = []
    for work in works(options):
        if ("troupe", *work) not in samples.speeds:
            raise Failure(f"troupe bench said nothing of {work[0]} with batch size {work[1]}")
        # A peer without the program for it is left out.
        rows += [row_of(options, peer, model, depth, work, samples) for peer in peers
                 if (peer.name, *work) in samples.speeds]
    if not rows:
        raise Failure("no peer can do what was asked for: batch sizes above 1 need --peer-batched")
    programs = {program: {"peak_rss_bytes": samples.peak_rss[program],
                          "steal_percent_median": statistics.median(samples.steal[program]),
                          "steal_percent_max": max(samples.steal[program]),
                          "others_percent_median": statistics.median(samples.others[program]),
                          "others_percent_max": max(samples.others[program])} for program in samples.peak_rss}
    for program, figures in programs.items():
        if figures["steal_percent_median"] + figures["others_percent_median"] > BUSY_PERCENT:
            print(f"the machine was busy while {program} ran: stolen {figures['steal_percent_median']:.0f} %, other "
                  f"processes {figures['others_percent_median']:.0f} % of the CPUs' time; threads that wait for each "
                  "other suffer most", file=sys.stderr)
    return rows, {"model": os.path.basename(model), "depth": depth, "programs": programs, "machine": samples.machine}


def key_of(row):
    depth = f" @ d{row['depth']}" if row["depth"] else ""
    batch = f" x{row['batch']}" if row["work"] == "decode" else ""
    return (f"{row['model']}: {row['work']} {row['length']}{batch}{depth}, KV {row['kv_type']}, {row['threads']} "
            f"threads, against {row['peer']}")


def read_baseline(path):
    try:
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
        if report.get("format") != FORMAT:
            raise ValueError(f"its format is {report.get('format')!r}, not {FORMAT!r}")
        return {key_of(row): float(row["ratio"]) for row in report["rows"]}
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Failure(f"{path} is no result of --save-baseline: {error}") from error


def losses(rows, baseline, max_loss):
    """Says how each ratio did; whether none lost too much."""
    good = True
    measured = {key_of(row): row["ratio"] for row in rows}
    for key, ratio in measured.items():
        if key not in baseline:
            print(f"new: {key}: {ratio:.2f}, not in the baseline", file=sys.stderr)
        elif ratio < baseline[key] * (1 - max_loss / 100):
            good = False
            print(f"LOST: {key}: {ratio:.2f} instead of {baseline[key]:.2f}, {100 * (1 - ratio / baseline[key]):.1f} % "
                  f"less; at most {max_loss:g} % is allowed", file=sys.stderr)
        else:
            print(f"held: {key}: {ratio:.2f}, was {baseline[key]:.2f}", file=sys.stderr)
    for key in baseline:
        if key not in measured:
            print(f"not measured: {key}: {baseline[key]:.2f} in the baseline", file=sys.stderr)
    if not set(measured) & set(baseline):
        raise Failure("nothing that was measured is in the baseline: same models, lengths and peer names?")
    return good


def baseline_of_machine(runs):
    """The path of the file for this kind of machine, beside what `troupe probe` keeps."""
    machine = next((run["machine"] for run in runs if run["machine"]), None)
    if machine is None:
        raise Failure("--baseline auto needs a probe of this machine: run `troupe probe` once")
    cache = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(cache):
        cache = os.path.join(os.path.expanduser("~"), ".cache")
    identity = "\n".join(str(machine.get(key)) for key in ("cpu", "revision", "cpus"))
    name = f"compare-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.json"
    return os.path.join(cache, "troupe", name)


def save(path, report):
    try:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=2)
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from error


def name_rows_below_goals(rows, options):
    for row in rows:
        if row["ratio"] < options.min_ratio:
            print(f"BELOW: {key_of(row)}: {row['ratio']:.2f}, goal {options.min_ratio:.2f}", file=sys.stderr)
        one_stream = row["work"] == "decode" and row["batch"] == 1
        if one_stream and row["share"] is not None and 100 * row["share"] < options.min_share:
            print(f"BELOW: {key_of(row)}: {100 * row['share']:.0f} % of {row['limit']}, goal {options.min_share:.0f} %",
                  file=sys.stderr)


def print_markdown(report):
    if any(row["share"] is None for row in report["rows"]):
        print("no limits to compare with: run `troupe probe`", file=sys.stderr)
    print("| model | work | peer | troupe tok/s | peer tok/s | ratio | troupe x batch 1 | peer x batch 1 | troupe "
          "of the limit | peer |\n|---|---|---|---:|---:|---:|---:|---:|---:|---:|")

    def speed(figures):
        return f"{figures['median']:.1f} ± {figures['spread']:.1f}"

    def times(figures):
        return "" if figures["per_batch_1"] is None else f"{figures['per_batch_1']:.2f}"

    for row in report["rows"]:
        batch = f" x{row['batch']}" if row["work"] == "decode" else ""
        depth = f" @ d{row['depth']}" if row["depth"] else ""
        known = row["share"] is not None
        share = f"{100 * row['share']:.0f} % of {row['limit']} | {100 * row['peer_share']:.0f} %" if known else "unknown | "
        print(f"| {row['model']} | {row['work']} {row['length']}{batch}{depth} | {row['peer']} | "
              f"{speed(row['troupe_ts'])} | {speed(row['peer_ts'])} | {row['ratio']:.2f} | {times(row['troupe_ts'])} | "
              f"{times(row['peer_ts'])} | {share} |")
    print(f"\n{report['threads']} threads, KV {report['kv_type']}, {report['rounds']} rounds; resident memory at most "
          "(of a peer that maps its model with it), and the CPUs' time that others took, in the median run and at "
          "most:\n")
    for runs in report["runs"]:
        for program, figures in runs["programs"].items():
            print(f"- {runs['model']}, depth {runs['depth']}, {program}: {figures['peak_rss_bytes'] / 2**20:.0f} MiB, "
                  f"stolen {figures['steal_percent_median']:.1f} %, at most "
                  f"{figures['steal_percent_max']:.1f} %; other processes {figures['others_percent_median']:.1f} %, at most "
                  f"{figures['others_percent_max']:.1f} %")


def main():
    options = parse_arguments()
    check_files(options)
    own = options.baseline == "auto"
    baseline = read_baseline(options.baseline) if options.baseline and not own else None
    peers = all_peers(options)
    rows, runs = [], []
    for model in options.model:
        for depth in options.depth:
            more, run = compare(options, peers, model, depth)
            rows += more
            runs.append(run)
    report = {"format": FORMAT, "threads": options.threads, "kv_type": options.kv_type,
              "rounds": options.rounds, "rows": rows, "runs": runs}
    if options.output == "json":
        print(json.dumps(report, indent=2))
    else:
        print_markdown(report)
    name_rows_below_goals(rows, options)
    if options.save_baseline:
        save(options.save_baseline, report)
    if own:
        path = baseline_of_machine(runs)
        if os.path.exists(path):
            baseline = read_baseline(path)
        else:
            save(path, report)
            print(f"{path}: this machine's baseline from now on; remove it to begin again", file=sys.stderr)
    if baseline is not None and not losses(rows, baseline, options.max_loss):
        return 1
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        print(f"compare.py: {failure}", file=sys.stderr)
        sys.exit(2)
