// A transformer in double, token by token, in plain loops: the reference for families where no other program's
// results are available. Shares nothing with the engine; its weights are random, and it can write them as a file.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cache/ids.h"
#include "tests/engine/gguf_writer.h"

namespace troupe::test {

struct PlainDecoder {
  std::string family = "llama";
  std::uint32_t layers = 2, dim = 64, heads = 4, kv_heads = 2, head_dim = 16, ffn = 96, vocab = 96, context = 512;
  // Of layers that differ; without heads there is no attention, without K/V heads `o` alone stands in its place.
  struct Sizes {
    std::uint32_t heads, kv_heads, ffn;
  };
  std::vector<Sizes> sizes;
  // The last layers of which each attends to K and V of the last one before them that has its window.
  std::uint32_t shared_kv = 0;
  double key_bias = 0.5, value_bias = 0.5;  // deviations
  bool biases = false, fused = false, sub_norms = false, post_norms = false;
  bool halves = false;  // rotates i with i + rotated / 2
  std::uint32_t rotated = 16;
  enum class Norms { none, heads, rows } qk_norm = Norms::none;
  enum class Gate { silu, gelu, squared_relu } gate = Gate::silu;
  std::uint32_t experts = 0, experts_used = 0, expert_ffn = 0, shared_ffn = 0;
  bool normalised = false, own_expert_tensors = false, says_expert_ffn = true;
  double embedding_scale = 1, attention_scale = 0.25, attention_cap = 0, logit_cap = 0;
  std::function<std::uint32_t(std::uint32_t layer)> window = [](std::uint32_t) { return 0u; };
  // Of a pair at position 1; empty: with a base of 10,000.
  std::function<double(std::uint32_t layer, std::uint32_t pair)> angle;
  double magnitude = 1;
  std::function<void(GgufWriter&, const std::string& prefix)> more_metadata;
  std::map<std::string, std::vector<float>> more_vectors;  // tensors that only the file needs

  using Row = std::vector<double>;

  // Values of a tensor: always the same ones.
  const std::vector<float>& tensor(const std::string& name, std::size_t count, double deviation,
                                   double mean = 0) const {
    std::vector<float>& values = made_[name];
    if (values.size() == count) return values;
    values.clear();
    std::uint64_t seed = 7;
    for (const char c : name) seed = seed * 31 + static_cast<unsigned char>(c);
    std::mt19937_64 random(seed);
    std::normal_distribution<double> normal(mean, deviation);
    for (std::size_t i = 0; i < count; ++i) values.push_back(static_cast<float>(normal(random)));
    return values;
  }
  const std::vector<float>& matrix(const std::string& name, std::size_t rows, std::size_t k) const {
    return tensor(name, rows * k, 1.0 / std::sqrt(static_cast<double>(k)));
  }
  const std::vector<float>& norm_weights(const std::string& name, std::size_t count) const {
    return tensor(name, count, 0.2, 1.0);
  }

