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

    def test_without_protobuf_the_client_names_its_package(self):
        done = call("docs/examples/client.py", {"google/__init__.py": ""}, "/none.sock")
        self.require_sentence(done, "apt-get install python3-protobuf")

    def test_without_the_classes_of_the_schema_the_client_says_how_to_make_them(self):
        done = call("docs/examples/client.py", {"google/__init__.py": "", "google/protobuf/__init__.py": ""}, "/none.sock")
        self.require_sentence(done, "protobuf-compiler", "protoc -I . --python_out=")

    def test_the_client_says_what_it_lacks_of_its_arguments_and_of_a_server(self):
        modules = {"google/__init__.py": "", "google/protobuf/__init__.py": "", "ipc/__init__.py": "",
                   "ipc/troupe_pb2.py": ""}
        self.require_sentence(call("docs/examples/client.py", modules), "usage: client.py SOCKET")
        self.require_sentence(call("docs/examples/client.py", modules, "/none.sock"), "no server at /none.sock")


if __name__ == "__main__":
    unittest.main()
