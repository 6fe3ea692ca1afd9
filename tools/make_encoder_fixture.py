#!/usr/bin/env python3
"""Small encoders with random weights for tests, and what llama.cpp makes of texts with them.

    tools/make_encoder_fixture.py bert OUT.gguf
    tools/make_encoder_fixture.py nomic-bert OUT.gguf
    tools/make_encoder_fixture.py expect MODEL.gguf LLAMA_EMBEDDING OUT.json

Python 3 with numpy. The third form runs a built llama-embedding for each pooling and keeps ids and vectors.
"""
import json
import re
import struct
import subprocess
import sys
import tempfile

try:
    import numpy
except ImportError:
    sys.exit(f"This needs numpy, and {sys.executable} has none. Debian: apt-get install python3-numpy, and run this with "
             "/usr/bin/python3.")

DIM, LAYERS, HEADS, FFN, CONTEXT = 64, 2, 2, 96, 320
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = """the a an of to and in is it you that he was for on are with as his they at be this have from or one had by
word but not what all were we when your can said there use each which she do how their if will up other about out many
then them these so some her would make like him into time has look two more write go see number no way could people
my than first water been call who oil its now find long down day did get come made may part cat dog story king castle
once upon little girl boy forest tree sun moon star night light dark happy sad big small red blue green""".split()
PIECES = ["##s", "##ed", "##ing", "##er", "##est", "##ly", "##able", "##un", "##ness", "un", "re"]
LETTERS = list("abcdefghijklmnopqrstuvwxyz0123456789")
MARKS = list(".,!?;:'\"()-$%&") + ["\u4e2d", "\u6587", "\u201c", "\u201d"]
TEXTS = ["Once upon a time, there was a little girl in the forest.", "The sun is red; the moon is blue!", "cat",
         "Caf\u00e9 \u00dcBER-unhappily: 12345 (see \u4e2d\u6587) \u201cdogs\u201d", "king castle star night " * 70]


def vocabulary():
    tokens = SPECIAL + ["\u2581" + word for word in WORDS + LETTERS + MARKS]
    tokens += [piece[2:] if piece.startswith("##") else "\u2581" + piece for piece in PIECES]
    tokens += LETTERS  # that continue a word
    return list(dict.fromkeys(tokens))


class Gguf:
    def __init__(self, architecture):
        self.metadata, self.directory, self.data, self.counts = b"", b"", b"", [0, 0]
        self.add("general.architecture", architecture)
        self.prefix = architecture + "."

    @staticmethod
    def text(value):
        data = value.encode()
        return struct.pack("<Q", len(data)) + data

    def add(self, key, value):
        simple = {bool: (7, lambda v: bytes([v])), int: (4, lambda v: struct.pack("<I", v)),
                  float: (6, lambda v: struct.pack("<f", v)), str: (8, self.text)}
        if isinstance(value, list):
            kind, pack = {str: (8, self.text), int: (5, lambda v: struct.pack("<i", v))}[type(value[0])]
            payload = struct.pack("<IIQ", 9, kind, len(value)) + b"".join(map(pack, value))
        else:
            kind, pack = simple[type(value)]
            payload = struct.pack("<I", kind) + pack(value)
        self.metadata += self.text(key) + payload
        self.counts[1] += 1

    def tensor(self, name, values, half=False):
        shape = values.shape[::-1]
        self.directory += self.text(name) + struct.pack("<I", len(shape)) + struct.pack("<%dQ" % len(shape), *shape)
        self.directory += struct.pack("<IQ", 1 if half else 0, len(self.data))
        self.data += values.astype(numpy.float16 if half else numpy.float32).tobytes()
        self.data += bytes(-len(self.data) % 32)
        self.counts[0] += 1

    def write(self, path):
        head = b"GGUF" + struct.pack("<IQQ", 3, *self.counts) + self.metadata + self.directory
        with open(path, "wb") as out:
            out.write(head + bytes(-len(head) % 32) + self.data)


