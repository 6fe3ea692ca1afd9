"""litellm, and so aider and others, against the server: answers, and what it makes of our errors.

    litellm_test.py TROUPE
"""
import json
import os
import unittest

from support import run_in, serve

TROUPE = run_in("clients")
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it would fetch a list of prices
import httpx  # noqa: E402
import litellm  # noqa: E402
from litellm.litellm_core_utils.exception_mapping_utils import ExceptionCheckers, exception_type  # noqa: E402
from openai import APIStatusError  # noqa: E402

litellm.suppress_debug_info = True


class AnswerTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = serve(TROUPE, "-a", "toy", "--chat-template", "chatml")
        cls.addClassCleanup(cls.server.end)
        cls.where = {"api_base": cls.server.url() + "/v1", "api_key": "none", "num_retries": 0, "max_retries": 0}

    def chat(self, provider="openai/toy", text="Once upon a time", **fields):
        return litellm.completion(provider, [{"role": "user", "content": text}], max_tokens=8, temperature=0,
                                  **{**self.where, **fields})

    def test_a_stream_has_the_text_of_the_whole_answer(self):
        whole = self.chat().choices[0].message.content
        self.assertTrue(whole)
        self.assertEqual("".join(chunk.choices[0].delta.content or "" for chunk in self.chat(stream=True)), whole)

    def test_the_same_server_as_vllm_and_as_anthropic(self):
        whole = self.chat().choices[0].message.content
        self.assertEqual(self.chat("hosted_vllm/toy").choices[0].message.content, whole)
        as_anthropic = self.chat("anthropic/toy", api_base=self.server.url())
        self.assertEqual(as_anthropic.choices[0].message.content, whole)

    def test_plain_completion(self):
        answer = litellm.text_completion(model="text-completion-openai/toy", prompt="Once upon a time", max_tokens=8,
                                         **self.where)
        self.assertTrue(answer.choices[0].text)

    def test_errors_of_calls(self):
        with self.assertRaises(litellm.ContextWindowExceededError):
            self.chat(text="word " * 4000)
        with self.assertRaises(litellm.ContextWindowExceededError):
            self.chat("anthropic/toy", text="word " * 4000, api_base=self.server.url())
        with self.assertRaises(litellm.NotFoundError):
            self.chat("openai/none")

    def test_vectors(self):
        server = serve(TROUPE, "-a", "toy", "-m", os.path.join(os.path.dirname(__file__), "../data/tiny-bert.gguf"))
        self.addCleanup(server.end)
        answer = litellm.embedding("openai/toy", ["a fox", "two foxes"], **{**self.where, "api_base": server.url() + "/v1"})
        self.assertNotEqual(answer.data[0]["embedding"], answer.data[1]["embedding"])


class ErrorTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = serve(TROUPE, "-c", "64")
        cls.addClassCleanup(cls.server.end)

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
            status, text = self.server.post(path, body)
            self.assertTrue(ExceptionCheckers.is_error_str_context_window_exceeded(json.loads(text)["error"]["message"]), text)
            self.assertTrue(ExceptionCheckers.is_error_str_context_window_exceeded(text))
            self.assertIs(self.raised(status, text), litellm.ContextWindowExceededError)

    def test_an_unknown_model(self):
        self.assertIs(self.raised(*self.server.post("/v1/completions", {"prompt": "x", "model": "none"})), litellm.NotFoundError)

    def test_what_is_wrong_with_a_field(self):
        self.assertIs(self.raised(*self.server.post("/v1/completions", {"prompt": "x", "top_p": 7})), litellm.BadRequestError)


if __name__ == "__main__":
    unittest.main(verbosity=1)
