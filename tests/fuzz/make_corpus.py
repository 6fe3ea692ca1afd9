#!/usr/bin/env python3
"""Writes the seed corpora of the fuzz targets: tests/fuzz/corpus/TARGET/NAME, the same bytes every time.

    tests/fuzz/make_corpus.py
"""
import json
import pathlib
import random
import struct

CORPUS = pathlib.Path(__file__).parent / "corpus"


def write(target, name, data):
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


# Protobuf, by hand: a field is its number and wire type, then a varint, fixed bytes, or a length and bytes.
def varint(value):
    out = b""
    value &= (1 << 64) - 1
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def field(number, value):
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    return varint(number << 3) + varint(value)


def message(*fields):
    return b"".join(field(number, value) for number, value in fields)


def framed(body):
    return struct.pack("<I", len(body)) + body


def zigzag(value):
    return value << 1 ^ value >> 63


SAMPLING = message((1, 0.0), (2, zigzag(40)), (3, 0.9), (4, 0.05), (5, 1.1), (6, 0.2), (7, 0.3), (8, zigzag(-1)), (9, 7),
                   (10, 12), (11, 1), (12, message((1, 9), (2, -3.0))), (13, varint(5)))
GENERATE = message((1, 1), (2, "tales"), (3, "Once upon a time"), (6, 1), (7, SAMPLING), (8, "\n"), (9, 1000),
                   (10, zigzag(3)), (11, 64), (12, "public"), (13, 1), (14, 0), (15, 4))
FRAMES = {
    "hello": message((1, message((1, 1), (2, "client 1.0")))),
    "generate": message((2, GENERATE)),
    "ids": message((2, message((1, 2), (4, field(1, b"\x01\x05\x80\x02")), (11, 0)))),
    "cancel": message((3, message((1, 1)))),
    "credit": message((4, message((1, 1), (2, 100)))),
    "tokenize": message((5, message((1, 3), (3, "Once <s> upon"), (4, 1), (5, 1)))),
    "detokenize": message((6, message((1, 4), (3, b"\x01\x02\x80\x03")))),
    "models": message((7, message((1, 5)))),
    "status": message((8, message((1, 6)))),
    "health": message((9, message((1, 7)))),
    "embed": message((10, message((1, 8), (3, "embed me"), (3, "and me"), (5, 2), (6, 0)))),
    "embed-ids": message((10, message((1, 10), (4, field(1, b"\x01\x05\x80\x02")), (4, field(1, b"\x03"))))),
    "tools": message((2, message(
        (1, 12), (5, message((1, message((1, "user"), (2, "Hello"))),
                             (1, message((1, "assistant"), (6, message((1, "c1"), (2, "f"), (3, '{"a": 1}'))))),
                             (1, message((1, "tool"), (2, "no"), (7, "c1"), (8, 1))))),
        (11, 64), (29, "Well, "), (30, b"\x01\x02"), (31, message((1, "f"), (2, "It is f."), (3, '{"type": "object"}'))),
        (31, message((1, "g"))), (34, 0)))),
    "demanded": message((2, message((1, 13), (5, message((1, message((1, "user"), (2, "Hello"))))), (11, 64),
                                    (31, message((1, "f"))), (32, 2), (33, "f")))),
    "unserved": message((11, message((1, 9), (2, "model.gguf")))),
    "unknown": message((99, message((1, 9)))),
}


def frame_corpus():
    for name, body in FRAMES.items():
        write("frame", "body-" + name, b"\x03" + body)
    talk = b"".join(framed(FRAMES[name]) for name in FRAMES)
    write("frame", "conversation", b"\x00" + talk)
    write("frame", "conversation-in-pieces", b"\x1c" + talk)
    several = [FRAMES["hello"], message((2, message((1, 7), (3, "Once"), (6, 3), (11, 2)))),
               message((4, message((1, 7), (2, 5), (3, 2)))), message((4, message((1, 7), (2, 5)))),
               message((3, message((1, 7))))]
    write("frame", "choices", b"\x00" + b"".join(map(framed, several)))
    write("frame", "half", b"\x01" + talk[60:-7])
    write("frame", "http", b"\x00GET / HTTP/1.1\r\n\r\n")


def server_frame_corpus():
    tokens = message((2, message((1, 1), (4, b"\x05\x06"), (5, "ab"), (6, message((1, -0.5), (2, b"\x07\x08"))))))
    answers = {
        "tokens": tokens,
        "calls": message((2, message((1, 1), (4, b"\x05"), (7, message((2, "c1"), (3, "f"), (4, "{"))),
                                   (7, message((4, "}"), (5, 1)))))),
        "done": message((3, message((1, 1), (3, 1), (5, message((1, 3), (3, 2))), (7, 42)))),
        "refused": message((4, message((1, 1), (2, 106), (3, "full"), (4, "max"), (5, 3), (6, 1000)))),
        "closing": message((4, message((2, 106), (3, "go away"), (7, 1)))),
        "failed": message((5, message((1, 2), (2, 200), (3, "lost")))),
        "draining": message((11, message((1, "bye")))),
    }
    for name, body in answers.items():
        write("server_frame", name, b"\x00" + framed(body))
    write("server_frame", "both-streams", b"\x00" + framed(tokens) + framed(answers["failed"]) + framed(answers["done"]))
    welcome = message((1, message((1, 1), (2, "troupe"), (4, message((1, 4 << 20), (2, 64))), (5, message((2, 2))))))
    write("server_frame", "welcome", b"\x01" + framed(welcome))


# GGUF: the smallest models that load.
def text(value):
    data = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(data)) + data


