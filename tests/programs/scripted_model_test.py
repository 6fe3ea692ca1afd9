"""Models of scripted_model.py answer as they were told to, whatever the sampling and however long the prompt.

    scripted_model_test.py TROUPE
"""
import json
import os
import tempfile
import unittest

from scripted_model import pieces_of, write_scripted_model
from support import run, serve

TROUPE = run()
ANSWERS = ['<tool_call>\n{"name": "look", "arguments": {"n": [1, 1, 1, 1], "path": "/a/a/a"}}\n</tool_call>',
           "Größe \u4e2d\u6587, and the same again: Größe \u4e2d\u6587", "no"]
TEMPLATE = """{% for message in messages %}{{ message.role }}: {{ message.content }}
{% endfor %}<|answer_{{ {'user': 0, 'tool': 1}[messages[-1].role] if messages | length < 4 else 2 }}|>"""


class ScriptedModelTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="troupe-programs-")
        cls.addClassCleanup(folder.cleanup)
        model = os.path.join(folder.name, "model.gguf")
        write_scripted_model(model, ANSWERS, TEMPLATE)
        cls.server = serve(TROUPE, "-a", "toy", "-m", model)
        cls.addClassCleanup(cls.server.end)

    def answer(self, *messages, **fields):
        status, text = self.server.post("/v1/chat/completions", {"messages": messages, **fields})
        self.assertEqual(status, 200, text)
        choice = json.loads(text)["choices"][0]
        self.assertEqual(choice["finish_reason"], "stop")
        return choice["message"]["content"]

    def test_the_last_token_of_the_prompt_decides_the_answer(self):
        user, tool = {"role": "user", "content": "hello"}, {"role": "tool", "content": "result"}
        self.assertEqual(self.answer(user), ANSWERS[0])
        self.assertEqual(self.answer(user, tool), ANSWERS[1])
        self.assertEqual(self.answer(user, tool, user, user), ANSWERS[2])

    def test_neither_sampling_nor_the_rest_of_the_prompt_changes_it(self):
        long = {"role": "user", "content": "".join(ANSWERS) + "word " * 2000}
        for fields in ({"temperature": 0}, {"temperature": 2, "seed": 7}, {"speculation": {"type": "off"}}):
            with self.subTest(fields):
                self.assertEqual(self.answer(long, **fields), ANSWERS[0])

    def test_pieces_are_all_different_and_give_back_the_answers(self):
        pieces = pieces_of(ANSWERS)
        self.assertEqual([b"".join(script).decode() for script in pieces], ANSWERS)
        whole = [piece for script in pieces for piece in script]
        self.assertEqual(len(set(whole)), len(whole))
        with self.assertRaises(ValueError):
            pieces_of(["ab", "ab"])


if __name__ == "__main__":
    unittest.main(verbosity=1)
