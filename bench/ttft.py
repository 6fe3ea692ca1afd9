#!/usr/bin/env python3
"""Time to the first token, as a client of an idle server sees it.

usage: bench/ttft.py --troupe build/release/troupe [-m MODEL.gguf] [--tokens 16] [--requests 200] [--limit-ms 50]

Starts a server of its own, sends one request after the other, each with a prompt of --tokens different ids (so that
nothing comes from the prefix cache), and prints p50, p90, p99 and max of two times: from submission to the first token as the
server counts it, and of a whole `troupe run` process that gets one token, from fork to exit: an upper bound of what any
client sees. With --limit-ms, ends with 1 if p99 of the latter is above it.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--troupe", required=True, help="the troupe binary")
    parser.add_argument("-m", "--model", help="a GGUF file; default: the embedded model")
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--limit-ms", type=float)
    return parser.parse_args()


def start_server(options, socket):
    command = [options.troupe, "serve", "--socket", socket] + (["-m", options.model] if options.model else [])
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
