// The values of a template: Python's, as far as templates see them.
//
// Containers live as long as the Heap of one rendering, so that values that refer to each other in a circle need no
// special care; texts are counted references. Nothing here is thread-safe but texts without a heap, which are constant.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "engine/chat/values/charged.h"
#include "engine/chat/values/json.h"
#include "engine/chat/values/limits.h"
#include "engine/chat/values/meter.h"
#include "engine/chat/values/template_error.h"
#include "engine/chat/values/text.h"

namespace troupe::engine::chat {

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

class Value {
 public:
  Value() = default;  // none
  static Value boolean(bool value);
  static Value integer(std::int64_t value);
  static Value real(double value);
  // An integer beyond 64 bits: computed with as the real number next to it, written as it was given.
  static Value large_integer(double value, std::shared_ptr<const Text> digits);
  static Value text(std::shared_ptr<const Text> cell);
  static Value undefined(std::shared_ptr<const Text> message);
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
  const Text& text() const { return *text_; }  // of a large integer its digits
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
  std::shared_ptr<const Text> text_;
};

using Values = ChargedVector<Value>;

struct HeapItem {
  virtual ~HeapItem() = default;
  static void* operator new(std::size_t bytes) { return take_charged(bytes); }
  static void operator delete(void* memory, std::size_t bytes) { give_back_charged(memory, bytes); }
};

// Python's kinds of sequences that differ in what may be done with them.
enum class ListForm : std::uint8_t {
  list,
  tuple,
  view,       // dict.items() and the like: a length, no index
  generator,  // neither; empty after it was iterated; always true
};

// Its items never change once it is a value: whoever goes through them needs no copy.
struct List : HeapItem {
  Values items;
  ListForm form = ListForm::list;
  bool from_input = false;  // the brackets and commas are input, too
  bool is_spent = false;    // of a generator
};

// A dictionary in the order of insertion: a hash table, which a few items do without. Each slot that a search looks at
// is a step, so keys that were chosen to collide cost whoever chose them.
struct Map : HeapItem {
  // Null if there is none. `key` may be any value that can be compared.
  const Value* find(const Value& key, Heap& heap) const;
  const Value* find(std::string_view key, Heap& heap) const;

  ChargedVector<std::pair<Value, Value>> items;
  bool from_input = false;

 private:
  friend class Heap;
  // The place in `items`, or their number.
  std::size_t search(const Value& key, Heap& heap) const;
  std::size_t search(std::string_view key, Heap& heap) const;
  // The same; hash(): of the key; is_key(value): whether it is this key.
  template <class Hash, class IsKey>
  std::size_t place_of(Hash hash, IsKey is_key, Heap& heap) const;
  // After an item was added.
  void index_last(Heap& heap);
  void put(std::size_t place, Heap& heap);

  ChargedVector<std::size_t> hashes_;   // of the items' keys; none while there are few
  ChargedVector<std::uint32_t> slots_;  // places + 1, 0: free; a power of two, at least half of them free
};

// Base of namespaces, loops and callables (runtime.h).
enum class ObjectType : std::uint8_t { name_space, loop, macro, function, method, cycler, joiner };
struct Object : HeapItem {
  explicit Object(ObjectType type) : type(type) {}
  ObjectType type;
};

// Owns the containers of one rendering, and counts its memory and its work. Every function throws TemplateError where a
// bound would be passed. Of one thread; must outlive all values.
class Heap {
 public:
  // time, interrupt: as of Meter.
  Heap(const Limits& limits, TimeBudget* time, const std::atomic<bool>* interrupt)
      : account_(limits.max_value_bytes), meter_(limits.max_steps, time, interrupt) {}
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  Meter& meter() { return meter_; }
  void step(std::size_t count = 1) { meter_.work(count); }
  const MemoryAccount& account() const { return account_; }

  Value text(Text text);
  // Short, or there already: not charged as work.
  Value text(std::string_view bytes, Origin origin = kFromTemplate) { return text(Text(bytes, origin)); }
  Value undefined(std::string_view message);
  Value list(Values items, ListForm form = ListForm::list);
  Value map();
  // Adds or replaces.
  void set(Map& map, const Value& key, const Value& value);
  template <class T>
  T* own(std::unique_ptr<T> item) {
    T* const bare = item.get();
    items_.push_back(std::move(item));
    return bare;
  }

  // The value of what came from a client: its texts and numbers are input. Throws for more than kMaxJsonDepth levels.
  Value from_json(const Json& json);

 private:
  Value from_json(const Json& json, std::size_t depth);

  MemoryAccount account_;  // first: it counts what the others give back
  Meter meter_;
  ChargedVector<std::unique_ptr<HeapItem>> items_;
};

// --- what Python says of values. Containers in one another count as steps; too deep ones throw ---

std::string_view type_name(const Value& value);  // as in Python's messages: "str", "dict"
bool is_true(const Value& value);
// ==. Values of different kinds differ, but for numbers.
bool equals(const Value& a, const Value& b, Heap& heap);
// <: numbers, texts (by code points), lists; throws for others, as Python does (`symbol` is for the message).
bool is_less(const Value& a, const Value& b, Heap& heap, std::string_view symbol = "<");

// str() and repr(): written behind `out`, or as a text of their own.
void append_text(const Value& value, Heap& heap, Text& out);
void append_repr(const Value& value, Heap& heap, Text& out);
Text to_text(const Value& value, Heap& heap);
Text to_repr(const Value& value, Heap& heap);
std::string real_to_text(double value);  // as Python's repr: "1.0", "1e+16", "nan"

}  // namespace troupe::engine::chat
