"""Forward passes in float64: the logits of every position of a text. Written from the papers and from what llama.cpp
documents of its files; nothing of the engine is in here.
"""
import numpy

import weight_types


def rms_normed(x, weight, epsilon):
    return x / numpy.sqrt((x * x).mean(axis=-1, keepdims=True) + epsilon) * weight


def layer_normed(x, weight, bias, epsilon):
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / numpy.sqrt((centred * centred).mean(axis=-1, keepdims=True) + epsilon) * weight + bias


def sigmoid(x):
    return 1 / (1 + numpy.exp(-x))


def silu(x):
    return x * sigmoid(x)


def gelu(x):  # with tanh, as Gemma was trained
    return 0.5 * x * (1 + numpy.tanh(numpy.sqrt(2 / numpy.pi) * (x + 0.044715 * x**3)))


def squared_relu(x):
    return numpy.maximum(x, 0) ** 2


def rounded_activations(x, how):
    """What llama.cpp makes of activations before they meet weights of a type."""
    if how == "F16":
        return x.astype(numpy.float16).astype(numpy.float64)
    if how == "BF16":
        return weight_types.to_bf16(x).astype(numpy.float64)
    pad = -x.shape[-1] % how
    groups = numpy.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, pad)]).reshape(*x.shape[:-1], -1, how)
    scale = numpy.abs(groups).max(axis=-1, keepdims=True) / 127
    codes = numpy.rint(groups / numpy.where(scale == 0, 1, scale))
    if how == 32:
        scale = scale.astype(numpy.float16).astype(numpy.float64)
    return (codes * scale).reshape(*x.shape[:-1], -1)[..., :x.shape[-1]]


class Model:
    def __init__(self, metadata, tensors, rounds=False):
        self.metadata, self.tensors, self.rounds = metadata, tensors, rounds
        self.family = metadata["general.architecture"]

    def get(self, key, default=None):
        value = self.metadata.get(self.family + "." + key, default)
        assert value is not None, key
        return value

    def has(self, name):
        return name in self.tensors

    def values(self, name):
        return self.tensors[name].values

    def vector(self, name):
        return self.values(name).reshape(-1)

    def times(self, name, x, part=None):
        """W x of each row of x; of a tensor with more matrices than one, that of `part`."""
        tensor = self.tensors[name]
        how = weight_types.TYPES[tensor.kind].activations
        if self.rounds and how:
            x = rounded_activations(x, how)
        weights = tensor.values if part is None else tensor.values[part]
        out = x @ weights.reshape(-1, x.shape[-1]).T
        scale = name.removesuffix("weight") + "scale"  # of BitNet's matrices
        return out * self.vector(scale) if self.has(scale) else out

    def head(self, x):
        return self.times("output.weight" if self.has("output.weight") else "token_embd.weight", x)


# ---- Transformers ----------------------------------------------------------------------------------------------------

