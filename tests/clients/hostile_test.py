"""The Python package against servers that break the protocol: each request ends, as the table says, and no text of the
server reaches an exception unescaped.

    hostile_test.py SOURCE

The package is in PYTHONPATH.
"""
import asyncio
import os
import sys
import unittest
from unittest import mock

SOURCE = os.path.abspath(sys.argv.pop(1))

import troupe  # noqa: E402
from hostile_server import ESCAPES, HostileServer, is_printable, table  # noqa: E402
from troupe import connection  # noqa: E402
from troupe import troupe_pb2 as pb  # noqa: E402
from troupe.printable import printable  # noqa: E402

PATIENCE = 60  # seconds of what ends at once: a busy machine may take its time
KINDS = {"protocol": troupe.ProtocolError, "lost": troupe.ConnectionLost, "refused": troupe.Refused, "failed": troupe.Failed}


class PackageTest(unittest.IsolatedAsyncioTestCase):
    async def outcomes(self, row, calls):
        """How each call ends that waits when the row is sent. The first one has the first stream."""
        with HostileServer(row, num_waiting=len(calls)) as server:
            client = troupe.Client(server.path, timeout=PATIENCE, retry=troupe.RetryPolicy(max_retries=0))
            try:
                if row["greets"]:
                    await client.connect()
                tasks = [asyncio.create_task(call(client)) for call in calls]
                done, pending = await asyncio.wait(tasks, timeout=PATIENCE)
                self.assertFalse(pending, "requests still wait")
                return [task.exception() or task.result() for task in tasks]
            finally:
                await client.close()

    def check(self, outcome, expected):
        if expected == "done":
            self.assertNotIsInstance(outcome, troupe.ProtocolError)
            texts = [str(outcome)] if isinstance(outcome, Exception) else [outcome.message, outcome.outcome]
        else:
            self.assertIsInstance(outcome, KINDS[expected], repr(outcome))
            texts = [str(outcome), getattr(outcome, "field", ""), getattr(outcome, "outcome", "")]
        for text in texts:
            self.assertTrue(is_printable(text), repr(text))

    async def test_every_request_of_the_connection_ends_as_the_table_says(self):
        def generate(client):
            return client.generate("x")

        def health(client):
            return client.health()

        def embed(client):
            return client.embed(["x"])

        for row in table(SOURCE):
            with self.subTest(row["name"]):
                if row["greets"]:
                    first, *others = await self.outcomes(row, [generate, health, generate, embed])
                else:
                    first, *others = await self.outcomes(row, [generate])
                self.check(first, row["first"])
                for other in others:
                    self.check(other, row["others"])

    async def test_questions_end_too(self):
        calls = [lambda client: client.models(), lambda client: client.tokenize("x"), lambda client: client.usage(),
                 lambda client: client.status(), lambda client: client.load_model("/x"), lambda client: client.health()]
        for row in table(SOURCE):
            if row["greets"] and row["first"] != "done":
                with self.subTest(row["name"]):
                    first, *others = await self.outcomes(row, calls)
                    self.check(first, row["first"])
                    for other in others:
                        self.check(other, row["others"])

    async def test_answers_that_are_too_short_or_have_values_of_no_name_break_the_protocol_or_are_numbers(self):
        row = {"greets": True, "closes": False, "sends": ["sessions { stream: STREAM }"]}
        [error] = await self.outcomes(row, [lambda client: client.inspect_session("tea")])
        self.check(error, "protocol")
        row["sends"] = ["embeddings { stream: STREAM vectors { values: 1 } pooling: 99 }"]
        [answer] = await self.outcomes(row, [lambda client: client.embed(["x"])])
        self.assertEqual(answer.pooling, "99")

    async def test_what_has_begun_is_not_asked_again(self):
        row = {"greets": True, "closes": False, "sends": [
            "tokens { stream: STREAM ids: 7 text: 'x' }",
            "refused { stream: STREAM code: OUTCOME_QUEUE_FULL retry_after_ms: 1 }"]}
        [error] = await self.outcomes(row, [lambda client: client.generate("x", retry=troupe.RetryPolicy(9))])
        self.check(error, "refused")

    async def test_half_a_frame_is_not_waited_for_for_ever(self):
        row = {"greets": True, "closes": False, "sends": ["0x0a000000120808"]}
        with mock.patch.object(connection, "_MOST_FRAME_SECONDS", 0.01):
            [error] = await self.outcomes(row, [lambda client: client.generate("x")])
        self.check(error, "lost")

    async def test_a_greeting_without_limits_has_the_protocols(self):
        row = {"greets": False, "closes": False, "sends": ["welcome { protocol: 1 }"]}
        with HostileServer(row, answers=lambda kind, body: pb.ServerFrame(health=pb.Health(stream=body.stream))) as server:
            async with troupe.Client(server.path) as client:
                self.assertIsInstance(await client.health(), pb.Health)

    def test_printable_text_is_bounded_and_stays_as_it_is(self):
        for code in [*range(0x3000), 0xfeff, 0xd800, 0x1f600]:
            shown = printable(chr(code))
            self.assertEqual(printable(shown), shown)
            if not chr(code).isprintable() and code not in (0xa0, 0xad) and code < 0x100:
                self.assertTrue(is_printable(shown), hex(code))
        self.assertEqual(printable("a\n\x1b[2J\u202eb é"), "a\\n\\x1b[2J\\u202eb é")
        self.assertEqual(len(printable("x" * 100000)), 8192)
        self.assertEqual(str(troupe.ConnectionLost(ESCAPES)), printable(ESCAPES))


if __name__ == "__main__":
    unittest.main(verbosity=1)
