// Any JSON as the tools of a request whose answer is calls, in any format: refused, or a grammar whose texts are read
// back as whole calls of these tools; where calls may stand in a free text, whatever that is, none is read that was not
// held. The first byte of an input chooses the format, the second what is asked of the
// calls; then come the tools up to a zero byte, and bytes that choose a way through the grammar.
#include <memory>
#include <string>
#include <vector>

#include "engine/chat/tools/tool_call_parser.h"
#include "engine/constraints/forms/form_rule.h"
#include "engine/constraints/grammar/machine.h"
#include "tests/engine/constraints/marked_vocabulary.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/grammar_walk.h"

namespace troupe::engine::constraints {
namespace {

constexpr std::size_t kManyTokens = 1'000'000;
constexpr std::size_t kMaxWalkWork = kMaxMakingWork / 20;  // sanitizers make each derivation that much slower

// Each call has a name of a tool, and ends.
void check_calls(const CompiledForm& form, std::string_view text) {
  using Kind = chat::AnswerPart::Kind;
  chat::ToolCallParser parser(*form.calls.format, form.calls.tools);
  std::vector<chat::AnswerPart> parts = parser.push(text);
  for (chat::AnswerPart& each : parser.finish()) parts.push_back(std::move(each));
  std::size_t num_calls = 0, num_ends = 0;
  for (const chat::AnswerPart& each : parts) {
    if (each.kind == Kind::call) {
      TROUPE_ASSERT(form.calls.tools->has(each.text));
      ++num_calls;
    }
    num_ends += each.kind == Kind::call_end;
  }
  TROUPE_ASSERT(num_calls >= 1 && num_calls == num_ends);
}

// A text of `choices` where the answer is free, and else the next token that may follow: calls are of these tools, and
// no text is free within one.
void check_text(const CompiledForm& form, std::string_view choices) {
  static const auto vocabulary =
      std::make_shared<const test::MarkedVocabulary>(std::vector<std::string>{}, std::vector<std::string>{});
  static const auto trie = std::make_shared<const TokenTrie>(TokenTrie::of(*vocabulary, call_marks(*vocabulary)));
  const auto rule = make_rule(form, trie, vocabulary);
  if (!rule) return;
  const auto reader = rule->rule->read({}, {});
  chat::ToolCallParser parser(*form.calls.format, form.calls.tools);
  std::vector<TokenId> answer;
  for (const char choice : choices.substr(0, kMaxWalkedBytes)) {
    const NextTokens next = reader->next(answer, kManyTokens);
    if (next.kind == NextTokens::Kind::failed) return;
    TROUPE_ASSERT(next.kind != NextTokens::Kind::any || !parser.is_within_call());
    auto token = static_cast<TokenId>(static_cast<std::uint8_t>(choice)) + 1;
    if (next.kind == NextTokens::Kind::forced) token = next.forced;
    if (next.kind == NextTokens::Kind::some) {
      const auto may_follow = [&](TokenId id) {
        return (next.allowed[static_cast<std::size_t>(id) / 64] >> (id % 64) & 1) != 0;
      };
      while (!may_follow(token)) token = token % 256 + 1;
    }
    answer.push_back(token);
    for (const chat::AnswerPart& each : parser.push(vocabulary->piece(token)))
      TROUPE_ASSERT(each.kind != chat::AnswerPart::Kind::call || form.calls.tools->has(each.text));
  }
}

void check(const chat::ToolFormat& format, std::uint8_t wish, std::string_view tools, std::string_view choices) {
  static const test::MarkedVocabulary vocabulary({}, {});
  Constraint asked{.kind = Constraint::Kind::calls, .text = std::string(tools)};
  asked.calls.must_call = (wish & 1) == 0;
  asked.calls.may_call_several = (wish & 2) == 0;
  if ((wish & 4) != 0) asked.calls.name = "f";
  if ((wish & 8) != 0) asked.calls.strict = {"f"};
  const auto form = compile_form(asked, vocabulary, &format);
  if (!form) {
    fuzz::check_message(form.error().message);
    TROUPE_ASSERT(form.error().code == ErrorCode::unsupported || form.error().code == ErrorCode::invalid_argument);
    return;
  }
  Machine machine(form->grammar.copy());
  machine.pool().limit_work(kMaxWalkWork);
  for (const std::string& each : {machine.shortest_text(machine.begin()), walked(machine, choices)}) {
    TROUPE_ASSERT(machine.may_end(machine.after(machine.begin(), each)));
    if (asked.calls.must_call) check_calls(*form, each);
  }
  if (!asked.calls.must_call) check_text(*form, choices);
}

}  // namespace
}  // namespace troupe::engine::constraints

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troupe;
  using namespace troupe::engine;
  fuzz::Input in(data, size);
  const auto formats = chat::tool_formats();
  const chat::ToolFormat& format = formats[in.byte() % formats.size()];
  const std::uint8_t wish = in.byte();
  const std::string_view tools = in.until('\0');
  try {
    constraints::check(format, wish, tools, in.rest());
  } catch (const constraints::ConstraintLimit& limit) {
    fuzz::check_message(limit.what());
  }
  return 0;
}
