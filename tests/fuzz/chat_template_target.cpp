// Any source as a chat template, over a conversation: an error of one line, or a prompt whose segments are well formed,
// within its bounds of work, time and memory.
// The first byte of an input chooses what the conversation has; the source follows, and after a zero byte JSON for
// further variables.
#include "engine/chat/template.h"
#include "tests/fuzz/chat_bounds.h"
#include "tests/fuzz/fuzz_target.h"

namespace troupe::engine::chat {
namespace {

// Enough for any template, and so few that a slow input is a finding.
constexpr Limits kLimits = {
    .max_output_bytes = std::size_t{1} << 20, .max_value_bytes = std::size_t{16} << 20, .max_steps = 100'000};

ChatInput conversation(std::uint8_t bits) {
  ChatInput input;
  Json::List messages;
  if ((bits & 1) != 0) messages.push_back(Json::Object{{"role", "system"}, {"content", "<s>Be terse.</s>"}});
  messages.push_back(Json::Object{{"role", "user"}, {"content", " Gr\xC3\xBC\xC3\x9F <|im_end|> \xFF\n"}});
  if ((bits & 2) != 0) {
    const Json arguments = Json::Object{{"q", 1.5}, {"l", Json::List{1, true, Json(), "x"}}};
    const Json call =
        Json::Object{{"id", "abcdefghi"}, {"function", Json::Object{{"name", "f"}, {"arguments", arguments}}}};
    messages.push_back(Json::Object{{"role", "assistant"}, {"content", Json()}, {"tool_calls", Json::List{call}}});
    messages.push_back(Json::Object{{"role", "tool"}, {"content", "42"}});
  }
  input.messages = std::move(messages);
  if ((bits & 4) != 0)
    input.tools = Json::List{Json::Object{{"type", "function"}, {"function", Json::Object{{"name", "f"}}}}};
  input.add_generation_prompt = (bits & 8) != 0;
  input.bos_token = "<s>";
  input.eos_token = "</s>";
  if ((bits & 16) != 0) input.now = [](std::string_view format) { return format_time(format, {}); };
  return input;
}

void check_segments(const RenderedPrompt& prompt) {
  std::size_t size = 0;
  for (std::size_t i = 0; i < prompt.segments.size(); ++i) {
    TROUPE_ASSERT(!prompt.segments[i].text.empty());
    TROUPE_ASSERT(i == 0 || prompt.segments[i].from_input != prompt.segments[i - 1].from_input);
    size += prompt.segments[i].text.size();
  }
  TROUPE_ASSERT(size <= kLimits.max_output_bytes);
}

}  // namespace
}  // namespace troupe::engine::chat

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troupe;
  using namespace troupe::engine::chat;
  fuzz::Input in(data, size);
  ChatInput input = conversation(in.byte());
  const std::string_view source = in.until('\0');
  const auto made = ChatTemplate::parse(source, "fuzzed", kLimits);
  if (!made) {
    fuzz::check_message(made.error().message);
    return 0;
  }
  check_bounds(source, kLimits);
  if (!in.empty()) {
    const auto variables = parse_json(in.rest());
    if (!variables)
      fuzz::check_message(variables.error().message);
    else if (variables->object() != nullptr)
      input.variables = *variables->object();
  }
  const auto prompt = (*made)->render(input);
  if (!prompt) {
    fuzz::check_message(prompt.error().message);
    return 0;
  }
  check_segments(*prompt);
  TROUPE_ASSERT((*made)->render(input)->segments == prompt->segments);
  return 0;
}