  std::string bytes() const {
    GgufWriter w;
    const auto key = [&](const char* name) { return family + "." + name; };
    w.add("general.architecture", family.c_str());
    w.add("tokenizer.ggml.model", "no_vocab");
    w.add(key("block_count"), layers);
    w.add(key("context_length"), context);
    w.add(key("embedding_length"), dim);
    const auto add_sizes = [&](const char* name, std::uint32_t all, std::uint32_t Sizes::*one) {
      if (sizes.empty()) return w.add(key(name), all);
      std::vector<std::uint32_t> list;
      for (const Sizes& each : sizes) list.push_back(each.*one);
      w.add(key(name), list);
    };
    add_sizes("feed_forward_length", ffn, &Sizes::ffn);
    add_sizes("attention.head_count", heads, &Sizes::heads);
    add_sizes("attention.head_count_kv", kv_heads, &Sizes::kv_heads);
    w.add(key("attention.key_length"), head_dim);
    w.add(key("attention.value_length"), head_dim);
    w.add(key("attention.layer_norm_rms_epsilon"), 1e-5f);
    w.add(key("rope.dimension_count"), rotated);
    if (shared_kv != 0) w.add(key("attention.shared_kv_layers"), shared_kv);
    if (experts != 0) {
      w.add(key("expert_count"), experts);
      w.add(key("expert_used_count"), experts_used);
      if (says_expert_ffn) w.add(key("expert_feed_forward_length"), expert_ffn);
      if (shared_ffn != 0) w.add(key("expert_shared_feed_forward_length"), shared_ffn);
    }
    if (more_metadata) more_metadata(w, family + ".");
    const auto put = [&](const std::string& name, std::vector<std::uint64_t> shape, const std::vector<float>& values) {
      w.add_tensor(name, std::move(shape), 0,
                   {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
    };
    const auto put_matrix = [&](const std::string& name, std::uint64_t rows, std::uint64_t k) {
      put(name, {k, rows}, matrix(name, rows, k));
    };
    const auto put_norm = [&](const std::string& name, std::uint64_t count) {
      put(name, {count}, norm_weights(name, count));
    };
    put_matrix("token_embd.weight", vocab, dim);
    for (std::uint32_t i = 0; i < layers; ++i)
      of_layer(i).write_layer("blk." + std::to_string(i) + ".", kv_of(i) == i, put, put_matrix, put_norm);
    put_norm("output_norm.weight", dim);
    put("output.weight", {dim, vocab}, head());
    for (const auto& [name, values] : more_vectors) put(name, {values.size()}, values);
    return w.bytes();
  }

  // Of every position, [tokens][vocab]; `context` as the model serves it plays no part but in `angle`.
  std::vector<float> logits(const std::vector<TokenId>& tokens) const {
    std::vector<std::vector<Row>> keys(layers), values(layers);  // [layer][position]
    std::vector<float> out;
    const auto& embedding = matrix("token_embd.weight", vocab, dim);
    for (std::uint32_t position = 0; position < tokens.size(); ++position) {
      Row x(dim);
      for (std::uint32_t i = 0; i < dim; ++i)
        x[i] = embedding_scale * embedding[static_cast<std::size_t>(tokens[position]) * dim + i];
      for (std::uint32_t layer = 0; layer < layers; ++layer) {
        const std::string blk = "blk." + std::to_string(layer) + ".";
        of_layer(layer).run_layer(blk, layer, position, x, keys[kv_of(layer)], values[kv_of(layer)]);
      }
      for (double logit : times(head(), normed(x, "output_norm.weight"), vocab)) {
        if (logit_cap != 0) logit = logit_cap * std::tanh(logit / logit_cap);
        out.push_back(static_cast<float>(logit));
      }
    }
    return out;
  }

 private:
  // The same with the sizes of one layer.
  const PlainDecoder& of_layer(std::uint32_t layer) const {
    if (sizes.empty()) return *this;
    auto& one = of_layers_[layer];
    if (!one) {
      one = std::make_shared<PlainDecoder>(*this);
      one->heads = sizes[layer].heads;
      one->kv_heads = sizes[layer].kv_heads;
      one->ffn = sizes[layer].ffn;
    }
    return *one;
  }
  std::uint32_t kv_of(std::uint32_t layer) const {
    if (layer < layers - shared_kv) return layer;
    std::uint32_t of = layers - shared_kv - 1;
    while (window(of) != window(layer)) --of;
    return of;
  }
  void run_layer(const std::string& blk, std::uint32_t layer, std::uint32_t position, Row& x, std::vector<Row>& keys,
                 std::vector<Row>& values) const {
    if (heads != 0) {
      const Row input = normed(x, blk + "attn_norm.weight");
      Row delta = kv_heads != 0 ? attention(blk, layer, position, input, keys, values)
                                : project(blk + "attn_output.weight", input, dim);
      if (post_norms) delta = normed(delta, blk + "post_attention_norm.weight");
      add(x, delta);
    }
    if (ffn == 0) return;
    const Row input = normed(x, blk + "ffn_norm.weight");
    Row delta = experts != 0 ? mixture(blk, input) : dense(blk, input);
    if (post_norms) delta = normed(delta, blk + "post_ffw_norm.weight");
    add(x, delta);
  }

  mutable std::map<std::uint32_t, std::shared_ptr<PlainDecoder>> of_layers_;
  mutable std::map<std::string, std::vector<float>> made_;

  // Logits of about 3, as those of trained models.
  std::vector<float> head() const {
    auto values = matrix("output.weight", vocab, dim);
    for (float& value : values) value *= 3;
    return values;
  }
  double bias_deviation(const std::string& name) const {
    return name.ends_with("attn_k") ? key_bias : name.ends_with("attn_v") ? value_bias : 0.5;
  }
  static void add(Row& x, const Row& y) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }
  static Row times(const std::vector<float>& weights, const Row& x, std::size_t rows) {
    Row out(rows);
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t i = 0; i < x.size(); ++i) out[r] += x[i] * weights[r * x.size() + i];
    return out;
  }
  Row project(const std::string& name, const Row& x, std::size_t rows) const {
    return times(matrix(name, rows, x.size()), x, rows);
  }
  Row normed(Row x, const std::string& name) const {
    const auto& weights = norm_weights(name, x.size());
    double sum = 0;
    for (const double value : x) sum += value * value;
    const double inverse = 1 / std::sqrt(sum / static_cast<double>(x.size()) + 1e-5);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] *= inverse * weights[i];
    return x;
  }
  Row normed_part(const Row& x, std::size_t begin, std::size_t count, const std::string& name) const {
    return normed(
        Row(x.begin() + static_cast<std::ptrdiff_t>(begin), x.begin() + static_cast<std::ptrdiff_t>(begin + count)),
        name);
  }