def write_model(architecture, path):
    numbers = numpy.random.default_rng(20240607)
    nomic = architecture == "nomic-bert"
    gguf = Gguf(architecture)
    tokens = vocabulary()
    gguf.add("general.name", "random " + architecture)
    for key, value in (("block_count", LAYERS), ("context_length", CONTEXT), ("embedding_length", DIM),
                       ("feed_forward_length", FFN), ("attention.head_count", HEADS),
                       ("attention.layer_norm_epsilon", 1e-12), ("attention.causal", False),
                       ("pooling_type", 1 if nomic else 2)):
        gguf.add(gguf.prefix + key, value)
    if nomic:
        gguf.add(gguf.prefix + "rope.freq_base", 1000.0)
    gguf.add("tokenizer.ggml.model", "bert")
    gguf.add("tokenizer.ggml.pre", "default")
    gguf.add("tokenizer.ggml.token_type_count", 2)
    gguf.add("tokenizer.ggml.tokens", tokens)
    gguf.add("tokenizer.ggml.token_type", [3] * len(SPECIAL) + [1] * (len(tokens) - len(SPECIAL)))
    for name, token in (("unknown", "[UNK]"), ("cls", "[CLS]"), ("bos", "[CLS]"), ("eos", "[SEP]"),
                        ("seperator", "[SEP]"), ("padding", "[PAD]"), ("mask", "[MASK]")):
        gguf.add("tokenizer.ggml.%s_token_id" % name, tokens.index(token))

    def normal(*shape, scale=1.0):
        return numbers.normal(0, scale, shape)

    def norm(name):
        gguf.tensor(name + ".weight", 1 + normal(DIM, scale=0.2))
        gguf.tensor(name + ".bias", normal(DIM, scale=0.2))

    def matrix(name, rows, columns, bias=not nomic):
        gguf.tensor(name + ".weight", normal(rows, columns, scale=1.5 * columns**-0.5), half=True)
        if bias:
            gguf.tensor(name + ".bias", normal(rows, scale=0.3))

    gguf.tensor("token_embd.weight", normal(len(tokens), DIM), half=True)
    gguf.tensor("token_types.weight", normal(2, DIM, scale=0.3))
    if not nomic:
        gguf.tensor("position_embd.weight", normal(CONTEXT, DIM, scale=0.5), half=True)
    norm("token_embd_norm")
    for layer in range(LAYERS):
        prefix = "blk.%d." % layer
        if nomic:
            matrix(prefix + "attn_qkv", 3 * DIM, DIM)
        else:
            for name in ("attn_q", "attn_k", "attn_v"):
                matrix(prefix + name, DIM, DIM)
        matrix(prefix + "attn_output", DIM, DIM)
        norm(prefix + "attn_output_norm")
        if nomic:
            matrix(prefix + "ffn_gate", FFN, DIM)
        matrix(prefix + "ffn_up", FFN, DIM)
        matrix(prefix + "ffn_down", DIM, FFN)
        norm(prefix + "layer_output_norm")
    gguf.write(path)


def expect(model, program, path):
    result = {"texts": TEXTS, "ids": [], "vectors": {}}
    for text in TEXTS:
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as prompt:
            prompt.write(text)
            prompt.flush()
            for pooling in ("mean", "cls", "last"):
                command = [program, "-m", model, "-f", prompt.name, "--pooling", pooling, "--embd-output-format",
                           "array", "--embd-separator", "<#none#>", "-t", "1", "-c", str(CONTEXT), "-b", "512", "-ub",
                           "512", "--verbose-prompt"]
                out = ""
                while "]]" not in out:  # it may end before all that it writes is out
                    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
                vector = json.loads(out[out.index("[["):out.rindex("]]") + 2])[0]
                result["vectors"].setdefault(pooling, []).append([round(x, 7) for x in vector])
        found = re.findall(r"^\s*(\d+) -> '", out, re.MULTILINE)
        result["ids"].append([int(each) for each in found])
    with open(path, "w") as out:
        json.dump(result, out)
        out.write("\n")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        write_model(sys.argv[1], sys.argv[2])
    elif len(sys.argv) != 5 or sys.argv[1] != "expect":
        sys.exit(__doc__)
    else:
        expect(*sys.argv[2:5])
