#!/usr/bin/env python3
"""bench/ttft.py on the embedded model: conversations of several turns, of which the last computes its new tokens alone."""
import json
import subprocess
import sys


def main():
    troupe, script = sys.argv[1:]
    done = subprocess.run([sys.executable, "-B", script, "--troupe", troupe, "--turns", "3", "--requests", "2",
                           "--tokens", "8", "--answer", "12"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    last, fresh = result["last_turn"], result["fresh"]
    assert len(last["ttft_ms"]) == len(fresh["ttft_ms"]) == 2, result
    assert fresh["prompt_tokens"] == last["new_tokens"] + 32, result
    assert 0 < last["new_tokens"] < last["prompt_tokens"], result
    # But for the part of a block behind the last whole one.
    assert last["cached_tokens"] >= last["prompt_tokens"] - last["new_tokens"] - 32, result
    assert result["ratio"] > 0, result


if __name__ == "__main__":
    main()
