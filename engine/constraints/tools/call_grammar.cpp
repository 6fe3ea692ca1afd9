#include "engine/constraints/tools/call_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include "config/printable.h"
#include "engine/constraints/tools/call_arguments.h"
#include "engine/tokenizers/marker_search.h"

namespace troupe::engine::constraints {
namespace {

using chat::CallSyntax;
using chat::Json;
using chat::ToolFormat;

constexpr std::size_t kPartsForCalls = 40'000;  // of a grammar: not for schemas
constexpr std::uint32_t kMaxIndexDigits = 3;

// "a:1"
bool ends_with_index(std::string_view name) {
  const std::size_t colon = name.rfind(':');
  return colon != std::string_view::npos && colon + 1 < name.size() &&
         name.find_first_not_of("0123456789", colon + 1) == std::string_view::npos;
}

struct OfferedTool {
  std::string name;
  const Json* parameters = nullptr;  // null: it has none
  bool is_strict = false;
  std::optional<SchemaRefusal> refusal{};  // why its parameters are not enforced
  std::size_t num_parts = 0;               // of the grammar, for its parameters
};

// Thrown where a tool turns out to be loose when the rest of the grammar is there already.
struct FoundLoose {};

// Builds one grammar. To be used once.
class CallBuilder {
 public:
  CallBuilder(const ToolFormat& format, const chat::ToolSet& set, const MarkTokens& marks, const CallWish& wish)
      : format_(format), marks_(marks), wish_(wish), arguments_(grammar_, format, set, marks) {
    gap_ = arguments_.gap();
    space_ =
        pool().optional(pool().either({pool().literal(" "), pool().concat(pool().literal("\n"), white_space(0, 40))}));
  }

  // Throws ConstraintLimit, and FoundLoose.
  Grammar build(std::vector<OfferedTool>& tools) {
    const RuleId body = add_body(tools);
    const RuleId root = grammar_.add_rule();
    if (has_section())
      add_section(grammar_.begin_of(root), body);
    else
      add_calls(grammar_.begin_of(root), body);
    if (!wish_.must_call) add_other_openings(grammar_.begin_of(root), body);
    const bool has_text = grammar_.finish(root);
    bool found_loose = false;
    for (std::size_t at = 0; at < tools.size(); ++at) {
      if (grammar_.node(grammar_.begin_of(rules_[at])).shortest != RegexPool::kNoLength) continue;
      tools[at].refusal = SchemaRefusal{"", "", "the schema cannot be enforced: no value that ends meets it"};
      found_loose = true;
    }
    if (found_loose || !has_text) throw FoundLoose();
    return std::move(grammar_);
  }

 private:
  RegexPool& pool() { return grammar_.pool(); }
  bool has_section() const { return !format_.section_open.empty() || format_.is_list; }
  bool is_json() const { return format_.syntax == CallSyntax::object || format_.syntax == CallSyntax::keyed; }
  RegexId white_space(std::uint32_t min, std::uint32_t max) {
    return pool().repeat(pool().bytes(ByteSet::of(' ') | ByteSet::of('\t')), min, max);
  }
  NodeId read(NodeId from, std::vector<RegexId> parts) {
    const NodeId target = grammar_.add_node();
    grammar_.add_text(from, pool().concat(parts), target);
    return target;
  }
  NodeId end_node() {
    const NodeId end = grammar_.add_node();
    grammar_.set_end(end);
    return end;
  }

  // A part of a mark that is JSON: white space may be more or less, and "0" stands for a number that counts calls.
  RegexId json_mark(std::string_view text) {
    constexpr std::string_view kNumber = "\"0\"";
    std::vector<RegexId> parts;
    while (!text.empty()) {
      if (const std::size_t space = leading_space(text); space != 0) {
        parts.push_back(space_);
        text.remove_prefix(space);
      } else if (text.starts_with(kNumber)) {
        const RegexId digit = pool().bytes(ByteSet::range('0', '9'));
        parts.push_back(pool().concat(
            std::vector{pool().literal("\""), pool().repeat(digit, 1, kMaxIndexDigits), pool().literal("\"")}));
        text.remove_prefix(kNumber.size());
      } else if (text.front() == ',' || text.front() == ':') {
        // A token may have the quote before it and that space.
        parts.push_back(wish_.must_call ? kEmptyText : space_);
        parts.push_back(pool().literal(text.substr(0, 1)));
        text.remove_prefix(1);
      } else {
        const std::size_t end = std::min(std::min(text.find_first_of(" \t\r\n,:"), text.find(kNumber)), text.size());
        parts.push_back(pool().literal(text.substr(0, end)));
        text.remove_prefix(end);
      }
    }
    return pool().concat(parts);
  }
  RegexId mark(std::string_view text) {
    if (is_json()) return json_mark(text);
    return pool().literal(marks_.written(text));
  }
  // A mark around calls; white space beside it is skipped.
  RegexId outer_mark(std::string_view text) { return text.empty() ? kEmptyText : pool().literal(marks_.written(text)); }

