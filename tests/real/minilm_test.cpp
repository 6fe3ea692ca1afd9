// all-MiniLM-L6-v2: vectors of odd texts as transformers computes them (tools/real/expect_vectors.py).
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/model/encoder.h"
#include "tests/real/real_file.h"
#include "tests/support/variants.h"

namespace troupe::test {
namespace {

TEST_CASE("real: MiniLM's vectors of odd texts are those of the original") {
  const auto path = real_file("all-minilm-l6-v2.gguf");
  if (!path) return;
  const auto expected = nlohmann::json::parse(std::ifstream(TROUPE_TEST_DATA "/minilm_vectors.json"));
  for (const kernels::KernelTable* table : variants_here()) {
    engine::LoadOptions options;
    options.kernels = table->name;
    options.kv_type = kernels::KvType::f32;  // with f16 up to 5.3e-5
    const auto encoder = engine::Encoder::load(*path, options);
    if (!encoder) FAIL(encoder.error().message);
    engine::Team team(2);
    for (const auto& row : expected.at("texts")) {
      const auto text = row.at("text").get<std::string>();
      INFO(table->name << ": " << text.substr(0, 100));
      const std::vector<TokenId> ids = (*encoder)->tokenizer()->encode(text, {});
      CHECK(ids == row.at("ids").get<std::vector<TokenId>>());
      std::vector<float> vector((*encoder)->info().dim);
      engine::Workspace workspace;
      (*encoder)->encode(team, std::vector<std::span<const TokenId>>{ids}, {engine::Pooling::mean, true}, workspace,
                         vector.data());
      const auto numbers = row.at("vector").get<std::vector<float>>();
      REQUIRE(numbers.size() == vector.size());
      float largest = 0;
      for (std::size_t i = 0; i < vector.size(); ++i) largest = std::max(largest, std::abs(vector[i] - numbers[i]));
      CHECK(largest < 5e-5f);
    }
  }
}

}  // namespace
}  // namespace troupe::test
