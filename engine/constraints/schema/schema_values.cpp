#include "engine/constraints/schema/schema_values.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/constraints/expressions/formats.h"
#include "engine/constraints/expressions/numbers.h"
#include "engine/constraints/expressions/pattern.h"
#include "engine/constraints/schema/schema_numbers.h"

namespace troupe::engine::constraints {
namespace {

using chat::Json;
using Kind = SchemaNode::Kind;

constexpr std::size_t kMaxValidationDepth = 500;

std::size_t characters_of(const std::string& text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, [](char each) { return (each & 0xC0) != 0x80; }));
}

}  // namespace

bool equal_values(const Json& first, const Json& second) {
  const auto first_number = decimal_of(first), second_number = decimal_of(second);
  if (first_number || second_number) return first_number && second_number && *first_number == *second_number;
  if (first.value.index() != second.value.index()) return false;
  if (const Json::List* const list = first.list())
    return std::ranges::equal(*list, *second.list(), [](const Json& a, const Json& b) { return equal_values(a, b); });
  if (const Json::Object* const object = first.object())
    return object->size() == second.object()->size() && std::ranges::all_of(*object, [&](const auto& member) {
             const Json* const other = second.find(member.first);
             return other != nullptr && equal_values(member.second, *other);
           });
  if (const std::string* const text = first.text()) return *text == *second.text();
  if (const bool* const flag = std::get_if<bool>(&first.value)) return *flag == std::get<bool>(second.value);
  return true;
}

RegexId SchemaValues::pattern(const std::string& text, Writing writing, const std::string& path) {
  const std::string key = (writing == Writing::json ? "j" : "p") + text;
  if (const auto found = patterns_.find(key); found != patterns_.end()) return found->second;
  const Result<RegexId> parsed = parse_pattern(*pool_, text, writing, PatternExtent::somewhere);
  if (!parsed) throw SchemaRefused("pattern", path, parsed.error().message);
  return patterns_[key] = *parsed;
}

RegexId SchemaValues::format(const std::string& name, Writing writing) {
  const std::string key = (writing == Writing::json ? "J" : "P") + name;
  if (const auto found = patterns_.find(key); found != patterns_.end()) return found->second;
  const std::optional<RegexId> texts = format_texts(*pool_, name, writing);
  return patterns_[key] = texts.value_or(kAnyText);
}

void SchemaValues::add_conditions(SchemaId leaf, Writing writing, std::vector<RegexId>& into) {
  const SchemaNode& node = document_->node(leaf);
  switch (node.kind) {
    case Kind::source:
      if (const Json* const text = node.json->find("pattern")) {
        if (text->text() == nullptr) throw SchemaRefused("pattern", node.path, "pattern is no text");
        into.push_back(pattern(*text->text(), writing, node.path));
      }
      if (const Json* const name = node.json->find("format"); name != nullptr && name->text() != nullptr)
        if (const RegexId texts = format(*name->text(), writing); texts != kAnyText) into.push_back(texts);
      break;
    case Kind::not_pattern:
      into.push_back(pool_->complement(pattern(node.name, writing, node.path)));
      break;
    case Kind::not_format:
      into.push_back(pool_->complement(format(node.name, writing)));
      break;
    case Kind::not_values: {
      std::vector<RegexId> texts;
      for (const Json& value : *node.json->list())
        if (value.text() != nullptr) texts.push_back(pool_->literal(written(*value.text(), writing)));
      if (!texts.empty()) into.push_back(pool_->complement(pool_->either(std::move(texts))));
      break;
    }
    default:
      break;
  }
}

bool SchemaValues::matches(SchemaId id, const Json& value) {
  const SchemaNode& node = document_->node(id);
  const auto each = [&](SchemaId part) { return matches(part, value); };
  if (depth_ >= kMaxValidationDepth) throw SchemaRefused("$ref", node.path, "it refers to itself without an end");
  struct Level {
    std::size_t& depth;
    explicit Level(std::size_t& counted) : depth(counted) { ++depth; }
    ~Level() { --depth; }
  } level(depth_);
  switch (node.kind) {
    case Kind::everything:
      return true;
    case Kind::nothing:
      return false;
    case Kind::source:
      return matches_source(id, value);
    case Kind::negation:
      return !matches(node.parts[0], value);
    case Kind::all:
      return std::ranges::all_of(node.parts, each);
    case Kind::any:
      return std::ranges::any_of(node.parts, each);
    case Kind::one_of:
      return std::ranges::count_if(node.parts, each) == 1;
    case Kind::types:
      return (node.types & type_of(value)) != 0;
    case Kind::property: {
      const Json* const member = value.object() == nullptr ? nullptr : value.find(node.name);
      return member == nullptr || matches(node.parts[0], *member);
    }
    case Kind::contains:
      return value.list() == nullptr ||
             std::ranges::any_of(*value.list(), [&](const Json& item) { return matches(node.parts[0], item); });
    case Kind::items:
      return value.list() == nullptr ||
             std::ranges::all_of(*value.list(), [&](const Json& item) { return matches(node.parts[0], item); });
    case Kind::not_values:
      return std::ranges::none_of(*node.json->list(), [&](const Json& other) { return equal_values(value, other); });
    case Kind::not_pattern:
      return value.text() != nullptr && !pool_->matches(pattern(node.name, Writing::plain, node.path), *value.text());
    case Kind::not_format:
      return value.text() != nullptr && !pool_->matches(format(node.name, Writing::plain), *value.text());
    case Kind::not_multiple: {
      const auto number = decimal_of(value), step = decimal_of(*node.json);
      NumberRange range;
      if (step) range.multiples_of.push_back(*step);
      return number && !contains(range, *number);
    }
  }
  return true;
}

