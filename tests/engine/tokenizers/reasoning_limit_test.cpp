// The budget of a model's reasoning.
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "engine/tokenizers/reasoning_limit.h"
#include "tests/engine/metadata_file.h"

namespace troupe::engine {
namespace {

std::vector<TokenId> ids_of(const Tokenizer& tokenizer, std::string_view text) {
  return tokenizer.encode(text, {.add_special = false, .parse_special = true});
}

// What comes of a model that would write `written`, one token for each byte, under the budget.
std::string limited(const Tokenizer& tokenizer, std::uint32_t budget, const std::string& prompt,
                    const std::string& written, const ReasoningMarkers& markers = {}) {
  const ReasoningLimit limit(std::shared_ptr<const Tokenizer>(&tokenizer, [](const auto*) {}),
                             {.num_tokens = budget, .markers = markers}, ids_of(tokenizer, prompt));
  std::vector<TokenId> answer;
  for (const TokenId id : ids_of(tokenizer, written)) {
    while (const auto forced = limit.next(answer)) answer.push_back(*forced);
    answer.push_back(id);
  }
  std::string text;
  for (const TokenId id : answer) text += tokenizer.raw_piece(id);
  return text;
}

TEST_CASE("reasoning ends by the marker once its tokens are used up") {
  // A token is a byte: the marker is many of them.
  const auto tokenizer = make_tokenizer(test::byte_pair_file({}));
  REQUIRE(tokenizer);
  const auto with = [&](std::uint32_t budget, const std::string& written, const std::string& prompt = "") {
    return limited(**tokenizer, budget, prompt, written);
  };
  CHECK(with(3, "<think>abcdef") == "<think>abc</think>def");
  CHECK(with(3, " \n<think>abcdef") == " \n<think>abc</think>def");
  CHECK(with(0, "<think>abc") == "<think></think>abc");
  CHECK(with(3, "abcdef", "Hi<think>") == "abc</think>def");
  CHECK(with(3, "abcdef", "Hi<think>\n") == "abc</think>def");
  CHECK(with(0, "abc", "<think>") == "</think>abc");
  // It ended by itself, or was none.
  CHECK(with(20, "<think>abc</think>def, and so it goes on for long") ==
        "<think>abc</think>def, and so it goes on for long");
  CHECK(with(11, "<think>abc</think>defghijklmnop") == "<think>abc</think>defghijklmnop");
  CHECK(with(3, "abcdef") == "abcdef");
  CHECK(with(3, "abcdef", "<think>x") == "abcdef");
  CHECK(with(3, "<thin air> is thin") == "<thin air> is thin");
  CHECK(with(3, "abc <think>defghi") == "abc <think>defghi");
  // In the middle of its own end.
  CHECK(with(5, "<think>abc</think>de") == "<think>abc</</think>think>de");
}

TEST_CASE("the marker is one token where the vocabulary has one") {
  test::MetadataFile file = test::byte_pair_file({});
  for (const char* each : {"<think>", "</think>"}) {
    std::get<std::vector<std::string>>(file["tokenizer.ggml.tokens"]).push_back(each);
    std::get<std::vector<std::int64_t>>(file["tokenizer.ggml.token_type"]).push_back(3);
  }
  const auto tokenizer = make_tokenizer(file);
  REQUIRE(tokenizer);
  CHECK(ids_of(**tokenizer, "<think>").size() == 1);
  CHECK(limited(**tokenizer, 2, "", "<think>abcd") == "<think>ab</think>cd");
  CHECK(limited(**tokenizer, 4, "<think>", "ab</think>cdef") == "ab</think>cdef");
}

TEST_CASE("a SentencePiece vocabulary puts no space before the marker") {
  const auto tokenizer = make_tokenizer(test::sentencepiece_file({"\xE2\x96\x81"}));
  REQUIRE(tokenizer);
  const ReasoningLimit limit(*tokenizer, {.num_tokens = 0}, ids_of(**tokenizer, "<think>"));
  const auto first = limit.next({});
  REQUIRE(first);
  CHECK((*tokenizer)->raw_piece(*first) == "<");
}

}  // namespace
}  // namespace troupe::engine
