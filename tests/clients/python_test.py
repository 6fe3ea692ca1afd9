"""The package of clients/python against `troupe serve`, and against servers that misbehave.

    python_test.py TROUPE SOURCE

The package is in PYTHONPATH.
"""
import asyncio
import contextlib
import gc
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

TROUPE, SOURCE = map(os.path.abspath, sys.argv[1:3])
del sys.argv[1:3]
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../page"))

import troupe  # noqa: E402
from server import Server  # noqa: E402
from troupe import sockets  # noqa: E402
from troupe import troupe_pb2 as pb  # noqa: E402
from troupe.connection import PROTOCOL  # noqa: E402
from troupe.options import generate_frame  # noqa: E402
from troupe.retry import Backoff  # noqa: E402

PATIENCE = 300  # seconds of what would end at once on a machine that is not busy
AT_ONCE = troupe.RetryPolicy(max_retries=0)


class WithServer(unittest.IsolatedAsyncioTestCase):
    """One server for all tests of a class."""

    flags: list[str] = []

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="troupe-python-")
        cls.server = Server(TROUPE, "-m", os.path.join(SOURCE, "models/tales-5m-tq2_0.gguf"), "--usage-db",
                            os.path.join(cls.folder.name, "usage.db"), "--sessions-dir",
                            os.path.join(cls.folder.name, "sessions"), "--chat-template", "chatml", *cls.flags)

    @classmethod
    def tearDownClass(cls):
        cls.server.end()
        cls.folder.cleanup()

    def client(self, **options):
        return troupe.Client(self.server.socket, timeout=PATIENCE, **options)


