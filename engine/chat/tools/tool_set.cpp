#include "engine/chat/tools/tool_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "config/printable.h"
#include "engine/chat/values/limits.h"

namespace troupe::engine::chat {
namespace {

constexpr ValueTypes kAnyValue{true, true}, kNoValue{false, false}, kOnlyText{true, false}, kNoText{false, true};

// $ref and anyOf may nest or form a cycle: what lies deeper counts as unknown.
constexpr int kMaxSchemaSteps = 16;

ValueTypes either(ValueTypes a, ValueTypes b) { return {a.text || b.text, a.other || b.other}; }
ValueTypes both(ValueTypes a, ValueTypes b) { return {a.text && b.text, a.other && b.other}; }

ValueTypes types_of_name(const Json& name) { return name.text() && *name.text() == "string" ? kOnlyText : kNoText; }
ValueTypes types_of_value(const Json& value) { return value.text() != nullptr ? kOnlyText : kNoText; }

ValueTypes any_of(const Json::List& list, ValueTypes (*types)(const Json&)) {
  ValueTypes all = kNoValue;
  for (const Json& each : list) all = either(all, types(each));
  return all;
}

// The value at a reference such as "#/$defs/Place"; null if there is none.
const Json* find_reference(std::string_view reference, const Json& root) {
  if (!reference.starts_with('#')) return nullptr;
  reference.remove_prefix(1);
  const Json* at = &root;
  while (at != nullptr && reference.starts_with('/')) {
    reference.remove_prefix(1);
    const std::size_t end = std::min(reference.find('/'), reference.size());
    at = at->find(reference.substr(0, end));
    reference.remove_prefix(end);
  }
  return reference.empty() ? at : nullptr;
}

ValueTypes types_of(const Json& schema, const Json& root, int steps) {
  if (steps == 0 || schema.object() == nullptr) return kAnyValue;
  ValueTypes types = kAnyValue;
  if (const Json* const type = schema.find("type"))
    types = both(types, type->list() != nullptr ? any_of(*type->list(), types_of_name) : types_of_name(*type));
  if (const Json* const value = schema.find("const")) types = both(types, types_of_value(*value));
  if (const Json* const values = schema.find("enum"); values != nullptr && values->list() != nullptr)
    types = both(types, any_of(*values->list(), types_of_value));
  for (const std::string_view name : {"anyOf", "oneOf"}) {
    const Json* const choices = schema.find(name);
    if (choices == nullptr || choices->list() == nullptr) continue;
    ValueTypes any = kNoValue;
    for (const Json& each : *choices->list()) any = either(any, types_of(each, root, steps - 1));
    types = both(types, any);
  }
  if (const Json* const all = schema.find("allOf"); all != nullptr && all->list() != nullptr)
    for (const Json& each : *all->list()) types = both(types, types_of(each, root, steps - 1));
  if (const Json* const reference = schema.find("$ref"); reference != nullptr && reference->text() != nullptr)
    if (const Json* const target = find_reference(*reference->text(), root))
      types = both(types, types_of(*target, root, steps - 1));
  return types;
}

}  // namespace

bool is_tool_name(std::string_view name) {
  constexpr std::string_view kMarks = "\"'`<>{}[]()|,;=\\";
  return !name.empty() && name.size() <= kMaxToolNameBytes && std::ranges::all_of(name, [&](char c) {
    return static_cast<unsigned char>(c) > ' ' && c != '\x7F' && kMarks.find(c) == std::string_view::npos;
  });
}

ValueTypes types_of_schema(const Json& schema, const Json& root) { return types_of(schema, root, kMaxSchemaSteps); }

ValueTypes ToolSet::types_of(std::string_view tool, std::string_view parameter) const {
  const auto found = tools_.find(std::string(tool));
  if (found == tools_.end()) return kAnyValue;
  const auto types = found->second.find(std::string(parameter));
  return types == found->second.end() ? kAnyValue : types->second;
}

Result<ToolSet> ToolSet::make(const Json& tools, std::span<const std::string> places) {
  const Json::List* const list = tools.list();
  if (list == nullptr) return Error{ErrorCode::invalid_argument, "tools are a list"};
  if (list->size() > kMaxTools)
    return Error{ErrorCode::invalid_argument,
                 fmt::format("there are {} tools, and a request may have {}", list->size(), kMaxTools)};
  ToolSet set;
  for (std::size_t i = 0; i < list->size(); ++i) {
    const auto refuse = [&](std::string_view what) {
      const std::string place = i < places.size() ? places[i] : fmt::format("tools[{}]", i);
      return Error{ErrorCode::invalid_argument, place + std::string(what)};
    };
    const Json* const function = (*list)[i].find("function");
    if (function == nullptr || function->object() == nullptr)
      return refuse(R"( has no function: a tool is {"type": "function", "function": {"name": ...}})");
    const Json* const name = function->find("name");
    if (name == nullptr || name->text() == nullptr) return refuse(".function has no name");
    if (!is_tool_name(*name->text()))
      return refuse(fmt::format(
          ".function.name '{}' is no name of a tool: it has {} bytes, and may have 1 to {}, without spaces, "
          "quotes, brackets and commas",
          Printable(*name->text()).text(), name->text()->size(), kMaxToolNameBytes));
    const auto [added, is_new] = set.tools_.try_emplace(*name->text());
    if (!is_new) return refuse(fmt::format(".function.name '{}' is taken", Printable(*name->text()).text()));
    const Json* const schema = function->find("parameters");
    const Json* const properties = schema != nullptr ? schema->find("properties") : nullptr;
    if (properties == nullptr || properties->object() == nullptr) continue;
    for (const auto& [parameter, each] : *properties->object())
      added->second.emplace(parameter, types_of_schema(each, *schema));
  }
  return set;
}

std::size_t ToolSet::bytes_used() const {
  constexpr std::size_t kEntry = 3 * sizeof(void*);  // of a hash map, with what the allocator adds
  std::size_t bytes = 0;
  for (const auto& [name, parameters] : tools_) {
    bytes += sizeof(*tools_.begin()) + name.capacity() + kEntry;
    for (const auto& each : parameters) bytes += sizeof(each) + each.first.capacity() + kEntry;
  }
  return bytes;
}

}  // namespace troupe::engine::chat
