#!/usr/bin/env python3
"""What other programs compute of the golden fixtures, for engine_golden_fixtures_test.

    tools/golden/witnesses.py --llama PROGRAM --commit C    asks llama.cpp: PROGRAM is llama_logits.cpp, built against it
    tools/golden/witnesses.py --transformers                asks transformers, in an environment that has torch and it

Each replaces its own part of tests/data/witnesses.json and witnesses.f32: logits of every third position of the
fixtures' text. The families' fixtures keep their weights: transformers gets them under its own names, in its order.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import numpy

import gguf

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "data")
GOLDEN, INDEX, LOGITS = (os.path.join(ROOT, name) for name in ("golden", "witnesses.json", "witnesses.f32"))
STEP = 3
# What llama.cpp computes otherwise than the original, or does not load.
NOT_LLAMA = {"qwen2vl": "reads no epsilon of its norms", "exaone4-32b": "reads a window in models of 64 layers only",
             "gpt-oss-yarn": "begins and ends the mixture of positions at whole pairs"}
GELU_TABLE = 8e-3  # llama.cpp looks GELU up by float16: allowed of families with it
EXACT = 1e-4


def fixtures():
    with open(os.path.join(GOLDEN, "golden.json"), encoding="utf-8") as file:
        golden = json.load(file)
    names = [model["name"] for model in golden["models"] if model["weights"] == "F32"]
    first, last = names.index("gemma"), names.index("stablelm-12b")
    return golden["tokens"], names[first:last + 1]


def path_of(name):
    return os.path.join(GOLDEN, name + ".gguf")


def read(name):
    with open(path_of(name), "rb") as file:
        return gguf.read(file.read())


def ask_llama(program, name, tokens):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "logits.f32")
        subprocess.run([program, path_of(name), out, *map(str, tokens)], check=True)
        return numpy.fromfile(out, "<f4").reshape(len(tokens), -1)


# ---- transformers ----------------------------------------------------------------------------------------------------

# The class of a family, what its configuration has beside the sizes, and the order of q's and k's rows: "halves" are
# permuted into neighbouring pairs by llama.cpp's converter.
NAMES = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
         "post_attention_norm": "post_attention_layernorm", "post_ffw_norm": "post_feedforward_layernorm",
         "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
         "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
OTHER_NAMES = {
    "gpt-oss": {"attn_sinks": "self_attn.sinks", "ffn_gate_inp": "mlp.router"},
    "hunyuan-dense": {"attn_q_norm": "self_attn.query_layernorm", "attn_k_norm": "self_attn.key_layernorm"},
    "starcoder2": {"ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"},
    **dict.fromkeys(("qwen3next", "qwen35", "qwen35moe"), {
        "post_attention_norm": "post_attention_layernorm", "attn_qkv": "linear_attn.in_proj_qkv",
        "attn_gate": "linear_attn.in_proj_z", "ssm_beta": "linear_attn.in_proj_b", "ssm_alpha": "linear_attn.in_proj_a",
        "ssm_ba": "linear_attn.in_proj_ba", "ssm_conv1d": "linear_attn.conv1d", "ssm_dt": "linear_attn.dt_bias",
        "ssm_a": "linear_attn.A_log", "ssm_norm": "linear_attn.norm", "ssm_out": "linear_attn.out_proj",
        "ffn_gate_inp": "mlp.gate", "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
        "ffn_gate_shexp": "mlp.shared_expert.gate_proj", "ffn_up_shexp": "mlp.shared_expert.up_proj",
        "ffn_down_shexp": "mlp.shared_expert.down_proj"}),
    "phi2": {"attn_output": "self_attn.dense", "ffn_up": "mlp.fc1", "ffn_down": "mlp.fc2",
             "output_norm": "final_layernorm"},
}
CLASSES = {"gemma": "Gemma", "ernie4_5": "Ernie4_5", "seed_oss": "SeedOss", "mistral3": "Ministral3", "granite": "Granite",
           "olmo2": "Olmo2", "olmo3": "Olmo3", "smollm3": "SmolLM3", "cohere2": "Cohere2", "exaone4": "Exaone4",
           "command-r": "Cohere", "hunyuan-dense": "HunYuanDenseV1", "qwen2vl": "Qwen2VLText", "qwen3vl": "Qwen3VLText",
           "qwen3next": "Qwen3Next", "qwen35": "Qwen3_5Text", "qwen35moe": "Qwen3_5MoeText", "gpt-oss": "GptOss", "starcoder2": "Starcoder2", "phi2": "Phi", "stablelm": "StableLm"}
PERMUTED = {"smollm3", "granite", "mistral3"}
DELTA_NETS = {"qwen3next", "qwen35", "qwen35moe"}


def configuration(name, family, get, has):
    import transformers
    kind = CLASSES.get(name, CLASSES.get(family))
    if kind is None or name == "granite-nope":
        return None
    layers, head_dim = get("block_count") - get("nextn_predict_layers", 0), get("attention.key_length")
    rope = {"rope_type": "default", "rope_theta": get("rope.freq_base")}
    epsilon = get("attention.layer_norm_rms_epsilon", None) or get("attention.layer_norm_epsilon")
    values = {
        "vocab_size": 50, "hidden_size": get("embedding_length"), "intermediate_size": get("feed_forward_length", None),
        "num_hidden_layers": layers, "num_attention_heads": get("attention.head_count"),
        "num_key_value_heads": get("attention.head_count_kv"), "head_dim": head_dim,
        "max_position_embeddings": get("context_length"), "tie_word_embeddings": not has("output.weight"),
        "rms_norm_eps": epsilon, "layer_norm_eps": epsilon, "norm_epsilon": epsilon, "sliding_window": None,
        "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "attention_dropout": 0.0, "resid_pdrop": 0.0,
        "embd_pdrop": 0.0, "hidden_dropout": 0.0, "residual_dropout": 0.0, "embedding_dropout": 0.0}
    if get("rope.scaling.type", None) == "yarn":
        rope.update(rope_type="yarn", factor=get("rope.scaling.factor"), beta_fast=32.0, beta_slow=1.0,
                    original_max_position_embeddings=get("rope.scaling.original_context_length"))
    values["layer_types"] = ["full_attention"] * layers
    window = get("attention.sliding_window", None)
    if window:
        values["sliding_window"] = window
        every = 2 if family == "gpt-oss" else 4
        values["layer_types"] = ["sliding_attention" if (i + 1) % every else "full_attention" for i in range(layers)]
    if get("rope.dimension_count") != head_dim:
        rope["partial_rotary_factor"] = get("rope.dimension_count") / head_dim
        values["partial_rotary_factor"] = rope["partial_rotary_factor"]
    if family == "mistral3":
        rope.update(mscale=1.0, mscale_all_dim=get("rope.scaling.yarn_log_multiplier"),
                    llama_4_scaling_beta=get("attention.temperature_scale"), max_position_embeddings=1024)
    if family == "granite":
        values.update(embedding_multiplier=get("embedding_scale"), residual_multiplier=get("residual_scale"),
                      logits_scaling=get("logit_scale"), attention_multiplier=get("attention.scale", head_dim ** -0.5))
    if family in ("command-r", "cohere2"):
        values["logit_scale"] = get("logit_scale")
    if family == "stablelm":
        values.update(use_qkv_bias=has("blk.0.attn_q.bias"), use_parallel_residual=not has("blk.0.ffn_norm.weight"),
                      qk_layernorm=has("blk.0.attn_q_norm.weight"))
    if family in ("qwen2vl", "qwen3vl"):
        rope.update(mrope_section=get("rope.dimension_sections")[:3], mrope_interleaved=family == "qwen3vl")
    if family in DELTA_NETS:
        every, size = get("full_attention_interval"), get("ssm.state_size")
        values["layer_types"] = ["full_attention" if (i + 1) % every == 0 else "linear_attention" for i in range(layers)]
        values.update(linear_conv_kernel_dim=get("ssm.conv_kernel"), linear_key_head_dim=size, linear_value_head_dim=size,
                      linear_num_key_heads=get("ssm.group_count"), linear_num_value_heads=get("ssm.time_step_rank"))
        if get("rope.dimension_sections", None):
            rope.update(mrope_section=get("rope.dimension_sections")[:3], mrope_interleaved=True)
    if family in DELTA_NETS and get("expert_count", None):
        values.update(moe_intermediate_size=get("expert_feed_forward_length"), num_experts=get("expert_count"),
                      num_experts_per_tok=get("expert_used_count"), norm_topk_prob=True,
                      shared_expert_intermediate_size=get("expert_shared_feed_forward_length"))
    if family == "gpt-oss":
        values.update(intermediate_size=get("expert_feed_forward_length"), num_local_experts=get("expert_count"),
                      num_experts_per_tok=get("expert_used_count"))
        rope["truncate"] = False
    if family == "gemma":
        values["hidden_activation"] = values["hidden_act"] = "gelu_pytorch_tanh"
    values["attention_bias"] = has("blk.0.attn_q.bias")
    values["attention_out_bias"] = has("blk.0.attn_output.bias")
    values["mlp_bias"] = values["use_bias"] = has("blk.0.ffn_down.bias")
    if name == "olmo3":
        plain = {"rope_type": "default", "rope_theta": rope["rope_theta"]}
        rope = {"full_attention": rope, "sliding_attention": plain}
    values["rope_parameters"] = rope
    return kind, getattr(transformers, kind + "Config")(**values)


def of_delta_net(metadata, family, part, values):
    """A tensor's values as transformers has them: heads of values stand beside those that share a head of keys."""
    keys, heads, size = (metadata[family + ".ssm." + key] for key in ("group_count", "time_step_rank", "state_size"))
    share = heads // keys

    def grouped(values, axis=0):  # from turns
        if family == "qwen3next":
            return values
        values = numpy.moveaxis(values, axis, 0)
        order = numpy.arange(len(values)).reshape(share, keys, -1).swapaxes(0, 1).reshape(-1)
        return numpy.moveaxis(values[order], 0, axis)

    if part in ("attn_qkv", "ssm_conv1d"):
        values = numpy.concatenate([values[:2 * keys * size], grouped(values[2 * keys * size:])])
    elif part in ("attn_gate", "ssm_beta", "ssm_alpha", "ssm_dt"):
        values = grouped(values)
    elif part == "ssm_out":
        values = grouped(values, 1)
    elif part == "ssm_a":
        values = numpy.log(-grouped(values))
    return values[:, None] if part == "ssm_conv1d" else values


