#include "engine/chat/jinja/runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

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
  if (value.is(Kind::undefined)) throw TemplateError(value.text().bytes());
}

void fail_type(std::string_view what, const Value& value) {
  require_defined(value);
  throw TemplateError(fmt::format("{}, not {}", what, type_name(value)));
}

BoundArguments::BoundArguments(std::string_view function, const CallArguments& arguments,
                               std::initializer_list<std::string_view> names)
    : function_(function), names_(names), values_(names.size(), nullptr) {
  if (arguments.positional.size() > names_.size())
    throw TemplateError(fmt::format("{}() takes at most {} arguments ({} given)", function, names_.size(),
                                    arguments.positional.size()));
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found == names_.end())
      throw TemplateError(fmt::format("{}() got an unexpected keyword argument '{}'", function, name));
    const Value*& place = values_[static_cast<std::size_t>(found - names_.begin())];
    if (place != nullptr)
      throw TemplateError(fmt::format("{}() got multiple values for argument '{}'", function, name));
    place = &value;
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
  return Value::of(heap_.own(std::make_unique<MethodObject>(self, function)));
}

Value Runtime::missing(const Value& object, const Value& name) {
  if (name.is(Kind::text))
    return heap_.undefined(fmt::format("'{}' has no attribute '{}'", object_name(object), name.text().bytes()));
  return heap_.undefined(fmt::format("{} has no element {}", object_name(object), to_repr(name, heap_).bytes()));
}

// A member that Python's getattr() would find; none of it: an undefined value.
Value Runtime::member(const Value& object, std::string_view name) {
  if (name.substr(0, 2) == "__" || is_changing_method(name)) {
    const bool has_it = name[0] == '_' || object.is(Kind::list) || object.is(Kind::map);
    if (has_it)
      return heap_.undefined(
          fmt::format("access to attribute '{}' of '{}' object is unsafe.", name, type_name(object)));
  }
  Function function = nullptr;
  if (object.is(Kind::text)) function = find_text_method(name);
  if (object.is(Kind::list) && object.list().form <= ListForm::tuple) function = find_list_method(name);
  if (object.is(Kind::map)) function = find_map_method(name);
  if (function != nullptr) return method(object, function);
  if (!object.is(Kind::object)) return missing(object, text(name));
  if (object.object().type == ObjectType::name_space) {
    const Value* const found = static_cast<Namespace&>(object.object()).members->find(name);
    return found != nullptr ? *found : missing(object, text(name));
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
  return missing(object, text(name));
}

Value Runtime::loop_member(LoopState& loop, const Value& self, std::string_view name) {
  const auto index = static_cast<std::int64_t>(loop.index), size = static_cast<std::int64_t>(loop.items.size());
  if (name == "index") return Value::integer(index + 1);
  if (name == "index0") return Value::integer(index);
  if (name == "first") return Value::boolean(index == 0);
  if (name == "last") return Value::boolean(index + 1 == size);
  if (name == "length") return Value::integer(size);
  if (name == "revindex") return Value::integer(size - index);
  if (name == "revindex0") return Value::integer(size - index - 1);
  if (name == "depth" || name == "depth0") return Value::integer(name == "depth" ? 1 : 0);  // of recursive loops
  if (name == "previtem") return index > 0 ? loop.items[loop.index - 1] : heap_.undefined("there is no previous item");
  if (name == "nextitem")
    return index + 1 < size ? loop.items[loop.index + 1] : heap_.undefined("there is no next item");
  if (name == "cycle") return method(self, loop_cycle());
  if (name == "changed") return method(self, loop_changed());
  return missing(self, text(name));
}

Value Runtime::attribute(const Value& object, std::string_view name) {
  require_defined(object);
  Value found = member(object, name);
  if (!found.is(Kind::undefined) || !object.is(Kind::map)) return found;
  const Value* const item = object.map().find(name);
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
    heap_.touch(bytes.size());
    const auto offsets = character_offsets(bytes);
    const std::int64_t at = wrapped(index.integer(), offsets.size() - 1);
    if (at >= 0 && at < static_cast<std::int64_t>(offsets.size()) - 1)
      return text(
          object.text().substr(offsets[static_cast<std::size_t>(at)], offsets[static_cast<std::size_t>(at) + 1]));
  }
  return index.is(Kind::text) ? member(object, index.text().bytes()) : missing(object, index);
}

Value Runtime::slice(const Value& object, const Value* start, const Value* stop, const Value* step) {
  require_defined(object);
  if (object.is(Kind::text)) {
    const Text& whole = object.text();
    heap_.touch(whole.size());
    const auto offsets = character_offsets(whole.bytes());
    const auto [from, to, by] = slice_indices(static_cast<std::int64_t>(offsets.size()) - 1, start, stop, step);
    if (by == 1)
      return text(from < to
                      ? whole.substr(offsets[static_cast<std::size_t>(from)], offsets[static_cast<std::size_t>(to)])
                      : Text());
    Text part;
    for (std::int64_t i = from; by > 0 ? i < to : i > to; i += by)
      part.append(whole, offsets[static_cast<std::size_t>(i)], offsets[static_cast<std::size_t>(i) + 1]);
    return text(std::move(part));
  }
  if (!object.is(Kind::list) || object.list().form > ListForm::tuple)
    return heap_.undefined(fmt::format("{} has no elements to slice", object_name(object)));
  const auto& items = object.list().items;
  const auto [from, to, by] = slice_indices(static_cast<std::int64_t>(items.size()), start, stop, step);
  heap_.step(items.size() / 8);
  std::vector<Value> part;
  for (std::int64_t i = from; by > 0 ? i < to : i > to; i += by) part.push_back(items[static_cast<std::size_t>(i)]);
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
    const std::string_view part = rest.substr(0, rest.find('.'));
    std::int64_t number = 0;
    const bool is_number = !part.empty() &&
                           std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; }) &&
                           std::from_chars(part.data(), part.data() + part.size(), number).ec == std::errc();
    at = part_of(at, is_number ? Value::integer(number) : text(part));
    if (part.size() == rest.size()) return at;
    rest.remove_prefix(part.size() + 1);
  }
}

std::vector<Value> Runtime::iterate(const Value& value) {
  std::vector<Value> items;
  switch (value.kind()) {
    case Kind::undefined:
      return items;
    case Kind::list: {
      List& list = value.list();
      if (list.form == ListForm::generator && std::exchange(list.is_spent, true)) return items;
      heap_.step(list.items.size() / 8);
      return list.items;
    }
    case Kind::map:
      heap_.step(value.map().items.size() / 8);
      for (const auto& [key, member] : value.map().items) items.push_back(key);
      return items;
    case Kind::text: {
      const auto offsets = character_offsets(value.text().bytes());
      heap_.step(offsets.size());
      for (std::size_t i = 0; i + 1 < offsets.size(); ++i)
        items.push_back(text(value.text().substr(offsets[i], offsets[i + 1])));
      return items;
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
      heap_.touch(value.text().size());
      return static_cast<std::int64_t>(count_characters(value.text().bytes()));
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
