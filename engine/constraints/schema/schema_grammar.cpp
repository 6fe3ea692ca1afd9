#include "engine/constraints/schema/schema_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "config/assert.h"
#include "engine/constraints/expressions/value_text.h"
#include "engine/constraints/schema/schema_numbers.h"

namespace troupe::engine::constraints {
namespace {

using chat::Json;
using Kind = SchemaNode::Kind;

constexpr std::size_t kMaxNamePatterns = 6;    // patternProperties of one object
constexpr std::uint32_t kMaxUniqueValues = 8;  // of the items of a list with uniqueItems
constexpr std::uint32_t kMaxOrderDepth = 64;

}  // namespace

SchemaGrammar::SchemaGrammar(Grammar& grammar, Json schema, const SchemaOptions& options)
    : grammar_(grammar),
      document_(std::move(schema)),
      values_(document_, grammar_.pool()),
      expansion_(document_, values_),
      python_(options.python),
      quote_text_(options.quote),
      writing_(options.quote.empty() ? Writing::json : Writing::plain) {
  pool().limit_work(options.max_work);
  if (!options.without.empty())
    without_ = pool().complement(pool().concat(std::vector{kAnyText, pool().literal(options.without), kAnyText}));
  quote_ = pool().literal(quote_text_.empty() ? "\"" : quote_text_);
  const RegexId plain = restricted(pool().repeat(character(pool(), CodePoints::all(), writing_), 0, kUnbounded));
  const bool may_escape = !python_ && writing_ == Writing::json;
  const RegexId free = may_escape ? restricted(pool().repeat(any_json_character(pool()), 0, kUnbounded)) : plain;
  plain_string_ = quoted(plain);
  free_string_ = quoted(free);
  const RegexId digit = pool().bytes(ByteSet::range('0', '9')), other_digit = pool().bytes(ByteSet::range('1', '9'));
  const RegexId digits = pool().repeat(digit, 0, kUnbounded);
  const RegexId whole = pool().either({pool().literal("0"), pool().concat(other_digit, digits)});
  const RegexId fraction = pool().concat(std::vector{pool().literal("."), digits, other_digit});
  const RegexId unsigned_number = pool().concat(whole, pool().optional(fraction));
  plain_number_ = pool().either({unsigned_number, pool().both({pool().concat(pool().literal("-"), unsigned_number),
                                                               pool().complement(pool().literal("-0"))})});
  if (options.spaces) {
    const RegexId indent = pool().repeat(pool().bytes(ByteSet::of(' ') | ByteSet::of('\t')), 0, 40);
    space_ = pool().optional(pool().either({pool().literal(" "), pool().concat(pool().literal("\n"), indent)}));
  }
}

RuleId SchemaGrammar::add(std::uint8_t types) {
  const SchemaId root = document_.all_of({document_.root(), document_.of_types(types)});
  const RuleId rule = rule_of(SchemaExpansion::key_of({root}));
  build_left();
  return rule;
}

void SchemaGrammar::build_left() {
  while (!left_.empty()) {
    const auto [parts, next] = std::move(left_.front());
    left_.pop_front();
    build(parts, next);
  }
}

std::string SchemaGrammar::text_of(const Json& value) const {
  if (quote_text_.empty()) return value_text(value);
  if (value.text() != nullptr) return quote_text_ + *value.text() + quote_text_;
  std::string text;
  if (const Json::List* const list = value.list()) {
    for (const Json& item : *list) text += std::string(text.empty() ? "" : ",") + text_of(item);
    return '[' + text + ']';
  }
  if (const Json::Object* const object = value.object()) {
    for (const auto& [name, member] : *object)
      text += std::string(text.empty() ? "" : ",") + name_of(name) + ':' + text_of(member);
    return '{' + text + '}';
  }
  return value_text(value);
}

std::string SchemaGrammar::name_of(const std::string& name) const {
  return !quote_text_.empty() && is_identifier(name) ? name : text_of(Json(name));
}

RegexId SchemaGrammar::restricted(RegexId text) { return without_ == kAnyText ? text : pool().both({text, without_}); }

std::vector<SchemaMembers> SchemaGrammar::add_members() {
  const Key root = SchemaExpansion::key_of({document_.root(), document_.of_types(json_type::object)});
  const std::vector<std::string> order = names_of(root);
  std::vector<SchemaMembers> alternatives;
  const std::vector<Conjunction> all_alternatives = expansion_.of(root);
  for (const Conjunction& all : all_alternatives) {
    if (all.values) throw SchemaRefused("enum", path_of(all), "objects that are listed are not supported here");
    if ((all.types & json_type::object) == 0) continue;
    const std::vector<std::string> required = expansion_.required(all);
    SchemaMembers members;
    bool is_possible = true;
    for (const std::string& name : order) {
      const bool is_required = std::ranges::find(required, name) != required.end();
      SchemaMember member = member_of(all, name, is_required);
      const bool has_value = member.text != kNoText || member.other;
      is_possible = is_possible && (has_value || !is_required);
      if (has_value) members.push_back(std::move(member));
    }
    for (const SchemaId leaf : all.leaves) {
      const SchemaNode& node = document_.node(leaf);
      if (node.kind != Kind::source) continue;
      if (count_of(node, "minProperties").value_or(0) > required.size())
        throw SchemaRefused("minProperties", node.path, "minProperties above the number of required is not supported");
      if (count_of(node, "maxProperties").value_or(kUnbounded) < members.size())
        throw SchemaRefused("maxProperties", node.path,
                            "maxProperties below the number of properties is not supported");
      for (const char* const keyword : {"propertyNames", "patternProperties"})
        if (node.json->find(keyword) != nullptr)
          throw SchemaRefused(keyword, node.path, fmt::format("{} is not supported here", keyword));
    }
    if (is_possible) alternatives.push_back(std::move(members));
  }
  build_left();
  return alternatives;
}

// A member's texts, and the rule of its other values.
SchemaMember SchemaGrammar::member_of(const Conjunction& all, const std::string& name, bool is_required) {
  const std::vector<SchemaId> parts = expansion_.member(all, name);
  SchemaMember member{.name = name, .is_required = is_required};
  const Key key = SchemaExpansion::key_of(parts);
  if (std::ranges::binary_search(key, kNothing)) return member;
  if (python_ || !quote_text_.empty()) {
    member.other = rule_of(key);
    return member;
  }
  std::vector<RegexId> texts;
  bool has_other = false;
  const std::vector<Conjunction> alternatives = expansion_.of(key);
  for (const Conjunction& each : alternatives) {
    if (each.values) {
      for (const Json* const value : *each.values) {
        if (value->text() != nullptr)
          texts.push_back(pool().literal(*value->text()));
        else
          has_other = true;
      }
      continue;
    }
    if ((each.types & json_type::string) != 0) texts.push_back(characters(each, Writing::plain));
    has_other = has_other || (each.types & ~json_type::string) != 0;
  }
  member.text = restricted(pool().either(std::move(texts)));
  if (pool().shortest(member.text) == RegexPool::kNoLength) member.text = kNoText;
  if (!has_other) return member;
  std::vector<SchemaId> others = parts;
  others.push_back(document_.of_types(json_type::all & ~json_type::string));
  member.other = rule_of(SchemaExpansion::key_of(std::move(others)));
  return member;
}

RuleId SchemaGrammar::rule_of(const Key& parts) {
  const auto [found, is_new] = rules_.try_emplace(parts, 0);
  if (is_new) {
    found->second = grammar_.add_rule();
    left_.emplace_back(parts, found->second);
  }
  return found->second;
}

std::string SchemaGrammar::path_of(const Conjunction& all) const {
  for (const SchemaId leaf : all.leaves)
    if (const SchemaNode& node = document_.node(leaf); node.kind == Kind::source) return node.path;
  return {};
}

void SchemaGrammar::build(const Key& parts, RuleId rule) {
  const NodeId begin = grammar_.begin_of(rule), end = grammar_.add_node();
  grammar_.set_end(end);
  std::vector<RegexId> texts;  // what needs no rule of its own
  const std::vector<std::string> order = names_of(parts);
  for (const Conjunction& all : expansion_.of(parts)) {
    if (all.values) {
      for (const Json* const value : *all.values) texts.push_back(pool().literal(text_of(*value)));
      continue;
    }
    build_values(all, texts);
    if ((all.types & json_type::array) != 0) build_array(all, begin, end);
    if ((all.types & json_type::object) != 0) build_object(all, order, begin, end);
  }
  grammar_.add_text(begin, pool().either(std::move(texts)), end);
}

void SchemaGrammar::build_values(const Conjunction& all, std::vector<RegexId>& texts) {
  std::vector<std::pair<std::uint8_t, Json>> simple{
      {json_type::null, Json()}, {json_type::boolean, Json(false)}, {json_type::boolean, Json(true)}};
  for (const auto& each : simple) {
    const Json& value = each.second;
    if ((all.types & each.first) == 0) continue;
    const bool is_excluded = std::ranges::any_of(all.leaves, [&](SchemaId leaf) {
      return document_.node(leaf).kind == Kind::not_values && !values_.matches(leaf, value);
    });
    if (is_excluded) continue;
    texts.push_back(pool().literal(value_text(value)));
    if (python_)
      texts.push_back(pool().literal(each.first == json_type::null ? "None" : is_true(&value) ? "True" : "False"));
  }
  for (const SchemaId leaf : all.leaves) {
    const SchemaNode& node = document_.node(leaf);
    if (node.kind != Kind::not_values) continue;
    for (const Json& value : *node.json->list())
      if ((value.list() != nullptr || value.object() != nullptr) && (type_of(value) & all.types) != 0)
        throw SchemaRefused("not", node.path, "lists and objects as values that are excluded are not supported");
  }
  if ((all.types & json_type::number) != 0) texts.push_back(number(all));
  if ((all.types & json_type::string) != 0) texts.push_back(string(all));
}

RegexId SchemaGrammar::number(const Conjunction& all) {
  NumberRange range;
  range.integer = (all.types & json_type::fraction) == 0;
  std::vector<RegexId> excluded;
  const auto texts_of = [&](const NumberRange& of) {
    Result<RegexId> texts = number_texts(pool(), of);
    if (!texts) throw SchemaRefused("multipleOf", path_of(all), texts.error().message);
    return *texts;
  };
  for (const SchemaId leaf : all.leaves) {
    const SchemaNode& node = document_.node(leaf);
    if (node.kind == Kind::source) narrow(range, node);
    if (node.kind == Kind::not_values)
      for (const Json& value : *node.json->list())
        if ((type_of(value) & json_type::number) != 0) excluded.push_back(pool().literal(value_text(value)));
    if (node.kind == Kind::not_multiple) {
      NumberRange multiples;
      if (const auto step = decimal_of(*node.json)) multiples.multiples_of.push_back(*step);
      excluded.push_back(texts_of(multiples));
    }
  }
  if ((all.types & json_type::integer) == 0) {
    NumberRange integers;
    integers.integer = true;
    excluded.push_back(texts_of(integers));
  }
  const RegexId texts = texts_of(range);
  if (excluded.empty()) return texts;
  return pool().both({texts, plain_number_, pool().complement(pool().either(std::move(excluded)))});
}

RegexId SchemaGrammar::string(const Conjunction& all) { return quoted(characters(all, writing_)); }

// A string without its quotes.
RegexId SchemaGrammar::characters(const Conjunction& all, Writing writing) {
  std::vector<RegexId> conditions;
  std::uint32_t min = 0, max = kUnbounded;
  for (const SchemaId leaf : all.leaves) {
    const SchemaNode& node = document_.node(leaf);
    values_.add_conditions(leaf, writing, conditions);
    if (node.kind != Kind::source) continue;
    min = std::max(min, count_of(node, "minLength").value_or(0));
    max = std::min(max, count_of(node, "maxLength").value_or(kUnbounded));
  }
  if (min > max) return kNoText;
  const bool may_escape = conditions.empty() && writing == Writing::json && !python_;
  const RegexId one = may_escape ? any_json_character(pool()) : character(pool(), CodePoints::all(), writing);
  conditions.push_back(pool().repeat(one, min, max));
  return restricted(pool().both(std::move(conditions)));
}

void SchemaGrammar::build_array(const Conjunction& all, NodeId begin, NodeId end) {
  std::uint32_t min = 0, max = kUnbounded, num_first = 0, min_contained = 0;
  bool is_unique = false;
  std::vector<SchemaId> contained;
  for (const SchemaId leaf : all.leaves) {
    const SchemaNode node = document_.node(leaf);
    if (node.kind == Kind::contains) {
      contained.push_back(node.parts[0]);
      min_contained = 1;
    }
    if (node.kind != Kind::source) continue;
    min = std::max(min, count_of(node, "minItems").value_or(0));
    max = std::min(max, count_of(node, "maxItems").value_or(kUnbounded));
    is_unique = is_unique || is_true(node.json->find("uniqueItems"));
    for (const char* const keyword : {"items", "prefixItems"})
      if (const Json* const list = node.json->find(keyword); list != nullptr && list->list() != nullptr)
        num_first = std::max(num_first, static_cast<std::uint32_t>(list->list()->size()));
    if (const Json* const one = node.json->find("contains")) {
      const std::uint32_t count = count_of(node, "minContains").value_or(1);
      if (node.json->find("maxContains") != nullptr)
        throw SchemaRefused("maxContains", node.path, "maxContains is not supported");
      if (count == 0) continue;
      contained.push_back(document_.child(leaf, *one, "contains"));
      min_contained = std::max(min_contained, count);
    }
  }
  if (contained.size() > 1)
    throw SchemaRefused("contains", path_of(all), "more than one `contains` for a list is not supported");
  if (min > max) return;
  // Nodes behind the bracket: by the items so far and those of them that are contained.
  const NodeId open = grammar_.add_node();
  grammar_.add_text(begin, pool().concat(pool().literal("["), space_), open);
  if (is_unique && max > 1) {
    if (!contained.empty() || num_first > 0)
      throw SchemaRefused("uniqueItems", path_of(all), "uniqueItems beside contains or prefixItems is not supported");
    return build_unique(all, min, max, open, end);
  }
  const RegexId close = pool().concat(space_, pool().literal("]"));
  const RegexId comma = pool().concat(std::vector{space_, pool().literal(","), space_});
  // Up to here items are counted; behind it all are alike.
  const std::uint32_t counted = std::max({min, num_first, max == kUnbounded ? 0 : max});
  std::vector<NodeId> at{open};
  for (std::uint32_t index = 0;; ++index) {
    for (std::uint32_t count = 0; count < at.size(); ++count)
      if (index >= min && count >= min_contained) grammar_.add_text(at[count], close, end);
    if (index >= max) return;
    // From the last node on, a loop: an item leads back, but the first, which has no comma before it.
    const bool is_loop = index >= counted && index > 0;
    std::vector<NodeId> next;
    const std::uint32_t most = std::min(min_contained, index + 1);
    for (std::uint32_t count = 0; count <= most; ++count)
      next.push_back(is_loop && count < at.size() ? at[count] : grammar_.add_node());
    const Key plain = SchemaExpansion::key_of(expansion_.item(all, index));
    for (std::uint32_t count = 0; count < at.size(); ++count) {
      NodeId from = at[count];
      if (index > 0) {
        from = grammar_.add_node();
        grammar_.add_text(at[count], comma, from);
      }
      grammar_.add_call(from, rule_of(plain), next[count]);
      if (min_contained > 0 && count < most) {
        std::vector<SchemaId> both = plain;
        both.push_back(contained.front());
        grammar_.add_call(from, rule_of(SchemaExpansion::key_of(std::move(both))), next[count + 1]);
      }
    }
    // A loop is whole once every count has its node.
    if (is_loop && next.size() == at.size()) return;
    at = std::move(next);
  }
}

// A list without doubles, of items that have few values: nodes by the values that were used.
void SchemaGrammar::build_unique(const Conjunction& all, std::uint32_t min, std::uint32_t max, NodeId open,
                                 NodeId end) {
  std::vector<std::string> values;
  const auto refuse = [&] {
    return SchemaRefused("uniqueItems", path_of(all),
                         fmt::format("uniqueItems is supported for items with at most {} values", kMaxUniqueValues));
  };
  for (const Conjunction& item : expansion_.of(SchemaExpansion::key_of(expansion_.item(all, 0)))) {
    if (item.values) {
      for (const Json* const value : *item.values) values.push_back(text_of(*value));
      continue;
    }
    if ((item.types & ~(json_type::null | json_type::boolean)) != 0) throw refuse();
    if ((item.types & json_type::null) != 0) values.emplace_back("null");
    if ((item.types & json_type::boolean) != 0) values.insert(values.end(), {"false", "true"});
  }
  std::ranges::sort(values);
  values.erase(std::unique(values.begin(), values.end()), values.end());
  if (values.size() > kMaxUniqueValues) throw refuse();
  const RegexId close = pool().concat(space_, pool().literal("]"));
  const RegexId comma = pool().concat(std::vector{space_, pool().literal(","), space_});
  std::vector<NodeId> nodes(std::size_t{1} << values.size());
  nodes[0] = open;
  for (std::size_t used = 1; used < nodes.size(); ++used) nodes[used] = grammar_.add_node();
  for (std::size_t used = 0; used < nodes.size(); ++used) {
    const auto count = static_cast<std::uint32_t>(std::popcount(used));
    if (count >= min && count <= max) grammar_.add_text(nodes[used], close, end);
    if (count >= max) continue;
    for (std::size_t at = 0; at < values.size(); ++at)
      if ((used >> at & 1) == 0) {
        const RegexId item = pool().literal(values[at]);
        grammar_.add_text(nodes[used], used == 0 ? item : pool().concat(comma, item),
                          nodes[used | std::size_t{1} << at]);
      }
  }
}

// The written names, quotes included, that a propertyNames schema allows.
RegexId SchemaGrammar::names_allowed(SchemaId names) {
  std::vector<RegexId> texts;
  for (const Conjunction& each :
       expansion_.of(SchemaExpansion::key_of({names, document_.of_types(json_type::string)}))) {
    if (each.values)
      for (const Json* const value : *each.values) texts.push_back(pool().literal(text_of(*value)));
    else if ((each.types & json_type::string) != 0)
      texts.push_back(string(each));
  }
  return pool().either(std::move(texts));
}

std::vector<SchemaGrammar::OtherMembers> SchemaGrammar::other_members(const Conjunction& all,
                                                                      const std::vector<std::string>& names) {
  std::vector<std::string> patterns;
  std::vector<RegexId> always{plain_string_};
  for (const SchemaId leaf : all.leaves) {
    const SchemaNode node = document_.node(leaf);
    if (node.kind != Kind::source) continue;
    if (const Json* const own = node.json->find("patternProperties"); own != nullptr && own->object() != nullptr)
      for (const auto& [text, schema] : *own->object())
        if (std::ranges::find(patterns, text) == patterns.end()) patterns.push_back(text);
    if (const Json* const allowed = node.json->find("propertyNames"))
      always.push_back(names_allowed(document_.child(leaf, *allowed, "propertyNames")));
  }
  if (patterns.size() > kMaxNamePatterns)
    throw SchemaRefused(
        "patternProperties", path_of(all),
        fmt::format("an object with more than {} patternProperties is not supported", kMaxNamePatterns));
  std::vector<RegexId> listed;
  for (const std::string& name : names) listed.push_back(pool().literal(text_of(Json(name))));
  if (!listed.empty()) always.push_back(pool().complement(pool().either(std::move(listed))));
  std::vector<OtherMembers> others;
  for (std::size_t which = 0; which < std::size_t{1} << patterns.size(); ++which) {
    std::vector<RegexId> conditions = always;
    for (std::size_t at = 0; at < patterns.size(); ++at) {
      const RegexId matching = quoted(values_.pattern(patterns[at], writing_, path_of(all)));
      conditions.push_back((which >> at & 1) != 0 ? matching : pool().complement(matching));
    }
    const RegexId name = conditions.size() == 1 ? free_string_ : pool().both(std::move(conditions));
    if (pool().shortest(name) == RegexPool::kNoLength) continue;
    std::vector<SchemaId> parts;
    for (const SchemaId leaf : all.leaves) {
      const SchemaNode node = document_.node(leaf);
      if (node.kind != Kind::source) continue;
      bool is_matched = false;
      if (const Json* const own = node.json->find("patternProperties"); own != nullptr && own->object() != nullptr)
        for (const auto& [text, schema] : *own->object()) {
          const auto at = static_cast<std::size_t>(std::ranges::find(patterns, text) - patterns.begin());
          if ((which >> at & 1) == 0) continue;
          is_matched = true;
          parts.push_back(document_.child(leaf, schema, "patternProperties/" + pointer_token(text)));
        }
      const Json* const additional = node.json->find("additionalProperties");
      if (!is_matched && additional != nullptr)
        parts.push_back(document_.child(leaf, *additional, "additionalProperties"));
    }
    Key key = SchemaExpansion::key_of(std::move(parts));
    if (!std::ranges::binary_search(key, kNothing)) others.push_back({name, std::move(key)});
  }
  return others;
}

void SchemaGrammar::build_object(const Conjunction& all, const std::vector<std::string>& order, NodeId begin,
                                 NodeId end) {
  std::uint32_t min = 0, max = kUnbounded;
  std::set<std::string> listed;
  for (const SchemaId leaf : all.leaves) {
    const SchemaNode& node = document_.node(leaf);
    if (node.kind == Kind::property) listed.insert(node.name);
    if (node.kind != Kind::source) continue;
    min = std::max(min, count_of(node, "minProperties").value_or(0));
    max = std::min(max, count_of(node, "maxProperties").value_or(kUnbounded));
    if (const Json* const properties = node.json->find("properties"); properties != nullptr) {
      if (properties->object() == nullptr) throw SchemaRefused("properties", node.path, "properties is no object");
      for (const auto& [name, schema] : *properties->object()) listed.insert(name);
    }
  }
  const std::vector<std::string> required = expansion_.required(all);
  listed.insert(required.begin(), required.end());
  if (min > max) return;
  std::vector<std::string> names;
  for (const std::string& name : order)
    if (listed.contains(name)) names.push_back(name);
  const std::vector<OtherMembers> others = other_members(all, names);
  if (min > required.size() + 1 && !others.empty())
    throw SchemaRefused(
        "minProperties", path_of(all),
        "minProperties above the number of required properties and one is not supported where others than those "
        "listed are allowed");

  // Nodes by the next listed name, and by the members so far as far as they count.
  const bool counts = min > 0 || max != kUnbounded;
  const std::uint32_t num_counts =
      counts ? 1 + std::max(min, max == kUnbounded ? 0 : std::min<std::uint32_t>(max, 100'000)) : 2;
  const NodeId open = grammar_.add_node();
  grammar_.add_text(begin, pool().concat(pool().literal("{"), space_), open);
  const RegexId close = pool().concat(space_, pool().literal("}"));
  const RegexId comma = pool().concat(std::vector{space_, pool().literal(","), space_});
  const RegexId colon = pool().concat(pool().literal(":"), space_);
  // The count behind one more member; num_counts if there may be none.
  const auto one_more = [&](std::uint32_t count) -> std::uint32_t {
    if (!counts) return 1;
    return max == kUnbounded ? std::min(count + 1, num_counts - 1) : count + 1;
  };
  std::vector<NodeId> at(num_counts);
  at[0] = open;
  for (std::uint32_t count = 1; count < num_counts; ++count) at[count] = grammar_.add_node();
  const auto add_member = [&](std::uint32_t count, NodeId from, RegexId name, const Key& value, NodeId target) {
    const NodeId middle = grammar_.add_node();
    const std::vector<RegexId> before{count == 0 ? kEmptyText : comma, name, colon};
    grammar_.add_text(from, pool().concat(before), middle);
    grammar_.add_call(middle, rule_of(value), target);
  };
  for (std::size_t place = 0; place < names.size(); ++place) {
    const Key value = SchemaExpansion::key_of(expansion_.member(all, names[place]));
    const bool is_required = std::ranges::find(required, names[place]) != required.end();
    const bool is_forbidden = std::ranges::binary_search(value, kNothing);
    if (is_forbidden && is_required) return;  // no such object
    if (is_forbidden) continue;
    std::vector<NodeId> next(num_counts);
    // Only as many counts as members can have come.
    const std::uint32_t reachable = std::min<std::uint32_t>(num_counts, static_cast<std::uint32_t>(place) + 2);
    for (std::uint32_t count = 0; count < num_counts; ++count) next[count] = grammar_.add_node();
    const RegexId name = pool().literal(name_of(names[place]));
    for (std::uint32_t count = 0; count < reachable; ++count) {
      if (!is_required) grammar_.add_nothing(at[count], next[count]);
      if (const std::uint32_t more = one_more(count); more < num_counts)
        add_member(count, at[count], name, value, next[more]);
    }
    at = std::move(next);
  }
  for (std::uint32_t count = 0; count < num_counts; ++count)
    if (count >= min || !counts) grammar_.add_text(at[count], close, end);
  if (others.empty()) return;
  // Others. A name may come twice, and then its last value counts: only the first is sure to be one more.
  std::vector<NodeId> behind(num_counts);
  for (std::uint32_t count = 0; count < num_counts; ++count) behind[count] = grammar_.add_node();
  for (const OtherMembers& other : others)
    for (std::uint32_t count = 0; count < num_counts; ++count) {
      const std::uint32_t more = one_more(count);
      if (more >= num_counts) continue;
      add_member(count, at[count], other.name, other.value, behind[more]);
      if (count > 0)
        add_member(count, behind[count], other.name, other.value, behind[max == kUnbounded ? count : more]);
    }
  // With a largest number all members are counted, and the smallest is met by the listed ones and one other.
  for (std::uint32_t count = 0; count < num_counts; ++count)
    if (count >= min || !counts) grammar_.add_text(behind[count], close, end);
}

void SchemaGrammar::collect_leaves(const Key& parts, std::vector<SchemaId>& leaves) {
  std::deque<SchemaId> left(parts.begin(), parts.end());
  std::set<SchemaId> seen;
  while (!left.empty()) {
    const SchemaId id = left.front();
    left.pop_front();
    if (!seen.insert(id).second || seen.size() > 10'000) continue;
    const SchemaNode node = document_.node(id);
    if (node.kind == Kind::source) {
      leaves.push_back(id);
      for (const SchemaId condition : document_.conditions_of(id)) left.push_back(condition);
    } else if (node.kind == Kind::property || node.kind == Kind::contains || node.kind == Kind::items) {
      leaves.push_back(id);
    } else if (node.kind == Kind::negation) {
      for (const SchemaId each : document_.alternatives_of_negation(id)) left.push_back(each);
    } else {
      left.insert(left.end(), node.parts.begin(), node.parts.end());
    }
  }
}

std::vector<std::string> SchemaGrammar::names_of(const Key& parts) {
  std::vector<SchemaId> leaves;
  collect_leaves(parts, leaves);
  std::vector<std::string> names, required;
  std::set<std::string> seen;
  for (const SchemaId leaf : leaves) {
    const SchemaNode& node = document_.node(leaf);
    if (node.kind == Kind::property && seen.insert(node.name).second) names.push_back(node.name);
    if (node.kind != Kind::source) continue;
    if (const Json* const properties = node.json->find("properties");
        properties != nullptr && properties->object() != nullptr)
      for (const auto& [name, schema] : *properties->object())
        if (seen.insert(name).second) names.push_back(name);
    if (const Json* const list = node.json->find("required"); list != nullptr && list->list() != nullptr)
      for (const Json& name : *list->list())
        if (name.text() != nullptr) required.push_back(*name.text());
  }
  for (const std::string& name : required)
    if (seen.insert(name).second) names.push_back(name);
  return names;
}

Json SchemaGrammar::ordered(const Key& parts, const Json& value, std::size_t depth) {
  if (depth > kMaxOrderDepth) return value;
  std::vector<SchemaId> leaves;
  collect_leaves(parts, leaves);
  // A value that is listed is written as it is listed.
  for (const SchemaId leaf : leaves) {
    const SchemaNode& node = document_.node(leaf);
    if (node.kind != Kind::source) continue;
    if (const Json* const only = node.json->find("const"); only != nullptr && equal_values(*only, value)) return *only;
    if (const Json* const list = node.json->find("enum"); list != nullptr && list->list() != nullptr)
      for (const Json& each : *list->list())
        if (equal_values(each, value)) return each;
  }
  Conjunction loose;
  loose.leaves = leaves;
  if (const Json::List* const list = value.list()) {
    Json::List items;
    for (std::size_t at = 0; at < list->size(); ++at)
      items.push_back(ordered(SchemaExpansion::key_of(expansion_.item(loose, at)), (*list)[at], depth + 1));
    return Json(std::move(items));
  }
  if (value.object() == nullptr) return value;
  Json::Object members;
  const std::vector<std::string> names = names_of(parts);
  const auto add = [&](const std::string& name, const Json& member) {
    members.emplace_back(name, ordered(SchemaExpansion::key_of(expansion_.member(loose, name)), member, depth + 1));
  };
  for (const std::string& name : names)
    if (const Json* const member = value.find(name)) add(name, *member);
  for (const auto& [name, member] : *value.object())
    if (std::ranges::find(names, name) == names.end()) add(name, member);
  return Json(std::move(members));
}

}  // namespace troupe::engine::constraints
