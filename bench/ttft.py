#!/usr/bin/env python3
"""Time to the first token, as a client of an idle server sees it.

usage: bench/ttft.py --troupe build/release/troupe [-m MODEL.gguf] [--tokens 16] [--requests 200] [--limit-ms 50]
       bench/ttft.py --troupe build/release/troupe [-m MODEL.gguf] --turns 10 [--requests 5] [--tokens 16] [--answer 64]

Starts a server of its own, sends one request after the other, each with a prompt of --tokens different ids (so that
nothing comes from the prefix cache), and prints p50, p90, p99 and max of two times: from submission to the first token as the
server counts it, and of a whole `troupe run` process that gets one token, from fork to exit: an upper bound of what any
client sees. With --limit-ms, ends with 1 if p99 of the latter is above it.

With --turns, it has conversations of so many turns instead, --requests of them one after the other: each turn says about
--tokens words and gets --answer tokens, in a session of the server (`troupe run --chat --session`). It prints the time to the
first token of the last turn as the server counts it, and after each conversation that of a fresh request with as many other
ids as that turn's new tokens and 32 more, p50 and all, and the ratio of the two p50. With --limit-ratio, ends with 1 if that
is above it.
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--troupe", required=True, help="the troupe binary")
    parser.add_argument("-m", "--model", help="a GGUF file; default: the embedded model")
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--requests", type=int, help="default: 200, with --turns 5")
    parser.add_argument("--limit-ms", type=float)
    parser.add_argument("--turns", type=int)
    parser.add_argument("--answer", type=int, default=64, help="tokens of each answer")
    parser.add_argument("--chat-template", default="chatml", help="with --turns; default: chatml")
    parser.add_argument("--limit-ratio", type=float)
    options = parser.parse_args()
    if options.requests is None:
        options.requests = 5 if options.turns else 200
    return options


def start_server(options, socket):
    command = [options.troupe, "serve", "--socket", socket] + (["-m", options.model] if options.model else [])
    if options.turns:
        command += ["--chat-template", options.chat_template, "--sessions-dir", socket + ".sessions"]
    server = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    for _ in range(600):
        if subprocess.run([options.troupe, "status", "--socket", socket], capture_output=True).returncode == 0:
            return server
        if server.poll() is not None:
            sys.exit(f"the server ended with {server.returncode}")
        time.sleep(0.1)
    sys.exit("the server did not get ready")


def first_token_ms(options, socket, ids):
    """(as the server counts it, the whole process)"""
    begin = time.monotonic()
    done = subprocess.run([options.troupe, "run", "--socket", socket, "--ids", "--json", "-n", "1", "--ignore-eos"]
                          + [str(token) for token in ids], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          check=True)
    process_ms = 1e3 * (time.monotonic() - begin)
    return 1e3 * json.loads(done.stdout)["usage"]["ttft_seconds"], process_ms


WORDS = "the fox went home and told a story about two friends who found an old boat near the river in spring".split()


def say(options, socket, name, chooser):
    """One turn of a session: its usage."""
    text = " ".join(chooser.choice(WORDS) for _ in range(options.tokens))
    done = subprocess.run([options.troupe, "run", "--socket", socket, "--chat", "--session", name, "--json", "--temp", "0",
                           "-n", str(options.answer), "--ignore-eos", text],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0 or not done.stdout:
        sys.exit(f"turn of {name}: {done.stderr.strip()}")
    return json.loads(done.stdout)["usage"]


def measure_turns(options, socket, chooser):
    last, fresh, usages = [], [], []
    for number in range(options.requests):
        usages = [say(options, socket, f"talk-{number}", chooser) for _ in range(options.turns)]
        before = usages[-2]["prompt_tokens"] + usages[-2]["completion_tokens"] if options.turns > 1 else 0
        num_new = usages[-1]["prompt_tokens"] - before
        last.append(1e3 * usages[-1]["ttft_seconds"])
        fresh.append(first_token_ms(options, socket, [chooser.randrange(300, 2000) for _ in range(num_new + 32)])[0])
        subprocess.run([options.troupe, "session", "--socket", socket, "delete", f"talk-{number}"], check=True)
    result = {"conversations": options.requests, "turns": options.turns, "answer_tokens": options.answer,
              "last_turn": {"prompt_tokens": usages[-1]["prompt_tokens"], "cached_tokens": usages[-1]["cached_tokens"],
                            "new_tokens": num_new, "ttft_ms_p50": round(statistics.median(last), 2),
                            "ttft_ms": [round(each, 2) for each in last]},
              "fresh": {"prompt_tokens": num_new + 32, "ttft_ms_p50": round(statistics.median(fresh), 2),
                        "ttft_ms": [round(each, 2) for each in fresh]},
              "ratio": round(statistics.median(last) / statistics.median(fresh), 3)}
    print(json.dumps(result))
    if options.limit_ratio and result["ratio"] > options.limit_ratio:
        sys.exit(f"the last turn's time is {result['ratio']} of a fresh request's, above {options.limit_ratio}")


def summarise(times):
    ordered = sorted(times)
    at = {name: ordered[min(len(ordered) - 1, int(share * len(ordered)))]
          for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0))}
    return {name: round(value, 2) for name, value in at.items()}


def main():
    options = parse_arguments()
    chooser = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o700)
        socket = os.path.join(folder, "troupe.sock")
        server = start_server(options, socket)
        try:
            if options.turns:
                return measure_turns(options, socket, chooser)
            times = [first_token_ms(options, socket, [chooser.randrange(300, 2000) for _ in range(options.tokens)])
                     for _ in range(options.requests)]
        finally:
            server.terminate()
            server.wait()
    process = summarise([process_ms for _, process_ms in times])
    print(json.dumps({"requests": options.requests, "prompt_tokens": options.tokens,
                      "server_ttft_ms": summarise([server_ms for server_ms, _ in times]), "process_ms": process}))
    if options.limit_ms and process["p99"] > options.limit_ms:
        sys.exit(f"p99 of {process['p99']} ms is above {options.limit_ms} ms")


if __name__ == "__main__":
    main()
