// The values of a template: Python's, as far as templates see them.
//
// Containers live as long as the Heap of one rendering, so that values that refer to each other in a circle need no
// special care; texts are counted references. Nothing here is thread-safe but texts without a heap, which are constant.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/chat/values/json.h"
#include "engine/chat/values/limits.h"
#include "engine/chat/values/text.h"
#include "engine/compute/interrupt.h"

namespace troupe::engine::chat {

// Where something stands in a template's source: line and character, both from 1; 0: not known.
struct Place {
  int line = 0;
  int column = 0;
};

// Thrown while a template is read or rendered; the doors (template.h) make it an Error.
class TemplateError : public std::exception {
 public:
  explicit TemplateError(std::string message, Place place = {}) : message_(std::move(message)), place_(place) {}
  const char* what() const noexcept override { return message_.c_str(); }
  const std::string& message() const { return message_; }
  Place place() const { return place_; }
  void set_place(Place place) { place_ = place; }

 private:
  std::string message_;
  Place place_;
};

enum class Kind : std::uint8_t {
  undefined,  // a name or member that is not there; its text says so
  none,
  boolean,
  integer,
  real,
  text,
  list,  // and tuples, generators and views
  map,
  object,  // a namespace, a loop, something that can be called
};

class Heap;
struct List;
struct Map;
struct Object;

// A text and the heap that counts its bytes (null: a literal).
struct TextCell {
  TextCell(Text content, Heap* owner);
  ~TextCell();
  TextCell(const TextCell&) = delete;
  TextCell& operator=(const TextCell&) = delete;

  Text text;
  Heap* heap;
};

class Value {
 public:
  Value() = default;  // none
  static Value boolean(bool value);
  static Value integer(std::int64_t value);
  static Value real(double value);
  // An integer beyond 64 bits: computed with as the real number next to it, written as it was given.
  static Value large_integer(double value, std::shared_ptr<const TextCell> digits);
  static Value text(std::shared_ptr<const TextCell> cell);
  static Value undefined(std::shared_ptr<const TextCell> message);
  static Value of(List* list);
  static Value of(Map* map);
  static Value of(Object* object);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_number() const { return kind_ == Kind::boolean || kind_ == Kind::integer || kind_ == Kind::real; }
  bool is_large() const { return kind_ == Kind::real && text_ != nullptr; }
  bool is_whole() const { return kind_ == Kind::boolean || kind_ == Kind::integer; }
  // A number from input: its digits are input, too. Texts and containers know this themselves.
  bool from_input() const { return from_input_; }
  Value marked(bool from_input) const;

  // Of the kind that the name says (asserted by the type of use).
  bool boolean() const { return payload_.integer != 0; }
  std::int64_t integer() const { return payload_.integer; }  // of a boolean: 0 or 1
  double real() const { return payload_.real; }
  double as_real() const { return kind_ == Kind::real ? payload_.real : static_cast<double>(payload_.integer); }
  const Text& text() const { return text_->text; }  // of a large integer its digits
  List& list() const { return *payload_.list; }
  Map& map() const { return *payload_.map; }
  Object& object() const { return *payload_.object; }
  const void* address() const;  // what `is sameas` compares

 private:
  union Payload {
    std::int64_t integer = 0;
    double real;
    List* list;
    Map* map;
    Object* object;
  };

  Kind kind_ = Kind::none;
  bool from_input_ = false;
  Payload payload_;
  std::shared_ptr<const TextCell> text_;
};

struct HeapItem {
  virtual ~HeapItem() = default;
};

// Python's kinds of sequences that differ in what may be done with them.
enum class ListForm : std::uint8_t {
  list,
  tuple,
  view,       // dict.items() and the like: a length, no index
  generator,  // neither; empty after it was iterated; always true
};

struct List : HeapItem {
  std::vector<Value> items;
  ListForm form = ListForm::list;
  bool from_input = false;  // the brackets and commas are input, too
  bool is_spent = false;    // of a generator
};

// A dictionary in the order of insertion.
struct Map : HeapItem {
  // Null if there is none. `key` may be any value that can be compared.
  const Value* find(const Value& key, Heap& heap) const;
  const Value* find(std::string_view key) const;

  std::vector<std::pair<Value, Value>> items;
  bool from_input = false;

 private:
  friend class Heap;
  std::unordered_map<std::string_view, std::size_t> by_text;  // keys that are texts
};

// Base of namespaces, loops and callables (runtime.h).
enum class ObjectType : std::uint8_t { name_space, loop, macro, function, method, cycler, joiner };
struct Object : HeapItem {
  explicit Object(ObjectType type) : type(type) {}
  ObjectType type;
};

// Owns the containers of one rendering, and counts the bytes of all values and the steps of the work. Every function
// throws TemplateError where a bound would be passed. Must outlive its values' texts.
class Heap {
 public:
  // interrupt: may be null; once another thread sets it, step() throws Interrupted.
  explicit Heap(const Limits& limits, const std::atomic<bool>* interrupt = nullptr)
      : limits_(limits), interrupt_(interrupt) {}
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  void step(std::size_t count = 1) {
    interrupt_.poll();
    steps_ += count;
    if (steps_ > limits_.max_steps) throw_too_many_steps();
  }
  // The work of touching this many bytes of text.
  void touch(std::size_t bytes) { step(1 + bytes / 64); }

  void charge(std::size_t bytes);
  void release(std::size_t bytes) { bytes_ -= bytes; }
  // Before a text of this size is put together.
  void check_room(std::size_t bytes) const;

  Value text(Text text);
  Value text(std::string_view bytes, Origin origin = kFromTemplate) { return text(Text(std::string(bytes), origin)); }
  Value undefined(std::string message);
  Value list(std::vector<Value> items, ListForm form = ListForm::list);
  Value map();
  // Adds or replaces.
  void set(Map& map, const Value& key, const Value& value);
  template <class T>
  T* own(std::unique_ptr<T> item) {
    charge(sizeof(T) + sizeof(void*));
    T* const bare = item.get();
    items_.push_back(std::move(item));
    return bare;
  }

  // The value of what came from a client: its texts and numbers are input. Throws for more than kMaxJsonDepth levels.
  Value from_json(const Json& json);

 private:
  Value from_json(const Json& json, std::size_t depth);
  [[noreturn]] void throw_too_many_steps() const;

  Limits limits_;
  Interrupt interrupt_;
  std::uint64_t steps_ = 0;
  std::size_t bytes_ = 0;
  std::vector<std::unique_ptr<HeapItem>> items_;
};

// --- what Python says of values. Containers in one another count as steps; too deep ones throw ---

std::string_view type_name(const Value& value);  // as in Python's messages: "str", "dict"
bool is_true(const Value& value);
// ==. Values of different kinds differ, but for numbers.
bool equals(const Value& a, const Value& b, Heap& heap);
// <: numbers, texts (by code points), lists; throws for others, as Python does (`symbol` is for the message).
bool is_less(const Value& a, const Value& b, Heap& heap, std::string_view symbol = "<");

// str() and repr().
Text to_text(const Value& value, Heap& heap);
Text to_repr(const Value& value, Heap& heap);
std::string real_to_text(double value);  // as Python's repr: "1.0", "1e+16", "nan"

}  // namespace troupe::engine::chat