# What differs from Llama.
TRAITS = {
    "llama": {"rope": "pairs", "normalised_experts": True},
    "qwen2": {},
    "qwen2moe": {},
    "qwen3": {"qk_norm": "heads"},
    "qwen3moe": {"qk_norm": "heads", "normalised_experts": True},
    "phi3": {},
    "olmoe": {"qk_norm": "rows"},
    "gemma2": {"gate": gelu, "scaled_embedding": True, "full_every": 2, "caps": (50.0, 30.0)},
    "gemma3": {"gate": gelu, "scaled_embedding": True, "full_every": 6, "qk_norm": "heads", "local_base": 10000.0},
    "bitnet": {},
    "bitnet-b1.58": {"gate": squared_relu},
    "bitnet-25": {"gate": squared_relu},
    "falcon-h1": {},
    "gemma": {"gate": gelu, "scaled_embedding": True},
    "internlm2": {"rope": "pairs"},
    "ernie4_5": {"rope": "pairs"},
    "seed_oss": {"ffn_norm": "post_attention_norm"},
    "mistral3": {"rope": "pairs"},
    "granite": {"rope": "pairs", "logits": "divided"},
    "minicpm": {"rope": "pairs", "logits": "divided"},
    "olmo2": {"qk_norm": "rows", "full_every": 4, "plain_local": True},
    "exaone4": {"qk_norm": "heads", "full_every": 4, "rope_in_local_only": True},
    "smollm3": {"rope": "pairs", "no_rope_every": 4},
    "cohere2": {"rope": "pairs", "layer_norm": True, "parallel": True, "logits": "multiplied", "full_every": 4,
                "rope_in_local_only": True},
    "command-r": {"rope": "pairs", "layer_norm": True, "parallel": True, "logits": "multiplied", "qk_norm": "heads"},
    "hunyuan-dense": {"qk_norm": "heads", "norms_rotated": True},
    "qwen2vl": {},
    "qwen3vl": {"qk_norm": "heads"},
    "starcoder2": {"layer_norm": True},
    "phi2": {"layer_norm": True, "parallel": True},
    "stablelm": {"layer_norm": True, "qk_norm": "heads"},
    "gpt-oss": {"ffn_norm": "post_attention_norm", "full_every": 2, "normalised_experts": True, "clamped": True,
                "exact_yarn": True},
    "deci": {"rope": "pairs"},
    "lfm2": {"qk_norm": "heads"},
    "lfm2moe": {"qk_norm": "heads", "normalised_experts": True, "expert_gate": "sigmoid"},
    "qwen3next": {"qk_norm": "heads", "normalised_experts": True, "ffn_norm": "post_attention_norm", "delta_net": True},
    "qwen35": {"qk_norm": "heads", "ffn_norm": "post_attention_norm", "delta_net": True, "tiled_keys": True},
    "qwen35moe": {"qk_norm": "heads", "normalised_experts": True, "ffn_norm": "post_attention_norm", "delta_net": True,
                  "tiled_keys": True},
}


