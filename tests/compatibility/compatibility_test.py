"""What docs/stability.md promises, between two builds: an older program and a newer one, each an installation.

    compatibility_test.py OLDER NEWER        # folders with bin/troupe: of `cmake --install --prefix`, or usr/ of the packages

Clients of one with a server of the other, and what a server keeps. tools/compatibility.sh runs it with the commit before.
"""
import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

if __name__ == "__main__" and len(sys.argv) < 3:
    sys.exit(__doc__)
NEWER, OLDER = sys.argv.pop(2), sys.argv.pop(1)
PROMPT = "Once upon a time"
PATIENCE = 120


class Folder:
    """A home of its own, for a server and its clients."""

    def __init__(self, test):
        self.path = tempfile.mkdtemp(prefix="troupe-compat-", dir="/tmp")
        test.addCleanup(shutil.rmtree, self.path)
        self.environment = {"HOME": self.path, "PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": self.path, "LC_ALL": "C.UTF-8"}

    def __truediv__(self, name):
        return os.path.join(self.path, name)


def program(build):
    return os.path.join(build, "bin/troupe")


def call(build, folder, *arguments, ok=True, text=None):
    done = subprocess.run([program(build), *arguments], env=folder.environment, capture_output=True, text=True,
                          input=text, stdin=None if text is not None else subprocess.DEVNULL, timeout=PATIENCE)
    if ok and done.returncode != 0:
        raise AssertionError(f"{build} {' '.join(arguments)}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done


class Server:
    def __init__(self, test, build, folder, *options):
        self.log = open(folder / "log", "a+", encoding="utf-8")
        self.process = subprocess.Popen([program(build), "serve", *options], env=folder.environment, stdin=subprocess.DEVNULL,
                                        stdout=self.log, stderr=self.log)
        test.addCleanup(self.end)
        end = time.monotonic() + PATIENCE
        while call(build, folder, "status", ok=False).returncode != 0:
            if self.process.poll() is not None or time.monotonic() > end:
                raise AssertionError(self.text())

    def text(self):
        self.log.seek(0)
        return self.log.read()

    def url(self):
        return "http://" + re.search(r"HTTP on tcp://([^\s\"]+:\d+)", self.text())[1]

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            if self.process.wait(PATIENCE) != 0:
                raise AssertionError(self.text())
        self.log.close()


def keys_of(value, path=""):
    """The members of a JSON value, by path; of lists those of the first entry."""
    if isinstance(value, dict):
        return {f"{path}.{name}" for name in value}.union(*(keys_of(each, f"{path}.{name}") for name, each in value.items()))
    return keys_of(value[0], path + "[]") if isinstance(value, list) and value else set()


@functools.lru_cache
def subcommands(build):
    text = subprocess.run([program(build), "help"], capture_output=True, text=True, check=True).stdout
    return re.findall(r"^  (\w+) ", text, re.M)


@functools.lru_cache
def flags(build, subcommand):
    text = subprocess.run([program(build), subcommand, "--help"], capture_output=True, text=True, check=True).stdout
    return {flag for line in re.findall(r"^  (-[^\n]*)", text, re.M) for flag in re.findall(r"(?<![\w-])--?[\w-]+", line.split("   ")[0])}


class Compatibility(unittest.TestCase):
    def setUp(self):
        self.folder = Folder(self)

    def run_both(self, client, server):
        """What a client of one build does with a server of another."""
        Server(self, server, self.folder)
        ask = functools.partial(call, client, self.folder)
        answer = ask("run", "--temp", "0", "-n", "24", PROMPT).stdout
        self.assertTrue(answer.strip())
        self.assertEqual(answer, call(server, self.folder, "run", "--temp", "0", "-n", "24", PROMPT).stdout)
        several = json.loads(ask("run", "--json", "--choices", "2", "--seed", "7", "-n", "8", PROMPT).stdout)
        self.assertEqual(len(several["choices"]), 2)
        form = json.loads(ask("run", "-j", '{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}',
                              "-n", "60", PROMPT).stdout)
        self.assertIsInstance(form["a"], int)
        self.assertTrue(json.loads(ask("embed", PROMPT).stdout)["embedding"])
        ask("run", "--session", "tea", "--temp", "0", "-n", "8", PROMPT)
        ask("session", "save", "tea")
        self.assertIn("tea", ask("session", "list").stdout)
        self.assertEqual(json.loads(ask("status", "--json").stdout)["readiness"], "ready")
        self.assertTrue(ask("model", "ls").stdout)
        self.assertTrue(ask("top", "--once").stdout)
        self.assertTrue(ask("usage").stdout)
        ask("load", "--clients", "2", "--num-prompts", "4", "--prompt-len", "8", "--output-len", "4", "--verify")
        receipt = self.folder / "receipt.json"
        ask("run", "--receipt", receipt, "--seed", "3", "-n", "12", PROMPT)
        for build in (client, server):
            call(build, self.folder, "verify", receipt)
        # What cannot be served is refused in words, and not by a broken connection.
        refused = ask("run", "--model-name", "nobody", PROMPT, ok=False)
        self.assertEqual(refused.returncode, 2)
        self.assertIn("there is no model", refused.stderr)

    def test_an_older_client_and_a_newer_server(self):
        self.run_both(OLDER, NEWER)

    def test_a_newer_client_and_an_older_server(self):
        self.run_both(NEWER, OLDER)

    def test_the_older_python_package_and_a_newer_server(self):
        self.check_python(OLDER, NEWER)

    def test_the_newer_python_package_and_an_older_server(self):
        self.check_python(NEWER, OLDER)

    def check_python(self, client, server):
        Server(self, server, self.folder)
        script = ("import asyncio, troupe\n"
                  "async def main():\n"
                  "    async with troupe.Client() as client:\n"
                  "        answer = await client.generate('Once upon a time', max_tokens=8, temperature=0)\n"
                  "        print(answer.text)\n"
                  "asyncio.run(main())\n")
        packages = ":".join(os.path.join(client, each) for each in ("share/troupe/python", "lib/python3/dist-packages"))
        done = subprocess.run(["/usr/bin/python3", "-B", "-c", script], env={**self.folder.environment, "PYTHONPATH": packages},
                              capture_output=True, text=True, timeout=PATIENCE)
        if "No module named 'google" in done.stderr:
            self.skipTest("python3-protobuf is not there")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(done.stdout.strip())

    def test_sessions_usage_and_keys_outlive_an_upgrade(self):
        whole = call(OLDER, self.folder, "key", "add", "ci").stdout
        key = re.search(r"\S{20,}", whole).group()
        server = Server(self, OLDER, self.folder)
        said = call(OLDER, self.folder, "run", "--session", "tea", "--temp", "0", "-n", "16", PROMPT).stdout
        call(OLDER, self.folder, "session", "save", "tea")
        listed = call(OLDER, self.folder, "session", "list", "--json").stdout
        used = json.loads(call(OLDER, self.folder, "usage", "--json").stdout)
        server.end()

        server = Server(self, NEWER, self.folder, "--listen", "tcp://127.0.0.1:0")
        ours = functools.partial(call, NEWER, self.folder)
        before, after = json.loads(listed), json.loads(ours("session", "list", "--json").stdout)
        self.assertLessEqual(keys_of(before), keys_of(after))
        # It goes on with the tokens and the K and V that the older one has left: as one answer of both turns would.
        more = ours("run", "--session", "tea", "--temp", "0", "-n", "8", " And").stdout
        alone = ours("run", "--temp", "0", "-n", "8", PROMPT + said.rstrip("\n") + " And").stdout
        self.assertEqual(more, alone)
        self.assertLessEqual(keys_of(used), keys_of(json.loads(ours("usage", "--json").stdout)))
        request = urllib.request.Request(server.url() + "/v1/models", headers={"Authorization": "Bearer " + key})
        with urllib.request.urlopen(request, timeout=PATIENCE) as response:
            self.assertEqual(response.status, 200)
        self.assertIn("ci", ours("key", "list").stdout)

    def test_packed_weights_of_the_older_one_are_read_or_made_again(self):
        model = os.path.join(OLDER, "share/troupe/models/tales-5m-tq2_0.gguf")
        options = ["-m", model, "--weights-cache", self.folder / "weights"]
        server = Server(self, OLDER, self.folder, *options)
        answer = call(OLDER, self.folder, "run", "--temp", "0", "-n", "16", PROMPT).stdout
        server.end()
        server = Server(self, NEWER, self.folder, *options)
        self.assertEqual(call(NEWER, self.folder, "run", "--temp", "0", "-n", "16", PROMPT).stdout, answer)
        self.assertNotIn("[warning]", server.text())

    def test_a_backup_of_the_older_one_is_restored(self):
        server = Server(self, OLDER, self.folder)
        call(OLDER, self.folder, "run", "--session", "tea", "--temp", "0", "-n", "8", PROMPT)
        call(OLDER, self.folder, "session", "save", "tea")
        call(OLDER, self.folder, "backup", self.folder / "backup")
        server.end()
        other = Folder(self)
        call(NEWER, other, "restore", self.folder / "backup")
        Server(self, NEWER, other)
        self.assertIn("tea", call(NEWER, other, "session", "list").stdout)

    def test_metrics_keep_their_names(self):
        names = {}
        for build in (OLDER, NEWER):
            folder = Folder(self)
            server = Server(self, build, folder)
            call(build, folder, "run", "-n", "4", PROMPT)
            text = call(build, folder, "status", "--prometheus").stdout
            names[build] = set(re.findall(r"^# TYPE (\S+ \S+)", text, re.M))
            server.end()
        self.assertTrue(names[OLDER])
        self.assertEqual(names[OLDER] - names[NEWER], set(), "a renamed metric is written under both names for a minor version")

    def test_answers_over_http_keep_their_members(self):
        members = {}
        for build in (OLDER, NEWER):
            folder = Folder(self)
            log = folder / "access.log"
            server = Server(self, build, folder, "--listen", "tcp://127.0.0.1:0", "--access-log", log, "--log-format", "json")
            found = set()
            for path, body in (("/v1/completions", {"prompt": PROMPT, "max_tokens": 4, "logprobs": 1}), ("/v1/models", None),
                               ("/v1/embeddings", {"input": PROMPT}), ("/health", None)):
                request = urllib.request.Request(server.url() + path, json.dumps(body).encode() if body else None,
                                                 {"Content-Type": "application/json"})
                with urllib.request.urlopen(request, timeout=PATIENCE) as response:
                    found |= {path + each for each in keys_of(json.load(response))}
            server.end()
            with open(log, encoding="utf-8") as file:
                found |= {"access log " + each for line in file for each in keys_of(json.loads(line))}
            members[build] = found
        self.assertEqual(members[OLDER] - members[NEWER], set())

    def test_flags_and_configuration_are_understood(self):
        for subcommand in subcommands(OLDER):
            self.assertIn(subcommand, subcommands(NEWER))
            for flag in sorted(flags(OLDER, subcommand) - flags(NEWER, subcommand)):
                # A former name is not shown any more, and understood.
                done = call(NEWER, self.folder, subcommand, flag, "--print-config", ok=False)
                self.assertNotIn("unknown", done.stderr, f"{subcommand} {flag}")
                self.assertNotIn("did you mean", done.stderr, f"{subcommand} {flag}")
        for subcommand in subcommands(OLDER):
            if "--print-config" not in flags(OLDER, subcommand):
                continue
            path = self.folder / f"{subcommand}.toml"
            with open(path, "w", encoding="utf-8") as file:
                file.write(call(OLDER, self.folder, subcommand, "--print-config").stdout)
            call(NEWER, self.folder, subcommand, "--config", path, "--print-config")
        call(NEWER, self.folder, "serve", "--check", "--config", self.folder / "serve.toml")


if __name__ == "__main__":
    unittest.main(verbosity=2)
