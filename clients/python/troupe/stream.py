"""Answers as they come, and whole."""
from __future__ import annotations

import asyncio
import dataclasses
from collections import deque
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any

from . import troupe_pb2 as pb
from .connection import Connection
from .errors import Failed, ProtocolError, Refused, outcome_name
from .options import CREDIT_WINDOW, ToolCall
from .printable import printable
from .retry import Backoff


_MOST_TOKEN_TEXT = 16 << 10


@dataclasses.dataclass(frozen=True, slots=True)
class Tokens:
    """Consecutive tokens of an answer."""

    choice: int
    """Which of the n answers."""
    first_index: int
    """Of ids[0] in the answer."""
    ids: list[int]
    text: str
    """Whole characters; may lag behind the ids."""
    logprobs: list[pb.TokenLogprobs]
    """One for each id, if asked for."""
    calls: list[pb.CallPart] = dataclasses.field(default_factory=list)
    """Parts of calls of tools, behind the text: `id` and `name` of one that begins, bytes of `arguments`, `ends`."""


@dataclasses.dataclass(slots=True)
class Completion:
    """An answer, and how it ended."""

    choice: int = 0
    text: str = ""
    ids: list[int] = dataclasses.field(default_factory=list)
    logprobs: list[pb.TokenLogprobs] = dataclasses.field(default_factory=list)
    calls: list[ToolCall] = dataclasses.field(default_factory=list)
    """Calls of tools, which are no part of the text."""
    outcome: str = ""
    """"eos", "stop_id", "stop_string", "length", "cancelled", "deadline", "tool_call"; of one the server has failed at its outcome."""
    message: str = ""
    """What the outcome alone does not say."""
    stop: str = ""
    """The stop string that ended it."""
    seed: int = 0
    """The seed that was used."""
    usage: pb.Usage = dataclasses.field(default_factory=pb.Usage)
    timings: pb.Timings = dataclasses.field(default_factory=pb.Timings)
    receipt: pb.Receipt = dataclasses.field(default_factory=pb.Receipt)


