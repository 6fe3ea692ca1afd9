"""Walks the documentation as a new user does: every block of commands is run, and what comes is compared with what the page
says of it. Configuration files are given to a server, lines of a log are compared with a log.

    walk.py TROUPE SOURCE [PAGE...]

A block is known here by how its first line begins, with how it is tried, or why it is not. A block that is not known fails,
and so does an entry without a block. Blocks run in a scratch home, in a folder that looks like the source tree after a build,
each in a shell of its own; what a command needs that is not there is put in its place (stand_ins).
"""
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import namedtuple

TROUPE, SOURCE = map(os.path.abspath, sys.argv[1:3])
SECONDS = 240  # of a block
SERVES = re.compile(r"(build/release/)?troupe serve\b(?!.*--print)")
ROOT = os.geteuid() == 0

# A block that is not run, and why.
Skip = namedtuple("Skip", "reason")
# A file of keys that the server takes; what it then shows of it.
Config = namedtuple("Config", "shows")
# Lines of the log after a reload of a file with these keys.
Reload = namedtuple("Reload", "")
# A configuration of logrotate, the one that is installed; where there is a logrotate, the server goes on in a new file.
Rotate = namedtuple("Rotate", "")
# A server of nginx's, which nginx reads where there is one, with a certificate of its own.
Nginx = namedtuple("Nginx", "")
# Commands. server: flags of one that runs meanwhile; None: the block starts its own, or none. prepare: a command before.
# says: what the output of a command shows, by the beginning of the command; an empty one: anything. typed: what is typed on its
# terminal. stop_before: the server is stopped before this command. config: ~/.config/troupe/troupe.toml.
Run = namedtuple("Run", "says server prepare typed stop_before config", defaults=(None, None, {}, None, None))

UNIT = Skip("a part of a unit, which deploy_units tries")
AGENT = Skip("a program of others: programs_agents and programs_aider run it with these settings")
# Single commands that are not run.
LINES = {
    r"build/release/troupe probe": "wants the machine for itself",
    r"build/release/troupe doctor": "its exit code says what this machine lacks; test_cli_serve runs it",
    r"(sudo )?(systemctl|loginctl)\b": "needs systemd",
    r"sudo troupe load": None if ROOT else "needs root, which plays other users",
    r"curl\b": None if shutil.which("curl") else "there is no curl",
}

