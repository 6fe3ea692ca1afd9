"""What the server's errors look like, and what programs make of them: each error is recorded once, and then played to the
packages that the Python named in ERRORS_PYTHON has (openai, anthropic, litellm, langchain-openai, langchain-anthropic,
llama-index-llms-openai). Without one the shapes alone are tested.

    errors_test.py TROUPE MODEL
"""
import http.client
import http.server
import importlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../page"))
from server import Server, with_chat_template  # noqa: E402

python = os.environ.get("ERRORS_PYTHON")
if python and "ERRORS_BEGUN" not in os.environ:
    os.environ["ERRORS_BEGUN"] = "1"
    os.execv(python, [python, "-B", *sys.argv])
MODEL = os.path.abspath(sys.argv.pop(2))
TROUPE = os.path.abspath(sys.argv.pop(1))
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"
LONG, SHORT = "word " * 4000, "x"
GUESSES = 30  # wrong keys, until an address is told to wait


def package(name):
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def needs(name):
    return unittest.skipUnless(package(name), f"no {name}; ERRORS_PYTHON names a Python that has it")


def record():
    """(case, api) -> (status, headers, body), of a server with a key."""
    folder = tempfile.TemporaryDirectory(prefix="troupe-errors-")
    model, keys = os.path.join(folder.name, "m.gguf"), os.path.join(folder.name, "keys")
    with open(MODEL, "rb") as source, open(model, "wb") as file:
        file.write(with_chat_template(source.read(), TEMPLATE))
    added = subprocess.run([TROUPE, "key", "add", "errors", "--keys-file", keys], check=True, capture_output=True, text=True)
    key = re.search(r"trp_\S+", added.stdout).group()
    server = Server(TROUPE, "-m", model, "--listen", "tcp://127.0.0.1:0", "--keys-file", keys,
                    "--usage-db", "off", "--sessions-dir", "off")
    port = int(re.search(r"tcp://127\.0\.0\.1:(\d+)", server.log()).group(1))

    def post(api, text=SHORT, key=key, **more):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        path = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages"}[api]
        body = {"messages": [{"role": "user", "content": text}], "max_tokens": 4, **more}
        if api == "anthropic":
            body.setdefault("model", "")
        connection.request("POST", path, json.dumps(body), {"Authorization": f"Bearer {key}"})
        response = connection.getresponse()
        answer = response.status, dict(response.getheaders()), response.read()
        connection.close()
        return answer

    recorded = {}
    for api in ("openai", "anthropic"):
        recorded["overflow", api] = post(api, LONG)
        recorded["no_model", api] = post(api, model="none")
        recorded["field", api] = post(api, top_p=7)
        recorded["wrong_key", api] = post(api, key="wrong")
    for api in ("openai", "anthropic"):
        for _ in range(GUESSES):
            recorded["too_many", api] = post(api, key="wrong")
    running = []  # long enough for what is asked while it drains, also on a busy machine
    for _ in range(3):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("POST", "/v1/completions",
                           json.dumps({"prompt": SHORT, "n": 32, "max_tokens": 400, "ignore_eos": True, "stream": True}),
                           {"Authorization": f"Bearer {key}"})
        running.append(connection)
    answers = [connection.getresponse() for connection in running]  # each head comes with its first token
    server.process.send_signal(signal.SIGTERM)
    while server.get("/health")[0] == 200:  # until it drains, which lasts as long as the answers
        pass
    for api in ("openai", "anthropic"):
        recorded["overload", api] = post(api)
    for answer in answers:
        answer.read()
    server.end()
    folder.cleanup()
    return recorded


