// What a model must be to be loaded, and what is said of one that is not.
#include <cstdlib>

#include <catch2/catch.hpp>

#include "engine/engine.h"
#include "engine/families.h"
#include "tests/engine/gguf_writer.h"
#include "tests/engine/model_harness.h"

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

TEST_CASE("the tiny llama loads, and says what it is") {
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

TEST_CASE("a family that is not there is named, with those that are") {
  const Error error = refusal(TinyLlama{.architecture = "qwen99"}.writer());
  CHECK(says(error, ErrorCode::unsupported, "'qwen99' is not supported; supported are llama, qwen2"));
  CHECK(says(refusal(TinyLlama{.left_out = "general.architecture"}.writer()), ErrorCode::bad_model,
             "'general.architecture' is missing"));
}

TEST_CASE("what a file says of itself cannot break out of an error's line") {
  const std::string evil = "evil\n\x1b[2J" + std::string(500, 'x');
  const auto tame = [&](const GgufWriter& w) {
    const Error error = refusal(w);
    return says(error, error.code, "evil??[2Jxxx") && error.message.find('\n') == std::string::npos &&
           error.message.size() < 300;
  };
  CHECK(tame(TinyLlama{.architecture = evil}.writer()));
  GgufWriter w = TinyLlama{}.writer();
  w.add("llama.rope.scaling.type", evil.c_str());
  CHECK(tame(w));
  w = TinyLlama{}.writer();
  w.add_floats(evil.substr(0, 200), {4}, 1);
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

TEST_CASE("what this version does not compute is refused by name") {
  const auto unsupported = [](const GgufWriter& w, const std::string& part) {
    return says(refusal(w), ErrorCode::unsupported, part);
  };
  CHECK(unsupported(TinyLlama{.num_layers = 1}.writer(), "'blk.1.attn_norm.weight' is not part of"));
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

TEST_CASE("a model whose rotation factors are no positive numbers is refused") {
  GgufWriter w = TinyLlama{}.writer();
  w.add_tensor("rope_freqs.weight", {4}, 0, std::string(16, '\0'));
  CHECK(says(refusal(w), ErrorCode::bad_model, "rope_freqs.weight"));
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
  options.context = 64;  // what the file claims does not matter then
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
  CHECK(model.arena()->num_blocks() ==
        (options.memory - model.model().weight_bytes()) / model.arena()->bytes_per_block());
  options.max_sequences = 2;
  CHECK((*LoadedModel::load(path, options))->arena()->num_blocks() == 2 * 1024 / kBlockSize);
  options.num_blocks = 5;  // fewer than a context, if that is what is asked for
  CHECK((*LoadedModel::load(path, options))->arena()->num_blocks() == 5);
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
             "no kernels named 'warp'; this machine has reference, scalar"));
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
