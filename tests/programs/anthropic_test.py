"""Anthropic's Python library against the server.

    anthropic_test.py TROUPE
"""
import unittest

from support import run_in, serve

TROUPE = run_in("clients")
import anthropic  # noqa: E402

FIELDS = {"model": "toy", "max_tokens": 12, "messages": [{"role": "user", "content": "Once upon a time"}],
          "extra_body": {"temperature": 0}}  # which this version of the library has no parameter for


class AnthropicTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = serve(TROUPE, "-a", "toy", "--chat-template", "chatml")
        cls.addClassCleanup(cls.server.end)
        cls.client = anthropic.Anthropic(base_url=cls.server.url(), api_key="none", max_retries=0)
        cls.addClassCleanup(cls.client.close)

    def test_a_stream_has_the_message(self):
        whole = self.client.messages.create(**FIELDS)
        self.assertEqual((whole.stop_reason, whole.usage.output_tokens), ("max_tokens", 12))
        with self.client.messages.stream(**FIELDS) as stream:
            text = "".join(stream.text_stream)
            last = stream.get_final_message()
        self.assertEqual(text, whole.content[0].text)
        self.assertEqual(last.content[0].text, whole.content[0].text)
        self.assertEqual(last.stop_reason, "max_tokens")

    def test_tokens_are_counted_as_they_are_computed(self):
        counted = self.client.messages.count_tokens(model="toy", messages=FIELDS["messages"], system="Be brief.")
        usage = self.client.messages.create(**FIELDS, system="Be brief.").usage
        self.assertEqual(counted.input_tokens, usage.input_tokens + (usage.cache_read_input_tokens or 0))

    def test_errors_by_class(self):
        with self.assertRaises(anthropic.NotFoundError):
            self.client.messages.create(**{**FIELDS, "model": "none"})
        with self.assertRaises(anthropic.BadRequestError) as raised:
            self.client.messages.create(**{**FIELDS, "messages": [{"role": "user", "content": "word " * 4000}]})
        self.assertIn("prompt is too long", str(raised.exception))
        with self.assertRaises(anthropic.BadRequestError) as raised:
            self.client.messages.create(**{**FIELDS, "extra_body": {"temperature": -1}})
        self.assertIn("temperature", str(raised.exception))


if __name__ == "__main__":
    unittest.main(verbosity=1)
