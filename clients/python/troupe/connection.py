"""One connection: frames, and which request each of them is for."""
from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any, Protocol

from google.protobuf.message import DecodeError

from . import sockets
from . import troupe_pb2 as pb
from .errors import ConnectionLost, ProtocolError, Refused

PROTOCOL = 1
_MOST_FRAME_BYTES = 16 << 20
_FOR_QUESTIONS = 8
"""Streams of a connection that requests for answers leave to questions (health, cancels, ...)."""
_MOST_FRAME_SECONDS = 60.0
"""From a frame's first byte to its last."""


class Receiver(Protocol):
    """A request that is not fully answered."""

    def receive(self, kind: str, body: Any) -> bool:
        """Takes a frame. Whether it was the last one. Raises ProtocolError for one that is no part of the answer."""

    def lose(self, error: Exception) -> None:
        """No further frame comes."""


class Connection:
    """Made by open(). All methods are for the event loop that it was opened in."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str) -> None:
        self.path = path
        self.welcome = pb.Welcome()
        self.draining = False
        self.lost: Exception | None = None
        self._loop = asyncio.get_running_loop()
        self._reader, self._writer = reader, writer
        self._receivers: dict[int, Receiver] = {}
        self._next_stream = 1
        self._places = asyncio.Semaphore(1)
        self._holders: set[int] = set()  # streams that have a place
        self._task: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, path: str, hello: pb.Hello, strict_modes: bool) -> Connection:
        """Connects and exchanges greetings. Raises ConnectionLost, Refused, UntrustedServer, ProtocolError."""
        try:
            reader, writer = await asyncio.open_unix_connection(path)
        except OSError as error:
            raise ConnectionLost(f"no server answers at {path}: {error.strerror}") from None
        connection = cls(reader, writer, path)
        try:
            if strict_modes:
                transport: socket.socket = writer.get_extra_info("socket")
                sockets.check_server(transport, path)
            connection._write(hello=hello)
            kind, body = await connection._read_frame()
            if kind == "refused":
                raise Refused(body)
            if kind != "welcome" or body.protocol != PROTOCOL:
                raise ProtocolError(f"the server at {path} does not speak version {PROTOCOL} of the protocol")
        except BaseException:
            writer.close()
            raise
        connection.welcome = body
        connection._places = asyncio.Semaphore(max(1, body.limits.max_streams - _FOR_QUESTIONS))
        connection._task = connection._loop.create_task(connection._read())
        return connection

    async def take_place(self) -> None:
        """Waits until one more request for an answer may be open. The next call of request() must be with `holds_place`."""
        await self._places.acquire()

    def request(self, body: Any, kind: str, receiver: Receiver, holds_place: bool = False) -> int:
        """Sends a request under a number of its own, which is returned. Its frames go to `receiver`."""
        try:
            if self.lost:
                raise self.lost
            stream = body.stream = self._next_stream
            size, most = body.ByteSize() + 16, self.welcome.limits.max_frame_bytes or _MOST_FRAME_BYTES
            if size > most:
                raise ValueError(f"the request has {size} bytes, above the server's max_frame_bytes, {most}")
        except BaseException:
            if holds_place:
                self._places.release()
            raise
        self._next_stream += 1
        self._receivers[stream] = receiver
        if holds_place:
            self._holders.add(stream)
        self._write(**{kind: body})
        return stream

    async def sent(self) -> None:
        """Waits until the socket has taken most of what was written."""
        with contextlib.suppress(ConnectionError):  # _read() tells all receivers
            await self._writer.drain()

    def cancel(self, stream: int) -> None:
        if stream in self._receivers and not self.lost:
            self._write(cancel=pb.Cancel(stream=stream))

    def cancel_from_any_thread(self, stream: int) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, and with it the connection
            self._loop.call_soon_threadsafe(self.cancel, stream)

    def grant(self, stream: int, tokens: int, choice: int) -> None:
        if stream in self._receivers and not self.lost:
            self._write(credit=pb.Credit(stream=stream, tokens=tokens, choice=choice))

    async def close(self) -> None:
        self._lose(ConnectionLost("the client has closed the connection"))
        if self._task and self._task is not asyncio.current_task():
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    def _write(self, **body: Any) -> None:
        frame = pb.ClientFrame(**body).SerializeToString()
        self._writer.write(len(frame).to_bytes(4, "little") + frame)

    async def _read_frame(self) -> tuple[str, Any]:
        try:
            first = await self._reader.readexactly(1)
            async with asyncio.timeout(_MOST_FRAME_SECONDS):
                length = int.from_bytes(first + await self._reader.readexactly(3), "little")
                if length > _MOST_FRAME_BYTES:
                    raise ProtocolError(f"the server at {self.path} sends a frame of {length} bytes")
                frame = pb.ServerFrame.FromString(await self._reader.readexactly(length))
        except asyncio.IncompleteReadError:
            raise ConnectionLost(f"the server at {self.path} has closed the connection") from None
        except TimeoutError:
            raise ConnectionLost(f"the server at {self.path} has sent a part of a frame, and not the rest within "
                                 f"{_MOST_FRAME_SECONDS:g} s") from None
        except OSError as error:
            raise ConnectionLost(f"the connection to {self.path} broke: {error}") from None
        except DecodeError as error:
            raise ProtocolError(f"the server at {self.path} sends a damaged frame: {error}") from None
        kind = frame.WhichOneof("body")
        if not kind:
            raise ProtocolError(f"the server at {self.path} sends a frame of a kind that this package does not know")
        return kind, getattr(frame, kind)

    async def _read(self) -> None:
        try:
            while True:
                self._take(*await self._read_frame())
        except Exception as error:  # of whatever kind: no request may wait for what is not read
            self._lose(error)

    def _take(self, kind: str, body: Any) -> None:
        if kind == "draining":
            self.draining = True
            return
        stream: int = getattr(body, "stream", 0)
        if kind == "refused" and (body.closing or not stream):
            raise Refused(body)  # the connection itself; no frame of this package is about less
        receiver = self._receivers.get(stream)
        if not receiver:  # all that it asked for are there until their last frame, also when nothing waits any more
            raise ProtocolError(f"the server at {self.path} sends {kind} for " +
                                (f"stream {stream}, which is not open" if stream else "no request"))
        if receiver.receive(kind, body):
            self._end(stream)

    def _end(self, stream: int) -> None:
        del self._receivers[stream]
        if stream in self._holders:
            self._holders.remove(stream)
            self._places.release()

    def _lose(self, error: Exception) -> None:
        if self.lost:
            return
        self.lost = error
        self._writer.close()
        for stream, receiver in list(self._receivers.items()):
            receiver.lose(error)
            self._end(stream)


class Answer:
    """Receives the one frame that answers a question."""

    def __init__(self, expected: str) -> None:
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._expected = expected

    def receive(self, kind: str, body: Any) -> bool:
        if kind not in (self._expected, "refused", "failed", "done") or getattr(body, "choice", 0) != 0:
            raise ProtocolError(f"the server sends {kind} where {self._expected} is the answer")
        if not self.future.done():  # it is, where the task that waits was cancelled
            self.future.set_result((kind, body))
        return True

    def lose(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)
            self.future.exception()  # looked at: a task that was cancelled does not wait for it
