// Extension points of the engine: models in weight types that a program registers, memory policies that it implements.
// (A test program of its own, because registered types stay registered.)
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstring>
#include <filesystem>

#include <catch2/catch.hpp>

#include "engine/engine.h"
#include "engine/evaluation/eval.h"
#include "kernels/formats/converted_type.h"
#include "tests/engine/gguf_copy.h"
#include "tests/engine/model_harness.h"
#include "tests/support/temp_folder.h"

namespace troupe::test {
namespace {

namespace fs = std::filesystem;
using engine::AlignedMemory;
using engine::LoadedModel;
using engine::LoadOptions;
using engine::MemoryKind;
using kernels::ConvertedType;

// Eight weights: their float32 with all bits inverted, which loses nothing.
constexpr std::uint32_t kInvertedNumber = 7001;
void dequantize_inverted(const std::byte* group, float* out) {
  for (int i = 0; i < 8; ++i) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, group + 4 * i, sizeof bits);
    bits = ~bits;
    std::memcpy(out + i, &bits, sizeof bits);
  }
}

ConvertedType inverted_type = {.info = {.type = kernels::WeightType::f32,
                                        .name = "INVERTED",
                                        .gguf_number = kInvertedNumber,
                                        .group_size = 8,
                                        .group_bytes = 32},
                               .version = 1,
                               .dequantize = dequantize_inverted};
const bool inverted_is_registered = static_cast<bool>(kernels::register_type(inverted_type));

// A float32 model with every tensor inverted; `poison`: one weight of it is not a number.
std::string inverted(const std::string& model, const std::string& poison = "") {
  const TemporaryFile source(model);
  const auto file = engine::open_gguf(source.path());
  REQUIRE(file);
  GgufWriter out;
  copy_metadata(**file, out);
  for (const engine::TensorInfo& tensor : (*file)->tensors()) {
    std::string bytes = to_string(tensor.bytes);
    if (tensor.name == poison) std::memcpy(bytes.data() + 8, "\xff\xff\xff\x7f", 4);
    for (char& byte : bytes) byte = static_cast<char>(~byte);
    out.add_tensor(tensor.name, tensor.shape, kInvertedNumber, bytes);
  }
  return out.bytes();
}

std::string tiny() { return TinyLlama{}.writer().bytes(); }

LoadOptions small_options() {
  LoadOptions options;
  options.memory = 64u << 20;
  return options;
}

std::vector<float> logits_of(const LoadedModel& model) {
  engine::Team team(2);
  const auto logits = engine::evaluate(model, team, std::vector<TokenId>{1, 2, 3, 40, 5, 6, 7});
  REQUIRE(logits);
  return *logits;
}

TEST_CASE("a model in a converted type gives the bits of the type it is converted to, on every variant") {
  REQUIRE(inverted_is_registered);
  const TemporaryFile plain(tiny()), converted(inverted(tiny()));
  for (const kernels::KernelTable* table : variants_here()) {
    INFO(table->name);
    const auto model = load_model(converted.path(), std::string(table->name));
    const auto expected = load_model(plain.path(), std::string(table->name));
    CHECK(logits_of(*model) == logits_of(*expected));
    CHECK(model->model().weight_bytes() == expected->model().weight_bytes());
    CHECK(model->info().weight_types == "INVERTED x 20");
    CHECK(model->info().num_parameters == expected->info().num_parameters);
  }
}

TEST_CASE("rows whose halves are rotated are put in order before they are converted") {
  GgufWriter writer = TinyLlama{.architecture = "bitnet"}.writer();
  for (const char* layer : {"blk.0.", "blk.1."}) {
    writer.add_floats(std::string(layer) + "attn_sub_norm.weight", {16}, 1);
    writer.add_floats(std::string(layer) + "ffn_sub_norm.weight", {24}, 2);
  }
  const TemporaryFile plain(writer.bytes()), converted(inverted(writer.bytes()));
  CHECK(logits_of(*load_model(converted.path(), "")) == logits_of(*load_model(plain.path(), "")));
}

TEST_CASE("the version of a converted type is part of the numerics id, and of the name of its packed weights") {
  const TemporaryFile file(inverted(tiny()));
  const TempFolder folder;
  std::vector<std::string> notes;
  const auto load = [&] {
    notes.clear();
    LoadOptions options = small_options();
    options.weights_cache = {.directory = folder.path(), .max_bytes = 0};
    options.notes = [&](const engine::LoadNote& note) { notes.push_back(note.text); };
    const auto model = LoadedModel::load(file.path(), options);
    REQUIRE(model);
    return *model;
  };
  const auto was = [&](std::string_view word) {
    return std::any_of(notes.begin(), notes.end(), [&](const std::string& note) { return note.starts_with(word); });
  };
  const auto first = load();
  CHECK(was("packed "));
  const auto second = load();
  CHECK(was("read "));
  CHECK(second->numerics_id() == first->numerics_id());
  CHECK(logits_of(*second) == logits_of(*first));
  inverted_type.version = 2;  // no model of it is loaded at this moment
  const auto third = load();
  inverted_type.version = 1;
  CHECK(was("packed "));
  CHECK(third->numerics_id() != first->numerics_id());
}

