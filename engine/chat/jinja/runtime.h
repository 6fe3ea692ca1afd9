// What expressions do with values: members, operators, calls, filters and tests. One per rendering, of one thread.
// Everything throws TemplateError with a message as Python's or Jinja's.
#pragma once

#include <array>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "engine/chat/syntax/ast.h"
#include "engine/chat/values/limits.h"
#include "engine/chat/values/value.h"

namespace troupe::engine::chat {

struct CallArguments {
  Values positional;
  ChargedVector<std::pair<std::string_view, Value>> named;
};

// Arguments given to parameters, by place or by name. Throws for one too many, and for a name that there is not. Each
// name is a step of whoever evaluated it.
class BoundArguments {
 public:
  BoundArguments(std::string_view function, const CallArguments& arguments,
                 std::initializer_list<std::string_view> names);

  const Value* operator[](std::size_t index) const { return values_[index]; }  // null: not given
  // Given, and not none.
  const Value* set(std::size_t index) const;
  const Value& required(std::size_t index) const;
  std::int64_t integer(std::size_t index, std::int64_t fallback) const;
  bool boolean(std::size_t index, bool fallback) const;
  const Text& text(std::size_t index) const;
  // Given, and not none; throws if it is no text.
  const Text* optional_text(std::size_t index) const;

 private:
  static constexpr std::size_t kMost = 4;

  std::string_view function_;
  std::size_t count_;
  std::array<std::string_view, kMost> names_{};
  std::array<const Value*, kMost> values_{};
};

class Runtime;
// Filters and methods: of an input and arguments. Tests answer a boolean.
using Function = Value (*)(Runtime& runtime, const Value& input, const CallArguments& arguments);

// --- objects ---

struct Namespace : Object {
  explicit Namespace(Map* members) : Object(ObjectType::name_space), members(members) {}
  Map* members;
};
struct LoopState : Object {
  LoopState() : Object(ObjectType::loop) {}
  const Values* items = nullptr;  // of a value, so they stay as they are
  std::size_t index = 0;
  std::optional<Values> last_changed;
};
struct FunctionObject : Object {  // a global function
  FunctionObject(std::string_view name, Function function)
      : Object(ObjectType::function), name(name), function(function) {}
  std::string_view name;
  Function function;
};
struct MethodObject : Object {
  MethodObject(Value self, Function function) : Object(ObjectType::method), self(std::move(self)), function(function) {}
  Value self;
  Function function;
};
struct Cycler : Object {
  explicit Cycler(Values items) : Object(ObjectType::cycler), items(std::move(items)) {}
  Values items;
  std::size_t index = 0;
};
struct Joiner : Object {
  explicit Joiner(Value separator) : Object(ObjectType::joiner), separator(std::move(separator)) {}
  Value separator;
  bool is_used = false;
};

// The answer of strftime_now(): the time is an argument of a rendering.
using FormatNow = std::function<std::string(std::string_view format)>;

class Runtime {
 public:
  Runtime(const Limits& limits, TimeBudget* time, const std::atomic<bool>* interrupt, FormatNow now)
      : heap_(limits, time, interrupt), now_(std::move(now)) {}
  virtual ~Runtime() = default;

  Heap& heap() { return heap_; }
  Meter& meter() { return heap_.meter(); }
  const FormatNow& now() const { return now_; }
  Value text(Text text) { return heap_.text(std::move(text)); }
  Value text(std::string_view bytes) { return heap_.text(bytes); }
  // A part of a text.
  Value part(const Text& whole, std::size_t begin, std::size_t end) { return text(whole.part(begin, end, meter())); }
  // What str() gives, as a value.
  Value as_text(const Value& value);

  // a.name, a[index], a[start:stop:step]. What is not there is undefined; a member of what is undefined throws.
  Value attribute(const Value& object, std::string_view name);
  Value item(const Value& object, const Value& index);
  Value slice(const Value& object, const Value* start, const Value* stop, const Value* step);
  // Jinja's attribute arguments: "a.b" and "0". `fallback` (may be null) takes the place of a part that is not there.
  Value path(const Value& object, const Value& attribute, const Value* fallback = nullptr);

  Value arithmetic(Operator op, const Value& a, const Value& b);
  bool compare(Operator op, const Value& a, const Value& b);
  bool contains(const Value& container, const Value& item);
  Value negate(const Value& value);

  // The items that a loop goes through; a generator is spent by it. They stay as they are until the rendering ends.
  const Values& iterate(const Value& value);
  std::int64_t length(const Value& value);

  virtual Value call(const Value& callee, const CallArguments& arguments) = 0;
  Value filter(std::string_view name, const Value& input, const CallArguments& arguments);
  bool test(std::string_view name, const Value& input, const CallArguments& arguments);

 protected:
  // What a.name(...) calls, if that is a method of a built-in type; else null.
  static Function method_of(const Value& object, std::string_view name);
  // Of everything but macros.
  Value call_object(Object& object, const CallArguments& arguments);

 private:
  Value member(const Value& object, std::string_view name);
  Value loop_member(LoopState& loop, const Value& self, std::string_view name);
  Value method(const Value& self, Function function);
  Value missing(const Value& object, const Value& name);

  static constexpr std::uint32_t kMaxFilterDepth = 100;  // map('map', 'map', ...): bounds the stack

  Heap heap_;
  FormatNow now_;
  std::uint32_t filter_depth_ = 0;
};

// Throws the message of an undefined value.
void require_defined(const Value& value);
[[noreturn]] void fail_type(std::string_view what, const Value& value);

// --- tables; null if there is none of that name ---

Function find_text_method(std::string_view name);
Function find_list_method(std::string_view name);
Function find_map_method(std::string_view name);
Function find_text_filter(std::string_view name);
Function find_sequence_filter(std::string_view name);
Function find_global_function(std::string_view name);
bool is_changing_method(std::string_view name);  // list.append and the like, which a sandbox refuses
// loop.cycle(), loop.changed()
Function loop_cycle();
Function loop_changed();
// "%s" % ..., and "{}".format(...).
Text format_percent(Runtime& runtime, const Text& format, const Value& arguments);
Text format_braces(Runtime& runtime, const Text& format, const CallArguments& arguments);

}  // namespace troupe::engine::chat
