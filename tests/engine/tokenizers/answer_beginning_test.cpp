// Texts that an answer has to begin with.
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "engine/tokenizers/answer_beginning.h"
#include "tests/engine/metadata_file.h"

namespace troupe::engine {
namespace {

// What comes of a model that would write `written`, one token for each byte, and has to begin with "[f]".
std::string begun(const Tokenizer& tokenizer, const std::string& prompt, const std::string& written) {
  const auto ids_of = [&](std::string_view text) {
    return tokenizer.encode(text, {.add_special = false, .parse_special = true});
  };
  const AnswerBeginning beginning(tokenizer, {.text = "[f]", .markers = {}}, ids_of(prompt));
  std::vector<TokenId> answer;
  for (const TokenId id : ids_of(written)) {
    while (const auto forced = beginning.next(answer)) answer.push_back(*forced);
    answer.push_back(id);
  }
  std::string text;
  for (const TokenId id : answer) text += tokenizer.raw_piece(id);
  return text;
}

TEST_CASE("an answer begins with the text that its request demands, behind the reasoning in which it begins") {
  const auto tokenizer = make_tokenizer(test::byte_pair_file({}));
  REQUIRE(tokenizer);
  CHECK(begun(**tokenizer, "Hi", "abc") == "[f]abc");
  CHECK(begun(**tokenizer, "Hi<think>\n", "abc") == "abc");
  CHECK(begun(**tokenizer, "Hi<think>\n", "abc</think>de") == "abc</think>\n\n[f]de");
  CHECK(begun(**tokenizer, "Hi<think></think>", "abc") == "[f]abc");
}

}  // namespace
}  // namespace troupe::engine
