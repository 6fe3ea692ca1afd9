// Real model files with damaged metadata: each is an error with a message, or a model that runs a step.
//
//   TROUPE_MUTATIONS=10000 build/asan/tests/fuzz/model_mutation_test
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/engine/model_harness.h"
#include "tests/fuzz/gguf_mutator.h"
#include "tests/fuzz/gguf_run.h"
#include "tests/fuzz/mutation_count.h"
#include "tests/support/shared_data.h"

namespace troupe::fuzz {
namespace {

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file.is_open());
  return {std::istreambuf_iterator<char>(file), {}};
}

// The embedded models and the corpus; from the reference data, where there are some, one file of each family and
// format, vocabularies, and a real small llama.
std::vector<std::string> model_paths() {
  std::vector<std::string> paths = {TROUPE_MODELS "/tales-5m-tq2_0.gguf", TROUPE_MODELS "/tales-draft-q8_0.gguf"};
  for (const auto& entry : std::filesystem::directory_iterator(TROUPE_FUZZ_CORPUS "/gguf")) {
    paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  for (const char* name :
       {"golden/llama-F16.gguf", "golden/llama-Q4_1.gguf", "golden/llama-IQ4_NL.gguf", "golden/llama-Q5_0.gguf",
        "golden/llama-Q5_1.gguf", "golden/llama-IQ4_XS.gguf", "golden/llama-MXFP4.gguf", "golden/llama-Q2_K.gguf",
        "golden/llama-Q3_K.gguf", "golden/llama-Q4_K.gguf", "golden/llama-Q6_K.gguf", "golden/llama-TQ1_0.gguf",
        "golden/llama3-rope-F32.gguf", "golden/bitnet-scale-TQ2_0.gguf", "golden/qwen3-F32.gguf",
        "golden/mamba-F32.gguf", "thirdparty/stories260k/stories260K.gguf", "thirdparty/vocab/ggml-vocab-gpt-2.gguf",
        "thirdparty/vocab/ggml-vocab-llama-spm.gguf"}) {
    if (const auto path = test::shared_file(name)) paths.push_back(*path);
  }
  return paths;
}

TEST_CASE("mutated model files are errors or models that run") {
  GgufRun run;
  std::vector<GgufMutator> models;
  for (const std::string& path : model_paths()) models.emplace_back(read_file(path));
  for (const GgufMutator& model : models) CHECK(model.header_bytes() > 24);
  const int count = num_mutations(test::kSanitized ? 300 : 1000);
  int num_loaded = 0;
  for (int i = 0; i < count; ++i) {
    std::mt19937_64 random(static_cast<std::uint64_t>(i));  // so that one of them can be looked at alone
    const GgufMutator& model = models[static_cast<std::size_t>(i) % models.size()];
    const std::string mutated = model.mutate(random);
    // Where an assertion or a sanitizer ends the process, the last line says which mutation it was.
    if (count > 1000 && i % 1000 == 0) std::fprintf(stderr, "mutation %d of %d\n", i, count);
    num_loaded += run.run(mutated) ? 1 : 0;
  }
  std::fprintf(stderr, "%d mutated model files: %d errors, %d models that run\n", count, count - num_loaded,
               num_loaded);
  CHECK(num_loaded > 0);
  CHECK(num_loaded < count / 2);
}

TEST_CASE("a model file cut at every border of its header is an error") {
  GgufRun run;
  const std::string bytes = read_file(TROUPE_FUZZ_CORPUS "/gguf/llama-sentencepiece");
  REQUIRE(run.run(bytes));
  for (std::size_t length = 0; length < GgufMutator(bytes).header_bytes(); ++length) {
    if (run.run(std::string_view(bytes).substr(0, length))) FAIL("cut at " << length);
  }
}

}  // namespace
}  // namespace troupe::fuzz