BLOCKS = {
    "README.md": {
        "sudo apt install troupe": Skip("installs packages, as tools/package_roundtrip.sh does"),
        "./demo.sh": Skip("installs packages, builds and tests"),
        "build/release/troupe serve &": Run({
            'build/release/troupe run "Once': r"\w+",
            "build/release/troupe run -v": r"(?s)cached.* tokens/s .*took: ",
            "build/release/troupe load": "TTFT",
            "build/release/troupe status": r"(?s)^health +ready.*\ntokens .*\nsteps .*\nblocks ",
            "build/release/troupe top": r"PROMPT",
            "build/release/troupe chat": r"\w+",
            "curl": r'"choices": ?\[\{.*"text": ?"',
            "build/release/troupe run --session": r"\w+",
            "build/release/troupe usage": r"tenant +done",
            "build/release/troupe backup": r"usage.db, \d files of sessions",
            "kill": "",
        }, typed={"build/release/troupe chat": "Once upon a time\n", "build/release/troupe top": "q"}),
        "build/release/troupe inspect": Run({
            "build/release/troupe inspect": r"(?si)per token.*longest context",
            "build/release/troupe model load": r"other",
            "build/release/troupe bench": r"(?s)pp512 .*tg64 x1 .*tg64 x8 .*tg64 x32 ",
        }),
    },
    "docs/operations.md": {
        "$ troupe doctor": Skip("what one machine was told; test_cli_serve runs it"),
        "echo 'deb": Skip("installs packages, as tools/package_roundtrip.sh does"),
        "tools/package.sh": Skip("makes packages, as tests/package/run.sh does"),
        "tar xzf troupe-": Skip("is the archive of tools/package.sh --tarball, which is not made here"),
        "sudo apt-get install": Skip("installs packages and builds, as demo.sh does; deploy_packages compares the packages"),
        "systemctl --user daemon-reload": Skip("needs systemd of a user"),
        "sudo systemd-sysusers": Skip("changes users and units of the system"),
        "[Service]": UNIT,
        "[Socket]": UNIT,
        "sudo -u troupe troupe key add": Run({"sudo -u troupe troupe key add ci": r"trp_\w+",
                                              "sudo -u troupe troupe key add web": r"trp_\w+"},
                                             config='[[tenant]]\nname = "web"\nuser = "nobody"\n'),
        "listen = ": Config(['listen = ["tcp://127.0.0.1:']),
        "[[tenant]]": Config(['name = "web"', "weight = 3", "trusted-proxy = true", "max-context = 8192"]),
        "troupe usage": Run({"troupe usage  ": r"tenant +done", "troupe usage --since": r"^\s*[\[{]",
                             "troupe usage --by group": r"group +done",
                             "troupe usage --usage-db": r"tenant +done"}, server="--usage-db /var/lib/troupe/usage.db",
                            prepare="troupe run -n 4 Once", stop_before="troupe usage --usage-db"),
        "troupe serve -m llama3=": Run({}),
        'memory = "24GiB"': Config(['memory = "24GiB"', 'name = "llama3"', "pinned = true", 'name = "embed"']),
        "troupe model ls": Run({"troupe model ls": r"(?s)main.*embed", "troupe model load": r"qwen|strict",
                                "troupe model unload": "embed", "troupe model info": r"qwen"},
                               server="-m main=model.gguf -m embed=/srv/models/bge-small-f16.gguf"),
        "[[model]]": Config(['name = "qwen3"', "[model.defaults]", "temp = 0.6", 'reasoning = "low"']),
        "troupe model load qwen": Run({"troupe model load qwen": r"qwen"},
                                      server="-m main=model.gguf -m qwen=/srv/models/qwen2.gguf"),
        "troupe serve --models-dir": Run({"troupe model ls": r"llama-3.2-3b-q4_k_m.*on-request", "troupe run": r"\w+",
                                          "troupe model unload": "llama-3.2-3b-q4_k_m"}),
        'keep-alive = "30m"': Config(['keep-alive = "30m"', "models-max = 3", 'name = "llama3"', 'load = "on-request"', 'keep-alive = "2h"']),
        "troupe model check": Run({"troupe model check qwen": r'"canary_ok": ?true',
                                   "troupe model check": r"main: canary ok, checksums ok, .*file unchanged"},
                                  server="-m main=model.gguf -m qwen=model.gguf"),
        "troupe inspect -m model.gguf --memory": Run({"troupe inspect": r"(?si)per token.*longest context"}),
        "troupe serve --memory 8GiB": Run({"troupe serve": r"(?s)max-buffer-bytes.*total\s*$"}),
        "model = ": Config(['memory = "16GiB"', "threads = 8", "ctx-size = 8192", "allow-group = ["]),
        "info reload": Reload(),
        "sudo -u troupe troupe serve --check": Run({"sudo -u troupe troupe serve --check": r"nothing to complain of"}),
        "sudo install -d": Run({"sudo install": "", "sudo troupe backup": r"usage.db, keys, 2 files of sessions",
                                "sudo troupe restore --dry-run": r"whole(.|\n)*would be restored"},
                               server="--usage-db /var/lib/troupe/usage.db --sessions-dir /var/lib/troupe/sessions",
                               prepare="troupe run --session tea -n 4 Once && troupe usage && "
                                       "troupe key add ci --keys-file /var/lib/troupe/keys",
                               stop_before="sudo troupe restore --dry-run"),
        "sudo systemctl stop troupe.socket": Run({"sudo troupe restore": r"is kept as"}, prepare=(
            "mkdir /srv/backup && troupe key add ci --keys-file /var/lib/troupe/keys && "
            "troupe backup --state /var/lib/troupe --keys /srv/backup/troupe-today")),
        "journalctl": Skip("needs systemd's journal"),
        "log-file = ": Config(['log-file = "']),
        "/var/log/troupe": Rotate(),
        "access-log = ": Config(['access-log = "']),
    },
    "docs/sessions.md": {
        "troupe run --session draft": Run({
            'troupe run --session draft "Once': r"\w+", 'troupe run --session draft " The': r"\w+",
            "troupe session list": r"draft", "troupe session fork": r"other", "troupe session inspect": r"draft",
            "troupe session delete": "", "troupe session repair": r"1 session",
        }, server="", stop_before="troupe session repair"),
        "curl": Run({"curl": r'"content": ?"'}, server="--chat-template chatml",
                    prepare="troupe run --chat --session tea -n 4 Once"),
        "sudo systemctl stop troupe": Run({
            "sudo -u troupe troupe session repair --dry-run": r"1 session",
            "sudo -u troupe troupe session repair --sessions": r"1 session",
        }, server="--sessions-dir /var/lib/troupe/sessions", prepare="troupe run --session tea -n 4 Once",
            stop_before="sudo -u troupe troupe session repair --dry-run"),
    },
    "docs/load.md": {
        "troupe serve &": Run({"troupe load --clients 8": "TTFT", "troupe load --rate": "TTFT",
                               "troupe load --clients 64": "TTFT", "troupe load --clients 16": "TTFT"}),
        "# 64 streams": Run({"sudo troupe load": r"(?s)crowd.*single", "troupe load": r"(?s)long.*short.*vectors"},
                            server="--allow-uid 1001,1002"),
        "troupe load --clients 2": Run({"troupe load --clients": "TTFT", "troupe load --openai": "TTFT"},
                                       server="--listen tcp://127.0.0.1:8080"),
    },
    "docs/cookbook.md": {
        "sudo apt install": Skip("installs packages and fetches models"),
        'memory = "24GiB"': Config(['memory = "24GiB"', 'aliases = ["default"]', 'name = "embed"', 'name = "web"', "weight = 0.5"]),
        "[Service]": UNIT,
        "[Socket]": UNIT,
        "sudo -u troupe troupe serve --check &&": Run({"sudo -u troupe troupe serve --check": r"nothing to complain of"}),
        "sudo -u troupe troupe serve --check": Skip("asks the machine's server; the blocks below are tried with one"),
        "sudo -u troupe troupe status": Run({
            "sudo -u troupe troupe status": r"(?s)^health +ready", "sudo -u troupe troupe usage --socket /run/troupe/troupe.sock --since": "done",
            "sudo -u troupe troupe usage --socket /run/troupe/troupe.sock --by": r"group +done"}, server="", prepare="troupe run -n 4 Once"),
        "#!/bin/sh": Run({"install": "", "troupe backup": r"usage.db, keys, 2 files of sessions", "find": "", "set": ""},
                         server="--usage-db /var/lib/troupe/usage.db --sessions-dir /var/lib/troupe/sessions",
                         prepare="troupe run --session tea -n 4 Once && troupe usage && "
                                 "troupe key add ci --keys-file /var/lib/troupe/keys"),
        "troupe serve -m": Run({"curl": r'"id": ?"coder"'}),
        "export ANTHROPIC": AGENT,
        'model = "coder"': AGENT,
        "LOCAL_KEY": AGENT,
        '{"id"': Skip("lines of a file; example_python_batch tries others"),
        "{": AGENT,
        "opencode": AGENT,
        "OPENAI_BASE_URL": AGENT,
        "python3 docs/examples/python_batch.py": Skip("example_python_batch runs it, where the Python package can be used"),
        "[[tenant]]": Config(["weight = 0.1", "max-running = 32"]),
        "systemd-run": Skip("needs systemd of a user"),
        "mkdir -p answers": Run({"mkdir": "", "xargs": ""}, server="", prepare="printf 'Once upon\\nA little fox\\n' >prompts.txt"),
        "sudo -u troupe troupe key add": Run({"sudo -u troupe troupe key add alice": r"trp_\w+"}),
        "listen = ": Config(['listen = ["tcp://127.0.0.1:']),
        "server {": Nginx(),
        "curl -N": Skip("another machine's"),
    },
    "docs/metrics.md": {
        "troupe status --prometheus": Run({"mv": "", "troupe status": ""}, server=""),
    },
}


