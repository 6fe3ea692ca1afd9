"""A server that breaks the protocol, as tests/data/hostile_servers.json says, on a Unix socket of its own."""
import json
import os
import re
import socket
import tempfile
import threading

from google.protobuf import text_format
from troupe import troupe_pb2 as pb

ESCAPES = "\x1b]0;title\x07\x1b[2Jred\r\x9b31m\u202edetrever\u2066"


def table(source):
    """The rows of the table."""
    with open(os.path.join(source, "tests/data/hostile_servers.json")) as file:
        rows = json.load(file)["servers"]
    return [{"greets": True, "closes": False, "others": row["first"], **row} for row in rows]


def is_printable(text):
    """Whether a terminal obeys nothing in the text and shows it as it is written."""
    return all(character in "\n\t" or character.isprintable() for character in text)


def framed(frame):
    body = frame.SerializeToString()
    return len(body).to_bytes(4, "little") + body


def wire(row, stream):
    """The bytes that a row sends."""
    escapes = "".join(f"\\{byte:03o}" for byte in ESCAPES.encode())
    texts = [text.replace("STREAM", str(stream)).replace("ESCAPES", escapes) for text in row["sends"]]
    texts = [re.sub(r"(\d+)_IDS", lambda count: ",".join(["7"] * int(count[1])), text) for text in texts]
    texts = [re.sub(r"(\d+)_KIB", lambda count: "x" * 1024 * int(count[1]), text) for text in texts]
    return b"".join(bytes.fromhex(text[2:]) if text.startswith("0x") else framed(text_format.Parse(text, pb.ServerFrame()))
                    for text in texts)


class HostileServer:
    """Serves while its `with` lasts, every connection on a thread. `greeting` is its welcome; `answers(kind, body)` is the
    frame that answers a request as the protocol asks, or None: then the row's bytes are sent, once `num_waiting` such
    requests wait."""

    def __init__(self, row, answers=lambda kind, body: None, num_waiting=1):
        self.row, self.answers, self.num_waiting = row, answers, num_waiting
        self.greeting = pb.Welcome(protocol=1, server=ESCAPES, tenant=ESCAPES, numerics_id=ESCAPES,
                                   limits=pb.Limits(max_frame_bytes=1 << 20, max_streams=64),
                                   health=pb.Health(readiness=pb.READINESS_READY))

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="troupe-hostile-")
        self.path = os.path.join(self.folder.name, "s")
        self.listening = socket.socket(socket.AF_UNIX)
        self.listening.bind(self.path)
        self.listening.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.listening.shutdown(socket.SHUT_RDWR)  # wakes accept()
        self.listening.close()
        self.folder.cleanup()

    def _accept(self):
        while True:
            try:
                connection, _ = self.listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        waiting = []
        with connection, connection.makefile("rb") as reader:
            try:
                while len(header := reader.read(4)) == 4:
                    frame = pb.ClientFrame.FromString(reader.read(int.from_bytes(header, "little")))
                    kind = frame.WhichOneof("body")
                    body = getattr(frame, kind)
                    if kind == "hello" and self.row["greets"]:
                        connection.sendall(framed(pb.ServerFrame(welcome=self.greeting)))
                    elif kind in ("cancel", "credit"):
                        continue
                    elif kind != "hello" and (answer := self.answers(kind, body)):
                        connection.sendall(framed(answer))
                    else:
                        waiting.append(getattr(body, "stream", 0))
                        if kind == "hello" or len(waiting) == self.num_waiting:
                            connection.sendall(wire(self.row, waiting[0]))
                            if self.row["closes"]:
                                return
            except OSError:
                return  # the client has gone
