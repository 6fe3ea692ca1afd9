#!/usr/bin/env python3
"""What one tenant gets of a server while others load it: by the side of what it gets alone.

usage: sudo bench/neighbours.py --troupe build/release/troupe [-m MODEL.gguf] [--case NAME ...] [--scale X]

Starts a server of its own for each case and plays the tenants as users of their own (setpriv, so it needs root). B is the
tenant that is looked at, A and A0 to A9 are its neighbours. One line of a table for each case, with the goal that was set
for it; ends with 1 if one was missed. --scale shortens or lengthens prompts, answers and counts of requests, for models
of other sizes: 1 suits the embedded model on two cores, 0.05 one of 1 B.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time

B_UID, A_UID = 1000, 2000
MAX_STALL_MS = 100


class Server:
    def __init__(self, options, folder, flags=(), rules=""):
        self.options = options
        self.socket = os.path.join(folder, "troupe.sock")
        config = os.path.join(folder, "troupe.toml")
        with open(config, "w") as file:
            file.write(rules)
        uids = ",".join(str(uid) for uid in [0, *range(B_UID, B_UID + 20), *range(A_UID, A_UID + 20)])
        command = [options.troupe, "serve", "--config", config, "--socket", self.socket, "--allow-uid", uids, "--usage-db",
                   "off", *options.serve, *flags]
        if "--sessions-dir" not in flags:
            command += ["--sessions-dir", "off"]
        if options.model:
            command += ["-m", options.model]
        self.log = open(os.path.join(folder, "serve.log"), "w+")
        self.process = subprocess.Popen(command, stderr=self.log)
        for _ in range(1200):
            if self.ask("status").returncode == 0:
                return
            if self.process.poll() is not None:
                self.log.seek(0)
                sys.exit(f"the server ended with {self.process.returncode}:\n{self.log.read()}")
            time.sleep(0.1)
        sys.exit("the server did not get ready")

    def ask(self, command, *arguments):
        return subprocess.run([self.options.troupe, command, "--socket", self.socket, *arguments], capture_output=True,
                              text=True)

    def stop(self):
        self.process.terminate()
        self.process.wait()

    def compute_seconds(self):
        """Of each tenant, by its label."""
        metrics = json.loads(self.ask("status", "--json").stdout)["metrics"]
        return {metric["labels"]["tenant"]: metric["value"] for metric in metrics
                if metric["name"] == "tenant_compute_seconds"}

    def steps(self):
        """The histogram of the durations of steps: bounds in seconds, counts."""
        status = json.loads(self.ask("status", "--json").stdout)
        return status["histogram_bounds"], status["histograms"]["step_duration"]["counts"]

    def load(self, tenants, alone=(), *flags):
        """The report of a run of `troupe load`; tenants: {name: keys as --tenant takes them}."""
        with tempfile.NamedTemporaryFile(suffix=".json") as report:
            command = [self.options.troupe, "load", "--no-strict-modes", "--socket", self.socket, "-o", report.name]
            for name, keys in tenants.items():
                command += ["--tenant", f"{name}:{keys}"]
            for name in alone:
                command += ["--compare-alone", name]
            done = subprocess.run(command + list(flags), capture_output=True, text=True)
            if done.returncode not in (0, 1):
                sys.exit(f"troupe load ended with {done.returncode}:\n{done.stderr}")
            return {tenant["name"]: tenant for tenant in json.load(report)["troupe"]["tenants"]}


def scaled(options, count):
    return max(1, round(count * options.scale))


def ratio(tenant, figure):
    return tenant["together"][figure] / tenant["alone"][figure]


def line(case, tenant, goals):
    """Prints the line of a case; goals: (text, is met). True if all are."""
    cells = [case]
    for figure, digits in (("output_throughput", 0), ("p50_ttft_ms", 1), ("p99_ttft_ms", 1), ("p99_itl_ms", 2),
                           ("max_itl_ms", 1)):
        cells.append(" / ".join(f"{tenant[which][figure]:,.{digits}f}" for which in ("alone", "together")))
    cells.append("; ".join(text + ("" if met else " **missed**") for text, met in goals))
    print("| " + " | ".join(cells) + " |", flush=True)
    return all(met for _, met in goals)


def at_least(text, value, limit):
    return f"{text} {value:.2f} >= {limit:.2f}", value >= limit


def at_most(text, value, limit):
    return f"{text} {value:,.1f} <= {limit:,.1f}", value <= limit


def first_token_goal(tenant, which, allowance_ms, factor=1):
    limit = factor * tenant["alone"][which] + allowance_ms
    return at_most("TTFT " + which.split("_")[0], tenant["together"][which], limit)


def stream(options, requests=12):
    return f"uid={B_UID},clients=1,num-prompts={requests},start=1s,prompt-len=64,output-len={scaled(options, 800)}"


# The neighbours of one stream.
def crowds(options):
    answer, endless = scaled(options, 900), scaled(options, 100000)
    long = f"num-prompts={endless}"
    return {"64 streams": f"clients=64,{long},prompt-len=64,output-len={answer}",
            "400 streams": f"clients=400,{long},prompt-len=64,output-len={answer}",
            "a flood of prompts": f"clients=64,{long},prompt-len=900,output-len=1",
            "an embed loop": f"embed,clients=4,{long},prompt-len=500",
            "a flood of tokenising": f"tokenize,clients=64,{long},prompt-len=900"}


def one_stream(name):
    def run(options, folder):
        crowd = crowds(options)[name]
        # What the crowd has left is compared where its work is counted in tokens.
        figure = {"64 streams": "output_throughput", "400 streams": "output_throughput",
                  "a flood of prompts": "input_throughput"}.get(name)
        server = Server(options, folder)
        try:
            tenants = server.load({"A": f"uid={A_UID},seed=5,duration={options.seconds}s,{crowd}",
                                   "B": stream(options) + f",duration={options.seconds}s"}, ["B", "A"] if figure else ["B"])
        finally:
            server.stop()
        goals = [at_least("tok/s", ratio(tenants["B"], "output_throughput"), 0.4),
                 first_token_goal(tenants["B"], "p99_ttft_ms", 2 * MAX_STALL_MS)]
        if figure:
            # Half of the machine is A's; what B leaves of its half is A's, too.
            goals.append(at_least("A's tokens", ratio(tenants["A"], figure), 0.9 * 0.5))
        return line("a stream beside " + name, tenants["B"], goals)
    return run


def cache_flood(options, folder):
    """B's few long prefixes, kept by its floor, beside prompts that come once each."""
    rules = (f'[[tenant]]\nname = "B"\nuid = [{B_UID}]\nmin-kv-blocks = 160\n\n'
             f'[[tenant]]\nname = "A"\nuid = [{A_UID}]\n')
    server = Server(options, folder, ["--kv-blocks", "640"], rules)
    try:
        tenants = server.load({"A": f"uid={A_UID},clients=8,num-prompts=100000,prompt-len=500..900,output-len=4,"
                                    f"duration={options.seconds}s",
                               "B": f"uid={B_UID},clients=1,start=1s,num-prompts=2000,prefix-len=512,num-prefixes=4,"
                                    f"prompt-len=16,output-len=8,think-time=20ms,duration={options.seconds}s"}, ["B"])
    finally:
        server.stop()
    share = {which: tenants["B"][which]["cached_tokens"] / tenants["B"][which]["input_tokens"]
             for which in ("alone", "together")}
    return line(f"prefixes of 512 tokens beside prompts that come once; cached {share['alone']:.3f} / {share['together']:.3f}",
                tenants["B"], [at_least("cached", share["together"] / share["alone"], 0.95)])


