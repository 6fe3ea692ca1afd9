#!/usr/bin/env python3
"""Templates against Jinja2 (Debian's python3-jinja2), in transformers' set-up: equal texts, or both refuse.

    differential_test.py RENDER_LINES TEMPLATES [--conversations N] [--templates N] [--seed S]

RENDER_LINES is the program of render_lines.cpp, TEMPLATES a folder of *.jinja. Generates conversations over all of them, and
templates over the language. Exit status 77 without Jinja2; without the folder only templates are generated.
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).parents[3] / "tools/chat"))
from transformers_jinja import environment  # noqa: E402

warnings.simplefilter("ignore", SyntaxWarning)  # of what Jinja2 compiles templates to


PIECES = ["Hello", "who are you?", " ", "\n", "\n\n", "\t", "  ", "é", "你好", "😀", "\u2581", '"', "'", "\\", "{{ x }}", "{% if %}",
          "<|im_end|>", "</s>", "<s>", "<think>", "</think>", "<think>\nhm\n</think>\n\n", "[INST]", "<|eot_id|>", "<end_of_turn>",
          "<tool_call>", "1", "-0.5", "a=b", "<b>&amp;</b>", "", "/think", "/no_think", "\x01", "\u2028", "System: x"]


def text(rng):
    return "".join(rng.choice(PIECES) for _ in range(rng.choice([0, 1, 1, 2, 3, 6])))


def value(rng, depth=0):
    kind = rng.randrange(5 if depth > 2 else 7)
    if kind == 0:
        return rng.choice([None, True, False])
    if kind == 1:
        return rng.randrange(-1000, 1000)
    if kind == 2:
        return rng.choice([0.5, -2.25, 1e16, 1.0, 1e-7, 123.456])
    if kind in (3, 4):
        return text(rng)
    if kind == 5:
        return [value(rng, depth + 1) for _ in range(rng.randrange(3))]
    return {rng.choice(["q", "städte", "n", "x y"]) + str(i): value(rng, depth + 1) for i in range(rng.randrange(3))}


def tool(rng):
    properties = {name: {"type": rng.choice(["string", "integer", "number"]), "description": text(rng)}
                  for name in rng.sample(["city", "days", "unit"], rng.randrange(4))}
    function = {"name": rng.choice(["weather", "get_time"]), "description": text(rng),
                "parameters": {"type": "object", "properties": properties, "required": list(properties)}}
    if rng.random() < 0.3:
        function["return"] = {"type": "string"}
    return {"type": "function", "function": function}


def call(rng):
    made = {"function": {"name": "weather", "arguments": value(rng) if rng.random() < 0.3 else {"city": text(rng)}}}
    if rng.random() < 0.8:
        made = {"id": "".join(rng.choice("abc019") for _ in range(9)), "type": "function", **made}
    return made


def message(rng, role):
    made = {"role": role, "content": text(rng)}
    if role == "assistant" and rng.random() < 0.2:
        made["tool_calls"] = [call(rng) for _ in range(rng.randrange(1, 3))]
        if rng.random() < 0.5:
            made["content"] = None
    if role == "assistant" and rng.random() < 0.2:
        made["reasoning_content"] = text(rng)
    if role == "tool":
        made["tool_call_id"] = "abc019abc"
        if rng.random() < 0.3:
            made["name"] = "weather"
    if rng.random() < 0.05:
        made["content"] = value(rng)
    if rng.random() < 0.05:
        made["content"] = [{"type": "text", "text": text(rng)} for _ in range(rng.randrange(3))]
    if rng.random() < 0.01:
        del made[rng.choice(list(made))]
    return made


def conversation(rng):
    roles = ["system"] if rng.random() < 0.4 else []
    for _ in range(rng.randrange(1, 4)):
        roles.append("user")
        if rng.random() < 0.15:
            roles += ["assistant", "tool"]
        roles.append("assistant")
    if rng.random() < 0.7:
        roles.pop()
    if rng.random() < 0.1:
        rng.shuffle(roles)
    if rng.random() < 0.05:
        roles.insert(rng.randrange(len(roles) + 1), rng.choice(["developer", "ipython", "function", "x", "documents"]))
    variables = {}
    if rng.random() < 0.25:
        variables["tools"] = [tool(rng) for _ in range(rng.randrange(3))]
    for name, values in {"enable_thinking": [True, False], "thinking": [True, False], "reasoning_effort": ["low", "high"],
                         "documents": [[], [{"doc_id": 1, "title": text(rng), "text": text(rng)}]], "date_string": ["1 Jan 2026"],
                         "controls": [{"length": "short", "originality": "abstractive"}], "custom_tools": [None],
                         "tools_in_user_message": [True, False], "builtin_tools": [["brave_search", "code_interpreter"]],
                         "xml_tools": [[]], "python_tools": [[]]}.items():
        if rng.random() < 0.1:
            variables[name] = rng.choice(values)
    return {"messages": [message(rng, role) for role in roles], "add_generation_prompt": rng.random() < 0.7,
            "bos_token": rng.choice(["<s>", "<|begin_of_text|>", ""]), "eos_token": "</s>", "variables": variables}


# What generated templates may use. No integers that pass 64 bits.
VARIABLES = {
    "n": 7, "neg": -3, "x": 2.5, "t": True, "f": False, "nil": None, "s": "Hello, World", "empty": "", "uni": "Grüße, 世界 👋",
    "pad": "  two words \n", "csv": "a,b,,c", "l": [3, 1, 2], "names": ["bob", "Alice", "carol"], "none_list": [],
    "nested": [[1, 2], [3, 4]], "d": {"b": 1, "a": {"deep": [10, 20]}, "key with space": "v"}, "empty_map": {},
    "rows": [{"name": "x", "size": 2}, {"name": "y", "size": 1}, {"name": "z", "size": 2}],
}
# By the kind of what they take: expressions that give another kind, with {} for the operand and other kinds in <>.
FORMS = {
    "text": ["{} | upper", "{} | lower", "{} | title", "{} | capitalize", "{} | trim", "{} | string", "{} | replace('l', 'L')",
             "{} | replace('o', '', 1)", "{} | indent", "{} | indent(2, true)", "{} | center(20)", "{} | truncate(8)",
             "{} | default('z', true)", "nil ~ {}", "missing ~ {}", "nil | string", "missing | string", "missing or {}", "missing | upper", "nil | default({}, true)", "<nothing> | string", "{} | tojson", "{}.upper()", "{}.strip()", "{}.lstrip()",
             "{}.rstrip('d')", "{}.replace('o', '0')", "{}.title()", "{}.capitalize()", "{}.zfill(4)", "{}.removeprefix('He')",
             "{}.swapcase()", "{}.ljust(15, '.')", "{}[1:]", "{}[:-1]", "{}[::-1]", "{}[::2]", "{} ~ <number>", "{} + <text>",
             "{} * 2", "'<%s>' % {}", "'{{}}!'.format({})", "{}.join(names)", "<list> | join({})", "<list> | tojson", "<list> | string",
             "<number> | string", "<number> | tojson", "<map> | tojson", "<map> | tojson(indent=2)", "<rows> | map(attribute='name') | join",
             "<rows> | join('-', attribute='name')", "{} if <truth> else <text>", "<text> or {}", "{} | first", "{} | last",
             "names[0]", "rows[1].name", "d['key with space']", "{} | reverse", "(<text>, {})[1]", "[{}][0]", "dict(a={}).a",
             "namespace(v={}).v", "missing | default({})", "{}.partition(',') | join('|')"],
    "number": ["{} | abs", "{} | int", "{} | float", "{} | round", "{} | round(1)", "<text> | length", "<list> | count", "<text> | wordcount", "<nothing> | length", "<nothing> + {}", "{} * <nothing>",
               "<text> | int", "<text> | int(5)", "<text> | float", "l | sum", "l | min", "l | max", "rows | sum(attribute='size')", "{} + <number>",
               "{} - <number>", "{} * <number>", "{} / <number>", "{} // <number>", "{} % <number>", "-{}", "<text>.find('o')",
               "<text>.count('o')", "<text>.rfind('l')", "l[-1]", "d.b", "d.a.deep[1]", "{} if <truth> else <number>", "nested[1][0]", "{} ** 2"],
    "list": ["{} | reverse | list", "{} | list", "names | unique | list", "l | unique | list", "<text> | unique | list", "<map> | unique | list", "{} | slice(2) | list", "{} | slice(3, '-') | list", "<text> | slice(2) | list", "[<text>, <nothing>]", "<nothing> | list", "<nothing> | sort", "{} | unique | list", "{} | batch(2) | list", "{} | batch(2, '-') | list",
             "<text>.split(',')", "<text>.split()", "<text>.split('o', 1)", "<text>.splitlines()", "<text> | list",
             "l | sort", "l | sort(reverse=true)", "names | sort", "names | map('upper') | list", "{} | select | list", "{} | reject('none') | list",
             "rows | map(attribute='size') | list", "<rows> | selectattr('name') | list", "<map> | list", "<map>.values() | list",
             "<map>.items() | list", "<map> | dictsort", "<map> | items | list", "{}[1:]", "{}[::-1]", "[<text>, <number>]", "(<number>, <text>)",
             "{} + [<text>]", "range(4) | list", "range(5, 1, -2) | list", "{} + <list>", "rows | groupby('size') | list"],
    "map": ["d", "d.a", "empty_map", "{'k': <text>, 'l': <number>}", "dict(a=<list>)", "rows[0]", "dict(d, b=<number>)"],
    "nothing": ["{}", "{} or nil", "missing", "nil if <truth>", "{} if <truth> else nil"],
    "rows": ["rows", "{} | selectattr('size', 'gt', 1) | list", "{} | rejectattr('size', 'equalto', 2) | list", "{} | sort(attribute='name')",
             "{}[1:]", "{} | list", "{} | sort(attribute='size', reverse=true)"],
    "truth": ["t", "f", "not {}", "{} and <truth>", "{} or <truth>", "<number> < <number>", "<number> == <number>", "<text> == <text>",
              "<text> != <text>", "<number> <= <number> < 9", "<number> in l", "<text> in s", "'b' in <map>", "<text> is string",
              "<number> is number", "<number> is even", "<number> is divisibleby(2)", "<list> is iterable", "<map> is mapping", "missing is defined",
              "nil is none", "<text> is not none", "<list> is sequence", "<text>.startswith('H')", "<text>.endswith(('d', 'x'))", "<text> is lower",
              "<text>.isdigit()", "<number> is integer", "<number> is float", "<truth> is boolean", "<number> is gt(2)", "<text> is in names",
              "<list> == <list>", "nil is sameas(none)", "x is sameas(2.5)", "<nothing> is none", "<nothing> is defined", "<nothing> == <nothing>", "<nothing> < <number>", "<nothing> in names", "<text> in <nothing>", "not <nothing>", "<nothing> == <text>", "<text> is escaped", "'upper' is filter", "<text> < <text>"],
}
ATOMS = {"nothing": ["nil", "missing", "d.none", "rows[0].none", "d['none']"], "text": ["s", "empty", "uni", "pad", "csv", "'ab'", '"c\\n"', "'é'", "'it''s'", "'\\\\'"], "number": ["n", "neg", "x", "0", "1", "2.5", "11", "0.1"],
         "list": ["l", "names", "none_list", "nested", "[]", "()"], "map": ["d", "{}"], "rows": ["rows"], "truth": ["t", "f", "true", "false"]}


class Templates:
    """Random templates. Operands are of the right kind mostly, so that most templates give a text."""

    def __init__(self, rng):
        self.rng = rng

    def expression(self, kind=None, depth=0):
        rng = self.rng
        kind = kind or rng.choice(list(FORMS))
        if depth > 3 or rng.random() < 0.15 + 0.15 * depth:
            return rng.choice(ATOMS[kind])
        form, made = rng.choice(FORMS[kind]), ""
        while form:
            if form.startswith("{{}}"):
                made, form = made + "{}", form[4:]
            elif form.startswith("{}"):
                made, form = made + self.operand(kind, depth), form[2:]
            elif form[0] == "<" and form[1:form.find(">")] in FORMS:
                made, form = made + self.operand(form[1:form.find(">")], depth), form[form.find(">") + 1:]
            else:
                made, form = made + form[0], form[1:]
        return made

    def operand(self, kind, depth):
        return f"({self.expression(kind, depth + 1)})"

    def block(self, depth=0, in_loop=False):
        rng, exp = self.rng, self.expression
        tag = lambda words: "{%" + rng.choice(["", "", "", "-", "+"]) + f" {words} " + rng.choice(["", "", "-"]) + "%}"
        if depth > 2 or rng.random() < 0.4:
            return rng.choice([
                lambda: "{{" + rng.choice(["", "", "-"]) + f" {exp()} " + rng.choice(["", "-"]) + "}}",
                lambda: rng.choice(["text", " ", "\n", "\n  ", "<b>", "{# no #}", "\n\n", "é", "{ }", "{%raw%}{{ x }}{% endraw %}"])])()
        body = lambda loop=in_loop: "".join(self.block(depth + 1, loop) for _ in range(rng.randrange(1, 4)))
        jump = lambda: tag(f"if {exp('truth', 2)}") + tag(rng.choice(["break", "continue"])) + tag("endif")
        about_loop = ["", "{{ loop.last }}{{ loop.length }}", "{{ loop.previtem }}{{ loop.nextitem is defined }}", "{{ loop.cycle('a', 'b') }}",
                      "{{ loop.changed(i) }}", "{{ loop.revindex0 }}{{ loop.depth }}"]
        return rng.choice([
            lambda: tag(f"if {exp('truth')}") + body() + tag(f"elif {exp('truth')}") + body() + tag("else") + body() + tag("endif"),
            lambda: tag(f"for i in {exp('list')}") + "{{ loop.index }}{{ i }}" + body(True) + tag("else") + body() + tag("endfor"),
            lambda: tag(f"for i in {rng.choice(['l', 'names', 'rows', 's', 'd', 'nested'])}{rng.choice(['', ' if i', ' if i != 3'])}") +
            rng.choice(about_loop) + jump() + body(True) + tag("endfor"),
            lambda: tag(f"for k, v in {rng.choice(['d.items()', 'nested', 'd | dictsort', 'd | items'])}") + "{{ k }}={{ v }}" + tag("endfor"),
            lambda: tag(f"set v = {exp()}") + "{{ v }}" + body(),
            lambda: tag("set v") + body() + tag("endset") + "{{ v | trim }}",
            lambda: tag("set ns = namespace(c=0)") + tag("for i in l") + tag("set ns.c = ns.c + i") + tag("endfor") + "{{ ns.c }}",
            lambda: tag("macro m(a, b=2)") + "{{ a }}|{{ b }}" + body(False) + tag("endmacro") + "{{ m(" + exp(depth=2) + ") }}",
            lambda: tag("macro w()") + "<{{ caller() }}>" + tag("endmacro") + tag("call w()") + body(False) + tag("endcall"),
            lambda: tag(f"filter {rng.choice(['upper', 'trim', 'lower', 'replace(' + repr('e') + ', 1)', 'length', 'wordcount', 'escape'])}") + body() + tag("endfilter"),
            lambda: tag(f"with q = {exp()}") + "{{ q }}" + body() + tag("endwith"),
            lambda: tag("generation") + body(False) + tag("endgeneration"),
        ])()

    def template(self):
        return "".join(self.block() for _ in range(self.rng.randrange(1, 4)))


class Comparison:
    def __init__(self, program):
        self.env = environment()
        self.program = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.num_equal = self.num_refused = 0
        self.different = []
        self.parsed = {}

    def expected(self, source, case):
        try:
            if source not in self.parsed:
                self.parsed[source] = self.env.from_string(source)
            return self.parsed[source].render(messages=case["messages"], bos_token=case["bos_token"], eos_token=case["eos_token"],
                                              add_generation_prompt=case["add_generation_prompt"], **case["variables"])
        except Exception as error:  # Python's own errors are a template's errors as well
            return error

    def compare(self, what, source, case):
        expected = self.expected(source, json.loads(json.dumps(case)))
        self.program.stdin.write((json.dumps({"template": source, **case}) + "\n").encode())
        self.program.stdin.flush()
        kind, _, digits = self.program.stdout.readline().decode().rstrip("\n").partition(" ")
        made = bytes.fromhex(digits).decode("utf-8", "replace")
        if isinstance(expected, Exception) and kind == "error":
            self.num_refused += 1
        elif kind == "text" and expected == made:
            self.num_equal += 1
        else:
            self.different.append(f"--- {what}\n{source if len(source) < 2000 else ''}\n{json.dumps(case) if len(source) >= 2000 else ''}\n"
                                  f"Jinja2: {expected!r}\ntroupe: {kind} {made!r}\n")


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("program")
    arguments.add_argument("folder")
    arguments.add_argument("--conversations", type=int, default=2000)
    arguments.add_argument("--templates", type=int, default=500)
    arguments.add_argument("--seed", type=int, default=1)
    arguments = arguments.parse_args()
    comparison = Comparison(arguments.program)
    published = [(path.name, path.read_text(encoding="utf-8")) for path in sorted(pathlib.Path(arguments.folder).glob("*.jinja"))]
    if not published:
        print(f"{arguments.folder} has no templates: no conversations are compared")
    for i in range(arguments.conversations if published else 0):
        rng = random.Random(arguments.seed * 1_000_003 + i)
        name, source = published[i % len(published)]
        comparison.compare(f"conversation {i}, {name}", source, conversation(rng))
    case = {"messages": [{"role": "user", "content": "Hi"}], "add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>",
            "variables": VARIABLES}
    for i in range(arguments.templates):
        comparison.compare(f"template {i}", Templates(random.Random(arguments.seed * 7_000_003 + i)).template(), case)
    print(f"{comparison.num_equal} equal, {comparison.num_refused} refused by both, {len(comparison.different)} different")
    for each in comparison.different[:20]:
        print(each)
    sys.exit(1 if comparison.different else 0)


main()
