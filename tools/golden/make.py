#!/usr/bin/python3
"""Golden fixtures: tiny models with random weights, and the logits that they must give.

    tools/golden/make.py                writes tests/data/golden anew
    tools/golden/make.py --verify       compares what it would write with what is there
    tools/golden/make.py --check DIR    compares its passes with other logits: DIR has NAME.json, NAME.gguf and
                                        NAME.logits.f32 of llama.cpp

Debian's python3-numpy is all it needs. Weights come from seeds (a number, and names of model and tensor), logits from
passes.py, in float64. A model of every family has F32 weights; a llama of every weight type (I2_S: a BitNet) has
weights that are random codes under random scales: no quantizer is needed.
"""
import argparse
import json
import os
import sys
import zlib

sys.dont_write_bytecode = True
try:
    import numpy
except ImportError:
    sys.exit(f"This needs numpy, and {sys.executable} has none. Debian: apt-get install python3-numpy, and run this with "
             "/usr/bin/python3.")

import gguf
import passes

SEED = 20240611
VOCABULARY = 50
EPSILON = 1e-3  # of all norms: far from usual ones, so that a constant in its place shows
NUM_TOKENS = 40  # more than a block of KV positions, and than the windows of Gemma's local layers
FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "data", "golden")


class Builder:
    """A model's metadata and tensors, whose matrices have the type `kind`, or F16 where their rows don't fit it."""

    def __init__(self, name, family, kind="F32", **metadata):
        self.name, self.family, self.kind = name, family, kind
        self.metadata = {"general.architecture": family, "general.name": "golden " + name,
                         "tokenizer.ggml.model": "no_vocab"}
        self.set(vocab_size=VOCABULARY, context_length=1024, **metadata)
        self.tensors = {}

    def set(self, **values):
        for key, value in values.items():
            self.metadata[self.family + "." + key.replace("__", ".")] = value

    def numbers(self, name):
        return numpy.random.default_rng([SEED, zlib.crc32(self.name.encode()), zlib.crc32(name.encode())])

    def matrix(self, name, *shape, gain=1.0, kind=None):
        kind = kind or self.kind
        entry = gguf.weight_types.TYPES[kind]
        if shape[-1] % entry.group != 0:
            kind, entry = "F16", gguf.weight_types.TYPES["F16"]
        data = entry.random(self.numbers(name), shape, gain * shape[-1] ** -0.5)
        self.tensors[name] = gguf.Tensor(kind, shape, data)

    def vector(self, name, *shape, mean=0.0, deviation=1.0):
        self.put(name, self.numbers(name).normal(mean, deviation, shape))

    def put(self, name, values):
        self.tensors[name] = gguf.Tensor("F32", values.shape, values.astype(numpy.float32).tobytes())

    def norm(self, name, *shape):
        self.vector(name, *shape, mean=1.0, deviation=0.2)

    def layer_norm(self, name, size):
        self.norm(name + ".weight", size)
        self.vector(name + ".bias", size, deviation=0.2)

    # Logits spread by 3, as a trained model's.
    def ends(self, dim, tied=False, kind=None, norm="output_norm.weight"):
        self.norm(norm, dim)
        self.matrix("token_embd.weight", VOCABULARY, dim, gain=3.0 if tied else dim**0.5, kind=kind)
        if not tied:
            self.matrix("output.weight", VOCABULARY, dim, gain=3.0, kind=kind)


