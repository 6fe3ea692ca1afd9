"""Makes the classes of the schema with protoc (Debian: protobuf-compiler), where they do not lie beside this file already."""
import atexit
import os
import pathlib
import shutil
import subprocess
import tempfile

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = pathlib.Path(__file__).resolve().parent
SCHEMA = HERE.parent.parent / "ipc" / "troupe.proto"


class BuildWithSchema(build_py):
    def run(self):
        super().run()
        if (HERE / "troupe" / "troupe_pb2.py").exists():
            return
        if not SCHEMA.exists() or not shutil.which("protoc"):
            raise SystemExit(f"The classes of the schema are made by protoc (Debian: apt-get install protobuf-compiler) "
                             f"from {SCHEMA}. One of the two is missing; an installed troupe has the package with them "
                             "in PREFIX/share/troupe/python.")
        target = HERE if self.editable_mode else pathlib.Path(self.build_lib)
        subprocess.run(["protoc", "-I", SCHEMA.parent, f"--python_out={target / 'troupe'}",
                        f"--pyi_out={target / 'troupe'}", SCHEMA.name], check=True)


options = {}
if not os.access(HERE, os.W_OK):  # an installed troupe's folder, where setuptools would write beside this file
    scratch = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    options = {"egg_info": {"egg_base": scratch}, "build": {"build_base": os.path.join(scratch, "build")}}
setup(cmdclass={"build_py": BuildWithSchema}, options=options)