class Gguf:
    def __init__(self):
        self.metadata, self.directory, self.data, self.num_metadata, self.num_tensors = b"", b"", b"", 0, 0
        self.entries = []  # where each tensor begins in directory and data

    def raw(self, key, kind, payload):
        self.metadata += text(key) + struct.pack("<I", kind) + payload
        self.num_metadata += 1

    def add(self, key, value):
        if isinstance(value, bool):
            self.raw(key, 7, bytes([value]))
        elif isinstance(value, int):
            self.raw(key, 4, struct.pack("<I", value))
        elif isinstance(value, float):
            self.raw(key, 6, struct.pack("<f", value))
        elif isinstance(value, str):
            self.raw(key, 8, text(value))
        else:
            kind, pack = {str: (8, text), int: (5, lambda v: struct.pack("<i", v)),
                          float: (6, lambda v: struct.pack("<f", v))}[type(value[0])]
            self.raw(key, 9, struct.pack("<IQ", kind, len(value)) + b"".join(map(pack, value)))

    def tensor(self, name, shape, numbers):
        count = 1
        for extent in shape:
            count *= extent
        self.entries.append((len(self.directory), len(self.data)))
        self.directory += text(name) + struct.pack("<I", len(shape)) + struct.pack("<%dQ" % len(shape), *shape)
        ternary = len(shape) == 2 and shape[0] % 128 == 0  # I2_S: four codes in a byte, then the tensor's scale
        self.directory += struct.pack("<IQ", 36 if ternary else 0, len(self.data))
        if ternary:
            self.data += bytes(numbers.choice((0x55, 0x96, 0x20, 0x8a)) for _ in range(count // 4))
            self.data += struct.pack("<f28x", 0.1)
        else:
            least = 1 if name.startswith("rope_f") else -1000  # factors divide
            self.data += b"".join(struct.pack("<f", numbers.randrange(least, 1001) / 4000) for _ in range(count))
        self.data += bytes(-len(self.data) % 32)
        self.num_tensors += 1

    def bytes(self):
        head = b"GGUF" + struct.pack("<IQQ", 3, self.num_tensors, self.num_metadata) + self.metadata + self.directory
        return head + bytes(-len(head) % 32) + self.data

    # The parts of a split model, one after another; they begin with these tensors, and the first has those before.
    def parts(self, *begins):
        files = b""
        ends = self.entries + [(len(self.directory), len(self.data))]
        borders = [0, *begins, self.num_tensors]
        for number, (first, last) in enumerate(zip(borders, borders[1:])):
            part = Gguf()
            if number == 0:
                part.metadata, part.num_metadata = self.metadata, self.num_metadata
            part.raw("split.no", 2, struct.pack("<H", number))
            part.raw("split.count", 2, struct.pack("<H", len(begins) + 1))
            part.raw("split.tensors.count", 5, struct.pack("<i", self.num_tensors))
            for (begin, offset), (end, _) in zip(ends[first:last], ends[first + 1:]):
                part.directory += self.directory[begin:end - 8] + struct.pack("<Q", offset - ends[first][1])
            part.data, part.num_tensors = self.data[ends[first][1]:ends[last][1]], last - first
            files += part.bytes()
        return files


def model(family, vocab_size, tokenizer, dim=4, begins=()):
    numbers = random.Random(1)
    gguf = Gguf()
    gguf.add("general.architecture", family)
    for key, value in (("block_count", 1), ("context_length", 16), ("embedding_length", dim), ("feed_forward_length", 4),
                       ("attention.head_count", 2), ("attention.head_count_kv", 1),
                       ("attention.layer_norm_rms_epsilon", 1e-5), ("rope.freq_base", 10000.0)):
        gguf.add(family + "." + key, value)
    if dim != 4:
        gguf.add(family + ".attention.key_length", 2)
    for key, value in tokenizer.items():
        gguf.add("tokenizer.ggml." + key, value)
    subs = [("attn_sub_norm", [4]), ("ffn_sub_norm", [4])] if family == "bitnet" else []
    gguf.tensor("token_embd.weight", [dim, vocab_size], numbers)
    for name, shape in [("attn_norm", [dim]), ("attn_q", [dim, 4]), ("attn_k", [dim, 2]), ("attn_v", [dim, 2]),
                        ("attn_output", [4, dim]), ("ffn_norm", [dim]), ("ffn_gate", [dim, 4]), ("ffn_up", [dim, 4]),
                        ("ffn_down", [4, dim])] + subs:
        gguf.tensor("blk.0." + name + ".weight", shape, numbers)
    gguf.tensor("output_norm.weight", [dim], numbers)
    return gguf.parts(*begins) if begins else gguf.bytes()


# A family whose layers have other tensors than a llama's, of two heads of 2 elements, one of them with k and v.
def family_model(family, metadata, tensors, others=()):
    numbers = random.Random(3)
    gguf = Gguf()
    gguf.add("general.architecture", family)
    for key, value in (("block_count", 2), ("context_length", 64), ("embedding_length", 4), ("feed_forward_length", 4),
                       ("attention.head_count", 2), ("attention.head_count_kv", 1),
                       ("attention.layer_norm_rms_epsilon", 1e-5), *metadata):
        gguf.add(family + "." + key, value)
    gguf.add("tokenizer.ggml.model", "no_vocab")
    gguf.tensor("token_embd.weight", [4, 8], numbers)
    for layer in range(2):
        for name, shape in [("attn_norm.weight", [4]), ("attn_output.weight", [4, 4]), ("ffn_norm.weight", [4]), *tensors]:
            gguf.tensor("blk.%d.%s" % (layer, name), shape, numbers)
    for name, shape in [("output_norm.weight", [4]), *others]:
        gguf.tensor(name, shape, numbers)
    return gguf.bytes()


def decoder_corpus():
    qkv = [("attn_q.weight", [4, 4]), ("attn_k.weight", [4, 2]), ("attn_v.weight", [4, 2])]
    biases = [("attn_q.bias", [4]), ("attn_k.bias", [2]), ("attn_v.bias", [2])]
    head_norms = [("attn_q_norm.weight", [2]), ("attn_k_norm.weight", [2])]
    ffn = [("ffn_gate.weight", [4, 4]), ("ffn_up.weight", [4, 4]), ("ffn_down.weight", [4, 4])]
    posts = [("post_attention_norm.weight", [4]), ("post_ffw_norm.weight", [4])]
    experts = [("ffn_gate_inp.weight", [4, 3]), ("ffn_gate_exps.weight", [4, 4, 3]), ("ffn_up_exps.weight", [4, 4, 3]),
               ("ffn_down_exps.weight", [4, 4, 3])]
    shared = [("ffn_gate_inp_shexp.weight", [4]), ("ffn_gate_shexp.weight", [4, 4]), ("ffn_up_shexp.weight", [4, 4]),
              ("ffn_down_shexp.weight", [4, 4])]
    window = ("attention.sliding_window", 8)
    counts = (("expert_count", 3), ("expert_used_count", 2), ("expert_feed_forward_length", 4))
    write("gguf", "gemma2", family_model("gemma2", (window, ("attn_logit_softcapping", 50.0)), qkv + ffn + posts))
    write("gguf", "gemma3", family_model("gemma3", (window,), qkv + head_norms + ffn + posts))
    write("gguf", "phi3", family_model(
        "phi3", (window, ("rope.scaling.original_context_length", 32), ("rope.scaling.attn_factor", 1.25)),
        [("attn_qkv.weight", [4, 8]), ("ffn_up.weight", [4, 8]), ("ffn_down.weight", [4, 4])],
        [("rope_factors_long.weight", [1]), ("rope_factors_short.weight", [1])]))
    write("gguf", "qwen2moe", family_model("qwen2moe", (*counts, ("expert_shared_feed_forward_length", 4)),
                                           qkv + biases + experts + shared))
    write("gguf", "qwen3moe", family_model(
        "qwen3moe", (*counts, ("rope.scaling.type", "yarn"), ("rope.scaling.factor", 4.0)), qkv + head_norms + experts))


def encoder(family, dim=4):
    numbers = random.Random(2)
    gguf = Gguf()
    gguf.add("general.architecture", family)
    for key, value in (("block_count", 1), ("context_length", 8), ("embedding_length", dim), ("feed_forward_length", 4),
                       ("attention.head_count", 2), ("attention.layer_norm_epsilon", 1e-5), ("pooling_type", 1),
                       ("attention.causal", False)):
        gguf.add(family + "." + key, value)
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "\u2581a", "a", "\u2581,"]
    for key, value in {"model": "bert", "tokens": tokens, "token_type": [3, 3, 3, 3, 1, 1, 1], "cls_token_id": 2,
                       "seperator_token_id": 3, "unknown_token_id": 1}.items():
        gguf.add("tokenizer.ggml." + key, value)
    nomic = family == "nomic-bert"
    gguf.tensor("token_embd.weight", [dim, len(tokens)], numbers)
    gguf.tensor("token_types.weight", [dim, 2], numbers)
    if not nomic:
        gguf.tensor("position_embd.weight", [dim, 8], numbers)
    joined = [("attn_qkv", [dim, 3 * dim]), ("ffn_gate", [dim, 4])]
    apart = [("attn_q", [dim, dim]), ("attn_k", [dim, dim]), ("attn_v", [dim, dim])]
    matrices = (joined if nomic else apart) + [("attn_output", [dim, dim]), ("ffn_up", [dim, 4]), ("ffn_down", [4, dim])]
    for name, shape in matrices:
        gguf.tensor("blk.0." + name + ".weight", shape, numbers)
        if not nomic:
            gguf.tensor("blk.0." + name + ".bias", shape[1:], numbers)
    for name in ("token_embd_norm", "blk.0.attn_output_norm", "blk.0.layer_output_norm"):
        gguf.tensor(name + ".weight", [dim], numbers)
        gguf.tensor(name + ".bias", [dim], numbers)
    return gguf.bytes()


def gguf_corpus():
    decoder_corpus()
    write("gguf", "bert", encoder("bert"))
    write("gguf", "nomic-bert", encoder("nomic-bert"))
    write("gguf", "llama-no-vocabulary", model("llama", 8, {"model": "no_vocab"}))
    write("gguf", "split-in-two", model("llama", 8, {"model": "no_vocab"}, begins=(0,)))
    write("gguf", "split-in-three", model("llama", 8, {"model": "no_vocab"}, begins=(4, 9)))
    write("gguf", "bitnet-no-vocabulary", model("bitnet", 8, {"model": "no_vocab"}))
    write("gguf", "bitnet-i2_s", model("bitnet", 8, {"model": "no_vocab"}, dim=128))
    pieces = ["<unk>", "<s>", "</s>", "<0x0A>", "\u2581", "a", "n", "\u2581a", "an"]
    write("gguf", "llama-sentencepiece", model("llama", len(pieces), {
        "model": "llama", "tokens": pieces, "token_type": [2, 3, 3, 6, 1, 1, 1, 1, 1],
        "scores": [0.0, 0.0, 0.0, 0.0, -1.0, -2.0, -3.0, -1.5, -2.5], "bos_token_id": 1, "eos_token_id": 2,
        "add_bos_token": True, "add_space_prefix": True}))
    words = ["a", "n", "\u0120", "an", "\u0120an", "<|end|>"]
    write("gguf", "llama-byte-pairs", model("llama", len(words), {
        "model": "gpt2", "pre": "llama-bpe", "tokens": words, "token_type": [1, 1, 1, 1, 1, 3],
        "merges": ["a n", "\u0120 an"], "eos_token_id": 5}))
    write("gguf", "llama-rwkv", model("llama", 5, {
        "model": "rwkv", "tokens": ["<s>", "a", "\\x0a\\n", "\\xe4\\xb8", "[PAD4]"], "token_type": [3, 1, 1, 1, 5],
        "eot_token_id": 2}))
    write("gguf", "llama-wordpiece", model("llama", 7, {
        "model": "bert", "tokens": ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "\u2581a", "a", "\u2581,"],
        "token_type": [3, 3, 3, 3, 1, 1, 1], "cls_token_id": 2, "seperator_token_id": 3, "unknown_token_id": 1,
        "normalizer.lowercase": True}))