  Row qk_rows(const std::string& blk, const char* which, const Row& x, std::uint32_t rows) const {
    Row out;
    const std::string name = blk + "attn_" + which;
    if (fused) {
      const std::uint32_t q = heads * head_dim, kv = kv_heads * head_dim;
      const Row all = project(blk + "attn_qkv.weight", x, q + 2 * kv);
      const std::uint32_t begin = *which == 'q' ? 0 : *which == 'k' ? q : q + kv;
      out.assign(all.begin() + begin, all.begin() + begin + rows);
    } else {
      out = project(name + ".weight", x, rows);
    }
    if (biases) {
      const auto& bias = tensor(name + ".bias", rows, bias_deviation(name));
      for (std::size_t i = 0; i < rows; ++i) out[i] += bias[i];
    }
    if (*which == 'v' || qk_norm == Norms::none) return out;
    if (qk_norm == Norms::rows) return normed(out, name + "_norm.weight");
    Row whole;
    for (std::uint32_t at = 0; at < rows; at += head_dim)
      for (const double value : normed_part(out, at, head_dim, name + "_norm.weight")) whole.push_back(value);
    return whole;
  }

  void rotate(Row& x, std::uint32_t layer, std::uint32_t position) const {
    for (std::size_t at = 0; at < x.size(); at += head_dim)
      for (std::uint32_t pair = 0; pair < rotated / 2; ++pair) {
        double& a = x[at + (halves ? pair : 2 * pair)];
        double& b = x[at + (halves ? pair + rotated / 2 : 2 * pair + 1)];
        const double turned = position * (angle ? angle(layer, pair) : std::pow(10000.0, -2.0 * pair / rotated));
        const double cos = magnitude * std::cos(turned), sin = magnitude * std::sin(turned), was = a;
        a = was * cos - b * sin;
        b = was * sin + b * cos;
      }
  }

  Row attention(const std::string& blk, std::uint32_t layer, std::uint32_t position, const Row& x,
                std::vector<Row>& keys, std::vector<Row>& values) const {
    const std::uint32_t q_dim = heads * head_dim, kv_dim = kv_heads * head_dim;
    Row q = qk_rows(blk, "q", x, q_dim);
    rotate(q, layer, position);
    if (kv_of(layer) == layer) {
      Row k = qk_rows(blk, "k", x, kv_dim);
      rotate(k, layer, position);
      keys.push_back(k);
      values.push_back(qk_rows(blk, "v", x, kv_dim));
    }
    const std::uint32_t span = window(layer);
    const std::uint32_t first = span == 0 || position < span ? 0 : position - span + 1;
    Row out(q_dim);
    for (std::uint32_t head = 0; head < heads; ++head) {
      const std::uint32_t at = head / (heads / kv_heads) * head_dim;
      Row weights;
      double sum = 0;
      for (std::uint32_t p = first; p <= position; ++p) {
        double score = 0;
        for (std::uint32_t d = 0; d < head_dim; ++d) score += q[head * head_dim + d] * keys[p][at + d];
        score *= attention_scale;
        if (attention_cap != 0) score = attention_cap * std::tanh(score / attention_cap);
        weights.push_back(std::exp(score));
        sum += weights.back();
      }
      for (std::uint32_t p = first; p <= position; ++p)
        for (std::uint32_t d = 0; d < head_dim; ++d)
          out[head * head_dim + d] += weights[p - first] / sum * values[p][at + d];
    }
    if (sub_norms) out = normed(out, blk + "attn_sub_norm.weight");
    return project(blk + "attn_output.weight", out, dim);
  }

