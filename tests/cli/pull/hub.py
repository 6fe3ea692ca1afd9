"""A hub, a registry and a file server on this machine, which misbehave as a test says. Standard library only."""
import hashlib
import http.server
import json
import re
import ssl
import struct
import threading
import time
import urllib.parse


def sha256(data):
    return hashlib.sha256(data).hexdigest()


class Served:
    """What a path answers with. `serve` may be replaced by a test: it gets the handler and this object."""

    def __init__(self, data=b"", etag=None, ranges=True, redirect=None, status=None, headers=(), serve=None):
        self.data, self.etag, self.ranges, self.redirect, self.status = data, etag, ranges, redirect, status
        self.headers, self.serve = list(headers), serve


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def do_GET(self):
        hub = self.server.hub
        with hub.lock:
            hub.requests.append((self.path, dict(self.headers)))
            served = hub.paths.get(self.path)
        try:
            if served is None:
                self.answer(404, b"no such thing")
            elif served.serve:
                served.serve(self, served)
            else:
                self.usual(served)
        except (BrokenPipeError, ConnectionResetError, ssl.SSLError):
            self.close_connection = True

    def answer(self, status, body=b"", headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def wanted(self):
        """The bytes that are asked for; None: all."""
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        return (int(match[1]), int(match[2]) + 1) if match else None

    def usual(self, served, send=None):
        """send: writes the body in another way than at once."""
        headers = list(served.headers)
        if served.etag:
            headers.append(("ETag", served.etag))
        if served.redirect:
            return self.answer(302, b"elsewhere", headers + [("Location", served.redirect)])
        if served.status:
            return self.answer(served.status, b"no", headers)
        part = self.wanted() if served.ranges else None
        body, status = served.data, 200
        if part:
            if part[0] >= len(served.data):
                return self.answer(416, b"", [("Content-Range", f"bytes */{len(served.data)}")])
            body, status = served.data[part[0]:part[1]], 206
            headers.append(("Content-Range", f"bytes {part[0]}-{part[0] + len(body) - 1}/{len(served.data)}"))
        if not send:
            return self.answer(status, body, headers)
        self.send_response(status)
        for name, value in headers + [("Content-Length", str(len(body)))]:
            self.send_header(name, value)
        self.end_headers()
        send(body)

    def slowly(self, served, bytes_per_second):
        def send(body):
            step = max(1, bytes_per_second // 50)
            for at in range(0, len(body), step):
                self.wfile.write(body[at:at + step])
                time.sleep(step / bytes_per_second)
        self.usual(served, send)

    def cut_after(self, served, count):
        def send(body):
            self.wfile.write(body[:count])
            self.wfile.flush()
            self.close_connection = len(body) > count
        self.usual(served, send)


class QuietServer(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request, client_address):
        pass  # clients go, as tests have them


class Hub:
    def __init__(self, certificate=None):
        self.paths, self.requests, self.lock = {}, [], threading.Lock()
        self.server = QuietServer(("127.0.0.1", 0), Handler)
        self.server.hub = self
        self.scheme = "http"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
            self.scheme = "https"
        self.url = f"{self.scheme}://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def repository(self, name, files, revision="main", pages=1):
        """files: by path; a value is the data, or a Served."""
        rows = [{"type": "directory", "path": "Q8_0", "size": 0}]
        for path, data in files.items():
            served = data if isinstance(data, Served) else Served(data, etag=f'"{sha256(data)[:16]}"')
            self.paths[f"/{name}/resolve/{revision}/{urllib.parse.quote(path)}"] = served
            row = {"type": "file", "path": path, "size": len(served.data)}
            if path.endswith(".gguf"):
                row["lfs"] = {"oid": sha256(served.data), "size": len(served.data)}
            rows.append(row)
        address = f"/api/models/{name}/tree/{revision}?recursive=true"
        size = -(-len(rows) // pages)
        for page in range(pages):
            here = address if page == 0 else f"{address}&cursor={page}"
            headers = [("X-Repo-Commit", "c" * 40)]
            if page + 1 < pages:
                headers.append(("Link", f'<{self.url}{address}&cursor={page + 1}>; rel="next"'))
            self.paths[here] = Served(json.dumps(rows[page * size:(page + 1) * size]).encode(), headers=headers)

    def image(self, name, tag, data):
        digest = "sha256:" + sha256(data)
        self.paths[f"/v2/{name}/blobs/{digest}"] = Served(data)
        self.paths[f"/v2/{name}/manifests/{tag}"] = Served(json.dumps({
            "schemaVersion": 2,
            "config": {"mediaType": "application/vnd.docker.container.image.v1+json", "digest": "sha256:" + "0" * 64, "size": 2},
            "layers": [{"mediaType": "application/vnd.ollama.image.template", "digest": "sha256:" + "1" * 64, "size": 9},
                       {"mediaType": "application/vnd.ollama.image.model", "digest": digest, "size": len(data)}]}).encode())

    def ranges_of(self, path):
        with self.lock:
            return [headers.get("Range") for asked, headers in self.requests if asked == path]


def split_gguf(data, count):
    """The parts of a GGUF v3 file, as llama.cpp's gguf-split makes them: metadata in the first, tensors in order."""
    at = 8
    num_tensors, num_pairs = struct.unpack_from("<QQ", data, at)
    at = begin = 24
    sizes = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}

    def skip(at, kind):
        if kind == 8:
            return at + 8 + struct.unpack_from("<Q", data, at)[0]
        if kind != 9:
            return at + sizes[kind]
        inner, length = struct.unpack_from("<IQ", data, at)
        at += 12
        if inner in sizes:
            return at + sizes[inner] * length
        for _ in range(length):
            at = skip(at, inner)
        return at

    alignment = 32
    for _ in range(num_pairs):
        length = struct.unpack_from("<Q", data, at)[0]
        name, kind = data[at + 8:at + 8 + length], struct.unpack_from("<I", data, at + 8 + length)[0]
        value = at + 12 + length
        if name == b"general.alignment":
            alignment = struct.unpack_from("<I", data, value)[0]
        at = skip(value, kind)
    pairs = data[begin:at]
    entries = []
    for _ in range(num_tensors):
        start = at
        at += 8 + struct.unpack_from("<Q", data, at)[0]
        at += 4 + 8 * struct.unpack_from("<I", data, at)[0] + 4
        entries.append((data[start:at], struct.unpack_from("<Q", data, at)[0]))
        at += 8
    begin = -(-at // alignment) * alignment
    ends = [offset for _, offset in entries[1:]] + [len(data) - begin]
    tensors = [(entry, data[begin + offset:begin + end]) for (entry, offset), end in zip(entries, ends)]

    def pair(name, kind, code, value):
        return struct.pack("<Q", len(name)) + name + struct.pack("<I" + code, kind, value)

    parts = []
    step = -(-len(tensors) // count)
    for number in range(count):
        mine = tensors[number * step:(number + 1) * step]
        own = pair(b"split.no", 2, "H", number) + pair(b"split.count", 2, "H", count)
        own += pair(b"split.tensors.count", 5, "i", len(tensors))
        header = struct.pack("<4sIQQ", b"GGUF", 3, len(mine), 3 + (num_pairs if number == 0 else 0))
        header += (pairs if number == 0 else b"") + own
        body = b""
        for entry, values in mine:
            header += entry + struct.pack("<Q", len(body))
            body += values + bytes(-len(values) % alignment)
        parts.append(header + bytes(-len(header) % alignment) + body)
    return parts