def decoder(name, family, kind="F32", layers=2, dim=32, heads=2, kv_heads=1, head_dim=16, ffn=32, tied=False,
            biases=False, qk_norm=None, sub_norms=False, post_norms=False, fused=False, experts=None, mixer=False,
            base=10000.0, ends_kind=None, rotated=None, pre_norms=True, norm="rms", ffn_norm="ffn_norm", ungated=False,
            all_biases=False, sinks=False, **metadata):
    """norm: rms, layer (without biases) or biased; all_biases: of the output projection and the feed-forward part, too."""
    epsilon = "attention__layer_norm_rms_epsilon" if norm == "rms" else "attention__layer_norm_epsilon"
    b = Builder(name, family, kind, block_count=layers, embedding_length=dim, feed_forward_length=ffn,
                attention__head_count=heads, attention__head_count_kv=kv_heads, attention__key_length=head_dim,
                attention__value_length=head_dim, **{epsilon: EPSILON}, rope__dimension_count=rotated or head_dim,
                rope__freq_base=base, **metadata)
    q, kv = heads * head_dim, kv_heads * head_dim

    def put_norm(name):
        b.layer_norm(name, dim) if norm == "biased" else b.norm(name + ".weight", dim)

    b.ends(dim, tied, ends_kind)
    if norm == "biased":
        b.vector("output_norm.bias", dim, deviation=0.2)
    for layer in range(layers):
        blk = "blk.%d." % layer
        if pre_norms:
            put_norm(blk + "attn_norm")
        if fused:
            b.matrix(blk + "attn_qkv.weight", q + 2 * kv, dim, gain=1.3)
            if biases:
                b.vector(blk + "attn_qkv.bias", q + 2 * kv, deviation=0.5)
        else:
            for which, rows in (("q", q), ("k", kv), ("v", kv)):
                b.matrix(blk + "attn_%s.weight" % which, rows, dim, gain=1.3)
                if biases:
                    b.vector(blk + "attn_%s.bias" % which, rows, deviation=0.5)
        if qk_norm:
            for which, rows in (("q", q), ("k", kv)):
                shape = {"heads": (head_dim,), "rows": (rows,), "own heads": (rows // head_dim, head_dim)}[qk_norm]
                b.norm(blk + "attn_%s_norm.weight" % which, *shape)
        if sub_norms:
            b.norm(blk + "attn_sub_norm.weight", q)
        if sinks:
            b.vector(blk + "attn_sinks.weight", heads, mean=1.0)
        b.matrix(blk + "attn_output.weight", dim, q)
        if all_biases:
            b.vector(blk + "attn_output.bias", dim, deviation=0.5)
        if post_norms:
            b.norm(blk + "post_attention_norm.weight", dim)
        if mixer:
            mamba2_mixer(b, blk, dim, inner=32, heads=2, groups=1, state=16, norm=True)
        if mixer:
            b.norm(blk + "ffn_norm", dim)
        elif pre_norms and ffn_norm:
            put_norm(blk + ffn_norm)
        if experts:
            feed_forward_of_experts(b, blk, dim, **experts)
        else:
            both = family == "phi3"
            if not both and not ungated:
                b.matrix(blk + "ffn_gate.weight", ffn, dim)
            b.matrix(blk + "ffn_up.weight", ffn * (2 if both else 1), dim)
            b.matrix(blk + "ffn_down.weight", dim, ffn)
            if all_biases:
                for which, rows in (("gate", ffn), ("up", ffn), ("down", dim)):
                    if not (ungated and which == "gate"):
                        b.vector(blk + "ffn_%s.bias" % which, rows, deviation=0.5)
        if sub_norms:
            b.norm(blk + "ffn_sub_norm.weight", ffn)
        if post_norms:
            b.norm(blk + "post_ffw_norm.weight", dim)
    return b


def of_layers(name, family, heads, kv_heads, ffn, dim=32, head_dim=16, qk_norm=False, tied=False, dense=0,
              norm="output_norm.weight", experts=None, **metadata):
    """A decoder whose layers differ: without heads there is no attention; without K/V heads there is a short convolution
    (LFM2) or one matrix (deci) in its place; without a width, no feed-forward part."""
    b = Builder(name, family, block_count=len(heads), embedding_length=dim, feed_forward_length=ffn,
                attention__head_count=heads, attention__head_count_kv=kv_heads, attention__key_length=head_dim,
                attention__value_length=head_dim, attention__layer_norm_rms_epsilon=EPSILON,
                rope__dimension_count=head_dim, rope__freq_base=10000.0, **metadata)
    b.ends(dim, tied, norm=norm)
    for layer, (num_heads, num_kv_heads, width) in enumerate(zip(heads, kv_heads, ffn)):
        blk = "blk.%d." % layer
        q, kv = num_heads * head_dim, num_kv_heads * head_dim
        if num_heads:
            b.norm(blk + "attn_norm.weight", dim)
        if num_heads and not num_kv_heads and family.startswith("lfm2"):
            b.set(shortconv__l_cache=3)
            b.matrix(blk + "shortconv.in_proj.weight", 3 * dim, dim, gain=1.5)
            b.vector(blk + "shortconv.conv.weight", dim, 3, deviation=0.6)
            b.matrix(blk + "shortconv.out_proj.weight", dim, dim)
        elif num_heads and not num_kv_heads:
            b.matrix(blk + "attn_output.weight", dim, dim)
        elif num_heads:
            for which, rows in (("q", q), ("k", kv), ("v", kv)):
                b.matrix(blk + "attn_%s.weight" % which, rows, dim, gain=1.3)
            if qk_norm:
                b.norm(blk + "attn_q_norm.weight", head_dim)
                b.norm(blk + "attn_k_norm.weight", head_dim)
            b.matrix(blk + "attn_output.weight", dim, q)
        if not width:
            continue
        b.norm(blk + "ffn_norm.weight", dim)
        if experts and layer >= dense:
            feed_forward_of_experts(b, blk, dim, **experts)
            b.vector(blk + "exp_probs_b.bias", experts["count"], deviation=0.2)
            continue
        b.matrix(blk + "ffn_gate.weight", width, dim)
        b.matrix(blk + "ffn_up.weight", width, dim)
        b.matrix(blk + "ffn_down.weight", dim, width)
    return b


def with_delta_nets(name, family, layers, every, dim=32, heads=2, kv_heads=1, head_dim=16, rotated=8, key_heads=2,
                    value_heads=4, state=16, ffn=16, experts=None, further=0, tied=False, **metadata):
    """Qwen3-Next and Qwen3.5: gated delta nets, and in every n-th layer attention with a gate. `further`: the number of
    layers behind the last one, which predict further tokens."""
    b = Builder(name, family, block_count=layers + further, embedding_length=dim, attention__head_count=heads,
                attention__head_count_kv=kv_heads, attention__key_length=head_dim, attention__value_length=head_dim,
                attention__layer_norm_rms_epsilon=EPSILON, rope__dimension_count=rotated, rope__freq_base=10000.0, full_attention_interval=every, ssm__conv_kernel=4,
                ssm__inner_size=value_heads * state, ssm__state_size=state, ssm__time_step_rank=value_heads,
                ssm__group_count=key_heads, **metadata)
    if family != "qwen35moe":  # whose files have the length of experts alone
        b.set(feed_forward_length=ffn)
    if further:
        b.set(nextn_predict_layers=further)
    b.ends(dim, tied)
    for layer in range(layers + further):
        blk = "blk.%d." % layer
        b.norm(blk + "attn_norm.weight", dim)
        if layer >= layers or (layer + 1) % every == 0:
            for which, rows in (("q", 2 * heads * head_dim), ("k", kv_heads * head_dim), ("v", kv_heads * head_dim)):
                b.matrix(blk + "attn_%s.weight" % which, rows, dim, gain=1.3)
            for which in "qk":
                b.norm(blk + "attn_%s_norm.weight" % which, head_dim)
            b.matrix(blk + "attn_output.weight", dim, heads * head_dim, gain=2.0)
        else:
            delta_net(b, blk, dim, family, key_heads, value_heads, state)
        b.norm(blk + "post_attention_norm.weight", dim)
        if experts:
            feed_forward_of_experts(b, blk, dim, **experts)
        else:
            for which in ("gate", "up"):
                b.matrix(blk + "ffn_%s.weight" % which, ffn, dim)
            b.matrix(blk + "ffn_down.weight", dim, ffn)
        if layer >= layers:
            b.matrix(blk + "nextn.eh_proj.weight", dim, 2 * dim)
            for which in ("enorm", "hnorm", "shared_head_norm"):
                b.norm(blk + "nextn.%s.weight" % which, dim)
    return b


def delta_net(b, blk, dim, family, key_heads, value_heads, state):
    channels = (2 * key_heads + value_heads) * state
    b.matrix(blk + "attn_qkv.weight", channels, dim, gain=1.5)
    b.matrix(blk + "attn_gate.weight", value_heads * state, dim)
    b.vector(blk + "ssm_conv1d.weight", channels, 4, deviation=0.6)
    if family == "qwen3next":
        b.matrix(blk + "ssm_ba.weight", 2 * value_heads, dim)
    else:
        for which in ("beta", "alpha"):
            b.matrix(blk + "ssm_%s.weight" % which, value_heads, dim)
    b.vector(blk + "ssm_dt.bias", value_heads, mean=-1.5, deviation=0.5)
    b.put(blk + "ssm_a", -b.numbers(blk + "ssm_a").uniform(0.2, 2.0, value_heads))
    b.norm(blk + "ssm_norm.weight", state)
    b.matrix(blk + "ssm_out.weight", dim, value_heads * state)


def feed_forward_of_experts(b, blk, dim, count, used, ffn, shared=0, biases=False, gain=1.0):
    b.set(expert_count=count, expert_used_count=used, expert_feed_forward_length=ffn)
    b.matrix(blk + "ffn_gate_inp.weight", count, dim, gain=2.0)
    b.matrix(blk + "ffn_gate_exps.weight", count, ffn, dim, gain=gain)
    b.matrix(blk + "ffn_up_exps.weight", count, ffn, dim, gain=gain)
    b.matrix(blk + "ffn_down_exps.weight", count, dim, ffn)
    if biases:
        b.vector(blk + "ffn_gate_inp.bias", count)
        for which, rows in (("gate", ffn), ("up", ffn), ("down", dim)):
            b.vector(blk + "ffn_%s_exps.bias" % which, count, rows, deviation=0.5)
    if shared:
        b.set(expert_shared_feed_forward_length=shared)
        b.vector(blk + "ffn_gate_inp_shexp.weight", dim, deviation=dim**-0.5)
        b.matrix(blk + "ffn_gate_shexp.weight", shared, dim)
        b.matrix(blk + "ffn_up_shexp.weight", shared, dim)
        b.matrix(blk + "ffn_down_shexp.weight", dim, shared)


def convolution(b, blk, channels):
    b.vector(blk + "ssm_conv1d.weight", channels, 4, deviation=0.6)
    b.vector(blk + "ssm_conv1d.bias", channels, deviation=0.3)


def mamba2_mixer(b, blk, dim, inner, heads, groups, state, norm):
    b.set(ssm__conv_kernel=4, ssm__inner_size=inner, ssm__state_size=state, ssm__time_step_rank=heads,
          ssm__group_count=groups)
    channels = inner + 2 * groups * state
    b.matrix(blk + "ssm_in.weight", inner + channels + heads, dim, gain=1.5)
    convolution(b, blk, channels)
    b.vector(blk + "ssm_dt.bias", heads, mean=-1.5, deviation=0.5)
    b.put(blk + "ssm_a", -b.numbers(blk + "ssm_a").uniform(0.2, 2.0, (heads, 1)))
    b.vector(blk + "ssm_d", heads, 1, mean=1.0, deviation=0.3)
    if norm:
        b.norm(blk + "ssm_norm.weight", groups, inner // groups)
    b.matrix(blk + "ssm_out.weight", dim, inner)


def mamba(name, second, layers=2, dim=32, inner=64, state=16, rank=4):
    b = Builder(name, "mamba2" if second else "mamba", block_count=layers, embedding_length=dim, feed_forward_length=0,
                attention__head_count=0, attention__layer_norm_rms_epsilon=EPSILON)
    b.ends(dim, tied=True)
    for layer in range(layers):
        blk = "blk.%d." % layer
        b.norm(blk + "attn_norm.weight", dim)
        if second:
            mamba2_mixer(b, blk, dim, inner, heads=4, groups=2, state=state, norm=True)
            continue
        b.set(ssm__conv_kernel=4, ssm__inner_size=inner, ssm__state_size=state, ssm__time_step_rank=rank)
        b.matrix(blk + "ssm_in.weight", 2 * inner, dim, gain=1.5)
        convolution(b, blk, inner)
        b.matrix(blk + "ssm_x.weight", rank + 2 * state, inner)
        b.matrix(blk + "ssm_dt.weight", inner, rank)
        b.vector(blk + "ssm_dt.bias", inner, mean=-1.5, deviation=0.5)
        b.put(blk + "ssm_a", -b.numbers(blk + "ssm_a").uniform(0.2, 4.0, (inner, state)))
        b.vector(blk + "ssm_d", inner, mean=1.0, deviation=0.3)
        b.matrix(blk + "ssm_out.weight", dim, inner)
    return b


def rwkv(name, seventh, layers=2, dim=32, ffn=48, head_size=16):
    b = Builder(name, "rwkv7" if seventh else "rwkv6", block_count=layers, embedding_length=dim,
                feed_forward_length=ffn, attention__head_count=0, attention__layer_norm_epsilon=EPSILON,
                wkv__head_size=head_size)
    b.ends(dim)
    b.layer_norm("token_embd_norm", dim)
    b.vector("output_norm.bias", dim, deviation=0.2)
    for layer in range(layers):
        blk = "blk.%d." % layer
        for part in ("attn_norm", "attn_norm_2", "time_mix_ln"):
            b.layer_norm(blk + part, dim)
        for which in ("receptance", "key", "value", "output"):
            b.matrix(blk + "time_mix_%s.weight" % which, dim, dim)
        (time_mixing_7 if seventh else time_mixing_6)(b, blk, dim, head_size)
        b.matrix(blk + "channel_mix_key.weight", ffn, dim)
        b.matrix(blk + "channel_mix_value.weight", dim, ffn)
        for which in ("k",) if seventh else ("k", "r"):
            b.put(blk + "channel_mix_lerp_%s.weight" % which, shares(b, blk + "channel" + which, 1, 1, dim))
        if not seventh:
            b.matrix(blk + "channel_mix_receptance.weight", dim, dim)
    return b


def shares(b, name, *shape):
    return b.numbers(name).uniform(0, 1, shape)


def time_mixing_6(b, blk, dim, head_size, mix_rank=8, decay_rank=8):
    b.set(time_mix_extra_dim=mix_rank, time_decay_extra_dim=decay_rank, rescale_every_n_layers=1)
    b.matrix(blk + "time_mix_gate.weight", dim, dim)
    b.put(blk + "time_mix_lerp_x.weight", shares(b, blk + "x", 1, 1, dim))
    b.put(blk + "time_mix_lerp_fused.weight", shares(b, blk + "fused", 5, 1, 1, dim))
    b.matrix(blk + "time_mix_w1.weight", 5 * mix_rank, dim)
    b.matrix(blk + "time_mix_w2.weight", 5, dim, mix_rank, gain=0.3)
    b.vector(blk + "time_mix_decay.weight", dim, mean=-1.5)
    b.matrix(blk + "time_mix_decay_w1.weight", decay_rank, dim)
    b.matrix(blk + "time_mix_decay_w2.weight", dim, decay_rank)
    b.vector(blk + "time_mix_first.weight", dim // head_size, head_size, deviation=0.5)


def time_mixing_7(b, blk, dim, head_size, rank=8):
    b.set(attention__decay_lora_rank=rank, attention__iclr_lora_rank=rank,
          attention__value_residual_mix_lora_rank=rank, attention__gate_lora_rank=rank)
    b.put(blk + "time_mix_lerp_fused.weight", shares(b, blk + "fused", 6, 1, 1, dim))
    for which in "wavg":
        if which != "g":
            b.vector(blk + "time_mix_%s0.weight" % which, dim, deviation=0.5)
        b.matrix(blk + "time_mix_%s1.weight" % which, rank, dim)
        b.matrix(blk + "time_mix_%s2.weight" % which, dim, rank, gain=2.0)
    b.vector(blk + "time_mix_k_k.weight", dim, mean=0.8, deviation=0.2)
    b.vector(blk + "time_mix_k_a.weight", dim, mean=1.0, deviation=0.2)
    b.vector(blk + "time_mix_r_k.weight", dim, deviation=0.3)


def family_models():
    bitnet = dict(sub_norms=True, tied=True, base=500000.0)
    gemma = dict(tied=True, post_norms=True, attention__sliding_window=16)
    yield decoder("llama", "llama", heads=4, kv_heads=2)
    llama3 = decoder("llama3-rope", "llama", layers=1, base=500000.0, tied=True)
    llama3.put("rope_freqs.weight", numpy.geomspace(1, 8, 8))
    yield llama3
    yield decoder("llama-moe", "llama", experts=dict(count=4, used=2, ffn=16))
    yield decoder("qwen2", "qwen2", biases=True)
    yield decoder("qwen2moe", "qwen2moe", biases=True, experts=dict(count=5, used=2, ffn=16, shared=24))
    yield decoder("qwen3", "qwen3", qk_norm="heads", head_dim=24)
    yield decoder("qwen3moe", "qwen3moe", qk_norm="heads", experts=dict(count=6, used=3, ffn=16))
    yield decoder("phi3", "phi3", fused=True)
    yield decoder("gemma2", "gemma2", attn_logit_softcapping=5.0, final_logit_softcapping=10.0, **gemma)
    yield decoder("gemma3", "gemma3", layers=6, ffn=16, qk_norm="heads", base=1e6, **gemma)
    yield decoder("olmoe", "olmoe", kv_heads=2, qk_norm="rows", experts=dict(count=6, used=3, ffn=16))
    yield decoder("bitnet", "bitnet", **bitnet)
    yield decoder("bitnet-b1.58", "bitnet-b1.58", **bitnet)
    yield decoder("bitnet-25", "bitnet-25", layers=1, **bitnet)
    yield decoder("falcon-h1", "falcon-h1", mixer=True)
    yield from small_families()
    yield of_layers("deci", "deci", heads=[4, 4, 0, 2, 0, 4], kv_heads=[2, 0, 0, 1, 0, 1],
                    ffn=[32, 16, 48, 16, 0, 32])
    lfm2 = dict(heads=[2] * 4, kv_heads=[0, 0, 1, 0], qk_norm=True, tied=True, norm="token_embd_norm.weight")
    yield of_layers("lfm2", "lfm2", ffn=[32] * 4, **lfm2)
    yield of_layers("lfm2moe", "lfm2moe", ffn=[32] * 4, dense=1, experts=dict(count=6, used=3, ffn=16),
                    leading_dense_block_count=1, expert_gating_func=2, **lfm2)
    yield mamba("mamba", second=False)
    yield mamba("mamba2", second=True)
    yield rwkv("rwkv6", seventh=False)
    yield rwkv("rwkv7", seventh=True)


def small_families():
    """Those that came later, with feed-forward parts half as wide."""
    def small(family, name=None, **how):
        return decoder(name or family, family, ffn=16, **how)

    scales = dict(embedding_scale=6.0, residual_scale=0.4, logit_scale=1.5)
    sections = [3, 3, 2, 0]
    yarn = dict(rope__scaling__type="yarn", rope__scaling__factor=4.0, rope__scaling__original_context_length=16)
    yield small("gemma", tied=True, head_dim=24)
    yield small("internlm2")
    yield small("ernie4_5", tied=True, head_dim=24)
    yield small("seed_oss", biases=True, ffn_norm="post_attention_norm", head_dim=24)
    yield small("mistral3", attention__temperature_scale=0.3, rope__scaling__yarn_log_multiplier=0.7, **yarn)
    yield small("granite", tied=True, attention__scale=0.2, **scales)
    yield small("granite", "granite-biases", tied=True, layers=1, biases=True, all_biases=True, **scales)
    yield small("minicpm", **scales)
    after = dict(pre_norms=False, post_norms=True)
    window = dict(attention__sliding_window=16)
    four = dict(layers=4, dim=16, head_dim=8)
    yield small("granite", "granite-nope", tied=True, layers=1, rope__scaling__finetuned=False, **scales)
    yield small("olmo2", kv_heads=2, qk_norm="rows", **after)
    yield small("olmo2", "olmo3", kv_heads=2, qk_norm="rows", **after, **four, **window, **yarn)
    yield small("smollm3", tied=True, **four)
    yield small("cohere2", tied=True, norm="layer", ffn_norm=None, logit_scale=0.5, **four, **window)
    yield small("exaone4", tied=True, qk_norm="heads", layers=2, **after)
    yield small("exaone4", "exaone4-32b", tied=True, qk_norm="heads", **after, **four, **window)
    yield small("command-r", tied=True, norm="layer", ffn_norm=None, logit_scale=0.5)
    yield small("hunyuan-dense", tied=True, qk_norm="heads", head_dim=24)
    yield small("qwen2vl", biases=True, rope__dimension_sections=sections)
    yield small("qwen3vl", tied=True, qk_norm="heads", rope__dimension_sections=sections)
    yield small("starcoder2", tied=True, norm="biased", biases=True, all_biases=True, ungated=True)
    phi2 = small("phi2", kv_heads=2, norm="biased", biases=True, all_biases=True, ungated=True, ffn_norm=None, rotated=6,
                 fused=True)
    phi2.vector("output.bias", VOCABULARY, deviation=0.5)
    yield phi2
    yield small("stablelm", norm="biased", biases=True, rotated=4)
    # Gates and ups of a deviation of 5: some are beyond the limits of 7.
    gpt_oss = dict(biases=True, all_biases=True, ffn_norm="post_attention_norm", sinks=True, dim=16, head_dim=8,
                   experts=dict(count=4, used=2, ffn=16, biases=True, gain=5.0), **window)
    yield small("gpt-oss", **gpt_oss)
    yield small("gpt-oss", "gpt-oss-yarn", **gpt_oss, rope__scaling__type="yarn", rope__scaling__factor=4.0,
                rope__scaling__original_context_length=150)
    delta = dict(layers=3, every=3)
    yield with_delta_nets("qwen3next", "qwen3next", experts=dict(count=4, used=2, ffn=16, shared=16), **delta)
    delta["rope__dimension_sections"] = [2, 1, 1, 0]
    yield with_delta_nets("qwen35", "qwen35", tied=True, further=1, **delta)
    yield with_delta_nets("qwen35moe", "qwen35moe", experts=dict(count=4, used=2, ffn=16, shared=16), **delta)
    yield small("stablelm", "stablelm-12b", norm="biased", ffn_norm=None, qk_norm="own heads", rotated=4)


def weight_type_models():
    for kind, entry in gguf.weight_types.TYPES.items():
        if kind == "F32":
            continue
        if kind == "I2_S":
            yield decoder("bitnet-I2_S", "bitnet-b1.58", kind, layers=1, dim=128, head_dim=64, ffn=128, sub_norms=True,
                          tied=True, ends_kind="F16")
        elif entry.group == 256:  # few rows of 256; those of attn_output and ffn_down are shorter, and so F16
            yield decoder("llama-" + kind, "llama", kind, layers=1, dim=256)
        else:
            yield decoder("llama-" + kind, "llama", kind, dim=64, ffn=64)


def tokens():
    return numpy.random.default_rng(SEED).integers(0, VOCABULARY, NUM_TOKENS)


def difference(a, b):
    return {"max_abs": float(numpy.abs(a - b).max()), "rms": float(numpy.sqrt(((a - b) ** 2).mean()))}


def tolerances(model, exact):
    """How far from the exact logits an engine may be. With activations in float32: ten times what float32 sums cost.
    With rounded ones: 1.5 times the RMS that llama.cpp's way to round costs here, and twice its largest difference."""
    gemma = 2.0 if model.family.startswith("gemma") else 1.0
    out = {"exact": {"max_abs": gemma * 2e-4, "rms": gemma * 2e-5}}
    if any(gguf.weight_types.TYPES[tensor.kind].activations for tensor in model.tensors.values()):
        theirs = difference(passes.logits(passes.Model(model.metadata, model.tensors, rounds=True), tokens()), exact)
        out["rounded"] = {"max_abs": round(2 * theirs["max_abs"], 6), "rms": round(1.5 * theirs["rms"], 6)}
    return out


def make():
    """name -> bytes of all files."""
    files, entries, logits = {}, [], b""
    for builder in [*family_models(), *weight_type_models()]:
        model = passes.Model(builder.metadata, builder.tensors)
        exact = passes.logits(model, tokens())
        assert numpy.isfinite(exact).all() and 1 < exact.std() < 6, (builder.name, exact.std())
        files[builder.name + ".gguf"] = gguf.write(builder.metadata, builder.tensors)
        logits += exact.astype("<f4").tobytes()
        entry = {"name": builder.name, "weights": builder.kind, "tolerance": tolerances(model, exact)}
        entries.append(json.dumps(entry))
    files["logits.f32"] = logits  # [models, tokens, vocabulary]
    head = '{"vocabulary": %d,\n "tokens": %s,\n "models": [\n  %s\n ]}\n'
    files["golden.json"] = (head % (VOCABULARY, json.dumps(tokens().tolist()), ",\n  ".join(entries))).encode()
    return files


def write():
    os.makedirs(FOLDER, exist_ok=True)
    for name in os.listdir(FOLDER):
        os.remove(os.path.join(FOLDER, name))
    files = make()
    for name, data in files.items():
        with open(os.path.join(FOLDER, name), "wb") as out:
            out.write(data)
    print("%d files, %.2f MB" % (len(files), sum(map(len, files.values())) / 1e6))


def verify():
    """Logits may differ in their last bits: numpy sums differently on other CPUs."""
    made, wrong = make(), []
    for name in sorted({*made, *os.listdir(FOLDER)}):
        path = os.path.join(FOLDER, name)
        if name not in made or not os.path.exists(path):
            wrong.append(name + (" is not made by this tool" if name not in made else " is missing"))
            continue
        with open(path, "rb") as file:
            data = file.read()
        if name.endswith(".f32"):
            same = len(data) == len(made[name]) and numpy.allclose(
                numpy.frombuffer(data, "<f4"), numpy.frombuffer(made[name], "<f4"), rtol=1e-6, atol=1e-6)
        else:
            same = data == made[name]
        if not same:
            wrong.append(name + " is another than this tool makes")
    print("\n".join(wrong) or "%d files are what this tool makes" % len(made))
    return not wrong


def check(folder):
    good = True
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".json"):
            continue
        with open(os.path.join(folder, name)) as file:
            expected = json.load(file)
        if "prompt" not in expected:
            continue
        with open(os.path.join(folder, expected["file"]), "rb") as file:
            model = passes.Model(*gguf.read(file.read()))
        # Better than llama.cpp's own, whose activations are rounded: those with its weights dequantised.
        best = expected.get("exact_logits", expected["logits"])
        logits = numpy.fromfile(os.path.join(folder, best["file"]), "<f4").reshape(len(expected["prompt"]), -1)
        actual = difference(passes.logits(model, expected["prompt"]), logits)
        tolerance = expected["tolerance"]
        allowed = tolerance.get("f32_vs_exact", tolerance.get("f32_vs_logits"))
        fits = all(actual[key] <= allowed[key] for key in ("max_abs", "rms"))
        good = good and fits
        print("%-20s max %.1e, RMS %.1e%s" % (name[:-5], actual["max_abs"], actual["rms"], "" if fits else "  TOO FAR"))
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verify", action="store_true")
    parser.add_argument("--check", metavar="DIR")
    arguments = parser.parse_args()
    if arguments.check:
        sys.exit(0 if check(arguments.check) else 1)
    if arguments.verify:
        sys.exit(0 if verify() else 1)
    write()


if __name__ == "__main__":
    main()
