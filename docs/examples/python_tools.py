#!/usr/bin/env python3
"""Functions that the model may call: python_tools.py [SOCKET]

Needs the package of clients/python: pip install, or PYTHONPATH=build/release/clients/python.
"""
import asyncio
import sys
from collections.abc import Callable
from typing import Any

import troupe

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: list[dict[str, Any]] = [{"name": "get_weather", "description": "Weather of a city", "parameters": SCHEMA}]


def run(name: str, arguments: str) -> str:
    """What the program does for a call. The arguments are as the model wrote them: check them."""
    return "21 degrees, sunny" if name == "get_weather" else f"there is no function {name}"


async def ask(client: troupe.Client, tools: list[dict[str, Any]], run: Callable[[str, str], str]) -> str:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "What is the weather in Bern?"}]
    while True:
        answer = await client.generate(messages, tools=tools, max_tokens=200)
        if not answer.calls:
            return answer.text
        messages.append({"role": "assistant", "content": answer.text, "tool_calls": answer.calls})
        for call in answer.calls:
            messages.append({"role": "tool", "tool_call_id": call.id, "content": run(call.name, call.arguments)})


async def demand(client: troupe.Client) -> None:
    """A call as it comes, of an answer that has to begin with it."""
    messages = [{"role": "user", "content": "What is the weather in Bern?"}]
    async for tokens in client.stream(messages, tools=TOOLS, tool_choice={"name": "get_weather"}, max_tokens=60):
        print(tokens.text, end="")
        for part in tokens.calls:
            print(part.name or part.arguments, end=" " if part.name else "\n" if part.ends else "", flush=True)
    print()


async def main(socket: str | None) -> None:
    async with troupe.Client(socket) as client:
        print(await ask(client, TOOLS, run))
        await demand(client)


try:
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else None))
except troupe.TroupeError as error:
    raise SystemExit(str(error))