def sampler_corpus():
    write("sampler", "neutral", struct.pack("<fiffff", 1.0, 0, 1.0, 0.0, 1.0, 0.0) + struct.pack("<fhQbB", 0.0, 64, 7, -1, 0)
          + b"\0\0" + struct.pack("<6f", 1, 2, 3, 4, 5, 6))
    full = struct.pack("<fiffff", 0.8, 40, 0.95, 0.05, 1.1, 0.2) + struct.pack("<fhQbB", 0.3, -1, 1 << 63, 4, 1)
    full += b"\x02" + struct.pack("<hfhf", 9, -3.0, 10, float("-inf")) + b"\x01" + struct.pack("<h", 5)
    write("sampler", "everything", full + struct.pack("<8f", float("nan"), float("inf"), float("-inf"), 0, 1, 2, 3, 4))
    greedy = struct.pack("<fiffff", 0.0, 0, 1.0, 0.0, 1.0, 0.0) + struct.pack("<fhQbB", 0.0, 0, 0, 20, 0) + b"\0\0"
    write("sampler", "greedy", greedy)
    for name, ids in {"bias-outside": b"\x01" + struct.pack("<hf", 257, 1.0) + b"\0",
                      "stop-outside": b"\0\x01" + struct.pack("<h", -1)}.items():
        write("sampler", name, greedy[:-2] + ids)