def overload(options, folder):
    """Requests in time at twice the rate that the server can serve, by the side of those at that rate; then the same with
    clients that come back once, when they are told to."""
    def play(rate, max_retries):
        server = Server(options, folder, ["-np", "16"])
        try:
            keys = (f"rate={rate:.3f},num-prompts=100000,duration={options.seconds}s,prompt-len=256,output-len=256,"
                    f"deadline=3s,max-retries={max_retries}")
            tenants = server.load({"A": f"uid={A_UID},{keys},goodput=e2el:3000"})
        finally:
            server.stop()
        return tenants["A"]["together"]
    server = Server(options, folder, ["-np", "16"])
    try:
        closed = server.load({"A": f"uid={A_UID},clients=16,num-prompts=100000,duration={options.seconds}s,prompt-len=256,"
                                   "output-len=256"})
    finally:
        server.stop()
    capacity = closed["A"]["together"]["request_throughput"]
    at, beyond, again = play(capacity, 0), play(2 * capacity, 0), play(2 * capacity, 1)
    promised = beyond["completed"] + beyond["cut"]
    goals = [at_least("in time", beyond["request_goodput"] / at["request_goodput"], 0.9),
             at_least("promises kept", beyond["completed"] / max(1, promised), 0.95),
             at_least("retries admitted", again["retries_admitted"] / max(1, again["retries"]), 0.9),
             at_most("refusals without retry-after", again["refused_without_retry_after"], 0)]
    print(f"| {capacity:.1f} requests/s, then twice that | in time {at['request_goodput']:.1f} / "
          f"{beyond['request_goodput']:.1f} per s | refused {beyond['refused']} of {beyond['requests']} | "
          + "; ".join(text + ("" if met else " **missed**") for text, met in goals) + " |", flush=True)
    return all(met for _, met in goals)


