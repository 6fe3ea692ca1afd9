#!/usr/bin/env python3
"""Real clients against `troupe serve`: npm's openai and @anthropic-ai/sdk, over the Unix socket and over TCP with a key.

    clients_test.py TROUPE SOURCE FOLDER

FOLDER has the packages that install.sh installed; exit status 77 where they, or node, are missing. Each answer and each event
that a client got is then compared with OpenAI's published schemas.
"""
import base64
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "../page"), os.path.join(HERE, "../ipc/http/api")]
from schemas import Schemas, shared_file  # noqa: E402
from server import Server  # noqa: E402

TEMPLATE = "{% for m in messages %}{{ m.content }} {% endfor %}{% if enable_thinking %}<think>{% endif %}"
# What an answer must be, by path: the schema of a body and that of an event.
SHAPES = {
    "/v1/chat/completions": ("CreateChatCompletionResponse", "CreateChatCompletionStreamResponse"),
    "/v1/completions": ("CreateCompletionResponse", "CreateCompletionResponse"),
    "/v1/responses": ("Response", "ResponseStreamEvent"),
    "/v1/embeddings": ("CreateEmbeddingResponse", None),
    "/v1/models": ("ListModelsResponse", None),
    "/v1/models/*": ("Model", None),
}


class Servers:
    """A model that talks, an encoder, and a model with room for few requests of a user; all with one key."""

    def __init__(self, troupe, source, folder):
        template, keys = os.path.join(folder, "template.jinja"), os.path.join(folder, "keys")
        with open(template, "w") as file:
            file.write(TEMPLATE)
        added = subprocess.run([troupe, "key", "add", "clients", "--keys-file", keys], check=True, capture_output=True,
                               text=True)
        self.key = re.search(r"trp_\S+", added.stdout)[0]
        common = ["--listen", "tcp://127.0.0.1:0", "--keys-file", keys, "--usage-db", "off", "--sessions-dir", "off",
                  "--max-questions-per-second", "100000", "--max-refusals-per-second", "100000"]
        self.servers = {
            "MODEL": Server(troupe, "--chat-template", template, *common),
            "ENCODER": Server(troupe, "-m", os.path.join(source, "tests/data/tiny-bert.gguf"), *common),
            "NARROW": Server(troupe, "--max-requests-per-user", "56", "--max-parked-requests", "64", *common),
        }

    def end(self):
        for server in self.servers.values():
            server.end()

    def environment(self, over_socket):
        found = {"CLIENTS_KEY": "any"} if over_socket else {"CLIENTS_KEY": self.key}
        for name, server in self.servers.items():
            if over_socket:
                found["CLIENTS_SOCKET_" + name] = server.socket
            else:
                found["CLIENTS_URL_" + name] = server.url()
        return found


def events_of(body):
    """The data of each event of a stream, without [DONE]."""
    data = [line.removeprefix("data: ") for line in body.split("\n") if line.startswith("data: ")]
    return [json.loads(each) for each in data if each != "[DONE]"]


def with_vectors(body):
    """A body of vectors, of which those in base64 are numbers: the schema knows no others."""
    for each in body["data"]:
        if isinstance(each["embedding"], str):
            packed = base64.b64decode(each["embedding"])
            each["embedding"] = list(struct.unpack(f"<{len(packed) // 4}f", packed))
    return body


def invalid_parts(answer, schemas):
    """What of one recorded answer is not as the schemas have it."""
    path = re.sub(r"^/v1/models/.*", "/v1/models/*", answer["path"])
    if path not in SHAPES:
        return []
    whole, event = SHAPES[path]
    if answer["status"] == 200 and answer["type"].startswith("text/event-stream"):
        found = [None if path == "/v1/completions" and is_open(value) else schemas.error(event, value)
                 for value in events_of(answer["body"])]
    elif not answer["complete"]:
        found = []
    elif answer["status"] != 200:
        found = [schemas.error("ErrorResponse", json.loads(answer["body"]))]
    else:
        body = json.loads(answer["body"])
        found = [schemas.error(whole, with_vectors(body) if path == "/v1/embeddings" else body)]
    return [each for each in found if each is not None]


def is_open(chunk):
    """A chunk of a completion that has no reason yet: the schema, which is that of whole answers, asks for one."""
    return any(choice["finish_reason"] is None for choice in chunk["choices"])


def check_recorded(path, schemas):
    failures = []
    with open(path) as file:
        for line in file:
            failures += invalid_parts(json.loads(line), schemas)
    for failure in failures[:20]:
        print(failure)
    for name, count in sorted(schemas.counts.items()):
        print(f"{count:5} {name}")
    missing = [name for shape in SHAPES.values() for name in shape
               if name and name != "ResponseStreamEvent" and not schemas.counts.get(name)]
    if missing:
        print("no answer had the shape of", ", ".join(missing))
    return not failures and not missing


def main():
    troupe, source, folder = (os.path.abspath(each) for each in sys.argv[1:])
    if not shutil.which("node") or not os.path.exists(os.path.join(folder, "node_modules/.installed")):
        print("skipped: node, or the packages that tests/clients/install.sh installs, are missing")
        sys.exit(77)
    tests = [name for name in sorted(os.listdir(HERE)) if name.endswith(".mjs")]
    for name in tests:  # node looks for packages beside the file that imports them
        shutil.copy(os.path.join(HERE, name), folder)
    schemas = Schemas(shared_file())
    good = True
    with tempfile.TemporaryDirectory(prefix="troupe-clients-") as scratch:
        record = os.path.join(scratch, "answers")
        servers = Servers(troupe, source, scratch)
        try:
            for over_socket in (True, False):
                print("over the Unix socket" if over_socket else "over TCP", flush=True)
                done = subprocess.run(["node", "--test", "--test-concurrency=1", "--test-timeout=120000",
                                       *(name for name in tests if name.endswith("_test.mjs"))], cwd=folder,
                                      env={**os.environ, **servers.environment(over_socket), "CLIENTS_RECORD": record})
                good = good and done.returncode == 0
        finally:
            servers.end()
        good = check_recorded(record, schemas) and good
    sys.exit(not good)


main()
