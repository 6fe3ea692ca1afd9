// What the dense families have in common: which tensors and keys they take, and other forms of the same file. Their
// logits are in golden_fixtures_test.cpp.
#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <optional>

#include "engine/evaluation/eval.h"
#include "tests/engine/gguf_copy.h"
#include "tests/engine/golden.h"
#include "tests/engine/model_harness.h"

namespace troupe::test {
namespace {

using Catch::Matchers::Contains;
using engine::Team;

std::shared_ptr<const engine::ModelFile> fixture(const std::string& name) {
  auto file = engine::open_gguf(TROUPE_TEST_DATA "/golden/" + name + ".gguf");
  if (!file) FAIL(file.error().message);
  return std::shared_ptr<const engine::ModelFile>(std::move(*file));
}

void copy_tensor(const engine::TensorInfo& tensor, GgufWriter& out) {
  out.add_tensor(tensor.name, tensor.shape, tensor.file_type().gguf_number, to_string(tensor.bytes));
}

// A fixture with what `add` adds.
GgufWriter fixture_and(const std::string& name, const std::function<void(GgufWriter&)>& add) {
  GgufWriter out;
  const auto file = fixture(name);
  copy_metadata(*file, out);
  for (const engine::TensorInfo& tensor : file->tensors()) copy_tensor(tensor, out);
  add(out);
  return out;
}

std::string refusal_of(const GgufWriter& out) {
  const TemporaryFile file(out.bytes());
  engine::LoadOptions options;
  options.memory = std::uint64_t{1} << 30;
  const auto model = engine::LoadedModel::load(file.path(), options);
  return model ? "loaded" : model.error().message;
}

std::vector<float> logits_of(const std::string& path, const std::string& kernels, std::uint32_t chunk = 0,
                             kernels::KvType kv_type = kernels::KvType::f32) {
  Team team(2);
  const auto model = load_model(path, kernels, kv_type);
  const auto logits = engine::evaluate(*model, team, random_tokens(70, model->info().vocab_size, 3), chunk);
  if (!logits) FAIL(logits.error().message);
  return *logits;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST_CASE("a tensor in a layer that a family does not use is refused by name") {
  const std::map<std::string, std::vector<std::string>> unused = {
      {"gemma", {"attn_output.bias", "post_attention_norm.weight"}},
      {"olmo2", {"attn_norm.weight", "ffn_norm.weight", "ffn_down.bias"}},
      {"exaone4", {"attn_norm.weight", "ffn_norm.weight"}},
      {"command-r", {"ffn_norm.weight", "attn_norm.bias"}},
      {"cohere2", {"ffn_norm.weight", "attn_q_norm.weight"}},
      {"hunyuan-dense", {"attn_output.bias", "attn_norm.bias"}},
      {"qwen2vl", {"attn_q_norm.weight"}},
      {"qwen3vl", {"ffn_gate.bias"}},
      {"starcoder2", {"ffn_gate.weight", "post_ffw_norm.weight"}},
      {"phi2", {"ffn_gate.weight", "ffn_norm.weight", "attn_q.weight"}},
      {"stablelm", {"attn_output.bias", "ffn_up.bias"}},
      {"smollm3", {"attn_q_norm.weight"}},
      {"seed_oss", {"ffn_norm.weight"}},
      {"ernie4_5", {"ffn_gate_inp.weight", "attn_sinks.weight"}},
      {"gpt-oss", {"ffn_norm.weight", "attn_q_norm.weight", "ffn_up.weight"}},
      {"granite", {"attn_norm.bias"}},
      {"minicpm", {"post_ffw_norm.weight"}},
      {"internlm2", {"attn_sub_norm.weight"}},
      {"mistral3", {"ffn_sub_norm.weight"}},
      {"qwen35", {"ffn_norm.weight", "attn_output.weight", "ssm_conv1d.bias", "ssm_in.weight", "ffn_gate_inp.weight"}},
      {"qwen3next", {"ffn_gate.weight", "attn_qkv.bias"}}};
  for (const auto& [name, parts] : unused) {
    CHECK(refusal_of(fixture_and(name, [](GgufWriter&) {})) == "loaded");
    for (const std::string& part : parts) {
      const GgufWriter out = fixture_and(name, [&](GgufWriter& w) { w.add_floats("blk.1." + part, {32}, 5); });
      CHECK_THAT(refusal_of(out), Contains("tensor 'blk.1." + part + "' is not part of a '" + name + "' model"));
    }
  }
}

TEST_CASE("factors and positions that a family does not have are refused by their keys") {
  const auto with = [](const std::string& name, const std::string& key, auto value) {
    return refusal_of(fixture_and(name, [&](GgufWriter& w) { w.add(key, value); }));
  };
  CHECK_THAT(with("llama", "llama.logit_scale", 2.0f), Contains("'llama.logit_scale' is 2"));
  CHECK(with("llama", "llama.logit_scale", 1.0f) == "loaded");
  CHECK_THAT(with("command-r", "command-r.embedding_scale", 2.0f), Contains("'command-r.embedding_scale' is 2"));
  CHECK_THAT(with("gemma", "gemma.residual_scale", 0.5f), Contains("'gemma.residual_scale' is 0.5"));
  CHECK_THAT(with("olmo2", "olmo2.attention.scale", 0.5f), Contains("'olmo2.attention.scale' is 0.5"));
  CHECK_THAT(with("llama", "llama.attention.temperature_scale", 0.1f),
             Contains("'llama.attention.temperature_scale' is 0.1"));
  CHECK_THAT(with("exaone4", "exaone4.nextn_predict_layers", 1u), Contains("'exaone4.nextn_predict_layers' is 1"));
  CHECK_THAT(with("qwen2vl", "qwen2vl.rope.scaling.alpha", 2.0f), Contains("'qwen2vl.rope.scaling.alpha' is 2"));

  const auto with_list = [](const std::string& name, const std::string& list,
                            const std::vector<std::uint32_t>& values) {
    const auto file = fixture(name);
    GgufWriter out;
    for (const auto& [key, value] : file->metadata())
      if (key != list) std::visit(MetadataCopy(out, key), value);
    if (!values.empty()) out.add(list, values);
    for (const engine::TensorInfo& tensor : file->tensors()) copy_tensor(tensor, out);
    return refusal_of(out);
  };
  CHECK_THAT(with_list("command-r", "command-r.attention.head_count", {2, 0}),
             Contains("leaves layer 1 without attention, whose input its feed-forward part reads, too"));
  const auto sections = [&](const std::vector<std::uint32_t>& values) {
    return with_list("qwen2vl", "qwen2vl.rope.dimension_sections", values);
  };
  CHECK(sections({3, 3, 2}) == "loaded");
  CHECK_THAT(sections({2, 2, 2, 2}), Contains("'qwen2vl.rope.dimension_sections' has a fourth section"));
  CHECK_THAT(sections({8, 8}), Contains("'qwen2vl.rope.dimension_sections' must be a list of three or four"));
  CHECK_THAT(sections({}), Contains("'qwen2vl.rope.dimension_sections' must be a list of three or four"));
}

TEST_CASE("the encoder of pictures of a model is refused as such") {
  GgufWriter out;
  out.add("general.architecture", "clip");
  out.add_floats("v.patch_embd.weight", {8, 8}, 1);
  CHECK_THAT(refusal_of(out), Contains("encoder of pictures") && Contains("the file of the language model"));
}

// Rows of a layer's tensors, one after another.
std::string joined(const engine::ModelFile& file, const std::string& layer, const char* suffix) {
  std::string bytes;
  for (const char* const part : {"attn_q", "attn_k", "attn_v"})
    bytes += to_string(file.find_tensor(layer + part + suffix)->bytes);
  return bytes;
}

TEST_CASE("q, k and v may be one tensor in a file of any family, with biases or without") {
  for (const std::string name : {"starcoder2", "qwen3vl", "seed_oss", "stablelm", "smollm3"}) {
    const auto file = fixture(name);
    GgufWriter out;
    copy_metadata(*file, out);
    for (const engine::TensorInfo& tensor : file->tensors()) {
      const std::string layer = tensor.name.substr(0, tensor.name.find("attn_"));
      const std::string part = tensor.name.substr(layer.size());
      if (part == "attn_q.weight" || part == "attn_q.bias") {
        const char* const suffix = part == "attn_q.weight" ? ".weight" : ".bias";
        std::uint64_t rows = 0;
        for (const char* const each : {"attn_q", "attn_k", "attn_v"})
          rows += file->find_tensor(layer + each + suffix)->shape.back();
        std::vector<std::uint64_t> shape = tensor.shape;
        shape.back() = rows;
        out.add_tensor(layer + "attn_qkv" + suffix, shape, tensor.file_type().gguf_number,
                       joined(*file, layer, suffix));
      } else if (part != "attn_k.weight" && part != "attn_v.weight" && part != "attn_k.bias" && part != "attn_v.bias") {
        copy_tensor(tensor, out);
      }
    }
    const TemporaryFile fused(out.bytes());
    for (const kernels::KvType type : {kernels::KvType::f32, kernels::KvType::i8}) {
      INFO(name);
      CHECK(same_bits(logits_of(fused.path(), "scalar", 0, type), logits_of(file->path(), "scalar", 0, type)));
    }
  }
}

// A prompt in one step, of which one row has logits, then token by token, without logits that leave the step.
TEST_CASE("greedy choices of the dense families are the largest of all logits") {
  for (const std::string name :
       {"gemma",       "internlm2", "ernie4_5",      "seed_oss",       "mistral3",     "granite",
        "minicpm",     "olmo2",     "olmo3",         "smollm3",        "cohere2",      "exaone4",
        "exaone4-32b", "command-r", "hunyuan-dense", "qwen2vl",        "qwen3vl",      "starcoder2",
        "phi2",        "stablelm",  "stablelm-12b",  "granite-biases", "granite-nope", "gpt-oss-yarn"}) {
    INFO(name);
    Team team(2);
    const auto model = load_model(fixture(name)->path(), "scalar");
    std::vector<TokenId> tokens = random_tokens(40, model->info().vocab_size, 11);
    const auto chosen = engine::greedy(*model, team, tokens, 8, /*ignore_eos=*/true);
    REQUIRE(chosen);
    REQUIRE(chosen->size() == 8);
    tokens.insert(tokens.end(), chosen->begin(), chosen->end());
    const auto logits = engine::evaluate(*model, team, tokens);
    REQUIRE(logits);
    const auto vocab = static_cast<std::ptrdiff_t>(model->info().vocab_size);
    for (std::ptrdiff_t i = 0; i < 8; ++i) {
      const auto row = logits->begin() + (39 + i) * vocab;
      CHECK(std::max_element(row, row + vocab) - row == (*chosen)[static_cast<std::size_t>(i)]);
    }
  }
}

TEST_CASE("an int8 cache holds K and V of the dense families, in chunks of any size") {
  for (const std::string name :
       {"phi2", "starcoder2", "stablelm", "stablelm-12b", "seed_oss", "smollm3", "cohere2", "olmo3", "exaone4-32b",
        "hunyuan-dense", "mistral3", "granite-nope", "command-r", "gpt-oss"}) {
    const std::string path = fixture(name)->path();
    const std::vector<float> exact = logits_of(path, "scalar");
    for (const kernels::KernelTable* table : variants_to_try()) {
      const std::vector<float> whole = logits_of(path, std::string(table->name), 0, kernels::KvType::i8);
      // Measured: at most 0.036, where logits deviate by 1.4 to 3.3.
      const Difference actual = difference(whole, exact);
      INFO(name << ", " << table->name << ": RMS " << actual.rms);
      CHECK(actual.rms <= 0.05);
      for (const std::uint32_t chunk : {1u, 7u, 33u})
        CHECK(same_bits(logits_of(path, std::string(table->name), chunk, kernels::KvType::i8), whole));
    }
  }
}

TEST_CASE("large biases of K cost an int8 cache no digits in layers without rotary positions either") {
  const GgufWriter out = fixture_and("smollm3", [](GgufWriter& w) {
    for (int layer = 0; layer < 4; ++layer)
      for (const auto& [part, rows] : {std::pair{"q", 16u}, {"k", 8u}, {"v", 8u}}) {
        std::string values;
        for (std::uint32_t i = 0; i < rows; ++i) {
          const float value = *part == 'k' ? 12.0f * static_cast<float>(i % 3) - 12.0f : 0.0f;
          values.append(reinterpret_cast<const char*>(&value), sizeof value);
        }
        w.add_tensor("blk." + std::to_string(layer) + ".attn_" + part + ".bias", {rows}, 0, values);
      }
  });
  const TemporaryFile file(out.bytes());
  for (const kernels::KernelTable* table : variants_to_try()) {
    const std::vector<float> exact = logits_of(file.path(), std::string(table->name));
    const Difference actual =
        difference(logits_of(file.path(), std::string(table->name), 0, kernels::KvType::i8), exact);
    // Measured: 0.040; 0.20 with the biases in the cache.
    INFO(table->name << ": RMS " << actual.rms);
    CHECK(actual.rms <= 0.06);
    CHECK(same_bits(logits_of(file.path(), std::string(table->name), 7, kernels::KvType::i8),
                    logits_of(file.path(), std::string(table->name), 0, kernels::KvType::i8)));
  }
}

// The fixture qwen35 with other values of keys (nothing: without the key), and with or without a block behind the last
// layer.
GgufWriter qwen35_with(const std::map<std::string, std::optional<engine::MetadataValue>>& changes,
                       bool has_further_block = true) {
  const auto file = fixture("qwen35");
  GgufWriter out;
  for (const auto& [key, value] : file->metadata())
    if (!changes.contains(key)) std::visit(MetadataCopy(out, key), value);
  for (const auto& [key, value] : changes)
    if (value) std::visit(MetadataCopy(out, key), *value);
  for (const engine::TensorInfo& tensor : file->tensors())
    if (has_further_block || !tensor.name.starts_with("blk.3.")) copy_tensor(tensor, out);
  return out;
}

engine::MetadataValue whole(std::int64_t value) { return value; }
engine::MetadataValue flags(std::vector<std::int64_t> values) { return values; }

TEST_CASE("qwen35: layers with a gated delta net may be flagged, and blocks behind the last layer change nothing") {
  const std::string interval = "qwen35.full_attention_interval", further = "qwen35.nextn_predict_layers";
  const auto expected = logits_of(TROUPE_TEST_DATA "/golden/qwen35.gguf", "scalar");
  const auto logits_with = [](const GgufWriter& out) {
    const TemporaryFile file(out.bytes());
    return logits_of(file.path(), "scalar");
  };
  const std::string listed = "qwen35.attention.recurrent_layers";
  CHECK(same_bits(logits_with(qwen35_with({{interval, {}}, {listed, flags({1, 1, 0, 0})}})), expected));
  CHECK(same_bits(logits_with(qwen35_with({{"qwen35.block_count", whole(3)}, {further, {}}}, false)), expected));
  CHECK_THAT(refusal_of(qwen35_with({{listed, flags({1, 1, 0})}})), Contains("is a list of 3 for 4 layers"));
  CHECK_THAT(refusal_of(qwen35_with({{listed, flags({1, 2, 0, 0})}})), Contains("has numbers other than 0 and 1"));
  CHECK_THAT(refusal_of(qwen35_with({{further, whole(4)}})), Contains("must be from 0 to less than the 4 layers"));
  // Which layer has a net decides which tensors it has.
  CHECK_THAT(refusal_of(qwen35_with({{interval, whole(2)}})), Contains("tensor 'blk.1.attn_qkv.weight' has shape"));
  CHECK_THAT(refusal_of(qwen35_with({{further, {}}})), Contains("tensor 'blk.3.attn_qkv.weight' is missing"));
}

TEST_CASE("qwen35: sizes of gated delta nets that are not supported are refused") {
  const auto refused = [](const std::string& key, std::int64_t value) {
    return refusal_of(qwen35_with({{"qwen35.ssm." + key, whole(value)}}));
  };
  CHECK_THAT(refused("conv_kernel", 1), Contains("a convolution of width 1"));
  CHECK_THAT(refused("conv_kernel", 9), Contains("'qwen35.ssm.conv_kernel' is 9"));
  CHECK_THAT(refused("state_size", 24), Contains("'ssm.state_size' is 24; only multiples of 16"));
  CHECK_THAT(refused("state_size", 272), Contains("'qwen35.ssm.state_size' is 272"));
  CHECK_THAT(refused("group_count", 3), Contains("4 heads of values cannot share 3 heads of keys evenly"));
  CHECK_THAT(refused("inner_size", 128), Contains("'ssm.inner_size' is 128") && Contains("4 of 16"));
  CHECK(refusal_of(qwen35_with({{"qwen35.ssm.inner_size", {}}})) == "loaded");
}

TEST_CASE("the first files of MiniCPM, without factors, have those of its configuration") {
  const auto file = fixture("minicpm");
  const auto write = [&](bool says) {
    GgufWriter out;
    for (const auto& [key, value] : file->metadata())
      if (!key.ends_with("_scale")) std::visit(MetadataCopy(out, key), value);
    if (says) {
      out.add("minicpm.embedding_scale", 12.0f);
      out.add("minicpm.residual_scale", 1.4 / std::sqrt(2.0));
      out.add("minicpm.logit_scale", 1.0f);  // 32 / 256, and at least 1
    }
    for (const engine::TensorInfo& tensor : file->tensors()) copy_tensor(tensor, out);
    return out.bytes();
  };
  const TemporaryFile silent(write(false)), explicit_ones(write(true));
  CHECK(same_bits(logits_of(silent.path(), "scalar"), logits_of(explicit_ones.path(), "scalar")));
  CHECK(!same_bits(logits_of(silent.path(), "scalar"), logits_of(file->path(), "scalar")));
}

}  // namespace
}  // namespace troupe::test
