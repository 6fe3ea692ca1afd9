"""langchain-openai against the server.

    langchain_test.py TROUPE
"""
import unittest

from support import real_weights, run_in, serve

TROUPE = run_in("clients")
MINILM = real_weights("all-minilm-l6-v2.gguf")
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings  # noqa: E402


class ChatTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = serve(TROUPE, "-a", "toy", "--chat-template", "chatml")
        cls.addClassCleanup(cls.server.end)
        cls.where = {"model": "toy", "base_url": cls.server.url() + "/v1", "api_key": "none", "max_retries": 0}
        cls.chat = ChatOpenAI(**cls.where, max_tokens=8, temperature=0, seed=1)

    def test_a_stream_has_the_text_of_invoke(self):
        whole = self.chat.invoke("Once upon a time")
        self.assertEqual(whole.usage_metadata["output_tokens"], 8)
        self.assertEqual("".join(chunk.content for chunk in self.chat.stream("Once upon a time")), whole.content)

    def test_a_batch_has_what_each_gets_alone(self):
        prompts = [f"Once upon a time {number}" for number in range(8)]
        self.assertEqual([answer.content for answer in self.chat.batch(prompts)],
                         [self.chat.invoke(prompt).content for prompt in prompts])

    def test_plain_completion(self):
        model = OpenAI(**self.where, max_tokens=8, temperature=0)
        self.assertTrue(model.invoke("Once upon a time"))
        self.assertEqual("".join(model.stream("Once upon a time")), model.invoke("Once upon a time"))

    def test_structured_output(self):
        schema = {"title": "fox", "description": "a fox", "type": "object", "required": ["name"],
                  "properties": {"name": {"type": "string", "maxLength": 20}}}
        for method in ("json_schema", "json_mode"):
            with self.subTest(method):
                chat = ChatOpenAI(**self.where, max_tokens=40, temperature=0, seed=1)
                found = chat.with_structured_output(schema, method=method).invoke("Answer in json: name a fox")
                self.assertIsInstance(found, dict)
                if method == "json_schema":
                    self.assertIsInstance(found["name"], str)


class VectorTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = serve(TROUPE, "-a", "minilm", "-m", MINILM)
        cls.addClassCleanup(cls.server.end)
        cls.where = {"model": "minilm", "base_url": cls.server.url() + "/v1", "api_key": "none", "max_retries": 0}

    def test_a_search_finds_what_is_meant(self):
        # With its check it sends tokens of OpenAI's vocabulary, which are others in a model's own.
        vectors = OpenAIEmbeddings(**self.where, check_embedding_ctx_length=False)
        texts = ["The cat sleeps on the sofa.", "Interest rates rose again.", "The train was two hours late."]
        of_texts, of_query = vectors.embed_documents(texts), vectors.embed_query("a delay of the railway")
        likeness = [sum(a * b for a, b in zip(vector, of_query)) for vector in of_texts]
        self.assertEqual(max(range(3), key=likeness.__getitem__), 2)


if __name__ == "__main__":
    unittest.main(verbosity=1)