def metadata_corpus():
    # A model; for each change a key, a byte that is no multiple of 8 (else the key is removed), a type and a value.
    def change(key, kind, value=b""):
        return bytes([key, 1, kind]) + value

    write("metadata", "unchanged", b"\x00")
    write("metadata", "removed", bytes([0, 20, 0, 44, 0, 60, 8]))
    for kind, (name, value) in enumerate({
            "integer": struct.pack("<q", -1), "small": b"\x02", "number": struct.pack("<d", 1e300),
            "float": struct.pack("<f", float("nan")), "flag": b"\x01", "text": b"linear\0", "integers": b"\x02\x01\x02",
            "numbers": b"\x01" + struct.pack("<f", 2.5), "texts": b"\x02a\0b\0", "skipped": b""}.items()):
        for model in (kind, kind + 4):
            keys = [(model * 5 + kind * 7 + i * 11) % 76 for i in range(3)]
            write("metadata", "%s-%d" % (name, model), bytes([model]) + b"".join(change(key, kind, value) for key in keys))


def sequence_file_corpus():
    def edits(*each):
        return b"".join(struct.pack("<IBB", *edit) for edit in each)

    write("sequence_file", "unchanged", b"\x00")
    write("sequence_file", "no-such-file", b"\x01troupeKV")
    write("sequence_file", "version", b"\x02" + edits((8, 0, 5)))
    write("sequence_file", "old", b"\x04")
    write("sequence_file", "old-fewer-tokens", b"\x06" + edits((44, 0, 32), (48, 0, 31), (52, 0, 1)))
    write("sequence_file", "old-named-new", b"\x06" + edits((8, 0, 4)))
    write("sequence_file", "fewer-tokens", b"\x02" + edits((44, 0, 32), (48, 0, 31), (52, 0, 1)))
    write("sequence_file", "many-tokens", b"\x02" + edits((46, 0, 255)))
    write("sequence_file", "cut", b"\x02" + edits((5000, 2, 0)))
    write("sequence_file", "longer", b"\x02" + edits((0, 3, 1)))
    write("sequence_file", "damaged-block", b"\x00" + edits((4000, 1, 1)))
    write("sequence_file", "other-contents", b"\x02" + edits((4000, 1, 77), (4001, 0, 127), (9000, 0, 252)))
    # One number each that only its own check can find: the checksums are right. Kind 4: from the first token on, of
    # which there are 75, 70 of them computed.
    for name, each in {
            "magic": [(0, 0, ord("T"))], "version-0": [(8, 0, 0)], "model-hash": [(16, 1, 1)], "created": [(24, 1, 1)],
            "content-bytes": [(32, 1, 64), (0, 3, 1)], "block-size": [(40, 1, 1)],
            "computed-too-many": [(48, 0, 76)], "computed-all": [(48, 0, 75)], "computed-none": [(48, 0, 0)],
            "answers": [(56, 1, 1)], "layout": [(60, 1, 1)], "digests": [(68, 1, 1)], "numerics-id": [(84, 1, 1)],
            "token-negative": [(4 * 70 + 3, 4, 255)], "token-too-large": [(4 * 70 + 2, 4, 127)],
            "token-other": [(4 * 70, 5, 1)], "anchor": [(4 * 75 + 4, 5, 1)],
            "no-tokens": [(44, 0, 0), (48, 0, 0), (52, 0, 0)],
            "a-block-too-many": [(48, 0, 64)]}.items():
        write("sequence_file", name, b"\x02" + edits(*each))
    write("sequence_file", "damaged-header", b"\x00" + edits((48, 0, 69)))


