#include "actors/serving/answer.h"

#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <catch2/catch.hpp>

#include "engine/formats/model_file.h"

namespace troupe::actors {
namespace {

std::shared_ptr<const engine::Tokenizer> vocabulary() {
  const auto file = engine::open_gguf(std::string(TROUPE_MODELS) + "/tales-5m-tq2_0.gguf");
  REQUIRE(file);
  auto tokenizer = engine::make_tokenizer(**file);
  REQUIRE(tokenizer);
  return *tokenizer;
}

std::vector<TokenId> ids_of(const engine::Tokenizer& tokenizer, const std::string& text) {
  return tokenizer.encode(text, {.add_special = false, .parse_special = false});
}

TEST_CASE("answer: the text of all ids, in whole characters") {
  const auto tokenizer = vocabulary();
  AnswerText answer(tokenizer, {});
  std::string text;
  for (const TokenId id :
       ids_of(*tokenizer, "A d\xC3\xB6g \xF0\x9F\x90\xB6.")) {  // the last character is four byte tokens
    const auto piece = answer.push(id);
    CHECK((piece.text.empty() || (static_cast<unsigned char>(piece.text[0]) & 0xC0) != 0x80));
    text += piece.text;
  }
  text += answer.finish().text;
  CHECK(text == " A d\xC3\xB6g \xF0\x9F\x90\xB6.");
  CHECK(answer.text_bytes() == text.size());
}

TEST_CASE("answer: a character that never became whole is replaced, and may complete a stop string") {
  const auto tokenizer = vocabulary();
  const auto ids = ids_of(*tokenizer, "\xF0\x9F\x90\xB6");
  const auto give_all_but_one = [&](AnswerText& answer) {
    std::string text;
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) text += answer.push(ids[i]).text;
    return text;
  };
  AnswerText plain(tokenizer, {});
  std::string text = give_all_but_one(plain);
  text += plain.finish().text;
  CHECK(text.find("\xEF\xBF\xBD") != std::string::npos);

