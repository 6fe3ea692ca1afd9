"""The client: one connection to a server, with any number of requests on it."""
from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Literal, Unpack, cast

from . import sockets
from . import troupe_pb2 as pb
from .connection import PROTOCOL, Answer, Connection
from .errors import Cancelled, ConnectionLost, Failed, ProtocolError, Refused, TroupeError, pooling_name
from .options import Options, Prompt, generate_frame
from .retry import Backoff, RetryPolicy
from .stream import Completion, Stream

Pooling = Literal["mean", "cls", "last"]
Period = Literal["total", "day", "hour"]


@dataclasses.dataclass(frozen=True, slots=True)
class Embeddings:
    """Vectors of texts."""

    vectors: list[list[float]]
    """In the order of the inputs."""
    pooling: str
    """The pooling that was used."""
    usage: pb.Usage
    receipt: pb.Receipt


class Client:
    """Talks to one server. `async with troupe.Client() as client:` connects and closes.

    A connection that is lost is made anew by the next request; requests that were under way end with ConnectionLost.
    One client is for one event loop. Requests beyond the server's max_streams wait for one another.

    socket        path of the socket; None: where servers listen by default, TROUPE_HOST first
    name          for the server's log, at most 64 bytes
    tenant        for which requests count; only of users that the server's rules call trusted proxies
    strict_modes  refuse another user's server on a path where others than that user could put a socket
    timeout       seconds for the greeting and for questions (health, models, sessions, ...); not for answers: use the option
                  `deadline`, or asyncio.timeout(), which cancels the request
    retry         what becomes of refusals that say when to come back
    """

    def __init__(self, socket: str | os.PathLike[str] | None = None, *, name: str = "troupe-python", tenant: str = "",
                 strict_modes: bool = True, timeout: float | None = 10.0, retry: RetryPolicy = RetryPolicy()) -> None:
        self._paths = None if socket is None else [os.fspath(socket)]
        self._hello = pb.Hello(protocol=PROTOCOL, client=name, tenant=tenant)
        self._strict_modes, self._timeout, self._retry = strict_modes, timeout, retry
        self._connection: Connection | None = None
        self._connecting = asyncio.Lock()
        self._closed = False

    async def connect(self) -> Client:
        """Connects, if there is no connection. Raises ConnectionLost, Refused, UntrustedServer, ProtocolError."""
        self._closed = False
        await self._connected()
        return self

    async def close(self) -> None:
        """Closes the connection; the server cancels what runs."""
        self._closed = True
        if self._connection:
            await self._connection.close()
            self._connection = None

    async def __aenter__(self) -> Client:
        return await self.connect()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        traceback: TracebackType | None) -> None:
        await self.close()

    @property
    def server(self) -> pb.Welcome:
        """What the server said of itself: name and version, numerics_id, limits, the tenant."""
        if not self._connection:
            raise ConnectionLost("not connected")
        return self._connection.welcome

    @property
    def draining(self) -> bool:
        """Whether the server has said that it is about to stop."""
        return bool(self._connection and self._connection.draining)

    def stream(self, prompt: Prompt, *, retry: RetryPolicy | None = None, **options: Unpack[Options]) -> Stream:
        """An answer as it comes; see Stream. Nothing is sent before it is read."""
        frame = generate_frame(prompt, options)
        return Stream(self._connected, frame, options.get("credit") is None, Backoff(retry or self._retry))

    async def generate(self, prompt: Prompt, *, retry: RetryPolicy | None = None, **options: Unpack[Options]) -> Completion:
        """A whole answer. A task that is cancelled meanwhile cancels the request. Raises Refused, Failed, ConnectionLost."""
        async with self.stream(prompt, retry=retry, **options) as stream:
            return await stream.completion()

    async def generate_all(self, prompt: Prompt, *, retry: RetryPolicy | None = None,
                           **options: Unpack[Options]) -> list[Completion]:
        """All n answers, by choice. As generate()."""
        async with self.stream(prompt, retry=retry, **options) as stream:
            return await stream.completions()

    async def tokenize(self, text: str, *, model: str = "", add_special: bool = True, parse_special: bool = True) -> list[int]:
        """The token ids of a text."""
        body = pb.Tokenize(model=model, text=text, add_special=add_special, parse_special=parse_special)
        return list((await self._ask("tokenize", body, "tokenized", cancels=True)).ids)

    async def detokenize(self, ids: Sequence[int], *, model: str = "") -> bytes:
        """The exact bytes of tokens, which may be no UTF-8."""
        return bytes((await self._ask("detokenize", pb.Detokenize(model=model, ids=ids), "detokenized", cancels=True)).raw)

    async def embed(self, inputs: Sequence[str] | Sequence[Sequence[int]], *, model: str = "", pooling: Pooling | None = None,
                    normalise: bool = True, add_special: bool = True, parse_special: bool = False, truncate: bool | None = None,
                    truncate_to: int | None = None) -> Embeddings:
        """A vector for each text, or list of token ids. A task that is cancelled meanwhile cancels the request.

        Inputs that are too long for the model are refused, or with truncate cut at their end: to truncate_to tokens, if given.
        Without both the server decides (--embed-truncate); usage.truncated_tokens counts what was cut."""
        if isinstance(inputs, str):
            raise TypeError("embed() takes a list of texts")
        body = pb.Embed(model=model, normalise=normalise, add_special=add_special, parse_special=parse_special)
        if truncate is not None:
            body.truncate = truncate
        if truncate_to is not None:
            body.truncate_to = truncate_to
        if pooling:
            body.pooling = pb.Pooling.Value("POOLING_" + pooling.upper())
        for each in inputs:
            if isinstance(each, str):
                body.texts.append(each)
            else:
                body.token_ids.add(ids=each)
        answer = await self._ask("embed", body, "embeddings", timeout=None, cancels=True)
        if len(answer.vectors) != len(inputs):
            raise ProtocolError(f"the server sends {len(answer.vectors)} vectors for {len(inputs)} inputs")
        return Embeddings([list(vector.values) for vector in answer.vectors], pooling_name(answer.pooling), answer.usage,
                          answer.receipt)

    async def models(self) -> list[pb.Models.Model]:
        """The models that are loaded."""
        return list((await self._ask("models", pb.ModelsRequest(), "models")).models)

    async def health(self) -> pb.Health:
        """Whether the server can answer, and each of its models."""
        return cast(pb.Health, await self._ask("health", pb.HealthRequest(), "health"))

    async def status(self, *, list_requests: bool = False, profile: bool = False, this_connection: bool = False) -> pb.Status:
        """The server's counters and state; with list_requests the live requests."""
        body = pb.StatusRequest(list_requests=list_requests, profile=profile, this_connection=this_connection)
        return cast(pb.Status, await self._ask("status", body, "status"))

    async def cancel_request(self, request: int) -> None:
        """Ends a live request, on whichever connection it came, by its number in status(list_requests=True)."""
        await self._ask("cancel_request", pb.CancelRequest(request=request), "request_cancelled")

    async def usage(self, by: Period = "total", *, since: int | None = None) -> pb.UsageReport:
        """What tenants have used since a time (seconds since 1970), also before the server's last start."""
        period = pb.UsageRequest.Period.Value("PERIOD_" + by.upper())
        return cast(pb.UsageReport, await self._ask("usage_request", pb.UsageRequest(by=period, since=since), "usage_report"))

    async def sessions(self) -> list[pb.Sessions.Session]:
        """The caller's sessions, by name."""
        return await self._session(list=pb.SessionRequest.List())

    async def inspect_session(self, name: str) -> pb.Sessions.Session:
        """One of them, with its anchors."""
        return await self._one_session(inspect=pb.SessionRequest.Name(name=name))

    async def save_session(self, name: str) -> pb.Sessions.Session:
        """Waits until what the session has computed is on disk, if it is to be saved."""
        return await self._one_session(save=pb.SessionRequest.Name(name=name))

    async def fork_session(self, name: str, to: str) -> pb.Sessions.Session:
        """Makes a session with the same tokens."""
        return await self._one_session(fork=pb.SessionRequest.Fork(**{"from": name, "to": to}))

    async def delete_session(self, name: str) -> None:
        """Forgets a session."""
        await self._session(delete=pb.SessionRequest.Name(name=name))

    async def load_model(self, path: str, **options: Any) -> pb.Health.Model:
        """Loads one more model (for the server's user and root), and waits until it is served. Options: the fields of
        LoadModel (docs/protocol.md)."""
        answer = await self._ask("load_model", pb.LoadModel(path=path, **options), "model_changed", timeout=None)
        return cast(pb.Health.Model, answer.model)

    async def unload_model(self, model: str) -> pb.Health.Model:
        """Takes a model away (for the server's user and root), and waits until its memory is given back."""
        answer = await self._ask("unload_model", pb.UnloadModel(model=model), "model_changed", timeout=None)
        return cast(pb.Health.Model, answer.model)

    async def check_models(self, *models: str) -> list[pb.ModelsChecked.Check]:
        """Checks whether these models, or all, still are what was loaded (for the server's user and root). One that is
        damaged is taken out."""
        answer = await self._ask("check_models", pb.CheckModels(models=models), "models_checked", timeout=None)
        return list(answer.checks)

    async def _session(self, **body: Any) -> list[pb.Sessions.Session]:
        return list((await self._ask("session_request", pb.SessionRequest(**body), "sessions")).sessions)

    async def _one_session(self, **body: Any) -> pb.Sessions.Session:
        sessions = await self._session(**body)
        if len(sessions) != 1:
            raise ProtocolError(f"the server tells of {len(sessions)} sessions where one was asked about")
        return sessions[0]

    async def _ask(self, kind: str, body: Any, expected: str, timeout: float | None = -1.0, cancels: bool = False) -> Any:
        """Sends a request that one frame answers, as often as the policy says, and returns that frame."""
        backoff = Backoff(self._retry)
        while True:
            try:
                async with asyncio.timeout(self._timeout if timeout == -1.0 else timeout):
                    return await self._ask_once(kind, body, expected, cancels)
            except Refused as refusal:
                delay = backoff.next(refusal)
                if delay is None:
                    raise
                await asyncio.sleep(delay)

    async def _ask_once(self, kind: str, body: Any, expected: str, cancels: bool) -> Any:
        connection = await self._connected()
        if cancels:
            await connection.take_place()
        answer = Answer(expected)
        stream = connection.request(body, kind, answer, holds_place=cancels)
        try:
            await connection.sent()
            got, frame = await answer.future
        except asyncio.CancelledError:
            if cancels:
                connection.cancel(stream)
            raise
        if got == "refused":
            raise Refused(frame)
        if got == "failed":
            raise Failed(frame)
        if got == "done":
            raise Cancelled(frame.message or "the server ended the request: it stops")
        return frame

    async def _connected(self) -> Connection:
        if self._connection and not self._connection.lost:
            return self._connection
        async with self._connecting:
            if self._closed:
                raise ConnectionLost("the client is closed")
            if not self._connection or self._connection.lost:
                backoff = Backoff(self._retry)
                while True:
                    try:
                        self._connection = await self._connect_once()
                        break
                    except Refused as refusal:  # too many connections, for example
                        delay = backoff.next(refusal)
                        if delay is None:
                            raise
                        await asyncio.sleep(delay)
            return self._connection

    async def _connect_once(self) -> Connection:
        errors: list[TroupeError] = []
        for path in self._paths or sockets.candidates():
            sockets.check_path(path)
            try:
                async with asyncio.timeout(self._timeout):
                    return await Connection.open(path, self._hello, self._strict_modes)
            except TimeoutError:
                errors.append(ConnectionLost(f"the server at {path} did not greet within {self._timeout} s"))
            except TroupeError as error:
                errors.append(error)
        telling = [error for error in errors if not isinstance(error, ConnectionLost)]
        if telling:
            raise telling[0]
        raise ConnectionLost("; ".join(map(str, errors)) + "; start one with: troupe serve")
