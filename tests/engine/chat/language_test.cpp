// The language of templates, against Jinja2 (tools/chat/make_language_cases.py).
#include <cctype>
#include <fstream>
#include <string>

#include <catch2/catch.hpp>

#include "engine/chat/template.h"
#include "tests/engine/chat/rendered.h"

namespace troupe::engine::chat {
namespace {

std::string shown(const Json& made) { return made.text() != nullptr ? *made.text() : "(none)"; }

TEST_CASE("small templates render as with Jinja2, and fail where it fails") {
  std::ifstream lines(TROUPE_TEST_DATA "/chat/language.jsonl");
  REQUIRE(lines.is_open());
  std::string line;
  std::getline(lines, line);
  const Json variables = *test::json(line).find("variables");
  int num_cases = 0;
  for (; std::getline(lines, line); ++num_cases) {
    const Json expected = test::json(line);
    const std::string source = shown(*expected.find("template"));
    INFO(source);
    const auto parsed = ChatTemplate::parse(source, "t");
    ChatInput input;
    input.messages = *variables.find("messages");
    for (const auto& variable : *variables.object())
      if (variable.first != "messages") input.variables.push_back(variable);
    input.now = [](std::string_view) { return "26 Jul 2025"; };
    const auto prompt = parsed ? (*parsed)->render(input) : Result<RenderedPrompt>(parsed.error());
    if (const Json* const error = expected.find("error")) {
      INFO("expected error: " << shown(*error));
      CHECK((prompt ? prompt->text() : "refused") == "refused");
    } else {
      CHECK((prompt ? prompt->text() : prompt.error().message) == shown(*expected.find("expected")));
    }
  }
  CHECK(num_cases >= 200);
}

}  // namespace
}  // namespace troupe::engine::chat
