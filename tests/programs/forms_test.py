"""Answers for real schemas, validated by jsonschema: at several lengths and temperatures, alone, together, drafted, and as one of several.

    forms_test.py TROUPE
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


def answer(url, schema, max_tokens, **fields):
    """The bodies of the choices' texts; None where no answer of this length has the form, or the schema is not enforced."""
    body = {"prompt": "An example in JSON:", "max_tokens": max_tokens, "guided_json": schema, **fields}
    request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request) as response:
            choices = json.load(response)["choices"]
    except urllib.error.HTTPError as error:
        message = json.load(error)["error"]["message"]
        if error.code == 400 and ("cannot be enforced" in message or "the shortest answer" in message):
            return None
        raise AssertionError(message) from error
    return [choice["text"] for choice in choices]


def requests():
    """(schema, max_tokens, fields) of 200 schemas at five lengths."""
    with open(CASES, encoding="utf-8") as file:
        cases = [json.loads(line) for line in file]
    for number, case in enumerate(cases[::len(cases) // 200][:200]):
        for place, max_tokens in enumerate(LENGTHS):
            yield case["schema"], max_tokens, {"temperature": (number + place) % 2, "seed": number}


class FormsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = serve(TROUPE, "-a", "toy", "--max-requests-per-user", "64")
        cls.addClassCleanup(cls.server.end)
        cls.url = cls.server.url()
        cls.asked = list(requests())
        with concurrent.futures.ThreadPoolExecutor(32) as pool:
            cls.answers = list(pool.map(lambda each: answer(cls.url, each[0], each[1], **each[2]), cls.asked))

    def test_all_parse_and_meet_their_schema(self):
        met = 0
        for (schema, max_tokens, _), texts in zip(self.asked, self.answers):
            if texts is None:
                continue
            with self.subTest(schema=json.dumps(schema)[:200], max_tokens=max_tokens):
                value = json.loads(texts[0])
                jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)(schema).validate(value)
                met += 1
        self.assertGreater(met, 700)

    def test_the_same_alone_as_one_of_several_and_drafted(self):
        for place in range(0, len(self.asked), 10):
            (schema, max_tokens, fields), texts = self.asked[place], self.answers[place]
            if texts is None:
                continue
            with self.subTest(schema=json.dumps(schema)[:200], max_tokens=max_tokens):
                self.assertEqual(answer(self.url, schema, max_tokens, **fields), texts)
                self.assertEqual(answer(self.url, schema, max_tokens, **fields, speculation={"type": "off"}), texts)
                self.assertEqual(answer(self.url, schema, max_tokens, **fields, n=4)[:1], texts)


if __name__ == "__main__":
    unittest.main(verbosity=1)