def weights_file_corpus():
    def edits(*each):
        return b"".join(struct.pack("<IBB", *edit) for edit in each)

    write("weights_file", "unchanged", b"\x00")
    write("weights_file", "no-such-file", b"\x01troupeWC" + bytes(120))
    write("weights_file", "damaged", b"\x00" + edits((130, 1, 1)))
    write("weights_file", "stamp", b"\x00" + edits((70, 1, 1)))
    # One number each that only its own check can find: the checksum is right. Matrices are at 128, 56 bytes each.
    for name, each in {
            "magic": [(0, 0, ord("T"))], "version": [(8, 1, 1)], "recipe": [(12, 1, 1)], "variant": [(44, 0, 1)],
            "variant-after-its-end": [(47, 0, 1)], "file-bytes": [(48, 1, 1)], "fewer": [(56, 0, 3)],
            "more": [(56, 0, 5)], "most": [(58, 0, 255)], "reserved": [(60, 0, 1)], "cut": [(200, 2, 0)],
            "longer": [(0, 3, 7)], "inside-header": [(136, 0, 0), (137, 0, 0)], "crooked": [(136, 1, 64)],
            "behind-the-end": [(139, 0, 1)], "offset-wraps": [(143, 0, 255)], "type": [(144, 0, 77)],
            "layout": [(148, 0, 3)], "tiles-of-f32": [(148, 0, 2)], "no-rows": [(152, 0, 0)],
            "many-rows": [(157, 0, 255)], "no-k": [(160, 0, 0)], "k-no-group": [(216, 1, 1)],
            "many-k": [(167, 0, 255)], "body-bytes": [(168, 1, 1)], "body-wraps": [(175, 0, 255)],
            "overlap": [(193, 0, 16)], "checksum": [(176, 1, 1)], "name": [(128, 1, 1)]}.items():
        write("weights_file", name, b"\x02" + edits(*each))
    write("weights_file", "file-of-that-size", b"\x06" + edits((50, 1, 1)))
    write("weights_file", "huge-file", b"\x06" + edits((54, 1, 255), (195, 0, 255), (250, 0, 1)))


def tokenizer_corpus():
    texts = {
        "story": "Once upon a time, there was a little girl's cat. It's 12345 years old!\n\n  The END  ",
        "scripts": "caf\u00e9 \u4e2d\u6587 \u0421\u043b\u043e\u0432\u043e \u0645\u0631\u062d\u0628\u0627 \U0001f642\u200d "
                   "\u00a0\u180e\u3000\u0301",
        "special": "<s>a</s><|end|> <|end|><0x0A><unk>",
        "code": "if (a<=b) { return x[0]+=1; }\t// \r\n\r\n\t\tdone",
        "runs": "aaaaaaaaaaaaaaaa                7777777777777777''''\n\n\n\n" + "\u2581" * 4,
    }
    for number, (name, value) in enumerate(texts.items()):
        write("tokenizer", name, bytes([number * 2 % 11, number % 4]) + value.encode())
    rwkv, wordpiece = 20, 21  # the last two of the target's list
    for name, value in texts.items():
        write("tokenizer", "rwkv-" + name, bytes([rwkv, 1]) + value.encode())
        write("tokenizer", "wordpiece-" + name, bytes([wordpiece, 1]) + value.encode())
    write("tokenizer", "no-utf8-rwkv", bytes([rwkv, 0]) + b"a\xff\xc0\xaf\xed\xa0\x80\xe4\xb8 \x80b\0c")
    write("tokenizer", "no-utf8-wordpiece", bytes([wordpiece, 0]) + b"a\xff\xc0\xaf\xed\xa0\x80\xe4\xb8 \x80b\0c")
    write("tokenizer", "no-utf8", b"\x01\x01a\xff\xc0\xaf\xed\xa0\x80\xe4\xb8 \x80b\0c")
    write("tokenizer", "no-utf8-pieces", b"\x00\x00a\xff\xc0\xaf\xed\xa0\x80\xe4\xb8 \x80b\0c")


def config_corpus():
    write("config", "serve-flags", b"\x00-m\nmodel.gguf\n--ctx-size=4096\n-t\n4\n--allow-uid\n1000,1001\n\n\n")
    write("config", "serve-file", b"\x00\n\nctx-size = 1024\nmemory = \"4GiB\"\nallow-uid = [1, 2]\n"
                                  b"drain-timeout = \"30s\"\nlog-level = \"debug\" # why not\n")
    write("config", "serve-tenants", b"\x00\n\n[[tenant]]\nname = \"web\"\nuid = [33, 34]\nuser = \"www-data\"\n"
                                     b"group = [\"staff\"]\ncgroup = \"/system.slice/web.service\"\nweight = 2.5\n"
                                     b"cache-scope = \"public\"\nmin-kv-blocks = 64\nmax-kv-blocks = 512\n"
                                     b"trusted-proxy = true\n\n[[tenant]]\ndefault = true\n"
                                     b"most-urgent-priority = 100\nmax-choices = 1\n")
    write("config", "run-all", b"\x01--temp\n0.7\n-n\n12\n--stop\nend\n--logit-bias\n5-1\nOnce upon\n--\n-x\n\n"
                               b"TROUPE_SEED=-1\nTROUPE_TOP_K=3\nTROUPE_TYPO=1\n\nmin-p = 0.1\nstop = [\"a\", \"b\"]\n")
    write("config", "bench", b"\x02-p\n1,2,3\n-n\n4\n-b\n1,8\n\nTROUPE_THREADS=2\n\nrepetitions = 3\n")
    write("config", "unknown", b"\x00--ctx-sise\n3\n\n\n[table]\nmemory = 12\n")