class SessionPlayer:
    """bench/session_player.py as another user."""

    def __init__(self, options, server, uid, **settings):
        folder = os.path.dirname(os.path.abspath(__file__))
        packages = os.path.join(os.path.dirname(os.path.abspath(options.troupe)), "clients", "python")
        command = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "/usr/bin/python3",
                   os.path.join(folder, "session_player.py"), "--socket", server.socket]
        for name, value in settings.items():
            command += ["--" + name.replace("_", "-"), str(value)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True,
                                        env={"PATH": os.environ["PATH"], "PYTHONPATH": packages})
        if self.process.stdout.readline() != "ready\n":
            sys.exit("the player of sessions did not begin")

    def figures(self):
        return json.loads(self.process.communicate()[0])


def percentile_between(before, after, share):
    """Of what a histogram counted meanwhile, evenly spread within its buckets."""
    bounds, counts = after[0], [now - then for now, then in zip(after[1], before[1])]
    rank, lower = share * sum(counts), 0.0
    for upper, count in zip(bounds, counts):
        if count >= rank > 0:
            return lower + (upper - lower) * rank / count
        rank, lower = rank - count, upper
    return lower


def sessions(options, folder):
    """B's stream, and a turn of B's session, beside turns of sessions of many tokens, more than the cache has room for."""
    tokens = scaled(options, 8000)
    blocks = 3 * (tokens + 1000) // 32
    server = Server(options, folder, ["--kv-blocks", str(blocks), "--sessions-dir", os.path.join(folder, "sessions")])
    b_turns = {"seconds": options.seconds, "pause": 0.1}
    b_stream = stream(options, 10000) + f",duration={options.seconds}s"
    try:
        alone_turns = SessionPlayer(options, server, B_UID, **b_turns).figures()
        alone = server.load({"B": b_stream})["B"]["together"]
        crowd = SessionPlayer(options, server, A_UID, sessions=6, tokens=tokens, new_tokens=64, answer=16,
                              seconds=3 * options.seconds)
        before = server.steps()
        beside_turns = SessionPlayer(options, server, B_UID, **b_turns).figures()
        step_ms = 1000 * percentile_between(before, server.steps(), 0.99)
        beside = server.load({"B": b_stream})["B"]["together"]
        of_crowd = crowd.figures()
    finally:
        server.stop()
    limit = alone_turns["p99_ms"] + 2 * step_ms + 200
    goals = [at_least("tok/s", beside["output_throughput"] / alone["output_throughput"], 0.4),
             at_most("a turn's p99", beside_turns["p99_ms"], limit)]
    print(f"| turns of six sessions of {tokens} tokens, {of_crowd['turns_per_second']:.1f} per s | "
          f"{alone['output_throughput']:.0f} / {beside['output_throughput']:.0f} tok/s | turns p50 "
          f"{alone_turns['p50_ms']:.1f} / {beside_turns['p50_ms']:.1f}, p99 {alone_turns['p99_ms']:.1f} / "
          f"{beside_turns['p99_ms']:.1f} ms, 99 % of steps below {step_ms:.0f} ms | " + "; ".join(text + ("" if met else " **missed**") for text, met in goals) + " |",
          flush=True)
    return all(met for _, met in goals)


