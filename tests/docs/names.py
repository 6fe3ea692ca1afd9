"""Looks up what the markdown pages name: subcommands and flags of troupe, TROUPE_ variables, flags of the scripts of this tree,
endpoints of the HTTP server, constants and members of the code; and the commands that the program's own messages name.

    names.py TROUPE SOURCE

Flags are troupe's own `--help`. A flag belongs to the program before it in the same command: `troupe run --temp 0` is looked up
among those of `run`. Where no program stands before it, any subcommand may have it, or a script that is named under the same
heading. Programs of others are not asked.
"""
import os
import re
import subprocess
import sys

from markdown import SPAN, TOP_FOLDERS, Page, pages_below

TROUPE, SOURCE = map(os.path.abspath, sys.argv[1:3])

FLAG = re.compile(r"(?<![\w/=.<-])--[a-z](?:[\w-]*\w)?(?![\w-]|\.\w)")
SHORT = re.compile(r"(?<!\S)-[a-zA-Z]\w*")
VARIABLE = re.compile(r"\bTROUPE_[A-Z0-9_]*[A-Z0-9]")
# A path of the server; before it, if anything, the beginning of a URL.
ENDPOINT = re.compile(r"(?:(?<![\w\])}.-])|(?<=localhost)|(?<=:\d{4}))/(?:v1|api)/[\w/{}*-]+"
                      r"|(?<=GET )/[\w/{}.*-]*|(?<=POST )/[\w/{}.*-]*|(?<=HEAD )/[\w/{}.*-]*")
# `kName` or `Type::member`, and the file behind it: `kName` (scheduler/outcome.h).
CODE = re.compile(r"`?(?:(?<![\w.])(k[A-Z]\w+)|\b[A-Za-z]\w+::(?:\w+::)*(~?\w+))\b(?:`? \(`?([\w/]+/[\w.]+\.(?:h|cpp))`?\))?")
# What belongs to libraries.
LIBRARIES = ("std::", "fmt::", "caf::")
LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
LITERALS = re.compile(r'"(?:[^"\\\n]|\\.)*"(?:\s*"(?:[^"\\\n]|\\.)*")*')
# Programs of others, whose flags are theirs.
FOREIGN = """adduser aider cargo claude codex cmake cpupower clang-format-14 clang++-14 ctest curl ask find g++ git grep jq journalctl llama-bench llama-cli llama-server llama-completion
  llama-embedding llama-quantize llama-tokenize llama-gguf-split llama-batched-bench llama-perplexity lm-eval loginctl ninja nginx node npm numactl ollama opencode openssl perf pip pip3 pkg-config protoc
  prometheus-node-exporter node_exporter python3 qwen run-clang-tidy-14 socat ss strace systemctl systemd-run systemd-socket-activate
  systemd-sysusers systemd-tmpfiles taskset uv valgrind vllm xargs sed git-lfs""".split()
# Flags that stand alone and are of a program of others.
OTHERS = {"--skip-chat-parsing": "llama-server", "--component": "cmake --install", "--prefix": "cmake --install",
          **dict.fromkeys(("--apply_chat_template", "--confirm_run_unsafe_code", "--limit", "--log_samples", "--model_args",
                           "--num_fewshot", "--system_instruction", "--tasks"), "lm-eval run")}
# Pages that tell what becomes of flags of llama.cpp, vLLM and Ollama: config/options/other_programs.cpp has those, too.
PAGES_OF_OTHERS = ("docs/coming_from.md", "CHANGELOG.md")
# Programs of this tree that a build makes of a file or folder of another name.
BUILT = {"ipc_api_samples": "tests/ipc/http/api/samples.cpp", "adversary": "tests/adversary"}


def read(path):
    with open(os.path.join(SOURCE, path), encoding="utf-8", errors="replace") as file:
        return file.read()


def source_files():
    for folder in TOP_FOLDERS:
        for path, _, files in os.walk(os.path.join(SOURCE, folder)):
            for name in files:
                yield os.path.relpath(os.path.join(path, name), SOURCE)
    yield from ("CMakeLists.txt", "demo.sh", "test.sh")


