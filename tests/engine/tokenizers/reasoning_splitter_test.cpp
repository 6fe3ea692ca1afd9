#include "engine/tokenizers/reasoning_splitter.h"

#include <random>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace troupe::engine {
namespace {

struct Split {
  std::string reasoning, content;
  friend bool operator==(const Split&, const Split&) = default;
};
std::ostream& operator<<(std::ostream& out, const Split& split) {
  return out << "reasoning '" << split.reasoning << "', content '" << split.content << "'";
}

Split split_of(const std::vector<std::string>& pieces, bool begins_open = false, ReasoningMarkers markers = {}) {
  ReasoningSplitter splitter(std::move(markers), begins_open);
  Split out;
  const auto add = [&](const ReasoningSplitter::Parts& parts) {
    out.reasoning += parts.reasoning;
    out.content += parts.content;
  };
  for (const std::string& each : pieces) add(splitter.push(each));
  add(splitter.finish());
  return out;
}

struct Case {
  std::string text;
  bool begins_open;
  Split split;
};
const std::vector<Case> kCases = {
    {"", false, {"", ""}},
    {"plain", false, {"", "plain"}},
    {"  plain ", false, {"", "  plain "}},
    {"<think>why</think>so", false, {"why", "so"}},
    {"\n<think>\nwhy\n\nthen\n</think>\n\nso it is \n", false, {"why\n\nthen", "so it is \n"}},
    {"<think></think>so", false, {"", "so"}},
    {"<think>\n\n</think>\n\nso", false, {"", "so"}},
    {"<think>never ends", false, {"never ends", ""}},
    {"<think>ends in </thi", false, {"ends in </thi", ""}},
    {"<thin", false, {"", "<thin"}},
    {"<thinking>so", false, {"", "<thinking>so"}},
    {"so <think>is text</think>", false, {"", "so <think>is text</think>"}},
    {"<think>a</think>b<think>c</think>", false, {"a", "b<think>c</think>"}},
    {"<think>a<think>b</think>c", false, {"a<think>b", "c"}},
    {"<think>a < b </ c</think>d", false, {"a < b </ c", "d"}},
    {"<think>é</think>ü", false, {"é", "ü"}},
    {"why</think>so", true, {"why", "so"}},
    {"\nwhy\n</think>\n\nso", true, {"why", "so"}},
    {"<think>\nwhy</think>so", true, {"why", "so"}},
    {"</think>so", true, {"", "so"}},
    {"<<<</think>so", true, {"<<<", "so"}},
    {"why", true, {"why", ""}},
    {"", true, {"", ""}},
};

TEST_CASE("reasoning is what stands between the markers at the beginning") {
  for (const Case& each : kCases) {
    INFO(each.text);
    CHECK(split_of({each.text}, each.begins_open) == each.split);
  }
}

TEST_CASE("reasoning is split the same, in whatever pieces the text comes") {
  std::mt19937 random(17);
  for (const Case& each : kCases) {
    std::vector<std::string> bytes;
    for (const char c : each.text) bytes.emplace_back(1, c);
    INFO(each.text);
    CHECK(split_of(bytes, each.begins_open) == each.split);
    for (int round = 0; round < 50; ++round) {
      std::vector<std::string> pieces;
      for (std::size_t at = 0; at < each.text.size();) {
        const std::size_t length = random() % 6;
        pieces.push_back(each.text.substr(at, length));
        at += length;
      }
      CHECK(split_of(pieces, each.begins_open) == each.split);
    }
  }
}

TEST_CASE("text is shown as soon as it cannot become a marker") {
  ReasoningSplitter splitter({}, false);
  REQUIRE(splitter.push("<think>").reasoning.empty());
  REQUIRE(splitter.is_reasoning());
  REQUIRE(splitter.push("I see").reasoning == "I see");
  REQUIRE(splitter.push(" a <").reasoning == " a");
  REQUIRE(splitter.push("b>").reasoning == " <b>");
  REQUIRE(splitter.push("</think>").reasoning.empty());
  REQUIRE_FALSE(splitter.is_reasoning());
  REQUIRE(splitter.push("\n\n").content.empty());
  REQUIRE(splitter.push("So").content == "So");
  REQUIRE(splitter.push(" <think>").content == " <think>");
}

TEST_CASE("markers are those of the model, and none split nothing") {
  REQUIRE(split_of({"[THINK]a[/THINK]b"}, false, {"[THINK]", "[/THINK]"}) == Split{"a", "b"});
  REQUIRE(split_of({"<think>a</think>b"}, false, {"", ""}) == Split{"", "<think>a</think>b"});
  REQUIRE(split_of({"a</think>b"}, true, {"", ""}) == Split{"", "a</think>b"});
}

TEST_CASE("what a model writes before its answer proper is left out, wherever the pieces are cut") {
  const ReasoningMarkers markers{.open = "<|channel|>analysis<|message|>",
                                 .close = "<|end|><|start|>assistant",
                                 .lead = "<|channel|>final<|message|>"};
  const std::vector<std::pair<std::string, Split>> cases = {
      {markers.open + "why" + markers.close + markers.lead + "so", {"why", "so"}},
      {markers.open + "a<|end|>b" + markers.close + markers.lead + markers.lead, {"a<|end|>b", markers.lead}},
      {markers.open + "why" + markers.close + "<|channel|>commentary", {"why", "<|channel|>commentary"}},
      {markers.open + "why" + markers.close + "<|channel|>fin", {"why", "<|channel|>fin"}},
      {markers.lead + " so " + markers.open, {"", "so " + markers.open}},
      {"<|channel|>commentary<|message|>so", {"", "<|channel|>commentary<|message|>so"}},
      {"<|channel|>", {"", "<|channel|>"}},
      {"plain", {"", "plain"}},
  };
  for (const auto& [text, split] : cases) {
    INFO(text);
    for (std::size_t cut = 0; cut <= text.size(); ++cut)
      CHECK(split_of({text.substr(0, cut), text.substr(cut)}, false, markers) == split);
    std::vector<std::string> bytes;
    for (const char c : text) bytes.emplace_back(1, c);
    CHECK(split_of(bytes, false, markers) == split);
  }
}

}  // namespace
}  // namespace troupe::engine
