"""What the tests of this folder share: their Python, their server, and where real weights lie.

A test begins with `run_in(ENVIRONMENT)`, before it imports what is in that environment; with `run()` if it imports nothing.
"""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../page"))
from server import Server  # noqa: E402

CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "troupe-tests")
ROLES = os.path.join(HERE, "roles.jinja")  # a chat template for a base model


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(77)


def environment_folder(name, versions=None):
    """Where tools/programs.sh has made an environment; ends the test as skipped where it is not there, or is older.

    versions: the file of this folder that pins them; by default NAME.txt.
    """
    folder = os.path.join(CACHE, "programs", name)
    with open(os.path.join(HERE, versions or name + ".txt")) as wanted:
        try:
            with open(os.path.join(folder, "installed.txt")) as installed:
                if wanted.read() == installed.read():
                    return folder
        except FileNotFoundError:
            skip(f"no environment with this program (tools/programs.sh makes it): {name}")
    skip(f"an environment of other versions (tools/programs.sh makes it anew): {name}")


def bare_environment():
    """The variables of this process without a user's own keys, proxies and settings."""
    return {key: value for key, value in os.environ.items()
            if key in ("PATH", "HOME", "XDG_CACHE_HOME", "TMPDIR", "LANG") or key.startswith("TROUPE_")}


def run():
    """The path of the server's program, the only argument of a test."""
    return os.path.abspath(sys.argv.pop(1))


def run_in(name):
    """Goes on in the Python of an environment, with the bare variables; then as run()."""
    python = os.path.join(environment_folder(name), "bin/python")
    if sys.executable != python:
        os.execve(python, [python, "-B", *sys.argv], bare_environment())
    return run()


def real_weights(name):
    """The path of a model; ends the test as skipped where it is not there."""
    path = os.path.join(CACHE, name)
    if not os.path.exists(path):
        skip(f"no real weights (tools/real_models.sh fetches them): {name}")
    return path


def serve(troupe, *arguments):
    """A server that also listens on TCP, for the user of the test and without a key."""
    return Server(troupe, "--listen", "tcp://127.0.0.1:0", "--usage-db", "off", "--sessions-dir", "off", *arguments)