class ServerTest(WithServer):
    async def test_the_server_introduces_itself(self):
        async with self.client() as client:
            self.assertEqual(client.server.protocol, PROTOCOL)
            self.assertEqual(client.server.tenant, str(os.geteuid()))
            self.assertFalse(client.draining)

    async def test_a_stream_is_the_whole_answer_in_order(self):
        async with self.client() as client:
            pieces = [each async for each in client.stream("Once upon a time", temperature=0, max_tokens=40)]
            self.assertGreater(len(pieces), 1)
            whole = await client.generate("Once upon a time", temperature=0, max_tokens=40)
            self.assertEqual(sum((each.ids for each in pieces), []), whole.ids)
            self.assertEqual("".join(each.text for each in pieces), whole.text)
            self.assertEqual((whole.outcome, len(whole.ids), whole.usage.completion_tokens), ("length", 40, 40))

    async def test_calls_of_tools_come_apart_from_the_text_and_their_results_go_back(self):
        tools = [{"name": "get_weather", "description": "Weather of a city",
                  "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
                 {"type": "function", "function": {"name": "note"}}]
        messages = [{"role": "user", "content": "What is the weather in Bern?"}]
        call = 'Let me see.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Bern"}}\n</tool_call>'
        asked = {"tools": tools, "begins_with": call, "parallel_tool_calls": False, "seed": 5, "max_tokens": 90,
                 "ignore_eos": True}
        async with self.client() as client:
            answer = await client.generate(messages, **asked)
            self.assertEqual((answer.outcome, answer.text), ("tool_call", "Let me see."))
            self.assertEqual([(each.name, each.arguments, each.is_complete) for each in answer.calls],
                             [("get_weather", '{"city": "Bern"}', True)])
            self.assertEqual(answer.usage.tool_calls, 1)
            pieces = [each async for each in client.stream(messages, **asked)]
            self.assertEqual("".join(each.text for each in pieces), "Let me see.")
            parts = [part for each in pieces for part in each.calls]
            self.assertEqual(parts[0].id, answer.calls[0].id)
            self.assertEqual("".join(part.arguments for part in parts), '{"city": "Bern"}')
            self.assertTrue(parts[-1].ends)
            messages += [{"role": "assistant", "content": answer.text, "tool_calls": answer.calls},
                         {"role": "tool", "tool_call_id": answer.calls[0].id, "content": "21 degrees"}]
            second = await client.generate(messages, tools=tools, tool_choice="none", max_tokens=4)
            self.assertEqual(second.outcome, "length")
            demanded = await client.generate(messages, tools=tools, tool_choice={"name": "note"}, max_tokens=40)
            self.assertEqual(demanded.calls[0].name, "note")
            proof = (await client.generate(messages, tools=tools, tool_choice="required", proof=True,
                                           max_tokens=40)).receipt.proof
            self.assertTrue(proof.text.startswith("<tool_call>"))
            self.assertTrue(proof.form.calls.must_call)
            self.assertEqual(proof.form.calls.format, "generic")

    async def test_what_is_wrong_with_tools_is_said(self):
        messages = [{"role": "user", "content": "Hello"}]
        async with self.client() as client:
            for wrong in ({"tools": ["f"]}, {"tool_choice": "always"}):
                with self.assertRaises(TypeError):
                    client.stream(messages, **wrong)
            for field, wrong in (("tools", {"tools": [{"name": "two words"}]}), ("tool_choice", {"tool_choice": "required"}),
                                 ("tools", {"tools": [{"name": "f", "parameters": []}]})):
                with self.assertRaises(troupe.Refused) as refused:
                    await client.generate(messages, **wrong)
                self.assertEqual(refused.exception.field, field)

    async def test_an_answer_longer_than_the_window_comes_to_its_end(self):
        async with self.client() as client:
            answer = await client.generate("Once", ignore_eos=True, max_tokens=700)
            self.assertEqual(len(answer.ids), 700)

    async def test_a_reader_that_does_not_read_is_sent_no_more_than_the_window(self):
        async with self.client() as client:
            async with client.stream("Once", ignore_eos=True, max_tokens=700) as stream:
                first = await anext(stream)
                while not (await client.status()).requests_parked:
                    await asyncio.sleep(0)
                unread = sum(len(each.ids) for each in stream._incoming.items)
                self.assertEqual(unread + len(first.ids), 256)
                self.assertEqual(len((await stream.completion()).ids), 700)

    async def test_credit_can_be_granted_by_hand(self):
        async with self.client() as client:
            async with client.stream("Once", ignore_eos=True, max_tokens=8, credit=2) as stream:
                seen = 0
                while seen < 2:
                    seen += len((await anext(stream)).ids)
                self.assertEqual(seen, 2)
                stream.grant(6)
                self.assertEqual(len((await stream.completion()).ids), 8)

    async def test_several_answers_are_told_apart(self):
        async with self.client() as client:
            answers = await client.generate_all("One day", n=3, seed=5, max_tokens=12)
            self.assertEqual([each.choice for each in answers], [0, 1, 2])
            self.assertEqual(answers[0].ids, (await client.generate("One day", seed=5, max_tokens=12)).ids)

    async def test_options_reach_the_server(self):
        async with self.client() as client:
            answer = await client.generate("Once upon a", temperature=0, max_tokens=3, logprobs=2)
            self.assertEqual([len(each.top_ids) for each in answer.logprobs], [2, 2, 2])
            token = answer.ids[0]
            banned = await client.generate("Once upon a", temperature=0, max_tokens=1, logit_bias={token: -100.0})
            self.assertNotEqual(banned.ids[0], token)
            stopped = await client.generate("Once upon a", temperature=0, max_tokens=40, stop=" time")
            self.assertEqual((stopped.outcome, stopped.stop), ("stop_string", " time"))
            ids = await client.tokenize("Once upon a")
            self.assertEqual((await client.generate(ids, temperature=0, max_tokens=3)).ids, answer.ids)
            for name in ("", "none"):
                with self.assertRaises(TypeError):
                    client.stream("x", **{name: 1})
            with self.assertRaises(TypeError):
                client.stream("x", variables={})

    async def test_a_cancelled_stream_ends_with_what_it_has(self):
        async with self.client() as client:
            async with client.stream("Once", ignore_eos=True) as stream:
                async for tokens in stream:
                    stream.cancel()
                answer = await stream.completion()
            self.assertEqual(answer.outcome, "cancelled")
            self.assertEqual(len(answer.ids), answer.usage.completion_tokens)

    async def test_a_stream_that_is_cancelled_before_it_is_read_is_not_sent(self):
        async with self.client() as client:
            before = (await client.status()).requests_received
            stream = client.stream("Once")
            stream.cancel()
            self.assertEqual((await stream.completion()).outcome, "cancelled")
            self.assertEqual((await client.status()).requests_received, before)

    async def test_what_is_left_or_dropped_is_cancelled(self):
        async def none_live(client):
            while (await client.status(list_requests=True)).live_requests:
                await asyncio.sleep(0)

        async with self.client() as client:
            async with client.stream("Once", ignore_eos=True) as stream:
                await anext(stream)
            await none_live(client)
            async for _ in client.stream("Once", ignore_eos=True):
                break
            gc.collect()
            await none_live(client)
            task = asyncio.create_task(client.generate("Once", ignore_eos=True))
            while not (await client.status(list_requests=True)).live_requests:
                await asyncio.sleep(0)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            await none_live(client)

    async def test_more_requests_than_a_connection_may_have_wait_for_one_another(self):
        async with self.client(retry=AT_ONCE) as client:
            self.assertEqual(client.server.limits.max_streams, 64)
            answers = await asyncio.gather(*(client.generate("Once", max_tokens=40, ignore_eos=True) for _ in range(150)))
            self.assertEqual({each.outcome for each in answers}, {"length"})
            self.assertTrue((await client.health()).readiness)

    async def test_a_refusal_says_what_is_wrong(self):
        async with self.client() as client:
            with self.assertRaises(troupe.Refused) as caught:
                await client.generate("Once", top_p=4)
            self.assertEqual((caught.exception.outcome, caught.exception.field), ("invalid_argument", "sampling.top_p"))
            self.assertIsNone(caught.exception.retry_after)
            with self.assertRaises(troupe.Refused) as caught:
                await client.generate("Once", model="none")
            self.assertEqual(caught.exception.outcome, "unknown_model")
            with self.assertRaisesRegex(ValueError, "max_frame_bytes"):
                await client.generate("x" * client.server.limits.max_frame_bytes)
            self.assertEqual((await client.generate("Once", max_tokens=1)).usage.completion_tokens, 1)

    async def test_texts_and_tokens(self):
        async with self.client() as client:
            ids = await client.tokenize("Grüße, fox")
            self.assertEqual((await client.detokenize(ids)).decode(), "Grüße, fox")
            self.assertEqual(await client.tokenize("fox", add_special=False), (await client.tokenize("fox"))[1:])

    async def test_vectors(self):
        async with self.client() as client:
            both = await client.embed(["A fox", "Two ships"])
            alone = await client.embed(["A fox"])
            self.assertEqual(both.vectors[0], alone.vectors[0])
            self.assertAlmostEqual(sum(value * value for value in both.vectors[1]), 1, places=4)
            by_ids = await client.embed([await client.tokenize("A fox")], pooling="mean", normalise=False)
            self.assertEqual(by_ids.pooling, "mean")
            cut = await client.embed(["A fox and two ships", "A fox"], truncate_to=3)
            self.assertEqual(cut.usage.prompt_tokens, 6)
            self.assertGreater(cut.usage.truncated_tokens, 0)
            self.assertEqual((await client.embed(["A fox"], truncate=True)).vectors, alone.vectors)
            with self.assertRaises(troupe.Refused):
                await client.embed(["A fox"], truncate=False, truncate_to=3)
            with self.assertRaises(TypeError):
                await client.embed("A fox")
            with self.assertRaises(troupe.Refused):
                await client.embed([])

    async def test_messages_and_sessions(self):
        async with self.client() as client:
            messages = [{"role": "user", "content": "A fox."}]
            answer = await client.generate(messages, session="fox", temperature=0, max_tokens=8)
            more = await client.generate([{"role": "user", "content": "And?"}], session="fox", temperature=0, max_tokens=8)
            whole = [*messages, {"role": "assistant", "content": answer.text}, {"role": "user", "content": "And?"}]
            self.assertGreater(more.usage.prompt_tokens, (await client.generate(whole[2:], max_tokens=1)).usage.prompt_tokens)
            await client.save_session("fox")
            await client.fork_session("fox", "hen")
            self.assertEqual([each.name for each in await client.sessions()], ["fox", "hen"])
            self.assertEqual((await client.inspect_session("hen")).tokens, (await client.inspect_session("fox")).tokens)
            for name in ("fox", "hen"):
                await client.delete_session(name)
            self.assertEqual(await client.sessions(), [])
            with self.assertRaises(troupe.Refused) as caught:
                await client.inspect_session("fox")
            self.assertEqual(caught.exception.outcome, "invalid_argument")

    async def test_what_the_server_tells_of_itself(self):
        async with self.client() as client:
            [model] = await client.models()
            self.assertEqual(model.family, "bitnet")
            self.assertEqual((await client.health()).readiness, pb.READINESS_READY)
            self.assertEqual((await client.status()).model, model.name)
            await client.generate("Once", max_tokens=1)
            async with client.stream("Once", ignore_eos=True) as stream:
                await anext(stream)
                [live] = (await client.status(list_requests=True, this_connection=True)).live_requests
                await client.cancel_request(live.request)
                self.assertEqual((await stream.completion()).outcome, "cancelled")
            self.assertEqual((await client.usage("day")).rows[0].uid, os.geteuid())

    async def test_models_come_and_go(self):
        async with self.client() as client:
            loaded = await client.load_model(os.path.join(SOURCE, "tests/data/tiny-bert.gguf"), name="bert")
            self.assertEqual((loaded.name, loaded.readiness), ("bert", pb.READINESS_READY))
            self.assertEqual((await client.embed(["fox"], model="bert")).pooling, "cls")
            self.assertEqual((await client.unload_model("bert")).readiness, pb.READINESS_DRAINING)

    async def test_a_lost_connection_ends_what_is_under_way_and_the_next_request_makes_another(self):
        async with self.client() as client:
            stream = client.stream("Once", ignore_eos=True)
            await anext(stream)
            client._connection._writer.transport.abort()
            with self.assertRaises(troupe.ConnectionLost):
                await stream.completion()
            self.assertEqual((await client.generate("Once", max_tokens=1)).usage.completion_tokens, 1)

    async def test_a_closed_client_says_so(self):
        client = self.client()
        await client.connect()
        await client.close()
        with self.assertRaisesRegex(troupe.ConnectionLost, "closed"):
            await client.health()


class FullServerTest(WithServer):
    flags = ["-np", "1", "--max-requests-per-user", "2"]

    async def test_what_is_refused_for_room_comes_back_when_there_is_some(self):
        patient = troupe.RetryPolicy(max_retries=1000, max_delay=PATIENCE)
        async with self.client(retry=patient) as client:
            answers = await asyncio.gather(*(client.generate("Once", max_tokens=2) for _ in range(12)))
            self.assertEqual({each.usage.completion_tokens for each in answers}, {2})
            async with client.stream("Once", ignore_eos=True) as one, client.stream("Once", ignore_eos=True) as two:
                await anext(one)
                another = asyncio.create_task(anext(two))
                # Whatever they do: a fast machine has them both parked for credit before it is asked.
                while len((await client.status(list_requests=True)).live_requests) < 2:
                    await asyncio.sleep(0)
                with self.assertRaises(troupe.Refused) as caught:
                    await client.generate("Once", retry=AT_ONCE)
                self.assertEqual((caught.exception.outcome, caught.exception.field, caught.exception.limit),
                                 ("quota", "max_requests_per_user", 2))
                another.cancel()


class Script:
    """A server that answers the frames of a connection as a function says: script(frame) -> frames, or None to hang up."""

    def __init__(self, script, welcome=None):
        self.script, self.frames, self.connections = script, [], 0
        self.welcome = welcome or pb.ServerFrame(welcome=pb.Welcome(
            protocol=PROTOCOL, server="script", limits=pb.Limits(max_frame_bytes=1 << 20, max_streams=64)))

    async def __aenter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="troupe-python-")
        self.path = os.path.join(self.folder.name, "s")
        self.listening = await asyncio.start_unix_server(self.serve, self.path)
        return self

    async def __aexit__(self, *_):
        self.listening.close()
        self.folder.cleanup()

    async def serve(self, reader, writer):
        self.connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                length = int.from_bytes(await reader.readexactly(4), "little")
                frame = pb.ClientFrame.FromString(await reader.readexactly(length))
                self.frames.append(frame)
                answers = [self.welcome] if frame.HasField("hello") else self.script(frame)
                if answers is None:
                    break
                for answer in answers:
                    body = answer if isinstance(answer, bytes) else answer.SerializeToString()
                    writer.write(len(body).to_bytes(4, "little") + body)
        writer.close()

    def count(self, kind):
        return sum(frame.HasField(kind) for frame in self.frames)