class Names:
    """What there is."""

    def __init__(self):
        def run(*arguments):
            return subprocess.run([TROUPE, *arguments], check=True, capture_output=True, text=True).stdout
        listed = run("help").split("Subcommands:\n", 1)[1].split("\n\n", 1)[0]
        self.subcommands = {}
        help_texts = ""
        for name in re.findall(r"^  (\w+) ", listed, re.MULTILINE):
            text = run(name, "--help")
            help_texts += text
            lines = re.findall(r"^  (-.*?)(?:  .*)?$", text, re.MULTILINE)
            self.subcommands[name] = {flag for line in lines for flag in re.findall(r"(?<!\S)--?[a-zA-Z][\w-]*", line)}
        self.flags = set().union(*self.subcommands.values())
        files = list(source_files())
        self.variables = set(VARIABLE.findall(help_texts))
        for path in files:
            if path.endswith((".h", ".cpp", ".in", ".py", ".sh", ".txt", ".cmake")) and not path.startswith("tests/docs/"):
                self.variables |= set(VARIABLE.findall(read(path)))
        self.variables |= set(VARIABLE.findall(read("CMakePresets.json")))
        # Scripts and programs of the tree, by name: their text.
        self.scripts = {os.path.basename(path): path for path in files if path.endswith((".py", ".sh", ".mjs"))}
        self.scripts |= {os.path.basename(path)[:-4]: path for path in files if re.match(r"bench/\w+\.cpp$", path)}
        self.scripts |= BUILT
        self.advised = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", read("config/options/other_programs.cpp")))
        paths = re.findall(r'\.method = "(GET|POST)",\s*\.path = "(/[^"]*)"', read("ipc/http/api/endpoint.h"))
        self.routes = [(method, re.compile(re.escape(path).replace(r"\{id\}", r"[^/]+"))) for method, path in paths]

        self.all_code = set()
        for path in files:
            if not path.startswith("tests/") and path.endswith((".h", ".cpp", ".in", ".proto", ".txt")):
                self.all_code |= self.code(path)

    @staticmethod
    def code(path):
        """The names of a file of code."""
        return set(re.findall(r"\w+", read(path))) if os.path.exists(os.path.join(SOURCE, path)) else set()

    def has_flag(self, script, flag):
        path = self.scripts[script]
        files = [path]
        if os.path.isdir(os.path.join(SOURCE, path)):
            files = [os.path.join(path, name) for name in os.listdir(os.path.join(SOURCE, path))]
        # A script that hands on what it is told, such as tools/adversary.sh, has the flags of its program.
        texts = [read(file) for file in files]
        for name in re.findall(r"[\w.-]+", texts[0]) if path.endswith(".sh") else ():
            if name in BUILT and '"$@"' in texts[0]:
                folder = BUILT[name]
                texts += [read(os.path.join(folder, each)) for each in os.listdir(os.path.join(SOURCE, folder))]
        return any(re.search(rf"(?<![\w-])(?:--)?{re.escape(flag[2:])}(?![\w-])", text) for text in texts)

    def program(self, word):
        """`troupe`, the name of a script, `other` for programs of others; None for other words."""
        name = os.path.basename(word.strip("'\"`()$,;:"))
        if name == "troupe" and not word.startswith("-"):
            return "troupe"
        if name in self.scripts:
            return name
        return "other" if name in FOREIGN else None


