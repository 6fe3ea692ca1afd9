// I2_S, bitnet.cpp's ternary type, whose scale belongs to a whole tensor. The models are written here: those of the
// reference data in another format, and small ones of every shape.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "engine/evaluation/eval.h"
#include "tests/engine/gguf_copy.h"
#include "tests/engine/golden.h"
#include "tests/engine/model_harness.h"

namespace troupe::test {
namespace {

using engine::Team;

constexpr std::uint32_t kI2S = 36;  // ggml_type

// Weights of -1, 0 and 1 and their scale, as in a file.
std::string as_i2_s(const std::vector<float>& weights, float scale) {
  REQUIRE(std::all_of(weights.begin(), weights.end(), [](float w) { return w == 0.0f || std::fabs(w) == 1.0f; }));
  std::string bytes(weights.size() / 4 + 32, '\0');
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const int code = static_cast<int>(weights[i]) + 1;
    char& byte = bytes[i / 128 * 32 + i % 32];
    byte = static_cast<char>(byte | code << (6 - i % 128 / 32 * 2));
  }
  std::memcpy(&bytes[weights.size() / 4], &scale, sizeof scale);
  return bytes;
}

// The golden model with every TQ2_0 tensor as I2_S, and the scales of separate tensors in its tail.
GgufWriter golden_as_i2_s(const std::string& path) {
  const auto opened = engine::open_gguf(path);
  REQUIRE(opened);
  const engine::ModelFile& file = **opened;
  GgufWriter out;
  copy_metadata(file, out);
  for (const engine::TensorInfo& tensor : file.tensors()) {
    if (tensor.name.ends_with(".scale")) continue;
    if (tensor.type != kernels::WeightType::tq2_0) {
      out.add_tensor(tensor.name, tensor.shape, kernels::info(tensor.type).gguf_number, to_string(tensor.bytes));
      continue;
    }
    std::vector<float> weights(tensor.rows() * tensor.columns());
    kernels::dequantize(tensor.type, tensor.bytes.data(), weights.data(), weights.size());
    float scale = 0;
    for (const float w : weights) scale = std::max(scale, std::fabs(w));
    for (float& w : weights) w /= scale;
    const engine::TensorInfo* own = file.find_tensor(tensor.name.substr(0, tensor.name.rfind('.')) + ".scale");
    if (own) {
      REQUIRE(scale == 1.0f);
      std::memcpy(&scale, own->bytes.data(), sizeof scale);
    }
    out.add_tensor(tensor.name, tensor.shape, kI2S, as_i2_s(weights, scale));
  }
  return out;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST_CASE("a BitNet with scale tensors gives the same bits with these scales in I2_S tensors") {
  const auto golden = load_golden("bitnet-scale-TQ2_0");
  if (!golden) return;
  const TemporaryFile file(golden_as_i2_s(golden->model_path).bytes());
  Team team(2);
  const std::vector<TokenId> tokens = golden->prompt("").tokens;
  for (const kernels::KernelTable* table : variants_here()) {
    INFO(table->name);
    const auto model = load_model(file.path(), std::string(table->name));
    CHECK(model->info().weight_types.find("I2_S x 14") != std::string::npos);
    const auto logits = engine::evaluate(*model, team, tokens);
    const auto expected = engine::evaluate(*load_model(golden->model_path, std::string(table->name)), team, tokens);
    REQUIRE((logits && expected));
    CHECK(same_bits(*logits, *expected));
  }
}

// Here the embedding and the head are ternary too, and the scales are float16 in the other file.
TEST_CASE("a ternary llama as I2_S gives the golden logits, whole and in chunks") {
  const auto golden = load_golden("llama-TQ2_0");
  if (!golden) return;
  const TemporaryFile file(golden_as_i2_s(golden->model_path).bytes());
  Team team(2);
  const GoldenPrompt prompt = golden->prompt("");
  for (const kernels::KernelTable* table : variants_here()) {
    INFO(table->name);
    const auto model = load_model(file.path(), std::string(table->name));
    const auto logits = engine::evaluate(*model, team, prompt.tokens);
    REQUIRE(logits);
    const Tolerance allowed =
        golden->tolerance(table->name == "reference" ? "f32_vs_exact" : "rounded_activations_vs_exact");
    const Difference actual = difference(*logits, prompt.logits);
    CHECK(actual.max_abs <= allowed.max_abs);
    CHECK(actual.rms <= allowed.rms);
    for (const std::uint32_t chunk : {1u, 7u, 33u}) {
      const auto chunked = engine::evaluate(*model, team, prompt.tokens, chunk);
      REQUIRE(chunked);
      CHECK(same_bits(*chunked, *logits));
    }
  }
}

// A model of ternary matrices whose rows are `dim` or `ffn` long: in I2_S, norms too, or the same weights in F32.
struct TernaryModel {
  std::string family = "bitnet";
  std::uint32_t dim = 128, ffn = 384;
  bool f32 = false;
  float head_scale = 0.05f;

  static constexpr std::uint32_t kVocab = 80;

  std::string bytes() const {
    GgufWriter w;
    const auto key = [&](const char* name) { return family + "." + name; };
    w.add("general.architecture", family.c_str());
    w.add("tokenizer.ggml.model", "no_vocab");
    w.add(key("block_count"), 1u);
    w.add(key("context_length"), 64u);
    w.add(key("embedding_length"), dim);
    w.add(key("feed_forward_length"), ffn);
    w.add(key("attention.head_count"), dim / 64);
    w.add(key("attention.head_count_kv"), 1u);
    w.add(key("attention.layer_norm_rms_epsilon"), 1e-5f);
    std::mt19937 random(5);
    const auto matrix = [&](const std::string& name, std::uint64_t k, std::uint64_t rows, float scale) {
      std::vector<float> weights(k * rows);
      for (float& x : weights) x = static_cast<float>(static_cast<int>(random() % 3) - 1);
      if (!f32) return w.add_tensor(name, {k, rows}, kI2S, as_i2_s(weights, scale));
      for (float& x : weights) x *= scale;
      w.add_tensor(name, {k, rows}, 0, to_string(std::as_bytes(std::span(weights))));
    };
    const auto vector = [&](const std::string& name, std::uint64_t count) {
      if (!f32) return w.add_tensor(name, {count}, kI2S, as_i2_s(std::vector<float>(count, 1.0f), 1.25f));
      const std::vector<float> values(count, 1.25f);
      w.add_tensor(name, {count}, 0, to_string(std::as_bytes(std::span(values))));
    };
    const std::string blk = "blk.0.";
    matrix("token_embd.weight", dim, kVocab, head_scale);
    vector(blk + "attn_norm.weight", dim);
    matrix(blk + "attn_q.weight", dim, dim, 0.1f);
    matrix(blk + "attn_k.weight", dim, 64, 0.1f);
    matrix(blk + "attn_v.weight", dim, 64, 0.07f);
    matrix(blk + "attn_output.weight", dim, dim, 0.03f);
    vector(blk + "ffn_norm.weight", dim);
    matrix(blk + "ffn_gate.weight", dim, ffn, 0.11f);
    matrix(blk + "ffn_up.weight", dim, ffn, 0.09f);
    matrix(blk + "ffn_down.weight", ffn, dim, 0.013f);
    if (family == "bitnet") vector(blk + "attn_sub_norm.weight", dim);
    if (family == "bitnet") vector(blk + "ffn_sub_norm.weight", ffn);
    vector("output_norm.weight", dim);
    return w.bytes();
  }
};

// Also rows that are whole groups of 128 weights, but not of the 256 activations that share a scale. The logits of F32
// weights are exact; what rounded activations may change was measured with these models (at most 0.017 of the logits),
// times two.
TEST_CASE("I2_S of every length of rows agrees with the same weights in F32, tied embedding included") {
  Team team(2);
  for (const char* family : {"bitnet", "llama"})
    for (const auto& [dim, ffn] : {std::pair{128u, 384u}, {256u, 128u}, {384u, 640u}}) {
      const TernaryModel shape{.family = family, .dim = dim, .ffn = ffn};
      TernaryModel floats = shape;
      floats.f32 = true;
      const TemporaryFile file(shape.bytes()), exact_file(floats.bytes());
      const auto tokens = random_tokens(20, TernaryModel::kVocab, 3);
      const auto exact = engine::evaluate(*load_model(exact_file.path(), "reference"), team, tokens);
      REQUIRE(exact);
      const double size = difference(*exact, std::vector<float>(exact->size())).rms;
      for (const kernels::KernelTable* table : variants_here()) {
        INFO(family << " " << dim << " " << ffn << " " << table->name);
        const auto model = load_model(file.path(), std::string(table->name));
        const auto logits = engine::evaluate(*model, team, tokens);
        REQUIRE(logits);
        CHECK(difference(*logits, *exact).rms <= size * (table->name == "reference" ? 1e-6 : 0.035));
      }
    }
}

TEST_CASE("the scale of a tensor is part of the numerics id") {
  const auto id = [](float scale) {
    const TemporaryFile file(TernaryModel{.head_scale = scale}.bytes());
    return load_model(file.path(), "scalar")->numerics_id();
  };
  CHECK(id(0.05f) == id(0.05f));
  CHECK(id(0.05f) != id(0.06f));
}

}  // namespace
}  // namespace troupe::test
