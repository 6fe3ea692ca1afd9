// Which models are loaded, and the errors for those that are not.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include <catch2/catch.hpp>

#include "engine/compute/team.h"
#include "engine/engine.h"
#include "engine/evaluation/limits.h"
#include "engine/formats/finite_weights.h"
#include "engine/memory/process_memory.h"
#include "engine/model.h"
#include "engine/model/hidden_states.h"
#include "engine/model/memory_budget.h"
#include "engine/weights/packed_matrix.h"
#include "tests/engine/gguf_copy.h"
#include "tests/engine/gguf_writer.h"
#include "tests/engine/model_harness.h"
#include "tests/engine/plain_decoder.h"
#include "tests/support/shared_data.h"

namespace troupe::test {
namespace {

using engine::LoadedModel;
using engine::LoadOptions;

LoadOptions small_options() {
  LoadOptions options;
  options.memory = 64u << 20;
  return options;
}

Error refusal(const GgufWriter& writer, const LoadOptions& options = small_options()) {
  const TemporaryFile file(writer.bytes());
  const auto model = LoadedModel::load(file.path(), options);
  REQUIRE_FALSE(model);
  return model.error();
}

bool says(const Error& error, ErrorCode code, const std::string& part) {
  UNSCOPED_INFO("message: " << error.message);
  return error.code == code && error.message.find(part) != std::string::npos;
}

TEST_CASE("the tiny llama is loaded, and described as in its file") {
  const TemporaryFile file(TinyLlama{}.writer().bytes());
  const auto model = LoadedModel::load(file.path(), small_options());
  REQUIRE(model);
  CHECK((*model)->info().head_dim == 8);
  CHECK((*model)->info().vocab_size == 48);
  CHECK((*model)->info().num_parameters == 48 * 16 + 2 * (2 * 16 + 2 * 256 + 2 * 128 + 3 * 384) + 16);
  CHECK((*model)->tokenizer() == nullptr);
  CHECK((*model)->arena()->num_blocks() == 64 * 2);  // max_sequences full contexts of 64 tokens
}

TEST_CASE("weights become part of the numerics id") {
  GgufWriter w = TinyLlama{}.writer();
  const TemporaryFile file(w.bytes());
  const std::string id = (*LoadedModel::load(file.path(), small_options()))->numerics_id();
  std::string bytes = w.bytes();
  bytes[bytes.size() - 70] = static_cast<char>(bytes[bytes.size() - 70] ^ 1);  // one bit of a weight
  file.write(bytes);
  CHECK((*LoadedModel::load(file.path(), small_options()))->numerics_id() != id);
}

TEST_CASE("an unknown family is named in the error, with the supported ones") {
  const Error error = refusal(TinyLlama{.architecture = "qwen99"}.writer());
  CHECK(says(error, ErrorCode::unsupported, "'qwen99' is not supported; supported are llama, qwen2"));
  CHECK(says(refusal(TinyLlama{.left_out = "general.architecture"}.writer()), ErrorCode::bad_model,
             "'general.architecture' is missing"));
}

TEST_CASE("text from a file cannot break out of an error's line") {
  const std::string evil = "evil\n\x1b[2J" + std::string(500, 'x');
  const auto tame = [&](const GgufWriter& w) {
    const Error error = refusal(w);
    return says(error, error.code, "evil\\n\\x1b[2Jxxx") && error.message.find('\n') == std::string::npos &&
           error.message.size() < 600;
  };
  CHECK(tame(TinyLlama{.architecture = evil}.writer()));
  GgufWriter w = TinyLlama{}.writer();
  w.add("llama.rope.scaling.type", evil.c_str());
  CHECK(tame(w));
  w = TinyLlama{}.writer();
  w.add_floats("blk.0." + evil.substr(0, 200), {4}, 1);
  CHECK(tame(w));
  w = TinyLlama{.left_out = "tokenizer.ggml.model"}.writer();
  w.add("tokenizer.ggml.model", evil.c_str());
  CHECK(tame(w));
}

TEST_CASE("metadata that contradict themselves or the tensors are refused") {
  const auto bad = [](const TinyLlama& llama, const std::string& part) {
    return says(refusal(llama.writer()), ErrorCode::bad_model, part);
  };
  CHECK(bad({.left_out = "llama.block_count"}, "'llama.block_count' is missing"));
  CHECK(bad({.num_heads = 3}, "is not a multiple of the 3 heads"));
  CHECK(bad({.num_heads = 4, .num_kv_heads = 3}, "4 heads cannot share 3 kv heads"));
  CHECK(bad({.num_heads = 16, .num_kv_heads = 8}, "heads of 1 elements"));
  CHECK(bad({.epsilon = 0.0f}, "must be a finite number above 0"));
  CHECK(bad({.epsilon = std::numeric_limits<float>::infinity()}, "must be a finite number above 0"));
  CHECK(bad({.epsilon = std::numeric_limits<float>::quiet_NaN()}, "must be a finite number above 0"));
  CHECK(bad({.context = 0}, "'llama.context_length' is 0"));
  CHECK(bad({.num_layers = 3}, "'blk.2.attn_norm.weight' is missing"));
  CHECK(bad({.ffn_rows = 23}, "has shape [16 x 23]; the metadata ask for [16 x 24]"));
  CHECK(bad({.left_out = "token_embd.weight"}, "'token_embd.weight' is missing"));
  CHECK(bad({.left_out = "output_norm.weight"}, "'output_norm.weight' is missing"));
  CHECK(bad({.left_out = "blk.1.ffn_down.weight"}, "'blk.1.ffn_down.weight' is missing"));
}

TEST_CASE("tensors of other parts in the file are noted and not read, and change nothing") {
  GgufWriter w = TinyLlama{}.writer();
  const TemporaryFile plain(w.bytes());
  w.add_floats("mm.0.weight", {16, 4}, 1);
  w.add_floats("v.blk.0.attn_q.weight", {16, 16}, 2);
  const TemporaryFile with_others(w.bytes());
  LoadOptions options = small_options();
  std::string notes;
  options.notes = [&](const engine::LoadNote& note) { notes += note.text + "\n"; };
  const auto model = LoadedModel::load(with_others.path(), options);
  if (!model) FAIL(model.error().message);
  CHECK(notes.find("2 tensors are of no part that is computed here, and are not read, as 'mm.0.weight'") !=
        std::string::npos);
  CHECK((*model)->model().weight_bytes() ==
        (*LoadedModel::load(plain.path(), small_options()))->model().weight_bytes());
}

TEST_CASE("tensors beside the layers, and of layers beyond block_count, refuse no file, whatever their type and size") {
  LoadOptions options = small_options();
  std::string notes;
  options.notes = [&](const engine::LoadNote& note) { notes += note.text + "\n"; };
  const auto loads = [&](const GgufWriter& w) {
    notes.clear();
    const TemporaryFile file(w.bytes());
    const auto model = LoadedModel::load(file.path(), options);
    return model ? std::string() : model.error().message;
  };
  CHECK(loads(TinyLlama{.num_layers = 1}.writer()).empty());
  CHECK(notes.find("not read, as 'blk.1.attn_norm.weight'") != std::string::npos);
  for (std::uint32_t type = 0; type < 64; ++type) {
    INFO("type " << type);
    for (const char* name : {"mm.0.weight", "v.blk.0.attn_q.weight", "blk.2.nextn.eh_proj.weight", "cls.weight",
                             "output_scale", "per_layer_token_embd.weight"}) {
      GgufWriter w = TinyLlama{}.writer();
      w.add_tensor(name, {7, 3}, type, std::string(7 * 3 * 4, '\0'));
      CHECK(loads(w).empty());
      CHECK(notes.find(std::string("not read, as '") + name) != std::string::npos);
    }
  }
  GgufWriter large = TinyLlama{}.writer();
  large.add_tensor_at("mm.0.weight", {1ull << 40, 1ull << 40}, 0, 0);
  large.add_tensor_at("mm.1.weight", {1ull << 40}, 0, 64);
  large.add_tensor_at("mm.2.weight", {4}, 0, 3);
  CHECK(loads(large).empty());
  CHECK(notes.find("3 tensors are of no part") != std::string::npos);
}

TEST_CASE("features that this version does not compute are refused by name") {
  const auto unsupported = [](const GgufWriter& w, const std::string& part) {
    return says(refusal(w), ErrorCode::unsupported, part);
  };
  GgufWriter w = TinyLlama{}.writer();
  w.add_floats("blk.0.attn_output.bias", {16}, 1);
  CHECK(unsupported(w, "'blk.0.attn_output.bias' is not part of"));
  w = TinyLlama{}.writer();
  w.add_floats("blk.0.ffn_gate_inp.weight", {16, 4}, 1);
  CHECK(unsupported(w, "is not part of a 'llama' model"));
  w = TinyLlama{}.writer();
  w.add("llama.rope.scaling.type", "su");
  CHECK(unsupported(w, "'su' is not supported"));
  w = TinyLlama{}.writer();
  w.add("llama.attention.value_length", 4u);
  CHECK(unsupported(w, "different length"));
}

TEST_CASE("metadata that change a model's computation in a way that is not implemented are refused") {
  const auto with = [](const std::string& family, const auto&... pairs) {
    GgufWriter w = TinyLlama{.architecture = family}.writer();
    (w.add(family + "." + pairs.first, pairs.second), ...);
    return w;
  };
  const auto unsupported = [](const GgufWriter& w, const std::string& part) {
    return says(refusal(w), ErrorCode::unsupported, part);
  };
  const auto loads = [](const GgufWriter& w) {
    const TemporaryFile file(w.bytes());
    const auto model = LoadedModel::load(file.path(), small_options());
    UNSCOPED_INFO((model ? "" : model.error().message));
    return static_cast<bool>(model);
  };
  using std::pair;
  CHECK(unsupported(with("llama", pair{"attention.causal", false}),
                    "'llama.attention.causal' is false, which is not supported: a token sees those before it"));
  CHECK(loads(with("llama", pair{"attention.causal", true})));
  CHECK(unsupported(with("llama", pair{"attn_logit_softcapping", 30.5f}), "'llama.attn_logit_softcapping' is 30.5"));
  CHECK(loads(with("llama", pair{"attn_logit_softcapping", 0.0f}, pair{"final_logit_softcapping", 0.0f})));
  CHECK(unsupported(with("llama", pair{"rope.dimension_count_swa", 4u}), "'llama.rope.dimension_count_swa' is 4"));
  CHECK(loads(with("llama", pair{"rope.dimension_count_swa", 8u})));
  CHECK(unsupported(with("llama", pair{"attention.key_length_swa", 4u}), "'llama.attention.key_length_swa' is 4"));
  CHECK(loads(with("llama", pair{"rope.freq_base_swa", 500.0f})));  // no layer has a window
  CHECK(unsupported(with("llama", pair{"rope.freq_base_swa", 500.0f}, pair{"attention.sliding_window", 32u}),
                    "'llama.rope.freq_base_swa' is 500"));
  CHECK(loads(with("llama", pair{"rope.freq_base_swa", 10000.0f}, pair{"attention.sliding_window", 32u})));
  const pair count{"expert_count", 4u}, used{"expert_used_count", 2u};
  CHECK(unsupported(with("qwen2moe", count, used, pair{"expert_group_count", 2u}), "expert_group_count' is 2"));
  CHECK(unsupported(with("qwen2moe", count, used, pair{"expert_gating_func", 2u}), "expert_gating_func' is 2"));
  CHECK(unsupported(with("qwen2moe", count, used, pair{"expert_weights_scale", 2.5f}), "expert_weights_scale' is 2.5"));
  CHECK(says(refusal(with("qwen2moe", count, used, pair{"expert_group_count", 1u}, pair{"expert_gating_func", 1u})),
             ErrorCode::bad_model, "attn_q.bias"));  // past the metadata
  CHECK(unsupported(with("rwkv7", pair{"token_shift_count", 3u}), "'rwkv7.token_shift_count' is 3"));
  CHECK(unsupported(with("mamba2", pair{"ssm.conv_kernel", 4u}, pair{"ssm.inner_size", 32u}, pair{"ssm.state_size", 8u},
                         pair{"ssm.time_step_rank", 2u}, pair{"ssm.dt_b_c_rms", true}),
                    "'mamba2.ssm.dt_b_c_rms' is true"));
}

TEST_CASE("a key of the wrong type is an error, not treated as absent") {
  const auto bad = [](const char* key, auto value, const std::string& part) {
    GgufWriter w = TinyLlama{}.writer();
    w.add(std::string("llama.") + key, value);
    return says(refusal(w), ErrorCode::bad_model, "'llama." + std::string(key) + "' is " + part);
  };
  CHECK(bad("rope.scaling.type", 3u, "3, which is not a text"));
  CHECK(bad("pooling_type", "mean", "'mean', which is not a whole number"));
  CHECK(bad("attention.sliding_window", 32.5f, "32.5, which is not a whole number"));
  CHECK(bad("expert_count", true, "true, which is not a whole number"));
  CHECK(bad("rope.freq_base", "high", "'high', which is not a number"));
  GgufWriter w = TinyLlama{.architecture = "mamba"}.writer();
  for (const char* key : {"ssm.conv_kernel", "ssm.inner_size", "ssm.state_size", "ssm.time_step_rank"})
    w.add(std::string("mamba.") + key, 4u);
  w.add("mamba.ssm.dt_b_c_rms", 2u);
  CHECK(says(refusal(w), ErrorCode::bad_model, "'mamba.ssm.dt_b_c_rms' is 2, which is not true or false"));
}

TEST_CASE("a list for each layer is refused by the first layer that the family does not run so") {
  using List = std::vector<std::uint32_t>;
  using Flags = std::vector<bool>;
  const auto with = [](const std::string& family, const std::string& key, const auto& list, const auto&... more) {
    const std::string name = family + "." + key;
    GgufWriter w = TinyLlama{.architecture = family, .left_out = name, .num_layers = 4}.writer();
    w.add(name, list);
    (w.add(family + "." + more.first, more.second), ...);
    return w;
  };
  const auto refused = [&](const GgufWriter& w, const std::string& key, const std::string& part) {
    const Error error = refusal(w);
    INFO(error.message);
    return error.message.find("'" + key + "' is " + part) != std::string::npos;
  };
  CHECK(refused(with("llama", "attention.head_count_kv", List{1, 1, 0, 1}), "llama.attention.head_count_kv",
                "0 for layer 2, which has 2 heads; layers of this family without K and V are those without heads"));
  CHECK(refused(with("llama", "attention.head_count_kv", List{1, 1, 2}), "llama.attention.head_count_kv",
                "a list of 3 for 4 layers"));
  CHECK(refused(with("llama", "attention.head_count", List{2, 2, 1025, 2}), "llama.attention.head_count",
                "1025 for layer 2; it must be a whole number from 0 to 1024"));
  CHECK(refused(with("llama", "attention.head_count", List{2, 2, 4, 2}), "llama.attention.key_length",
                "missing; layers differ in heads (2 in layer 0, and 4 in others)"));
  CHECK(says(refusal(with("llama", "attention.head_count_kv", List{1, 1, 2, 3})), ErrorCode::bad_model,
             "2 heads cannot share 3 kv heads evenly (layer 3)"));
  CHECK(refused(with("llama", "feed_forward_length", List{24, 24, 1048577, 48}), "llama.feed_forward_length",
                "1048577 for layer 2; it must be a whole number from 0 to 1048576"));
  GgufWriter shared = TinyLlama{.num_layers = 4}.writer();
  shared.add("llama.attention.shared_kv_layers", 4u);
  CHECK(refused(shared, "llama.attention.shared_kv_layers", "4; it must be from 0 to less than the 4 layers"));
  CHECK(refused(with("llama", "attention.head_count", List{0, 2, 2, 2}, std::pair("attention.shared_kv_layers", 3u)),
                "llama.attention.shared_kv_layers", "3, but no layer before those has K and V of layer 1's kind"));
  CHECK(refused(with("llama", "feed_forward_length", List{0, 0, 0, 0}), "llama.feed_forward_length",
                "0; it must be from 1 to 1048576"));
  CHECK(refused(with("qwen3", "attention.sliding_window", List{0, 16, 0, 0}), "qwen3.attention.sliding_window",
                "a list of values that differ (0, but 16 in layer 1), which is not supported"));
  const std::string window = "attention.sliding_window", pattern = window + "_pattern";
  CHECK(refused(with("llama", window, List{16, 16, 8, 16}), "llama." + window, "16 for layer 0 and 8 for layer 2"));
  CHECK(refused(with("gemma3", window, List{16, 16, 16, 0}), "gemma3." + window,
                "16 for layer 0 and 0 for layer 3; layers with a window must be alike"));
  CHECK(refused(with("gemma3", window, List{16, 16, 8, 0}, std::pair(pattern, Flags{true, true, false, false})),
                "gemma3." + window, "8 for layer 2, which sees everything"));
  CHECK(refused(with("llama", window, List{16, 0, 16}), "llama." + window, "a list of 3 for 4 layers"));
  const std::pair has_window(window, 16u);
  CHECK(
      refused(with("llama", pattern, Flags{true, false}, has_window), "llama." + pattern, "a list of 2 for 4 layers"));
  CHECK(refused(with("llama", pattern, List{1, 2, 1, 1}, has_window), "llama." + pattern,
                "2 for layer 1, which is neither 0 nor 1"));
  CHECK(refused(with("gemma3", "rope.freq_base", List{100, 100, 100, 200}, has_window), "gemma3.rope.freq_base",
                "100 for layer 0 and 200 for layer 3; layers with a window must be alike"));
  CHECK(refused(with("llama", "rope.freq_base", List{100, 100, 100, 200}, has_window), "llama.rope.freq_base",
                "a list of values that differ (100, but 200 in layer 3)"));
  CHECK(refused(with("gemma3", "rope.freq_base", List{0, 0, 0, 100}, has_window,
                     std::pair(pattern, Flags{true, true, true, false})),
                "gemma3.rope.freq_base", "0; it must be a finite number above 0"));
}

TEST_CASE("what a file says about itself is a text, or is said to be none") {
  GgufWriter w = TinyLlama{.left_out = "general.architecture"}.writer();
  w.add("general.architecture", 1u);
  CHECK(says(refusal(w), ErrorCode::bad_model, "'general.architecture' is 1, which is not a text"));
  w = TinyLlama{}.writer();
  w.add("split.count", "two");
  CHECK(says(refusal(w), ErrorCode::bad_model, "'split.count' is 'two', which is not a whole number"));
  w = TinyLlama{}.writer();
  w.add("general.alignment", "wide");
  CHECK(says(refusal(w), ErrorCode::bad_model, "'general.alignment' is 'wide', which is not a whole number"));

  // The name only describes the model: a note, and the file's name in its place.
  w = TinyLlama{}.writer();
  w.add("general.name", 7u);
  const TemporaryFile file(w.bytes());
  LoadOptions options = small_options();
  std::vector<std::string> notes;  // of the file
  options.notes = [&](const auto& note) {
    if (note.text.starts_with(file.path())) notes.push_back(note.text);
  };
  const auto model = LoadedModel::load(file.path(), options);
  REQUIRE(model);
  CHECK((*model)->info().name == std::filesystem::path(file.path()).filename());
  REQUIRE(notes.size() == 1);
  CHECK(notes[0] == file.path() + ": 'general.name' is 7, which is not a text; the file's name is taken");
}

TEST_CASE("a number that float32 cannot hold is refused: it would become 0 or infinite") {
  const auto bad = [](const char* key, double value, const char* text) {
    GgufWriter w = TinyLlama{.left_out = std::string("llama.") + key}.writer();
    w.add(std::string("llama.") + key, value);
    return says(refusal(w), ErrorCode::bad_model, std::string(key) + text);
  };
  CHECK(bad("attention.layer_norm_rms_epsilon", 1e-50, "' is 1e-50; it must be a finite number above 0"));
  CHECK(bad("attention.layer_norm_rms_epsilon", 1e50, "' is 1e+50; it must be a finite number above 0"));
  CHECK(bad("final_logit_softcapping", 1e-50, "' must be a number from 0 on that float32 has"));
  CHECK(bad("rope.scaling.factor", 1e-300, "' is 1e-300; it must be"));
}

TEST_CASE("experts are counted in one tensor for each and in one for all; routers and shared ones are not") {
  const auto bytes_of = [](const std::vector<std::pair<std::string, std::vector<std::uint64_t>>>& tensors) {
    GgufWriter w = TinyLlama{}.writer();
    for (const auto& [name, shape] : tensors) w.add_floats(name, shape, 1);
    const TemporaryFile path(w.bytes());
    const auto file = engine::open_gguf(path.path());
    REQUIRE(file);
    return engine::packed_expert_bytes(**file, *kernels::find_table("reference"));
  };
  CHECK(bytes_of({}) == 0);
  CHECK(bytes_of({{"blk.0.ffn_gate_inp.weight", {16, 2}}, {"blk.0.ffn_up_shexp.weight", {16, 24}}}) == 0);
  const std::uint64_t one = bytes_of({{"blk.0.ffn_gate.0.weight", {16, 24}}});
  CHECK(one > 16 * 24 * sizeof(float));
  CHECK(bytes_of({{"blk.0.ffn_gate.0.weight", {16, 24}}, {"blk.1.ffn_down.11.weight", {24, 16}}}) == 2 * one);
  CHECK(bytes_of({{"blk.0.ffn_up_exps.weight", {16, 24, 3}}}) == 3 * one);
  CHECK(bytes_of({{"blk.7.ffn_up_exps.weight", {16, 24, 3}}}) == 0);  // of no layer that is computed
}

TEST_CASE("the matrices of a step are known from a file's directory as from the loaded model") {
  const auto& kernels = *kernels::find_table("reference");
  for (const char* const name : {"llama-Q4_K", "gemma3", "qwen2", "llama-moe", "olmoe", "qwen2moe"}) {
    INFO(name);
    const std::string path = std::string(TROUPE_TEST_DATA "/golden/") + name + ".gguf";
    const auto file = engine::open_gguf(path);
    REQUIRE(file);
    LoadOptions options = small_options();
    options.kernels = "reference";
    const auto model = LoadedModel::load(path, options);
    if (!model) FAIL(model.error().message);
    const engine::ModelInfo& info = (*model)->info();
    const auto found = engine::packed_matrices(**file, kernels, info.num_experts, info.num_experts_used);
    for (const std::uint64_t rows : {1, 20}) {
      const auto known = engine::step_work(info.matrices, kernels, rows, 1);
      const auto expected = engine::step_work(found, kernels, rows, 1);
      // The end of the last layer counts for output rows only, which a directory does not say; and gates of shared
      // experts are vectors there.
      CHECK(expected.bytes >= known.bytes * 0.99);
      CHECK(expected.total_ops() >= known.total_ops() * 0.99);
      if (rows > 1) continue;
      CHECK(expected.bytes == Approx(known.bytes).epsilon(0.01));
      CHECK(expected.total_ops() == Approx(known.total_ops()).epsilon(0.01));
    }
  }
}

TEST_CASE("vectors of texts are pooled as the file says, else the last token is taken") {
  using engine::Pooling;
  const auto pooling_of = [](std::optional<std::uint32_t> type) {
    GgufWriter w = TinyLlama{}.writer();
    if (type) w.add("llama.pooling_type", *type);
    const TemporaryFile file(w.bytes());
    const auto model = LoadedModel::load(file.path(), small_options());
    REQUIRE(model);
    return engine::HiddenStates(*model).pooling();
  };
  CHECK(pooling_of(std::nullopt) == Pooling::last);
  CHECK(pooling_of(0) == Pooling::last);
  CHECK(pooling_of(1) == Pooling::mean);
  CHECK(pooling_of(2) == Pooling::cls);
  CHECK(pooling_of(3) == Pooling::last);
  GgufWriter w = TinyLlama{}.writer();
  w.add("llama.pooling_type", 4u);
  CHECK(
      says(refusal(w), ErrorCode::unsupported, "'llama.pooling_type' is 4, which is not supported: this model ranks"));
  w = TinyLlama{}.writer();
  w.add("llama.pooling_type", 5u);
  CHECK(says(refusal(w), ErrorCode::bad_model, "is 5; it must be from 0 to 4"));
}

TEST_CASE("the size of the weights, also of experts, is known before they are read") {
  const auto estimate_and_actual = [](const std::string& bytes, const std::string& kernels) {
    const TemporaryFile path(bytes);
    const auto file = engine::open_gguf(path.path());
    REQUIRE(file);
    LoadOptions options = small_options();
    options.kernels = kernels;
    const auto model = LoadedModel::load(path.path(), options);
    if (!model) FAIL(model.error().message);
    const std::uint64_t rotations = std::uint64_t{(*model)->info().context} * 16 * sizeof(float);
    return std::pair(engine::packed_weight_bytes(**file, (*model)->kernels()),
                     (*model)->model().weight_bytes() - rotations);
  };
  PlainDecoder plain;
  plain.family = "llama";
  plain.normalised = true;
  plain.experts = 5;
  plain.experts_used = 2;
  plain.expert_ffn = plain.ffn;
  for (const kernels::KernelTable* table : variants_here()) {
    const auto [estimate, actual] = estimate_and_actual(plain.bytes(), std::string(table->name));
    INFO(table->name);
    CHECK(estimate == actual);
  }
}

TEST_CASE("a model whose rotation factors are no positive numbers is refused") {
  GgufWriter w = TinyLlama{}.writer();
  w.add_tensor("rope_freqs.weight", {4}, 0, std::string(16, '\0'));
  CHECK(says(refusal(w), ErrorCode::bad_model, "rope_freqs.weight"));
}

TEST_CASE("a weight that is not finite is found when the model is loaded, in any type, and its tensor is named") {
  // By type: where in a group of so many bytes a float16, or for floats the number itself, can be damaged.
  struct Place {
    kernels::WeightType type;
    std::size_t offset;
    std::string bytes;
  };
  const std::string inf16("\x00\x7c", 2), nan16("\x01\xfe", 2);
  const std::vector<Place> places = {{kernels::WeightType::f32, 0, std::string("\x00\x00\x80\xff", 4)},
                                     {kernels::WeightType::f32, 0, std::string("\x00\x00\xc0\x7f", 4)},
                                     {kernels::WeightType::f16, 0, nan16},
                                     {kernels::WeightType::bf16, 0, std::string("\x80\x7f", 2)},
                                     {kernels::WeightType::q8_0, 0, inf16},
                                     {kernels::WeightType::q4_0, 0, nan16},
                                     {kernels::WeightType::q4_1, 0, inf16},
                                     {kernels::WeightType::q4_1, 2, inf16},
                                     {kernels::WeightType::q5_0, 0, inf16},
                                     {kernels::WeightType::q5_1, 2, nan16},
                                     {kernels::WeightType::iq4_nl, 0, inf16},
                                     {kernels::WeightType::iq4_xs, 0, inf16},
                                     {kernels::WeightType::mxfp4, 0, std::string("\xff", 1)},
                                     {kernels::WeightType::q2_k, 80, inf16},
                                     {kernels::WeightType::q2_k, 82, nan16},
                                     {kernels::WeightType::q3_k, 108, inf16},
                                     {kernels::WeightType::q4_k, 0, inf16},
                                     {kernels::WeightType::q4_k, 2, inf16},
                                     {kernels::WeightType::q5_k, 2, nan16},
                                     {kernels::WeightType::q6_k, 208, inf16},
                                     {kernels::WeightType::tq1_0, 52, nan16},
                                     {kernels::WeightType::tq2_0, 64, inf16}};
  for (const Place& place : places) {
    const kernels::WeightTypeInfo& type = kernels::info(place.type);
    INFO(type.name << " at " << place.offset);
    const std::uint64_t rows = 300, columns = 256;  // more than one thread's part
    std::string groups(rows * columns / type.group_size * type.group_bytes, '\x11');
    CHECK(engine::all_finite(place.type, std::as_bytes(std::span(groups))));
    const std::size_t last = groups.size() - type.group_bytes;
    if (place.type == kernels::WeightType::mxfp4) groups[last + 1] = '\x77';
    groups.replace(last + place.offset, place.bytes.size(), place.bytes);
    std::vector<float> weights(columns);
    const std::size_t row_bytes = groups.size() / rows;
    kernels::dequantize(place.type, reinterpret_cast<const std::byte*>(groups.data()) + groups.size() - row_bytes,
                        weights.data(), columns);
    CHECK_FALSE(std::all_of(weights.begin(), weights.end(), [](float weight) { return std::isfinite(weight); }));
    CHECK_FALSE(engine::all_finite(place.type, std::as_bytes(std::span(groups))));
    engine::Team team(2);
    const auto packed = engine::PackedMatrix::pack(team, {place.type, kernels::Layout::file, rows, columns},
                                                   std::as_bytes(std::span(groups)));
    REQUIRE_FALSE(packed);
    CHECK(packed.error().code == ErrorCode::bad_model);
  }
}

TEST_CASE("a model with one damaged weight in any tensor is refused") {
  const TemporaryFile original(TinyLlama{}.writer().bytes());
  const auto file = engine::open_gguf(original.path());
  REQUIRE(file);
  for (const engine::TensorInfo& tensor : (*file)->tensors()) {
    GgufWriter w;
    copy_metadata(**file, w);
    for (const engine::TensorInfo& each : (*file)->tensors()) {
      std::string data = to_string(each.bytes);
      if (each.name == tensor.name) data.replace(data.size() - 4, 4, std::string("\x00\x00\x80\x7f", 4));
      w.add_tensor(each.name, each.shape, 0, std::move(data));
    }
    CHECK(says(refusal(w), ErrorCode::bad_model,
               "tensor '" + tensor.name + "' of type F32 has a weight that is not finite"));
  }
}

TEST_CASE("a vocabulary that does not fit is refused before it is built, and others take at most the expected bytes") {
  constexpr std::uint64_t kTokens = 20'000;
  for (const std::string model : {"llama", "gpt2", "rwkv", "bert"}) {
    for (const char special : {'\x01', '\x04'}) {  // normal, and looked for in every text
      INFO(model << ", type " << int{special});
      GgufWriter w = TinyLlama{.left_out = "tokenizer.ggml.model"}.writer();
      w.add("tokenizer.ggml.model", model.c_str());
      w.add("tokenizer.ggml.pre", "gpt-2");
      std::string texts = GgufWriter::number(8, 4) + GgufWriter::number(kTokens, 8);
      std::string types = GgufWriter::number(5, 4) + GgufWriter::number(kTokens, 8);
      for (std::uint64_t i = 0; i < kTokens; ++i) {
        texts += GgufWriter::text(i == 1   ? "[UNK]"
                                  : i == 2 ? "[CLS]"
                                  : i == 3 ? "[SEP]"
                                           : std::to_string(i * 7919) + std::string(i % 60, 'x'));
        types += GgufWriter::number(i < 4 ? 3 : static_cast<std::uint64_t>(special), 4);
      }
      w.add_raw("tokenizer.ggml.tokens", 9, texts);
      w.add_raw("tokenizer.ggml.token_type", 9, types);
      std::string scores = GgufWriter::number(6, 4) + GgufWriter::number(kTokens, 8);
      scores.append(kTokens * sizeof(float), '\0');
      w.add_raw("tokenizer.ggml.scores", 9, scores);
      w.add_raw("tokenizer.ggml.merges", 9, GgufWriter::number(8, 4) + GgufWriter::number(0, 8));
      const TemporaryFile path(w.bytes());
      const auto file = engine::open_gguf(path.path());
      REQUIRE(file);
      const std::uint64_t expected = engine::expected_vocabulary_bytes(**file);
      const std::uint64_t before = engine::process_memory().heap_used;
      const auto tokenizer = engine::make_tokenizer_within(**file, expected);
      if (!tokenizer) FAIL(tokenizer.error().message);
      const std::uint64_t after = engine::process_memory().heap_used;
      if (before != 0) {  // a sanitizer's allocator does not count
        CHECK(after - before <= expected);
        CHECK(after - before >= expected / 4);
      }
      CHECK_FALSE(engine::make_tokenizer_within(**file, expected - 1));
      LoadOptions options = small_options();
      options.memory = expected;  // and no bytes for weights
      const auto loaded = LoadedModel::load(path.path(), options);
      REQUIRE_FALSE(loaded);
      CHECK(says(loaded.error(), ErrorCode::out_of_memory, " and the vocabulary up to "));
    }
  }
}

TEST_CASE("a budget that is too small is refused with the numbers") {
  const std::string path = TROUPE_MODELS "/tales-5m-tq2_0.gguf";
  LoadOptions options;
  options.memory = 1u << 20;
  auto model = LoadedModel::load(path, options);
  REQUIRE_FALSE(model);
  CHECK(says(model.error(), ErrorCode::out_of_memory, "a memory budget of 1 MiB is too small: weights take"));
  options.memory = 5u << 20;
  options.context = 1024;
  options.kernels = "scalar";
  model = LoadedModel::load(path, options);
  REQUIRE_FALSE(model);
  CHECK(says(model.error(), ErrorCode::out_of_memory, "the KV cache of 1024 tokens takes 3 MiB; use -c "));
}

TEST_CASE("a context whose table of rotations does not fit is refused before the table is made") {
  const Error error = refusal(TinyLlama{.context = 1u << 24}.writer());
  CHECK(says(error, ErrorCode::out_of_memory, "for 16777216 tokens take 512 MiB"));
  CHECK(says(error, ErrorCode::out_of_memory, "use a smaller -c"));
  LoadOptions options = small_options();
  options.context = 64;  // the context in the file does not matter then
  const TemporaryFile file(TinyLlama{.context = 1u << 24}.writer().bytes());
  CHECK(LoadedModel::load(file.path(), options));
}

TEST_CASE("the budget decides how many blocks there are") {
  const std::string path = TROUPE_MODELS "/tales-5m-tq2_0.gguf";
  LoadOptions options;
  options.memory = 32u << 20;
  options.max_sequences = 64;
  const auto limited = LoadedModel::load(path, options);
  REQUIRE(limited);
  const auto& model = **limited;
  const std::uint64_t vocabulary = engine::expected_vocabulary_bytes(**engine::open_gguf(path));
  CHECK(model.arena()->num_blocks() ==
        (options.memory - model.model().weight_bytes() - vocabulary) / model.arena()->bytes_per_block());
  options.max_sequences = 2;
  CHECK((*LoadedModel::load(path, options))->arena()->num_blocks() == 2 * 1024 / kBlockSize);
  options.num_blocks = 5;  // fewer than a context, if asked for by number
  CHECK((*LoadedModel::load(path, options))->arena()->num_blocks() == 5);
}

TEST_CASE("of the memory beside weights a quarter is for states of open sequences, at most one for each") {
  const auto path = shared_file("golden/falcon-h1-F32.gguf");
  if (!path) return;
  LoadOptions options;
  options.max_sequences = 16;
  options.context = 64;
  options.memory = std::uint64_t{1} << 30;
  const auto plenty = LoadedModel::load(*path, options);
  REQUIRE(plenty);
  CHECK((*plenty)->num_states() == 16);
  const std::uint64_t state = (*plenty)->cache_spec().state.bytes();
  const std::uint64_t weights = (*plenty)->model().weight_bytes();
  for (const std::uint64_t states : {1, 5}) {
    options.memory = weights + 4 * state * states + state;
    const auto few = LoadedModel::load(*path, options);
    if (!few) FAIL(few.error().message);
    CHECK((*few)->num_states() == states);
  }
  const auto none = LoadedModel::load(TROUPE_MODELS "/tales-5m-tq2_0.gguf", {});
  REQUIRE(none);
  CHECK((*none)->num_states() == 0);
}

TEST_CASE("kernels are chosen by option, then by environment, and only if they exist") {
  const TemporaryFile file(TinyLlama{}.writer().bytes());
  LoadOptions options = small_options();
  ::unsetenv("TROUPE_KERNELS");
  CHECK((*LoadedModel::load(file.path(), options))->kernels().name == kernels::best_table().name);
  ::setenv("TROUPE_KERNELS", "reference", 1);
  CHECK((*LoadedModel::load(file.path(), options))->kernels().name == "reference");
  options.kernels = "scalar";
  CHECK((*LoadedModel::load(file.path(), options))->kernels().name == "scalar");
  options.kernels.clear();
  ::setenv("TROUPE_KERNELS", "warp", 1);
  const auto unknown = LoadedModel::load(file.path(), options);
  REQUIRE_FALSE(unknown);
  CHECK(says(unknown.error(), ErrorCode::invalid_argument,
             "there is no variant 'warp'; this CPU can run reference, scalar"));
  ::unsetenv("TROUPE_KERNELS");
}

TEST_CASE("loading reports its progress up to the end") {
  const TemporaryFile file(TinyLlama{}.writer().bytes());
  LoadOptions options = small_options();
  std::vector<double> seen;
  options.progress = [&](double fraction) { seen.push_back(fraction); };
  REQUIRE(LoadedModel::load(file.path(), options));
  CHECK(std::is_sorted(seen.begin(), seen.end()));
  CHECK(seen.size() == 20);
  CHECK(seen.back() == 1.0);
}

TEST_CASE("a loaded model does not read its file") {
  const TemporaryFile file(TinyLlama{}.writer().bytes());
  const auto model = LoadedModel::load(file.path(), small_options());
  REQUIRE(model);
  file.write("");  // touching a mapped page of it now would be SIGBUS
  engine::Team team(2);
  engine::Executor executor(**model, team);
  SequenceRunner runner(executor, 1, {1, 2, 3, 40}, {0});
  CHECK(runner.run(3).size() == 4 * 48);
}

TEST_CASE("every family accepts its own architecture only") {
  for (const engine::Family& family : engine::families()) {
    const TemporaryFile own(TinyLlama{.architecture = std::string(family.name)}.writer().bytes());
    const auto file = engine::open_gguf(own.path());
    REQUIRE(file);
    for (const engine::Family& other : engine::families()) {
      CHECK(other.accepts(**file) == (other.name == family.name));
    }
  }
}

}  // namespace
}  // namespace troupe::test