class Reader:
    """Reads one file, and keeps what is wrong in it."""

    def __init__(self, names, name):
        self.names, self.name, self.wrong, self.count, self.near = names, name, [], 0, set()

    def complain(self, line, what):
        self.wrong.append(f"{self.name}:{line}: {what}")

    def page(self):
        page = Page(os.path.join(SOURCE, self.name))
        parts = sorted([(number, "prose", text) for number, text in page.prose] +
                       [(number, "block", text) for number, text in page.blocks])
        for number, kind, text in parts:
            if text.startswith("#") and kind == "prose":
                self.near = set()  # the scripts named under the same heading
            self.near |= {self.names.program(word) for word in re.split(r"[\s=]+", text)} - {None, "troupe", "other"}
            if kind == "block":
                self.block(number, text)
            else:
                for match in SPAN.finditer(text):
                    self.command(number + text.count("\n", 0, match.start()), " ".join(match[2].split()))
            for match in VARIABLE.finditer(text):
                self.count += 1
                if match[0] not in self.names.variables:
                    self.complain(number + text.count("\n", 0, match.start()), f"nothing reads {match[0]}")
            for match in ENDPOINT.finditer(text):
                self.count += 1
                path = match[0].rstrip(".")
                before = re.search(r"(GET|POST|HEAD) $", text[:match.start()])
                method = before[1].replace("HEAD", "GET") if before else ""
                if not any(route.fullmatch(path) and method in ("", its) for its, route in self.names.routes):
                    self.complain(number + text.count("\n", 0, match.start()), f"there is no endpoint {method} {path}")
            for match in CODE.finditer(text):
                if match[0].lstrip("`").startswith(LIBRARIES):
                    continue
                self.count += 1
                name, file = match[1] or match[2], match[3]
                where = self.names.code(file) if file else self.names.all_code
                if name not in where:
                    self.complain(number + text.count("\n", 0, match.start()),
                                  f"{file or 'the code'} has no {name}")
        return self

    def messages(self):
        """The commands between backquotes in the texts of a C++ file."""
        for match in LITERALS.finditer(read(self.name)):
            text = "".join(LITERAL.findall(match[0])).replace('\\"', '"')
            for span in SPAN.finditer(text):
                if "{" not in span[2]:
                    self.command(read(self.name).count("\n", 0, match.start()) + 1, span[2])
        return self

    def block(self, number, text):
        for offset, line in self.joined(text):
            code, _, remark = re.sub(r"(?<!\S)#", "\0", line, count=1).partition("\0")
            for part in re.split(r"\||&&|;|\$\(|<\(", code):
                self.command(number + offset, part)
            self.command(number + offset, remark)

    @staticmethod
    def joined(text):
        """Its lines, with what a backslash continues."""
        lines = text.split("\n")
        at = 0
        while at < len(lines):
            begin, line = at, lines[at]
            while line.endswith("\\") and at + 1 < len(lines):
                at += 1
                line = line[:-1] + " " + lines[at]
            yield begin, line
            at += 1

    def command(self, line, text):
        program, subcommand = None, None
        words = re.findall(r"""(?:[^\s'"]|'[^']*'|"[^"]*")+|\S""", text)
        if words and words[0] in self.names.subcommands and any(word.startswith("-") for word in words[1:]):
            program, subcommand = "troupe", words[0]  # `serve --print-limits`
        for place, word in enumerate(words):
            found = self.names.program(word)
            if found:
                program, subcommand = found, None
                after = words[place + 1] if place + 1 < len(words) else ""
                if found == "troupe" and re.fullmatch(r"[a-z]+", after):
                    self.count += 1
                    if after in self.names.subcommands:
                        subcommand = after
                    elif place == 0 and after != "help":
                        self.complain(line, f"troupe has no subcommand {after}")
            for match in FLAG.finditer(word) if word[:1] not in "'\"" else ():
                self.flag(line, match[0], program, subcommand)
            if subcommand and SHORT.fullmatch(word) and word not in self.names.subcommands[subcommand]:
                self.complain(line, f"troupe {subcommand} has no flag {word}")

    def flag(self, line, flag, program, subcommand):
        names = self.names
        self.count += 1
        if program == "other" or flag.startswith("--benchmark_") or flag in OTHERS:
            return
        if subcommand:
            if flag not in names.subcommands[subcommand]:
                self.complain(line, f"troupe {subcommand} has no flag {flag}")
        elif program in names.scripts:
            if not names.has_flag(program, flag):
                self.complain(line, f"{names.scripts[program]} has no flag {flag}")
        elif flag not in names.flags and not (flag in names.advised and self.name in PAGES_OF_OTHERS):
            if not any(names.has_flag(script, flag) for script in self.near):
                self.complain(line, f"there is no flag {flag}")


def main():
    names = Names()
    wrong, count = [], 0
    readers = [Reader(names, name).page() for name in pages_below(SOURCE)]
    readers += [Reader(names, path).messages() for path in source_files()
                if path.endswith(".cpp") and path.startswith(("actors", "cli", "config", "engine", "ipc"))]
    for reader in readers:
        wrong += reader.wrong
        count += reader.count
    print(f"{count} names of {len(names.subcommands)} subcommands, their flags, scripts, variables and {len(names.routes)} endpoints")
    if count < 1000 or len(names.routes) < 10:
        wrong.append("so few were found that the pages are not read as they are written")
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
