#!/usr/bin/env python3
"""How long a health question waits while another connection sends frames of 4 MiB.

usage: bench/control_latency.py --troupe build/release/troupe [-m MODEL.gguf] [--frames 40] [--limit-ms 10]

Starts a server of its own. A process of its own sends --frames large frames of each kind, one after the other; this one
asks for health all the time on another connection and prints the median, p99 and longest wait for each kind, from the
question's send to its whole answer. The frames are written byte by byte, so no protobuf is needed:

  idle      none: what a question costs
  text      Generate with 4 MB of text
  stops     Generate with two million empty stop strings
  biases    Generate with two million empty entries of sampling.logit_bias
  unknown   Generate with two million fields that no server knows

With --limit-ms, ends with 1 if a p99 is above it. Other work on the machine shows in the longest waits.
"""
import argparse
import json
import multiprocessing
import os
import socket
import struct
import sys
import tempfile
import time

from ttft import start_server, summarise

MAX_FRAME = 4 << 20
HELLO = b"\x0a\x02\x08\x01"
HEALTH = b"\x4a\x02\x08\x01"


def varint(value):
    out = b""
    while value > 0x7f:
        out += bytes([value & 0x7f | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number, body):
    return varint(number << 3 | 2) + varint(len(body)) + body


def generate(body):
    return field(2, b"\x08\x01" + body)


def frames():
    entries = (MAX_FRAME - 64) // 2
    return {"text": generate(field(3, b"a" * (MAX_FRAME - 64))),
            "stops": generate(field(3, b"a") + field(8, b"") * entries),
            "biases": generate(field(3, b"a") + field(7, field(12, b"") * entries)),
            "unknown": generate(field(3, b"a") + b"\xf8\x01\x00" * (entries * 2 // 3))}


class Connection:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.stream = self.socket.makefile("rb")
        self.ask(HELLO)

    def ask(self, body):
        self.socket.sendall(struct.pack("<I", len(body)) + body)
        return self.stream.read(struct.unpack("<I", self.stream.read(4))[0])


def send_frames(path, body, count):
    connection = Connection(path)
    for _ in range(count):
        connection.ask(body)


def waits_ms(path, body, count):
    connection = Connection(path)
    sender = multiprocessing.Process(target=send_frames, args=(path, body, count if body else 0))
    sender.start()
    waits = []
    while sender.is_alive() or len(waits) < 1000:
        begin = time.monotonic()
        connection.ask(HEALTH)
        waits.append(1e3 * (time.monotonic() - begin))
    sender.join()
    if sender.exitcode != 0:
        sys.exit("the sender of large frames failed")
    return waits


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--troupe", required=True, help="the troupe binary")
    parser.add_argument("-m", "--model", help="a GGUF file; default: the embedded model")
    parser.add_argument("--frames", type=int, default=40)
    parser.add_argument("--limit-ms", type=float)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o700)
        path = os.path.join(folder, "troupe.sock")
        server = start_server(options, path)
        worst = 0
        try:
            for kind, body in {"idle": None, **frames()}.items():
                result = summarise(waits_ms(path, body, options.frames))
                print(json.dumps({"frames": kind, "health_ms": result}), flush=True)
                worst = max(worst, result["p99"])
        finally:
            server.terminate()
            server.wait()
    if options.limit_ms and worst > options.limit_ms:
        sys.exit(f"a p99 of {worst} ms is above {options.limit_ms} ms")


if __name__ == "__main__":
    main()
