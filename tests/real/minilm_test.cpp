// all-MiniLM-L6-v2: vectors of odd texts as transformers computes them (tools/real/expect_vectors.py), and what they
// find.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
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

struct Description {
  std::string line, text;  // "GNU Bourne Again SHell", and what the package's page says below it
};

// Those of the Debian packages that are installed here, at most `count`, by name.
std::vector<Description> package_descriptions(std::size_t count) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(
      ::popen("dpkg-query -W -f '${Description}\\n\\t' 2>/dev/null", "r"), ::pclose);
  std::string all;
  for (int c = std::fgetc(pipe.get()); c != EOF; c = std::fgetc(pipe.get())) all.push_back(static_cast<char>(c));
  std::vector<Description> found;
  std::istringstream packages(all);
  for (std::string one; found.size() < count && std::getline(packages, one, '\t');) {
    const std::size_t end = one.find('\n');
    if (end != std::string::npos && one.size() > end + 40) found.push_back({one.substr(0, end), one.substr(end + 1)});
  }
  return found;
}

TEST_CASE("real: MiniLM finds a package's description by its one line") {
  const auto path = real_file("all-minilm-l6-v2.gguf");
  if (!path) return;
  const std::vector<Description> packages = package_descriptions(150);
  if (packages.size() < 150) return skip("no 150 installed Debian packages", "dpkg-query");
  const auto encoder = engine::Encoder::load(*path, {});
  if (!encoder) FAIL(encoder.error().message);
  engine::Team team(2);
  engine::Workspace workspace;
  const std::size_t dim = (*encoder)->info().dim;
  const auto vector_of = [&](const std::string& text) {
    std::vector<TokenId> ids = (*encoder)->tokenizer()->encode(text, {});
    if (ids.size() > 256) ids.erase(ids.begin() + 255, ids.end() - 1);
    std::vector<float> vector(dim);
    (*encoder)->encode(team, std::vector<std::span<const TokenId>>{ids}, {engine::Pooling::mean, true}, workspace,
                       vector.data());
    return vector;
  };
  std::vector<std::vector<float>> texts;
  for (const Description& package : packages) texts.push_back(vector_of(package.text));
  std::size_t num_found = 0;
  for (std::size_t i = 0; i < packages.size(); ++i) {
    const std::vector<float> line = vector_of(packages[i].line);
    const auto likeness = [&](const std::vector<float>& text) {
      return std::inner_product(line.begin(), line.end(), text.begin(), 0.0);
    };
    const double own = likeness(texts[i]);
    const auto better =
        std::count_if(texts.begin(), texts.end(), [&](const auto& text) { return likeness(text) > own; });
    num_found += better < 5;
  }
  CHECK(static_cast<double>(num_found) >= 0.91 * static_cast<double>(packages.size()));
}

}  // namespace
}  // namespace troupe::test
