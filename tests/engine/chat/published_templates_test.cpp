// Templates of published models, against what transformers' own set-up of Jinja2 makes of them.
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>

#include <catch2/catch.hpp>

#include "engine/chat/template.h"
#include "tests/engine/chat/rendered.h"
#include "tests/support/shared_data.h"

namespace troupe::engine::chat {
namespace {

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file.is_open());
  return {std::istreambuf_iterator<char>(file), {}};
}

ChatInput input_of(const Json& expected_case) {
  ChatInput input;
  input.messages = *expected_case.find("messages");
  const Json& options = *expected_case.find("options");
  if (const Json* const tools = options.find("tools")) input.tools = *tools;
  input.add_generation_prompt = std::get<bool>(options.find("add_generation_prompt")->value);
  input.bos_token = *expected_case.find("bos_token")->text();
  input.eos_token = *expected_case.find("eos_token")->text();
  input.now = [](std::string_view) { return "26 Jul 2025"; };
  return input;
}

TEST_CASE("published templates render byte for byte as with Jinja2, and refuse what it refuses in the same words") {
  const auto cases = troupe::test::shared_file("thirdparty/templates/expected.jsonl");
  if (!cases) return;
  std::ifstream lines(*cases);
  int num_cases = 0;
  for (std::string line; std::getline(lines, line); ++num_cases) {
    const Json expected = test::json(line);
    const std::string name = *expected.find("template")->text();
    INFO(name << ", " << *expected.find("case")->text());
    const auto path = troupe::test::shared_file("thirdparty/templates/" + name);
    REQUIRE(path);
    const auto parsed = ChatTemplate::parse(read_text(*path), name);
    REQUIRE((parsed ? "" : parsed.error().message) == "");
    const auto prompt = (*parsed)->render(input_of(expected));
    if (const Json* const refusal = expected.find("error")) {
      REQUIRE_FALSE(prompt);
      CHECK_THAT(prompt.error().message, Catch::EndsWith(": " + *refusal->text()));
    } else {
      CHECK((prompt ? prompt->text() : prompt.error().message) == *expected.find("expected")->text());
    }
  }
  CHECK(num_cases >= 84);
}

}  // namespace
}  // namespace troupe::engine::chat
