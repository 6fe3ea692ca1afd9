"""The program `llm` against the server, which its extra-openai-models.yaml names.

    llm_test.py TROUPE
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

from support import run_in, serve

TROUPE = run_in("clients")
MODELS = """
- {{model_id: chat, model_name: toy, api_base: "{url}/v1"}}
- {{model_id: text, model_name: toy, api_base: "{url}/v1", completion: true}}
- {{model_id: schemas, model_name: toy, api_base: "{url}/v1", supports_schema: true}}
"""


class LlmTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = serve(TROUPE, "-a", "toy", "--chat-template", "chatml")
        cls.addClassCleanup(cls.server.end)
        cls.folder = tempfile.TemporaryDirectory(prefix="troupe-programs-")
        cls.addClassCleanup(cls.folder.cleanup)
        with open(os.path.join(cls.folder.name, "extra-openai-models.yaml"), "w") as models:
            models.write(MODELS.format(url=cls.server.url()))

    def llm(self, *arguments):
        environment = {**os.environ, "LLM_USER_PATH": self.folder.name, "OPENAI_API_KEY": "none"}
        return subprocess.run([sys.executable, "-m", "llm", *arguments], env=environment, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=60)

    def ask(self, model, text, *arguments):
        return self.llm("-m", model, "-o", "max_tokens", "8", "-o", "temperature", "0", text, *arguments)

    def test_a_stream_has_the_text_of_the_whole_answer(self):
        for model in ("chat", "text"):
            with self.subTest(model):
                whole, stream = self.ask(model, "Once upon a time", "--no-stream"), self.ask(model, "Once upon a time")
                self.assertEqual((whole.returncode, stream.returncode), (0, 0), whole.stderr + stream.stderr)
                self.assertTrue(whole.stdout.strip())
                self.assertEqual(whole.stdout, stream.stdout)

    def test_a_conversation_is_gone_on_with(self):
        counts = []
        for arguments in ((), ("-c",)):
            done = self.ask("chat", "Once upon a time", *arguments)
            self.assertEqual(done.returncode, 0, done.stderr)
            counts.append(json.loads(self.llm("logs", "-n", "1", "--json").stdout)[0]["input_tokens"])
        self.assertGreater(counts[1], 2 * counts[0])  # the second has the first and its answer before it

    def test_a_schema(self):
        done = self.llm("-m", "schemas", "-o", "max_tokens", "60", "a fox", "--schema", "name, age int")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(set(json.loads(done.stdout)), {"name", "age"})


if __name__ == "__main__":
    unittest.main(verbosity=1)
