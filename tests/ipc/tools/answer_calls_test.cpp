// Answers whose reasoning stays in their text, and the calls behind it: the same in whatever pieces they come.
#include "ipc/tools/answer_calls.h"

#include <catch2/catch.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace troupe::ipc {
namespace {

struct Read {
  std::string text;  // with a mark where each call was
  std::vector<CallText> calls;
};

// Pieces of at most so many bytes.
Read read_in_pieces(const std::string& answer, bool begins_open, std::uint32_t most, std::mt19937& random,
                    bool was_cut = false) {
  const auto* const format = engine::chat::find_tool_format("hermes");
  REQUIRE(format != nullptr);
  AnswerReader reader(CallReader(*format, nullptr, 7, 1), engine::ContentFinder({}, begins_open));
  Read all;
  const auto add = [&](std::vector<AnswerPiece> pieces) {
    for (AnswerPiece& piece : pieces) {
      all.text += piece.content;
      if (!piece.call) continue;
      CHECK(piece.content.empty());
      CallText& call = *piece.call;
      if (call.begins) {
        CHECK(call.index == all.calls.size());
        all.text += "#";
        all.calls.push_back(std::move(call));
        continue;
      }
      REQUIRE(call.index + 1 == all.calls.size());
      CHECK(call.id.empty());
      CHECK(call.name.empty());
      CHECK_FALSE(all.calls.back().ends);
      all.calls.back().arguments += call.arguments;
      all.calls.back().ends |= call.ends;
    }
  };
  for (std::size_t at = 0; at < answer.size();) {
    const std::size_t size = 1 + random() % most;
    add(reader.push(std::string_view(answer).substr(at, size)));
    at += size;
  }
  add(reader.finish(was_cut));
  return all;
}

const std::string kFirst = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"<think>\"}}\n</tool_call>";
const std::string kSecond = "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>";

TEST_CASE("an answer with calls is read alike in any pieces, and its reasoning stays in its text") {
  std::mt19937 random(3);
  const struct {
    std::string answer;
    bool begins_open;
    std::string text;
    std::vector<std::string> names, arguments;
  } cases[] = {
      {"Let me see.\n" + kFirst + "\n" + kSecond, false, "Let me see.##", {"f", "g"}, {R"({"a": "<think>"})", "{}"}},
      {"<think>\n" + kSecond + "?\n</think>\n\nYes. " + kFirst + " Done.",
       false,
       "<think>\n" + kSecond + "?\n</think>\n\nYes.#Done.",
       {"f"},
       {R"({"a": "<think>"})"}},
      {"I call " + kSecond + "</think>" + kSecond, true, "I call " + kSecond + "</think>#", {"g"}, {"{}"}},
      {"I call " + kSecond, true, "I call " + kSecond, {}, {}},
      {"<thin", false, "<thin", {}, {}},
      {"<think>a</think>", false, "<think>a</think>", {}, {}},
      {"<think>a</think> \n", false, "<think>a</think> \n", {}, {}},
      {"A text < b <tool", false, "A text < b <tool", {}, {}},
  };
  for (const auto& each : cases)
    for (const std::uint32_t most : {1u, 2u, 7u, 400u}) {
      INFO(each.answer << " in pieces of " << most);
      const Read read = read_in_pieces(each.answer, each.begins_open, most, random);
      CHECK(read.text == each.text);
      REQUIRE(read.calls.size() == each.names.size());
      for (std::size_t i = 0; i < read.calls.size(); ++i) {
        CHECK(read.calls[i].name == each.names[i]);
        CHECK(read.calls[i].arguments == each.arguments[i]);
        CHECK(read.calls[i].ends);
        CHECK(read.calls[i].id == call_id(7, 1, i));
      }
    }
}

TEST_CASE("a call of an answer that was cut has no end, and one of an answer that ended has") {
  std::mt19937 random(5);
  const std::string open = kSecond + kFirst.substr(0, kFirst.size() - 20);
  for (const bool was_cut : {true, false}) {
    const Read read = read_in_pieces(open, false, 5, random, was_cut);
    REQUIRE(read.calls.size() == 2);
    CHECK(read.calls[0].ends);
    CHECK(read.calls[1].ends == !was_cut);
    CHECK(read.calls[1].arguments == "{\"a\": \"<th");
    const Read whole = read_in_pieces(kSecond, false, 5, random, was_cut);
    REQUIRE(whole.calls.size() == 1);
    CHECK(whole.calls[0].ends);
  }
}

TEST_CASE("ids of calls are nine letters and digits, the same for the same seed and place") {
  CHECK(call_id(5, 0, 0) == call_id(5, 0, 0));
  CHECK(call_id(5, 0, 0) != call_id(5, 0, 1));
  CHECK(call_id(5, 0, 0) != call_id(5, 1, 0));
  CHECK(call_id(5, 0, 0) != call_id(6, 0, 0));
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const std::string id = call_id(seed, 0, 0);
    CHECK(id.size() == 9);
    CHECK(id.find_first_not_of("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") == std::string::npos);
  }
}

}  // namespace
}  // namespace troupe::ipc