class Decoder:
    def __init__(self, model):
        self.model, self.traits = model, TRAITS[model.family]
        self.dim = model.get("embedding_length")
        self.head_dim = model.get("attention.key_length", 0) or self.dim // self.heads(0)
        self.keys = {key.removeprefix(model.family + ".") for key in model.metadata}
        self.layer_norm = self.traits.get("layer_norm", False)
        self.epsilon = model.get("attention.layer_norm_epsilon" if self.layer_norm else "attention.layer_norm_rms_epsilon")

    def of_layer(self, key, layer, default=None):
        value = self.model.get(key, default)
        return value[layer] if isinstance(value, (list, tuple)) else value

    def heads(self, layer):
        return self.of_layer("attention.head_count", layer)

    def kv_heads(self, layer):
        return self.of_layer("attention.head_count_kv", layer, self.heads(layer))

    def norm(self, name, x):
        """A file without this norm has none there. Weights may be one vector, or one for each head."""
        if not self.model.has(name):
            return x
        weight = self.model.values(name)
        if not self.layer_norm:
            return rms_normed(x, weight, self.epsilon)
        bias = name.removesuffix("weight") + "bias"
        return layer_normed(x, weight, self.model.vector(bias) if self.model.has(bias) else 0, self.epsilon)

    def times(self, name, x):
        """With the matrix's biases, if it has any."""
        out, bias = self.model.times(name + ".weight", x), name + ".bias"
        return out + self.model.vector(bias) if self.model.has(bias) else out

    def is_local(self, layer):
        every = self.traits.get("full_every")
        return every is not None and "attention.sliding_window" in self.keys and (layer + 1) % every != 0

    def has_rope(self, layer):
        every = self.traits.get("no_rope_every")
        if not self.model.get("rope.scaling.finetuned", True) or (every and (layer + 1) % every == 0):
            return False
        only = self.traits.get("rope_in_local_only") and "attention.sliding_window" in self.keys
        return not only or self.is_local(layer)

    def frequencies(self, count, base, plain):
        """Of pairs of a head, and what cosines and sines are multiplied with: YaRN (Peng et al., 2023)."""
        pairs = numpy.arange(count // 2)
        frequencies = base ** (-2 * pairs / count)
        if plain or self.model.get("rope.scaling.type", "none") != "yarn":
            return frequencies, 1.0
        factor, original = (self.model.get("rope.scaling." + key) for key in ("factor", "original_context_length"))
        low, high = (count * numpy.log(original / (turns * 2 * numpy.pi)) / (2 * numpy.log(base)) for turns in (32, 1))
        if not self.traits.get("exact_yarn"):
            low, high = numpy.floor(low), numpy.ceil(high)
        low, high = max(0.0, low), min(count - 1.0, high)
        scaled = numpy.clip((pairs - low) / max(0.001, high - low), 0, 1)
        magnitude = 1 + 0.1 * numpy.log(factor)
        magnitude /= 1 + 0.1 * self.model.get("rope.scaling.yarn_log_multiplier", 0.0) * numpy.log(factor)
        return frequencies * (1 - scaled + scaled / factor), magnitude

    def rotated(self, x, layer):  # [tokens, heads, head_dim]
        if not self.has_rope(layer):
            return x
        count = self.model.get("rope.dimension_count", self.head_dim)
        base = self.model.get("rope.freq_base", 10000.0)
        if self.is_local(layer) and "local_base" in self.traits:
            base = self.traits["local_base"]
        plain = self.is_local(layer) and self.traits.get("plain_local", False)
        frequencies, magnitude = self.frequencies(count, base, plain)
        angles = numpy.arange(len(x))[:, None] * frequencies
        if self.model.has("rope_freqs.weight"):
            angles = angles / self.model.vector("rope_freqs.weight")
        cos, sin = (magnitude * f(angles)[:, None, :] for f in (numpy.cos, numpy.sin))
        if self.traits.get("rope") == "pairs":
            first, second = slice(0, count, 2), slice(1, count, 2)
        else:
            first, second = slice(0, count // 2), slice(count // 2, count)
        out = x.copy()
        out[..., first] = x[..., first] * cos - x[..., second] * sin
        out[..., second] = x[..., first] * sin + x[..., second] * cos
        return out

    def qkv(self, blk, layer, x):
        sizes = [self.heads(layer) * self.head_dim] + [self.kv_heads(layer) * self.head_dim] * 2
        if self.model.has(blk + "attn_qkv.weight"):
            parts = numpy.split(self.times(blk + "attn_qkv", x), numpy.cumsum(sizes)[:2], axis=1)
        else:
            parts = [self.model.times(blk + "attn_%s.weight" % which, x) for which in "qkv"]
        for i, which in enumerate("qkv"):
            if self.model.has(blk + "attn_%s.bias" % which):
                parts[i] = parts[i] + self.model.vector(blk + "attn_%s.bias" % which)
        if self.traits.get("qk_norm") == "rows":
            parts[:2] = [self.norm(blk + "attn_%s_norm.weight" % which, part) for which, part in zip("qk", parts)]
        parts = [part.reshape(len(x), -1, self.head_dim) for part in parts]
        return parts

    def heads_normed(self, blk, parts):
        if self.traits.get("qk_norm") != "heads":
            return parts
        return [self.norm(blk + "attn_%s_norm.weight" % which, part) for which, part in zip("qk", parts)]

    def attention(self, blk, layer, x):
        q, k, v = self.qkv(blk, layer, x)
        opened = 1.0
        if self.traits.get("delta_net"):  # the rows of each head are followed by those of its gate
            q, opened = q[:, 0::2], sigmoid(q[:, 1::2])
        steps = [lambda parts: self.heads_normed(blk, parts), lambda parts: [self.rotated(part, layer) for part in parts]]
        for step in reversed(steps) if self.traits.get("norms_rotated") else steps:
            q, k = step([q, k])
        growth = self.model.get("attention.temperature_scale", 0.0)  # Ministral: queries grow with their position
        if growth:
            original = self.model.get("rope.scaling.original_context_length")
            q = q * (1 + growth * numpy.log1p(numpy.arange(len(x)) // original))[:, None, None]
        k, v = (numpy.repeat(each, self.heads(layer) // self.kv_heads(layer), axis=1) for each in (k, v))
        scores = numpy.einsum("phd,shd->hps", q, k) * self.model.get("attention.scale", self.head_dim ** -0.5)
        if "caps" in self.traits:
            cap = self.model.get("attn_logit_softcapping", self.traits["caps"][0])
            scores = cap * numpy.tanh(scores / cap)
        distance = numpy.arange(len(x))[:, None] - numpy.arange(len(x))[None, :]
        hidden = distance < 0
        if self.is_local(layer):
            hidden |= distance >= self.model.get("attention.sliding_window")
        scores = numpy.where(hidden, -numpy.inf, scores)
        largest = scores.max(axis=-1, keepdims=True)
        weights = numpy.exp(scores - largest)
        total = weights.sum(axis=-1, keepdims=True)
        if self.model.has(blk + "attn_sinks.weight"):  # scores without values
            total = total + numpy.exp(self.model.vector(blk + "attn_sinks.weight")[:, None, None] - largest)
        weights /= total
        out = (numpy.einsum("hps,shd->phd", weights, v) * opened).reshape(len(x), -1)
        return self.times(blk + "attn_output", self.norm(blk + "attn_sub_norm.weight", out))

    def gated(self, gate, up):
        if self.traits.get("clamped"):
            gate = numpy.minimum(gate, 7.0)
            return gate * sigmoid(1.702 * gate) * (numpy.clip(up, -7.0, 7.0) + 1)
        return self.traits.get("gate", silu)(gate) * up

    def dense(self, blk, x):
        if self.model.has(blk + "ffn_gate.weight"):
            hidden = self.gated(self.times(blk + "ffn_gate", x), self.times(blk + "ffn_up", x))
        elif self.layer_norm:  # StarCoder 2 and Phi-2 have no gate
            hidden = gelu(self.times(blk + "ffn_up", x))
        else:
            hidden = self.gated(*numpy.split(self.model.times(blk + "ffn_up.weight", x), 2, axis=1))
        return self.times(blk + "ffn_down", self.norm(blk + "ffn_sub_norm.weight", hidden))

    def experts(self, blk, x):
        def times(kind, x, e):
            out = self.model.times(blk + "ffn_%s_exps.weight" % kind, x, e)
            biases = blk + "ffn_%s_exps.bias" % kind
            return out + self.model.values(biases)[e] if self.model.has(biases) else out

        scores = self.times(blk + "ffn_gate_inp", x)
        if self.traits.get("expert_gate") == "sigmoid":
            shares = sigmoid(scores)
        else:
            shares = numpy.exp(scores - scores.max(axis=1, keepdims=True))
            shares /= shares.sum(axis=1, keepdims=True)
        bias = self.model.vector(blk + "exp_probs_b.bias") if self.model.has(blk + "exp_probs_b.bias") else 0
        out = numpy.zeros_like(x)
        for row, share in enumerate(shares):
            best = numpy.argsort(-(share + bias), kind="stable")[:self.model.get("expert_used_count")]
            total = share[best].sum() if self.traits.get("normalised_experts") else 1.0
            for e in best:
                hidden = self.gated(times("gate", x[row], e), times("up", x[row], e))
                out[row] += share[e] / total * times("down", hidden, e)
        if self.model.has(blk + "ffn_gate_inp_shexp.weight"):  # one that all tokens have, behind a gate
            hidden = self.gated(self.model.times(blk + "ffn_gate_shexp.weight", x),
                                self.model.times(blk + "ffn_up_shexp.weight", x))
            opened = sigmoid(self.model.times(blk + "ffn_gate_inp_shexp.weight", x))
            out += opened * self.model.times(blk + "ffn_down_shexp.weight", hidden)
        return out

    def short_convolution(self, blk, x):
        b, c, u = numpy.split(self.model.times(blk + "shortconv.in_proj.weight", x), 3, axis=1)
        mixed = over_time(b * u, self.model.values(blk + "shortconv.conv.weight"))
        return self.model.times(blk + "shortconv.out_proj.weight", c * mixed)

    def delta_net(self, blk, x):
        """The gated delta rule (Yang et al., 2024): a head's state forgets, then k's value in it moves to v by beta.
        Heads of values share those of keys: neighbours, or in files of Qwen3.5 every n-th."""
        get, times = self.model.get, self.model.times
        size, num_keys, heads = get("ssm.state_size"), get("ssm.group_count"), get("ssm.time_step_rank")
        share = heads // num_keys
        mixed = silu(over_time(times(blk + "attn_qkv.weight", x), self.model.values(blk + "ssm_conv1d.weight")))
        q, k, v = (part.reshape(len(x), -1, get("ssm.inner_size") // heads if i == 2 else size) for i, part in
                   enumerate(numpy.split(mixed, [num_keys * size, 2 * num_keys * size], axis=1)))
        q, k = (part / numpy.sqrt((part * part).sum(axis=2, keepdims=True) + 1e-6) for part in (q, k))
        of_head = numpy.arange(heads) % num_keys if self.traits.get("tiled_keys") else numpy.arange(heads) // share
        q, k = q[:, of_head] * size ** -0.5, k[:, of_head]
        if self.model.has(blk + "ssm_ba.weight"):  # both of a head of keys, then of the next one
            both = times(blk + "ssm_ba.weight", x).reshape(len(x), num_keys, 2, share)
            beta, alpha = both[:, :, 0].reshape(len(x), heads), both[:, :, 1].reshape(len(x), heads)
        else:
            beta, alpha = (times(blk + "ssm_%s.weight" % name, x) for name in ("beta", "alpha"))
        beta = sigmoid(beta)
        decay = numpy.exp(self.model.vector(blk + "ssm_a") * softplus(alpha + self.model.vector(blk + "ssm_dt.bias")))
        state, y = numpy.zeros((heads, size, v.shape[2])), numpy.zeros_like(v)  # [heads, keys, values]
        for t in range(len(x)):
            state = state * decay[t][:, None, None]
            delta = (v[t] - numpy.einsum("hij,hi->hj", state, k[t])) * beta[t][:, None]
            state = state + k[t][:, :, None] * delta[:, None, :]
            y[t] = numpy.einsum("hij,hi->hj", state, q[t])
        y = rms_normed(y, self.model.vector(blk + "ssm_norm.weight"), self.epsilon)
        y = y.reshape(len(x), -1) * silu(times(blk + "attn_gate.weight", x))
        return times(blk + "ssm_out.weight", y)

    def mixed(self, blk, layer, x):
        """What stands before the feed-forward part; zeros if nothing does."""
        if self.traits.get("delta_net") and self.model.has(blk + "ssm_out.weight"):
            return self.delta_net(blk, x)
        if self.model.has(blk + "shortconv.in_proj.weight"):
            return self.short_convolution(blk, x)
        if self.model.has(blk + "attn_q.weight") or self.model.has(blk + "attn_qkv.weight"):
            return self.attention(blk, layer, x)
        if self.model.has(blk + "attn_output.weight"):  # one matrix in the place of attention
            return self.model.times(blk + "attn_output.weight", x)
        return numpy.zeros_like(x)

    def logits(self, tokens):
        model = self.model
        x = model.values("token_embd.weight")[tokens]
        if self.traits.get("scaled_embedding"):
            x = x * numpy.sqrt(self.dim)
        x = x * model.get("embedding_scale", 1.0)
        share = model.get("residual_scale", 1.0)
        # The last layers may predict further tokens: the model itself ends before them.
        for layer in range(model.get("block_count") - model.get("nextn_predict_layers", 0)):
            blk = "blk.%d." % layer
            normed = self.norm(blk + "attn_norm.weight", x)
            delta = self.mixed(blk, layer, normed)
            ffn_norm = self.traits.get("ffn_norm", "ffn_norm")
            if ffn_norm != "post_attention_norm":
                delta = self.norm(blk + "post_attention_norm.weight", delta)
            if self.traits.get("parallel") or (self.layer_norm and not model.has(blk + "ffn_norm.weight")):
                x = x + delta + self.dense(blk, normed)
                continue
            if model.has(blk + "ssm_in.weight"):  # Falcon-H1: both halves read the same norm
                delta = delta + mamba2_mixer(model, blk, normed)
            x = x + share * delta
            if self.of_layer("feed_forward_length", layer, 1) == 0:
                continue
            # Falcon-H1's converter leaves the suffix away.
            normed = self.norm(blk + (ffn_norm if model.has(blk + ffn_norm) else ffn_norm + ".weight"), x)
            delta = self.experts(blk, normed) if model.has(blk + "ffn_gate_inp.weight") else self.dense(blk, normed)
            x = x + share * self.norm(blk + "post_ffw_norm.weight", delta)
        last = "output_norm.weight" if model.has("output_norm.weight") else "token_embd_norm.weight"  # LFM2
        out = model.head(self.norm(last, x))
        scale = model.get("logit_scale", 1.0)
        out = out / scale if self.traits.get("logits") == "divided" else out * scale
        if model.has("output.bias"):
            out = out + model.vector("output.bias")
        if "caps" in self.traits:
            cap = model.get("final_logit_softcapping", self.traits["caps"][1])
            out = cap * numpy.tanh(out / cap)
        return out


# ---- Mamba -----------------------------------------------------------------------------------------------------------


def over_time(x, weights):
    """Each channel with its own kernel over the tokens before it; weights are [channels, width]."""
    width = weights.shape[1]
    padded = numpy.concatenate([numpy.zeros((width - 1, x.shape[1])), x])
    return sum(padded[j:j + len(x)] * weights[:, j] for j in range(width))


def convolved(model, blk, x):
    """The convolution, then SiLU."""
    out = over_time(x, model.values(blk + "ssm_conv1d.weight"))
    return silu(out + model.vector(blk + "ssm_conv1d.bias"))


def scanned(x, dt, a, b, c, skip):
    """h = exp(dt a) h + dt b x, y = h c + skip x. x and dt are [tokens, channels], a is [channels, state], b and c are
    [tokens, channels or 1, state]."""
    h, out = numpy.zeros_like(a), numpy.zeros_like(x)
    for t in range(len(x)):
        h = numpy.exp(dt[t][:, None] * a) * h + (dt[t] * x[t])[:, None] * b[t]
        out[t] = (h * c[t]).sum(axis=1) + skip * x[t]
    return out


def softplus(x):
    return numpy.logaddexp(0, x)


def mamba_mixer(model, blk, x):
    state, rank = model.get("ssm.state_size"), model.get("ssm.time_step_rank")
    inner, gate = numpy.split(model.times(blk + "ssm_in.weight", x), 2, axis=1)
    inner = convolved(model, blk, inner)
    low, b, c = numpy.split(model.times(blk + "ssm_x.weight", inner), [rank, rank + state], axis=1)
    dt = softplus(model.times(blk + "ssm_dt.weight", low) + model.vector(blk + "ssm_dt.bias"))
    y = scanned(inner, dt, model.values(blk + "ssm_a"), b[:, None, :], c[:, None, :], model.vector(blk + "ssm_d"))
    return model.times(blk + "ssm_out.weight", y * silu(gate))


def mamba2_mixer(model, blk, x):
    size, state = model.get("ssm.inner_size"), model.get("ssm.state_size")
    heads, groups = model.get("ssm.time_step_rank"), model.get("ssm.group_count")
    both = groups * state
    gate, mixed, dt = numpy.split(model.times(blk + "ssm_in.weight", x), [size, 2 * size + 2 * both], axis=1)
    inner, b, c = numpy.split(convolved(model, blk, mixed), [size, size + both], axis=1)
    each = size // heads  # what a head has, its channels share
    dt = numpy.repeat(softplus(dt + model.vector(blk + "ssm_dt.bias")), each, axis=1)
    a = numpy.repeat(model.vector(blk + "ssm_a"), each)[:, None] * numpy.ones(state)
    skip = numpy.repeat(model.vector(blk + "ssm_d"), each)
    b, c = (numpy.repeat(part.reshape(len(x), groups, state), size // groups, axis=1) for part in (b, c))
    y = scanned(inner, dt, a, b, c, skip) * silu(gate)
    if model.has(blk + "ssm_norm.weight"):
        weight = model.values(blk + "ssm_norm.weight")  # [groups, channels of one]
        epsilon = model.get("attention.layer_norm_rms_epsilon")
        y = rms_normed(y.reshape(len(x), *weight.shape), weight, epsilon).reshape(len(x), size)
    return model.times(blk + "ssm_out.weight", y)


def mamba_logits(model, tokens):
    mixer = mamba_mixer if model.family == "mamba" else mamba2_mixer
    epsilon = model.get("attention.layer_norm_rms_epsilon")
    x = model.values("token_embd.weight")[tokens]
    for layer in range(model.get("block_count")):
        blk = "blk.%d." % layer
        x = x + mixer(model, blk, rms_normed(x, model.vector(blk + "attn_norm.weight"), epsilon))
    return model.head(rms_normed(x, model.vector("output_norm.weight"), epsilon))


# ---- RWKV ------------------------------------------------------------------------------------------------------------

HEAD_NORM_EPSILON = 64e-5


def before(x):  # each row's predecessor
    return numpy.concatenate([numpy.zeros((1, x.shape[1])), x[:-1]])


def head_normed(model, blk, y):  # [tokens, heads, size]
    shape = y.shape[1:]
    weight, bias = (model.vector(blk + "time_mix_ln." + name).reshape(shape) for name in ("weight", "bias"))
    return layer_normed(y, weight, bias, HEAD_NORM_EPSILON)


def time_mixed_6(model, blk, x):
    size, step = model.get("wkv.head_size"), before(x) - x
    low = numpy.tanh(model.times(blk + "time_mix_w1.weight", x + step * model.vector(blk + "time_mix_lerp_x.weight")))
    mixes = model.values(blk + "time_mix_lerp_fused.weight").reshape(5, -1)
    xw, xk, xv, xr, xg = (x + step * (mix + model.times(blk + "time_mix_w2.weight", part, i))
                          for i, (mix, part) in enumerate(zip(mixes, numpy.split(low, 5, axis=1))))
    decay = model.times(blk + "time_mix_decay_w2.weight", numpy.tanh(model.times(blk + "time_mix_decay_w1.weight", xw)))
    w = numpy.exp(-numpy.exp(model.vector(blk + "time_mix_decay.weight") + decay)).reshape(len(x), -1, size)
    r, k, v = (model.times(blk + "time_mix_%s.weight" % name, row).reshape(w.shape)
               for name, row in (("receptance", xr), ("key", xk), ("value", xv)))
    first = model.values(blk + "time_mix_first.weight").reshape(w.shape[1:])
    state, y = numpy.zeros((*w.shape[1:], size)), numpy.zeros_like(v)  # [heads, keys, values]
    for t in range(len(x)):
        kv = k[t][:, :, None] * v[t][:, None, :]
        y[t] = numpy.einsum("hi,hij->hj", r[t], state + first[:, :, None] * kv)
        state = w[t][:, :, None] * state + kv
    gate = silu(model.times(blk + "time_mix_gate.weight", xg))
    return model.times(blk + "time_mix_output.weight", head_normed(model, blk, y).reshape(len(x), -1) * gate)


def channels_mixed_6(model, blk, x):
    step = before(x) - x
    xk, xr = (x + step * model.vector(blk + "channel_mix_lerp_%s.weight" % name) for name in "kr")
    hidden = squared_relu(model.times(blk + "channel_mix_key.weight", xk))
    opened = sigmoid(model.times(blk + "channel_mix_receptance.weight", xr))
    return opened * model.times(blk + "channel_mix_value.weight", hidden)


def time_mixed_7(model, blk, x, kept):
    """`kept`: the first layer's values, which later ones mix theirs with."""
    size, step = model.get("wkv.head_size"), before(x) - x
    mixes = model.values(blk + "time_mix_lerp_fused.weight")
    xr, xw, xk, xv, xa, xg = (x + step * mix for mix in mixes.reshape(6, -1))

    def thin(which, row, function=lambda low: low):
        low = function(model.times(blk + "time_mix_%s1.weight" % which, row))
        out = model.times(blk + "time_mix_%s2.weight" % which, low)
        name = blk + "time_mix_%s0.weight" % which
        return out + model.vector(name) if model.has(name) else out

    r, k, v = (model.times(blk + "time_mix_%s.weight" % name, row)
               for name, row in (("receptance", xr), ("key", xk), ("value", xv)))
    w = numpy.exp(-numpy.exp(-0.5) * sigmoid(thin("w", xw, numpy.tanh)))
    a = sigmoid(thin("a", xa))
    if kept:
        v = v + (kept[0] - v) * sigmoid(thin("v", xv))
    else:
        kept.append(v)
    shape = (len(x), -1, size)
    removed = (k * model.vector(blk + "time_mix_k_k.weight")).reshape(shape)
    removed = removed / numpy.maximum(numpy.sqrt((removed * removed).sum(axis=2, keepdims=True)), 1e-12)
    k = k + (a - 1) * k * model.vector(blk + "time_mix_k_a.weight")
    r, w, k, v, a = (each.reshape(shape) for each in (r, w, k, v, a))
    state, y = numpy.zeros((r.shape[1], size, size)), numpy.zeros_like(v)  # [heads, values, keys]
    for t in range(len(x)):
        found = numpy.einsum("hij,hj->hi", state, removed[t])
        state = (state * w[t][:, None, :] - found[:, :, None] * (removed[t] * a[t])[:, None, :]
                 + v[t][:, :, None] * k[t][:, None, :])
        y[t] = numpy.einsum("hij,hj->hi", state, r[t])
    bonus = (r * k * model.vector(blk + "time_mix_r_k.weight").reshape(r.shape[1:])).sum(axis=2, keepdims=True)
    out = (head_normed(model, blk, y) + bonus * v).reshape(len(x), -1)
    return model.times(blk + "time_mix_output.weight", out * thin("g", xg, sigmoid))


def channels_mixed_7(model, blk, x):
    mixed = x + (before(x) - x) * model.vector(blk + "channel_mix_lerp_k.weight")
    return model.times(blk + "channel_mix_value.weight",
                       squared_relu(model.times(blk + "channel_mix_key.weight", mixed)))


def rwkv_logits(model, tokens):
    epsilon = model.get("attention.layer_norm_epsilon")

    def norm(name, x):
        return layer_normed(x, model.vector(name + ".weight"), model.vector(name + ".bias"), epsilon)

    halve_every = model.get("rescale_every_n_layers", 0)
    kept = []
    x = norm("token_embd_norm", model.values("token_embd.weight")[tokens])
    for layer in range(model.get("block_count")):
        blk = "blk.%d." % layer
        normed = norm(blk + "attn_norm", x)
        x = x + (time_mixed_6(model, blk, normed) if model.family == "rwkv6" else
                 time_mixed_7(model, blk, normed, kept))
        normed = norm(blk + "attn_norm_2", x)
        x = x + (channels_mixed_6 if model.family == "rwkv6" else channels_mixed_7)(model, blk, normed)
        if halve_every and (layer + 1) % halve_every == 0:
            x = x / 2
    return model.head(norm("output_norm", x))


def logits(model, tokens):
    """[tokens, vocabulary]."""
    if model.family in ("mamba", "mamba2"):
        return mamba_logits(model, tokens)
    if model.family in ("rwkv6", "rwkv7"):
        return rwkv_logits(model, tokens)
    return Decoder(model).logits(tokens)
