"""What litellm, and so aider and others, makes of errors of the server. Runs only with a Python that has litellm: name
it in LITELLM_PYTHON.

    litellm_test.py TROUPE
"""
import json
import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../page"))
from server import Server, UnixConnection  # noqa: E402

python = os.environ.get("LITELLM_PYTHON")
if python and "LITELLM_BEGUN" not in os.environ:
    os.environ["LITELLM_BEGUN"] = "1"
    os.execv(python, [python, "-B", *sys.argv])
try:
    import httpx
    import litellm
    from litellm.litellm_core_utils.exception_mapping_utils import ExceptionCheckers, exception_type
    from openai import APIStatusError
except ImportError as error:
    print(f"skipped: {error}; LITELLM_PYTHON names the Python of an environment with litellm")
    sys.exit(77)

TROUPE = os.path.abspath(sys.argv.pop(1))


class ErrorTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(TROUPE, "-c", "64", "--usage-db", "off", "--sessions-dir", "off")

    @classmethod
    def tearDownClass(cls):
        cls.server.end()

    def post(self, path, body):
        connection = UnixConnection(self.server.socket)
        connection.request("POST", path, json.dumps(body))
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        return response.status, text

    def raised(self, status, text):
        """The class that litellm raises for what OpenAI's client raised."""
        response = httpx.Response(status, text=text, request=httpx.Request("POST", "http://localhost/v1"))
        original = APIStatusError(f"Error code: {status} - {json.loads(text)}", response=response, body=json.loads(text))
        try:
            exception_type(model="m", original_exception=original, custom_llm_provider="openai")
        except Exception as error:
            return type(error)
        return None

    def test_a_context_that_overflows(self):
        for path, body in (("/v1/completions", {"prompt": "word " * 400, "max_tokens": 4}),
                           ("/v1/embeddings", {"input": "word " * 400})):
            status, text = self.post(path, body)
            self.assertTrue(ExceptionCheckers.is_error_str_context_window_exceeded(json.loads(text)["error"]["message"]), text)
            self.assertTrue(ExceptionCheckers.is_error_str_context_window_exceeded(text))
            self.assertIs(self.raised(status, text), litellm.ContextWindowExceededError)

    def test_an_unknown_model(self):
        self.assertIs(self.raised(*self.post("/v1/completions", {"prompt": "x", "model": "none"})), litellm.NotFoundError)

    def test_what_is_wrong_with_a_field(self):
        self.assertIs(self.raised(*self.post("/v1/completions", {"prompt": "x", "top_p": 7})), litellm.BadRequestError)


if __name__ == "__main__":
    unittest.main(verbosity=1)
