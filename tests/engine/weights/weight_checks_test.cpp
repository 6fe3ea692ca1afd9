// Checksums of resident weights: every byte of them is watched.
#include "engine/weights/weight_checks.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include <catch2/catch.hpp>

#include "engine/engine.h"
#include "engine/model/encoder.h"
#include "tests/engine/gguf_writer.h"
#include "tests/engine/model_harness.h"
#include "tests/support/temp_folder.h"

namespace troupe::test {
namespace {

namespace fs = std::filesystem;
using engine::Encoder;
using engine::LoadedModel;
using engine::LoadOptions;
using engine::MemoryKind;
using engine::WeightChecks;
using engine::WeightScan;

// Finds what a scan finds, which must see all bytes that the checks have.
std::optional<std::string> damage_in(const WeightChecks& checks) {
  WeightScan scan(checks);
  std::uint64_t seen = 0;
  while (const std::size_t bytes = scan.next()) {
    CHECK(bytes <= WeightScan::kPieceBytes);
    seen += bytes;
  }
  CHECK(seen == checks.bytes());
  return scan.damage();
}

class Collector final : public engine::WeightVisitor {
 public:
  void matrix(const engine::PackedMatrix& matrix) override { matrices.push_back(&matrix); }
  void vector(std::span<const float> numbers) override { vectors.push_back(numbers); }
  std::uint64_t matrix_bytes() const {
    std::uint64_t bytes = 0;
    for (const engine::PackedMatrix* each : matrices) bytes += each->bytes().size();
    return bytes;
  }
  std::uint64_t vector_bytes() const {
    std::uint64_t bytes = 0;
    for (const auto each : vectors) bytes += each.size_bytes();
    return bytes;
  }
  std::vector<const engine::PackedMatrix*> matrices;
  std::vector<std::span<const float>> vectors;
};

// Flips a bit of a byte that is only read otherwise.
void flip(std::span<const std::byte> bytes, std::size_t at, unsigned bit) {
  auto* const byte = const_cast<std::byte*>(bytes.data() + at);
  *byte ^= std::byte{1} << bit;
}

template <class AnyModel>
void require_all_watched(const AnyModel& model, std::uint64_t weight_bytes, std::uint64_t matrix_bytes) {
  Collector found;
  model.visit_weights(found);
  CHECK(found.matrix_bytes() == matrix_bytes);
  // Scales of one number and factors of angles are read, and then in other places.
  const std::uint64_t other = weight_bytes - matrix_bytes;
  CHECK(found.vector_bytes() + 1024 >= other);
  WeightChecks checks;
  checks.add(model);
  CHECK(checks.bytes() ==
        found.matrix_bytes() - found.matrices.size() * engine::kPackedHeaderBytes + found.vector_bytes());
  CHECK_FALSE(damage_in(checks));
}

TEST_CASE("all weights of every family are watched") {
  std::size_t num_models = 0;
  for (const auto& entry : fs::directory_iterator(TROUPE_TEST_DATA "/golden")) {
    if (entry.path().extension() != ".gguf") continue;
    ++num_models;
    for (const kernels::KvType type : {kernels::KvType::f16, kernels::KvType::i8}) {
      INFO(entry.path().string() << " " << kernels::name(type));
      const auto model = load_model(entry.path(), "", type, 0, 128);
      require_all_watched(model->model(), model->model().weight_bytes(), model->model().matrix_bytes());
    }
  }
  CHECK(num_models > 50);
  for (const std::string family : {"bert", "nomic-bert"}) {
    INFO(family);
    LoadOptions options;
    options.memory = 256u << 20;
    const auto encoder = Encoder::load(TROUPE_TEST_DATA "/tiny-" + family + ".gguf", options);
    REQUIRE(encoder);
    require_all_watched(**encoder, (*encoder)->weight_bytes(), (*encoder)->matrix_bytes());
  }
}

TEST_CASE("every byte of a small model's weights is found when a bit of it flips") {
  const TemporaryFile file(TinyLlama{}.writer().bytes());
  const auto model = load_model(file.path(), "", kernels::KvType::f16, 0, 32);
  WeightChecks checks;
  checks.add(model->model());
  Collector weights;
  model->model().visit_weights(weights);
  std::vector<std::span<const std::byte>> all;
  for (const engine::PackedMatrix* matrix : weights.matrices) {
    all.push_back(matrix->bytes());  // with its header
    all.push_back(std::as_bytes(std::span(&matrix->view().scale, 1)));
  }
  for (const auto numbers : weights.vectors) all.push_back(std::as_bytes(numbers));
  std::size_t num_bytes = 0, num_found = 0;
  for (const auto bytes : all)
    for (std::size_t at = 0; at < bytes.size(); ++at) {
      const unsigned bit = num_bytes++ % 8;
      flip(bytes, at, bit);
      WeightScan scan(checks);
      while (scan.next() != 0) {
      }
      num_found += scan.damage().has_value() ? 1 : 0;
      flip(bytes, at, bit);
    }
  CHECK(num_bytes > 10'000);
  CHECK(num_found == num_bytes);
  CHECK_FALSE(damage_in(checks));
}

TEST_CASE("the first damage is named, and a scan goes on behind it") {
  const TemporaryFile file(TinyLlama{}.writer().bytes());
  const auto model = load_model(file.path(), "scalar", kernels::KvType::f16, 0, 32);
  WeightChecks checks;
  checks.add(model->model());
  Collector weights;
  model->model().visit_weights(weights);
  flip(weights.vectors[2].empty() ? std::span<const std::byte>() : std::as_bytes(weights.vectors[2]), 0, 0);
  const auto vector = damage_in(checks);
  REQUIRE(vector);
  CHECK(vector->starts_with("vector 3 of "));
  flip(weights.matrices[4]->bytes(), engine::kPackedHeaderBytes, 0);
  flip(std::as_bytes(weights.vectors[2]), 0, 0);
  const auto matrix = damage_in(checks);
  REQUIRE(matrix);
  CHECK(matrix->starts_with("matrix 5 of "));
  CHECK(matrix->find(" x ") != std::string::npos);
}

TEST_CASE("weights that were damaged before they were first watched differ from the checksum of their packing") {
  const TemporaryFile file(TinyLlama{}.writer().bytes());
  const auto model = load_model(file.path(), "", kernels::KvType::f16, 0, 32);
  Collector weights;
  model->model().visit_weights(weights);
  flip(weights.matrices[1]->bytes(), engine::kPackedHeaderBytes + 3, 5);
  WeightChecks checks;
  checks.add(model->model());
  CHECK(damage_in(checks));
}

TEST_CASE("several models are watched together, pieces of a large matrix one by one") {
  const auto tales = load_model(TROUPE_MODELS "/tales-5m-tq2_0.gguf", "");
  const TemporaryFile file(TinyLlama{}.writer().bytes());
  const auto tiny = load_model(file.path(), "");
  WeightChecks checks, first;
  first.add(tales->model());
  checks.add(tales->model());
  checks.add(tiny->model());
  CHECK(checks.bytes() > first.bytes());
  CHECK_FALSE(damage_in(checks));
  Collector weights;
  tiny->model().visit_weights(weights);
  flip(std::as_bytes(weights.vectors.back()), 1, 1);
  CHECK(damage_in(checks));
  CHECK_FALSE(damage_in(first));
}

}  // namespace
}  // namespace troupe::test
