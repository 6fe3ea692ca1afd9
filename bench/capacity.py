#!/usr/bin/env python3
"""How many people a machine serves: plain arithmetic on what `troupe bench` measured (docs/capacity.md).

usage: bench/capacity.py BENCH.json --people 40 --requests-per-hour 6 --prompt 1500 --shared 1000 --answer 200
                         [--speed 5] [--parallel 64] [--inspect INSPECT.json]

BENCH.json is what `troupe bench -o json` printed, with several batch sizes (-b 1,2,4,8,16,32); INSPECT.json what
`troupe inspect --json` did, for the memory of the K/V cache. Lengths are in tokens: of a prompt, of the beginning that all
prompts share, of an answer. It prints a row for some numbers of people, and the `troupe load` that checks the row of
--people. Ends with 1 if the people of --people do not get --speed, 2 if the figures are not there.
"""
import argparse
import json
import math
import sys

MOMENTS = 0.95  # the share of the requests that get the speed of the last column
MOST_STATES = 10_000


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench", metavar="BENCH.json")
    parser.add_argument("--people", type=int, required=True, help="who use it during the busiest hour")
    parser.add_argument("--requests-per-hour", type=float, required=True, help="of one person, in that hour")
    parser.add_argument("--prompt", type=int, required=True, help="tokens of a prompt, with what it shares")
    parser.add_argument("--shared", type=int, default=0, help="of these, tokens that the prefix cache has; default: 0")
    parser.add_argument("--answer", type=int, required=True, help="tokens of an answer")
    parser.add_argument("--speed", type=float, default=5, help="tokens per second that a person shall see; default: 5")
    parser.add_argument("--parallel", type=int, default=64, help="of the server; default: 64")
    parser.add_argument("--inspect", metavar="INSPECT.json", help="for the memory")
    options = parser.parse_args()
    if min(options.people, options.answer, options.parallel) < 1 or min(options.requests_per_hour, options.speed) <= 0:
        parser.error("people, answers, --parallel, requests and speed are above 0")
    if not 0 <= options.shared < options.prompt:
        parser.error("--shared is a part of --prompt: at least one token of a prompt is its own")
    return options


def read(path):
    try:
        with open(path) as file:
            return json.load(file)
    except (OSError, ValueError) as error:
        raise SystemExit(complain(f"{path}: {error}"))


def complain(message):
    print(f"capacity.py: {message}", file=sys.stderr)
    return 2


class Machine:
    """What the bench measured, for prompts and answers of these lengths."""

    def __init__(self, results, options):
        prefills = [row for row in results if row["n_gen"] == 0 and row["n_prompt"] > 0 and row["batch_size"] == 1]
        decodes = [row for row in results if row["n_prompt"] == 0 and row["n_gen"] > 0]
        if not prefills or not decodes:
            raise SystemExit(complain("the bench has no prompts or no answers: troupe bench -p 512 -n 64 -b 1,2,4,8,16,32 -o json"))
        own = options.prompt - options.shared
        nearest = min(prefills, key=lambda row: (abs(row["n_depth"] - options.shared), abs(row["n_prompt"] - own)))
        self.prefill = nearest["median_ts"]
        # With a context as in the middle of an answer.
        depth = min((row["n_depth"] for row in decodes), key=lambda depth: abs(depth - options.prompt - options.answer / 2))
        rows = sorted((row["batch_size"], row["median_ts"]) for row in decodes if row["n_depth"] == depth)
        # Seconds of a step by its sequences; from nothing to the first as long as the first.
        self.steps = [(0, rows[0][0] / rows[0][1])] + [(batch, batch / speed) for batch, speed in rows]
        self.most = min(options.parallel, rows[-1][0])

    def step_seconds(self, sequences):
        """Of so many sequences, on the line between the two that were measured beside it."""
        for (low, before), (high, after) in zip(self.steps, self.steps[1:]):
            if sequences <= high:
                return before + (after - before) * (sequences - low) / (high - low)
        raise AssertionError("more sequences than were measured")

    def decode(self, live):
        """Tokens per second of all answers together while so many requests are live; more than `most` of them wait."""
        running = min(live, self.most)
        return running / self.step_seconds(running)


