#!/usr/bin/env python3
"""A whole client of troupe's socket in Python, from docs/protocol.md alone.

Make the classes of the schema first, and let Python find them (Debian: protobuf-compiler, python3-protobuf):

    mkdir -p /tmp/pb && protoc -I . --python_out=/tmp/pb ipc/troupe.proto
    PYTHONPATH=/tmp/pb docs/examples/client.py /run/user/1000/troupe/troupe.sock
"""
import socket
import struct
import sys

try:
    import google.protobuf
except ImportError:
    raise SystemExit(f"This needs Python's protobuf module, and {sys.executable} has none. Debian: "
                     "apt-get install python3-protobuf, and run this with /usr/bin/python3.")
try:
    from ipc import troupe_pb2 as pb
except ImportError:
    raise SystemExit("The classes of the schema are not in PYTHONPATH. protoc makes them (Debian: apt-get install "
                     "protobuf-compiler), in the top folder:\n\n"
                     "    mkdir -p /tmp/pb && protoc -I . --python_out=/tmp/pb ipc/troupe.proto\n"
                     "    PYTHONPATH=/tmp/pb docs/examples/client.py SOCKET")


class Client:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        try:
            self.socket.connect(path)
        except OSError as error:
            raise SystemExit(f"no server at {path}: {error.strerror}; start one with: troupe serve --socket PATH")
        self.stream = self.socket.makefile("rb")
        self.send(hello=pb.Hello(protocol=1, client="client.py"))
        self.welcome = self.receive().welcome

    def send(self, **body):
        frame = pb.ClientFrame(**body).SerializeToString()
        self.socket.sendall(struct.pack("<I", len(frame)) + frame)

    def receive(self):
        header = self.stream.read(4)
        if len(header) < 4:
            raise SystemExit("the server closed the connection")
        frame = pb.ServerFrame.FromString(self.stream.read(struct.unpack("<I", header)[0]))
        if frame.refused.closing:
            raise SystemExit("the server ended the connection: " + frame.refused.message)
        return frame

    def generate(self, stream, text, **sampling):
        """Yields the pieces of an answer as they come; raises what the server says instead of one."""
        self.send(generate=pb.Generate(stream=stream, text=text, sampling=pb.Sampling(**sampling)))
        while (frame := self.receive()).HasField("tokens"):
            yield frame.tokens.text
        if not frame.HasField("done"):
            raise SystemExit((frame.refused if frame.HasField("refused") else frame.failed).message)
        self.done = frame.done


def main(path):
    client = Client(path)
    print("connected to", client.welcome.server)
    prompt = "Once upon a time"
    print(prompt, end="")
    for piece in client.generate(1, prompt, temperature=0, max_tokens=40):
        print(piece, end="", flush=True)
    done = client.done
    print(f"\n{pb.Outcome.Name(done.reason)}, {done.usage.completion_tokens} tokens, "
          f"first after {1e3 * done.timings.ttft_seconds:.1f} ms")
    if done.reason != pb.OUTCOME_LENGTH or done.usage.completion_tokens != 40:
        raise SystemExit("that is not what was asked for")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: client.py SOCKET")
    main(sys.argv[1])
