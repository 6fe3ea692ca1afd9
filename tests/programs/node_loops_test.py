"""Tool loops of libraries for node (node_loops.mjs) against the server.

    node_loops_test.py TROUPE
"""
import json
import os
import shutil
import subprocess
import tempfile
import unittest

from loops import FOUND, FOX, NOTE, PLACE, SEEN, ScriptedTest
from support import HERE, bare_environment, environment_folder, run

TROUPE = run()
FOLDER = environment_folder("node", "node/package-lock.json")


class NodeLoopsTest(ScriptedTest, unittest.TestCase):
    troupe = TROUPE

    def test_all(self):
        with tempfile.TemporaryDirectory(prefix="troupe-programs-") as folder:
            # node looks for packages beside the file that imports them.
            shutil.copy(os.path.join(HERE, "node_loops.mjs"), folder)
            os.symlink(os.path.join(FOLDER, "node_modules"), os.path.join(folder, "node_modules"))
            loops = {"url": self.server.url(), "found": FOUND, "fox": FOX, "note": NOTE, "place": PLACE, "seen": SEEN}
            done = subprocess.run(["node", "--test", "--test-timeout=120000", "node_loops.mjs"], cwd=folder,
                                  env={**bare_environment(), "LOOPS": json.dumps(loops)}, stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 0)


if __name__ == "__main__":
    unittest.main(verbosity=1)
