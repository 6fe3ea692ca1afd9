"""Scripts say in a sentence which Debian package they need, instead of ending in a traceback.

usage: missing_modules_test.py TOP_FOLDER
"""
import os
import subprocess
import sys
import tempfile
import unittest

TOP = sys.argv.pop(1)
NUMPY_SCRIPTS = ["bench/random_model.py", "tools/golden/make.py", "tools/random_gguf.py",
                 "tools/make_encoder_fixture.py", "tools/training/export_gguf.py", "tools/training/train_tales.py"]


def call(script, modules, *arguments):
    """Runs a script with these modules before all others: {"numpy.py": its text}."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in modules.items():
            path = os.path.join(folder, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w") as file:
                file.write(text)
        return subprocess.run([sys.executable, "-B", os.path.join(TOP, script), *arguments], capture_output=True,
                              text=True, env={**os.environ, "PYTHONPATH": folder})


class MissingModulesTest(unittest.TestCase):
    def require_sentence(self, done, *parts):
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        for part in parts:
            self.assertIn(part, done.stderr)

    def test_without_numpy_scripts_name_its_package(self):
        missing = {"numpy.py": "raise ImportError('none here', name='numpy')"}
        for script in NUMPY_SCRIPTS:
            with self.subTest(script):
                self.require_sentence(call(script, missing), "needs numpy", "python3-numpy")


if __name__ == "__main__":
    unittest.main()
