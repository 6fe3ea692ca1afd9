#!/usr/bin/env python3
"""A streamed conversation over the server's Unix socket, with nothing but Python's own library: http_stdlib.py SOCKET"""
import http.client
import json
import socket
import sys


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost")
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


def stream(path, body):
    """The events of a streamed answer."""
    connection = UnixConnection(path)
    connection.request("POST", "/v1/chat/completions", json.dumps({**body, "stream": True}))
    response = connection.getresponse()
    if response.status != 200:
        raise SystemExit(json.load(response)["error"]["message"])
    for line in response:
        if line.startswith(b"data: ") and line != b"data: [DONE]\n":
            yield json.loads(line[6:])
    connection.close()


messages = [{"role": "user", "content": "Tell me of a little fox"}]
for event in stream(sys.argv[1], {"messages": messages, "max_tokens": 40, "stream_options": {"include_usage": True}}):
    for choice in event["choices"]:
        print(choice["delta"].get("content", ""), end="", flush=True)
    usage = event["usage"]
print(f"\n{usage['completion_tokens']} tokens")
