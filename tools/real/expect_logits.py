#!/usr/bin/env python3
"""Logits of a text by Gemma 3 270M with its weights in F32, as transformers computes them, for tests/real/gemma_test.cpp.

    expect_logits.py GEMMA.gguf IDS.json OUT.json

The weights of the GGUF file are made float32 numbers, exactly. IDS is a list of token ids (`troupe tokenize --ids`). OUT
has them and, of each position, the ids of the 20 largest logits with these. Needs torch, transformers and gguf, in an
environment of its own.
"""
import json
import re
import sys

import gguf
import numpy
import torch
import transformers

LARGEST = 20
NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
LAYER_NAMES = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
               "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm",
               "attn_k_norm": "self_attn.k_norm", "post_attention_norm": "post_attention_layernorm",
               "ffn_norm": "pre_feedforward_layernorm", "post_ffw_norm": "post_feedforward_layernorm",
               "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}


def field(reader, key):
    return reader.fields[key].contents()


def original_name(name):
    base = name.removesuffix(".weight")
    layer = re.fullmatch(r"blk\.(\d+)\.(\w+)", base)
    return f"model.layers.{layer[1]}.{LAYER_NAMES[layer[2]]}.weight" if layer else NAMES[base] + ".weight"


def read_model(path):
    reader = gguf.GGUFReader(path)
    state = {}
    for tensor in reader.tensors:
        weights = gguf.dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32)
        weights = weights.reshape(tensor.shape[::-1].tolist())
        # Gemma multiplies by one plus the norm's weight; GGUF has the sum.
        state[original_name(tensor.name)] = torch.from_numpy(weights - 1 if "norm" in tensor.name else weights.copy())
    layers = field(reader, "gemma3.block_count")
    config = transformers.Gemma3TextConfig(
        vocab_size=len(field(reader, "tokenizer.ggml.tokens")),
        hidden_size=field(reader, "gemma3.embedding_length"),
        intermediate_size=field(reader, "gemma3.feed_forward_length"),
        num_hidden_layers=layers,
        num_attention_heads=field(reader, "gemma3.attention.head_count"),
        num_key_value_heads=field(reader, "gemma3.attention.head_count_kv"),
        head_dim=field(reader, "gemma3.attention.key_length"),
        query_pre_attn_scalar=field(reader, "gemma3.attention.key_length"),
        sliding_window=field(reader, "gemma3.attention.sliding_window"),
        rms_norm_eps=field(reader, "gemma3.attention.layer_norm_rms_epsilon"),
        rope_theta=field(reader, "gemma3.rope.freq_base"),
        rope_local_base_freq=10000.0,
        attn_implementation="eager")
    model = transformers.Gemma3ForCausalLM(config).eval()
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    missing, unexpected = model.load_state_dict(state, strict=False)
    if missing or unexpected:
        sys.exit(f"weights that are missing: {missing}, or too many: {unexpected}")
    return model


def main(path, ids_file, out):
    model = read_model(path)
    with open(ids_file, encoding="utf-8") as file:
        ids = json.load(file)
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([ids])).logits[0]
    rows = []
    for row in logits:
        top = torch.topk(row, LARGEST)
        rows.append({"ids": top.indices.tolist(), "logits": [round(x, 4) for x in top.values.tolist()]})
    with open(out, "w", encoding="utf-8") as file:
        json.dump({"by": f"transformers {transformers.__version__}, torch {torch.__version__}", "ids": ids, "positions": rows},
                  file)
        file.write("\n")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
