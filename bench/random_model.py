#!/usr/bin/python3
"""Write a GGUF file that has the geometry of a real model, and random weights.

For measurements where no trained weights are at hand: text from such a model is noise, but its shapes, number types and
cost are those of the real one. Metadata, names, shapes and types of the tensors are what llama.cpp expects, so both can
be measured with the same file, also after llama-quantize (mamba-130m with --tensor-type ssm_dt=f16: its rows of 48
values are no whole groups). The values keep activations finite for any number of tokens. Needs numpy.

--draft writes a second model beside it, that drafts for it: its first layer with the same embedding and head. How often
that one is right is set by --later-layers, by which the outputs of the other layers are multiplied (0.02: nearly always),
and --draft-noise, the part of its own layer that is not the model's (1: all, it is never right). --sharpness is the
deviation of the logits: a trained model is as sure of its next token as one with 6 to 8.

usage: random_model.py OUT.gguf --geometry mamba-130m [--dtype f16|f32] [--vocabulary FROM.gguf] [--seed 1]
       random_model.py OUT.gguf --geometry tinyllama-1.1b --draft DRAFT.gguf --later-layers 0.02 --draft-noise 0.1
                       --sharpness 8
       random_model.py --list --geometry mamba-130m
"""
import argparse
import math
import re
import struct
import sys

try:
    import numpy as np
except ImportError:
    sys.exit(f"This needs numpy, and {sys.executable} has none. Debian: apt-get install python3-numpy, and run this with "
             "/usr/bin/python3.")

UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9  # of metadata
F32, F16 = 0, 1  # of tensors
ALIGNMENT = 32
PIECE = 1 << 22  # values drawn at a time: the largest embedding alone would be a gigabyte
RECURRENT_CONTEXT = 1 << 20  # what llama.cpp's converters write where the context has no limit

# ------------------------------------------------------------------------------------------------ values
# Each takes a generator, the first index, how many, and the tensor's shape (slowest dimension first).


def normal(deviation):
    return lambda random, first, count, shape: np.float32(deviation) * random.standard_normal(count, np.float32)


def uniform(low, high):
    return lambda random, first, count, shape: random.uniform(low, high, count).astype(np.float32)


def around(centre, deviation):
    return lambda random, first, count, shape: np.float32(centre) + np.float32(deviation) * random.standard_normal(
        count, np.float32)


def projection(scale=1.0):
    """Inputs of deviation 1 become outputs of deviation `scale`."""
    return lambda random, first, count, shape: np.float32(scale / math.sqrt(shape[-1])) * random.standard_normal(
        count, np.float32)


