#include "engine/chat/values/value.h"

#include <fmt/format.h>

#include <cstdlib>

#include "engine/chat/values/limits.h"

namespace troupe::engine::chat {

Value Value::boolean(bool value) {
  Value made = integer(value ? 1 : 0);
  made.kind_ = Kind::boolean;
  return made;
}
Value Value::integer(std::int64_t value) {
  Value made;
  made.kind_ = Kind::integer;
  made.payload_.integer = value;
  return made;
}
Value Value::real(double value) {
  Value made;
  made.kind_ = Kind::real;
  made.payload_.real = value;
  return made;
}
Value Value::large_integer(double value, std::shared_ptr<const Text> digits) {
  Value made = real(value);
  made.text_ = std::move(digits);
  return made;
}
Value Value::text(std::shared_ptr<const Text> cell) {
  Value made;
  made.kind_ = Kind::text;
  made.text_ = std::move(cell);
  return made;
}
Value Value::undefined(std::shared_ptr<const Text> message) {
  Value made = text(std::move(message));
  made.kind_ = Kind::undefined;
  return made;
}
Value Value::of(List* list) {
  Value made;
  made.kind_ = Kind::list;
  made.payload_.list = list;
  return made;
}
Value Value::of(Map* map) {
  Value made;
  made.kind_ = Kind::map;
  made.payload_.map = map;
  return made;
}
Value Value::of(Object* object) {
  Value made;
  made.kind_ = Kind::object;
  made.payload_.object = object;
  return made;
}

Value Value::marked(bool from_input) const {
  Value made = *this;
  made.from_input_ = from_input;
  return made;
}

const void* Value::address() const {
  switch (kind_) {
    case Kind::text:
    case Kind::undefined:
      return text_.get();
    case Kind::list:
      return payload_.list;
    case Kind::map:
      return payload_.map;
    case Kind::object:
      return payload_.object;
    default:
      return nullptr;
  }
}

Value Heap::text(Text text) { return Value::text(std::allocate_shared<const Text>(Charged<Text>(), std::move(text))); }

Value Heap::undefined(std::string_view message) {
  return Value::undefined(std::allocate_shared<const Text>(Charged<Text>(), Text(message)));
}

Value Heap::list(Values items, ListForm form) {
  List* const list = own(std::unique_ptr<List>(new List));
  list->items = std::move(items);
  list->form = form;
  return Value::of(list);
}

Value Heap::map() { return Value::of(own(std::unique_ptr<Map>(new Map))); }

Value Heap::from_json(const Json& json) { return from_json(json, 0); }

Value Heap::from_json(const Json& json, std::size_t depth) {
  step();
  if (depth > kMaxJsonDepth) throw TemplateError(fmt::format("values are nested deeper than {} levels", kMaxJsonDepth));
  if (const bool* const value = std::get_if<bool>(&json.value)) return Value::boolean(*value).marked(true);
  if (const auto* const value = std::get_if<std::int64_t>(&json.value)) return Value::integer(*value).marked(true);
  if (const double* const value = std::get_if<double>(&json.value)) return Value::real(*value).marked(true);
  if (const auto* const value = std::get_if<LargeInteger>(&json.value)) {
    return Value::large_integer(std::strtod(value->digits.c_str(), nullptr),
                                std::allocate_shared<const Text>(Charged<Text>(), Text(value->digits)))
        .marked(true);
  }
  if (const std::string* const value = json.text()) {
    Text copy;
    copy.reserve(value->size());
    copy.append(*value, kFromInput, meter_);
    return text(std::move(copy));
  }
  if (const Json::List* const values = json.list()) {
    Values items;
    items.reserve(values->size());
    for (const Json& each : *values) items.push_back(from_json(each, depth + 1));
    const Value made = list(std::move(items));
    made.list().from_input = true;
    return made;
  }
  if (const Json::Object* const members = json.object()) {
    const Value made = map();
    made.map().from_input = true;
    for (const auto& [name, member] : *members) set(made.map(), text(name, kFromInput), from_json(member, depth + 1));
    return made;
  }
  return Value().marked(true);
}

}  // namespace troupe::engine::chat