  AnswerText stopped(tokenizer, {"\xEF\xBF\xBD"});
  give_all_but_one(stopped);
  CHECK(stopped.finish().stop == std::optional<std::string>("\xEF\xBF\xBD"));
}

TEST_CASE("answer: a stop string counts once more than min_tokens ids were pushed, also one that begins before") {
  const auto tokenizer = vocabulary();
  const auto ids = ids_of(*tokenizer, "one two one two one");
  const auto words = [&](std::uint32_t min_tokens) {
    AnswerText answer(tokenizer, {"one two"}, {}, std::nullopt, min_tokens);
    std::string text;
    for (const TokenId id : ids) {
      const auto piece = answer.push(id);
      text += piece.text;
      if (piece.stop) return text;
    }
    return text + answer.finish().text;
  };
  const std::string first = words(0);
  CHECK(first == " ");
  const auto end_of_first = static_cast<std::uint32_t>(ids_of(*tokenizer, "one two").size());
  CHECK(words(end_of_first - 1) == first);
  CHECK(words(end_of_first) == " one two ");  // the second one, whose beginning may be within the first tokens
  CHECK(words(static_cast<std::uint32_t>(ids.size())) == " one two one two one");
}

TEST_CASE("answer: the same ids again give the same state") {
  const auto tokenizer = vocabulary();
  const auto ids = ids_of(*tokenizer, "The end is near. The end.");
  for (std::size_t cut = 0; cut < ids.size(); ++cut) {
    AnswerText first(tokenizer, {"end."});
    std::string sent;
    for (std::size_t i = 0; i < cut; ++i) sent += first.push(ids[i]).text;
    AnswerText second(tokenizer, {"end."});
    for (std::size_t i = 0; i < cut; ++i) (void)second.push(ids[i]);
    CHECK(second.text_bytes() == sent.size());
    for (std::size_t i = cut; i < ids.size(); ++i) {
      const auto a = first.push(ids[i]);
      const auto b = second.push(ids[i]);
      CHECK(a.text == b.text);
      CHECK(a.stop == b.stop);
      if (a.stop) break;
    }
  }
}

struct Ended {
  std::string text, stop;
  bool operator==(const Ended&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Ended& ended) {
  return out << "'" << ended.text << "', stopped by '" << ended.stop << "'";
}

Ended ended_behind_reasoning(const std::string& written, std::vector<std::string> stops, bool begins_open,
                             engine::ReasoningMarkers markers = {}) {
  const auto tokenizer = vocabulary();
  AnswerText answer(tokenizer, std::move(stops), {}, AnswerText::Behind{std::move(markers), begins_open});
  Ended out;
  for (const TokenId id : ids_of(*tokenizer, written)) {
    const auto piece = answer.push(id);
    out.text += piece.text;
    if (piece.stop) return {out.text, *piece.stop};
  }
  const auto rest = answer.finish();
  out.text += rest.text;
  CHECK(answer.text_bytes() == out.text.size());
  return {out.text, rest.stop.value_or("")};
}

TEST_CASE("answer: stop strings are looked for behind the reasoning, in what a client sees of it") {
  const auto ended = [](const std::string& written, std::vector<std::string> stops, bool begins_open,
                        engine::ReasoningMarkers markers = {}) {
    return ended_behind_reasoning(written, std::move(stops), begins_open, std::move(markers));
  };
  CHECK(ended("<think>a stop b</think>\n\nc stop d", {"stop"}, false) ==
        Ended{" <think>a stop b</think>\n\nc ", "stop"});
  CHECK(ended("a stop b</think>c stop d", {"stop"}, true) == Ended{" a stop b</think>c ", "stop"});
  CHECK(ended("a stop b", {"stop"}, true) == Ended{" a stop b", ""});
  CHECK(ended("a stop b", {"stop"}, false) == Ended{" a ", "stop"});
  // Neither the markers nor the white space beside them.
  CHECK(ended("<think>a</think>\n\nb", {"</think>", "<think>", "\n\n", "nk>"}, false) ==
        Ended{" <think>a</think>\n\nb", ""});
  CHECK(ended("<think>a</think>b\n\nc", {"\n\n"}, false) == Ended{" <think>a</think>b", "\n\n"});
  // What looked like a marker was none.
  CHECK(ended("<thin stop", {"thin"}, false) == Ended{" <", "thin"});
  CHECK(ended("<thin", {"<thin"}, false).stop == "<thin");
  const engine::ReasoningMarkers channels{"<|a|>", "<|e|>", "<|final|>"};
  CHECK(ended("<|a|>x<|e|><|final|>y final z", {"final"}, false, channels) ==
        Ended{" <|a|>x<|e|><|final|>y ", "final"});
  CHECK(ended("<|final|>y final z", {"final"}, false, channels) == Ended{" <|final|>y ", "final"});
}

TEST_CASE("answer: it ends behind the last call that it may have, and counts calls and their tokens") {
  const auto tokenizer = vocabulary();
  const auto tools = std::make_shared<const engine::chat::ToolSet>();
  const auto* const format = engine::chat::find_tool_format("hermes");
  const std::string call = "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": [1]}}</tool_call>";
  const auto read = [&](const std::string& text, std::size_t most) {
    auto answer = std::make_unique<AnswerText>(tokenizer, std::vector<std::string>{}, std::vector<TokenId>{},
                                               AnswerText::Behind{{"<think>", "</think>"}, false}, 0,
                                               AnswerText::Calls{format, tools, most});
    std::string said;
    bool has_ended = false;
    for (const TokenId id : ids_of(*tokenizer, text)) {
      const auto piece = answer->push(id);
      said += piece.text;
      has_ended = piece.has_all_calls;
      if (has_ended) break;
    }
    if (!has_ended) said += answer->finish().text;
    return std::tuple(std::move(answer), said, has_ended);
  };
  const auto [single, single_text, single_ended] = read("So." + call + call, 1);
  CHECK(single_ended);
  CHECK(single->num_calls() == 1);
  CHECK(single_text.find("[1]}}") != std::string::npos);
  CHECK(single_text.find("</tool_call><tool_call>") == std::string::npos);

  const auto [several, several_text, several_ended] = read("So." + call + call, 8);
  CHECK_FALSE(several_ended);
  CHECK(several->num_calls() == 2);
  CHECK(several_text == " So." + call + call);
  const auto num_tokens = static_cast<std::uint32_t>(ids_of(*tokenizer, "So." + call + call).size());
  CHECK(several->num_call_tokens() > num_tokens / 3);
  CHECK(several->num_call_tokens() < num_tokens);

  const auto [thought, thought_text, thought_ended] = read("<think>" + call + "</think>No.", 1);
  CHECK_FALSE(thought_ended);
  CHECK(thought->num_calls() == 0);
}

TEST_CASE("answer: without a vocabulary there is no text") {
  AnswerText answer(nullptr, {});
  CHECK(answer.push(5).text.empty());
  CHECK(answer.finish().text.empty());
}

}  // namespace
}  // namespace troupe::actors