def refused(stream, **fields):
    return pb.ServerFrame(refused=pb.Refused(stream=stream, code=pb.OUTCOME_QUEUE_FULL, message="full", **fields))


def tokens(stream, first, ids, **fields):
    return pb.ServerFrame(tokens=pb.Tokens(stream=stream, first_index=first, ids=ids, text="x" * len(ids), **fields))


def done(stream, **fields):
    return pb.ServerFrame(done=pb.Done(stream=stream, reason=pb.OUTCOME_EOS, **fields))


class ScriptTest(unittest.IsolatedAsyncioTestCase):
    async def run_script(self, script, call, **options):
        """What `call` returns or raises, and the server."""
        async with Script(script, options.pop("welcome", None)) as server:
            async with troupe.Client(server.path, timeout=PATIENCE, **options) as client:
                try:
                    return await asyncio.wait_for(call(client), PATIENCE), server
                except troupe.TroupeError as error:
                    return error, server

    async def test_a_refusal_is_sent_again_as_often_as_the_policy_says(self):
        attempts = []

        def script(frame):
            attempts.append(frame)
            stream = frame.generate.stream
            return [refused(stream, retry_after_ms=1)] if len(attempts) < 3 else [tokens(stream, 0, [7]), done(stream)]

        answer, _ = await self.run_script(script, lambda client: client.generate("x"), retry=troupe.RetryPolicy(2))
        self.assertEqual(answer.ids, [7])
        self.assertEqual(len({frame.generate.stream for frame in attempts}), 3)
        attempts.clear()
        error, _ = await self.run_script(script, lambda client: client.generate("x"), retry=troupe.RetryPolicy(1))
        self.assertIsInstance(error, troupe.Refused)
        self.assertEqual((error.outcome, error.retry_after, len(attempts)), ("queue_full", 0.001, 2))

    async def test_a_question_is_sent_again_too(self):
        def script(frame):
            stream = frame.health.stream
            return [refused(stream, retry_after_ms=1)] if stream == 1 else [pb.ServerFrame(health=pb.Health(stream=stream))]

        answer, server = await self.run_script(script, lambda client: client.health())
        self.assertIsInstance(answer, pb.Health)
        self.assertEqual(server.count("health"), 2)

    async def test_a_refusal_without_a_time_is_not_sent_again(self):
        error, server = await self.run_script(lambda frame: [refused(frame.generate.stream)],
                                              lambda client: client.generate("x"), retry=troupe.RetryPolicy(9))
        self.assertIsInstance(error, troupe.Refused)
        self.assertEqual(server.count("generate"), 1)

    async def test_a_failure_comes_after_the_other_choices(self):
        def script(frame):
            stream = frame.generate.stream
            lost = pb.Failed(stream=stream, choice=0, code=pb.OUTCOME_WORKER_LOST, message="gone")
            return [pb.ServerFrame(failed=lost), tokens(stream, 0, [7, 8], choice=1), done(stream, choice=1)]

        async def call(client):
            stream = client.stream("x", n=2)
            with self.assertRaises(troupe.Failed) as caught:
                await stream.completions()
            return caught.exception, stream._completions

        (error, answers), _ = await self.run_script(script, call)
        self.assertEqual((error.outcome, error.choice, str(error)), ("worker_lost", 0, "gone"))
        self.assertEqual([each.outcome for each in answers], ["worker_lost", "eos"])
        self.assertEqual(answers[1].ids, [7, 8])

    async def test_what_the_protocol_does_not_allow_is_named(self):
        scripts = {
            "a gap": lambda frame: [tokens(frame.generate.stream, 0, [7]), tokens(frame.generate.stream, 2, [8])],
            "a choice that was not asked for": lambda frame: [tokens(frame.generate.stream, 0, [7], choice=2)],
            "two ends of one choice": lambda frame: 2 * [done(frame.generate.stream, choice=0)],
            "an answer of another kind": lambda frame: [pb.ServerFrame(health=pb.Health(stream=frame.generate.stream))],
            "a damaged frame": lambda frame: [b"\x0a\xff"],
        }
        for what, script in scripts.items():
            with self.subTest(what):
                error, _ = await self.run_script(script, lambda client: client.generate_all("x", n=2))
                self.assertIsInstance(error, troupe.ProtocolError)
        error, _ = await self.run_script(lambda frame: [pb.ServerFrame(models=pb.Models(stream=frame.health.stream))],
                                         lambda client: client.health())
        self.assertIsInstance(error, troupe.ProtocolError)

    async def test_fields_and_outcomes_of_a_newer_server_are_passed_over(self):
        def script(frame):
            stream = frame.generate.stream
            unknown = b"\xfa\x3f\x00"  # field 1023
            return [tokens(stream, 0, [7]).SerializeToString() + unknown,
                    pb.ServerFrame(done=pb.Done(stream=stream, reason=99))]

        answer, _ = await self.run_script(script, lambda client: client.generate("x"))
        self.assertEqual((answer.ids, answer.outcome), ([7], "99"))

    async def test_a_server_that_hangs_up_is_told_by_its_last_words(self):
        error, _ = await self.run_script(lambda frame: [refused(0, closing=True, field="max_outbox_bytes")],
                                         lambda client: client.generate("x"))
        self.assertIsInstance(error, troupe.Refused)
        self.assertEqual(error.field, "max_outbox_bytes")
        error, _ = await self.run_script(lambda frame: None, lambda client: client.generate("x"))
        self.assertIsInstance(error, troupe.ConnectionLost)

    async def test_a_refused_connection_says_why_and_is_tried_again(self):
        async with Script(None, refused(0, closing=True, retry_after_ms=1)) as server:
            with self.assertRaises(troupe.Refused):
                async with troupe.Client(server.path, retry=troupe.RetryPolicy(2)):
                    pass
            self.assertEqual(server.connections, 3)

    async def test_a_server_of_another_version_is_not_used(self):
        async with Script(None, pb.ServerFrame(welcome=pb.Welcome(protocol=2))) as server:
            with self.assertRaises(troupe.ProtocolError):
                await troupe.Client(server.path).connect()

    async def test_questions_have_a_timeout_and_answers_have_none(self):
        async with Script(lambda frame: []) as server, troupe.Client(server.path, timeout=PATIENCE) as client:
            client._timeout = 0.01  # not of the greeting
            with self.assertRaises(TimeoutError):
                await client.health()
            with self.assertRaises(TimeoutError):
                await client.tokenize("x")
            with self.assertRaises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await client.generate("x")
            while server.count("cancel") < 2:
                await asyncio.sleep(0)

    async def test_draining_is_seen(self):
        async def call(client):
            await client.health()
            return client.draining

        seen, _ = await self.run_script(
            lambda frame: [pb.ServerFrame(draining=pb.Draining()), pb.ServerFrame(health=pb.Health(stream=1))], call)
        self.assertTrue(seen)

    async def test_without_a_server_all_paths_are_named(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, {"XDG_RUNTIME_DIR": folder}):
            os.environ.pop("TROUPE_HOST", None)
            with mock.patch.object(sockets, "_SYSTEM", folder + "/system"):
                with self.assertRaisesRegex(troupe.ConnectionLost, f"{folder}/troupe/troupe.sock.*{folder}/system.*troupe serve"):
                    await troupe.Client().connect()


