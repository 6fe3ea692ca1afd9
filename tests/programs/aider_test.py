"""The program `aider` on a repository of one file: an edit from the model's answer to the commit, and too long a prompt.

    aider_test.py TROUPE

Gemma's base follows no instruction: it repeats the edit of the example in aider's own prompt, which is one to apply.
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

from support import ROLES, real_weights, run_in, serve

TROUPE = run_in("aider")
GEMMA = real_weights("gemma-3-270m-q4_k_m.gguf")
# The answer ends where the template's next element would begin.
SETTINGS = [{"name": "openai/gemma", "edit_format": "whole", "extra_params": {"max_tokens": 150, "stop": ["</assistant>"]}}]


class AiderTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="troupe-programs-")
        self.addCleanup(self.folder.cleanup)
        self.repository = os.path.join(self.folder.name, "repository")
        self.environment = {**os.environ, "HOME": self.folder.name, "OPENAI_API_KEY": "none", "GIT_CONFIG_NOSYSTEM": "1",
                            "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@localhost", "GIT_COMMITTER_NAME": "a",
                            "GIT_COMMITTER_EMAIL": "a@localhost"}
        # A list of prices that it would fetch, and that is as if it had.
        os.makedirs(os.path.join(self.folder.name, ".aider/caches"))
        self.write("../.aider/caches/model_prices_and_context_window.json", "{}")
        self.write("../settings.yml", json.dumps(SETTINGS))  # JSON is YAML
        self.git("init", "-q")
        self.write("sum.py", "def add(a, b):\n    return a - b\n")
        self.git("add", ".")
        self.git("commit", "-qm", "one")

    def write(self, name, text):
        os.makedirs(self.repository, exist_ok=True)
        with open(os.path.join(self.repository, name), "w") as file:
            file.write(text)

    def git(self, *arguments):
        return subprocess.run(["git", *arguments], cwd=self.repository, env=self.environment, check=True, capture_output=True,
                              text=True).stdout

    def aider(self, server, model):
        done = subprocess.run(
            [sys.executable, "-m", "aider", "--model", "openai/" + model, "--edit-format", "whole", "--map-tokens", "0",
             "--model-settings-file", os.path.join(self.folder.name, "settings.yml"), "--openai-api-base", server.url() + "/v1",
             "--no-check-update", "--no-show-release-notes", "--analytics-disable", "--no-show-model-warnings", "--no-pretty",
             "--no-gitignore", "--no-suggest-shell-commands", "--yes-always", "--message", "Let add return the sum.", "sum.py"],
            cwd=self.repository, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertNotIn("Traceback", done.stdout + done.stderr)
        return done.stdout

    def test_an_edit_is_applied_and_committed(self):
        server = serve(TROUPE, "-a", "gemma", "-c", "4096", "-m", GEMMA, "--chat-template", ROLES)
        self.addCleanup(server.end)
        said = self.aider(server, "gemma")
        self.assertRegex(said, r"Tokens: .* sent, \d+ received")
        self.assertIn("Applied edit to", said)
        self.assertEqual(len(self.git("log", "--format=%H").split()), 2, said)

    def test_too_long_a_prompt_is_answered_with_its_own_advice(self):
        server = serve(TROUPE, "-a", "toy", "--chat-template", "chatml")
        self.addCleanup(server.end)
        said = self.aider(server, "toy")
        self.assertIn("has hit a token limit", said)
        self.assertIn("To reduce input tokens", said)


if __name__ == "__main__":
    unittest.main(verbosity=1)
