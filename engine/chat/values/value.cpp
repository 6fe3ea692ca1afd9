#include "engine/chat/values/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "engine/chat/values/limits.h"

namespace troupe::engine::chat {

TextCell::TextCell(Text content, Heap* owner) : text(std::move(content)), heap(owner) {}
TextCell::~TextCell() {
  if (heap != nullptr) heap->release(sizeof(TextCell) + text.size() + text.input().size() * sizeof(ByteRange));
}

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
Value Value::large_integer(double value, std::shared_ptr<const TextCell> digits) {
  Value made = real(value);
  made.text_ = std::move(digits);
  return made;
}
Value Value::text(std::shared_ptr<const TextCell> cell) {
  Value made;
  made.kind_ = Kind::text;
  made.text_ = std::move(cell);
  return made;
}
Value Value::undefined(std::shared_ptr<const TextCell> message) {
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

const Value* Map::find(std::string_view key) const {
  const auto found = by_text.find(key);
  return found == by_text.end() ? nullptr : &items[found->second].second;
}

const Value* Map::find(const Value& key, Heap& heap) const {
  if (key.is(Kind::text)) return find(key.text().bytes());
  heap.step(items.size() / 8);
  const auto found = std::find_if(items.begin(), items.end(), [&](const auto& each) {
    return !each.first.is(Kind::text) && equals(each.first, key, heap);
  });
  return found == items.end() ? nullptr : &found->second;
}

void Heap::throw_too_many_steps() const {
  throw TemplateError(fmt::format("it takes more than {} steps", limits_.max_steps));
}

void Heap::check_room(std::size_t bytes) const {
  if (bytes > limits_.max_value_bytes - bytes_)
    throw TemplateError(fmt::format("its values take more than {} MiB", limits_.max_value_bytes >> 20));
}

void Heap::charge(std::size_t bytes) {
  check_room(bytes);
  bytes_ += bytes;
}

Value Heap::text(Text text) {
  charge(sizeof(TextCell) + text.size() + text.input().size() * sizeof(ByteRange));
  return Value::text(std::make_shared<const TextCell>(std::move(text), this));
}

Value Heap::undefined(std::string message) {
  charge(sizeof(TextCell) + message.size());
  return Value::undefined(std::make_shared<const TextCell>(Text(std::move(message)), this));
}

Value Heap::list(std::vector<Value> items, ListForm form) {
  charge(items.size() * sizeof(Value));
  List* const list = own(std::make_unique<List>());
  list->items = std::move(items);
  list->form = form;
  return Value::of(list);
}

Value Heap::map() { return Value::of(own(std::make_unique<Map>())); }

void Heap::set(Map& map, const Value& key, const Value& value) {
  if (const Value* const old = map.find(key, *this)) {
    const auto same = std::find_if(map.items.begin(), map.items.end(), [&](auto& each) { return &each.second == old; });
    same->second = value;
    return;
  }
  charge(sizeof(std::pair<Value, Value>) + 4 * sizeof(void*));
  if (key.is(Kind::text)) map.by_text.emplace(key.text().bytes(), map.items.size());
  map.items.emplace_back(key, value);
}

Value Heap::from_json(const Json& json) { return from_json(json, 0); }

Value Heap::from_json(const Json& json, std::size_t depth) {
  if (depth > kMaxJsonDepth) throw TemplateError(fmt::format("values are nested deeper than {} levels", kMaxJsonDepth));
  if (const bool* const value = std::get_if<bool>(&json.value)) return Value::boolean(*value).marked(true);
  if (const auto* const value = std::get_if<std::int64_t>(&json.value)) return Value::integer(*value).marked(true);
  if (const double* const value = std::get_if<double>(&json.value)) return Value::real(*value).marked(true);
  if (const auto* const value = std::get_if<LargeInteger>(&json.value)) {
    charge(sizeof(TextCell) + value->digits.size());
    return Value::large_integer(std::strtod(value->digits.c_str(), nullptr),
                                std::make_shared<const TextCell>(Text(value->digits), this))
        .marked(true);
  }
  if (const std::string* const value = json.text()) return text(*value, true);
  if (const Json::List* const values = json.list()) {
    std::vector<Value> items;
    check_room(values->size() * sizeof(Value));
    items.reserve(values->size());
    for (const Json& each : *values) items.push_back(from_json(each, depth + 1));
    const Value made = list(std::move(items));
    made.list().from_input = true;
    return made;
  }
  if (const Json::Object* const members = json.object()) {
    const Value made = map();
    made.map().from_input = true;
    for (const auto& [name, member] : *members) set(made.map(), text(name, true), from_json(member, depth + 1));
    return made;
  }
  return Value().marked(true);
}

}  // namespace troupe::engine::chat
