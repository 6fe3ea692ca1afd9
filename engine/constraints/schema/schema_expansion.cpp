#include "engine/constraints/schema/schema_expansion.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "engine/constraints/schema/schema_numbers.h"

namespace troupe::engine::constraints {
namespace {

using chat::Json;
using Kind = SchemaNode::Kind;

// How deep members are looked into to tell alternatives apart.
constexpr std::size_t kDisjointDepth = 4;

}  // namespace

// An alternative that is not taken apart to its end.
struct SchemaExpansion::Open {
  Conjunction made;
  std::deque<SchemaId> left;
  std::vector<SchemaId> seen;                  // ascending
  std::vector<std::vector<SchemaId>> choices;  // one part of each is still to be added
};

SchemaExpansion::Key SchemaExpansion::key_of(std::vector<SchemaId> parts) {
  std::sort(parts.begin(), parts.end());
  parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
  std::erase(parts, kEverything);
  return parts;
}

const std::vector<Conjunction>& SchemaExpansion::of(const Key& parts) {
  if (const auto found = known_.find(parts); found != known_.end()) return found->second;
  Open open;
  open.left.assign(parts.begin(), parts.end());
  std::vector<Conjunction> alternatives;
  expand(std::move(open), alternatives);
  return known_[parts] = std::move(alternatives);
}

void SchemaExpansion::expand(Open first, std::vector<Conjunction>& into) {
  std::vector<Open> open;
  open.push_back(std::move(first));
  while (!open.empty()) {
    if (++num_made_ > kMaxConjunctions)
      throw ConstraintLimit(fmt::format("its alternatives combine in more than {} ways", kMaxConjunctions));
    Open each = std::move(open.back());
    open.pop_back();
    bool is_possible = true;
    while (is_possible && !each.left.empty()) {
      const SchemaId id = each.left.front();
      each.left.pop_front();
      is_possible = take(each, id) && each.made.types != 0 && (!each.made.values || !each.made.values->empty());
    }
    if (!is_possible) continue;
    if (!each.choices.empty()) {
      const auto choice = std::ranges::min_element(each.choices, {}, &std::vector<SchemaId>::size);
      const std::vector<SchemaId> branches = *choice;
      each.choices.erase(choice);
      // The first is taken up first.
      for (std::size_t at = branches.size(); at-- > 0;) {
        Open with = each;
        with.left.push_back(branches[at]);
        open.push_back(std::move(with));
      }
      continue;
    }
    if (each.made.values)
      std::erase_if(*each.made.values, [&](const Json* value) {
        return (type_of(*value) & each.made.types) == 0 ||
               !std::ranges::all_of(each.made.leaves, [&](SchemaId leaf) { return values_->matches(leaf, *value); });
      });
    if (each.made.values && each.made.values->empty()) continue;
    into.push_back(std::move(each.made));
    if (into.size() > kMaxAlternatives)
      throw ConstraintLimit(fmt::format("a part of it has more than {} alternatives", kMaxAlternatives));
  }
}

// Adds a part; false if nothing can meet it beside the others.
bool SchemaExpansion::take(Open& open, SchemaId id) {
  const auto place = std::lower_bound(open.seen.begin(), open.seen.end(), id);
  if (place != open.seen.end() && *place == id) return true;
  open.seen.insert(place, id);
  const SchemaNode& node = document_->node(id);
  switch (node.kind) {
    case Kind::everything:
      return true;
    case Kind::nothing:
      return false;
    case Kind::source:
      return take_source(open, id);
    case Kind::types:
      open.made.types &= node.types;
      return true;
    case Kind::all:
      open.left.insert(open.left.end(), node.parts.begin(), node.parts.end());
      return true;
    case Kind::any:
      open.choices.push_back(node.parts);
      return true;
    case Kind::one_of:
      open.choices.push_back(exactly_one(node));
      return true;
    case Kind::negation: {
      std::vector<SchemaId> alternatives = document_->alternatives_of_negation(id);
      if (alternatives.size() == 1)
        open.left.push_back(alternatives.front());
      else
        open.choices.push_back(std::move(alternatives));
      return true;
    }
    case Kind::not_pattern:
    case Kind::not_format:
      open.made.types &= json_type::string;
      break;
    case Kind::not_multiple:
      open.made.types &= json_type::number;
      break;
    default:
      break;
  }
  open.made.leaves.push_back(id);
  return true;
}

bool SchemaExpansion::take_source(Open& open, SchemaId id) {
  for (const SchemaId condition : document_->conditions_of(id)) open.left.push_back(condition);
  const SchemaNode& node = document_->node(id);
  if (node.ref_alone) return true;
  if (const Json* const type = node.json->find("type")) open.made.types &= types_named(*type, node.path);
  const auto keep = [&](const Json* begin, std::size_t count) {
    std::vector<const Json*> kept;
    for (std::size_t at = 0; at < count; ++at) {
      const Json* const value = begin + at;
      const auto is_it = [&](const Json* other) { return equal_values(*value, *other); };
      if (open.made.values && std::ranges::none_of(*open.made.values, is_it)) continue;
      if (std::ranges::none_of(kept, is_it)) kept.push_back(value);
    }
    open.made.values = std::move(kept);
  };
  if (const Json* const list = node.json->find("enum")) {
    if (list->list() == nullptr) throw SchemaRefused("enum", node.path, "enum is no list of values");
    keep(list->list()->data(), list->list()->size());
  }
  if (const Json* const only = node.json->find("const")) keep(only, 1);
  open.made.leaves.push_back(id);
  return true;
}

// For each part: it, and none of those that a value could meet besides.
std::vector<SchemaId> SchemaExpansion::exactly_one(const SchemaNode& one_of) {
  const std::vector<SchemaId> parts = one_of.parts;
  std::vector<SchemaId> branches;
  for (std::size_t at = 0; at < parts.size(); ++at) {
    std::vector<SchemaId> all{parts[at]};
    for (std::size_t other = 0; other < parts.size(); ++other)
      if (other != at && !surely_empty(key_of({parts[at], parts[other]}), kDisjointDepth))
        all.push_back(document_->negation_of(parts[other]));
    branches.push_back(document_->all_of(std::move(all)));
  }
  return branches;
}

std::vector<SchemaId> SchemaExpansion::member(const Conjunction& all, const std::string& name) {
  std::vector<SchemaId> parts;
  for (const SchemaId leaf : all.leaves) {
    const SchemaNode node = document_->node(leaf);
    if (node.kind == Kind::property && node.name == name) parts.push_back(node.parts[0]);
    if (node.kind != Kind::source) continue;
    bool is_named = false;
    const Json *const properties = node.json->find("properties"), *const patterns =
                                                                      node.json->find("patternProperties");
    if (const Json* const schema = properties == nullptr ? nullptr : properties->find(name)) {
      is_named = true;
      parts.push_back(document_->child(leaf, *schema, "properties/" + pointer_token(name)));
    }
    if (patterns != nullptr && patterns->object() != nullptr)
      for (const auto& [text, schema] : *patterns->object())
        if (values_->pool().matches(values_->pattern(text, Writing::plain, node.path), name)) {
          is_named = true;
          parts.push_back(document_->child(leaf, schema, "patternProperties/" + pointer_token(text)));
        }
    const Json *const additional = node.json->find("additionalProperties"), *const names =
                                                                                node.json->find("propertyNames");
    if (!is_named && additional != nullptr)
      parts.push_back(document_->child(leaf, *additional, "additionalProperties"));
    if (names != nullptr && !values_->matches(document_->child(leaf, *names, "propertyNames"), Json(name)))
      parts.push_back(kNothing);
  }
  return parts;
}

std::vector<SchemaId> SchemaExpansion::item(const Conjunction& all, std::size_t index) {
  std::vector<SchemaId> parts;
  for (const SchemaId leaf : all.leaves) {
    const SchemaNode node = document_->node(leaf);
    if (node.kind == Kind::items) parts.push_back(node.parts[0]);
    if (node.kind != Kind::source) continue;
    const Json* const items = node.json->find("items");
    const bool is_old = items != nullptr && items->list() != nullptr;
    const Json* const first = is_old ? items : node.json->find("prefixItems");
    if (first != nullptr && first->list() != nullptr && index < first->list()->size())
      parts.push_back(document_->child(leaf, (*first->list())[index],
                                       fmt::format("{}/{}", is_old ? "items" : "prefixItems", index)));
    else if (const Json* const rest = is_old ? node.json->find("additionalItems") : items)
      parts.push_back(document_->child(leaf, *rest, is_old ? "additionalItems" : "items"));
  }
  return parts;
}

std::vector<std::string> SchemaExpansion::required(const Conjunction& all) const {
  std::vector<std::string> names;
  for (const SchemaId leaf : all.leaves) {
    const SchemaNode& node = document_->node(leaf);
    if (node.kind != Kind::source) continue;
    const Json* const required = node.json->find("required");
    if (required == nullptr || required->list() == nullptr) continue;
    for (const Json& name : *required->list()) {
      if (name.text() == nullptr) throw SchemaRefused("required", node.path, "required is a list of names");
      if (std::ranges::find(names, *name.text()) == names.end()) names.push_back(*name.text());
    }
  }
  return names;
}

bool SchemaExpansion::surely_empty(const Key& parts, std::size_t depth) {
  if (std::ranges::binary_search(parts, kNothing)) return true;
  if (depth == 0 || parts.empty()) return false;
  const auto key = std::pair(parts, depth);
  if (const auto found = emptiness_.find(key); found != emptiness_.end()) return found->second;
  emptiness_[key] = false;  // while it is asked within itself
  bool is_empty = false;
  try {
    const std::vector<Conjunction> alternatives = of(parts);
    is_empty = std::ranges::all_of(alternatives, [&](const Conjunction& each) { return surely_empty(each, depth); });
  } catch (const SchemaRefused&) {
    // Not known.
  }
  return emptiness_[key] = is_empty;
}

bool SchemaExpansion::surely_empty(const Conjunction& all, std::size_t depth) {
  if (all.values) return false;
  std::uint8_t types = all.types;
  if ((types & json_type::object) != 0)
    for (const std::string& name : required(all))
      if (surely_empty(key_of(member(all, name)), depth - 1)) {
        types &= static_cast<std::uint8_t>(~json_type::object);
        break;
      }
  NumberRange range;
  std::uint32_t min_length = 0, max_length = UINT32_MAX, min_items = 0, max_items = UINT32_MAX;
  for (const SchemaId leaf : all.leaves) {
    const SchemaNode& node = document_->node(leaf);
    if (node.kind != Kind::source) continue;
    narrow(range, node);
    min_length = std::max(min_length, count_of(node, "minLength").value_or(0));
    max_length = std::min(max_length, count_of(node, "maxLength").value_or(UINT32_MAX));
    min_items = std::max(min_items, count_of(node, "minItems").value_or(0));
    max_items = std::min(max_items, count_of(node, "maxItems").value_or(UINT32_MAX));
  }
  if (min_length > max_length) types &= static_cast<std::uint8_t>(~json_type::string);
  if (min_items > max_items || (min_items > 0 && surely_empty(key_of(item(all, 0)), depth - 1)))
    types &= static_cast<std::uint8_t>(~json_type::array);
  if (range.low && range.high &&
      (range.low->value > range.high->value ||
       (range.low->value == range.high->value && (range.low->excluded || range.high->excluded))))
    types &= static_cast<std::uint8_t>(~json_type::number);
  if ((types & json_type::string) != 0) {
    std::vector<RegexId> conditions;
    for (const SchemaId leaf : all.leaves) values_->add_conditions(leaf, Writing::plain, conditions);
    if (conditions.size() > 1 && values_->pool().shortest(values_->pool().both(conditions)) == RegexPool::kNoLength)
      types &= static_cast<std::uint8_t>(~json_type::string);
  }
  return types == 0;
}

}  // namespace troupe::engine::constraints