# Flags of a server and keys of its tenants, by what refuses their requests.
REFUSING = {"requests of a user": (["-np", "4", "--max-requests-per-user", "32"], "prompt-len=128,output-len=64"),
            "the queue": (["-np", "4", "--max-queued-requests", "32"], "prompt-len=128,output-len=64"),
            "deadlines": (["-np", "16"], "prompt-len=256,output-len=256,deadline=3s")}


def retries(num_tenants):
    """How many of the retries are admitted that come when they were told to, at twice the rate that can be served."""
    def run(options, folder):
        met = True
        for what, (flags, keys) in REFUSING.items():
            server = Server(options, folder, flags)
            try:
                of_one = keys.split(",deadline")[0]
                closed = server.load({"A": f"uid={A_UID},clients=16,num-prompts=100000,duration={options.seconds / 2:g}s,{of_one}"})
                rate = 2 * closed["A"]["together"]["request_throughput"] / num_tenants
                tenants = server.load({f"A{i}": f"uid={A_UID + i},seed={i},rate={rate:.3f},num-prompts=100000,"
                                                f"duration={options.seconds}s,{keys},max-retries=1"
                                       for i in range(num_tenants)})
            finally:
                server.stop()
            sums = {figure: sum(tenant["together"][figure] for tenant in tenants.values())
                    for figure in ("requests", "completed", "refused", "retries", "retries_admitted")}
            goal, is_met = at_least("retries admitted", sums["retries_admitted"] / max(1, sums["retries"]), 0.9)
            met = met and is_met
            print(f"| retries of {num_tenants} tenants refused by {what} | {rate * num_tenants:.1f} requests/s | completed "
                  f"{sums['completed']} of {sums['requests']} | admitted {sums['retries_admitted']} of {sums['retries']} | {goal}"
                  f"{'' if is_met else ' **missed**'} |", flush=True)
        return met
    return run


def ten_neighbours(options, folder):
    kinds = list(crowds(options).values())
    server = Server(options, folder)
    crowd = {f"A{i}": f"uid={A_UID + i},seed={i},connections=4,duration={options.seconds}s,{kinds[i % len(kinds)]}"
             for i in range(10)}
    try:
        tenants = server.load({**crowd, "B": stream(options) + f",duration={options.seconds}s"}, ["B"])
    finally:
        server.stop()
    return line("a stream beside ten of these", tenants["B"],
                [at_least("tok/s", ratio(tenants["B"], "output_throughput"), 0.7 / 11)])


def short_request(options, folder):
    server = Server(options, folder, ["-np", "8"])
    try:
        tenants = server.load({"A": f"uid={A_UID},clients=64,num-prompts=640,duration={options.seconds}s,"
                                    f"prompt-len=64,output-len={scaled(options, 900)}",
                               "B": f"uid={B_UID},clients=1,start=1s,num-prompts=100,think-time=50ms,output-len=8,"
                                    f"prompt-len=16,duration={options.seconds}s"}, ["B"])
    finally:
        server.stop()
    tenant, steps = tenants["B"], tenants["A"]["together"]  # A gets a token in each step
    return line("8 tokens beside 64 requests, -np 8", tenant,
                [first_token_goal(tenant, "p50_ttft_ms", 2 * steps["p50_itl_ms"]),
                 first_token_goal(tenant, "p99_ttft_ms", 2 * steps["p99_itl_ms"]),
                 at_most("ITL p99", tenant["together"]["p99_itl_ms"], 2 * tenant["alone"]["p99_itl_ms"])])


def queued_flood(options, folder):
    server = Server(options, folder)
    try:
        tenants = server.load({"A": f"uid={A_UID},clients=500,num-prompts=50000,duration={options.seconds}s,"
                                    f"output-len={scaled(options, 400)}",
                               "B": f"uid={B_UID},rate=5,burstiness=0,start=1s,duration={options.seconds}s,output-len=8,"
                                    "prompt-len=16"}, ["B"])
    finally:
        server.stop()
    tenant, steps = tenants["B"], tenants["A"]["together"]
    return line("one short request per second beside 500 queued", tenant,
                [first_token_goal(tenant, "p50_ttft_ms", steps["p50_itl_ms"], 2),
                 first_token_goal(tenant, "p99_ttft_ms", steps["p99_itl_ms"], 2)])


