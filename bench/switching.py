#!/usr/bin/env python3
"""Changes the models of a server while tenants use them, and counts what their clients saw.

usage: sudo bench/switching.py [--troupe build/release/troupe] [--minutes 10] [--every 2] [--kills 20]
                               [--model A.gguf --model B.gguf --model C.gguf] [--draft D.gguf] [--memory 1GiB]

A server with three models: "one" (the default, with the draft model), "two", and "three", which is loaded when it is
asked for and put out when it was not for a second. Four tenants, as users of their
own where it is started by root, ask for all of them all the time, over HTTP, with answers that stream. First nothing is
changed, for a tenth of the time. Then every few seconds, at random, a model is replaced, beside the old one or in its
place, by `troupe model load` or by its table in troupe.toml (SIGHUP), or put out of memory (`troupe model unload`), to
be asked for at once. At the end the server is killed in the middle of a
replacement, again and again, and has to come back with what its file says.

Prints what came of it, and ends with 1 if a request failed, a name was unknown, memory grew beyond the budget and what
the process takes besides (--overhead), or the p99 of the gaps between two tokens grew by more than --most-gap.
"""
import argparse
import collections
import http.client
import json
import multiprocessing
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

NAMES = ("one", "two", "three")
UIDS = (2001, 2002, 2003, 2004)


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=300)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def ask(connection, body):
    """The status, why it failed (empty: it did not), the text, and the gaps between its pieces in seconds."""
    connection.request("POST", "/v1/completions", json.dumps({**body, "stream": True}), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    if answer.status != 200:
        return answer.status, answer.read().decode(errors="replace")[:300], "", []
    text, reason, gaps, last = "", None, [], None
    for line in answer:
        if not line.startswith(b"data: "):
            continue
        if line == b"data: [DONE]\n":
            answer.read()
            break
        event = json.loads(line[6:])
        if "error" in event:
            answer.read()
            return 200, json.dumps(event["error"])[:300], text, gaps
        for choice in event.get("choices", []):
            reason = choice.get("finish_reason") or reason
            if choice.get("text"):
                now = time.monotonic()
                if last is not None:
                    gaps.append(now - last)
                last = now
                text += choice["text"]
    else:
        return 200, "the stream was cut off", text, gaps
    return 200, "" if reason in ("stop", "length") else f"it ended by {reason}", text, gaps


def tenant(path, uid, seed, phase, results):
    """Asks one model after the other until phase.value is 2; puts what it saw into results."""
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
    draw = random.Random(seed)
    seen = collections.Counter()
    failures, gaps = [], ([], [])
    connection = UnixConnection(path)
    while phase.value < 2:
        name = draw.choice(("one", "one", "two", "two", "", "three"))
        body = {"prompt": draw.choice(("Once upon a time", "The dog was", "One day, a girl", "In the garden")),
                "max_tokens": draw.choice((8, 32, 96)), "temperature": 0}
        if name:
            body["model"] = name
        at = phase.value
        try:
            status, why, _, own = ask(connection, body)
        except (OSError, http.client.HTTPException) as problem:
            status, why, own = 0, f"{type(problem).__name__}: {problem}", []
            connection.close()
            connection = UnixConnection(path)
        seen[status] += 1
        if why or status != 200:
            failures.append((name or "(default)", status, why))
        if phase.value == at:
            gaps[at].extend(own)
    results.put((dict(seen), failures[:20], len(failures), gaps))


def percentile(values, part):
    return sorted(values)[min(len(values) - 1, int(part * len(values)))] if values else float("nan")


class Server:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.socket = os.path.join(folder, "troupe.sock")
        self.config = os.path.join(folder, "troupe.toml")
        self.log = open(os.path.join(folder, "serve.log"), "a+")
        # Two files of each model, so that a replacement is one.
        self.files = {}
        for name, path in zip(NAMES, options.model):
            self.files[name] = [os.path.join(folder, f"{name}-{which}.gguf") for which in "ab"]
            for copy in self.files[name]:
                shutil.copy(path, copy)
        self.chosen = dict.fromkeys(NAMES, 0)

    def write(self):
        with open(self.config, "w") as file:
            file.write(f'memory = "{self.options.memory}"\nusage-db = "off"\nsessions-dir = "off"\n')
            for name in NAMES:
                file.write(f'\n[[model]]\nname = "{name}"\npath = "{self.files[name][self.chosen[name]]}"\n'
                           f'ctx-size = {self.options.context}\n')
                if name == "one" and self.options.draft:
                    file.write(f'draft = "{self.options.draft}"\n')
                if name == "two":
                    file.write('replace = "unload-first"\n')
                if name == "three":
                    file.write('load = "on-request"\nkeep-alive = "1s"\n')

    def start(self):
        self.write()
        uids = ",".join(str(uid) for uid in (os.getuid(), *UIDS))
        self.process = subprocess.Popen(
            [self.options.troupe, "serve", "--config", self.config, "--socket", self.socket, "--allow-uid", uids,
             *self.options.serve], stderr=self.log)
        for _ in range(3000):
            if self.call("status").returncode == 0:
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        self.log.seek(0)
        sys.exit("the server did not get ready:\n" + self.log.read()[-3000:])

    def call(self, *words):
        return subprocess.run([self.options.troupe, words[0], "--socket", self.socket, *words[1:]], capture_output=True,
                              text=True)

    def replace_by_command(self, name, how):
        self.chosen[name] ^= 1
        words = ["load", f"{name}={self.files[name][self.chosen[name]]}", f"ctx-size={self.options.context}",
                 f"replace={how}"]
        if name == "one" and self.options.draft:
            words.append(f"draft={self.options.draft}")
        done = self.call("model", *words)
        if done.returncode != 0:
            self.chosen[name] ^= 1
        return done.stderr.strip()

    def put_out(self, name):
        """Refused if nothing has asked for it since its keep-alive was over: it is out."""
        self.call("model", "unload", name)
        return ""

    def replace_by_file(self, name):
        self.chosen[name] ^= 1
        self.write()
        self.process.send_signal(signal.SIGHUP)
        return ""

    def resident(self):
        with open(f"/proc/{self.process.pid}/status") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmRSS:")) * 1024


def bytes_of(text):
    units = {"KiB": 10, "MiB": 20, "GiB": 30}
    return int(float(text[:-3]) * (1 << units[text[-3:]])) if text[-3:] in units else int(text)


def play(server, options, draw):
    """Returns whether all went well."""
    phase = multiprocessing.Value("i", 0)
    results = multiprocessing.Queue()
    tenants = [multiprocessing.Process(target=tenant, args=(server.socket, uid, options.seed + i, phase, results))
               for i, uid in enumerate(UIDS)]
    for each in tenants:
        each.start()
    time.sleep(options.minutes * 6)
    phase.value = 1
    end = time.monotonic() + options.minutes * 54
    actions = collections.Counter()
    refused, peak = [], 0
    while time.monotonic() < end:
        began = time.monotonic()
        what, problem = draw.choice(("beside", "unload-first", "file", "put out")), ""
        name = {"beside": "one", "unload-first": "two", "put out": "three"}.get(what) or draw.choice(NAMES)
        if what == "file":
            problem = server.replace_by_file(name)
        elif what == "put out":
            problem = server.put_out(name)
        else:
            problem = server.replace_by_command(name, what)
        actions[what] += 1
        if problem:
            refused.append(problem)
        while time.monotonic() < began + options.every:
            peak = max(peak, server.resident())
            time.sleep(0.05)
    phase.value = 2
    seen, failures, num_failed, gaps = collections.Counter(), [], 0, ([], [])
    for _ in tenants:
        counts, some, count, own = results.get()
        seen.update(counts)
        failures += some
        num_failed += count
        for i in (0, 1):
            gaps[i].extend(own[i])
    for each in tenants:
        each.join()
    before, during = (percentile(each, 0.99) * 1e3 for each in gaps)
    budget = bytes_of(options.memory)
    print(f"changes           {sum(actions.values())} ({dict(actions)}), {len(refused)} refused")
    print(f"requests          {sum(seen.values())}: {dict(seen)}; {num_failed} failed")
    print(f"gaps, p99         {before:.1f} ms without changes, {during:.1f} ms with them: {during / before:.2f} times")
    print(f"resident memory   {peak / 2**20:.0f} MiB at most, of a budget of {budget / 2**20:.0f} MiB")
    for name, status, why in failures[:10]:
        print(f"  failed: {name}: {status} {why}")
    for problem in refused[:5]:
        print(f"  refused: {problem}")
    limit = budget + bytes_of(options.overhead)
    return num_failed == 0 and peak <= limit and during <= options.most_gap * before


def kill(server, options, draw):
    """Kills the server in the middle of a replacement. Returns whether it came back as its file says each time."""
    connection = UnixConnection(server.socket)
    wanted = {name: ask(connection, {"prompt": "Once upon a time", "max_tokens": 24, "temperature": 0, "model": name})[2]
              for name in NAMES}
    connection.close()
    good = 0
    for _ in range(options.kills):
        chosen = dict(server.chosen)
        name, how = draw.choice(("one", "two")), draw.choice(("beside", "unload-first"))
        other = server.files[name][server.chosen[name] ^ 1]
        change = subprocess.Popen([options.troupe, "model", "--socket", server.socket, "load", f"{name}={other}",
                                   f"replace={how}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(draw.uniform(0, 0.1))
        server.process.kill()
        server.process.wait()
        change.wait()
        server.chosen = chosen
        server.start()
        connection = UnixConnection(server.socket)
        answers = {each: ask(connection, {"prompt": "Once upon a time", "max_tokens": 24, "temperature": 0, "model": each})
                   for each in NAMES}
        connection.close()
        good += all(answer[1] == "" and answer[2] == wanted[each] for each, answer in answers.items())
    print(f"kill -9           {good} of {options.kills} times it came back with the same answers")
    return good == options.kills


def main():
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--troupe", default=os.path.join(here, "build/release/troupe"))
    parser.add_argument("--model", action="append", help="three times; each is copied twice (the embedded one)")
    parser.add_argument("--draft", help="a draft model for the first")
    parser.add_argument("--memory", default="1GiB", help="of all models together (1GiB)")
    parser.add_argument("--context", type=int, default=512, help="tokens (512)")
    parser.add_argument("--overhead", default="512MiB", help="of the process besides its models (512MiB)")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--every", type=float, default=2, help="seconds from change to change (2)")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--most-gap", type=float, default=1.5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("serve", nargs="*", help="further flags of the server, behind --")
    options = parser.parse_args()
    options.model = options.model or [os.path.join(here, "models/tales-5m-tq2_0.gguf")] * 3
    if len(options.model) != 3:
        parser.error("--model is given three times, or not at all")
    draw = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        server = Server(options, folder)
        server.start()
        try:
            good = play(server, options, draw)
            good = kill(server, options, draw) and good
        finally:
            server.process.terminate()
            server.process.wait()
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
