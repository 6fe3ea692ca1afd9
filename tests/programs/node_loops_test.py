"""Tool loops of libraries for node (node_loops.mjs), and answers of a form (node_forms.mjs), against the server.

    node_loops_test.py TROUPE
"""
import json
import os
import shutil
import subprocess
import tempfile
import unittest

from loops import FOUND, NOTE, PLACE, SEEN, ScriptedTest
from support import HERE, bare_environment, environment_folder, run, serve

TROUPE = run()
FOLDER = environment_folder("node", "node/package-lock.json")


def run_node(script, variables):
    """The exit code of a script of this folder."""
    with tempfile.TemporaryDirectory(prefix="troupe-programs-") as folder:
        # node looks for packages beside the file that imports them.
        shutil.copy(os.path.join(HERE, script), folder)
        os.symlink(os.path.join(FOLDER, "node_modules"), os.path.join(folder, "node_modules"))
        return subprocess.run(["node", "--test", "--test-timeout=120000", script], cwd=folder,
                              env={**bare_environment(), **variables}, stdin=subprocess.DEVNULL).returncode


class NodeLoopsTest(ScriptedTest, unittest.TestCase):
    troupe = TROUPE

    def test_all(self):
        loops = {"url": self.server.url(), "found": FOUND, "note": NOTE, "place": PLACE, "seen": SEEN}
        self.assertEqual(run_node("node_loops.mjs", {"LOOPS": json.dumps(loops)}), 0)


class NodeFormsTest(unittest.TestCase):
    def test_all(self):
        server = serve(TROUPE, "-a", "toy", "--chat-template", "chatml")
        self.addCleanup(server.end)
        self.assertEqual(run_node("node_forms.mjs", {"PLAIN": server.url()}), 0)


if __name__ == "__main__":
    unittest.main(verbosity=1)
