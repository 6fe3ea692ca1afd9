#!/usr/bin/env python3
"""Makes a GGUF file of a BERT sentence encoder as Hugging Face stores it, in F32.

    bert_to_gguf.py FOLDER OUT.gguf

FOLDER has config.json, 1_Pooling/config.json, vocab.txt and model.safetensors. Needs the
packages gguf, numpy and safetensors.
"""
import json
import pathlib
import sys

import gguf
from safetensors.numpy import load_file

# By their names in the source and in GGUF.
OUTER = {"embeddings.word_embeddings": "token_embd", "embeddings.position_embeddings": "position_embd",
         "embeddings.token_type_embeddings": "token_types", "embeddings.LayerNorm": "token_embd_norm"}
INNER = {"attention.self.query": "attn_q", "attention.self.key": "attn_k", "attention.self.value": "attn_v",
         "attention.output.dense": "attn_output", "attention.output.LayerNorm": "attn_output_norm",
         "intermediate.dense": "ffn_up", "output.dense": "ffn_down", "output.LayerNorm": "layer_output_norm"}


def piece(token):
    """As GGUF files of BERT have it: a word begins with U+2581, what goes on with a word has no mark."""
    if token.startswith("[") and token.endswith("]"):
        return token
    return token[2:] if token.startswith("##") else "\u2581" + token


def tensor_name(name):
    """The name in GGUF; None: it is no weight of the encoder."""
    module, _, kind = name.rpartition(".")
    if module in OUTER:
        return f"{OUTER[module]}.{kind}"
    parts = module.split(".", 3)
    if parts[:2] == ["encoder", "layer"] and parts[3] in INNER:
        return f"blk.{parts[2]}.{INNER[parts[3]]}.{kind}"
    return None


def main(folder, out):
    def read(name):
        return json.loads((folder / name).read_text())

    config, pooling = read("config.json"), read("1_Pooling/config.json")
    assert config["model_type"] == "bert" and config["hidden_act"] == "gelu", config
    assert pooling["pooling_mode_mean_tokens"], pooling
    writer = gguf.GGUFWriter(out, "bert")
    writer.add_name(folder.parent.name.removeprefix("gt_").replace("_", "-"))
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_layer_norm_eps(config["layer_norm_eps"])
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.MEAN)
    tokens = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
    special = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_type_count(config["type_vocab_size"])
    writer.add_token_list([piece(token) for token in tokens])
    writer.add_token_types([gguf.TokenType.CONTROL if token in special else gguf.TokenType.NORMAL for token in tokens])
    writer.add_unk_token_id(tokens.index("[UNK]"))
    writer.add_bos_token_id(tokens.index("[CLS]"))
    writer.add_eos_token_id(tokens.index("[SEP]"))
    writer.add_sep_token_id(tokens.index("[SEP]"))
    writer.add_pad_token_id(tokens.index("[PAD]"))
    writer.add_mask_token_id(tokens.index("[MASK]"))
    for name, values in sorted(load_file(folder / "model.safetensors").items()):
        if to := tensor_name(name):
            writer.add_tensor(to, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]), sys.argv[2])
