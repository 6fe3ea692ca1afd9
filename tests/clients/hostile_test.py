"""The Python package and the subcommands of `troupe` against servers that break the protocol: each request ends, as the
table says, and no text of the server reaches an exception or a terminal unescaped.

    hostile_test.py TROUPE SOURCE

The package is in PYTHONPATH.
"""
import asyncio
import os
import subprocess
import sys
import unittest
from unittest import mock

TROUPE, SOURCE = map(os.path.abspath, sys.argv[1:3])
del sys.argv[1:3]

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


# Subcommands with what they ask first that the table's rows answer: where it is nothing that they wait for before.
COMMANDS = {
    "run": (["run", "--socket", "SOCKET", "-n", "4", "Once"], "generate"),
    "run --json": (["run", "--socket", "SOCKET", "--json", "Once"], "generate"),
    "chat": (["chat", "--socket", "SOCKET"], "generate"),
    "load": (["load", "--socket", "SOCKET", "--clients", "2", "--num-prompts", "4"], "generate"),
    "top": (["top", "--socket", "SOCKET", "--once"], "status"),
    "status": (["status", "--socket", "SOCKET"], "status"),
}
# docs/operations.md, exit codes: 1 no server or a broken answer, 2 what can never be served, 75 later, 77 not allowed;
# 0 only where the answer came to its end.
CODES = {"protocol": {1}, "lost": {1, 75}, "refused": {1, 2, 75, 77}, "failed": {1, 75}, "done": {0, 1, 75}}


def model(stream):
    return pb.ServerFrame(models=pb.Models(stream=stream, models=[pb.Models.Model(name="m" + ESCAPES, family=ESCAPES,
                                                                                  context=512, vocab_size=32000)]))


def filled(message, depth=4):
    """The message with ESCAPES as every text that it can have."""
    for field in message.DESCRIPTOR.fields:
        is_list = field.label == field.LABEL_REPEATED
        if field.type == field.TYPE_STRING and is_list:
            getattr(message, field.name).append("x" + ESCAPES)
        elif field.type == field.TYPE_STRING:
            setattr(message, field.name, "x" + ESCAPES)
        elif field.type == field.TYPE_MESSAGE and depth > 0:
            part = getattr(message, field.name)
            filled(part.add() if is_list else part, depth - 1).SetInParent()
    return message


class CommandTest(unittest.TestCase):
    def run_command(self, row, arguments, asked):
        """Exit code and output of a subcommand whose first request of the kind `asked` the row answers; None: all."""
        def answers(kind, body):
            if asked in (None, kind):
                return None
            if kind == "models":
                return model(body.stream)
            if kind == "health":
                return pb.ServerFrame(health=pb.Health(stream=body.stream, readiness=pb.READINESS_READY))
            if kind == "status":
                return pb.ServerFrame(status=pb.Status(stream=body.stream))
            return None

        with HostileServer(row, answers) as server:
            command = [TROUPE, *(server.path if each == "SOCKET" else each for each in arguments)]
            ended = subprocess.run(command, input=b"Hello\n", capture_output=True, timeout=PATIENCE)
        return ended.returncode, ended.stdout + ended.stderr

    def check(self, row, name, asked):
        arguments, _ = COMMANDS[name]
        with self.subTest(f"{name}: {row['name']}, to {asked or 'the first request'}"):
            code, output = self.run_command(row, arguments, asked)
            self.assertTrue(is_printable(output.decode()), output)
            codes = CODES[row["first"]] | CODES[row["others"]] | (set() if row["greets"] else {2})  # another version: 2
            if name == "load":
                codes |= {75}  # the server has gone (docs/load.md)
            if name in ("chat", "load") and row["first"] in ("refused", "failed"):
                codes |= {0, 1, 75}  # chat goes on with the next line after a refusal, load counts it
            self.assertIn(code, codes, output)

    def test_texts_of_answers_are_escaped(self):
        """Every text of every answer has an escape sequence, but for those of which a pipe gets the exact bytes."""
        answers = {"models": "models", "status": "status", "health": "health", "usage_request": "usage_report",
                   "session_request": "sessions", "load_model": "model_changed", "unload_model": "model_changed"}

        def answer(kind, body):
            if kind == "generate":
                return pb.ServerFrame(refused=filled(pb.Refused(stream=body.stream, code=pb.OUTCOME_QUEUE_FULL)))
            if kind in answers:
                frame = pb.ServerFrame()
                filled(getattr(frame, answers[kind])).stream = body.stream
                if kind == "health":
                    frame.health.readiness = pb.READINESS_READY  # load waits for it
                return frame
            return None

        rejection = {"greets": True, "closes": False, "sends": ["failed { stream: STREAM message: 'ESCAPES' }"]}
        name = "x" + ESCAPES
        for arguments in (["run", "-v", name], ["run", "--json", name], ["chat"], ["chat", "--session", "tea"], ["load", "--clients", "1", "--num-prompts", "2"],
                          ["top", "--once"], ["status"], ["status", "-v"], ["status", "--json"], ["status", "--prometheus"],
                          ["status", "--profile"], ["status", "--profile", "--json"], ["model", "ls"], ["model", "info", name],
                          ["model", "info"], ["model", "load", "/x"], ["model", "unload", name], ["session", "ls"],
                          ["session", "inspect", "tea"], ["session", "ls", "--json"], ["session", "save", "tea"], ["usage"],
                          ["usage", "--json"], ["usage", "--by", "day"], ["embed", "x"]):
            with self.subTest(" ".join(arguments)), HostileServer(rejection, answer) as server:
                # By its variable: the path is the user's, and is shown as it is.
                ended = subprocess.run([TROUPE, *arguments], input=b"Hello\n", capture_output=True, timeout=PATIENCE,
                                       env={**os.environ, "TROUPE_HOST": "unix://" + server.path})
                output = (ended.stdout + ended.stderr).decode()
                self.assertTrue(is_printable(output), output)
                self.assertLess(ended.returncode, 128)
                self.assertGreaterEqual(ended.returncode, 0)

    def test_subcommands_end_with_a_documented_code_and_without_escapes(self):
        for row in table(SOURCE):
            for name, (_, asked) in COMMANDS.items():
                self.check(row, name, asked)

    def test_so_they_do_where_their_first_question_is_answered_like_that(self):
        for row in table(SOURCE):
            for name in ("run", "chat", "load"):
                self.check(row, name, None)


if __name__ == "__main__":
    unittest.main(verbosity=1)
