"""OpenAI's Python library against the server.

    openai_test.py TROUPE
"""
import asyncio
import json
import os
import re
import subprocess
import tempfile
import typing
import unittest

from support import run_in, serve

TROUPE = run_in("clients")
import openai  # noqa: E402
import pydantic  # noqa: E402

MESSAGES = [{"role": "user", "content": "Once upon a time"}]


class OpenAiTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = serve(TROUPE, "-a", "toy", "--chat-template", "chatml")
        cls.addClassCleanup(cls.server.end)
        cls.client = openai.OpenAI(base_url=cls.server.url() + "/v1", api_key="none", max_retries=0)
        cls.addClassCleanup(cls.client.close)

    def chat(self, **fields):
        return self.client.chat.completions.create(**{"model": "toy", "messages": MESSAGES, "max_tokens": 12, "seed": 3,
                                                      **fields})

    def test_a_stream_has_the_text_of_the_whole_answer(self):
        whole = self.chat()
        self.assertEqual(whole.usage.completion_tokens, 12)
        chunks = list(self.chat(stream=True, stream_options={"include_usage": True}))
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual(chunks[-1].usage, whole.usage)

    def test_a_seed_repeats_an_answer(self):
        texts = [self.chat(seed=seed, temperature=1).choices[0].message.content for seed in (1, 1, 2)]
        self.assertEqual(texts[0], texts[1])
        self.assertNotEqual(texts[0], texts[2])

    def test_log_probabilities_of_a_chat(self):
        content = self.chat(logprobs=True, top_logprobs=3, temperature=0).choices[0].logprobs.content
        self.assertEqual(len(content), 12)
        for token in content:
            self.assertEqual(len(token.top_logprobs), 3)
            self.assertEqual(token.logprob, max(each.logprob for each in token.top_logprobs))  # greedy

    def test_completions(self):
        whole = self.client.completions.create(model="toy", prompt="Once upon a time", max_tokens=12, temperature=0, logprobs=2)
        stream = self.client.completions.create(model="toy", prompt="Once upon a time", max_tokens=12, temperature=0, stream=True)
        self.assertEqual("".join(chunk.choices[0].text for chunk in stream), whole.choices[0].text)
        self.assertEqual(len(whole.choices[0].logprobs.token_logprobs), 12)
        self.assertEqual(len(whole.choices[0].logprobs.top_logprobs[0]), 2)

    def test_responses(self):
        fields = {"model": "toy", "input": "Once upon a time", "max_output_tokens": 16, "temperature": 0}
        whole = self.client.responses.create(**fields)
        events = list(self.client.responses.create(**fields, stream=True))
        deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
        self.assertTrue(whole.output_text)
        self.assertEqual("".join(deltas), whole.output_text)
        self.assertEqual(events[-1].response.output_text, whole.output_text)

    def test_models(self):
        self.assertEqual([model.id for model in self.client.models.list()], ["toy"])
        self.assertEqual(self.client.models.retrieve("toy").owned_by, "troupe")

    def test_sixteen_at_once_get_what_they_get_alone(self):
        prompts = [f"Once upon a time {number}" for number in range(16)]

        async def ask_all():
            async with openai.AsyncOpenAI(base_url=self.client.base_url, api_key="none", max_retries=0) as client:
                return await asyncio.gather(*(client.completions.create(model="toy", prompt=prompt, max_tokens=8, seed=5)
                                              for prompt in prompts))

        together = [answer.choices[0].text for answer in asyncio.run(ask_all())]
        alone = [self.client.completions.create(model="toy", prompt=prompt, max_tokens=8, seed=5).choices[0].text
                 for prompt in prompts]
        self.assertEqual(together, alone)

    def test_errors_by_class(self):
        with self.assertRaises(openai.NotFoundError) as raised:
            self.chat(model="none")
        self.assertEqual(raised.exception.code, "model_not_found")
        with self.assertRaises(openai.BadRequestError) as raised:
            self.chat(messages=[{"role": "user", "content": "word " * 4000}])
        self.assertEqual(raised.exception.code, "context_length_exceeded")
        with self.assertRaises(openai.BadRequestError) as raised:
            self.chat(temperature=-1)
        self.assertEqual(raised.exception.param, "temperature")

    def test_answers_of_a_form(self):
        schema = {"name": "fox", "schema": {"type": "object", "additionalProperties": False, "required": ["name", "age"],
                                            "properties": {"name": {"type": "string", "maxLength": 30},
                                                           "age": {"type": "integer", "minimum": 0, "maximum": 20}}}}
        for max_tokens in (25, 60):
            answer = self.chat(max_tokens=max_tokens, response_format={"type": "json_schema", "json_schema": schema})
            fox = json.loads(answer.choices[0].message.content)
            self.assertEqual(set(fox), {"name", "age"})
            self.assertIn(fox["age"], range(21))
        answer = self.chat(max_tokens=20, response_format={"type": "json_object"})
        self.assertIsInstance(json.loads(answer.choices[0].message.content), dict)

    def test_parse_returns_the_model(self):
        class Fox(pydantic.BaseModel):
            name: str
            legs: typing.Literal[4]
        messages = [{"role": "user", "content": "a fox"}]
        answer = self.client.chat.completions.parse(model="toy", messages=messages, max_tokens=40, response_format=Fox)
        self.assertEqual(answer.choices[0].message.parsed.legs, 4)
        answer = self.client.responses.parse(model="toy", input="a fox", max_output_tokens=40, text_format=Fox)
        self.assertEqual(answer.output_parsed.legs, 4)

    def test_a_schema_that_cannot_be_enforced_is_refused_by_keyword(self):
        schema = {"name": "fox", "schema": {"type": "object", "unevaluatedProperties": False}}
        with self.assertRaisesRegex(openai.BadRequestError, "unevaluatedProperties"):
            self.chat(response_format={"type": "json_schema", "json_schema": schema})


