"""A TCP port on loopback in front of the server's Unix socket: what a browser can reach, and what a test can watch.

The relay forwards bytes as they are. It keeps the head of every request, can hold back what the server sends after so
many bytes of an answer, and can answer a path itself.
"""
import re
import socket
import threading

HEAD_END = b"\r\n\r\n"
REFUSED = (b"HTTP/1.1 403 Forbidden\r\nContent-Type: application/json\r\nContent-Length: 47\r\n\r\n"
           b'{"error":{"message":"not for you","code":null}}')


class Relay:
    def __init__(self, socket_path):
        self.socket_path = socket_path
        self.heads = []       # of requests: text
        self.refused = set()  # paths that get 403
        self.held_path = None
        self.held_after = 0
        self.go = threading.Event()
        self.client_left = threading.Event()  # the browser ended a connection whose answer was held
        self.go.set()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def hold(self, path, after):
        """Of the next answers of this path `after` bytes come, and the rest once release() is called."""
        self.held_path, self.held_after = path, after
        self.client_left.clear()
        self.go.clear()

    def release(self):
        self.held_path = None
        self.go.set()

    def paths(self):
        return [head.split(" ", 2)[1] for head in list(self.heads)]

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        server = socket.socket(socket.AF_UNIX)
        try:
            server.connect(self.socket_path)
        except OSError:
            client.close()
            return
        state = {"path": "", "sent": 0}
        to_client = threading.Thread(target=self._to_client, args=(client, server, state), daemon=True)
        to_client.start()
        try:
            self._to_server(client, server, state)
        except OSError:
            pass
        if not self.go.is_set() and state["path"] == self.held_path:
            self.client_left.set()
        for each in (client, server):
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        to_client.join()
        client.close()
        server.close()

    def _to_server(self, client, server, state):
        waiting = b""
        while True:
            chunk = client.recv(65536)
            if not chunk:
                return
            waiting += chunk
            while HEAD_END in waiting:
                head, rest = waiting.split(HEAD_END, 1)
                length = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
                body = int(length.group(1)) if length else 0
                if len(rest) < body:
                    break
                self.heads.append(head.decode("latin-1"))
                state["path"], state["sent"] = head.split(b" ", 2)[1].decode(), 0
                if state["path"] in self.refused:
                    client.sendall(REFUSED)
                else:
                    server.sendall(head + HEAD_END + rest[:body])
                waiting = rest[body:]

    def _to_client(self, client, server, state):
        try:
            while True:
                chunk = server.recv(512)
                if not chunk:
                    break
                if state["path"] == self.held_path and state["sent"] >= self.held_after:
                    self.go.wait()
                client.sendall(chunk)
                state["sent"] += len(chunk)
            client.shutdown(socket.SHUT_WR)
        except OSError:
            pass