def rules_of(weights):
    return "".join(f'[[tenant]]\nname = "{name}"\nuid = [{uid}]\nweight = {weight}\n'
                   for name, (uid, weight) in weights.items())


def shares_of(options, folder, weights, loads):
    """Computing time of each tenant over its weight, while all have requests."""
    server = Server(options, folder, rules=rules_of(weights))
    try:
        keys = f"connections=4,num-prompts=1000000,duration={options.share_seconds + 6}s"
        playing = threading.Thread(target=server.load, args=[{name: f"uid={uid},{keys},{loads[name]}"
                                                              for name, (uid, _) in weights.items()}])
        playing.start()
        time.sleep(4)  # all have begun
        before = server.compute_seconds()
        time.sleep(options.share_seconds)
        after = server.compute_seconds()
        playing.join()
    finally:
        server.stop()
    return {name: (after[name] - before.get(name, 0)) / weight for name, (_, weight) in weights.items()}


def jain(values):
    values = list(values)
    return sum(values) ** 2 / (len(values) * sum(value * value for value in values))


# Of each kind so many requests at once, of different lengths, that some wait at any moment.
MIXES = {"long prompts against short": ("clients=64,prompt-len=400..900,output-len=16",
                                        "clients=128,prompt-len=8..32,output-len=8..24"),
         "prompts against answers": ("clients=64,prompt-len=400..900,output-len=1",
                                     "clients=128,prompt-len=8,output-len=100..300"),
         "embeddings against answers": ("embed,clients=8,prompt-len=400", "clients=128,prompt-len=16,output-len=100..300")}


def weights(first, second):
    def run(options, folder):
        met = True
        for name, (one, other) in MIXES.items():
            served = shares_of(options, folder, {"A": (A_UID, first), "B": (B_UID, second)}, {"A": one, "B": other})
            off = max(abs(value / (sum(served.values()) / 2) - 1) for value in served.values())
            ok = off <= 0.05
            met = met and ok
            print(f"| {name}, weights {first}:{second} | {served['A'] * first:.2f} s, {served['B'] * second:.2f} s | "
                  f"{100 * off:.1f} % off, at most 5{'' if ok else ' **missed**'} |", flush=True)
        return met
    return run


def equal_tenants(count):
    def run(options, folder):
        # With fewer requests of each, or the many would be refused for want of room in the queue.
        kinds = [re.sub("clients=[0-9]+", "clients=8", load) for mix in MIXES.values() for load in mix]
        served = shares_of(options, folder, {f"T{i}": (A_UID + i, 1) for i in range(count)},
                           {f"T{i}": kinds[i % len(kinds)] for i in range(count)})
        index = jain(served.values())
        print(f"| {count} equal tenants of {len(kinds)} kinds | {min(served.values()):.2f} to {max(served.values()):.2f} s | "
              f"Jain {index:.4f}, at least 0.98{'' if index >= 0.98 else ' **missed**'} |", flush=True)
        return index >= 0.98
    return run


CASES = {"short": short_request, "flood": queued_flood,
         **{name.split()[-1]: one_stream(name)
            for name in ("an embed loop", "a flood of prompts", "a flood of tokenising")},
         "64": one_stream("64 streams"), "400": one_stream("400 streams"), "ten": ten_neighbours,
         "cache": cache_flood, "overload": overload, "sessions": sessions,
         **{f"retries-{count}": retries(count) for count in (1, 2, 4)}, "weights-1:1": weights(1, 1), "weights-1:3": weights(1, 3), "equal-20": equal_tenants(20)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--troupe", required=True, help="the troupe binary")
    parser.add_argument("-m", "--model", help="a GGUF file; default: the embedded model")
    parser.add_argument("--case", action="append", choices=list(CASES), help="only this; may be repeated")
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--seconds", type=int, default=15, help="of a case")
    parser.add_argument("--share-seconds", type=int, default=60, help="over which shares are compared")
    parser.add_argument("serve", nargs="*", help="behind --: further flags of troupe serve")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("plays several users: needs root")
    print("| case | tok/s alone / beside | TTFT p50 ms | TTFT p99 ms | ITL p99 ms | ITL max ms | goals |")
    met = True
    for name in options.case or CASES:
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)
            met = CASES[name](options, folder) and met
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
