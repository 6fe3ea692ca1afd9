"""Coding agents on a task that takes one call: they read a file and say its first word.

    agents_test.py TROUPE

The model is scripted (scripted_model.py, agent.jinja): it answers a conversation with tools by a call of the agent's own
tool, and a result that has the file's word by the sentence that the agent shall end with.
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

from scripted_model import write_scripted_model
from support import HERE, bare_environment, environment_folder, run, serve

TROUPE = run()
PROGRAMS = os.path.join(environment_folder("agents"), "node_modules/.bin")
TASK = "read the file notes.txt and say its first word"
NOTES, FOUND = "pelican swims in the lake\n", "The first word is pelican."
CODEX_SETTINGS = """
model = "toy"
model_provider = "local"
[model_providers.local]
name = "local"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "LOCAL_KEY"
"""


class AgentsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="troupe-programs-", ignore_cleanup_errors=True)
        self.addCleanup(folder.cleanup)
        self.home = folder.name
        self.work = os.path.join(self.home, "work")
        self.notes = self.write("work/notes.txt", NOTES)

    def write(self, name, text):
        path = os.path.join(self.home, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)
        return path

    def start(self, tool, **arguments):
        """Serves a model that calls this tool; its URL."""
        call = json.dumps({"name": tool, "arguments": arguments})
        model, self.access_log = os.path.join(self.home, "model.gguf"), os.path.join(self.home, "access.log")
        with open(os.path.join(HERE, "agent.jinja")) as template:
            write_scripted_model(model, [f"<tool_call>\n{call}\n</tool_call>", FOUND, "The file was not read.", "A title"],
                                 template.read())
        server = serve(TROUPE, "-a", "toy,small", "-m", model, "-c", "131072", "--log-format", "json",
                       "--access-log", self.access_log)
        self.addCleanup(server.end)
        return server.url()

    def end_of_task(self, program, *arguments, **variables):
        """Runs an agent in its folder, with a home of its own, and checks how it ends."""
        done = subprocess.run([os.path.join(PROGRAMS, program), *arguments, TASK], cwd=self.work, stdin=subprocess.DEVNULL,
                              env={**bare_environment(), "HOME": self.home, "TERM": "dumb", **variables},
                              capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn(FOUND, done.stdout, done.stderr)
        with open(self.access_log) as log:
            requests = [json.loads(line) for line in log]
        self.assertEqual({request["outcome"] for request in requests}, {"done"}, requests)
        call, answer = sorted(requests, key=lambda request: request["prompt_tokens"])[-2:]
        # What went before the call is not computed again.
        self.assertGreaterEqual(answer["cached_tokens"], call["prompt_tokens"] // 32 * 32 - 32, requests)

    def test_claude_code(self):
        url = self.start("Read", file_path=self.notes)
        self.end_of_task("claude", "--model", "toy", "-p", ANTHROPIC_BASE_URL=url, ANTHROPIC_API_KEY="none",
                         ANTHROPIC_MODEL="toy", ANTHROPIC_SMALL_FAST_MODEL="small", DISABLE_AUTOUPDATER="1",
                         CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1")

    def test_codex(self):
        url = self.start("exec_command", cmd="cat " + self.notes)
        self.write("codex/config.toml", CODEX_SETTINGS.format(url=url))
        # Its sandbox is not what is tested, and not every machine lets it make one.
        self.end_of_task("codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox",
                         CODEX_HOME=os.path.join(self.home, "codex"), LOCAL_KEY="none")

    def test_codex_reads_by_a_tool_of_an_mcp_server(self):
        """Which it sends within a namespace, and finds by the namespace of the call."""
        url = self.start("mcp__notes__read", how="whole")
        self.write("codex/config.toml", CODEX_SETTINGS.format(url=url) + f"""
[mcp_servers.notes]
command = {json.dumps(sys.executable)}
args = {json.dumps(["-B", os.path.join(HERE, "mcp_server.py"), self.notes])}
""")
        self.end_of_task("codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox",
                         CODEX_HOME=os.path.join(self.home, "codex"), LOCAL_KEY="none")

    def test_opencode(self):
        url = self.start("read", filePath=self.notes)
        provider = {"npm": "@ai-sdk/openai-compatible", "name": "local", "models": {"toy": {"name": "toy"}, "small": {"name": "small"}},
                    "options": {"baseURL": url + "/v1", "apiKey": "none"}}
        self.write(".config/opencode/opencode.json", json.dumps(
            {"provider": {"local": provider}, "model": "local/toy", "small_model": "local/small", "autoupdate": False,
             "share": "disabled"}))
        self.end_of_task("opencode", "run", "-m", "local/toy", OPENCODE_DISABLE_AUTOUPDATE="1",
                         OPENCODE_DISABLE_MODELS_FETCH="1", OPENCODE_DISABLE_LSP_DOWNLOAD="1")

    def test_qwen_code(self):
        url = self.start("read_file", file_path=self.notes)
        self.end_of_task("qwen", "--auth-type", "openai", "-p", OPENAI_BASE_URL=url + "/v1", OPENAI_API_KEY="none",
                         OPENAI_MODEL="toy")


if __name__ == "__main__":
    unittest.main(verbosity=1)