class Hour:
    """The busiest hour of so many people; `saturated`: they ask for more than the machine can do."""

    def __init__(self, machine, options, people):
        self.people = people
        self.rate = people * options.requests_per_hour / 3600
        self.prefill_share = self.rate * (options.prompt - options.shared) / machine.prefill
        free = 1 - self.prefill_share
        self.busy = self.prefill_share + self.rate * options.answer / machine.decode(machine.most)
        self.saturated = self.busy >= 1
        if self.saturated:
            return
        # How often n requests are live: arrivals lead from n - 1 to n as often as ends lead back.
        weights, live, total = [1.0], 0, 1.0
        while live < machine.most or weights[-1] > 1e-9 * total:
            live += 1
            weights.append(weights[-1] * self.rate / (free * machine.decode(live) / options.answer))
            total += weights[-1]
            if live == MOST_STATES:
                self.saturated = True
                return
        self.live = sum(n * weight for n, weight in enumerate(weights)) / total
        seconds = self.live / self.rate  # Little's law
        self.speed = options.answer / seconds
        met, share = 0, weights[0] / total
        while share < MOMENTS:
            met += 1
            share += weights[met] / total
        self.crowd = met + 1  # those that it meets, and itself
        self.crowd_speed = free * machine.decode(self.crowd) / self.crowd


def most_people(machine, options):
    """The largest number whose requests get --speed, 0 if not even one person's do."""
    def suffices(people):
        hour = Hour(machine, options, people)
        return not hour.saturated and hour.crowd_speed >= options.speed

    low, high = 0, 1
    while suffices(high):
        low, high = high, 2 * high
        if high > 10_000_000:
            return low
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if suffices(middle) else (low, middle)
    return low


def number(value):
    return f"{value:.3g}" if value < 100 else f"{value:,.0f}"


def table(machine, options, numbers):
    lines = ["people  requests/s  busy  live  tokens/s  live, 95 %  tokens/s, 95 %"]
    for people in numbers:
        hour = Hour(machine, options, people)
        row = f"{people:6}  {number(hour.rate):>10}  {round(100 * hour.busy):3} %"
        if hour.saturated:
            lines.append(row + "  more than the machine can do")
        else:
            lines.append(row + f"  {number(hour.live):>4}  {number(hour.speed):>8}  {hour.crowd:10}  {number(hour.crowd_speed):>14}")
    return lines


def memory(inspected, kv_type, hour, options):
    per_token = inspected["kv_bytes_per_token"][kv_type]
    tokens = options.shared + hour.crowd * (options.prompt - options.shared + options.answer)
    room = inspected["memory_budget"] - inspected["weight_bytes"] - inspected["vocabulary_bytes"]
    return (f"K/V cache: {hour.crowd} sequences of {options.prompt + options.answer} tokens, {options.shared} of them shared: "
            f"{tokens * per_token / 2**20:,.0f} MiB, of {room / 2**20:,.0f} MiB beside the weights")


def main():
    options = parse_arguments()
    measured = read(options.bench)
    inspected = read(options.inspect) if options.inspect else None
    machine = Machine(measured["results"], options)
    most = most_people(machine, options)
    print(f"{measured['model']}, {measured['kernels']}, {measured['num_threads']} threads: {number(machine.prefill)} tokens/s "
          f"of prompts; of answers {number(machine.decode(1))} alone, {number(machine.decode(machine.most))} for {machine.most}")
    numbers = sorted({max(1, options.people // 2), options.people, 2 * options.people, 4 * options.people} | ({most} if most else set()))
    print("\n".join(table(machine, options, numbers)))
    hour = Hour(machine, options, options.people)
    print(f"first token of a prompt at the earliest: {number((options.prompt - options.shared) / machine.prefill)} s")
    if inspected and not hour.saturated:
        print(memory(inspected, measured["kv_type"], hour, options))
    print(f"at most {most} people get {number(options.speed)} tokens/s for 95 % of their requests")
    duration = max(10, math.ceil(200 / hour.rate / 60))
    print(f"to check: troupe load --rate {number(hour.rate)} --duration {duration}m --prompt-len {options.prompt - options.shared} "
          f"--output-len {options.answer}" +
          (f" --prefix-len {options.shared} --prefix-share 1 --warm" if options.shared else "") +
          f" --goodput tpot:{1000 / options.speed:.0f} --require-goodput {MOMENTS}")
    return 0 if options.people <= most else 1


if __name__ == "__main__":
    sys.exit(main())
