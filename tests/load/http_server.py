"""A small OpenAI-compatible server for tests: http_server.py SOCKET_OR_0 [--unix | --tcp] [KEY]. Prints its address when
it listens. With a KEY it refuses clients with another or none.

What it does with a request is written in its prompt's first token:
  0-99   answers with max_tokens tokens, one per chunk      100  two tokens per chunk, counted by timings
  101    429 with Retry-After: 0 the first time, then as 0   102  503 always
  103    hangs up after two tokens                           104  an error event after one token
  105    an event without an end                             106  500 with a long page
  107    an answer without [DONE], and without finish_reason 108  endless headers
  109    400 with Retry-After: 0                            110  429 with Retry-After: max_tokens the first time
  113    401 from then on, to every request
  111    nothing after one token: says "held" and waits     112  an answer that is finished twice
"""
import json
import os
import socketserver
import sys
from http.server import BaseHTTPRequestHandler

refused_once = set()
revoked = []  # once a request asked for it


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def address_string(self):
        return "client"

    def reply(self, status, body, headers=()):
        data = body.encode()
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def lacks_key(self):
        if not revoked and (not key or self.headers["Authorization"] == "Bearer " + key):
            return False
        self.reply(401, '{"error": {"message": "Invalid API Key"}}')
        return True

    def do_GET(self):
        if self.lacks_key():
            return
        self.reply(200, json.dumps({"object": "list", "data": [
            {"id": "tiny", "object": "model", "meta": {"n_vocab": 256, "n_ctx": 512}}]}))

    def event(self, text):
        data = ("data: " + text + "\n\n").encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def stream(self, request, kind):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        tokens, per_chunk = request["max_tokens"], 2 if kind == 100 else 1
        for made in range(per_chunk, tokens + 1, per_chunk):
            chunk = {"choices": [{"index": 0, "text": "x" * per_chunk, "finish_reason": None}]}
            if kind == 100:
                chunk["timings"] = {"predicted_n": made}
            self.event(json.dumps(chunk))
            if kind == 103 and made == 2:
                self.close_connection = True
                return
            if kind == 111:
                print("held", flush=True)
                self.rfile.read(1)
                self.close_connection = True
                return
            if kind == 104:
                self.event(json.dumps({"error": {"message": "step failed"}}))
            if kind == 105:
                self.wfile.write(b"100000\r\n" + b"y" * 0x100000 + b"\r\n")
        if kind != 107:
            for _ in range(2 if kind == 112 else 1):
                self.event(json.dumps({"choices": [{"index": 0, "text": "", "finish_reason": "length"}]}))
            self.event(json.dumps({"choices": [], "usage": {
                "prompt_tokens": len(request["prompt"]), "completion_tokens": tokens,
                "prompt_tokens_details": {"cached_tokens": 32}}}))
            self.event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        kind = request["prompt"][0]
        if kind == 113:
            revoked.append(kind)
        if self.lacks_key():
            return
        if kind in (101, 110) and request["seed"] not in refused_once:
            refused_once.add(request["seed"])
            after = 0 if kind == 101 else request["max_tokens"]
            return self.reply(429, '{"error": {"message": "later"}}', [("Retry-After", str(after))])
        if kind == 109:
            return self.reply(400, '{"error": {"message": "bad prompt"}}', [("Retry-After", "0")])
        if kind == 102:
            return self.reply(503, '{"error": {"message": "no slot is free"}}')
        if kind == 106:
            return self.reply(500, "<html>" + "z" * 200_000)
        if kind == 108:
            self.send_response(200)
            for number in range(5000):
                self.send_header(f"X-Endless-{number}", "w" * 100)
            return self.end_headers()
        try:
            return self.stream(request, kind)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True


class TcpServer(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128


class UnixServer(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = 128


key = sys.argv[3] if len(sys.argv) > 3 else None
if "--unix" in sys.argv:
    server, address = UnixServer(sys.argv[1], Handler), "http+unix://" + os.path.abspath(sys.argv[1])
else:
    server = TcpServer(("127.0.0.1", 0), Handler)
    address = f"http://127.0.0.1:{server.server_address[1]}"
print(address, flush=True)
server.serve_forever()
