// Which of troupe's templates a model without one was trained with.
#include "engine/chat/builtin_templates.h"

#include <algorithm>
#include <string>
#include <variant>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/engine/metadata_file.h"

namespace troupe::engine::chat {
namespace {

std::string_view likely(const std::string& architecture, const std::string& control_token) {
  troupe::test::MetadataFile file = troupe::test::byte_pair_file({"a b"});
  file["general.architecture"] = architecture;
  std::get<std::vector<std::string>>(file["tokenizer.ggml.tokens"]).push_back(control_token);
  std::get<std::vector<std::int64_t>>(file["tokenizer.ggml.token_type"]).push_back(3);
  const auto vocabulary = make_tokenizer(file);
  if (!vocabulary) FAIL(vocabulary.error().message);
  return likely_template(file, vocabulary->get());
}

TEST_CASE("the names of families are those of templates, in order, and hide none") {
  std::vector<std::string> families;
  for (const auto& [family, name] : template_families()) {
    families.emplace_back(family);
    INFO(family);
    CHECK(find_builtin_template(family) == find_builtin_template(name));
    CHECK(find_builtin_template(name).has_value());
    for (const BuiltinTemplate& each : builtin_templates()) CHECK(each.name != family);
  }
  CHECK(std::is_sorted(families.begin(), families.end()));
  CHECK_FALSE(find_builtin_template("gemma9").has_value());
}

TEST_CASE("a control token of the vocabulary tells a model's template, else its architecture") {
  CHECK(likely("llama", "<start_of_turn>") == "gemma");
  CHECK(likely("llama", "<|start_header_id|>") == "llama3");
  CHECK(likely("llama", "<|im_start|>") == "chatml");
  CHECK(likely("llama", "[INST]") == "mistral");
  CHECK(likely("qwen3", "<|other|>") == "chatml");
  CHECK(likely("gemma3", "<|other|>") == "gemma");
  CHECK(likely("llama", "<|other|>").empty());
  CHECK(likely_template("rwkv7", nullptr) == "rwkv");
  CHECK(likely_template("llama", nullptr).empty());
}

}  // namespace
}  // namespace troupe::engine::chat
