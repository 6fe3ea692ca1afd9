"""instructor and pydantic-ai against the server: what they do without tools (tool_loops_test.py) and schemas, and what is refused.

    instructor_test.py TROUPE
"""
import unittest

from support import ROLES, real_weights, run_in, serve

TROUPE = run_in("clients")
GEMMA = real_weights("gemma-3-270m-q4_k_m.gguf")
import instructor  # noqa: E402
import openai  # noqa: E402
import pydantic  # noqa: E402
from pydantic_ai import Agent, NativeOutput, ToolOutput  # noqa: E402
from pydantic_ai.models.openai import OpenAIChatModel  # noqa: E402
from pydantic_ai.providers.openai import OpenAIProvider  # noqa: E402


class Fox(pydantic.BaseModel):
    name: str
    age: int


def shown(name, age):
    """An example for a base model: a sentence, and the object that it is wanted as."""
    return [{"role": "user", "content": f"A fox named {name} is {age} years old.\nReturn it as a ```json codeblock."},
            {"role": "assistant", "content": f'```json\n{{"name": "{name}", "age": {age}}}\n```'}]


class InstructorTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = serve(TROUPE, "-a", "gemma", "-c", "1024", "-m", GEMMA, "--chat-template", ROLES)
        cls.addClassCleanup(cls.server.end)
        cls.client = openai.OpenAI(base_url=cls.server.url() + "/v1", api_key="none", max_retries=0)
        cls.addClassCleanup(cls.client.close)

    def ask(self, mode, **fields):
        return instructor.from_openai(self.client, mode=mode).chat.completions.create(
            model="gemma", response_model=Fox, max_retries=1, max_tokens=40, temperature=0, **fields,
            messages=[*shown("Rusty", 3), *shown("Anna", 7), {"role": "user", "content": "A fox named Bob is 5 years old."}])

    def test_an_object_that_the_prompt_alone_asks_for(self):
        found = self.ask(instructor.Mode.MD_JSON, stop=["```\n", "</assistant>"])
        self.assertEqual(found.model_dump(), {"name": "Bob", "age": 5})

    def test_objects_that_a_schema_holds(self):
        for mode in (instructor.Mode.JSON, instructor.Mode.JSON_SCHEMA, instructor.Mode.TOOLS, instructor.Mode.TOOLS_STRICT):
            with self.subTest(mode):
                found = self.ask(mode)
                self.assertIsInstance(found.name, str)
                self.assertIsInstance(found.age, int)


class PydanticTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = serve(TROUPE, "-a", "toy", "--chat-template", "chatml")
        cls.addClassCleanup(cls.server.end)
        provider = OpenAIProvider(base_url=cls.server.url() + "/v1", api_key="none")
        cls.model = OpenAIChatModel("toy", provider=provider)

    def agent(self, output):
        return Agent(self.model, output_type=output, retries=0, model_settings={"max_tokens": 8, "temperature": 0})

    def test_text(self):
        answer = self.agent(str).run_sync("Once upon a time")
        self.assertTrue(answer.output)

    def test_outputs_that_a_schema_holds(self):
        for output in (NativeOutput(Fox), ToolOutput(Fox), ToolOutput(Fox, strict=True)):
            with self.subTest(output):
                agent = Agent(self.model, output_type=output, retries=0, model_settings={"max_tokens": 60, "temperature": 0})
                found = agent.run_sync("A fox named Bob is 5 years old.").output
                self.assertIsInstance(found.name, str)
                self.assertIsInstance(found.age, int)


if __name__ == "__main__":
    unittest.main(verbosity=1)
