// Methods of list, dict and the loop variable.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "engine/chat/jinja/runtime.h"

namespace troupe::engine::chat {
namespace {

Value index_of_item(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("index", arguments, {"value"});
  const auto& items = self.list().items;
  for (std::size_t i = 0; i < items.size(); ++i)
    if (equals(items[i], bound.required(0), runtime.heap())) return Value::integer(static_cast<std::int64_t>(i));
  throw TemplateError("the value is not in the list");
}

Value count_item(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("count", arguments, {"value"});
  std::int64_t count = 0;
  for (const Value& each : self.list().items) count += equals(each, bound.required(0), runtime.heap()) ? 1 : 0;
  return Value::integer(count);
}

Value copy_list(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("copy", arguments, {});
  return runtime.slice(self, nullptr, nullptr, nullptr);
}

Value get_item(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("get", arguments, {"key", "default"});
  const Value* const found = self.map().find(bound.required(0), runtime.heap());
  if (found != nullptr) return *found;
  return bound[1] != nullptr ? *bound[1] : Value();
}

enum class Part { key, value, item };

template <Part part>
Value view_of(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("items", arguments, {});
  Values items;
  for (const auto& [key, value] : self.map().items) {
    runtime.heap().step();
    items.push_back(part == Part::key     ? key
                    : part == Part::value ? value
                                          : runtime.heap().list({key, value}, ListForm::tuple));
  }
  return runtime.heap().list(std::move(items), ListForm::view);
}

Value copy_map(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  const BoundArguments bound("copy", arguments, {});
  const Value copy = runtime.heap().map();
  for (const auto& [key, value] : self.map().items) runtime.heap().set(copy.map(), key, value);
  copy.map().from_input = self.map().from_input;
  return copy;
}

// Of a loop: the argument of its turn. Of a cycler: the current item; the next turn has the next one.
Value cycle(Runtime&, const Value& self, const CallArguments& arguments) {
  if (self.object().type == ObjectType::cycler) {
    auto& cycler = static_cast<Cycler&>(self.object());
    const Value item = cycler.items[cycler.index];
    cycler.index = (cycler.index + 1) % cycler.items.size();
    return item;
  }
  if (arguments.positional.empty()) throw TemplateError("no items for cycling given");
  return arguments.positional[static_cast<LoopState&>(self.object()).index % arguments.positional.size()];
}

Value changed(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  auto& loop = static_cast<LoopState&>(self.object());
  const bool is_same = loop.last_changed && loop.last_changed->size() == arguments.positional.size() &&
                       std::equal(loop.last_changed->begin(), loop.last_changed->end(), arguments.positional.begin(),
                                  [&](const Value& a, const Value& b) { return equals(a, b, runtime.heap()); });
  if (!is_same) loop.last_changed = arguments.positional;
  return Value::boolean(!is_same);
}

using NamedFunction = std::pair<std::string_view, Function>;

template <std::size_t count>
Function find_named(const std::array<NamedFunction, count>& table, std::string_view name) {
  const auto found = std::find_if(table.begin(), table.end(), [&](const auto& each) { return each.first == name; });
  return found == table.end() ? nullptr : found->second;
}

}  // namespace

Function find_list_method(std::string_view name) {
  static constexpr std::array<NamedFunction, 3> kMethods = {
      {{"index", index_of_item}, {"count", count_item}, {"copy", copy_list}}};
  return find_named(kMethods, name);
}

Function find_map_method(std::string_view name) {
  static constexpr std::array<NamedFunction, 5> kMethods = {{{"get", get_item},
                                                             {"items", view_of<Part::item>},
                                                             {"keys", view_of<Part::key>},
                                                             {"values", view_of<Part::value>},
                                                             {"copy", copy_map}}};
  return find_named(kMethods, name);
}

bool is_changing_method(std::string_view name) {
  static constexpr std::array<std::string_view, 11> kNames = {
      "append", "clear", "extend", "insert", "pop", "popitem", "remove", "reverse", "sort", "setdefault", "update"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

Function loop_cycle() { return cycle; }
Function loop_changed() { return changed; }

}  // namespace troupe::engine::chat
