"""llama-index against the server, by its classes for servers that are like OpenAI's.

    llama_index_test.py TROUPE
"""
import os
import unittest

from support import run_in, serve

TROUPE = run_in("clients")
os.environ["LLAMA_INDEX_CACHE_DIR"] = "/nonexistent"  # it would fetch nothing here, and shall not try
from llama_index.core.llms import ChatMessage  # noqa: E402
from llama_index.embeddings.openai_like import OpenAILikeEmbedding  # noqa: E402
from llama_index.llms.openai_like import OpenAILike  # noqa: E402


class LlamaIndexTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = serve(TROUPE, "-a", "toy", "--chat-template", "chatml")
        cls.addClassCleanup(cls.server.end)
        cls.where = {"model": "toy", "api_base": cls.server.url() + "/v1", "api_key": "none", "max_retries": 0,
                     "max_tokens": 8, "temperature": 0}

    def test_complete_and_its_stream(self):
        model = OpenAILike(**self.where, is_chat_model=False)
        whole = model.complete("Once upon a time").text
        self.assertTrue(whole)
        self.assertEqual(list(model.stream_complete("Once upon a time"))[-1].text, whole)

    def test_chat_and_its_stream(self):
        model = OpenAILike(**self.where, is_chat_model=True)
        messages = [ChatMessage(role="user", content="Once upon a time")]
        whole = model.chat(messages).message.content
        self.assertTrue(whole)
        self.assertEqual(list(model.stream_chat(messages))[-1].message.content, whole)

    def test_vectors(self):
        server = serve(TROUPE, "-a", "toy", "-m", os.path.join(os.path.dirname(__file__), "../data/tiny-bert.gguf"))
        self.addCleanup(server.end)
        vectors = OpenAILikeEmbedding(model_name="toy", api_base=server.url() + "/v1", api_key="none", max_retries=0)
        of_two = vectors.get_text_embedding_batch(["a fox", "two foxes"])
        self.assertEqual(of_two[0], vectors.get_text_embedding("a fox"))


if __name__ == "__main__":
    unittest.main(verbosity=1)
