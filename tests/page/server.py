"""`troupe serve`, plain HTTP requests over its Unix socket, and the embedded model with a chat template."""
import http.client
import json
import os
import re
import socket
import struct
import subprocess
import tempfile
import time


ALIGNMENT = 32  # of tensors in a GGUF file that does not say otherwise
STRING = 8      # GGUF's number of this type


def with_chat_template(model, template):
    """The bytes of a GGUF file with a chat template as its first key.

    The key is as long as a multiple of the alignment, so that all that follows stays as it is.
    """
    key = b"tokenizer.chat_template"
    used = 8 + len(key) + 4 + 8 + len(template)
    text = template.encode() + b"{#" + b" " * (-(used + 4) % ALIGNMENT) + b"#}"
    entry = struct.pack("<Q", len(key)) + key + struct.pack("<IQ", STRING, len(text)) + text
    magic, version, num_tensors, num_keys = struct.unpack("<4sIQQ", model[:24])
    assert magic == b"GGUF" and len(entry) % ALIGNMENT == 0
    return struct.pack("<4sIQQ", magic, version, num_tensors, num_keys + 1) + entry + model[24:]


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=30)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Server:
    """Serves when the constructor returns; end() ends it."""

    def __init__(self, troupe, *arguments):
        self.folder = tempfile.TemporaryDirectory(prefix="troupe-page-")
        self.socket = os.path.join(self.folder.name, "s")
        self.log_path = os.path.join(self.folder.name, "log")
        with open(self.log_path, "w") as log:
            self.process = subprocess.Popen([troupe, "serve", "--socket", self.socket, *arguments],
                                            stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while not self._is_ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the server does not serve:\n" + self.log())
            time.sleep(0.05)

    def _is_ready(self):
        try:
            return self.get("/health")[0] == 200
        except OSError:
            return False

    def log(self):
        with open(self.log_path) as file:
            return file.read()

    def url(self):
        """Where it listens on TCP."""
        return "http://" + re.search(r"HTTP on tcp://(\S+:\d+)", self.log())[1]

    def get(self, path, method="GET", **headers):
        """Status, headers and body of one request."""
        connection = UnixConnection(self.socket)
        try:
            connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
            response = connection.getresponse()
            return response.status, response.headers, response.read()
        finally:
            connection.close()

    def post(self, path, body):
        """Status and text of the answer to a body of JSON."""
        connection = UnixConnection(self.socket)
        try:
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def end(self):
        self.process.terminate()
        self.process.wait(30)
        self.folder.cleanup()
