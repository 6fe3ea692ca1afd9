#include "engine/constraints/schema/schema_document.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "config/assert.h"
#include "engine/constraints/expressions/formats.h"
#include "engine/constraints/expressions/numbers.h"

namespace troupe::engine::constraints {
namespace {

using chat::Json;
using Kind = SchemaNode::Kind;

constexpr std::size_t kMaxSchemaNodes = 100'000;

// Keywords whose value is an object of schemas, a list of schemas, or a schema.
constexpr std::string_view kMaps[] = {"properties",  "patternProperties", "$defs",
                                      "definitions", "dependentSchemas",  "dependencies"};
constexpr std::string_view kLists[] = {"allOf", "anyOf", "oneOf", "prefixItems", "items"};
constexpr std::string_view kSingle[] = {
    "items", "additionalItems",  "additionalProperties", "propertyNames", "contains", "not", "if", "then",
    "else",  "unevaluatedItems", "unevaluatedProperties"};

// A URI reference against a base (RFC 3986, section 5.2, without dot segments in the middle).
std::string resolved(const std::string& base, const std::string& reference) {
  if (reference.empty()) return base;
  const std::size_t colon = reference.find(':');
  if (colon != std::string::npos && reference.find_first_of("/?#") > colon) return reference;
  const std::string plain_base = base.substr(0, base.find('#'));
  if (reference.front() == '#') return plain_base + reference;
  const std::size_t scheme = plain_base.find("://");
  if (scheme == std::string::npos) {
    const std::size_t slash = plain_base.rfind('/');
    return reference.front() == '/' || slash == std::string::npos ? reference
                                                                  : plain_base.substr(0, slash + 1) + reference;
  }
  const std::size_t path = plain_base.find('/', scheme + 3);
  if (reference.front() == '/') return plain_base.substr(0, path) + reference;
  return (path == std::string::npos ? plain_base + "/" : plain_base.substr(0, plain_base.rfind('/') + 1)) + reference;
}

// A URI without an empty fragment.
std::string without_empty_fragment(std::string uri) {
  if (!uri.empty() && uri.back() == '#') uri.pop_back();
  return uri;
}

int hex_value(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  const char lower = static_cast<char>(digit | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

std::string percent_decoded(std::string_view text) {
  std::string decoded;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '%' && at + 2 < text.size() && hex_value(text[at + 1]) >= 0 && hex_value(text[at + 2]) >= 0) {
      decoded += static_cast<char>(hex_value(text[at + 1]) * 16 + hex_value(text[at + 2]));
      at += 2;
    } else {
      decoded += text[at];
    }
  }
  return decoded;
}

// Follows a JSON pointer (RFC 6901) and returns what it names; null if there is nothing.
const Json* at_pointer(const Json& root, std::string_view pointer) {
  const Json* at = &root;
  while (!pointer.empty()) {
    if (pointer.front() != '/') return nullptr;
    pointer.remove_prefix(1);
    const std::size_t end = std::min(pointer.find('/'), pointer.size());
    std::string token;
    for (std::size_t each = 0; each < end; ++each) {
      if (pointer[each] == '~' && each + 1 < end && (pointer[each + 1] == '0' || pointer[each + 1] == '1'))
        token += pointer[++each] == '0' ? '~' : '/';
      else
        token += pointer[each];
    }
    pointer.remove_prefix(end);
    if (const Json::List* const list = at->list()) {
      if (token.empty() || token.size() > 6 || token.find_first_not_of("0123456789") != std::string::npos)
        return nullptr;
      const std::size_t index = std::stoul(token);
      if (index >= list->size()) return nullptr;
      at = &(*list)[index];
    } else {
      at = at->find(token);
      if (at == nullptr) return nullptr;
    }
  }
  return at;
}

}  // namespace

std::string pointer_token(std::string_view name) {
  std::string token;
  for (const char each : name) {
    if (each == '~')
      token += "~0";
    else if (each == '/')
      token += "~1";
    else
      token += each;
  }
  return token;
}

bool is_true(const Json* value) {
  const bool* const flag = value == nullptr ? nullptr : std::get_if<bool>(&value->value);
  return flag != nullptr && *flag;
}

std::uint8_t type_of(const Json& value) {
  switch (value.value.index()) {
    case 0:
      return json_type::null;
    case 1:
      return json_type::boolean;
    case 5:
      return json_type::string;
    case 6:
      return json_type::array;
    case 7:
      return json_type::object;
    default:
      break;
  }
  if (const double* const number = std::get_if<double>(&value.value))
    return std::floor(*number) == *number ? json_type::integer : json_type::fraction;
  return json_type::integer;
}

std::uint8_t types_named(const Json& type, const std::string& path) {
  const auto one = [&](const Json& name) -> std::uint8_t {
    const std::string* const text = name.text();
    if (text != nullptr) {
      if (*text == "null") return json_type::null;
      if (*text == "boolean") return json_type::boolean;
      if (*text == "integer") return json_type::integer;
      if (*text == "number") return json_type::number;
      if (*text == "string") return json_type::string;
      if (*text == "array") return json_type::array;
      if (*text == "object") return json_type::object;
      if (*text == "any") return json_type::all;  // of draft 3, still written
    }
    throw SchemaRefused(
        "type", path,
        text == nullptr
            ? std::string("a type is a name or a list of names")
            : fmt::format("'{}' is no type (null, boolean, integer, number, string, array, object)", *text));
  };
  if (const Json::List* const list = type.list()) {
    std::uint8_t types = 0;
    for (const Json& each : *list) types = static_cast<std::uint8_t>(types | one(each));
    return types;
  }
  return one(type);
}

std::optional<std::uint32_t> count_of(const SchemaNode& source, std::string_view keyword) {
  const Json* const value = source.json->find(keyword);
  if (value == nullptr) return std::nullopt;
  const std::optional<Decimal> number = decimal_of(*value);
  if (!number || number->negative || !number->is_integer())
    throw SchemaRefused(std::string(keyword), source.path, fmt::format("{} is no whole number of at least 0", keyword));
  if (number->digits.size() > 9) return 1'000'000'000;
  return static_cast<std::uint32_t>(std::stoul(number->digits));
}

SchemaDocument::SchemaDocument(Json root) {
  (void)add({.kind = Kind::everything});
  (void)add({.kind = Kind::nothing});
  texts_.push_back(std::move(root));
  const Json& text = texts_.front();
  if (const Json* const draft = text.find("$schema"); draft != nullptr && draft->text() != nullptr)
    for (const std::string_view old : {"draft-03", "draft-04", "draft-05", "draft-06", "draft-07"})
      if (draft->text()->find(old) != std::string::npos) old_refs_ = true;
  bases_.emplace_back();
  resources_.emplace("", std::pair(&text, std::string()));
  find_resources(text, "", "", 0);
  const auto found = base_of_.find(&text);
  root_ = source(text, "", found == base_of_.end() ? 0 : found->second);
}

void SchemaDocument::find_resources(const Json& json, const std::string& outer, const std::string& path,
                                    std::size_t depth) {
  const Json::Object* const object = json.object();
  if (object == nullptr) return;
  std::string base = outer;
  for (const std::string_view keyword : {"$id", "id"}) {
    const Json* const id = json.find(keyword);
    if (id == nullptr || id->text() == nullptr || (old_refs_ && json.find("$ref") != nullptr)) continue;
    const std::string uri = without_empty_fragment(resolved(base, *id->text()));
    resources_.try_emplace(uri, &json, path);
    if (uri.find('#') == std::string::npos) base = uri;
    break;
  }
  for (const std::string_view keyword : {"$anchor", "$dynamicAnchor"})
    if (const Json* const anchor = json.find(keyword); anchor != nullptr && anchor->text() != nullptr)
      resources_.try_emplace(base + "#" + *anchor->text(), &json, path);
  auto known = std::find(bases_.begin(), bases_.end(), base);
  if (known == bases_.end()) known = bases_.insert(bases_.end(), base);
  base_of_[&json] = static_cast<std::size_t>(known - bases_.begin());
  const auto visit = [&](const Json& inner, const std::string& step) {
    find_resources(inner, base, path + "/" + step, depth + 1);
  };
  for (const auto& [name, value] : *object) {
    if (std::ranges::find(kMaps, name) != std::end(kMaps) && value.object() != nullptr)
      for (const auto& [key, inner] : *value.object()) visit(inner, name + "/" + pointer_token(key));
    if (std::ranges::find(kLists, name) != std::end(kLists) && value.list() != nullptr)
      for (std::size_t at = 0; at < value.list()->size(); ++at)
        visit((*value.list())[at], fmt::format("{}/{}", name, at));
    if (std::ranges::find(kSingle, name) != std::end(kSingle)) visit(value, name);
  }
}

SchemaId SchemaDocument::add(SchemaNode node) {
  if (nodes_.size() >= kMaxSchemaNodes)
    throw SchemaRefused("", "", fmt::format("it has more than {} parts and their combinations", kMaxSchemaNodes));
  nodes_.push_back(std::move(node));
  return static_cast<SchemaId>(nodes_.size() - 1);
}

SchemaId SchemaDocument::derived(SchemaNode node) {
  std::string key = fmt::format("{} {} {} {}", static_cast<int>(node.kind), node.types,
                                static_cast<const void*>(node.json), fmt::join(node.parts, ","));
  key += ' ' + node.name;
  const auto [found, is_new] = derived_.try_emplace(std::move(key), 0);
  if (is_new) found->second = add(std::move(node));
  return found->second;
}

SchemaId SchemaDocument::source(const Json& json, std::string path, std::size_t base) {
  if (const bool* const flag = std::get_if<bool>(&json.value)) return *flag ? kEverything : kNothing;
  if (json.object() == nullptr) throw SchemaRefused("", path, "a schema is an object, true or false");
  if (json.object()->empty()) return kEverything;
  if (const auto found = sources_.find(&json); found != sources_.end()) return found->second;
  const bool ref_alone = old_refs_ && json.find("$ref") != nullptr;
  SchemaNode node{.kind = Kind::source};
  node.json = &json;
  node.path = std::move(path);
  node.base = base;
  node.ref_alone = ref_alone;
  return sources_[&json] = add(std::move(node));
}

SchemaId SchemaDocument::child(SchemaId parent, const Json& json, std::string_view step) {
  const auto base = base_of_.find(&json);
  return source(json, fmt::format("{}/{}", nodes_[parent].path, step),
                base == base_of_.end() ? nodes_[parent].base : base->second);
}

std::vector<SchemaId> SchemaDocument::children(SchemaId parent, const Json& list, std::string_view keyword) {
  if (list.list() == nullptr || list.list()->empty())
    throw SchemaRefused(std::string(keyword), nodes_[parent].path, fmt::format("{} is no list of schemas", keyword));
  std::vector<SchemaId> ids;
  for (std::size_t at = 0; at < list.list()->size(); ++at)
    ids.push_back(child(parent, (*list.list())[at], fmt::format("{}/{}", keyword, at)));
  return ids;
}

SchemaId SchemaDocument::made(SchemaId parent, Json json) {
  texts_.push_back(std::move(json));
  return source(texts_.back(), nodes_[parent].path, nodes_[parent].base);
}

SchemaId SchemaDocument::negation_of(SchemaId id) {
  const SchemaNode& node = nodes_[id];
  switch (node.kind) {
    case Kind::everything:
      return kNothing;
    case Kind::nothing:
      return kEverything;
    case Kind::negation:
      return node.parts[0];
    case Kind::types:
      return of_types(static_cast<std::uint8_t>(json_type::all & ~node.types));
    default:
      break;
  }
  SchemaNode negation{.kind = Kind::negation};
  negation.parts = {id};
  return derived(std::move(negation));
}

SchemaId SchemaDocument::all_of(std::vector<SchemaId> parts) {
  std::erase(parts, kEverything);
  if (std::ranges::find(parts, kNothing) != parts.end()) return kNothing;
  if (parts.empty()) return kEverything;
  if (parts.size() == 1) return parts.front();
  SchemaNode node{.kind = Kind::all};
  node.parts = std::move(parts);
  return derived(std::move(node));
}

SchemaId SchemaDocument::any_of(std::vector<SchemaId> parts) {
  std::erase(parts, kNothing);
  if (std::ranges::find(parts, kEverything) != parts.end()) return kEverything;
  if (parts.empty()) return kNothing;
  if (parts.size() == 1) return parts.front();
  SchemaNode node{.kind = Kind::any};
  node.parts = std::move(parts);
  return derived(std::move(node));
}

SchemaId SchemaDocument::of_types(std::uint8_t types) {
  if (types == 0) return kNothing;
  if (types == json_type::all) return kEverything;
  SchemaNode node{.kind = Kind::types};
  node.types = types;
  return derived(std::move(node));
}

SchemaId SchemaDocument::with_property(std::string name, SchemaId value) {
  if (value == kEverything) return kEverything;
  SchemaNode node{.kind = Kind::property};
  node.name = std::move(name);
  node.parts = {value};
  return derived(std::move(node));
}

SchemaId SchemaDocument::target_of(SchemaId id, const std::string& reference) {
  const SchemaNode& from = nodes_[id];
  const std::string uri = resolved(bases_[from.base], reference);
  const std::size_t hash = uri.find('#');
  const std::string resource = uri.substr(0, hash);
  const std::string fragment = hash == std::string::npos ? "" : percent_decoded(std::string_view(uri).substr(hash + 1));
  if (const auto whole = resources_.find(without_empty_fragment(resource + (fragment.empty() ? "" : "#" + fragment)));
      whole != resources_.end()) {
    const auto base = base_of_.find(whole->second.first);
    return source(*whole->second.first, whole->second.second, base == base_of_.end() ? from.base : base->second);
  }
  const auto found = resources_.find(resource);
  if (found == resources_.end() || (!fragment.empty() && fragment.front() != '/'))
    throw SchemaRefused(
        "$ref", from.path,
        fmt::format("$ref to '{}': nothing in this schema has that address (none is fetched from elsewhere)",
                    reference));
  const Json* const json = at_pointer(*found->second.first, fragment);
  if (json == nullptr)
    throw SchemaRefused("$ref", from.path, fmt::format("$ref to '{}': there is nothing at that place", reference));
  const auto base = base_of_.find(json);
  return source(*json, found->second.second + fragment, base == base_of_.end() ? from.base : base->second);
}

const std::vector<SchemaId>& SchemaDocument::conditions_of(SchemaId id) {
  if (const auto found = conditions_.find(id); found != conditions_.end()) return found->second;
  return conditions_[id] = made_conditions(id);
}

std::vector<SchemaId> SchemaDocument::made_conditions(SchemaId id) {
  const SchemaNode node = nodes_[id];
  const Json& json = *node.json;
  std::vector<SchemaId> conditions;
  for (const std::string_view keyword : {"$dynamicRef", "$recursiveRef", "unevaluatedProperties", "unevaluatedItems",
                                         "extends", "disallow", "divisibleBy"}) {
    const Json* const value = json.find(keyword);
    if (value == nullptr || node.ref_alone) continue;
    const bool* const flag = std::get_if<bool>(&value->value);
    if (flag != nullptr && *flag) continue;
    throw SchemaRefused(std::string(keyword), node.path, fmt::format("{} is not supported", keyword));
  }
  if (const Json* const reference = json.find("$ref")) {
    if (reference->text() == nullptr) throw SchemaRefused("$ref", node.path, "$ref is no text");
    conditions.push_back(target_of(id, *reference->text()));
    if (node.ref_alone) return conditions;
  }
  if (const Json* const list = json.find("allOf"))
    for (const SchemaId part : children(id, *list, "allOf")) conditions.push_back(part);
  if (const Json* const list = json.find("anyOf")) conditions.push_back(any_of(children(id, *list, "anyOf")));
  if (const Json* const list = json.find("oneOf")) {
    SchemaNode one{.kind = Kind::one_of};
    one.parts = children(id, *list, "oneOf");
    one.path = node.path;
    conditions.push_back(one.parts.size() == 1 ? one.parts.front() : derived(std::move(one)));
  }
  if (const Json* const negated = json.find("not")) conditions.push_back(negation_of(child(id, *negated, "not")));
  if (const Json* const condition = json.find("if")) {
    const Json *const then = json.find("then"), *const otherwise = json.find("else");
    const SchemaId if_id = child(id, *condition, "if");
    const SchemaId then_id = then == nullptr ? kEverything : child(id, *then, "then");
    const SchemaId else_id = otherwise == nullptr ? kEverything : child(id, *otherwise, "else");
    if (then_id != else_id)
      conditions.push_back(any_of({all_of({if_id, then_id}), all_of({negation_of(if_id), else_id})}));
    else
      conditions.push_back(then_id);
  }
  for (const std::string_view keyword : {"dependentRequired", "dependentSchemas", "dependencies"}) {
    const Json* const all = json.find(keyword);
    if (all == nullptr || all->object() == nullptr) continue;
    for (const auto& [name, needed] : *all->object()) {
      SchemaId then = kEverything;
      if (needed.list() != nullptr || needed.text() != nullptr)
        then = made(id, Json(Json::Object{{"required", needed.list() != nullptr ? needed : Json(Json::List{needed})}}));
      else
        then = child(id, needed, fmt::format("{}/{}", keyword, pointer_token(name)));
      const SchemaId has_it = made(id, Json(Json::Object{{"required", Json(Json::List{Json(name)})}}));
      conditions.push_back(any_of(
          {of_types(json_type::all & ~json_type::object), with_property(name, kNothing), all_of({has_it, then})}));
    }
  }
  return conditions;
}

// Alternatives of "not a source": one for each of its assertions.
SchemaId SchemaDocument::negated_source(SchemaId id) {
  const SchemaNode node = nodes_[id];
  const Json& json = *node.json;
  std::vector<SchemaId> any;
  for (const SchemaId condition : conditions_of(id)) any.push_back(negation_of(condition));
  if (node.ref_alone) return any_of(std::move(any));
  const auto unsupported = [&](std::string_view keyword) -> SchemaRefused {
    return {std::string(keyword), node.path,
            fmt::format("{} within `not` (or told apart by `oneOf`) is not supported", keyword)};
  };
  const auto of_type = [&](std::uint8_t type, Json::Object keywords) {
    any.push_back(all_of({of_types(type), made(id, Json(std::move(keywords)))}));
  };
  for (const auto& [keyword, value] : *json.object()) {
    if (keyword == "type") {
      any.push_back(of_types(static_cast<std::uint8_t>(json_type::all & ~types_named(value, node.path))));
    } else if (keyword == "enum" || keyword == "const") {
      SchemaNode not_values{.kind = Kind::not_values};
      if (keyword == "enum") {
        not_values.json = &value;
      } else {
        texts_.emplace_back(Json::List{value});
        not_values.json = &texts_.back();
      }
      not_values.path = node.path;
      any.push_back(derived(std::move(not_values)));
    } else if (keyword == "minimum" || keyword == "maximum") {
      const Json* const excluded = json.find(keyword == "minimum" ? "exclusiveMinimum" : "exclusiveMaximum");
      const bool is_excluded = is_true(excluded);
      of_type(json_type::number, {{keyword == "minimum" ? (is_excluded ? "maximum" : "exclusiveMaximum")
                                                        : (is_excluded ? "minimum" : "exclusiveMinimum"),
                                   value}});
    } else if (keyword == "exclusiveMinimum" || keyword == "exclusiveMaximum") {
      if (std::holds_alternative<bool>(value.value)) continue;  // of draft 4: with minimum and maximum
      of_type(json_type::number, {{keyword == "exclusiveMinimum" ? "maximum" : "minimum", value}});
    } else if (keyword == "multipleOf") {
      SchemaNode multiple{.kind = Kind::not_multiple};
      multiple.json = &value;
      multiple.path = node.path;
      any.push_back(derived(std::move(multiple)));
    } else if (keyword == "minLength" || keyword == "minItems" || keyword == "minProperties") {
      const std::uint32_t count = *count_of(node, keyword);
      if (count == 0) continue;
      const std::uint8_t type = keyword == "minLength"  ? json_type::string
                                : keyword == "minItems" ? json_type::array
                                                        : json_type::object;
      of_type(type, {{"max" + keyword.substr(3), Json(std::int64_t{count} - 1)}});
    } else if (keyword == "maxLength" || keyword == "maxItems" || keyword == "maxProperties") {
      const std::uint8_t type = keyword == "maxLength"  ? json_type::string
                                : keyword == "maxItems" ? json_type::array
                                                        : json_type::object;
      of_type(type, {{"min" + keyword.substr(3), Json(std::int64_t{*count_of(node, keyword)} + 1)}});
    } else if (keyword == "pattern" || keyword == "format") {
      if (value.text() == nullptr) throw SchemaRefused(keyword, node.path, fmt::format("{} is no text", keyword));
      if (keyword == "format" && std::ranges::find(known_formats(), *value.text()) == known_formats().end()) continue;
      // What is left of an inexact one may be of the format all the same.
      if (keyword == "format" && !is_exact_format(*value.text())) throw unsupported(keyword);
      SchemaNode pattern{.kind = keyword == "pattern" ? Kind::not_pattern : Kind::not_format};
      pattern.name = *value.text();
      pattern.path = node.path;
      any.push_back(derived(std::move(pattern)));
    } else if (keyword == "required" && value.list() != nullptr) {
      for (const Json& name : *value.list())
        if (name.text() != nullptr)
          any.push_back(all_of({of_types(json_type::object), with_property(*name.text(), kNothing)}));
    } else if (keyword == "properties" && value.object() != nullptr) {
      for (const auto& [name, inner] : *value.object()) {
        const SchemaId opposite = negation_of(child(id, inner, "properties/" + pointer_token(name)));
        if (opposite == kNothing) continue;
        any.push_back(all_of({of_types(json_type::object),
                              made(id, Json(Json::Object{{"required", Json(Json::List{Json(name)})}})),
                              with_property(name, opposite)}));
      }
    } else if (keyword == "items" && value.list() == nullptr && json.find("prefixItems") == nullptr) {
      SchemaNode contains{.kind = Kind::contains};
      contains.parts = {negation_of(child(id, value, "items"))};
      if (contains.parts[0] != kNothing)
        any.push_back(all_of({of_types(json_type::array), derived(std::move(contains))}));
    } else if (keyword == "contains" && json.find("minContains") == nullptr && json.find("maxContains") == nullptr) {
      SchemaNode items{.kind = Kind::items};
      items.parts = {negation_of(child(id, value, "contains"))};
      any.push_back(all_of({of_types(json_type::array), derived(std::move(items))}));
    } else if (keyword == "additionalProperties" || keyword == "additionalItems") {
      if (child(id, value, keyword) != kEverything) throw unsupported(keyword);
    } else if (keyword == "items" || keyword == "prefixItems" || keyword == "patternProperties" ||
               keyword == "propertyNames" || keyword == "contains" || keyword == "minContains" ||
               keyword == "maxContains") {
      throw unsupported(keyword);
    } else if (keyword == "uniqueItems" && is_true(&value)) {
      throw unsupported(keyword);
    }
  }
  return any_of(std::move(any));
}

std::vector<SchemaId> SchemaDocument::alternatives_of_negation(SchemaId id) {
  TROUPE_ASSERT(nodes_[id].kind == Kind::negation);
  const SchemaNode node = nodes_[nodes_[id].parts[0]];
  const SchemaId of = nodes_[id].parts[0];
  const auto refuse = [&](const char* what) {
    return SchemaRefused(what, node.path, fmt::format("{} within `not` is not supported", what));
  };
  std::vector<SchemaId> any;
  switch (node.kind) {
    case Kind::source:
      if (const auto found = negated_.find(of); found != negated_.end()) return {found->second};
      return {negated_[of] = negated_source(of)};
    case Kind::all:
      for (const SchemaId part : node.parts) any.push_back(negation_of(part));
      return any;
    case Kind::any: {
      std::vector<SchemaId> all;
      for (const SchemaId part : node.parts) all.push_back(negation_of(part));
      return {all_of(std::move(all))};
    }
    case Kind::property:
      return {all_of({of_types(json_type::object),
                      made(of, Json(Json::Object{{"required", Json(Json::List{Json(node.name)})}})),
                      with_property(node.name, negation_of(node.parts[0]))})};
    case Kind::one_of:
      throw refuse("oneOf");
    default:
      throw refuse("not");
  }
}

}  // namespace troupe::engine::constraints