  double gated(double g, double up) const {
    if (gate == Gate::squared_relu) return g > 0 ? g * g * up : 0;
    if (gate == Gate::silu) return g / (1 + std::exp(-g)) * up;
    return 0.5 * g * (1 + std::tanh(std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g))) * up;
  }
  Row gated_rows(Row g, const Row& up) const {
    for (std::size_t i = 0; i < g.size(); ++i) g[i] = gated(g[i], up[i]);
    return g;
  }
  Row dense(const std::string& blk, const Row& x) const {
    Row hidden;
    if (fused) {
      const Row both = project(blk + "ffn_up.weight", x, 2 * ffn);
      hidden = gated_rows(Row(both.begin(), both.begin() + ffn), Row(both.begin() + ffn, both.end()));
    } else {
      hidden = gated_rows(project(blk + "ffn_gate.weight", x, ffn), project(blk + "ffn_up.weight", x, ffn));
    }
    if (sub_norms) hidden = normed(hidden, blk + "ffn_sub_norm.weight");
    return project(blk + "ffn_down.weight", hidden, dim);
  }

  // A slice of all experts' weights.
  std::vector<float> expert_matrix(const std::string& blk, const char* kind, std::uint32_t expert, std::size_t rows,
                                   std::size_t k) const {
    if (own_expert_tensors) return matrix(blk + kind + "." + std::to_string(expert) + ".weight", rows, k);
    const auto& all = tensor(blk + kind + "_exps.weight", experts * rows * k, 1.0 / std::sqrt(static_cast<double>(k)));
    return {all.begin() + static_cast<std::ptrdiff_t>(expert * rows * k),
            all.begin() + static_cast<std::ptrdiff_t>((expert + 1) * rows * k)};
  }
  Row mixture(const std::string& blk, const Row& x) const {
    const Row scores = project(blk + "ffn_gate_inp.weight", x, experts);
    std::vector<std::uint32_t> order(experts);
    for (std::uint32_t e = 0; e < experts; ++e) order[e] = e;
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return scores[a] > scores[b]; });
    double all = 0, chosen = 0;
    for (std::uint32_t e = 0; e < experts; ++e) {
      all += std::exp(scores[order[e]]);
      if (e < experts_used) chosen += std::exp(scores[order[e]]);
    }
    Row out(dim);
    for (std::uint32_t rank = 0; rank < experts_used; ++rank) {
      const std::uint32_t e = order[rank];
      const Row hidden = gated_rows(times(expert_matrix(blk, "ffn_gate", e, expert_ffn, dim), x, expert_ffn),
                                    times(expert_matrix(blk, "ffn_up", e, expert_ffn, dim), x, expert_ffn));
      const Row part = times(expert_matrix(blk, "ffn_down", e, dim, expert_ffn), hidden, dim);
      const double weight = std::exp(scores[e]) / (normalised ? chosen : all);
      for (std::uint32_t i = 0; i < dim; ++i) out[i] += weight * part[i];
    }
    if (shared_ffn == 0) return out;
    const double opened = 1 / (1 + std::exp(-project(blk + "ffn_gate_inp_shexp.weight", x, 1)[0]));
    const Row hidden = gated_rows(project(blk + "ffn_gate_shexp.weight", x, shared_ffn),
                                  project(blk + "ffn_up_shexp.weight", x, shared_ffn));
    const Row part = project(blk + "ffn_down_shexp.weight", hidden, dim);
    for (std::uint32_t i = 0; i < dim; ++i) out[i] += opened * part[i];
    return out;
  }

  template <class Put, class PutMatrix, class PutNorm>
  void write_layer(const std::string& blk, bool has_kv, const Put& put, const PutMatrix& put_matrix,
                   const PutNorm& put_norm) const {
    if (heads != 0) write_attention(blk, has_kv, put, put_matrix, put_norm);
    if (ffn != 0) write_feed_forward(blk, put, put_matrix, put_norm);
  }

  template <class Put, class PutMatrix, class PutNorm>
  void write_attention(const std::string& blk, bool has_kv, const Put& put, const PutMatrix& put_matrix,
                       const PutNorm& put_norm) const {
    const std::uint64_t q = heads * head_dim, kv = kv_heads * head_dim;
    put_norm(blk + "attn_norm.weight", dim);
    if (kv_heads == 0) return put_matrix(blk + "attn_output.weight", dim, dim);
    if (fused) {
      put_matrix(blk + "attn_qkv.weight", q + 2 * kv, dim);
    } else {
      for (const auto& [name, rows] : {std::pair{"attn_q", q}, {"attn_k", kv}, {"attn_v", kv}}) {
        if (!has_kv && std::string(name) != "attn_q") continue;
        put_matrix(blk + name + ".weight", rows, dim);
        if (biases) put(blk + name + ".bias", {rows}, tensor(blk + name + ".bias", rows, bias_deviation(name)));
      }
    }
    if (qk_norm != Norms::none) {
      put_norm(blk + "attn_q_norm.weight", qk_norm == Norms::heads ? head_dim : q);
      if (has_kv) put_norm(blk + "attn_k_norm.weight", qk_norm == Norms::heads ? head_dim : kv);
    }
    if (sub_norms) put_norm(blk + "attn_sub_norm.weight", q);
    put_matrix(blk + "attn_output.weight", dim, q);
    if (post_norms) put_norm(blk + "post_attention_norm.weight", dim);
  }

  template <class Put, class PutMatrix, class PutNorm>
  void write_feed_forward(const std::string& blk, const Put& put, const PutMatrix& put_matrix,
                          const PutNorm& put_norm) const {
    put_norm(blk + "ffn_norm.weight", dim);
    if (experts != 0) {
      write_experts(blk, put, put_matrix);
    } else {
      if (!fused) put_matrix(blk + "ffn_gate.weight", ffn, dim);
      put_matrix(blk + "ffn_up.weight", fused ? 2 * ffn : ffn, dim);
      put_matrix(blk + "ffn_down.weight", dim, ffn);
    }
    if (sub_norms) put_norm(blk + "ffn_sub_norm.weight", ffn);
    if (post_norms) put_norm(blk + "post_ffw_norm.weight", dim);
  }

  template <class Put, class PutMatrix>
  void write_experts(const std::string& blk, const Put& put, const PutMatrix& put_matrix) const {
    put_matrix(blk + "ffn_gate_inp.weight", experts, dim);
    struct Kind {
      const char* name;
      std::uint64_t rows, k;
    };
    for (const Kind& kind :
         {Kind{"ffn_gate", expert_ffn, dim}, {"ffn_up", expert_ffn, dim}, {"ffn_down", dim, expert_ffn}}) {
      std::vector<float> all;
      for (std::uint32_t e = 0; e < experts; ++e) {
        const auto one = expert_matrix(blk, kind.name, e, kind.rows, kind.k);
        if (own_expert_tensors) put(blk + kind.name + "." + std::to_string(e) + ".weight", {kind.k, kind.rows}, one);
        all.insert(all.end(), one.begin(), one.end());
      }
      if (!own_expert_tensors) put(blk + kind.name + "_exps.weight", {kind.k, kind.rows, experts}, all);
    }
    if (shared_ffn == 0) return;
    put(blk + "ffn_gate_inp_shexp.weight", {dim}, matrix(blk + "ffn_gate_inp_shexp.weight", 1, dim));
    put_matrix(blk + "ffn_gate_shexp.weight", shared_ffn, dim);
    put_matrix(blk + "ffn_up_shexp.weight", shared_ffn, dim);
    put_matrix(blk + "ffn_down_shexp.weight", dim, shared_ffn);
  }
};

}  // namespace troupe::test
