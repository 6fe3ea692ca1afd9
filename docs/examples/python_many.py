#!/usr/bin/env python3
"""Many requests at once, with retries, deadlines and cancels, and vectors: python_many.py [SOCKET]

Needs the package of clients/python: pip install, or PYTHONPATH=build/release/clients/python.
"""
import asyncio
import sys

import troupe


async def many(client: troupe.Client) -> None:
    prompts = [f"Chapter {number}:" for number in range(1, 101)]
    patient = troupe.RetryPolicy(max_retries=8, max_delay=60)
    answers = await asyncio.gather(*(client.generate(prompt, max_tokens=16, retry=patient) for prompt in prompts))
    print(f"{sum(len(answer.ids) for answer in answers)} tokens in {len(answers)} answers")


async def cut_short(client: troupe.Client) -> None:
    # By the server, which refuses at once what it predicts to be late: the answer has what there was until then.
    try:
        answer = await client.generate("Once", deadline=0.05, ignore_eos=True)
        print(f"{answer.outcome} after {len(answer.ids)} tokens")
    except troupe.Refused as refusal:
        print(f"{refusal.outcome}: {refusal}")
    # By the reader, after what it wanted to see.
    async with client.stream("Once", ignore_eos=True) as stream:
        async for tokens in stream:
            if "." in tokens.text:
                stream.cancel()
        print((await stream.completion()).outcome)
    # By a timeout of Python: the task is cancelled, and with it the request.
    try:
        async with asyncio.timeout(0.05):
            await client.generate("Once", ignore_eos=True)
    except TimeoutError:
        print("timeout")


async def compare(client: troupe.Client) -> None:
    texts = ["The fox slept.", "A fox was asleep.", "Ships sail to the harbour."]
    first, *others = (await client.embed(texts)).vectors
    for text, vector in zip(texts[1:], others):
        print(f"{sum(a * b for a, b in zip(first, vector)):.2f} {text}")


async def main(socket: str | None) -> None:
    async with troupe.Client(socket) as client:
        await many(client)
        await cut_short(client)
        await compare(client)


try:
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else None))
except troupe.TroupeError as error:
    raise SystemExit(str(error))