def blocks_of(page):
    """The indented and the fenced blocks of a page: (number of the first line, lines)."""
    with open(os.path.join(SOURCE, page), encoding="utf-8") as file:
        lines = file.read().split("\n")
    found, block, fenced, before = [], None, False, ""
    for number, line in enumerate(lines, 1):
        if line.startswith("```"):
            fenced = not fenced
            block = [] if fenced else None
            if fenced:
                found.append((number + 1, block))
        elif fenced:
            block.append(line)
        elif line.startswith("    ") and (block is not None or not before.strip()):
            if block is None:
                block = []
                found.append((number, block))
            block.append(line[4:])
        elif line.strip():
            block = None
        elif block is not None:
            block.append("")
        before = line
    return [(number, "\n".join(block).rstrip().split("\n")) for number, block in found]


def commands_of(block):
    """Its commands, continued lines joined, without those that are remarks alone."""
    joined = "\n".join(block).replace("\\\n", " ").split("\n")
    return [line for line in joined if line.strip() and not line.startswith("#")]


class Walk:
    """A scratch home, and what runs in it."""

    def __init__(self, folder):
        self.tree, self.state = os.path.join(folder, "tree"), os.path.join(folder, "state")
        exporter = os.path.join(folder, "exporter")
        for path in (self.tree, self.state, exporter, os.path.join(folder, "home"), os.path.join(folder, "run"),
                     os.path.join(folder, "bin"), os.path.join(folder, "logs"), os.path.join(self.tree, "build/release")):
            os.makedirs(path, 0o700)
        os.chmod(folder, 0o755)
        os.chmod(os.path.join(folder, "run"), 0o711)  # other users may come, too
        for path in (os.path.join(folder, "bin"), os.path.join(self.tree, "build/release")):
            os.symlink(TROUPE, os.path.join(path, "troupe"))
        data = os.path.join(SOURCE, "tests/data")
        shutil.copy(os.path.join(SOURCE, "models/tales-5m-tq2_0.gguf"), os.path.join(self.tree, "model.gguf"))
        shutil.copy(os.path.join(data, "golden/llama.gguf"), os.path.join(self.tree, "second.gguf"))
        models = os.path.join(folder, "models")
        os.makedirs(models)
        os.symlink(os.path.join(self.tree, "model.gguf"), os.path.join(models, "llama-3.2-3b-q4_k_m.gguf"))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.stand_ins = [
            (r"/srv/models/llama-[\w.-]+\.gguf", os.path.join(self.tree, "model.gguf")),
            (r"/srv/models/bge-small-f16\.gguf", os.path.join(data, "tiny-bert.gguf")),
            (r"/srv/models/qwen[23][\w.-]*\.gguf", os.path.join(data, "golden/qwen2.gguf")),
            (r"/srv/models(?![/\w])", models),
            (r"/var/lib/troupe", self.state),
            (r" --socket /run/troupe/troupe\.sock", ""),
            (r"--group troupe,students", "--group games"),
            (r"docs/examples/", os.path.join(SOURCE, "docs/examples/")),
            (r" && sudo systemctl reload troupe", ""),
            (r"/srv/backup", os.path.join(folder, "backup")),
            (r"/var/log/troupe", os.path.join(folder, "logs")),
            (r"/var/lib/prometheus/node-exporter", exporter),
            (r"127\.0\.0\.1:8080", f"127.0.0.1:{port}"),
            (r"^sudo -u troupe ", ""),
            (r"^sudo (?=troupe |install )", ""),
            (r"--duration \S+", "--duration 1s"),  # shorter; the environment, too
            (r"--num-prompts \d+", "--num-prompts 4"),
            (r"output-len=\d+", "output-len=16"),
            (r"\bmemory=4GiB", "memory=64MiB"),
            (r'"(troupe|students|guests)"', '"games"'),  # groups and users that every Debian has
            (r'"(gateway|batch)"', '"nobody"'),
        ]
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(("TROUPE_", "XDG_"))}
        self.environment |= {"HOME": os.path.join(folder, "home"), "XDG_RUNTIME_DIR": os.path.join(folder, "run"),
                             # where the server is anyway; the machine's own one is not asked
                             "TROUPE_HOST": "unix://" + os.path.join(folder, "run/troupe/troupe.sock"),
                             "PATH": os.path.join(folder, "bin") + ":" + os.environ["PATH"], "TERM": "xterm",
                             "TROUPE_PREDICT": "16", "TROUPE_NUM_PROMPTS": "4", "TROUPE_OUTPUT_LEN": "8"}
        self.folder = folder

    def put_in_place(self, text):
        for pattern, instead in self.stand_ins:
            text = re.sub(pattern, lambda _: instead, text, flags=re.MULTILINE)
        return text

    def run(self, block, how):
        """What is wrong, one line each."""
        script, names = ["set -m", "server="], []
        if how.config:
            path = os.path.join(self.environment["HOME"], ".config/troupe/troupe.toml")
            os.makedirs(os.path.dirname(path))
            with open(path, "w") as file:
                file.write(how.config)
        if how.server is not None:
            script.append(self._serving(f"troupe serve {self.put_in_place(how.server)}", "server"))
        if how.prepare:
            script.append(f"{{ {self.put_in_place(how.prepare)}; }} >prepare 2>&1 </dev/null || {{ cat prepare >&2; exit 1; }}")
        wrong, matched = [], set()
        for command in commands_of(block):
            reason = next((reason for pattern, reason in LINES.items() if re.match(pattern, command)), None)
            if reason:
                print(f"    not run, {reason}: {command.split('  ')[0]}")
                matched |= {start for start in how.says if command.startswith(start)}
                continue
            start = max((start for start in how.says if command.startswith(start)), key=len, default=None)
            matched.add(start)
            names.append((command, start))
            if how.stop_before and command.startswith(how.stop_before):
                script.append('kill "$server"; wait "$server"')
            script.append(self._command(command, len(names) - 1, how))
        wrong += [f"no command begins with {start!r}" for start in how.says if start not in matched]
        script.append('kill $(jobs -p) 2>/dev/null; wait')
        shell = subprocess.Popen(["bash", "-c", "\n".join(script)], cwd=self.tree, env=self.environment, text=True,
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                 start_new_session=True)
        try:
            said, _ = shell.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            self._kill_all(shell.pid)
            said, _ = shell.communicate()
            wrong.append(f"it takes longer than {SECONDS} s")
        for index, (command, start) in enumerate(names):
            wrong += self._judge(command, how.says.get(start), self._output(f"{index}.out"), self._output(f"{index}.rc"))
        return wrong + ([said] if wrong and said.strip() else [])

    @staticmethod
    def _kill_all(session):
        """Ends the shell and its jobs, each of which is a process group of its own."""
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.getsid(int(name)) == session:
                    os.kill(int(name), signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass

    def _command(self, command, index, how):
        done = self.put_in_place(command)
        if SERVES.match(command):
            return self._serving(re.sub(r"&\s*(#.*)?$", "", done), None) + f"\necho $? >{index}.rc"
        typed = next((text for start, text in how.typed.items() if command.startswith(start)), None)
        if typed is not None:
            with open(os.path.join(self.tree, f"{index}.typed"), "w") as file:
                file.write(typed)
            done = re.sub(r"\s+#.*", "", done)
            done = f"script -qec '{done}' /dev/null <{index}.typed" if typed == "q" else f"{done} <{index}.typed"
        text = f"{{ {done}\n}} >{index}.out 2>&1" + ("" if typed is not None else " </dev/null")
        return text + f"; echo $? >{index}.rc" + (f"\nwait %1; echo $? >>{index}.rc" if command.startswith("kill") else "")

    @staticmethod
    def _serving(command, variable):
        """Starts a server as a user does on another terminal, and goes on when it serves all its models."""
        return (f"{command} >server.log 2>&1 &\n" + (f"{variable}=$!\n" if variable else "") +
                "for _ in $(seq 1000); do troupe status >/dev/null 2>&1 && ! troupe model ls | grep -q loading && break; sleep 0.05; done\n"
                "troupe status >/dev/null 2>&1 || cat server.log >&2")

    def _output(self, name):
        try:
            with open(os.path.join(self.tree, name), errors="replace") as file:
                return file.read()
        except FileNotFoundError:
            return "nothing"
        finally:
            if os.path.exists(os.path.join(self.tree, name)):
                os.unlink(os.path.join(self.tree, name))

    @staticmethod
    def _judge(command, shows, said, codes):
        wrong = []
        if set(codes.split()) != {"0"}:
            wrong.append(f"{command}\n    ends with {codes.split()}")
        if shows is not None and not re.search(shows, said):
            wrong.append(f"{command}\n    does not show {shows!r}")
        return [each + "\n    and says: " + said.strip().replace("\n", "\n    ") for each in wrong]

    def take(self, block, how):
        path = os.path.join(self.folder, "config.toml")
        with open(path, "w") as file:
            file.write(self.put_in_place("\n".join(block)) + "\n")
        done = subprocess.run([TROUPE, "serve", "--config", path, "--print-config"], capture_output=True, text=True,
                              env=self.environment, cwd=self.tree)
        if done.returncode:
            return [done.stderr]
        return [f"the server does not show {each!r} of it" for each in how.shows if each not in done.stdout]

    def reload(self, block):
        """Each line: LEVEL reload: KEY = VALUE (FILE:LINE) ..."""
        keys = [re.match(r"\w+ reload: ([\w-]+) = (\S+) \((\S+):(\d+)\)", line) for line in block]
        if not all(keys):
            return ["it does not look like lines of the log after a reload"]
        path, log = os.path.join(self.folder, "config.toml"), os.path.join(self.folder, "log")
        with open(path, "w") as file:
            file.write("\n")
        server = subprocess.Popen([TROUPE, "serve", "--config", path, "--log-file", log], env=self.environment)
        lines = [""] * max(int(key[4]) for key in keys)
        for key in keys:
            lines[int(key[4]) - 1] = f"{key[1]} = {key[2]}"
        expected = [line.replace(key[3], path) for key, line in zip(keys, block)]
        try:
            self._until(lambda: "listens on" in self._text(log))
            with open(path, "w") as file:
                file.write("\n".join(lines) + "\n")
            server.send_signal(signal.SIGHUP)
            found = self._until(lambda: all(line in self._text(log) for line in expected))
            return [] if found else ["the log is:\n" + self._text(log)]
        finally:
            server.terminate()
            server.wait(SECONDS)

    def rotate(self, block):
        with open(os.path.join(SOURCE, "deploy/troupe.logrotate")) as file:
            if [line for line in file.read().splitlines() if not line.startswith("#")] != block:
                return ["deploy/troupe.logrotate, which is installed, is another one"]
        program = shutil.which("logrotate", path=os.environ["PATH"] + ":/usr/sbin")
        if not program:
            print("    not run: there is no logrotate")
            return []
        log, rules = os.path.join(self.folder, "logs/troupe.log"), os.path.join(self.folder, "rules")
        server = subprocess.Popen([TROUPE, "serve", "--log-file", log], env=self.environment)
        text = self.put_in_place("\n".join(block)).replace("systemctl try-reload-or-restart troupe", f"kill -HUP {server.pid}")
        text = text.replace("[ -d /run/systemd/system ]", "true")
        text = re.sub(r"\bsu troupe troupe\n", "", text)
        with open(rules, "w") as file:
            file.write(text + "\n")
        os.chmod(rules, 0o644)
        try:
            self._until(lambda: "listens on" in self._text(log))
            done = subprocess.run([program, "--force", "--state", os.path.join(self.folder, "rotated"), rules],
                                  capture_output=True, text=True)
            if done.returncode or not self._until(lambda: "reload" in self._text(log)):
                return [f"logrotate says {done.stderr!r}, and the new log is {self._text(log)!r}"]
            return [] if "listens on" in self._text(log + ".1") else ["the old log is not kept"]
        finally:
            server.terminate()
            server.wait(SECONDS)

    def nginx(self, block):
        program = shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin")
        if not program or not shutil.which("openssl"):
            print("    not run: there is no nginx, or no openssl")
            return []
        certificate, key, conf = (os.path.join(self.folder, name) for name in ("cert.pem", "key.pem", "nginx.conf"))
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate, "-subj", "/CN=x",
                        "-days", "2"], check=True, capture_output=True)
        text = re.sub(r"/etc/letsencrypt/\S+/fullchain\.pem", certificate, self.put_in_place("\n".join(block)))
        text = re.sub(r"/etc/letsencrypt/\S+/privkey\.pem", key, text)
        paths = "".join(f"{name}_temp_path {self.folder}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        with open(conf, "w") as file:
            file.write(f"pid {self.folder}/nginx.pid; events {{}} http {{ access_log off; {paths}\n{text}\n}}\n")
        done = subprocess.run([program, "-t", "-p", self.folder, "-e", os.path.join(self.folder, "errors"), "-c", conf], capture_output=True, text=True)
        return [done.stderr] if done.returncode else []

    @staticmethod
    def _text(path):
        try:
            with open(path) as file:
                return file.read()
        except FileNotFoundError:
            return ""

    @staticmethod
    def _until(condition):
        end = time.monotonic() + SECONDS
        while not condition() and time.monotonic() < end:
            time.sleep(0.02)
        return condition()


def walk(page):
    """How many mistakes a page has."""
    known, met, mistakes = BLOCKS[page], set(), 0
    for number, block in blocks_of(page):
        start = next((start for start in known if block[0].startswith(start)), None)
        met.add(start)
        print(f"{page}:{number}: {block[0].split('  ')[0]}")
        how = known.get(start, None)
        with tempfile.TemporaryDirectory(prefix="walk-", dir="/tmp") as folder:  # TMPDIR may be too long for a socket
            here = Walk(folder)
            if how is None:
                wrong = ["no entry of tests/docs/walk.py says how this block is tried"]
            elif isinstance(how, Skip):
                print(f"    not run: {how.reason}")
                wrong = []
            elif isinstance(how, Config):
                wrong = here.take(block, how)
            elif isinstance(how, Reload):
                wrong = here.reload(block)
            elif isinstance(how, Nginx):
                wrong = here.nginx(block)
            elif isinstance(how, Rotate):
                wrong = here.rotate(block)
            else:
                wrong = here.run(block, how)
        for each in wrong:
            print(f"  {page}:{number} WRONG: {each}")
        mistakes += len(wrong)
    for start in known:
        if start not in met:
            print(f"  {page} WRONG: no block begins with {start!r}")
            mistakes += 1
    return mistakes


if __name__ == "__main__":
    sys.exit(sum(walk(page) for page in sys.argv[3:] or BLOCKS) > 0)
