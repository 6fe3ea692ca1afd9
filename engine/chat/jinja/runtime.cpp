#include "engine/chat/jinja/runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "config/assert.h"
#include "engine/chat/values/characters.h"
#include "engine/chat/values/python_text.h"

namespace troupe::engine::chat {
namespace {

// "dict object", as Jinja names a value in its messages.
std::string object_name(const Value& value) {
  if (value.is(Kind::none)) return "None";
  if (value.is(Kind::object) && value.object().type == ObjectType::name_space) return "jinja2.utils.Namespace object";
  return fmt::format("{} object", type_name(value));
}

std::int64_t wrapped(std::int64_t index, std::size_t size) {
  return index < 0 ? index + static_cast<std::int64_t>(size) : index;
}

// Where a slice begins and ends, as Python's slice.indices() has it.
struct SliceIndices {
  std::int64_t start, stop, step;
};
SliceIndices slice_indices(std::int64_t size, const Value* start, const Value* stop, const Value* step) {
  const auto number = [](const Value* value, std::int64_t fallback) {
    if (value == nullptr || value->is(Kind::none)) return fallback;
    require_defined(*value);
    if (!value->is_whole()) throw TemplateError("slice indices must be integers or None");
    return value->integer();
  };
  const std::int64_t by = std::clamp<std::int64_t>(number(step, 1), -INT64_MAX / 2, INT64_MAX / 2);
  if (by == 0) throw TemplateError("slice step cannot be zero");
  const std::int64_t low = by > 0 ? 0 : -1, high = by > 0 ? size : size - 1;
  const auto clamp = [&](std::int64_t index) {
    if (index < 0) return std::max(index < -size ? low : index + size, low);
    return std::min(index, high);
  };
  const bool has_start = start != nullptr && !start->is(Kind::none),
             has_stop = stop != nullptr && !stop->is(Kind::none);
  return {has_start ? clamp(number(start, 0)) : (by > 0 ? low : high),
          has_stop ? clamp(number(stop, 0)) : (by > 0 ? high : low), by};
}

}  // namespace

void require_defined(const Value& value) {
  if (value.is(Kind::undefined)) throw TemplateError(std::string(value.text().bytes()));
}

void fail_type(std::string_view what, const Value& value) {
  require_defined(value);
  throw TemplateError(fmt::format("{}, not {}", what, type_name(value)));
}

BoundArguments::BoundArguments(std::string_view function, const CallArguments& arguments,
                               std::initializer_list<std::string_view> names)
    : function_(function), count_(names.size()) {
  TROUPE_ASSERT(count_ <= kMost);
  std::copy(names.begin(), names.end(), names_.begin());
  if (arguments.positional.size() > count_)
    throw TemplateError(
        fmt::format("{}() takes at most {} arguments ({} given)", function, count_, arguments.positional.size()));
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto place = static_cast<std::size_t>(std::find(names.begin(), names.end(), name) - names.begin());
    if (place == count_)
      throw TemplateError(fmt::format("{}() got an unexpected keyword argument '{}'", function, name));
    if (values_[place] != nullptr)
      throw TemplateError(fmt::format("{}() got multiple values for argument '{}'", function, name));
    values_[place] = &value;
  }
}

const Value* BoundArguments::set(std::size_t index) const {
  const Value* const value = values_[index];
  return value != nullptr && !value->is(Kind::none) ? value : nullptr;
}

const Value& BoundArguments::required(std::size_t index) const {
  if (values_[index] == nullptr)
    throw TemplateError(fmt::format("{}() missing required argument: '{}'", function_, names_[index]));
  return *values_[index];
}

std::int64_t BoundArguments::integer(std::size_t index, std::int64_t fallback) const {
  const Value* const value = set(index);
  if (value == nullptr) return fallback;
  if (!value->is_whole()) fail_type(fmt::format("{}(): '{}' must be an integer", function_, names_[index]), *value);
  return value->integer();
}

bool BoundArguments::boolean(std::size_t index, bool fallback) const {
  const Value* const value = values_[index];
  return value == nullptr ? fallback : is_true(*value);
}

const Text& BoundArguments::text(std::size_t index) const {
  const Value& value = required(index);
  if (!value.is(Kind::text)) fail_type(fmt::format("{}() argument must be str", function_), value);
  return value.text();
}

const Text* BoundArguments::optional_text(std::size_t index) const {
  return set(index) == nullptr ? nullptr : &text(index);
}

Value Runtime::as_text(const Value& value) { return value.is(Kind::text) ? value : text(to_text(value, heap_)); }

