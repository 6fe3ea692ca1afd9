// Any text as the answer of a model with tools, in any format of calls: the same parts in whatever pieces it comes,
// each call begun and ended once, and nothing of a text without calls lost. The first byte of an input chooses the
// format, the second the pieces and whether the tools are known.
#include <memory>
#include <string>
#include <vector>

#include "engine/chat/tools/tool_call_parser.h"
#include "tests/fuzz/fuzz_target.h"

namespace troupe::engine::chat {
namespace {

using Kind = AnswerPart::Kind;

std::shared_ptr<const ToolSet> known_tools() {
  static const auto tools = [] {
    const auto parsed = parse_json(
        R"([{"function": {"name": "f", "parameters": {"properties": {"s": {"type": "string"}, "n": {"type": "number"}}}}}])");
    return std::make_shared<const ToolSet>(*ToolSet::make(*parsed));
  }();
  return tools;
}

void add(std::vector<AnswerPart>& parts, const std::vector<AnswerPart>& more) {
  for (const AnswerPart& each : more) {
    const bool continues = each.kind == Kind::text || each.kind == Kind::arguments;
    TROUPE_ASSERT(!continues || !each.text.empty());
    if (continues && !parts.empty() && parts.back().kind == each.kind)
      parts.back().text += each.text;
    else
      parts.push_back(each);
  }
}

std::vector<AnswerPart> parse(const ToolFormat& format, std::string_view text, std::size_t piece, bool has_tools) {
  ToolCallParser parser(format, has_tools ? known_tools() : nullptr);
  std::vector<AnswerPart> parts;
  for (; !text.empty(); text.remove_prefix(std::min(piece, text.size())))
    add(parts, parser.push(text.substr(0, piece)));
  add(parts, parser.finish());
  TROUPE_ASSERT(!parser.is_within_call());
  return parts;
}

void check_parts(const ToolFormat& format, const std::vector<AnswerPart>& parts, std::string_view text) {
  std::size_t num_calls = 0;
  bool is_within = false;
  std::string said;
  for (const AnswerPart& each : parts) {
    if (each.kind == Kind::text) said += each.text;
    if (each.kind == Kind::call) {
      TROUPE_ASSERT(!is_within && is_tool_name(each.text));
      ++num_calls;
    }
    TROUPE_ASSERT((each.kind == Kind::arguments || each.kind == Kind::call_end) == is_within ||
                  each.kind == Kind::call);
    if (each.kind == Kind::call || each.kind == Kind::call_end) is_within = each.kind == Kind::call;
  }
  TROUPE_ASSERT(!is_within && num_calls <= kMaxCallsPerAnswer);
  const bool has_other_marks = format.syntax == CallSyntax::recipients || !format.user_name.empty();
  TROUPE_ASSERT(num_calls != 0 || has_other_marks || said == text);
}

}  // namespace
}  // namespace troupe::engine::chat

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troupe;
  using namespace troupe::engine::chat;
  fuzz::Input in(data, size);
  const ToolFormat& format = tool_formats()[in.byte() % tool_formats().size()];
  const std::uint8_t bits = in.byte();
  const std::string_view text = in.rest();
  const bool has_tools = (bits & 1) != 0;
  const auto whole = parse(format, text, std::max<std::size_t>(text.size(), 1), has_tools);
  check_parts(format, whole, text);
  TROUPE_ASSERT(parse(format, text, 1, has_tools) == whole);
  TROUPE_ASSERT(parse(format, text, 2 + bits / 2 % 16, has_tools) == whole);
  return 0;
}