  // A name as the format writes it: "functions.get_time:0".
  RegexId name_text(const std::string& name) {
    const RegexId plain = pool().literal(name);
    if (format_.name_prefix.empty()) return plain;
    const RegexId digit = pool().bytes(ByteSet::range('0', '9'));
    const RegexId index = pool().concat(pool().literal(":"), pool().repeat(digit, 1, kMaxIndexDigits));
    const RegexId prefix = pool().literal(format_.name_prefix);
    // What stands around a name is needed where the name itself looks like that.
    const bool has_index = ends_with_index(name);
    // Messages to recipients have the prefix in the mark before it, and no index else.
    if (format_.syntax == CallSyntax::recipients) return has_index ? pool().concat(plain, index) : plain;
    const bool has_prefix = name.starts_with(format_.name_prefix);
    return pool().concat(
        std::vector{has_prefix ? prefix : pool().optional(prefix), plain, has_index ? index : pool().optional(index)});
  }

  // The rule of a call without the marks around it: from before_name to the end of its arguments.
  RuleId add_body(std::vector<OfferedTool>& tools) {
    add_rules(tools);
    const RuleId body = grammar_.add_rule();
    const std::string_view before = format_.before_name.substr(is_json() ? leading_space(format_.before_name) : 0);
    const NodeId names = read(grammar_.begin_of(body), {mark(before)});
    const NodeId behind = grammar_.add_node();
    for (std::size_t at = 0; at < tools.size(); ++at) {
      for (const RegexId after : texts_behind_name())
        grammar_.add_call(read(names, {name_text(tools[at].name), after}), rules_[at], behind);
    }
    grammar_.add_text(behind, text_behind_arguments(), end_node());
    return body;
  }

  std::vector<RegexId> texts_behind_name() {
    if (format_.syntax != CallSyntax::recipients) return {mark(format_.after_name)};
    // What gpt-oss writes between the name and its arguments differs from call to call.
    std::vector<RegexId> texts;
    for (const std::string_view text :
         {std::string_view(format_.after_name), std::string_view("<|message|>"), std::string_view(" json<|message|>"),
          std::string_view("<|channel|>commentary <|constrain|>json<|message|>"),
          std::string_view("<|channel|>commentary json<|message|>")})
      texts.push_back(mark(text));
    return {pool().either(std::move(texts))};
  }

  RegexId text_behind_arguments() {
    constexpr std::string_view kFence = "```";
    if (is_json()) return pool().concat(space_, pool().literal("}"));
    if (format_.syntax == CallSyntax::tagged && !format_.tags.arguments_close.empty())
      return pool().concat(gap_, outer_mark(format_.tags.arguments_close));
    if (format_.syntax == CallSyntax::literals) return pool().literal(format_.after_name == "(" ? ")" : "}");
    if (format_.after_name.find(kFence) != std::string_view::npos) return pool().concat(gap_, pool().literal(kFence));
    return kEmptyText;
  }

  void add_rules(std::vector<OfferedTool>& tools) {
    std::size_t left = kMaxToolsWork;
    arguments_.begin();
    grammar_.limit_parts(kMaxGrammarNodes - kPartsForCalls);
    for (OfferedTool& tool : tools) {
      if (!tool.refusal) {
        const std::size_t work = std::min(left, kMaxMakingWork);
        pool().limit_bytes(std::min(kMaxToolsMemory, pool().bytes_used() + kMaxToolMemory));
        const Grammar::Parts before = grammar_.parts();
        std::variant<RuleId, SchemaRefusal> rule = arguments_.rule_of(tool.name, tool.parameters, work);
        left -= std::min(left, work - std::min(work, pool().work_left()));
        if (auto* const refusal = std::get_if<SchemaRefusal>(&rule))
          tool.refusal = std::move(*refusal);
        else
          rules_.push_back(std::get<RuleId>(rule));
        const Grammar::Parts behind = grammar_.parts();
        tool.num_parts = behind.num_nodes + behind.num_edges - before.num_nodes - before.num_edges;
      }
      if (tool.refusal) rules_.push_back(arguments_.loose_rule());
    }
    pool().limit_bytes(SIZE_MAX);
    pool().limit_work(kMaxToolsWork);
    grammar_.limit_parts(kMaxGrammarNodes);
  }