class PlainTest(unittest.TestCase):
    def test_waits_double_within_their_bounds(self):
        backoff = Backoff(troupe.RetryPolicy(max_retries=4, max_delay=5, seed=1))
        refusal = troupe.Refused(pb.Refused(code=pb.OUTCOME_QUOTA, retry_after_ms=1000))
        for least in (1, 2, 4, 5):
            delay = backoff.next(refusal)
            self.assertGreaterEqual(delay, least)
            self.assertLessEqual(delay, 1.5 * least)
        self.assertIsNone(backoff.next(refusal))
        policy = troupe.RetryPolicy(max_retries=4, max_delay=5)
        for fields in ({"code": pb.OUTCOME_QUOTA}, {"code": pb.OUTCOME_QUOTA, "retry_after_ms": 5001},
                       {"code": pb.OUTCOME_DRAINING, "retry_after_ms": 1}):
            self.assertIsNone(Backoff(policy).next(troupe.Refused(pb.Refused(**fields))))

    def test_messages_keep_what_only_the_template_knows(self):
        frame = generate_frame([{"role": "tool", "content": "4", "plan": "a", "refusal": None}], {"variables": {"x": 1}})
        self.assertEqual(frame.messages.messages[0].members, '{"plan": "a"}')
        self.assertEqual(frame.messages.variables, '{"x": 1}')

    def test_calls_and_results_are_fields_of_messages_in_either_form(self):
        call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
        for each in (call, troupe.ToolCall("a", "f", '{"x": 1}'), {**call, "function": {"name": "f", "arguments": {"x": 1}}}):
            frame = generate_frame([{"role": "assistant", "content": None, "tool_calls": [each]},
                                    {"role": "tool", "tool_call_id": "a", "content": "4", "is_error": True}], {})
            answer, result = frame.messages.messages
            self.assertEqual([(one.id, one.name, one.arguments) for one in answer.tool_calls], [("a", "f", '{"x": 1}')])
            self.assertEqual((result.tool_call_id, result.is_error, answer.members, result.members), ("a", True, "", ""))
        frame = generate_frame([{"role": "user", "content": "4"}], {
            "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}, {"name": "g"}],
            "tool_choice": {"type": "function", "function": {"name": "g"}}})
        self.assertEqual([(one.name, one.parameters) for one in frame.tools], [("f", '{"type": "object"}'), ("g", "")])
        self.assertEqual((frame.tool_choice, frame.called_tool), (pb.TOOL_CHOICE_REQUIRED, "g"))

    def test_every_option_is_a_field_that_is_served(self):
        values = {"stop": ["a"], "speculation": {"type": "off"}, "logit_bias": {1: 1.0}, "stop_ids": [1], "variables": {},
                  "tools": [{"name": "f"}], "tool_choice": "required", "shown_ids": [1], "choices": ["a"]}
        fields = {field.name: field for message in (pb.Generate, pb.Sampling) for field in message.DESCRIPTOR.fields}
        for name in troupe.Options.__annotations__:
            prompt = [{"role": "user"}] if name in ("variables", "add_generation_prompt", "continue_final_message") else "x"
            is_text = name in fields and fields[name].type == fields[name].TYPE_STRING
            frame = generate_frame(prompt, {name: values.get(name, "1" if is_text else 1)})
            self.assertGreater(frame.ByteSize(), generate_frame(prompt, {}).ByteSize() - 3, name)
            if name in fields:
                self.assertFalse(fields[name].GetOptions().Extensions[pb.not_served], name)

    def test_both_spellings_are_one_module(self):
        import troupe_pb2
        self.assertIs(troupe_pb2, pb)
        script = "import troupe_pb2 as a\nfrom troupe import troupe_pb2 as b\nassert a is b and a.Hello(protocol=1).protocol"
        subprocess.run([sys.executable, "-B", "-c", script], check=True)

    def test_without_protobuf_its_package_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            os.makedirs(os.path.join(folder, "google"))
            open(os.path.join(folder, "google/__init__.py"), "w").close()
            path = folder + ":" + os.environ["PYTHONPATH"]
            failed = subprocess.run([sys.executable, "-B", "-c", "import troupe"], capture_output=True, text=True,
                                    env={**os.environ, "PYTHONPATH": path})
        self.assertIn("apt-get install python3-protobuf", failed.stderr)

    def test_the_source_tree_says_how_the_classes_are_made(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(os.path.join(SOURCE, "clients/python/troupe"), os.path.join(folder, "troupe"),
                            ignore=shutil.ignore_patterns("troupe_pb2*", "__pycache__"))
            failed = subprocess.run([sys.executable, "-B", "-c", "import troupe"], capture_output=True, text=True,
                                    env={**os.environ, "PYTHONPATH": folder})
        self.assertIn("PYTHONPATH=build/release/clients/python", failed.stderr)


class SocketsTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="troupe-python-")
        self.addCleanup(self.folder.cleanup)

    def test_troupe_host_is_the_only_path(self):
        for host in ("unix:///a/b", "/a/b"):
            with mock.patch.dict(os.environ, {"TROUPE_HOST": host}):
                self.assertEqual(sockets.candidates(), ["/a/b"])
        for host in ("tcp://a:1", "unix://a", "a"):
            with mock.patch.dict(os.environ, {"TROUPE_HOST": host}), self.assertRaises(ValueError):
                sockets.candidates()

    def test_the_runtime_directory_is_before_the_systems(self):
        with mock.patch.dict(os.environ, {"XDG_RUNTIME_DIR": self.folder.name}):
            os.environ.pop("TROUPE_HOST", None)
            found = sockets.candidates()
        self.assertEqual((found[0], found[-1]), (self.folder.name + "/troupe/troupe.sock", "/run/troupe/troupe.sock"))

    def test_paths_that_cannot_be(self):
        for path in ("", "a\0b", "/" + "x" * 107):
            with self.assertRaises(ValueError):
                sockets.check_path(path)
        sockets.check_path("/" + "x" * 106)

    def test_a_directory_that_others_can_write_to_is_not_trusted(self):
        inner = os.path.join(self.folder.name, "inner")
        os.mkdir(inner, 0o700)
        trusted = {0, os.geteuid()}
        for path in (inner, inner + "/../inner/.", inner + "//"):
            self.assertEqual(sockets._walk(path, trusted, True)[0], os.path.realpath(inner))
        link = os.path.join(self.folder.name, "link")
        os.symlink("inner", link)
        self.assertEqual(sockets._walk(link, trusted, True)[0], os.path.realpath(inner))
        os.chmod(inner, 0o777)
        with self.assertRaises(PermissionError):
            sockets._walk(link, trusted, True)
        os.chmod(inner, 0o777 | stat.S_ISVTX)
        sockets._walk(inner, trusted, True)
        with self.assertRaises(PermissionError):
            sockets._walk(inner, trusted, False)
        os.chmod(inner, 0o700)
        with self.assertRaises(PermissionError):
            sockets._walk(inner, {os.geteuid() + 1}, True)
        os.symlink("loop", os.path.join(self.folder.name, "loop"))
        with self.assertRaises(OSError):
            sockets._walk(os.path.join(self.folder.name, "loop"), trusted, True)

    def test_another_users_server_is_used_where_only_that_user_can_put_one(self):
        # As the server of uid 1 would look: the kernel's answer is what is played.
        own = os.path.join(self.folder.name, "own")
        os.mkdir(own, 0o755)
        connected = mock.Mock()
        connected.getsockopt.return_value = b"\1\0\0\0" + (os.geteuid() + 1).to_bytes(4, "little") + b"\0\0\0\0"
        path = os.path.join(own, "s")
        open(path, "w").close()
        sockets.check_server(connected, path)
        os.chmod(own, 0o777)
        with self.assertRaises(troupe.UntrustedServer):
            sockets.check_server(connected, path)
        os.chmod(own, 0o1777)
        with self.assertRaisesRegex(troupe.UntrustedServer, "may not be the server that you mean"):
            sockets.check_server(connected, path)
        connected.getsockopt.return_value = b"\1\0\0\0" + os.geteuid().to_bytes(4, "little") + b"\0\0\0\0"
        sockets.check_server(connected, path)


if __name__ == "__main__":
    unittest.main()