def state_of(name, family, metadata, tensors):
    """The tensors by transformers' names."""
    heads, kv_heads = (metadata[family + ".attention." + key] for key in ("head_count", "head_count_kv"))
    head_dim = metadata[family + ".attention.key_length"]
    state, experts = {}, {}
    layers = metadata[family + ".block_count"] - metadata.get(family + ".nextn_predict_layers", 0)
    for tensor_name, tensor in tensors.items():
        values = tensor.values
        if family in DELTA_NETS:
            if tensor_name.startswith("blk.") and int(tensor_name.split(".")[1]) >= layers:
                continue
            if "norm" in tensor_name and "ssm_norm" not in tensor_name:
                values = values - 1
        if family == "gemma" and "norm" in tensor_name:
            values = values - 1  # its norms multiply with 1 + weight
        part, kind = tensor_name.rsplit(".", 1) if not tensor_name.endswith("ssm_a") else (tensor_name, "")
        names = {**NAMES, **OTHER_NAMES.get(family, {})}
        if not part.startswith("blk."):
            part = {"token_embd": "model.embed_tokens", "output_norm": "model." + names.get("output_norm", "norm"),
                    "output": "lm_head"}[part]
            state[part + "." + kind] = values
            continue
        _, layer, part = part.split(".")
        prefix = "model.layers.%s." % layer
        if family in DELTA_NETS and (part.startswith("ssm_") or part in ("attn_qkv", "attn_gate")):
            values = of_delta_net(metadata, family, part, values)
            key = prefix + names[part] + ("" if part in ("ssm_a", "ssm_dt") else ".weight")
            state[key] = values
            continue
        if part == "ffn_gate_inp_shexp":
            values = values[None, :]
        if part == "attn_qkv":
            sizes = numpy.cumsum([heads * head_dim, kv_heads * head_dim])
            for which, piece in zip("qkv", numpy.split(values, sizes)):
                state[prefix + names["attn_" + which] + "." + kind] = piece
            continue
        if part in ("attn_q_norm", "attn_k_norm") and values.ndim == 2:
            for head, row in enumerate(values):
                state[prefix + "self_attn.%s_layernorm.norms.%d.%s" % (part[5], head, kind)] = row
            continue
        if part in ("attn_q", "attn_k") and family in PERMUTED:
            count = heads if part == "attn_q" else kv_heads
            values = values.reshape(count, head_dim // 2, 2, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)
        if part.endswith("_exps"):
            experts.setdefault((prefix, kind), {})[part] = values
            continue
        state[prefix + names[part] + ("" if part == "attn_sinks" else "." + kind)] = values
    if family == "qwen3next":  # q, k, v and z of a head of keys, then of the next
        keys = metadata[family + ".ssm.group_count"]
        for name in [name for name in state if name.endswith("in_proj_qkv.weight")]:
            size = keys * metadata[family + ".ssm.state_size"]
            parts = [*numpy.split(state.pop(name), [size, 2 * size]), state.pop(name.replace("in_proj_qkv", "in_proj_z"))]
            parts = [part.reshape(keys, -1, part.shape[1]) for part in parts]
            both = numpy.concatenate(parts, axis=1)
            state[name.replace("in_proj_qkv", "in_proj_qkvz")] = both.reshape(-1, both.shape[2])
    for (prefix, kind), parts in experts.items():
        if family in DELTA_NETS:
            both = numpy.concatenate([parts["ffn_gate_exps"], parts["ffn_up_exps"]], axis=1)
            state[prefix + "mlp.experts.gate_up_proj"] = both
            state[prefix + "mlp.experts.down_proj"] = parts["ffn_down_exps"]
            continue
        # Rows of gate and up take turns; matrices have inputs first.
        suffix = "" if kind == "weight" else "_bias"
        both = numpy.stack([parts["ffn_gate_exps"], parts["ffn_up_exps"]], axis=2)
        both = both.reshape(both.shape[0], -1, *both.shape[3:])
        for name, values in (("gate_up_proj", both), ("down_proj", parts["ffn_down_exps"])):
            state[prefix + "mlp.experts." + name + suffix] = values.swapaxes(1, 2) if kind == "weight" else values
    return state


def ask_transformers(name, tokens):
    """None if it does not have the family."""
    import torch
    import transformers
    metadata, tensors = read(name)
    family = metadata["general.architecture"]

    def get(key, *absent):
        return metadata.get(family + "." + key, *absent) if absent else metadata[family + "." + key]

    found = configuration(name, family, get, lambda tensor: tensor in tensors)
    if not found:
        return None
    kind, config = found
    config._attn_implementation = config._experts_implementation = "eager"
    state = {key: torch.tensor(value, dtype=torch.float64) for key, value in state_of(name, family, metadata, tensors).items()}
    if kind.endswith("Text"):
        model = getattr(transformers, kind + "Model")(config)
        head = state.pop("lm_head.weight", state["model.embed_tokens.weight"])
        state = {key.removeprefix("model."): value for key, value in state.items()}
    else:
        model, head = getattr(transformers, kind + "ForCausalLM")(config), None
        if config.tie_word_embeddings:
            state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model = model.double().eval()
    wrong = model.load_state_dict(state, strict=False)
    missing = [key for key in wrong.missing_keys if "rotary" not in key]
    # Layer norms of StableLM's heads and of Cohere have no biases in either.
    if missing or wrong.unexpected_keys:
        raise ValueError("%s: missing %s, unexpected %s" % (name, missing, wrong.unexpected_keys))
    with torch.no_grad():
        out = model(torch.tensor([tokens]), use_cache=False)
        logits = out.logits[0] if head is None else out.last_hidden_state[0] @ head.T
    return logits.numpy().astype("<f4")


# ---- the files -------------------------------------------------------------------------------------------------------


def load():
    if not os.path.exists(INDEX):
        return []
    with open(INDEX, encoding="utf-8") as file:
        entries = json.load(file)["logits"]
    logits = numpy.fromfile(LOGITS, "<f4").reshape(len(entries), -1)
    return list(zip(entries, logits))


def save(rows):
    rows.sort(key=lambda row: (row[0]["by"], row[0]["model"]))
    entries = ",\n  ".join(json.dumps(entry) for entry, _ in rows)
    with open(INDEX, "w", encoding="utf-8") as file:
        file.write('{"step": %d,\n "logits": [\n  %s\n ]}\n' % (STEP, entries))
    numpy.concatenate([logits for _, logits in rows]).astype("<f4").tofile(LOGITS)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama", metavar="PROGRAM")
    parser.add_argument("--commit", help="of llama.cpp")
    parser.add_argument("--transformers", action="store_true")
    arguments = parser.parse_args()
    if bool(arguments.llama) == arguments.transformers or bool(arguments.llama) != bool(arguments.commit):
        parser.error("say --llama and --commit, or --transformers")
    if arguments.llama:
        witness, by = "llama.cpp", "llama.cpp " + arguments.commit
    else:
        import transformers
        witness, by = "transformers", "transformers " + transformers.__version__
    rows = [row for row in load() if not row[0]["by"].startswith(witness)]
    tokens, names = fixtures()
    exact = numpy.fromfile(os.path.join(GOLDEN, "logits.f32"), "<f4")
    with open(os.path.join(GOLDEN, "golden.json"), encoding="utf-8") as file:
        order = [model["name"] for model in json.load(file)["models"]]
    exact = exact.reshape(len(order), len(tokens), -1)
    for name in names:
        if arguments.llama and name in NOT_LLAMA:
            print("%-16s llama.cpp %s" % (name, NOT_LLAMA[name]))
            continue
        logits = ask_llama(arguments.llama, name, tokens) if arguments.llama else ask_transformers(name, tokens)
        if logits is None:
            print("%-16s is none of transformers'" % name)
            continue
        has_gelu = arguments.llama and read(name)[0]["general.architecture"] in ("gemma", "starcoder2", "phi2")
        print("%-16s max %.1e from the pass in float64" % (name, numpy.abs(logits - exact[order.index(name)]).max()))
        entry = {"model": name, "by": by, "max_abs": GELU_TABLE if has_gelu else EXACT}
        rows.append((entry, logits[::STEP].reshape(-1)))
    save(rows)


if __name__ == "__main__":
    main()
