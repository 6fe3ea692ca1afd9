"""Tool loops of Python's libraries: each asks, runs the call of the answer, sends what it gave, and has the answer to that.

    tool_loops_test.py TROUPE
"""
import json
import unittest

from support import run_in

TROUPE = run_in("clients")
import anthropic  # noqa: E402
import instructor  # noqa: E402
import openai  # noqa: E402
import pydantic  # noqa: E402
from langchain_core.messages import HumanMessage, ToolMessage  # noqa: E402
from langchain_openai import ChatOpenAI  # noqa: E402
from loops import FOUND, NOTE, PLACE, SEEN, ScriptedTest  # noqa: E402
from pydantic_ai import Agent, ToolOutput  # noqa: E402
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel  # noqa: E402
from pydantic_ai.providers.openai import OpenAIProvider  # noqa: E402

TASK = "Which animal is at the lake?"
LOOK = {"name": "look", "description": "Looks at a place.",
        "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}}
NOTE_TOOL = {"name": "note", "description": "Runs a program."}


class Fox(pydantic.BaseModel):
    name: str
    age: int


class Loop(ScriptedTest):
    troupe = TROUPE

    def url(self):
        return self.server.url() + "/v1"

    def seen(self, name, arguments):
        """What the tool of a call gives; the call must be the scripted one."""
        self.assertEqual((name, arguments), ("look", {"place": PLACE}))
        return SEEN


class OpenAiTest(Loop, unittest.TestCase):
    def setUp(self):
        self.client = openai.OpenAI(base_url=self.url(), api_key="none", max_retries=0)
        self.addCleanup(self.client.close)

    def test_chat(self):
        tools = [{"type": "function", "function": LOOK}]
        messages = [{"role": "user", "content": TASK}]
        answer = self.client.chat.completions.create(model="toy", messages=messages, tools=tools)
        self.assertEqual(answer.choices[0].finish_reason, "tool_calls")
        message = answer.choices[0].message
        self.assertEqual(message.content, "Let me look.")
        [call] = message.tool_calls
        given = self.seen(call.function.name, json.loads(call.function.arguments))
        messages += [message, {"role": "tool", "tool_call_id": call.id, "content": given}]
        last = self.client.chat.completions.create(model="toy", messages=messages, tools=tools)
        self.assertEqual(last.choices[0].message.content, FOUND)
        self.assertGreater(last.usage.prompt_tokens_details.cached_tokens, 0)

    def test_chat_that_streams(self):
        with self.client.chat.completions.stream(model="toy", messages=[{"role": "user", "content": TASK}],
                                                 tools=[{"type": "function", "function": LOOK}]) as stream:
            kinds = {event.type for event in stream}
            [call] = stream.get_final_completion().choices[0].message.tool_calls
        self.assertIn("tool_calls.function.arguments.delta", kinds)
        self.seen(call.function.name, json.loads(call.function.arguments))

    def test_custom_tool_of_a_chat(self):
        tools = [{"type": "custom", "custom": NOTE_TOOL}]
        messages = [{"role": "user", "content": TASK}]
        message = self.client.chat.completions.create(model="toy", messages=messages, tools=tools).choices[0].message
        [call] = message.tool_calls
        self.assertEqual((call.type, call.custom.name, call.custom.input), ("custom", "note", NOTE))
        messages += [message, {"role": "tool", "tool_call_id": call.id, "content": SEEN}]
        last = self.client.chat.completions.create(model="toy", messages=messages, tools=tools)
        self.assertEqual(last.choices[0].message.content, FOUND)

    def respond(self, kind, tool):
        """The call of the first answer, whole and as it streams, and the text of the second."""
        items = [{"role": "user", "content": TASK}]
        fields = {"model": "toy", "tools": [tool], "store": False, "seed": 1}
        seed = {"extra_body": {"seed": fields.pop("seed")}}
        whole = self.client.responses.create(**fields, **seed, input=items)
        with self.client.responses.stream(**{**fields, "input": items}, **seed) as stream:
            names = [event.type for event in stream]
            streamed = stream.get_final_response()
        [call] = [item for item in whole.output if item.type == kind]
        self.assertEqual([item.type for item in streamed.output], [item.type for item in whole.output])
        self.assertEqual({**streamed.output[-1].to_dict(), **call.to_dict()}, streamed.output[-1].to_dict())
        items += [*(item.to_dict() for item in streamed.output),  # with what the library adds
                  {"type": kind + "_output", "call_id": call.call_id, "output": SEEN}]
        return call, names, self.client.responses.create(**fields, input=items).output_text

    def test_responses(self):
        call, names, last = self.respond("function_call", {"type": "function", "strict": False, **LOOK})
        self.seen(call.name, json.loads(call.arguments))
        self.assertIn("response.function_call_arguments.done", names)
        self.assertEqual(last, FOUND)

    def test_custom_tool_of_responses(self):
        call, names, last = self.respond("custom_tool_call", {"type": "custom", **NOTE_TOOL})
        self.assertEqual((call.name, call.input), ("note", NOTE))
        self.assertIn("response.custom_tool_call_input.delta", names)
        self.assertIn("response.custom_tool_call_input.done", names)
        self.assertEqual(last, FOUND)


class AnthropicTest(Loop, unittest.TestCase):
    TOOL = {"name": "look", "description": "Looks at a place.", "input_schema": LOOK["parameters"]}

    def setUp(self):
        self.client = anthropic.Anthropic(base_url=self.server.url(), api_key="none", max_retries=0)
        self.addCleanup(self.client.close)

    def test_messages(self):
        messages = [{"role": "user", "content": TASK}]
        fields = {"model": "toy", "max_tokens": 200, "tools": [self.TOOL]}
        first = self.client.messages.create(**fields, messages=messages)
        self.assertEqual(first.stop_reason, "tool_use")
        text, call = first.content
        self.assertEqual(text.text, "Let me look.")
        given = self.seen(call.name, call.input)
        messages += [{"role": "assistant", "content": first.content},
                     {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": given}]}]
        last = self.client.messages.create(**fields, messages=messages)
        self.assertEqual((last.stop_reason, last.content[0].text), ("end_turn", FOUND))

    def test_messages_that_stream(self):
        with self.client.messages.stream(model="toy", max_tokens=200, tools=[self.TOOL],
                                         messages=[{"role": "user", "content": TASK}]) as stream:
            last = stream.get_final_message()
        self.seen(last.content[1].name, last.content[1].input)


class LangchainTest(Loop, unittest.TestCase):
    def chat(self, **fields):
        return ChatOpenAI(model="toy", base_url=self.url(), api_key="none", max_retries=0, temperature=0, **fields)

    def loop(self, model):
        messages = [HumanMessage(TASK)]
        for stream in (False, True):
            with self.subTest(stream=stream):
                if stream:
                    chunks = list(model.stream(messages))
                    message = sum(chunks[1:], chunks[0])
                else:
                    message = model.invoke(messages)
                [call] = message.tool_calls
                given = self.seen(call["name"], call["args"])
                last = model.invoke([*messages, message, ToolMessage(given, tool_call_id=call["id"])])
                self.assertEqual(last.text, FOUND)

    def test_chat(self):
        self.loop(self.chat().bind_tools([{"type": "function", "function": LOOK}]))

    def test_responses(self):
        self.loop(self.chat(use_responses_api=True, store=False).bind_tools([{"type": "function", "function": LOOK}]))

    def test_an_object_by_a_call(self):
        found = self.chat(max_tokens=80).with_structured_output(Fox, method="function_calling").invoke("A fox named Bob is 5.")
        self.assertIsInstance(found, Fox)


class InstructorTest(Loop, unittest.TestCase):
    def test_an_object_by_a_call(self):
        with openai.OpenAI(base_url=self.url(), api_key="none", max_retries=0) as client:
            found = instructor.from_openai(client, mode=instructor.Mode.TOOLS).chat.completions.create(
                model="toy", response_model=Fox, max_retries=1, max_tokens=80, messages=[{"role": "user", "content": "Bob is 5."}])
        self.assertIsInstance(found, Fox)


class PydanticTest(Loop, unittest.TestCase):
    def model(self, kind):
        return kind("toy", provider=OpenAIProvider(base_url=self.url(), api_key="none"))

    def test_an_agent_looks_and_answers(self):
        for kind in (OpenAIChatModel, OpenAIResponsesModel):
            with self.subTest(kind.__name__):
                agent, places = Agent(self.model(kind), retries=0), []

                @agent.tool_plain
                def look(place: str) -> str:
                    places.append(place)
                    return SEEN

                self.assertEqual(agent.run_sync(TASK).output, FOUND)
                self.assertEqual(places, [PLACE])

    def test_an_object_by_a_call(self):
        agent = Agent(self.model(OpenAIChatModel), output_type=ToolOutput(Fox, strict=False), retries=0,
                      model_settings={"max_tokens": 80})
        self.assertIsInstance(agent.run_sync("Bob is 5.").output, Fox)


if __name__ == "__main__":
    unittest.main(verbosity=1)