def api_corpus():
    turns = b'"messages":[{"role":"user","content":[{"type":"text","text":"<think>a</think>b"}]}]'
    sampling = (b'"temperature":0.5,"top_p":0.9,"n":2,"stop":["x"],"logit_bias":{"5":-100},"seed":"7",'
                b'"presence_penalty":1,"max_tokens":9,"metadata":{"k":"v"},"user":"u","stream":true')
    for name, data in {
        "chat": b"\0{" + turns + b',"logprobs":true,"top_logprobs":2,"reasoning":{"effort":"low"},' + sampling + b"}",
        "completion": b'\1{"prompt":[1,2],"logprobs":3,"best_of":2,"n":2}',
        "echo": b'\1{"prompt":"Once","echo":true,"stream":true,"stream_options":{"include_usage":true}}',
        "embedding": b'\2{"input":[[1],[2,3]],"encoding_format":"base64","dimensions":2}',
        "response": b'\3{"instructions":"i","input":[{"role":"user","content":"a"},{"type":"reasoning","summary":[],'
                    b'"content":[{"type":"reasoning_text","text":"b"}]},{"role":"assistant","content":[{'
                    b'"type":"output_text","text":"c","annotations":[]}]}],"stream":true}',
        "messages": b'\4{"max_tokens":9,"system":[{"type":"text","text":"s"}],"thinking":{"type":"enabled",'
                    b'"budget_tokens":2},' + turns + b',"stop_sequences":["x"],"stream":true}',
        "count": b"\5{" + turns + b"}",
        "tokenize": b'\6{"content":"a","with_pieces":true}',
        "detokenize": b'\7{"tokens":[1,2]}',
        "template": b"\x08{" + turns + b',"chat_template_kwargs":{"a":[1,{"b":null}]}}',
        "custom": b"\0{" + turns + b',"tools":[{"type":"custom","custom":{"name":"c","format":{"type":"text"}}}],'
                  b'"tool_choice":{"type":"custom","custom":{"name":"c"}}}',
        "namespace": b'\3{"input":[{"type":"custom_tool_call","call_id":"1","namespace":"n","name":"c","input":"a"},'
                     b'{"type":"custom_tool_call_output","call_id":"1","output":"b"}],"tools":[{"type":"namespace",'
                     b'"name":"n","description":"d","tools":[{"type":"function","name":"f","strict":false},'
                     b'{"type":"custom","name":"c"}]}],"stream":true}',
        "twice": b'\1{"prompt":"a","prompt":"b"}',
        "deep": b'\1{"prompt":' + b"[" * 40 + b"]" * 40 + b"}",
    }.items():
        write("api", name, data)


def http_corpus():
    host = b"Host: localhost\r\n"
    post = b"POST /tokenize HTTP/1.1\r\n" + host
    body = b'{"content":"Once"}'
    length = b"Content-Length: %d\r\n" % len(body)
    chunks = b"5;a=\"b\"\r\n" + body[:5] + b"\r\nD\r\n" + body[5:] + b"\r\n0\r\nX-Sum: 1\r\n\r\n"
    cut = b"\x07\x40"  # the seed of the cuts, and the limit of bodies in KiB
    for name, data in {
        "get": b"GET /v1/models/a%2fb?x=y HTTP/1.1\r\n" + host + b"Accept: */*\r\nOrigin: http://localhost\r\n\r\n",
        "post": post + length + b"Content-Type: application/json\r\nExpect: 100-continue\r\n\r\n" + body,
        "chunked": post + b"Transfer-Encoding: chunked\r\nConnection: close, TE\r\n\r\n" + chunks,
        "pipelined": (post + length + b"\r\n" + body) * 2 + b"\r\nHEAD / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
        "absolute": b"OPTIONS http://[::1]:80 HTTP/1.1\r\n" + host + b"\r\nOPTIONS * HTTP/1.1\r\n" + host + b"\r\n",
        "smuggled": post + length + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\n" + host + b"\r\n",
        "folded": b"GET / HTTP/1.1\r\n" + host + b"X: a\r\n b\r\n\r\n",
        "bare": b"GET / HTTP/1.1\n" + host + b"X: a\rb\r\n\r\n",
    }.items():
        write("http", name, cut + data)


def chat_template_corpus():
    # The small templates that tell Jinja2's language (tools/chat/language_cases.txt), and turns of a conversation.
    cases = (pathlib.Path(__file__).parents[2] / "tools/chat/language_cases.txt").read_text(encoding="utf-8")
    for number, source in enumerate(cases.split("\n====\n")):
        if number % 8 == 0:
            write("chat_template", "language-%d" % number, b"\x1f" + source.encode())
    turns = "{%- for m in messages -%}{{ '<|' + m.role + '|>' + m.content | trim + eos_token }}{%- endfor -%}"
    write("chat_template", "turns", b"\x09" + turns.encode() + b'\0{"enable_thinking": false, "n": [1, 2.5]}')
    calls = ("{% for m in messages %}{% if m.tool_calls is defined %}{% for c in m.tool_calls %}{{ c | tojson(indent=2) }}"
             "{% endfor %}{% endif %}{% endfor %}{{ tools | tojson }}{{ strftime_now('%d %b %Y') }}")
    write("chat_template", "calls", b"\x17" + calls.encode())


