"""A model that gives scripted answers, for tests of what stands around a model: write_scripted_model().

A llama in F32 whose layer adds nothing: a token's embedding is the unit vector of that token, attention and feed-forward
end in matrices of zeros, and the head maps each token to the one that comes next. So the last token of a prompt decides
the whole answer, at any temperature: the token <|answer_N|>, with which the chat template ends the generation prompt,
begins answer N. Each piece of an answer is a token of its own; all other text is one token a byte.
"""
import array
import itertools
import struct
import sys

CONTEXT = 262144
CERTAIN = 100.0  # the logit of the next token; all others have 0
ALIGNMENT = 32
U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9  # GGUF's numbers of types of metadata
NORMAL, CONTROL = 1, 3                                 # and of tokens
END = "<|im_end|>"


def byte_spellings():
    """How byte-level vocabularies spell each byte: printable ones as they are, the rest from U+0100 on."""
    plain = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    rest = itertools.count(0x100)
    return [chr(byte) if byte in plain else chr(next(rest)) for byte in range(256)]


def pieces_of(answers):
    """Each answer cut into pieces of two bytes or more, all different: a token knows its place in the script by itself."""
    used, cut = set(), []
    for answer in answers:
        data, pieces = answer.encode(), []
        while data:
            size = next((size for size in range(2, len(data) + 1) if data[:size] not in used), None)
            if size is None or size == len(data) - 1:  # no single byte is left over: it would be a token of the prompt
                size = len(data)
            piece, data = data[:size], data[size:]
            if piece in used or size < 2:
                raise ValueError(f"this end of an answer is in another one, or is a single byte: {piece!r}")
            used.add(piece)
            pieces.append(piece)
        cut.append(pieces)
    return cut


def packed(kind, value):
    if kind == STRING:
        return struct.pack("<Q", len(value.encode())) + value.encode()
    if kind == ARRAY:
        of, values = value
        return struct.pack("<IQ", of, len(values)) + b"".join(packed(of, each) for each in values)
    return struct.pack({U32: "<I", I32: "<i", F32: "<f", BOOL: "<?"}[kind], value)


def matrix(rows, columns, entries=()):
    """A matrix of zeros but for (row, column, value)."""
    values = array.array("f", bytes(4 * rows * columns))
    for row, column, value in entries:
        values[row * columns + column] = value
    return (rows, columns), values


def write_scripted_model(path, answers, chat_template):
    """Writes a GGUF file. `chat_template` ends its generation prompt with <|answer_0|> for answers[0], and so on."""
    spell = byte_spellings()
    triggers = [f"<|answer_{number}|>" for number in range(len(answers))]
    scripts = pieces_of(answers)
    tokens = [*spell, END, *triggers, *("".join(spell[byte] for byte in piece) for script in scripts for piece in script)]
    special = {END, *triggers}
    types = [CONTROL if text in special else NORMAL for text in tokens]
    end, first_trigger, piece = 256, 257, itertools.count(257 + len(triggers))
    following = {token: end for token in range(257)}  # behind anything else an answer ends
    for number, script in enumerate(scripts):
        chain = [first_trigger + number, *(next(piece) for _ in script), end]
        following.update(zip(chain, chain[1:]))

    dim, head_dim, ffn = (len(tokens) + 31) // 32 * 32, 32, 32
    metadata = {
        "general.architecture": (STRING, "llama"), "general.name": (STRING, "scripted"),
        "llama.block_count": (U32, 1), "llama.context_length": (U32, CONTEXT), "llama.embedding_length": (U32, dim),
        "llama.feed_forward_length": (U32, ffn), "llama.attention.head_count": (U32, 1),
        "llama.attention.head_count_kv": (U32, 1), "llama.attention.key_length": (U32, head_dim),
        "llama.attention.value_length": (U32, head_dim), "llama.attention.layer_norm_rms_epsilon": (F32, 1e-5),
        "llama.rope.dimension_count": (U32, head_dim), "llama.rope.freq_base": (F32, 10000.0),
        "llama.vocab_size": (U32, len(tokens)),
        "tokenizer.ggml.model": (STRING, "gpt2"), "tokenizer.ggml.pre": (STRING, "llama-bpe"),
        "tokenizer.ggml.tokens": (ARRAY, (STRING, tokens)), "tokenizer.ggml.token_type": (ARRAY, (I32, types)),
        "tokenizer.ggml.merges": (ARRAY, (STRING, [])), "tokenizer.ggml.eos_token_id": (U32, end),
        "tokenizer.ggml.add_bos_token": (BOOL, False), "tokenizer.chat_template": (STRING, chat_template),
    }
    ones = array.array("f", [1.0] * dim)
    certain = CERTAIN / dim ** 0.5  # the norm in front of the head makes a unit vector that long
    tensors = {
        "token_embd.weight": matrix(len(tokens), dim, ((token, token, 1.0) for token in range(len(tokens)))),
        "blk.0.attn_norm.weight": ((dim,), ones), "blk.0.ffn_norm.weight": ((dim,), ones),
        "blk.0.attn_q.weight": matrix(head_dim, dim), "blk.0.attn_k.weight": matrix(head_dim, dim),
        "blk.0.attn_v.weight": matrix(head_dim, dim), "blk.0.attn_output.weight": matrix(dim, head_dim),
        "blk.0.ffn_gate.weight": matrix(ffn, dim), "blk.0.ffn_up.weight": matrix(ffn, dim),
        "blk.0.ffn_down.weight": matrix(dim, ffn),
        "output_norm.weight": ((dim,), ones),
        "output.weight": matrix(len(tokens), dim, ((after, token, certain) for token, after in following.items())),
    }

    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    for key, (kind, value) in metadata.items():
        head += packed(STRING, key) + struct.pack("<I", kind) + packed(kind, value)
    body = b""
    for name, (shape, values) in tensors.items():
        head += packed(STRING, name) + struct.pack("<I", len(shape))
        head += struct.pack(f"<{len(shape)}Q", *reversed(shape)) + struct.pack("<IQ", 0, len(body))
        if sys.byteorder == "big":
            values = array.array("f", values)
            values.byteswap()
        body += values.tobytes() + bytes(-4 * len(values) % ALIGNMENT)
    with open(path, "wb") as out:
        out.write(head + bytes(-len(head) % ALIGNMENT) + body)