bool SchemaValues::matches_source(SchemaId id, const Json& value) {
  const std::vector<SchemaId> conditions = document_->conditions_of(id);
  if (!std::ranges::all_of(conditions, [&](SchemaId part) { return matches(part, value); })) return false;
  const SchemaNode& node = document_->node(id);
  if (node.ref_alone) return true;
  if (const Json* const type = node.json->find("type");
      type != nullptr && (types_named(*type, node.path) & type_of(value)) == 0)
    return false;
  if (const Json* const list = node.json->find("enum"))
    if (list->list() == nullptr ||
        std::ranges::none_of(*list->list(), [&](const Json& each) { return equal_values(each, value); }))
      return false;
  if (const Json* const only = node.json->find("const"); only != nullptr && !equal_values(*only, value)) return false;
  if (const auto number = decimal_of(value)) {
    NumberRange range;
    narrow(range, node);
    return contains(range, *number);
  }
  if (value.text() != nullptr) return matches_string(node, *value.text());
  if (value.list() != nullptr) return matches_array(id, *value.list());
  return value.object() == nullptr || matches_object(id, *value.object());
}

bool SchemaValues::matches_string(const SchemaNode& node, const std::string& text) {
  const std::size_t length = characters_of(text);
  if (length < count_of(node, "minLength").value_or(0) || length > count_of(node, "maxLength").value_or(UINT32_MAX))
    return false;
  if (const Json* const written = node.json->find("pattern"); written != nullptr && written->text() != nullptr)
    if (!pool_->matches(pattern(*written->text(), Writing::plain, node.path), text)) return false;
  if (const Json* const name = node.json->find("format"); name != nullptr && name->text() != nullptr)
    if (!pool_->matches(format(*name->text(), Writing::plain), text)) return false;
  return true;
}

bool SchemaValues::matches_array(SchemaId id, const Json::List& list) {
  const SchemaNode& node = document_->node(id);
  if (list.size() < count_of(node, "minItems").value_or(0) ||
      list.size() > count_of(node, "maxItems").value_or(UINT32_MAX))
    return false;
  const Json* const items = node.json->find("items");
  const bool is_old = items != nullptr && items->list() != nullptr;
  const Json* const first = is_old ? items : node.json->find("prefixItems");
  const std::size_t num_first = first == nullptr || first->list() == nullptr ? 0 : first->list()->size();
  const Json* const rest = is_old ? node.json->find("additionalItems") : items;
  for (std::size_t at = 0; at < list.size(); ++at) {
    const Json* const schema = at < num_first ? &(*first->list())[at] : rest;
    if (schema == nullptr) continue;
    const SchemaId item =
        document_->child(id, *schema, at < num_first ? fmt::format("items/{}", at) : std::string("items"));
    if (!matches(item, list[at])) return false;
  }
  if (is_true(node.json->find("uniqueItems")))
    for (std::size_t at = 0; at < list.size(); ++at)
      for (std::size_t other = 0; other < at; ++other)
        if (equal_values(list[at], list[other])) return false;
  if (const Json* const contained = node.json->find("contains")) {
    const SchemaId one = document_->child(id, *contained, "contains");
    const auto count =
        static_cast<std::size_t>(std::ranges::count_if(list, [&](const Json& item) { return matches(one, item); }));
    if (count < count_of(node, "minContains").value_or(1) || count > count_of(node, "maxContains").value_or(UINT32_MAX))
      return false;
  }
  return true;
}

bool SchemaValues::matches_object(SchemaId id, const Json::Object& object) {
  const SchemaNode& node = document_->node(id);
  if (object.size() < count_of(node, "minProperties").value_or(0) ||
      object.size() > count_of(node, "maxProperties").value_or(UINT32_MAX))
    return false;
  const auto has = [&](const std::string& name) {
    return std::ranges::any_of(object, [&](const auto& member) { return member.first == name; });
  };
  if (const Json* const required = node.json->find("required"); required != nullptr && required->list() != nullptr)
    for (const Json& name : *required->list())
      if (name.text() != nullptr && !has(*name.text())) return false;
  const Json *const properties = node.json->find("properties"), *const patterns = node.json->find("patternProperties"),
                    *const additional = node.json->find("additionalProperties"),
                    *const names = node.json->find("propertyNames");
  for (const auto& [name, value] : object) {
    bool is_named = false;
    if (const Json* const schema = properties == nullptr ? nullptr : properties->find(name)) {
      is_named = true;
      if (!matches(document_->child(id, *schema, "properties/" + pointer_token(name)), value)) return false;
    }
    if (patterns != nullptr && patterns->object() != nullptr)
      for (const auto& [text, schema] : *patterns->object()) {
        if (!pool_->matches(pattern(text, Writing::plain, node.path), name)) continue;
        is_named = true;
        if (!matches(document_->child(id, schema, "patternProperties/" + pointer_token(text)), value)) return false;
      }
    if (!is_named && additional != nullptr &&
        !matches(document_->child(id, *additional, "additionalProperties"), value))
      return false;
    if (names != nullptr && !matches(document_->child(id, *names, "propertyNames"), Json(name))) return false;
  }
  return true;
}

}  // namespace troupe::engine::constraints
