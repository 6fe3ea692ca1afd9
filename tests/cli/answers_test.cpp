#include "cli/client/answers.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <sstream>

using namespace troupe;
using namespace troupe::cli;
using client::Ended;
using client::Outcome;

namespace {

client::Tokens tokens(std::uint32_t choice, const std::string& text, TokenId id = 1) {
  client::Tokens run;
  run.choice = choice;
  run.ids = {id};
  run.text = text;
  return run;
}

Ended ended(std::uint32_t choice, Outcome outcome = Outcome::eos) {
  Ended end;
  end.choice = choice;
  end.outcome = outcome;
  return end;
}

}  // namespace

TEST_CASE("calls of tools are lines of JSON behind the text, whatever the server sends as their arguments") {
  std::ostringstream out;
  Answers answers({.count = 1}, out);
  client::Tokens run = tokens(0, "I look.");
  run.calls = {{.index = 0, .id = "a", .name = "f", .arguments = "{\"x\":"},
               {.index = 0, .arguments = "1}", .ends = true}};
  answers.take(run);
  run = tokens(0, "");
  run.calls = {{.index = 1, .id = "b", .name = "g", .arguments = "\x1b[2J", .ends = true},
               {.index = 2, .id = "c", .name = "h", .arguments = std::string(100'000, '[')}};
  answers.take(run);
  CHECK(answers.end(ended(0)));
  CHECK(out.str() ==
        "I look.\n{\"id\":\"a\",\"name\":\"f\",\"arguments\":{\"x\":1}}\n"
        "{\"id\":\"b\",\"name\":\"g\",\"arguments\":\"\\u001b[2J\"}\n"
        "{\"id\":\"c\",\"name\":\"h\",\"arguments\":\"" +
            std::string(100'000, '[') + "\",\"incomplete\":true}\n");
  const std::string deep = std::string(70'000, '[') + std::string(70'000, ']');
  CHECK(call_json({.id = "d", .name = "i", .arguments = deep})["arguments"] == deep);
  CHECK(answers.json()["tool_calls"][0]["arguments"]["x"] == 1);
}

TEST_CASE("one answer is shown as it comes, without a heading, and its last line is ended") {
  std::ostringstream out;
  Answers answers({.count = 1}, out);
  answers.take(tokens(0, "Once"));
  CHECK(out.str() == "Once");
  answers.take(tokens(0, " upon"));
  CHECK(answers.end(ended(0)));
  CHECK(out.str() == "Once upon\n");
  CHECK(answers.label(0).empty());
  CHECK(answers.json()["text"] == "Once upon");
}

TEST_CASE("interleaved answers are shown one after another, the first open one as it comes") {
  std::ostringstream out;
  Answers answers({.count = 3}, out);
  answers.take(tokens(1, "b1"));
  CHECK(out.str().empty());
  answers.take(tokens(0, "a1"));
  CHECK(out.str() == "--- answer 1 of 3 ---\na1");
  answers.take(tokens(2, "c1\n"));
  CHECK_FALSE(answers.end(ended(2)));
  answers.take(tokens(0, " a2"));
  CHECK_FALSE(answers.end(ended(0)));
  CHECK(out.str() == "--- answer 1 of 3 ---\na1 a2\n\n--- answer 2 of 3 ---\nb1");
  answers.take(tokens(1, " b2"));
  CHECK(answers.end(ended(1)));
  CHECK(out.str() == "--- answer 1 of 3 ---\na1 a2\n\n--- answer 2 of 3 ---\nb1 b2\n\n--- answer 3 of 3 ---\nc1\n");
  CHECK(answers.label(1) == "answer 2 of 3: ");
}

TEST_CASE("an answer without text has its heading, and a refused request shows nothing") {
  std::ostringstream out;
  Answers empty({.count = 2}, out);
  CHECK_FALSE(empty.end(ended(0)));
  CHECK(empty.end(ended(1)));
  CHECK(out.str() == "--- answer 1 of 2 ---\n\n--- answer 2 of 2 ---\n");
  std::ostringstream nothing;
  Answers refused({.count = 2}, nothing);
  CHECK(refused.end(ended(0, Outcome::queue_full)));
  CHECK(nothing.str().empty());
  CHECK(refused.json()["outcome"] == "queue_full");
}

TEST_CASE("as JSON several answers are a list in the order of their choices, and nothing is shown before") {
  std::ostringstream out;
  Answers answers({.count = 2, .as_text = false}, out);
  answers.take(tokens(1, "b", 8));
  answers.take(tokens(0, "a", 7));
  CHECK_FALSE(answers.end(ended(1, Outcome::length)));
  CHECK(answers.end(ended(0)));
  CHECK(out.str().empty());
  const auto choices = answers.json()["choices"];
  REQUIRE(choices.size() == 2);
  CHECK(choices[0]["ids"] == std::vector<TokenId>{7});
  CHECK(choices[0]["outcome"] == "eos");
  CHECK(choices[1]["text"] == "b");
  CHECK(choices[1]["outcome"] == "length");
}

TEST_CASE("control characters of an answer are escaped on a terminal") {
  std::ostringstream out;
  Answers answers({.count = 2, .shows_controls = true}, out);
  answers.take(tokens(0, "a\x1b"));
  answers.take(tokens(0, "\xe2\x82"));  // the beginning of a character
  answers.take(tokens(1, "\x1b[2J"));
  answers.end(ended(0));
  answers.end(ended(1));
  CHECK(out.str() == "--- answer 1 of 2 ---\na\\x1b\\xe2\\x82\n\n--- answer 2 of 2 ---\n\\x1b[2J\n");
}