def tool_calls_corpus():
    # The first byte is the place of a format in engine/chat/tools/tool_format.cpp.
    for name, place, answer in (
        ("tags", 10, "See.\n<tool_call>\n<function=f>\n<parameter=s>\na\n</parameter>\n<parameter=n>\n5\n</parameter>\n"
                     "</function>\n</tool_call>"),
        ("pairs", 9, "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>a</arg_value>\n</tool_call>"),
        ("data", 12, '<function name="f"><param name="s"><![CDATA[a]]></param></function>'),
        ("attributes", 0, '<｜DSML｜function_calls>\n<｜DSML｜invoke name="f">\n<｜DSML｜parameter name="n" string="false">[1]'
                          "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>"),
        ("named", 2, "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{}\n```<｜tool▁call▁end｜>"
                     "<｜tool▁calls▁end｜>"),
        ("indexed", 4, "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}"
                       "<|tool_call_end|><|tool_calls_section_end|>"),
        ("gemma", 14, '<|tool_call>call:f{s:<|"|>a<|"|>,n:[1,{x:null}]}<tool_call|>'),
        ("python", 15, "<|tool_call_start|>[f(s='a\\n', n=(1, None)), f(s=\"\"\"b\"\"\")]<|tool_call_end|>"),
        ("list", 17, '[TOOL_CALLS][{"name": "f", "arguments": {"s": "\\u00e9"}}, {"arguments": "{}", "name": "f"}]'),
        ("messages", 18, " to=functions.f<|channel|>commentary json<|message|>{}<|call|><|start|>assistant<|channel|>final"
                         "<|message|>a"),
        ("recipients", 19, "all\na>>>f\n{}"),
        ("keyed", 20, '<|tools_prefix|>[{"f": {"s": ""}}]<|tools_suffix|>'),
        ("object", 26, '<tool_call>{"function": {"name": "f", "x": [1], "parameters": {}}}</tool_call>'),
        ("bare", 27, '{"name": "f", "parameters": {"s": "a"}}; {"name": "f", "parameters": {}}'),
    ):
        write("tool_calls", name, bytes([place, 1]) + answer.encode())


def schema_corpus():
    """A schema, a zero byte, and bytes that choose a text of it."""
    for name, schema in (
        ("object", '{"type":"object","properties":{"a":{"type":"integer","minimum":-3},"b":{"type":"string","maxLength":4}},'
                   '"required":["a"],"additionalProperties":false}'),
        ("list", '{"type":"array","prefixItems":[{"const":1}],"items":{"enum":["x",null,{"y":[]}]},"minItems":2,"maxItems":5}'),
        ("unique", '{"type":"array","uniqueItems":true,"items":{"enum":[1,2,3]},"contains":{"const":2}}'),
        ("contains", '{"type":"array","contains":{"type":"null"},"minContains":2,"maxItems":6}'),
        ("recursion", '{"$defs":{"t":{"type":"object","properties":{"l":{"$ref":"#/$defs/t"}}}},"$ref":"#/$defs/t"}'),
        ("alternatives", '{"oneOf":[{"type":"integer","multipleOf":3},{"type":"number","maximum":4}],"not":{"const":2}}'),
        ("condition", '{"type":"object","if":{"required":["a"]},"then":{"required":["b"]},"else":{"maxProperties":1}}'),
        ("names", '{"type":"object","patternProperties":{"^a":{"type":"null"},"b$":{"const":1}},"propertyNames":{"maxLength":3},'
                  '"minProperties":1,"maxProperties":2,"dependentRequired":{"a":["ab"]}}'),
        ("formats", '{"type":"object","properties":{"d":{"format":"date-time"},"e":{"format":"email"},"u":{"format":"uri"}}}'),
        ("draft4", '{"$schema":"http://json-schema.org/draft-04/schema#","type":"number","minimum":0.5,"exclusiveMinimum":true,'
                   '"maximum":2,"id":"http://x/y"}'),
        ("negation", '{"not":{"anyOf":[{"type":["object","array"]},{"minLength":2},{"pattern":"^a"}]}}'),
        ("refused", '{"unevaluatedProperties":false,"properties":{"a/b":{"$dynamicRef":"#x"}}}'),
    ):
        write("schema", name, schema.encode() + b"\0" + bytes(range(7, 250, 9)) + b'"a":1,[{}]')


def call_grammar_corpus():
    """A format, a wish, tools, a zero byte, and bytes that choose a text of their calls."""
    def tool(name, parameters=None):
        function = {"name": name} if parameters is None else {"name": name, "parameters": parameters}
        return {"type": "function", "function": function}
    typed = {"type": "object", "properties": {
        "s": {"type": "string", "maxLength": 9}, "n": {"type": "integer", "minimum": 1},
        "e": {"enum": ["a", "</s>", 3, None]}, "a": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2},
        "o": {"type": "object", "properties": {"x": {"type": ["string", "number"]}}, "required": ["x"]}},
        "required": ["s", "e"], "additionalProperties": False}
    lists = {
        "typed": [tool("f", typed), tool("g", {"type": "object"}), tool("f2")],
        "free": [tool("f", {}), tool("fine", {"type": "object", "properties": {"input": {"type": "string"}}})],
        "odd": [tool("f", {"unevaluatedItems": False}), tool("g", {"type": "string"}), tool("h", False)],
        "recursive": [tool("f", {"type": "object", "properties": {"c": {"$ref": "#"}}, "maxProperties": 2})],
    }
    for index in range(32):
        name = list(lists)[index * 7 % 4] if index % 3 else "typed"
        write("call_grammar", f"{name}_{index}", bytes([index, index * 5 % 16]) + json.dumps(lists[name]).encode() +
              b"\0" + bytes(range(index, 250, 11)) + b'{"s": 1}</s>')
    # Beginnings of calls in free texts, by the number of their format.
    for name, index, text in (
        ("functools", 25, 'So: functools [{"name": "g'), ("gpt_oss", 18, "<|channel|>analysis to=f code<|message|>{"),
        ("llama_3", 27, '{"type": "function", "name": "f"'), ("nested", 27, '{"function": {"name": "f2", '),
        ("arguments_first", 27, '{"parameters": {"s": 1}, "name": "f"}'), ("pythonic", 28, "[f (s=1"),
        ("functionary", 19, "all\nWell.>>>f\n{}>>>g\n"), ("glm", 9, "So <tool_call>f<arg_key>"),
    ):
        write("call_grammar", f"begun_{name}", bytes([index, 1]) + json.dumps(lists["typed"]).encode() + b"\0" +
              text.encode() + bytes(range(31, 250, 7)) + text.encode())


