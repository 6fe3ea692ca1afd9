#!/usr/bin/env python3
"""An answer as it comes, and a conversation that the server keeps: python_streaming.py [SOCKET]

Needs the package of clients/python: pip install, or PYTHONPATH=build/release/clients/python.
"""
import asyncio
import sys

import troupe


async def stream(client: troupe.Client) -> None:
    async with client.stream("Once upon a time", temperature=0, max_tokens=40) as stream:
        async for tokens in stream:
            print(tokens.text, end="", flush=True)
        answer = await stream.completion()
    print(f"\n{answer.outcome}, {len(answer.ids)} tokens, first after {1e3 * answer.timings.ttft_seconds:.1f} ms")


async def converse(client: troupe.Client) -> None:
    for text in ("A little fox found a key.", "And then?"):
        answer = await client.generate([{"role": "user", "content": text}], session="fox", max_tokens=40)
        print(f"> {text}\n{answer.text}")
    await client.delete_session("fox")


async def main(socket: str | None) -> None:
    async with troupe.Client(socket) as client:
        print("connected to", client.server.server)
        await stream(client)
        if (await client.models())[0].chat_template:
            await converse(client)


try:
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else None))
except troupe.TroupeError as error:
    raise SystemExit(str(error))
