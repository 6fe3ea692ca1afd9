// Which markers a model writes around its reasoning.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "engine/tokenizers/reasoning_limit.h"
#include "engine/tokenizers/reasoning_markers.h"
#include "tests/engine/metadata_file.h"

namespace troupe::engine {
namespace {

struct Pair {
  std::string open, close;
  std::vector<std::string> tokens;  // of a vocabulary that has them
};
const std::vector<Pair> kPairs = {
    {"<think>", "</think>", {"<think>", "</think>"}},
    {"[THINK]", "[/THINK]", {"[THINK]", "[/THINK]"}},
    {"<seed:think>", "</seed:think>", {"<seed:think>", "</seed:think>"}},
    {"<|START_THINKING|>", "<|END_THINKING|>", {"<|START_THINKING|>", "<|END_THINKING|>"}},
    {"<|inner_prefix|>", "<|inner_suffix|>", {"<|inner_prefix|>", "<|inner_suffix|>"}},
    {"<|channel|>analysis<|message|>", "<|end|><|start|>assistant", {"<|channel|>", "<|message|>", "<|start|>"}},
    {"\u25C1think\u25B7", "\u25C1/think\u25B7", {"\u25C1think\u25B7", "\u25C1/think\u25B7"}},
    {"<thought>", "</thought>", {"<thought>", "</thought>"}},
    {"<reasoning>", "</reasoning>", {"<reasoning>", "</reasoning>"}},
    {"<thinking>", "</thinking>", {"<thinking>", "</thinking>"}},
};

std::shared_ptr<const Tokenizer> vocabulary_with(const std::vector<std::string>& tokens, std::int64_t type,
                                                 bool ends_at_end = false) {
  test::MetadataFile file = test::byte_pair_file({});
  auto& texts = std::get<std::vector<std::string>>(file["tokenizer.ggml.tokens"]);
  const auto add = [&](const std::string& text, std::int64_t kind) {
    texts.push_back(text);
    std::get<std::vector<std::int64_t>>(file["tokenizer.ggml.token_type"]).push_back(kind);
  };
  for (const std::string& each : tokens) add(each, type);
  // Beside these <|end|>, which byte_pair_file() has, ends a message and not an answer.
  for (const char* const each : {"<|return|>", "<|call|>"}) add(each, 3);
  const auto end = std::find(texts.begin(), texts.end(), "<|end|>") - texts.begin();
  file["tokenizer.ggml.eos_token_id"] = ends_at_end ? std::int64_t{end} : std::int64_t{0};
  const auto tokenizer = make_tokenizer(file);
  REQUIRE((tokenizer ? "" : tokenizer.error().message) == "");
  return *tokenizer;
}

// The text of an answer of these ids, one after another, as a server streams it.
std::string streamed(const std::shared_ptr<const Tokenizer>& tokenizer, const std::vector<TokenId>& ids,
                     const ReasoningMarkers& markers) {
  Detokenizer detokenizer(tokenizer, markers.control_ids);
  std::string text;
  for (const TokenId id : ids) text += detokenizer.push(id);
  return text + detokenizer.flush();
}

TEST_CASE("the markers are those that the template writes, or looks for") {
  const auto bytes = vocabulary_with({}, 3);
  for (const Pair& each : kPairs) {
    INFO(each.open);
    for (const std::string& source : {"{{ '" + each.open + "' }}", "{{ m.split('" + each.close + "') }}"}) {
      const ReasoningMarkers found = find_reasoning_markers(source, bytes.get());
      CHECK(found.open == each.open);
      CHECK(found.close == each.close);
      CHECK(find_reasoning_markers(source, nullptr).open == each.open);
    }
  }
  CHECK(find_reasoning_markers("{{ messages }}", bytes.get()) == ReasoningMarkers{});
  CHECK(find_reasoning_markers("", nullptr) == ReasoningMarkers{});
}

TEST_CASE("a template that says nothing leaves the markers to the vocabulary") {
  for (const Pair& each : kPairs) {
    INFO(each.open);
    const auto tokenizer = vocabulary_with(each.tokens, 3);
    CHECK(find_reasoning_markers("{{ messages }}", tokenizer.get()).open == each.open);
    CHECK(find_reasoning_markers("[/THINK]", tokenizer.get()).open == "[THINK]");
  }
}

TEST_CASE("markers that are control tokens are part of an answer's text, and a budget ends with them") {
  for (const Pair& each : kPairs) {
    INFO(each.open);
    // Control tokens, user-defined ones, and none: then a marker is many tokens, one for each byte.
    for (const std::int64_t type : {3, 4, 0}) {
      const auto tokenizer = vocabulary_with(type == 0 ? std::vector<std::string>() : each.tokens, type);
      const ReasoningMarkers markers = find_reasoning_markers(each.open, tokenizer.get());
      const auto ids_of = [&](const std::string& text) {
        return tokenizer->encode(text, {.add_special = false, .parse_special = true});
      };
      const std::string written = each.open + "abc" + each.close + "so";
      CHECK(streamed(tokenizer, ids_of(written), markers) == written);

      for (const bool begins_open : {false, true}) {
        const ReasoningLimit limit(tokenizer, {.num_tokens = 2, .markers = markers},
                                   ids_of(begins_open ? "Hi" + each.open : "Hi"));
        std::vector<TokenId> answer;
        for (const TokenId id : ids_of((begins_open ? "" : each.open) + "abcd")) {
          while (const auto forced = limit.next(answer)) answer.push_back(*forced);
          answer.push_back(id);
        }
        CHECK(streamed(tokenizer, answer, markers) == (begins_open ? "" : each.open) + "ab" + each.close + "cd");
      }
    }
  }
}

TEST_CASE("other control tokens have no text, and a pair whose end ends answers is none") {
  const std::vector<std::string> tokens = {"<|channel|>", "<|message|>", "<|start|>"};
  const auto tokenizer = vocabulary_with(tokens, 3);
  const ReasoningMarkers markers = find_reasoning_markers("", tokenizer.get());
  CHECK(markers.control_ids.size() == 4);  // <|end|> among them, <|return|> not
  CHECK(streamed(tokenizer, tokenizer->encode("a<|return|>b", {.add_special = false, .parse_special = true}),
                 markers) == "ab");
  const auto ending = vocabulary_with(tokens, 3, /*ends_at_end=*/true);
  CHECK(find_reasoning_markers("<|channel|>analysis<|message|>", ending.get()) == ReasoningMarkers{});
}

}  // namespace
}  // namespace troupe::engine