class KeyTest(unittest.TestCase):
    """A server that asks for keys, with room for few requests of one."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="troupe-programs-")
        self.addCleanup(self.folder.cleanup)
        keys = os.path.join(self.folder.name, "keys")
        added = subprocess.run([TROUPE, "key", "add", "test", "--keys-file", keys], check=True, capture_output=True, text=True)
        self.server = serve(TROUPE, "-a", "toy", "--keys-file", keys, "--max-requests-per-user", "56",
                            "--max-parked-requests", "64", "--max-questions-per-second", "100000")
        self.addCleanup(self.server.end)
        self.key = re.search(r"trp_\S+", added.stdout)[0]

    def client(self, key):
        client = openai.OpenAI(base_url=self.server.url() + "/v1", api_key=key, max_retries=0)
        self.addCleanup(client.close)
        return client

    def parked(self):
        metrics = self.server.get("/metrics")[2].decode()
        return float(re.search(r"^troupe:num_requests_parked\S* (\S+)", metrics, re.MULTILINE)[1])

    def test_a_wrong_key(self):
        with self.assertRaises(openai.AuthenticationError) as raised:
            self.client("sk-wrong").models.list()
        self.assertEqual(raised.exception.code, "invalid_api_key")

    def test_a_request_too_many(self):
        """With so many answers that wait for their client a user gets no other; else it would wait in line."""
        client = self.client(self.key)
        with client.completions.create(model="toy", prompt="Once", max_tokens=800, n=48, stream=True,
                                       extra_body={"ignore_eos": True}):
            while self.parked() < 48:
                pass
            with self.assertRaises(openai.RateLimitError) as raised:
                client.completions.create(model="toy", prompt="Once")
            self.assertIn("retry-after", raised.exception.response.headers)


class VectorTest(unittest.TestCase):
    def test_vectors_of_texts(self):
        server = serve(TROUPE, "-a", "toy", "-m", os.path.join(os.path.dirname(__file__), "../data/tiny-bert.gguf"))
        self.addCleanup(server.end)
        with openai.OpenAI(base_url=server.url() + "/v1", api_key="none", max_retries=0) as client:
            texts = ["a fox", "two foxes", "a fox"]
            packed = client.embeddings.create(model="toy", input=texts)  # the library asks for base64 by itself
            numbers = client.embeddings.create(model="toy", input=texts, encoding_format="float")
        self.assertEqual(packed.data[0].embedding, packed.data[2].embedding)
        self.assertNotEqual(packed.data[0].embedding, packed.data[1].embedding)
        for one, other in zip(packed.data, numbers.data):
            for a, b in zip(one.embedding, other.embedding):
                self.assertAlmostEqual(a, b, delta=1e-6)


if __name__ == "__main__":
    unittest.main(verbosity=1)