  // One call with its marks.
  NodeId add_call(NodeId from, RuleId body, bool has_open, bool has_close = true) {
    if (has_open && !format_.call_open.empty()) {
      const bool has_gap = format_.syntax != CallSyntax::recipients;
      from = read(from, {outer_mark(format_.call_open), has_gap ? gap_ : kEmptyText});
    }
    const NodeId behind = grammar_.add_node();
    grammar_.add_call(from, body, behind);
    const bool is_closed = has_close && !format_.call_close.empty() && !marks_.ends_answer(format_.call_close);
    return is_closed ? read(behind, {gap_, outer_mark(format_.call_close)}) : behind;
  }

  // What may follow the last call, where the answer is not free.
  RegexId gap_behind_all() const { return wish_.must_call ? gap_ : kEmptyText; }

  void add_section(NodeId from, RuleId body) {
    NodeId at = read(from, {outer_mark(format_.section_open), gap_});
    if (format_.is_list) at = read(at, {pool().literal("["), gap_});
    const NodeId behind = add_call(at, body, true);
    if (wish_.may_call_several) {
      const NodeId next = format_.is_list ? read(behind, {gap_, pool().literal(","), gap_}) : read(behind, {gap_});
      grammar_.add_nothing(add_call(next, body, true), behind);
    }
    const NodeId closed = format_.is_list ? read(behind, {gap_, pool().literal("]")}) : behind;
    const bool has_close = !format_.section_close.empty() && !marks_.ends_answer(format_.section_close);
    const RegexId close = has_close ? pool().concat(gap_, outer_mark(format_.section_close)) : kEmptyText;
    grammar_.add_text(closed, pool().concat(close, gap_behind_all()), end_node());
  }

  void add_calls(NodeId from, RuleId body) {
    const NodeId end = end_node();
    const NodeId behind = add_call(from, body, true);
    if (format_.may_be_bare && !format_.call_open.empty()) grammar_.add_nothing(add_call(from, body, false), behind);
    grammar_.add_text(behind, gap_behind_all(), end);
    // Only a whole answer has all its calls here; else it is free behind each.
    if (!wish_.must_call || !wish_.may_call_several || marks_.ends_answer(format_.call_close) ||
        format_.syntax == CallSyntax::recipients)
      return;
    grammar_.add_nothing(add_call(read(behind, {gap_}), body, true), behind);
    if (format_.may_be_bare && format_.syntax == CallSyntax::object)
      grammar_.add_nothing(add_call(read(behind, {gap_, pool().literal(";"), gap_}), body, false), behind);
  }

  // Some models leave out the marks before <function=NAME>, and parsers know a call by that alone. And some write the
  // mark of a call before a text to the user.
  void add_other_openings(NodeId from, RuleId body) {
    if (!format_.user_name.empty())
      grammar_.add_text(from,
                        pool().concat(std::vector{outer_mark(format_.call_open), gap_,
                                                  pool().literal(format_.user_name), mark(format_.after_name)}),
                        end_node());
    if (format_.syntax == CallSyntax::object && format_.may_be_bare) {
      const NodeId nested = add_call(read(from, {pool().literal(kNestedOpening)}), body, false);
      grammar_.add_text(nested, pool().concat(space_, pool().literal("}")), end_node());
    }
    const bool has_own_mark = format_.syntax == CallSyntax::tagged && !format_.before_name.empty();
    const bool has_marks = !format_.section_open.empty() || !format_.call_open.empty();
    if (has_own_mark && has_marks)
      grammar_.add_nothing(add_call(from, body, false, format_.call_open.empty()), end_node());
  }

