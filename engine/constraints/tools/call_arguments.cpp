#include "engine/constraints/tools/call_arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/chat/tools/json_text.h"
#include "engine/constraints/expressions/characters.h"

namespace troupe::engine::constraints {
namespace {

using chat::CallSyntax;
using chat::Json;

constexpr std::uint32_t kMaxGap = 8;         // characters of white space between the parts of a call
constexpr std::uint32_t kMaxLooseName = 64;  // bytes of an argument's name that no schema says
constexpr std::string_view kData = "<![CDATA[";
constexpr std::string_view kGemmaQuote = "<|\"|>";

// An identifier.
RegexId any_name(RegexPool& pool) {
  const ByteSet letters = ByteSet::range('a', 'z') | ByteSet::range('A', 'Z') | ByteSet::of('_');
  return pool.concat(pool.bytes(letters),
                     pool.repeat(pool.bytes(letters | ByteSet::range('0', '9')), 0, kMaxLooseName - 1));
}

SchemaRefusal not_enforced(std::string keyword, std::string_view why) {
  return {std::move(keyword), "", fmt::format("the schema cannot be enforced: {}", why)};
}

}  // namespace

CallArguments::CallArguments(Grammar& grammar, const chat::ToolFormat& format, const chat::ToolSet& set,
                             const MarkTokens& marks)
    : grammar_(grammar), format_(format), set_(set), marks_(marks) {
  ByteSet space;
  for (const char each : {' ', '\t', '\r', '\n'}) space.add(static_cast<std::uint8_t>(each));
  const RegexId white = pool().bytes(space);
  gap_ = pool().repeat(white, 0, kMaxGap);
  // What begins as a number, a list or an object, and the words of JSON and Python.
  ByteSet first = ByteSet::range('0', '9');
  for (const char each : {'-', '{', '[', '('}) first.add(static_cast<std::uint8_t>(each));
  std::vector<RegexId> words;
  for (const char* const word : {"true", "false", "null", "True", "False", "None", "NaN", "Infinity"})
    words.push_back(pool().literal(word));
  const RegexId any_white = pool().repeat(white, 0, kUnbounded);
  const RegexId other = pool().concat(
      any_white,
      pool().either({beginning_with(pool().bytes(first)), pool().concat(pool().either(std::move(words)), any_white)}));
  no_json_ = pool().complement(other);
}

RegexId CallArguments::beginning_with(RegexId text) { return pool().concat(text, kAnyText); }

void CallArguments::begin() {
  empty_ = grammar_.add_rule();
  const NodeId end = grammar_.add_node();
  grammar_.set_end(end);
  if (format_.syntax == CallSyntax::tagged) {
    grammar_.add_nothing(grammar_.begin_of(empty_), end);
    loose_ = loose_tagged_rule();
    return;
  }
  if (format_.syntax == CallSyntax::literals) {
    grammar_.add_nothing(grammar_.begin_of(empty_), end);
    loose_ = loose_literals_rule();
    return;
  }
  grammar_.add_text(grammar_.begin_of(empty_), pool().literal("{}"), end);
  loose_ = std::get<RuleId>(add_schema(grammar_, Json(true), true, {.spaces = true}));
}

std::variant<RuleId, SchemaRefusal> CallArguments::rule_of(const std::string& tool, const Json* parameters,
                                                           std::size_t work) {
  if (parameters == nullptr) return empty_;
  const Grammar::Parts before = grammar_.parts();
  pool().limit_work(work);
  std::variant<RuleId, SchemaRefusal> rule = schema_rule(tool, *parameters, work);
  if (!std::holds_alternative<SchemaRefusal>(rule)) {
    // All of its work is done here, so that none of it counts as that of others.
    try {
      grammar_.search_since(before);
    } catch (const ConstraintLimit& limit) {
      rule = not_enforced("", limit.what());
    }
  }
  if (std::holds_alternative<SchemaRefusal>(rule)) grammar_.drop_since(before);
  return rule;
}

std::variant<RuleId, SchemaRefusal> CallArguments::schema_rule(const std::string& tool, const Json& parameters,
                                                               std::size_t work) {
  SchemaOptions options{.spaces = true, .max_work = work};
  try {
    if (format_.syntax == CallSyntax::literals) {
      options = literal_options(work);
      return literals_rule(parameters, options);
    }
    if (format_.syntax != CallSyntax::tagged) return add_schema(grammar_, parameters, true, options);
    options.without = format_.tags.value_close;
    return tagged_rule(tool, parameters, options);
  } catch (const ConstraintLimit& limit) {
    return not_enforced("", limit.what());
  }
}

std::variant<RuleId, SchemaRefusal> CallArguments::tagged_rule(const std::string& tool, const Json& parameters,
                                                               const SchemaOptions& options) {
  if (chat::json_text(parameters).find(format_.tags.value_close) != std::string::npos)
    return not_enforced("", fmt::format("it has the text {} in it, which ends an argument", format_.tags.value_close));
  auto members = add_members(grammar_, parameters, options);
  if (auto* const refusal = std::get_if<SchemaRefusal>(&members)) return std::move(*refusal);
  const RuleId rule = grammar_.add_rule();
  const NodeId end = grammar_.add_node();
  grammar_.set_end(end);
  for (const SchemaMembers& alternative : std::get<std::vector<SchemaMembers>>(members)) {
    NodeId at = grammar_.add_node();
    grammar_.add_nothing(grammar_.begin_of(rule), at);
    for (const SchemaMember& member : alternative) {
      if (member.name.empty() || member.name.find(format_.tags.key_close) != std::string::npos)
        return not_enforced("properties", "a name has marks in it that end the names of arguments");
      const NodeId next = grammar_.add_node();
      if (!member.is_required) grammar_.add_nothing(at, next);
      at = add_member(at, tool, member, next);
    }
    grammar_.add_nothing(at, end);
  }
  return rule;
}

// Python's values, or Gemma's, whose texts stand between tokens of their own.
SchemaOptions CallArguments::literal_options(std::size_t work) const {
  SchemaOptions options{.spaces = true, .max_work = work};
  options.python = is_python();
  if (!options.python) {
    options.without = kGemmaQuote;
    options.quote = marks_.written(kGemmaQuote);
  }
  return options;
}

// NAME=VALUE, NAME=VALUE: nodes by whether there was one.
std::variant<RuleId, SchemaRefusal> CallArguments::literals_rule(const Json& parameters, const SchemaOptions& options) {
  if (!options.without.empty() && chat::json_text(parameters).find("<|\\\"|>") != std::string::npos)
    return not_enforced("", fmt::format("it has the text {} in it, which ends a text", options.without));
  auto members = add_members(grammar_, parameters, options);
  if (auto* const refusal = std::get_if<SchemaRefusal>(&members)) return std::move(*refusal);
  const RuleId rule = grammar_.add_rule();
  const NodeId end = grammar_.add_node();
  grammar_.set_end(end);
  const RegexId comma = pool().concat(pool().literal(","), pool().optional(pool().literal(" ")));
  for (const SchemaMembers& alternative : std::get<std::vector<SchemaMembers>>(members)) {
    NodeId first = grammar_.add_node(), later = grammar_.add_node();
    grammar_.add_nothing(grammar_.begin_of(rule), first);
    for (const SchemaMember& member : alternative) {
      if (!is_identifier(member.name))
        return not_enforced("properties",
                            "a name is none that an argument can have in the format of the model's calls");
      const NodeId next_first = grammar_.add_node(), next_later = grammar_.add_node();
      if (!member.is_required) {
        grammar_.add_nothing(first, next_first);
        grammar_.add_nothing(later, next_later);
      }
      const NodeId value = grammar_.add_node();
      const RegexId name = pool().literal(member.name + (is_python() ? "=" : ":"));
      grammar_.add_text(first, name, value);
      grammar_.add_text(later, pool().concat(comma, name), value);
      if (member.other) grammar_.add_call(value, *member.other, next_later);
      first = next_first;
      later = next_later;
    }
    grammar_.add_nothing(first, end);
    grammar_.add_nothing(later, end);
  }
  return rule;
}

RuleId CallArguments::loose_literals_rule() {
  const RuleId any = std::get<RuleId>(add_schema(grammar_, Json(true), false, literal_options(kMaxMakingWork)));
  const RuleId rule = grammar_.add_rule();
  const NodeId begin = grammar_.begin_of(rule), value = grammar_.add_node(), behind = grammar_.add_node();
  grammar_.set_end(begin);
  grammar_.set_end(behind);
  const RegexId name = pool().concat(any_name(pool()), pool().literal(is_python() ? "=" : ":"));
  grammar_.add_text(begin, name, value);
  grammar_.add_call(value, any, behind);
  grammar_.add_text(behind, pool().concat(std::vector{pool().literal(","), pool().optional(pool().literal(" ")), name}),
                    value);
  return rule;
}

// Any names and texts, which become what they look like.
RuleId CallArguments::loose_tagged_rule() {
  const RuleId rule = grammar_.add_rule();
  const NodeId begin = grammar_.begin_of(rule);
  grammar_.set_end(begin);
  const RegexId close = pool().literal(format_.tags.value_close);
  const RegexId text = pool().both({pool().repeat(character(pool(), CodePoints::all(), Writing::plain), 0, kUnbounded),
                                    pool().complement(pool().concat(std::vector{kAnyText, close, kAnyText})),
                                    pool().complement(beginning_with(pool().literal(kData)))});
  const NodeId behind = grammar_.add_node();
  grammar_.add_text(begin, pool().concat(std::vector{head(any_name(pool()), true), text, tail()}), behind);
  grammar_.add_nothing(behind, begin);
  return rule;
}

RegexId CallArguments::head(RegexId name, bool is_text) {
  const chat::ToolFormat::Tags& tags = format_.tags;
  const auto mark = [&](std::string_view text) { return pool().literal(marks_.written(text)); };
  const RegexId attribute = !tags.says_text ? kEmptyText
                            : is_text       ? pool().literal(" string=\"true\"")
                                            : pool().literal(" string=\"false\"");
  const RegexId between = tags.value_open.starts_with('<') ? gap_ : kEmptyText;
  return pool().concat(std::vector{gap_, mark(tags.key_open), name, mark(tags.key_close), attribute, between,
                                   mark(tags.value_open), pool().literal(tags.has_line_breaks ? "\n" : "")});
}

RegexId CallArguments::tail() {
  const RegexId close = pool().literal(marks_.written(format_.tags.value_close));
  return format_.tags.has_line_breaks ? pool().concat(pool().literal("\n"), close) : close;
}

// Writes a value as the parser reads it: types of the schema say whether a text or JSON stands there.
NodeId CallArguments::add_member(NodeId from, const std::string& tool, const SchemaMember& member, NodeId target) {
  const chat::ValueTypes types = set_.types_of(tool, member.name);
  const bool says_text = format_.tags.says_text;
  const RegexId name = pool().literal(member.name);
  if (member.text != kNoText && (types.text || says_text)) {
    RegexId text = member.text;
    if (types.other && !says_text) text = pool().both({text, no_json_});
    if (format_.tags.may_be_cdata) text = pool().both({text, pool().complement(beginning_with(pool().literal(kData)))});
    grammar_.add_text(from, pool().concat(std::vector{head(name, true), text, tail()}), target);
  }
  if (member.other && (types.other || says_text)) {
    const NodeId begin = grammar_.add_node(), end = grammar_.add_node();
    grammar_.add_text(from, head(name, false), begin);
    grammar_.add_call(begin, *member.other, end);
    grammar_.add_text(end, tail(), target);
  }
  return target;
}

}  // namespace troupe::engine::constraints