def gbnf_corpus():
    """A grammar, a zero byte, and bytes that choose a text of it."""
    for name, grammar in (
        ("list", '# a list\nroot ::= item ("," ws item){0,4}\nitem ::= [a-z_]+ | "\\"" [^"\\\\\\x00-\\x1F]* "\\""\nws ::= [ \\t]?'),
        ("lines", 'root ::= (\r\n  "a" |\n\n  # remark\n  b\n)+\nb ::= "b"\n  | "\\u00e9\\U0001F600" . [^\u3041-\u309f\\]-]'),
        ("left", 'root ::= sum\nsum ::= sum "+" product | product\nproduct ::= product "*" atom | atom\n'
                 'atom ::= [0-9]{1,3} | "(" sum ")"'),
        ("mutual", 'root ::= a\na ::= b "x" | "1"\nb ::= a "y" | "(" a ")"'),
        ("linear", 'root ::= digits ("." digits)? ws\ndigits ::= [0-9] digits | [0-9]\nws ::= ws " " |'),
        ("nested", 'root ::= ((("(" root? ")"){2}){1,3} | "")*'),
        ("empty", 'root ::= a* b\na ::= | b a\nb ::= "x"? "y"'),
        ("hidden", 'root ::= "x"? root "y" | "z"'),
        ("no_text", 'root ::= "a" b\nb ::= "b" root'),
        ("doubled", "root ::= a a\na ::= b b\nb ::= c c\nc ::= d d\nd ::= e e\ne ::= f f\nf ::= g g\ng ::= h h\nh ::= i i\n"
                    'i ::= j j\nj ::= k k\nk ::= l l\nl ::= "x"? root?'),
        ("lark", 'start: item+\nitem: "a".."z"'),
        ("tokens", "root ::= <think> .* !<[7]>"),
    ):
        write("gbnf", name, grammar.encode() + b"\0" + bytes(range(7, 250, 9)) + b'"a",1+(2*x)')


def pattern_corpus():
    # The first byte is whether a text must match from its begin to its end.
    conditions = r"^(?!\s*$)(?=.*\d)((?!foo).)*$|\bx(a$|,|^b)+\B"
    classes = r"[^\w\-.]\p{Lu}\u{1F600}[\ud83d\ude00-\ud83d\ude4f]?\x41\cJ\t[\]a-\d]{2,5}?(?<n>.|\n){3,}"
    for name, extent, pattern, text in (
        ("conditions", 0, conditions, "a1,b"),
        ("classes", 1, classes, "!A\U0001F600A\n\t]]xyz"),
        # Exponential elsewhere.
        ("same_branches", 0, "^(a|a)*b$", "a" * 60),
        ("nested_stars", 0, "((a*)*)*b", "a" * 60),
        ("nested_plus", 0, "^(([a-z])+.)+[A-Z]([a-z])+$", "a" * 60),
        ("optional", 1, "a?" * 30 + "a" * 30, "a" * 45),
        ("dots", 0, "^(.*.*)*(.*a){20}$", "a" * 60),
        ("counts", 0, "(((a{100}){100}){100})", "a" * 200),
        ("wide_counts", 0, "(x+x+)+y|a{0,5000}a{5000}", "x" * 60),
        ("subsets", 0, "(a|b)*a(a|b){25}c", "ab" * 40),
        ("factors", 0, "^(?=(aa)*$)(?=(aaa)*$)(?=(a{5})*$)(?=(a{7})*$)(?=(a{11})*$)(?=(a{13})*$)(?=(a{17})*$)a+$", "a" * 60),
        ("copies", 0, r"((((\ba?){99}){99}){99})", "a"),
        ("long", 0, "a" * 3000, "a" * 3000),
    ):
        write("pattern", name, bytes([extent]) + pattern.encode() + b"\0" + text.encode())


def pull_corpus():
    sha = "a" * 64
    row = {"type": "file", "path": "Q8_0/tiny-Q8_0.gguf", "size": 5, "lfs": {"oid": sha, "size": 500_000}}
    listing = [{"type": "directory", "path": "Q8_0"}, row, {**row, "path": "tiny-Q4_0.gguf"}, {**row, "path": "../x.gguf"},
               *({**row, "path": f"tiny-BF16-0000{number}-of-00002.gguf"} for number in (1, 2))]
    image = {"layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:" + sha, "size": 5}]}
    record = {"version": 1, "name": "org/tiny:Q8_0", "source": "org/tiny", "revision": "", "quant": "Q8_0", "family": "llama",
              "pulled": 1_795_953_600, "files": [{"name": "tiny.gguf", "sha256": sha, "bytes": 5, "url": "https://h/x", "etag": "e"}]}
    state = {"version": 1, "url": "https://h/x", "sha256": sha, "etag": "e", "size": 100, "done": [[0, 10], [50, 100]]}
    for kind, values in enumerate((
            [json.dumps(listing)], [json.dumps(image)], [json.dumps(record)], [json.dumps(state)],
            ["org/name@v1:Q4_K_M", "https://hf.co/org/name/blob/main/x.gguf", "ollama://h.org/me/x:1b", "https://h/a%20b.gguf?x"],
            ["//g:80/x?y#z", "https://[::1]:5/x", "../b%2f"],
            ["bytes 0-9/10", "Sun, 29 Nov 2026 12:01:30 GMT", '<https://h/b>; rel="next"', "ETag: \"x\""])):
        for number, value in enumerate(values):
            write("pull", f"{kind}-{number}", bytes([kind]) + value.encode())


if __name__ == "__main__":
    pull_corpus()
    api_corpus()
    call_grammar_corpus()
    gbnf_corpus()
    pattern_corpus()
    schema_corpus()
    tool_calls_corpus()
    chat_template_corpus()
    frame_corpus()
    http_corpus()
    server_frame_corpus()
    gguf_corpus()
    metadata_corpus()
    sampler_corpus()
    sequence_file_corpus()
    weights_file_corpus()
    tokenizer_corpus()
    config_corpus()
