"""Calls of tools with real schemas, validated by jsonschema: demanded, at several lengths and temperatures, in two formats.

    calls_test.py TROUPE
"""
import concurrent.futures
import json
import os
import unittest
import urllib.error
import urllib.request

from support import HERE, run_in, serve, skip

TROUPE = run_in("clients")
import jsonschema  # noqa: E402

SHARED = os.environ.get("TROUPE_SHARED_DIR") or os.path.join(HERE, "../../../shared")
CASES = os.path.join(SHARED, "thirdparty/schemas/maskbench.jsonl")
if not os.path.exists(CASES):
    skip(f"no reference data in {SHARED} (TROUPE_SHARED_DIR): maskbench.jsonl")
LENGTHS = (20, 40, 80, 160, 400)


def call(url, schema, max_tokens, **fields):
    """The calls of the choices; None where no call of this length meets the schema, or it is not enforced."""
    body = {"messages": [{"role": "user", "content": "Once upon a time"}], "max_tokens": max_tokens, "tool_choice": "required",
            "tools": [{"type": "function", "function": {"name": "tell", "parameters": schema, "strict": True}}], **fields}
    request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request) as response:
            choices = json.load(response)["choices"]
    except urllib.error.HTTPError as error:
        message = json.load(error)["error"]["message"]
        if error.code == 400 and ("the tool 'tell' is strict" in message or "the shortest call" in message):
            return None
        raise AssertionError(message) from error
    for choice in choices:
        assert not choice["message"]["content"], choice
        assert choice["finish_reason"] == "tool_calls", choice
    return [[each["function"] for each in choice["message"]["tool_calls"]] for choice in choices]


def requests():
    """(schema, max_tokens, fields) of 200 schemas of objects at five lengths."""
    with open(CASES, encoding="utf-8") as file:
        schemas = [json.loads(line)["schema"] for line in file]
    schemas = [schema for schema in schemas if isinstance(schema, dict) and schema.get("type", "object") == "object"]
    for number, schema in enumerate(schemas[::len(schemas) // 200][:200]):
        for place, max_tokens in enumerate(LENGTHS):
            yield schema, max_tokens, {"temperature": (number + place) % 2, "seed": number}


class CallsTest(unittest.TestCase):
    def check(self, least, *options):
        server = serve(TROUPE, "-a", "toy", "--chat-template", os.path.join(HERE, "names.jinja"), "--max-requests-per-user", "64", *options)
        self.addCleanup(server.end)
        url = server.url()
        asked = list(requests())
        with concurrent.futures.ThreadPoolExecutor(32) as pool:
            answers = list(pool.map(lambda each: call(url, each[0], each[1], **each[2]), asked))
        met = 0
        for (schema, max_tokens, _), choices in zip(asked, answers):
            if choices is None:
                continue
            with self.subTest(schema=json.dumps(schema)[:200], max_tokens=max_tokens):
                self.assertTrue(choices[0])
                for each in choices[0]:
                    self.assertEqual(each["name"], "tell")
                    value = json.loads(each["arguments"])
                    jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)(schema).validate(value)
                met += 1
        self.assertGreater(met, least)
        for place in range(0, len(asked), 20):
            (schema, max_tokens, fields), choices = asked[place], answers[place]
            if choices is None:
                continue
            with self.subTest(schema=json.dumps(schema)[:200], max_tokens=max_tokens):
                self.assertEqual(call(url, schema, max_tokens, **fields), choices)
                self.assertEqual(call(url, schema, max_tokens, **fields, speculation={"type": "off"}), choices)
                self.assertEqual(call(url, schema, max_tokens, **fields, n=3)[:1], choices)

    def test_in_json(self):
        self.check(500)

    def test_in_tags(self):
        self.check(400, "--tool-format", "qwen3-coder")

    def test_as_python_writes_them(self):
        self.check(400, "--tool-format", "lfm2")


if __name__ == "__main__":
    unittest.main(verbosity=1)