TEST_CASE("a type that is not registered is refused, and the registered ones are named") {
  GgufWriter writer = TinyLlama{.left_out = "output_norm.weight"}.writer();
  writer.add_tensor("output_norm.weight", {16}, 7002, std::string(64, '\0'));
  const TemporaryFile file(writer.bytes());
  const auto model = LoadedModel::load(file.path(), small_options());
  REQUIRE_FALSE(model);
  CHECK(model.error().code == ErrorCode::unsupported);
  CHECK(model.error().message.find("tensor 'output_norm.weight' has weight type 7002, which is not supported; use one "
                                   "of F32 F16") != std::string::npos);
  CHECK(model.error().message.find(" I2_S INVERTED") != std::string::npos);
}

TEST_CASE("a converted tensor must have whole groups and finite weights") {
  const auto message_of = [](const std::string& bytes) {
    const TemporaryFile file(bytes);
    const auto model = LoadedModel::load(file.path(), small_options());
    REQUIRE_FALSE(model);
    CHECK(model.error().code == ErrorCode::bad_model);
    return model.error().message;
  };
  CHECK(message_of(inverted(tiny(), "blk.1.ffn_up.weight"))
            .find("tensor 'blk.1.ffn_up.weight' of type INVERTED has a weight that is not finite as F32") !=
        std::string::npos);
  GgufWriter writer = TinyLlama{.left_out = "output_norm.weight"}.writer();
  writer.add_tensor("output_norm.weight", {12}, kInvertedNumber, std::string(64, '\0'));
  CHECK(message_of(writer.bytes()).find("rows of 12 are not a multiple of INVERTED's group of 8") != std::string::npos);
}

// Counts the allocations, and refuses those of one kind.
class CountingMemory final : public engine::MemoryPolicy {
 public:
  explicit CountingMemory(std::optional<MemoryKind> refused = std::nullopt) : refused_(refused) {}

  std::byte* allocate(MemoryKind kind, std::size_t bytes) noexcept override {
    if (kind == refused_) return nullptr;
    std::byte* data = engine::system_memory()->allocate(kind, bytes);
    if (data) bytes_[static_cast<std::size_t>(kind)] += bytes;
    return data;
  }
  void release(MemoryKind kind, std::byte* data, std::size_t bytes) noexcept override {
    bytes_[static_cast<std::size_t>(kind)] -= bytes;
    engine::system_memory()->release(kind, data, bytes);
  }
  std::uint64_t bytes(MemoryKind kind) const { return bytes_[static_cast<std::size_t>(kind)]; }

 private:
  std::optional<MemoryKind> refused_;
  std::array<std::atomic<std::uint64_t>, engine::kMemoryKindNames.size()> bytes_{};
};

TEST_CASE("all large memory of a model is allocated by its policy, and freed by it") {
  const TemporaryFile file(tiny());
  const TempFolder folder;
  for (const bool from_cache : {false, true}) {  // the first load fills the weights cache
    INFO("from the weights cache: " << from_cache);
    const auto memory = std::make_shared<CountingMemory>();
    {
      LoadOptions options = small_options();
      options.num_blocks = 4;
      options.memory_policy = memory;
      options.weights_cache = {.directory = folder.path(), .max_bytes = 0};
      auto model = LoadedModel::load(file.path(), options);
      REQUIRE(model);
      CHECK((*model)->model().matrix_bytes() > 0);
      CHECK((*model)->model().matrix_bytes() < (*model)->model().weight_bytes());
      CHECK(memory->bytes(MemoryKind::weights) == (*model)->model().matrix_bytes());
      CHECK(memory->bytes(MemoryKind::kv_cache) == 4 * (*model)->arena()->bytes_per_block());
      CHECK(memory->bytes(MemoryKind::step_buffers) == 0);
      engine::Team team(2);
      engine::Executor executor(**model, team);
      SequenceRunner runner(executor, 1, {1, 2, 3, 40}, {0});
      (void)runner.run(3);
      CHECK(executor.workspace_bytes() > 0);
      CHECK(memory->bytes(MemoryKind::step_buffers) == executor.workspace_bytes());
    }
    for (const MemoryKind kind : {MemoryKind::weights, MemoryKind::kv_cache, MemoryKind::step_buffers})
      CHECK(memory->bytes(kind) == 0);
    CHECK(memory.use_count() == 1);
  }
}

TEST_CASE("a model whose policy has no memory left cannot be loaded") {
  const TemporaryFile file(tiny());
  for (const auto& [kind, message] :
       {std::pair(MemoryKind::weights, "no memory for a matrix of"), std::pair(MemoryKind::kv_cache, "KV blocks of")}) {
    LoadOptions options = small_options();
    options.memory_policy = std::make_shared<CountingMemory>(kind);
    const auto model = LoadedModel::load(file.path(), options);
    REQUIRE_FALSE(model);
    CHECK(model.error().code == ErrorCode::out_of_memory);
    CHECK(model.error().message.find(message) != std::string::npos);
  }
}

TEST_CASE("memory that moves to a new owner is freed by the policy that allocated it") {
  const auto one = std::make_shared<CountingMemory>(), two = std::make_shared<CountingMemory>();
  AlignedMemory first = AlignedMemory::allocate(one, MemoryKind::weights, 100);
  AlignedMemory second = AlignedMemory::allocate(two, MemoryKind::kv_cache, 200);
  first = std::move(second);
  second = AlignedMemory();
  CHECK(one->bytes(MemoryKind::weights) == 0);
  CHECK(two->bytes(MemoryKind::kv_cache) == 200);
  first = AlignedMemory();
  CHECK(two->bytes(MemoryKind::kv_cache) == 0);
  CHECK(AlignedMemory::allocate(one, MemoryKind::weights, 0).data() == nullptr);
}

}  // namespace
}  // namespace troupe::test
