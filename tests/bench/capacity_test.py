#!/usr/bin/env python3
"""bench/capacity.py: sums that can be done by hand, the example of docs/capacity.md, and what `troupe bench` and `inspect` print."""
import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TROUPE, SCRIPT = sys.argv[1:]
EXAMPLE = os.path.join(HERE, "capacity_example.json")


def run(*arguments, code=0):
    done = subprocess.run([sys.executable, "-B", SCRIPT, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
    return done.stdout if code != 2 else done.stderr


def written(folder, name, value):
    path = os.path.join(folder, name)
    with open(path, "w") as file:
        json.dump(value, file)
    return path


def row(n_prompt, n_gen, batch, speed, depth=0):
    return {"n_prompt": n_prompt, "n_gen": n_gen, "batch_size": batch, "n_depth": depth, "median_ts": speed}


def bench(*results):
    return {"model": "m", "kernels": "scalar", "kv_type": "f16", "num_threads": 1, "results": list(results)}


def people_row(said, people):
    return re.split(r"\s{2,}|(?<=\d) (?=%)", next(line for line in said.splitlines() if line.split()[0] == str(people)).strip())


def one_server(folder):
    """One sequence at a time, prompts for nothing: the queue M/M/1, of which every figure is known."""
    path = written(folder, "one.json", bench(row(512, 0, 1, 1e12), row(0, 64, 1, 10)))
    # 36 people ask 5 times an hour: 0.05 requests/s of 100 tokens, half of what 10 tokens/s can do.
    said = run(path, "--people", 36, "--requests-per-hour", 5, "--prompt", 100, "--answer", 100, "--speed", 1.9)
    # 0.5 / (1 - 0.5) live; 100 tokens in 1 / 0.05 s; of geometric numbers 95 % are at most 4, so with itself 5 share 10 tokens/s.
    assert people_row(said, 36) == ["36", "0.05", "50", "%", "1", "5", "5", "2"], said
    # 5 share 10 tokens/s as long as 1 - r^5 is at least 0.95: r up to 0.549, 39 people.
    assert "at most 39 people get 1.9 tokens/s" in said, said
    # 72 people ask for all of it.
    assert re.search(r"(?m)^ +72 .* more than the machine can do$", said), said
    run(path, "--people", 40, "--requests-per-hour", 5, "--prompt", 100, "--answer", 100, "--speed", 1.9, code=1)


def prompts_take_their_share(folder):
    path = written(folder, "prompts.json", bench(row(512, 0, 1, 100), row(0, 64, 1, 10)))
    # 0.05 requests/s of 1,000 tokens of their own, at 100 tokens/s: half of the time; so the answers have half the speed.
    said = run(path, "--people", 36, "--requests-per-hour", 5, "--prompt", 3000, "--shared", 2000, "--answer", 1, "--speed", 1)
    assert people_row(said, 36)[2] == "50", said
    assert "first token of a prompt at the earliest: 10 s" in said, said
    assert "--prompt-len 1000 --output-len 1 --prefix-len 2000 --prefix-share 1 --warm" in said, said


def rows_beside_the_lengths_are_taken(folder):
    path = written(folder, "depths.json", bench(row(128, 0, 1, 50), row(512, 0, 1, 100), row(512, 0, 1, 80, 4096), row(0, 64, 1, 10),
                                                row(0, 64, 4, 30), row(0, 64, 1, 5, 4096), row(0, 64, 4, 12, 4096)))
    ask = ("--people", 1, "--requests-per-hour", 1, "--answer", 100, "--speed", 1)
    assert "100 tokens/s of prompts; of answers 10 alone, 30 for 4" in run(path, *ask, "--prompt", 500)
    assert "50 tokens/s of prompts; of answers 10 alone" in run(path, *ask, "--prompt", 100)
    assert "80 tokens/s of prompts; of answers 5 alone, 12 for 4" in run(path, *ask, "--prompt", 4500, "--shared", 4000)
    # Between one and four sequences: a step of two takes a third of the way from 0.1 s to 0.1333 s.
    assert "10 alone, 18 for 2" in run(path, *ask, "--prompt", 500, "--parallel", 2)


def what_is_missing_is_said(folder):
    ask = ("--people", 1, "--requests-per-hour", 1, "--answer", 100)
    path = written(folder, "prompts_alone.json", bench(row(512, 0, 1, 100)))
    assert "troupe bench -p 512 -n 64" in run(path, *ask, "--prompt", 10, code=2)
    assert "there.json" in run("not/there.json", *ask, "--prompt", 10, code=2)
    assert "--shared is a part of --prompt" in run(path, *ask, "--prompt", 10, "--shared", 10, code=2)


def example_of_the_page():
    """Each block of docs/capacity.md that begins with the script and the example is what the script prints."""
    with open(os.path.join(HERE, "../../docs/capacity.md"), encoding="utf-8") as file:
        blocks = re.findall(r"(?m)^    \$ bench/capacity\.py ((?:.*\\\n)*.*)\n((?:    .*\n)+)", file.read())
    assert blocks
    for arguments, shown in blocks:
        words = arguments.replace("\\\n", " ").replace("tests/bench/capacity_example.json", EXAMPLE).split()
        said = run(*words)
        assert re.sub(r"(?m)^    ", "", shown) == said, f"docs/capacity.md has another output than\n{said}"


def with_what_troupe_prints(folder):
    def troupe(name, *arguments):
        done = subprocess.run([TROUPE, *arguments], check=True, capture_output=True, text=True)
        return written(folder, name, json.loads(done.stdout))
    measured = troupe("bench.json", "bench", "-p", "64", "-n", "4", "-b", "1,2", "-r", "1", "-t", "1", "-o", "json")
    inspected = troupe("inspect.json", "inspect", "--json", "--memory", "256MiB")
    said = run(measured, "--inspect", inspected, "--people", 2, "--requests-per-hour", 1, "--prompt", 60, "--shared", 20, "--answer", 20,
               "--speed", 0.1)
    assert "K/V cache: " in said and "80 tokens, 20 of them shared" in said, said


def main():
    with tempfile.TemporaryDirectory(prefix="capacity-") as folder:
        one_server(folder)
        prompts_take_their_share(folder)
        rows_beside_the_lengths_are_taken(folder)
        what_is_missing_is_said(folder)
        example_of_the_page()
        with_what_troupe_prints(folder)


if __name__ == "__main__":
    main()