Value Runtime::method(const Value& self, Function function) {
  return Value::of(heap_.own(std::unique_ptr<MethodObject>(new MethodObject(self, function))));
}

Value Runtime::missing(const Value& object, const Value& name) {
  if (name.is(Kind::text))
    return heap_.undefined(fmt::format("'{}' has no attribute '{}'", object_name(object), shown(name.text().bytes())));
  const Text repr = to_repr(name, heap_);
  return heap_.undefined(fmt::format("{} has no element {}", object_name(object), shown(repr.bytes())));
}

Function Runtime::method_of(const Value& object, std::string_view name) {
  if (object.is(Kind::text)) return find_text_method(name);
  if (object.is(Kind::list) && object.list().form <= ListForm::tuple) return find_list_method(name);
  if (object.is(Kind::map)) return find_map_method(name);
  return nullptr;
}

// A member that Python's getattr() would find; none of it: an undefined value.
Value Runtime::member(const Value& object, std::string_view name) {
  if (name.substr(0, 2) == "__" || is_changing_method(name)) {
    const bool has_it = name[0] == '_' || object.is(Kind::list) || object.is(Kind::map);
    if (has_it)
      return heap_.undefined(
          fmt::format("access to attribute '{}' of '{}' object is unsafe.", shown(name), type_name(object)));
  }
  if (const Function function = method_of(object, name)) return method(object, function);
  if (!object.is(Kind::object)) return missing(object, text(shown(name)));
  if (object.object().type == ObjectType::name_space) {
    const Value* const found = static_cast<Namespace&>(object.object()).members->find(name, heap_);
    return found != nullptr ? *found : missing(object, text(shown(name)));
  }
  if (object.object().type == ObjectType::loop)
    return loop_member(static_cast<LoopState&>(object.object()), object, name);
  if (object.object().type == ObjectType::cycler) {
    Cycler& cycler = static_cast<Cycler&>(object.object());
    if (name == "current") return cycler.items[cycler.index];
    if (name == "next" || name == "reset")
      return method(
          object, name == "next" ? loop_cycle() : [](Runtime&, const Value& self, const CallArguments&) {
            static_cast<Cycler&>(self.object()).index = 0;
            return Value();
          });
  }
  return missing(object, text(shown(name)));
}

Value Runtime::loop_member(LoopState& loop, const Value& self, std::string_view name) {
  const auto index = static_cast<std::int64_t>(loop.index), size = static_cast<std::int64_t>(loop.items->size());
  if (name == "index") return Value::integer(index + 1);
  if (name == "index0") return Value::integer(index);
  if (name == "first") return Value::boolean(index == 0);
  if (name == "last") return Value::boolean(index + 1 == size);
  if (name == "length") return Value::integer(size);
  if (name == "revindex") return Value::integer(size - index);
  if (name == "revindex0") return Value::integer(size - index - 1);
  if (name == "depth" || name == "depth0") return Value::integer(name == "depth" ? 1 : 0);  // of recursive loops
  if (name == "previtem")
    return index > 0 ? (*loop.items)[loop.index - 1] : heap_.undefined("there is no previous item");
  if (name == "nextitem")
    return index + 1 < size ? (*loop.items)[loop.index + 1] : heap_.undefined("there is no next item");
  if (name == "cycle") return method(self, loop_cycle());
  if (name == "changed") return method(self, loop_changed());
  return missing(self, text(shown(name)));
}

Value Runtime::attribute(const Value& object, std::string_view name) {
  require_defined(object);
  Value found = member(object, name);
  if (!found.is(Kind::undefined) || !object.is(Kind::map)) return found;
  const Value* const item = object.map().find(name, heap_);
  return item != nullptr ? *item : found;
}

Value Runtime::item(const Value& object, const Value& index) {
  require_defined(object);
  if (object.is(Kind::map)) {
    if (const Value* const found = object.map().find(index, heap_)) return *found;
  } else if (index.is_whole() && object.is(Kind::list) && object.list().form <= ListForm::tuple) {
    const auto& items = object.list().items;
    const std::int64_t at = wrapped(index.integer(), items.size());
    if (at >= 0 && at < static_cast<std::int64_t>(items.size())) return items[static_cast<std::size_t>(at)];
  } else if (index.is_whole() && object.is(Kind::text)) {
    const std::string_view bytes = object.text().bytes();
    std::int64_t at = index.integer();
    if (at < 0) at += static_cast<std::int64_t>(count_characters(bytes, meter()));
    const std::size_t place = at < 0 ? bytes.size() : character_place(bytes, static_cast<std::size_t>(at), meter());
    if (place < bytes.size()) return part(object.text(), place, place + character_at(bytes, place).length);
  }
  return index.is(Kind::text) ? member(object, index.text().bytes()) : missing(object, index);
}

