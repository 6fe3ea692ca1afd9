#!/usr/bin/env python3
"""Continues sessions for a while, and prints how long their turns took, as JSON.

usage: session_player.py --socket PATH [--sessions N] [--tokens T] [--new-tokens T] [--answer T] [--seconds S] [--pause S]

Each session begins with --tokens tokens, and gets --new-tokens more with each turn; after eight turns it is deleted and
begins again. Turns of different sessions run side by side, and the time of those that begin a session is not counted.
Needs clients/python of the build in PYTHONPATH.
"""
import argparse
import asyncio
import json
import os
import random
import time

import troupe

TURNS = 8
BEGINS_WITHIN = 120  # seconds


async def play(client, name, options, until, times, ready):
    draw = random.Random(name)

    def tokens(count):
        return [draw.randrange(300, 2000) for _ in range(count)]

    async def turn(count):
        return await client.generate(tokens(count), session=name, max_tokens=options.answer, ignore_eos=True,
                                     temperature=0)

    while True:
        await turn(options.tokens)
        ready.set()
        for _ in range(TURNS):
            await asyncio.sleep(options.pause)
            if time.monotonic() >= until():
                await client.delete_session(name)
                return
            begin = time.monotonic()
            await turn(options.new_tokens)
            times.append(time.monotonic() - begin)
        await client.delete_session(name)


async def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--socket", required=True)
    parser.add_argument("--sessions", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--new-tokens", type=int, default=8)
    parser.add_argument("--answer", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--pause", type=float, default=0)
    options = parser.parse_args()
    times, ready = [], [asyncio.Event() for _ in range(options.sessions)]
    ends_at = time.monotonic() + BEGINS_WITHIN
    async with troupe.Client(options.socket) as client:
        players = [asyncio.create_task(play(client, f"player-{os.getpid()}-{i}", options, lambda: ends_at, times, event))
                   for i, event in enumerate(ready)]
        await asyncio.gather(*(event.wait() for event in ready))
        print("ready", flush=True)
        times.clear()
        ends_at = time.monotonic() + options.seconds
        await asyncio.gather(*players)
    times.sort()

    def percentile(share):
        return 1000 * times[min(len(times) - 1, int(share * len(times)))] if times else None

    print(json.dumps({"turns": len(times), "p50_ms": percentile(0.5), "p99_ms": percentile(0.99),
                      "turns_per_second": len(times) / options.seconds}))


asyncio.run(main())