class _Incoming:
    """What has come of one attempt. The connection knows this, and not the Stream, which may be dropped unread."""

    def __init__(self, num_choices: int, frame: pb.Generate) -> None:
        self.items: deque[pb.Tokens] = deque()
        self.ends: dict[int, pb.Done | pb.Failed] = {}
        self.error: Exception | None = None
        self.granted = [frame.credit] * num_choices
        self._frame = frame
        self._num_choices = num_choices
        self._next_index = [0] * num_choices
        self._text_size = [0] * num_choices
        self._num_calls = [0] * num_choices
        self._within_call = [False] * num_choices
        self._waiter: asyncio.Future[None] | None = None

    @property
    def over(self) -> bool:
        return self.error is not None or len(self.ends) == self._num_choices

    @property
    def has_begun(self) -> bool:
        return any(self._next_index) or bool(self.ends)

    def receive(self, kind: str, body: Any) -> bool:
        if kind == "refused":
            self.error = Refused(body)
        elif kind not in ("tokens", "done", "failed") or body.choice >= self._num_choices or body.choice in self.ends:
            raise ProtocolError(f"the server sends {kind} that is no part of the answer")
        elif kind == "tokens":
            self._receive_tokens(body)
        else:
            self.ends[body.choice] = body
        self._wake()
        return self.over

    def _receive_tokens(self, body: pb.Tokens) -> None:
        begin, end = self._next_index[body.choice], self._next_index[body.choice] + len(body.ids)
        text_size = self._text_size[body.choice] + len(body.text) + sum(
            len(part.id) + len(part.name) + len(part.arguments) for part in body.calls)
        most = self._frame.sampling.max_tokens if self._frame.sampling.HasField("max_tokens") else end
        num_logprobs = len(body.ids) if self._frame.HasField("logprobs") else 0
        if body.first_index != begin:
            raise ProtocolError(f"the server sends tokens from {body.first_index} on, and {begin} is next")
        if not body.ids and not body.text and not body.calls:
            raise ProtocolError("the server sends neither a token nor text of one")
        if len(body.logprobs) != num_logprobs:
            raise ProtocolError(f"the server sends logprobs of {len(body.logprobs)} tokens, not of {num_logprobs}")
        if end > min(most, self.granted[body.choice]):
            raise ProtocolError(f"the server sends {end} tokens, and {min(most, self.granted[body.choice])} are allowed")
        if text_size > (end + 1) * _MOST_TOKEN_TEXT:
            raise ProtocolError(f"the server sends {text_size} characters of text for {end} tokens")
        self._receive_calls(body)
        self._next_index[body.choice], self._text_size[body.choice] = end, text_size
        self.items.append(body)

    def _receive_calls(self, body: pb.Tokens) -> None:
        if body.calls and not self._frame.tools:
            raise ProtocolError("the server sends calls of tools, and the request offers none")
        for part in body.calls:
            begins, within, count = bool(part.id), self._within_call[body.choice], self._num_calls[body.choice]
            if begins != bool(part.name) or begins == within or part.index != count - (0 if begins else 1):
                raise ProtocolError(f"the server sends a part of call {part.index} that does not follow the one before it")
            self._num_calls[body.choice] += begins
            self._within_call[body.choice] = not part.ends

    def lose(self, error: Exception) -> None:
        self.error = error
        self._wake()

    async def changed(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter and not self._waiter.done():
            self._waiter.set_result(None)


class Stream:
    """An answer as it comes: `async for tokens in stream`. Sent when it is first awaited.

    One that is left before its end, or dropped, is cancelled: `async with` does so at once. What it was refused for ends
    the iteration with Refused, after the retries of its RetryPolicy; a server that fails at a choice with Failed, once
    the other choices have ended.
    """

    def __init__(self, connect: Callable[[], Awaitable[Connection]], frame: pb.Generate, grants: bool, backoff: Backoff) -> None:
        self._connect, self._frame, self._grants, self._backoff = connect, frame, grants, backoff
        self._num_choices = max(1, frame.n)
        self._incoming: _Incoming | None = None
        self._connection: Connection | None = None
        self._number = 0
        self._cancelled = False
        self._pieces: list[list[str]] = [[] for _ in range(self._num_choices)]
        self._completions = [Completion(choice) for choice in range(self._num_choices)]
        self._unclaimed = [0] * self._num_choices  # tokens that were read and not granted again

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> Tokens:
        while True:
            incoming = self._incoming or await self._begin()
            if incoming.items:
                return self._taken(incoming.items.popleft())
            if isinstance(incoming.error, Refused) and not self._cancelled and not incoming.has_begun:
                delay = self._backoff.next(incoming.error)
                if delay is None:
                    raise incoming.error
                self._incoming = None
                await asyncio.sleep(delay)
            elif incoming.error:
                raise incoming.error
            elif incoming.over:
                self._conclude(incoming)
                raise StopAsyncIteration
            else:
                await incoming.changed()

    async def completions(self) -> list[Completion]:
        """All n answers, by choice, once they have ended. Those that were read already are part of them."""
        async for _ in self:
            pass
        return self._completions

    async def completion(self) -> Completion:
        """The answer (choice 0) once it has ended."""
        return (await self.completions())[0]

    def cancel(self) -> None:
        """Asks the server to end it: what is under way still comes, and its outcome is "cancelled"."""
        self._cancelled = True
        if self._connection and self._number:
            self._connection.cancel(self._number)

    def grant(self, tokens: int, choice: int = 0) -> None:
        """Lets so many more tokens of a choice come; only with the option `credit`."""
        if self._connection and self._number:
            if self._incoming and choice < self._num_choices:
                self._incoming.granted[choice] += tokens
            self._connection.grant(self._number, tokens, choice)

    async def __aenter__(self) -> Stream:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        traceback: TracebackType | None) -> None:
        if self._incoming and not self._incoming.over and not self._cancelled:
            self.cancel()

    def __del__(self) -> None:
        if self._connection and self._incoming and not self._incoming.over and not self._cancelled:  # maybe on another thread
            self._connection.cancel_from_any_thread(self._number)

    async def _begin(self) -> _Incoming:
        incoming = _Incoming(self._num_choices, self._frame)
        if self._cancelled:  # before it was sent
            for choice in range(self._num_choices):
                incoming.ends[choice] = pb.Done(choice=choice, reason=pb.OUTCOME_CANCELLED)
        else:
            self._connection = await self._connect()
            await self._connection.take_place()
            self._number = self._connection.request(self._frame, "generate", incoming, holds_place=True)
            self._incoming = incoming
            if self._cancelled:  # while it waited
                self.cancel()
            await self._connection.sent()
        self._incoming = incoming
        return incoming

    def _taken(self, body: pb.Tokens) -> Tokens:
        choice, completion = body.choice, self._completions[body.choice]
        tokens = Tokens(choice, body.first_index, list(body.ids), body.text, list(body.logprobs), list(body.calls))
        for part in tokens.calls:
            if part.id:
                completion.calls.append(ToolCall(part.id, part.name))
            completion.calls[-1].arguments += part.arguments
            completion.calls[-1].is_complete = part.ends
        completion.ids += tokens.ids
        completion.logprobs += tokens.logprobs
        self._pieces[choice].append(body.text)
        self._unclaimed[choice] += len(tokens.ids)
        if self._grants and self._unclaimed[choice] >= CREDIT_WINDOW // 4:
            self.grant(self._unclaimed[choice], choice)
            self._unclaimed[choice] = 0
        return tokens

    def _conclude(self, incoming: _Incoming) -> None:
        failed: Failed | None = None
        for choice, end in incoming.ends.items():
            completion = self._completions[choice]
            completion.text = "".join(self._pieces[choice])
            completion.message, completion.seed = printable(end.message), end.seed
            completion.usage, completion.receipt = end.usage, end.receipt
            if isinstance(end, pb.Failed):
                completion.outcome = outcome_name(end.code)
                failed = failed or Failed(end)
            else:
                completion.outcome, completion.stop, completion.timings = outcome_name(end.reason), end.stop, end.timings
        if failed:
            raise failed