  const ToolFormat& format_;
  const MarkTokens& marks_;
  const CallWish& wish_;
  Grammar grammar_;
  CallArguments arguments_;
  std::vector<RuleId> rules_;  // of each tool's arguments
  RegexId gap_ = kEmptyText;   // white space that the parser skips
  RegexId space_ = kEmptyText;
};

// Those that may be called.
std::vector<OfferedTool> tools_of(const Json& list, const ToolFormat& format, const CallWish& wish) {
  std::vector<OfferedTool> tools;
  for (const Json& each : *list.list()) {
    const Json* const function = each.find("function");
    const std::string& name = *function->find("name")->text();
    if (!wish.name.empty() && name != wish.name) continue;
    if (!format.user_name.empty() && name == format.user_name) continue;
    tools.push_back({.name = name,
                     .parameters = function->find("parameters"),
                     .is_strict = std::ranges::find(wish.strict, name) != wish.strict.end()});
  }
  return tools;
}

std::vector<std::string> beginnings_of(const ToolFormat& format, const MarkTokens& marks,
                                       const std::vector<OfferedTool>& tools, const CallWish& wish) {
  std::vector<std::string> beginnings;
  for (const OfferedTool& tool : tools) {
    beginnings.push_back(marks.written(call_opening(format, tool.name)));
    if (!wish.must_call && format.syntax == CallSyntax::tagged && !format.before_name.empty())
      beginnings.push_back(marks.written(format.before_name) + tool.name + marks.written(format.after_name));
  }
  return beginnings;
}

std::optional<Error> strict_error(const std::vector<OfferedTool>& tools) {
  const auto refused =
      std::ranges::find_if(tools, [](const OfferedTool& each) { return each.is_strict && each.refusal; });
  if (refused == tools.end()) return std::nullopt;
  return Error{ErrorCode::unsupported,
               fmt::format("the tool '{}' is strict, and {}; without strict its arguments are any JSON object",
                           Printable(refused->name).text(), refused->refusal->message)};
}

}  // namespace

std::string call_opening(const ToolFormat& format, const std::string& name) {
  if (format.name_prefix.empty()) return chat::call_beginning(format, name);
  const bool has_prefix = format.syntax != CallSyntax::recipients && name.starts_with(format.name_prefix);
  return chat::call_beginning(format, std::string(has_prefix ? format.name_prefix : std::string_view()) + name +
                                          (ends_with_index(name) ? ":0" : ""));
}

MarkTokens call_marks(const Tokenizer& vocabulary) {
  std::vector<TokenId> ids;
  for (const ToolFormat& format : chat::tool_formats())
    for (const TokenId id : chat::marker_ids(format, vocabulary))
      if (std::ranges::find(ids, id) == ids.end()) ids.push_back(id);
  return {vocabulary, ids};
}

MarkTokens call_marks(const ToolFormat& format, const Tokenizer& vocabulary) {
  return call_marks(vocabulary).among(chat::marker_ids(format, vocabulary));
}

Result<CallGrammar> grammar_of_calls(const Json& tools, const chat::ToolSet& set, const ToolFormat& format,
                                     const MarkTokens& marks, const CallWish& wish) {
  std::vector<OfferedTool> offered = tools_of(tools, format, wish);
  if (offered.empty() && wish.must_call && !tools.list()->empty())
    return Error{ErrorCode::unsupported,
                 fmt::format("no tool named '{}' can be called: in the model's format of calls ({}) that is the user's "
                             "name; give the tool another one",
                             format.user_name, format.name)};
  // A tool that cannot be had with the others makes another round needed: those without a value that ends, then, where
  // all of them are too much, the largest; at last all are loose.
  constexpr int kRounds = 3;
  for (int round = 0; round <= kRounds; ++round) {
    try {
      CallBuilder builder(format, set, marks, wish);
      CallGrammar made{.grammar = builder.build(offered)};
      if (auto error = strict_error(offered)) return *std::move(error);
      made.beginnings = beginnings_of(format, marks, offered, wish);
      for (const OfferedTool& tool : offered)
        if (tool.refusal) made.loose.push_back({tool.name, *tool.refusal});
      return made;
    } catch (const FoundLoose&) {
    } catch (const ConstraintLimit& limit) {
      if (round == kRounds) return Error{ErrorCode::unsupported, limit.what()};
      const std::size_t largest = std::ranges::max(offered, {}, &OfferedTool::num_parts).num_parts;
      for (OfferedTool& tool : offered)
        if (!tool.refusal && (round + 1 == kRounds || tool.num_parts == largest))
          tool.refusal = SchemaRefusal{"", "", fmt::format("the schema cannot be enforced: {}", limit.what())};
    }
    if (auto error = strict_error(offered)) return *std::move(error);
    for (OfferedTool& tool : offered) tool.num_parts = 0;
  }
  return Error{ErrorCode::unsupported, "no call of these tools can be written"};
}

}  // namespace troupe::engine::constraints