Value Runtime::slice(const Value& object, const Value* start, const Value* stop, const Value* step) {
  require_defined(object);
  if (object.is(Kind::text)) {
    const Text& whole = object.text();
    const auto size = static_cast<std::int64_t>(count_characters(whole.bytes(), meter()));
    const auto [from, to, by] = slice_indices(size, start, stop, step);
    if (by != 1) return text(every_character(whole, size, from, to, by, meter()));
    if (from >= to) return text("");
    const std::size_t begin = character_place(whole.bytes(), static_cast<std::size_t>(from), meter());
    const std::size_t count = static_cast<std::size_t>(to - from);
    return part(whole, begin, begin + character_place(whole.bytes().substr(begin), count, meter()));
  }
  if (!object.is(Kind::list) || object.list().form > ListForm::tuple)
    return heap_.undefined(fmt::format("{} has no elements to slice", object_name(object)));
  const auto& items = object.list().items;
  const auto [from, to, by] = slice_indices(static_cast<std::int64_t>(items.size()), start, stop, step);
  Values part;
  for (std::int64_t i = from; by > 0 ? i < to : i > to; i += by) {
    heap_.step();
    part.push_back(items[static_cast<std::size_t>(i)]);
  }
  const Value made = heap_.list(std::move(part), object.list().form);
  made.list().from_input = object.list().from_input;
  return made;
}

Value Runtime::path(const Value& object, const Value& attribute, const Value* fallback) {
  const auto part_of = [&](const Value& whole, const Value& part) {
    Value found = item(whole, part);
    return fallback != nullptr && found.is(Kind::undefined) ? *fallback : found;
  };
  if (!attribute.is(Kind::text)) return part_of(object, attribute);
  Value at = object;
  std::string_view rest = attribute.text().bytes();
  while (true) {
    const std::string_view part = rest.substr(0, find_bytes(rest, ".", meter()));
    std::int64_t number = 0;
    const bool is_number = !part.empty() && part.size() <= kMaxNumberDigits &&
                           std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; }) &&
                           std::from_chars(part.data(), part.data() + part.size(), number).ec == std::errc();
    Text name;
    if (!is_number) name.append(part, kFromTemplate, meter());
    at = part_of(at, is_number ? Value::integer(number) : text(std::move(name)));
    if (part.size() == rest.size()) return at;
    rest.remove_prefix(part.size() + 1);
  }
}

const Values& Runtime::iterate(const Value& value) {
  static const Values kNone;
  switch (value.kind()) {
    case Kind::undefined:
      return kNone;
    case Kind::list: {
      List& list = value.list();
      if (list.form == ListForm::generator && std::exchange(list.is_spent, true)) return kNone;
      return list.items;
    }
    case Kind::map: {
      Values keys;
      for (const auto& [key, member] : value.map().items) {
        heap_.step();
        keys.push_back(key);
      }
      return heap_.list(std::move(keys)).list().items;
    }
    case Kind::text: {
      Values characters;
      visit_characters(value.text().bytes(), meter(), 0, [&](const Character& each, std::size_t at) {
        characters.push_back(part(value.text(), at, at + each.length));
        return true;
      });
      return heap_.list(std::move(characters)).list().items;
    }
    default:
      throw TemplateError(fmt::format("'{}' object is not iterable", type_name(value)));
  }
}

std::int64_t Runtime::length(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      return 0;
    case Kind::text:
      return static_cast<std::int64_t>(count_characters(value.text().bytes(), meter()));
    case Kind::map:
      return static_cast<std::int64_t>(value.map().items.size());
    case Kind::list:
      if (value.list().form != ListForm::generator) return static_cast<std::int64_t>(value.list().items.size());
      [[fallthrough]];
    default:
      throw TemplateError(fmt::format("object of type '{}' has no len()", type_name(value)));
  }
}

Value Runtime::call_object(Object& object, const CallArguments& arguments) {
  switch (object.type) {
    case ObjectType::function:
      return static_cast<FunctionObject&>(object).function(*this, Value(), arguments);
    case ObjectType::method: {
      auto& method = static_cast<MethodObject&>(object);
      return method.function(*this, method.self, arguments);
    }
    case ObjectType::joiner: {
      auto& joiner = static_cast<Joiner&>(object);
      return std::exchange(joiner.is_used, true) ? joiner.separator : text("");
    }
    default:
      throw TemplateError(fmt::format("'{}' object is not callable", type_name(Value::of(&object))));
  }
}

}  // namespace troupe::engine::chat