def of_norm(norm, size):
    """Vectors of `size` values, each of this norm; all of a tensor's are drawn at once."""
    def values(random, first, count, shape):
        vectors = random.standard_normal((count // size, size), np.float32)
        return (vectors * (np.float32(norm) / np.linalg.norm(vectors, axis=1, keepdims=True))).reshape(count)
    return values


def ssm_decay(random, first, count, shape):
    """Mamba: -1, -2, ... -state in every channel, as trained from."""
    return -1.0 - (np.arange(first, first + count) % shape[-1]).astype(np.float32)


def ssm_step_bias(random, first, count, shape):
    """The inverse of softplus of a step of 0.001 to 0.1, evenly by its logarithm."""
    step = np.exp(random.uniform(math.log(0.001), math.log(0.1), count))
    return np.log(np.expm1(step)).astype(np.float32)


def exactly(values):
    array = np.asarray(values, np.float32)
    return lambda random, first, count, shape: array[first:first + count]


ONES = around(1.0, 0.1)  # the weights of a norm

# ------------------------------------------------------------------------------------------------ what a file holds


class Model:
    """Metadata and tensors of a file, in their order."""

    def __init__(self, arch, name):
        self.arch = arch
        self.metadata = {}
        self.tensors = []  # (name, shape, type, values); the shape has its slowest dimension first
        self.put("general.architecture", STRING, arch)
        self.put("general.name", STRING, name + "-random")

    def put(self, key, kind, value):
        self.metadata[key] = (kind, value)

    def integers(self, **values):
        for key, value in values.items():
            self.put(f"{self.arch}.{key.replace('__', '.')}", UINT32, value)

    def floats(self, **values):
        for key, value in values.items():
            self.put(f"{self.arch}.{key.replace('__', '.')}", FLOAT32, value)

    def matrix(self, name, *shape, values=None):
        self.tensors.append((name + ".weight", shape, F16, values or projection()))

    def single(self, name, *shape, values=ONES):
        """One that stays F32 whatever the type of the file, as converters have it."""
        self.tensors.append((name, shape, F32, values))

    def bias(self, name, size, values=None):
        self.single(name + ".bias", size, values=values or normal(0.1))

    def layer_norm(self, name, size):
        self.single(name + ".weight", size)
        self.bias(name, size)


# ------------------------------------------------------------------------------------------------ families


def decoder(model, g):
    """Llama and its relatives: attention, then a gated feed-forward block."""
    d, heads, kv, hd, ff, vocab = g["d"], g["heads"], g["kv"], g["head_dim"], g["ff"], g["vocab"]
    model.integers(block_count=g["layers"], context_length=g["context"], embedding_length=d, feed_forward_length=ff,
                   attention__head_count=heads, attention__head_count_kv=kv, vocab_size=vocab)
    model.floats(attention__layer_norm_rms_epsilon=g["eps"], rope__freq_base=g["rope"])
    if model.arch == "gemma3":
        model.integers(attention__key_length=hd, attention__value_length=hd, attention__sliding_window=g["window"])
    else:
        model.integers(rope__dimension_count=hd)
    experts = g.get("experts", 0)
    if experts:
        model.integers(expert_count=experts, expert_used_count=min(g["experts_used"], experts))
    if model.arch == "qwen3moe":
        model.integers(attention__key_length=hd, attention__value_length=hd, expert_feed_forward_length=ff)
    model.matrix("token_embd", vocab, d)  # with the values of a last matrix, which it may also be
    for i in range(g["layers"]):
        b = f"blk.{i}."
        model.single(b + "attn_norm.weight", d)
        for name, rows in (("attn_q", heads * hd), ("attn_k", kv * hd), ("attn_v", kv * hd)):
            model.matrix(b + name, rows, d)
            if model.arch == "qwen2":
                large = name == "attn_k" and g["key_bias"]
                model.bias(b + name, rows, of_norm(g["key_bias"], hd) if large else None)
        later = projection(g["later_layers"] if i > 0 else 1.0)
        model.matrix(b + "attn_output", d, heads * hd, values=later)
        if model.arch in ("gemma3", "olmoe", "qwen3moe"):
            model.single(b + "attn_q_norm.weight", heads * hd if model.arch == "olmoe" else hd)
            model.single(b + "attn_k_norm.weight", kv * hd if model.arch == "olmoe" else hd)
        if model.arch == "gemma3":
            model.single(b + "post_attention_norm.weight", d)
            model.single(b + "post_ffw_norm.weight", d)
        model.single(b + "ffn_norm.weight", d)
        if experts:
            model.single(b + "ffn_gate_inp.weight", experts, d, values=projection())
            model.matrix(b + "ffn_gate_exps", experts, ff, d)
            model.matrix(b + "ffn_up_exps", experts, ff, d)
            model.matrix(b + "ffn_down_exps", experts, d, ff)
        else:
            model.matrix(b + "ffn_gate", ff, d)
            model.matrix(b + "ffn_up", ff, d)
            model.matrix(b + "ffn_down", d, ff, values=later)
    model.single("output_norm.weight", d)
    if not g["tied"]:
        model.matrix("output", vocab, d, values=projection(g["sharpness"]))
    if "llama3_rope" in g:
        model.single("rope_freqs.weight", hd // 2, values=exactly(llama3_factors(hd, g["rope"], **g["llama3_rope"])))


def llama3_factors(head_dim, base, factor, low, high, original):
    """What Llama 3.1 and later divide the frequencies of rotation by, to reach beyond `original` positions."""
    factors = []
    for i in range(0, head_dim, 2):
        wavelength = 2 * math.pi * base ** (i / head_dim)
        if wavelength < original / high:
            factors.append(1.0)
        elif wavelength > original / low:
            factors.append(factor)
        else:
            smooth = (original / wavelength - low) / (high - low)
            factors.append(1 / ((1 - smooth) / factor + smooth))
    return factors


def dense(model, g):
    """Later relatives of llama, which differ in their norms, biases, factors and gates."""
    d, heads, kv, hd, ff, vocab = g["d"], g["heads"], g["kv"], g["head_dim"], g["ff"], g["vocab"]
    norms, after = g.get("norms", "rms"), g.get("after", False)  # rms, layer or biased; after both halves, not before
    ffn_norm, gated, biases = g.get("ffn_norm", "ffn_norm"), g.get("gated", True), g.get("biases", "")  # "", qkv or all
    model.integers(block_count=g["layers"], context_length=g["context"], embedding_length=d, feed_forward_length=ff,
                   attention__head_count=heads, attention__head_count_kv=kv, attention__key_length=hd,
                   attention__value_length=hd, rope__dimension_count=g.get("rotated", hd), vocab_size=vocab,
                   **g.get("integers", {}))
    epsilon = "attention__layer_norm_rms_epsilon" if norms == "rms" else "attention__layer_norm_epsilon"
    model.floats(**{epsilon: g["eps"]}, rope__freq_base=g["rope"], **g.get("floats", {}))
    if "sections" in g:
        model.put(model.arch + ".rope.dimension_sections", ARRAY, (INT32, g["sections"]))
    if "yarn" in g:
        factor, original = g["yarn"]
        model.put(model.arch + ".rope.scaling.type", STRING, "yarn")
        model.floats(rope__scaling__factor=factor)
        model.integers(rope__scaling__original_context_length=original)

    def norm(name):
        model.layer_norm(name, d) if norms == "biased" else model.single(name + ".weight", d)

    def matrix(name, rows, k, with_bias):
        model.matrix(name, rows, k)
        if with_bias:
            model.bias(name, rows)

    model.matrix("token_embd", vocab, d)
    for i in range(g["layers"]):
        b = f"blk.{i}."
        if not after:
            norm(b + "attn_norm")
        for name, count in (("attn_q", heads), ("attn_k", kv), ("attn_v", kv)):
            matrix(b + name, count * hd, d, biases != "")
            if "qk_norm" in g and name != "attn_v":
                model.single(b + name + "_norm.weight", count * hd if g["qk_norm"] == "rows" else hd)
        matrix(b + "attn_output", d, heads * hd, biases == "all")
        if after:
            model.single(b + "post_attention_norm.weight", d)
            model.single(b + "post_ffw_norm.weight", d)
        elif ffn_norm:
            norm(b + ffn_norm)
        for name in ("ffn_gate", "ffn_up") if gated else ("ffn_up",):
            matrix(b + name, ff, d, biases == "all")
        matrix(b + "ffn_down", d, ff, biases == "all")
    norm("output_norm")
    if not g["tied"]:
        matrix("output", vocab, d, model.arch == "phi2")


def gpt_oss(model, g):
    d, heads, kv, hd, ff, vocab = g["d"], g["heads"], g["kv"], g["head_dim"], g["ff"], g["vocab"]
    experts = g["experts"]
    model.integers(block_count=g["layers"], context_length=g["context"], embedding_length=d, feed_forward_length=ff,
                   attention__head_count=heads, attention__head_count_kv=kv, attention__key_length=hd,
                   attention__value_length=hd, attention__sliding_window=g["window"], rope__dimension_count=hd,
                   expert_count=experts, expert_used_count=min(g["experts_used"], experts), expert_feed_forward_length=ff,
                   rope__scaling__original_context_length=g["original"], vocab_size=vocab)
    model.floats(attention__layer_norm_rms_epsilon=1e-5, rope__freq_base=g["rope"], rope__scaling__factor=g["factor"])
    model.put("gpt-oss.rope.scaling.type", STRING, "yarn")
    model.matrix("token_embd", vocab, d)
    for i in range(g["layers"]):
        b = f"blk.{i}."
        model.single(b + "attn_norm.weight", d)
        for name, count in (("attn_q", heads), ("attn_k", kv), ("attn_v", kv)):
            model.matrix(b + name, count * hd, d)
            model.bias(b + name, count * hd)
        model.single(b + "attn_sinks.weight", heads, values=normal(1.0))
        model.matrix(b + "attn_output", d, heads * hd)
        model.bias(b + "attn_output", d)
        model.single(b + "post_attention_norm.weight", d)
        model.single(b + "ffn_gate_inp.weight", experts, d, values=projection())
        model.bias(b + "ffn_gate_inp", experts)
        for name, rows, k in (("ffn_gate_exps", ff, d), ("ffn_up_exps", ff, d), ("ffn_down_exps", d, ff)):
            model.matrix(b + name, experts, rows, k)
            model.single(b + name + ".bias", experts, rows, values=normal(0.1))
    model.single("output_norm.weight", d)
    model.matrix("output", vocab, d)


def mamba(model, g):
    d, inner, state, conv, rank = g["d"], g["inner"], g["state"], g["conv"], g["dt_rank"]
    model.integers(context_length=RECURRENT_CONTEXT, embedding_length=d, feed_forward_length=0,
                   attention__head_count=0, block_count=g["layers"], ssm__conv_kernel=conv, ssm__inner_size=inner,
                   ssm__state_size=state, ssm__time_step_rank=rank, vocab_size=g["vocab"])
    model.floats(attention__layer_norm_rms_epsilon=1e-5)
    model.put("mamba.ssm.dt_b_c_rms", BOOL, False)
    model.matrix("token_embd", g["vocab"], d)
    for i in range(g["layers"]):
        b = f"blk.{i}."
        model.single(b + "attn_norm.weight", d)
        model.matrix(b + "ssm_in", 2 * inner, d)
        model.single(b + "ssm_conv1d.weight", inner, conv, values=projection())
        model.bias(b + "ssm_conv1d", inner)
        model.matrix(b + "ssm_x", rank + 2 * state, inner)
        model.matrix(b + "ssm_dt", inner, rank, values=projection(0.5))
        model.single(b + "ssm_dt.bias", inner, values=ssm_step_bias)
        model.single(b + "ssm_a", inner, state, values=ssm_decay)
        model.single(b + "ssm_d", inner)
        model.matrix(b + "ssm_out", d, inner)
    model.single("output_norm.weight", d)


def mamba2_mixer(model, b, g):
    d, inner, state, conv, heads, groups = g["d"], g["inner"], g["state"], g["conv"], g["ssm_heads"], g["groups"]
    width = inner + 2 * groups * state  # x, B and C are convolved together
    model.matrix(b + "ssm_in", inner + width + heads, d)
    model.single(b + "ssm_conv1d.weight", width, conv, values=projection())
    model.bias(b + "ssm_conv1d", width)
    model.single(b + "ssm_dt.bias", heads, values=ssm_step_bias)
    model.single(b + "ssm_a", heads, 1, values=uniform(-16, -1))
    model.single(b + "ssm_d", heads, 1)
    if g["ssm_norm"]:
        model.single(b + "ssm_norm.weight", groups, inner // groups)
    model.matrix(b + "ssm_out", d, inner)


def mamba2_sizes(model, g):
    model.integers(ssm__conv_kernel=g["conv"], ssm__inner_size=g["inner"], ssm__state_size=g["state"],
                   ssm__time_step_rank=g["ssm_heads"], ssm__group_count=g["groups"])


def mamba2(model, g):
    model.integers(context_length=RECURRENT_CONTEXT, embedding_length=g["d"], feed_forward_length=0,
                   attention__head_count=0, block_count=g["layers"], vocab_size=g["vocab"])
    mamba2_sizes(model, g)
    model.floats(attention__layer_norm_rms_epsilon=1e-5)
    model.matrix("token_embd", g["vocab"], g["d"])
    for i in range(g["layers"]):
        model.single(f"blk.{i}.attn_norm.weight", g["d"])
        mamba2_mixer(model, f"blk.{i}.", g)
    model.single("output_norm.weight", g["d"])


def falcon_h1(model, g):
    """Attention and a Mamba-2 mixer side by side, then a gated feed-forward block."""
    d, heads, kv, hd, ff = g["d"], g["heads"], g["kv"], g["head_dim"], g["ff"]
    model.integers(context_length=g["context"], embedding_length=d, feed_forward_length=ff, block_count=g["layers"],
                   attention__head_count=heads, attention__head_count_kv=kv, attention__key_length=hd,
                   attention__value_length=hd, vocab_size=g["vocab"])
    mamba2_sizes(model, g)
    model.floats(attention__layer_norm_rms_epsilon=1e-5, rope__freq_base=g["rope"])
    model.matrix("token_embd", g["vocab"], d)
    for i in range(g["layers"]):
        b = f"blk.{i}."
        model.single(b + "attn_norm.weight", d)
        mamba2_mixer(model, b, g)
        model.matrix(b + "attn_q", heads * hd, d)
        model.matrix(b + "attn_k", kv * hd, d)
        model.matrix(b + "attn_v", kv * hd, d)
        model.matrix(b + "attn_output", d, heads * hd)
        model.single(b + "ffn_norm", d)  # without ".weight": so llama.cpp calls it in this family
        model.matrix(b + "ffn_gate", ff, d)
        model.matrix(b + "ffn_up", ff, d)
        model.matrix(b + "ffn_down", d, ff)
    model.single("output_norm.weight", d)
    if not g["tied"]:
        model.matrix("output", g["vocab"], d)


def lfm2(model, g):
    """Gated short convolutions, and attention in some layers; LFM2-MoE: experts behind the first layers."""
    d, heads, kv, hd, ff, experts = g["d"], g["heads"], g["kv"], g["head_dim"], g["ff"], g.get("experts", 0)
    attention = [i in g["attention"] for i in range(g["layers"])]
    model.integers(context_length=g["context"], embedding_length=d, feed_forward_length=ff, block_count=g["layers"],
                   attention__head_count=heads, vocab_size=g["vocab"], shortconv__l_cache=g["conv"])
    model.put(f"{model.arch}.attention.head_count_kv", ARRAY, (INT32, [kv if each else 0 for each in attention]))
    if experts:
        model.integers(expert_count=experts, expert_used_count=min(g["experts_used"], experts),
                       expert_feed_forward_length=g["expert_ff"],
                       leading_dense_block_count=g["dense"], expert_gating_func=2)
    model.floats(attention__layer_norm_rms_epsilon=1e-5, rope__freq_base=g["rope"])
    model.matrix("token_embd", g["vocab"], d)
    for i in range(g["layers"]):
        b = f"blk.{i}."
        model.single(b + "attn_norm.weight", d)
        if attention[i]:
            model.matrix(b + "attn_q", heads * hd, d)
            model.matrix(b + "attn_k", kv * hd, d)
            model.matrix(b + "attn_v", kv * hd, d)
            model.single(b + "attn_q_norm.weight", hd)
            model.single(b + "attn_k_norm.weight", hd)
            model.matrix(b + "attn_output", d, heads * hd)
        else:
            model.matrix(b + "shortconv.in_proj", 3 * d, d)
            model.single(b + "shortconv.conv.weight", d, g["conv"], values=projection())
            model.matrix(b + "shortconv.out_proj", d, d)
        model.single(b + "ffn_norm.weight", d)
        if experts and i >= g["dense"]:
            model.single(b + "ffn_gate_inp.weight", experts, d, values=projection())
            model.single(b + "exp_probs_b.bias", experts, values=normal(0.1))
            model.matrix(b + "ffn_gate_exps", experts, g["expert_ff"], d)
            model.matrix(b + "ffn_up_exps", experts, g["expert_ff"], d)
            model.matrix(b + "ffn_down_exps", experts, d, g["expert_ff"])
        else:
            model.matrix(b + "ffn_gate", ff, d)
            model.matrix(b + "ffn_up", ff, d)
            model.matrix(b + "ffn_down", d, ff)
    model.single("token_embd_norm.weight", d)  # so the output norm is called in this family


def rwkv_frame(model, g):
    model.integers(context_length=RECURRENT_CONTEXT, embedding_length=g["d"], block_count=g["layers"],
                   wkv__head_size=g["head_dim"], feed_forward_length=g["ff"], attention__head_count=0,
                   vocab_size=g["vocab"])
    model.floats(attention__layer_norm_epsilon=1e-5)
    model.matrix("token_embd", g["vocab"], g["d"])
    model.layer_norm("token_embd_norm", g["d"])


def rwkv_end(model, g):
    model.layer_norm("output_norm", g["d"])
    model.matrix("output", g["vocab"], g["d"])


def rwkv7(model, g):
    d, ff = g["d"], g["ff"]
    decay, iclr, value, gate = g["ranks"]
    rwkv_frame(model, g)
    model.integers(attention__decay_lora_rank=decay, attention__iclr_lora_rank=iclr,
                   attention__value_residual_mix_lora_rank=value, attention__gate_lora_rank=gate)
    for i in range(g["layers"]):
        b = f"blk.{i}."
        model.layer_norm(b + "attn_norm", d)
        model.layer_norm(b + "attn_norm_2", d)
        # A channel forgets exp(-0.6065 sigmoid(w)) per token: 0.2 % to 15 %.
        model.single(b + "time_mix_w0.weight", d, values=uniform(-6.0, -1.0))
        model.single(b + "time_mix_w1.weight", decay, d, values=projection())
        model.single(b + "time_mix_w2.weight", d, decay, values=projection(0.5))
        model.single(b + "time_mix_a0.weight", d, values=normal(0.5))
        model.matrix(b + "time_mix_a1", iclr, d)
        model.matrix(b + "time_mix_a2", d, iclr)
        # The first layer's are never used, and have the rank of a1 and a2.
        model.single(b + "time_mix_v0.weight", d, values=normal(0.5))
        model.matrix(b + "time_mix_v1", iclr if i == 0 else value, d)
        model.matrix(b + "time_mix_v2", d, iclr if i == 0 else value)
        model.matrix(b + "time_mix_g1", gate, d)
        model.matrix(b + "time_mix_g2", d, gate, values=projection(2.0))
        model.single(b + "time_mix_lerp_fused.weight", 6, 1, 1, d, values=uniform(0, 1))
        model.single(b + "time_mix_k_k.weight", d, values=around(0.85, 0.1))
        model.single(b + "time_mix_k_a.weight", d)
        model.single(b + "time_mix_r_k.weight", d, values=normal(0.1))
        for name in ("key", "value", "receptance", "output"):
            model.matrix(b + "time_mix_" + name, d, d)
        model.layer_norm(b + "time_mix_ln", d)
        model.single(b + "channel_mix_lerp_k.weight", d, values=uniform(0, 1))
        model.matrix(b + "channel_mix_key", ff, d)
        model.matrix(b + "channel_mix_value", d, ff)
    rwkv_end(model, g)


def rwkv6(model, g):
    d, ff, hd, mix, decay = g["d"], g["ff"], g["head_dim"], g["mix_rank"], g["decay_rank"]
    rwkv_frame(model, g)
    model.integers(time_mix_extra_dim=mix, time_decay_extra_dim=decay, rescale_every_n_layers=g["rescale"])
    for i in range(g["layers"]):
        b = f"blk.{i}."
        halved = projection(0.5 ** (i // g["rescale"]))  # the residual stream is halved every `rescale` layers
        model.layer_norm(b + "attn_norm", d)
        model.layer_norm(b + "attn_norm_2", d)
        model.single(b + "time_mix_w1.weight", 5 * mix, d, values=projection())
        model.single(b + "time_mix_w2.weight", 5, d, mix, values=projection(0.3))
        model.single(b + "time_mix_lerp_x.weight", d, values=uniform(0, 1))
        model.single(b + "time_mix_lerp_fused.weight", 5, 1, 1, d, values=uniform(0, 1))
        model.single(b + "time_mix_first.weight", d // hd, hd, values=normal(0.5))
        # A channel forgets 1 - exp(-exp(w)) per token: 0.2 % to 30 %.
        model.single(b + "time_mix_decay.weight", d, values=uniform(-6.0, -1.0))
        model.single(b + "time_mix_decay_w1.weight", decay, d, values=projection())
        model.single(b + "time_mix_decay_w2.weight", d, decay, values=projection(0.3))
        for name in ("key", "value", "receptance", "gate"):
            model.matrix(b + "time_mix_" + name, d, d)
        model.layer_norm(b + "time_mix_ln", d)
        model.matrix(b + "time_mix_output", d, d, values=halved)
        model.single(b + "channel_mix_lerp_k.weight", d, values=uniform(0, 1))
        model.single(b + "channel_mix_lerp_r.weight", d, values=uniform(0, 1))
        model.matrix(b + "channel_mix_key", ff, d)
        model.matrix(b + "channel_mix_value", d, ff, values=halved)
        model.matrix(b + "channel_mix_receptance", d, d)
    rwkv_end(model, g)


def qwen3next(model, g):
    """Gated delta nets, and in every fourth layer attention with a gate; experts with a shared one, or a dense part."""
    d, heads, kv, hd, ff, experts = g["d"], g["heads"], g["kv"], g["head_dim"], g["ff"], g.get("experts", 0)
    size, keys, values = g["state"], g["key_heads"], g["value_heads"]
    width = (2 * keys + values) * size  # q, k and v are convolved together
    model.integers(context_length=g["context"], embedding_length=d, feed_forward_length=ff, block_count=g["layers"],
                   attention__head_count=heads, attention__head_count_kv=kv, attention__key_length=hd,
                   attention__value_length=hd, rope__dimension_count=g["rotated"], full_attention_interval=4,
                   ssm__conv_kernel=4, ssm__inner_size=values * size, ssm__state_size=size, ssm__time_step_rank=values,
                   ssm__group_count=keys, vocab_size=g["vocab"])
    if experts:
        model.integers(expert_count=experts, expert_used_count=min(g["experts_used"], experts),
                       expert_feed_forward_length=g["expert_ff"], expert_shared_feed_forward_length=g["expert_ff"])
    if "sections" in g:
        model.put(f"{model.arch}.rope.dimension_sections", ARRAY, (INT32, g["sections"]))
    model.floats(attention__layer_norm_rms_epsilon=1e-6, rope__freq_base=g["rope"])
    model.matrix("token_embd", g["vocab"], d)
    for i in range(g["layers"]):
        b = f"blk.{i}."
        model.single(b + "attn_norm.weight", d)
        if (i + 1) % 4 == 0:
            for name, count in (("attn_q", 2 * heads), ("attn_k", kv), ("attn_v", kv)):
                model.matrix(b + name, count * hd, d)
            for name in ("attn_q_norm", "attn_k_norm"):
                model.single(b + name + ".weight", hd)
            model.matrix(b + "attn_output", d, heads * hd)
        else:
            model.matrix(b + "attn_qkv", width, d)
            model.matrix(b + "attn_gate", values * size, d)
            model.single(b + "ssm_conv1d.weight", width, 4, values=projection())
            for name, rows in (("ssm_ba", 2 * values),) if model.arch == "qwen3next" else (("ssm_beta", values),
                                                                                           ("ssm_alpha", values)):
                model.matrix(b + name, rows, d)
            model.single(b + "ssm_dt.bias", values, values=ssm_step_bias)
            model.single(b + "ssm_a", values, values=uniform(-16, -1))
            model.single(b + "ssm_norm.weight", size)
            model.matrix(b + "ssm_out", d, values * size)
        model.single(b + "post_attention_norm.weight", d)
        if experts:
            model.single(b + "ffn_gate_inp.weight", experts, d, values=projection())
            model.single(b + "ffn_gate_inp_shexp.weight", d, values=normal(d**-0.5))
        parts, shape = (("_exps", "_shexp"), g["expert_ff"]) if experts else (("",), ff)
        for part in parts:
            count = (experts,) if part == "_exps" else ()
            for name, rows, k in (("ffn_gate", shape, d), ("ffn_up", shape, d), ("ffn_down", d, shape)):
                model.matrix(b + name + part, *count, rows, k)
    model.single("output_norm.weight", d)
    if not g["tied"]:
        model.matrix("output", g["vocab"], d)


LLAMA_3_ROPE = {"factor": 32.0, "low": 1.0, "high": 4.0, "original": 8192}

GEOMETRIES = {
    "mamba-130m": (mamba, "mamba", dict(layers=24, d=768, inner=1536, state=16, conv=4, dt_rank=48, vocab=50280)),
    "mamba2-130m": (mamba2, "mamba2", dict(layers=24, d=768, inner=1536, state=128, conv=4, ssm_heads=24, groups=1,
                                           ssm_norm=True, vocab=50288)),
    "rwkv7-world-0.1b": (rwkv7, "rwkv7", dict(layers=12, d=768, head_dim=64, ff=3072, ranks=(64, 64, 32, 128),
                                              vocab=65536)),
    "rwkv6-world-1b6": (rwkv6, "rwkv6", dict(layers=24, d=2048, head_dim=64, ff=7168, mix_rank=32, decay_rank=64,
                                             rescale=6, vocab=65536)),
    "qwen2.5-0.5b": (decoder, "qwen2", dict(layers=24, d=896, ff=4864, heads=14, kv=2, head_dim=64, vocab=151936,
                                            context=32768, rope=1e6, eps=1e-6, tied=True, key_bias=0)),
    "qwen2.5-3b": (decoder, "qwen2", dict(layers=36, d=2048, ff=11008, heads=16, kv=2, head_dim=128, vocab=151936,
                                          context=32768, rope=1e6, eps=1e-6, tied=True, key_bias=0)),
    "tinyllama-1.1b": (decoder, "llama", dict(layers=22, d=2048, ff=5632, heads=32, kv=4, head_dim=64, vocab=32000,
                                              context=2048, rope=1e4, eps=1e-5, tied=False)),
    "llama-3.2-1b": (decoder, "llama", dict(layers=16, d=2048, ff=8192, heads=32, kv=8, head_dim=64, vocab=128256,
                                            context=131072, rope=5e5, eps=1e-5, tied=True, llama3_rope=LLAMA_3_ROPE)),
    "gemma-3-1b": (decoder, "gemma3", dict(layers=26, d=1152, ff=6912, heads=4, kv=1, head_dim=256, vocab=262144,
                                           context=32768, rope=1e6, eps=1e-6, tied=True, window=512)),
    "falcon-h1-0.5b": (falcon_h1, "falcon-h1", dict(layers=36, d=1024, ff=2048, heads=8, kv=2, head_dim=64, inner=1536,
                                                    state=128, conv=4, ssm_heads=24, groups=1, ssm_norm=False,
                                                    vocab=32784, context=16384, rope=1e11, tied=False)),
    "lfm2-350m": (lfm2, "lfm2", dict(layers=16, d=1024, ff=4608, heads=16, kv=8, head_dim=64, conv=3, vocab=65536,
                                     context=128000, rope=1e6, attention=(2, 5, 8, 10, 12, 14))),
    "lfm2-1.2b": (lfm2, "lfm2", dict(layers=16, d=2048, ff=8192, heads=32, kv=8, head_dim=64, conv=3, vocab=65536,
                                     context=128000, rope=1e6, attention=(2, 5, 8, 10, 12, 14))),
    "lfm2-8b-a1b": (lfm2, "lfm2moe", dict(layers=24, d=2048, ff=7168, heads=32, kv=8, head_dim=64, conv=3, vocab=65536,
                                          context=128000, rope=1e6, attention=(2, 6, 10, 14, 18, 21), experts=32,
                                          experts_used=4, expert_ff=1792, dense=2)),
    "qwen3-next-80b-a3b": (qwen3next, "qwen3next", dict(layers=48, d=2048, ff=5120, heads=16, kv=2, head_dim=256,
                                                        rotated=64, state=128, key_heads=16, value_heads=32, experts=512,
                                                        experts_used=10, expert_ff=512, vocab=151936, context=262144,
                                                        rope=1e7, tied=False)),
    "qwen3.5-0.8b": (qwen3next, "qwen35", dict(layers=24, d=1024, ff=3584, heads=8, kv=2, head_dim=256, rotated=64,
                                               state=128, key_heads=16, value_heads=16, vocab=248320, context=262144,
                                               rope=1e7, sections=[11, 11, 10, 0], tied=True)),
    "qwen3.5-4b": (qwen3next, "qwen35", dict(layers=32, d=2560, ff=9216, heads=16, kv=4, head_dim=256, rotated=64,
                                             state=128, key_heads=16, value_heads=32, vocab=248320, context=262144,
                                             rope=1e7, sections=[11, 11, 10, 0], tied=True)),
    "olmoe-1b-7b": (decoder, "olmoe", dict(layers=16, d=2048, ff=1024, heads=16, kv=16, head_dim=128, vocab=50304,
                                           context=4096, rope=1e4, eps=1e-5, tied=False, experts=64, experts_used=8)),
    "qwen3-30b-a3b": (decoder, "qwen3moe", dict(layers=48, d=2048, ff=768, heads=32, kv=4, head_dim=128, vocab=151936,
                                                context=40960, rope=1e6, eps=1e-6, tied=False, experts=128,
                                                experts_used=8)),
}


def geometry(arch, layers, d, ff, heads, kv, head_dim, vocab, context, rope, eps=1e-5, tied=True, **how):
    return dense, arch, dict(layers=layers, d=d, ff=ff, heads=heads, kv=kv, head_dim=head_dim, vocab=vocab, context=context,
                             rope=rope, eps=eps, tied=tied, **how)


GEOMETRIES |= {
    "smollm3-3b": geometry("smollm3", 36, 2048, 11008, 16, 4, 128, 128256, 65536, 5e6, 1e-6),
    "olmo2-1b": geometry("olmo2", 16, 2048, 8192, 16, 16, 128, 100352, 4096, 5e5, 1e-6, False, after=True, qk_norm="rows"),
    "olmo3-7b": geometry("olmo2", 32, 4096, 11008, 32, 32, 128, 100278, 65536, 5e5, 1e-6, False, after=True, qk_norm="rows",
                         integers=dict(attention__sliding_window=4096), yarn=(8.0, 8192)),
    "granite-3.3-2b": geometry("granite", 40, 2048, 8192, 32, 8, 64, 49159, 131072, 1e7,
                               floats=dict(embedding_scale=12.0, residual_scale=0.22, logit_scale=8.0,
                                           attention__scale=0.015625)),
    "gemma-2b": geometry("gemma", 18, 2048, 16384, 8, 1, 256, 256000, 8192, 1e4, 1e-6),
    "command-r-35b": geometry("command-r", 40, 8192, 22528, 64, 64, 128, 256000, 131072, 8e6, norms="layer", ffn_norm=None,
                              floats=dict(logit_scale=0.0625)),
    "command-r7b": geometry("cohere2", 32, 4096, 14336, 32, 8, 128, 256000, 131072, 5e4, norms="layer", ffn_norm=None,
                            integers=dict(attention__sliding_window=4096), floats=dict(logit_scale=0.25)),
    "exaone4-1.2b": geometry("exaone4", 30, 2048, 4096, 32, 8, 64, 102400, 65536, 1e6, after=True, qk_norm="heads"),
    "exaone4-32b": geometry("exaone4", 64, 5120, 27392, 40, 8, 128, 102400, 131072, 1e6, tied=False, after=True,
                            qk_norm="heads", integers=dict(attention__sliding_window=4096)),
    "ernie4.5-0.3b": geometry("ernie4_5", 18, 1024, 3072, 16, 2, 128, 103424, 131072, 5e5),
    "seed-oss-36b": geometry("seed_oss", 64, 5120, 27648, 80, 8, 128, 155136, 524288, 1e7, 1e-6, False, biases="qkv",
                             ffn_norm="post_attention_norm"),
    "hunyuan-0.5b": geometry("hunyuan-dense", 24, 1024, 3584, 16, 8, 128, 120818, 262144, 11158840.0, qk_norm="heads"),
    "qwen2-vl-2b": geometry("qwen2vl", 28, 1536, 8960, 12, 2, 128, 151936, 32768, 1e6, 1e-6, biases="qkv",
                            sections=[16, 24, 24, 0]),
    "qwen3-vl-4b": geometry("qwen3vl", 36, 2560, 9728, 32, 8, 128, 151936, 262144, 5e6, 1e-6, qk_norm="heads",
                            sections=[24, 20, 20, 0]),
    "minicpm-2b": geometry("minicpm", 40, 2304, 5760, 36, 36, 64, 122753, 4096, 1e4,
                           floats=dict(embedding_scale=12.0, residual_scale=0.2214, logit_scale=9.0)),
    "internlm2.5-1.8b": geometry("internlm2", 24, 2048, 8192, 16, 8, 128, 92544, 32768, 1e6, tied=False),
    "starcoder2-3b": geometry("starcoder2", 30, 3072, 12288, 24, 2, 128, 49152, 16384, 999999.4, norms="biased",
                              biases="all", gated=False),
    "phi-2": geometry("phi2", 32, 2560, 10240, 32, 32, 80, 51200, 2048, 1e4, tied=False, norms="biased", ffn_norm=None,
                      biases="all", gated=False, rotated=32),
    "stablelm-2-1.6b": geometry("stablelm", 24, 2048, 5632, 32, 32, 64, 100352, 4096, 1e4, tied=False, norms="biased",
                                biases="qkv", rotated=16),
    "gpt-oss-20b": (gpt_oss, "gpt-oss", dict(layers=24, d=2880, ff=2880, heads=64, kv=8, head_dim=64, vocab=201088,
                                             context=131072, rope=150000.0, factor=32.0, original=4096, window=128,
                                             experts=32, experts_used=4, tied=False)),
    "ministral-3-3b": geometry("mistral3", 26, 3072, 9216, 32, 8, 128, 131072, 262144, 1e6, yarn=(16.0, 16384),
                               floats=dict(attention__temperature_scale=0.1, rope__scaling__yarn_log_multiplier=1.0)),
}

# ------------------------------------------------------------------------------------------------ the file


def packed_string(text):
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(data)) + data


def packed(kind, value):
    formats = {UINT32: "<I", INT32: "<i", FLOAT32: "<f", BOOL: "<?"}
    if kind in formats:
        return struct.pack(formats[kind], value)
    if kind == STRING:
        return packed_string(value)
    element, values = value
    return struct.pack("<IQ", element, len(values)) + b"".join(packed(element, v) for v in values)


class Reader:
    """Metadata of a GGUF file."""

    SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}

    def __init__(self, path):
        with open(path, "rb") as file:
            self.file = file
            if file.read(4) != b"GGUF":
                raise ValueError(f"{path} is no GGUF file")
            _, _, count = self.take("I"), self.take("Q"), self.take("Q")
            self.metadata = {}
            for _ in range(count):
                key = self.value(STRING).decode()
                kind = self.take("I")
                self.metadata[key] = (kind, self.value(kind))

    def take(self, letter):
        return struct.unpack("<" + letter, self.file.read(struct.calcsize(letter)))[0]

    def value(self, kind):
        if kind in self.SCALARS:
            return self.take(self.SCALARS[kind])
        if kind == STRING:
            return self.file.read(self.take("Q"))
        element, count = self.take("I"), self.take("Q")
        return element, [self.value(element) for _ in range(count)]


def add_vocabulary(model, path, size):
    """That of another file, filled up to the size of this geometry; without one, llama.cpp's word for none."""
    if not path:
        model.put("tokenizer.ggml.model", STRING, "no_vocab")
        return
    found = {key: entry for key, entry in Reader(path).metadata.items() if key.startswith("tokenizer.")}
    if "tokenizer.ggml.tokens" not in found:
        raise ValueError(f"{path} has no vocabulary")
    missing = size - len(found["tokenizer.ggml.tokens"][1][1])
    if missing < 0:
        raise ValueError(f"{path} has {size - missing} tokens, more than the {size} of this geometry")
    found["tokenizer.ggml.tokens"][1][1].extend(f"<pad_{i}>".encode() for i in range(missing))
    for key, fill in (("tokenizer.ggml.scores", 0.0), ("tokenizer.ggml.token_type", 5)):  # 5: unused
        if key in found:
            found[key][1][1].extend([fill] * missing)
    model.metadata.update(found)


def describe(name, layers=0, experts=0, vocab=0, key_bias=0, later_layers=1.0, sharpness=1.0, context=0, heads=0,
             kv_heads=0):
    family, arch, geometry = GEOMETRIES[name]
    geometry = dict(geometry, later_layers=later_layers, sharpness=sharpness)
    for key, value in (("layers", layers), ("experts", experts), ("vocab", vocab),
                       ("key_bias", key_bias), ("context", context)):
        if value and key in geometry:
            geometry[key] = value
    if heads and "kv" in geometry:
        if geometry["d"] == geometry["heads"] * geometry["head_dim"]:
            geometry["d"] = heads * geometry["head_dim"]
        geometry["kv"] = heads if geometry["kv"] == geometry["heads"] else math.gcd(heads, geometry["kv"])
        geometry["heads"] = heads
    if kv_heads and "kv" in geometry:
        geometry["kv"] = kv_heads
    model = Model(arch, name)
    family(model, geometry)
    return model, geometry["vocab"]


def stored_type(kind, dtype):
    return kind if dtype == "f16" else F32


def header(model, dtype):
    model.put("general.file_type", UINT32, 1 if dtype == "f16" else 0)
    out = bytearray(b"GGUF" + struct.pack("<IQQ", 3, len(model.tensors), len(model.metadata)))
    for key, (kind, value) in model.metadata.items():
        out += packed_string(key) + struct.pack("<I", kind) + packed(kind, value)
    offset = 0
    for name, shape, kind, _ in model.tensors:
        kind = stored_type(kind, dtype)
        out += packed_string(name) + struct.pack("<I", len(shape))
        out += b"".join(struct.pack("<Q", size) for size in reversed(shape))
        out += struct.pack("<IQ", kind, offset)
        offset += math.prod(shape) * (2 if kind == F16 else 4)
        offset += -offset % ALIGNMENT
    return bytes(out) + b"\0" * (-len(out) % ALIGNMENT)


def noisy(values, part):
    """Of the same deviation, a part of it drawn anew."""
    def mixed(random, first, count, shape):
        noise = np.random.default_rng([first, count, shape[0]]).standard_normal(count, np.float32) / math.sqrt(shape[-1])
        return math.sqrt(1 - part * part) * values(random, first, count, shape) + np.float32(part) * noise
    return mixed


def add_noise(model, part):
    """To the matrices that write to the output of a layer."""
    model.tensors = [(name, shape, kind, noisy(values, part) if re.search(r"attn_output|ffn_down", name) else values)
                     for name, shape, kind, values in model.tensors]


def write(model, dtype, seed, path, like=None):
    """like: a model whose tensors of the same names have the same values."""
    places = {tensor[0]: index for index, tensor in enumerate((like or model).tensors)}
    with open(path, "wb") as file:
        file.write(header(model, dtype))
        for name, shape, kind, values in model.tensors:
            random = np.random.default_rng([seed, places[name]])
            number = np.float16 if stored_type(kind, dtype) == F16 else np.float32
            count = math.prod(shape)
            for first in range(0, count, PIECE):
                file.write(values(random, first, min(PIECE, count - first), shape).astype(number).tobytes())
            file.write(b"\0" * (-file.tell() % ALIGNMENT))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", nargs="?", metavar="OUT.gguf")
    parser.add_argument("--geometry", required=True, choices=GEOMETRIES)
    parser.add_argument("--dtype", default="f16", choices=["f16", "f32"],
                        help="of matrices; vectors and what converters keep precise are f32 in both")
    parser.add_argument("--vocabulary", metavar="FROM.gguf",
                        help="take the vocabulary of this file; none: no vocabulary")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--layers", type=int, default=0, help="fewer or more layers than the real model")
    parser.add_argument("--heads", type=int, default=0,
                        help="other heads of attention; the width follows where it is that of all heads together")
    parser.add_argument("--kv-heads", type=int, default=0, help="other heads of K and V, which must divide the heads")
    parser.add_argument("--experts", type=int, default=0, help="fewer experts, where there are any")
    parser.add_argument("--vocab-size", type=int, default=0, help="a smaller vocabulary")
    parser.add_argument("--key-bias", type=float, default=0, metavar="NORM",
                        help="the norm of the biases of each K head, if any; trained models have some of 300")
    parser.add_argument("--context", type=int, default=0, help="another length, in the file's metadata")
    parser.add_argument("--draft", metavar="DRAFT.gguf", help="also write a model that drafts for it")
    parser.add_argument("--later-layers", type=float, default=1.0, metavar="X",
                        help="multiplies what the layers after the first add")
    parser.add_argument("--draft-noise", type=float, default=0.0, metavar="X",
                        help="0 to 1: the part of the draft's layer that is not the model's")
    parser.add_argument("--sharpness", type=float, default=1.0, metavar="X", help="multiplies the logits")
    parser.add_argument("--list", action="store_true", help="print name, type and shape of the tensors, write nothing")
    arguments = parser.parse_args()
    if not arguments.list and not arguments.out:
        parser.error("name the file to write, or use --list")

    family, _, geometry = GEOMETRIES[arguments.geometry]
    changed = arguments.draft or arguments.later_layers != 1 or arguments.sharpness != 1
    if changed and (family is not decoder or geometry["tied"] or "experts" in geometry):
        parser.error("--draft, --later-layers and --sharpness are for tinyllama-1.1b")

    def describe_with(layers):
        return describe(arguments.geometry, layers, arguments.experts, arguments.vocab_size, arguments.key_bias,
                        arguments.later_layers, arguments.sharpness, arguments.context, arguments.heads,
                        arguments.kv_heads)

    model, vocab = describe_with(arguments.layers)
    parameters = sum(math.prod(shape) for _, shape, _, _ in model.tensors)
    if arguments.list:
        for name, shape, kind, _ in model.tensors:
            kind = "F16" if stored_type(kind, arguments.dtype) == F16 else "F32"
            print(f"{name}  {kind}  {' x '.join(map(str, reversed(shape)))}")
    else:
        try:
            add_vocabulary(model, arguments.vocabulary, vocab)
            write(model, arguments.dtype, arguments.seed, arguments.out)
            if arguments.draft:
                draft, _ = describe_with(1)
                add_noise(draft, arguments.draft_noise)
                add_vocabulary(draft, arguments.vocabulary, vocab)
                write(draft, arguments.dtype, arguments.seed, arguments.draft, like=model)
        except (OSError, ValueError) as error:
            sys.exit(f"random_model.py: {error}")
    print(f"{arguments.geometry}: {parameters / 1e6:.1f} M parameters")


if __name__ == "__main__":
    main()