class Player(http.server.BaseHTTPRequestHandler):
    """Answers /CASE/v1/... with what was recorded."""
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        case = self.path.split("/")[1]
        api = "anthropic" if self.path.endswith("/messages") else "openai"
        status, headers, body = ErrorsTest.recorded[case, api]
        self.send_response(status)
        for name in headers:
            if name.lower() in ("content-type", "retry-after", "retry-after-ms", "x-should-retry"):
                self.send_header(name, headers[name])
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class ErrorsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        ErrorsTest.recorded = record()
        cls.player = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Player)
        threading.Thread(target=cls.player.serve_forever, daemon=True).start()

    @classmethod
    def tearDownClass(cls):
        cls.player.shutdown()
        cls.player.server_close()

    def url(self, case, api="openai"):
        return f"http://127.0.0.1:{self.player.server_port}/{case}" + ("" if api == "anthropic" else "/v1")

    def check_raises(self, classes, call):
        for case, expected in classes.items():
            with self.subTest(case), self.assertRaises(expected) as caught:
                call(case)
            self.assertIs(type(caught.exception), expected, case)

    def test_each_has_the_status_the_shape_and_the_words_of_its_api(self):
        for case, status, code, words, retry in (
                ("overflow", 400, "context_length_exceeded", "This model's maximum context length is ", False),
                ("no_model", 404, "model_not_found", "", False),
                ("field", 400, "invalid_argument", "", False),
                ("wrong_key", 401, "invalid_api_key", "Incorrect API key provided: ", False),
                ("too_many", 429, None, "Rate limit reached: ", True),
                ("overload", 503, "draining", "", None)):
            with self.subTest(case):
                got, headers, body = self.recorded[case, "openai"]
                error = json.loads(body)["error"]
                self.assertEqual(got, status)
                self.assertEqual(sorted(error), ["code", "message", "param", "type"])
                if code:
                    self.assertEqual(error["code"], code)
                self.assertTrue(error["message"].startswith(words), error["message"])
                if retry is not None:
                    self.assertEqual("Retry-After" in headers, retry, headers)
                    self.assertEqual(headers.get("x-should-retry"), "true" if retry else "false")
        for case, status, kind, words in (
                ("overflow", 400, "invalid_request_error", "prompt is too long: "),
                ("no_model", 404, "not_found_error", ""),
                ("field", 400, "invalid_request_error", ""),
                ("wrong_key", 401, "authentication_error", "invalid x-api-key: "),
                ("too_many", 429, "rate_limit_error", "Rate limit reached: "),
                ("overload", 529, "overloaded_error", "")):
            with self.subTest(case):
                got, _, body = self.recorded[case, "anthropic"]
                error = json.loads(body)
                self.assertEqual((got, error["type"], error["error"]["type"]), (status, "error", kind))
                self.assertTrue(error["error"]["message"].startswith(words), error)

    @needs("openai")
    def test_openai(self):
        import openai
        self.check_raises(
            {"overflow": openai.BadRequestError, "no_model": openai.NotFoundError, "field": openai.BadRequestError,
             "wrong_key": openai.AuthenticationError, "too_many": openai.RateLimitError,
             "overload": openai.InternalServerError},
            lambda case: openai.OpenAI(base_url=self.url(case), api_key="k", max_retries=0).chat.completions.create(
                model="m", messages=[{"role": "user", "content": "x"}]))

    @needs("anthropic")
    def test_anthropic(self):
        import anthropic
        overloaded = anthropic._exceptions.OverloadedError
        self.check_raises(
            {"overflow": anthropic.BadRequestError, "no_model": anthropic.NotFoundError, "field": anthropic.BadRequestError,
             "wrong_key": anthropic.AuthenticationError, "too_many": anthropic.RateLimitError, "overload": overloaded},
            lambda case: anthropic.Anthropic(base_url=self.url(case, "anthropic"), api_key="k", max_retries=0).messages.create(
                model="m", max_tokens=4, messages=[{"role": "user", "content": "x"}]))

    @needs("litellm")
    def test_litellm_and_so_aider(self):
        import litellm
        for provider, api in (("openai", "openai"), ("anthropic", "anthropic")):
            overload = (litellm.ServiceUnavailableError, litellm.InternalServerError)
            for case, expected in {"overflow": litellm.ContextWindowExceededError, "no_model": litellm.NotFoundError,
                                   "field": litellm.BadRequestError, "wrong_key": litellm.AuthenticationError,
                                   "too_many": litellm.RateLimitError, "overload": overload}.items():
                with self.subTest(f"{provider}: {case}"), self.assertRaises(expected):
                    litellm.completion(model=f"{provider}/m", api_base=self.url(case, api), api_key="k", num_retries=0,
                                       max_retries=0, max_tokens=4, messages=[{"role": "user", "content": "x"}])

    @needs("langchain_openai")
    def test_langchain_openai(self):
        from langchain_openai import ChatOpenAI
        from langchain_openai.chat_models import base
        import openai
        overflow = getattr(base, "OpenAIContextOverflowError", openai.BadRequestError)
        for case, expected in {"overflow": overflow, "no_model": openai.NotFoundError,
                               "wrong_key": openai.AuthenticationError, "too_many": openai.RateLimitError,
                               "overload": openai.InternalServerError}.items():
            with self.subTest(case), self.assertRaises(expected):
                ChatOpenAI(base_url=self.url(case), api_key="k", model="m", max_retries=0).invoke("x")

    @needs("langchain_anthropic")
    def test_langchain_anthropic(self):
        from langchain_anthropic import ChatAnthropic, chat_models
        import anthropic
        overflow = getattr(chat_models, "AnthropicContextOverflowError", anthropic.BadRequestError)
        for case, expected in {"overflow": overflow, "no_model": anthropic.NotFoundError,
                               "wrong_key": anthropic.AuthenticationError, "too_many": anthropic.RateLimitError,
                               "overload": anthropic._exceptions.OverloadedError}.items():
            with self.subTest(case), self.assertRaises(expected):
                ChatAnthropic(base_url=self.url(case, "anthropic"), api_key="k", model="m", max_retries=0).invoke("x")

    @needs("llama_index.llms.openai")
    def test_llama_index(self):
        from llama_index.llms.openai import OpenAI
        import openai
        for case, expected in {"overflow": openai.BadRequestError, "no_model": openai.NotFoundError,
                               "wrong_key": openai.AuthenticationError, "too_many": openai.RateLimitError,
                               "overload": openai.InternalServerError}.items():
            with self.subTest(case), self.assertRaises(expected):
                OpenAI(api_base=self.url(case), api_key="k", model="gpt-4o", max_retries=0).complete("x")


if __name__ == "__main__":
    unittest.main(verbosity=1)
