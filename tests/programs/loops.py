"""The scripted model of the tests of tool loops: what it answers, and a server of it.

A conversation with the tool `look`, or `note`, is answered by a call of it; a result that has the word by FOUND. What is written where a
call of another tool is demanded meets its schema, and means nothing.
"""
import os
import tempfile

from scripted_model import write_scripted_model
from support import HERE, serve

PLACE, SEEN = "lake", "a pelican, swimming"         # the argument of `look`, and what it gives
NOTE = 'print("first")\nprint("second")'            # the input of `note`
FOUND, LOST, NO_TOOLS = "The animal is a pelican.", "Nobody was there!", "No tools here?"
ANSWERS = [
    FOUND, LOST, NO_TOOLS,
    'Let me look.\n<tool_call>\n{"name": "look", "arguments": {"place": "lake"}}\n</tool_call>',
    '<tool_call>{"name":"note","arguments":{"input":"print(\\"first\\")\\nprint(\\"second\\")"}}</tool_call>\n\n\n',
]


def serve_scripted(troupe, folder):
    model = os.path.join(folder, "model.gguf")
    with open(os.path.join(HERE, "loop.jinja")) as template:
        write_scripted_model(model, ANSWERS, template.read())
    return serve(troupe, "-a", "toy", "-m", model, "-c", "8192")


class ScriptedTest:
    """A test case whose class has one server."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="troupe-programs-")
        cls.addClassCleanup(folder.cleanup)
        cls.server = serve_scripted(cls.troupe, folder.name)
        cls.addClassCleanup(cls.server.end)
