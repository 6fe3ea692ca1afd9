// A JSON Schema, taken apart into nodes that can be conjoined, joined and negated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/chat/values/json.h"

namespace troupe::engine::constraints {

using SchemaId = std::uint32_t;

inline constexpr SchemaId kEverything = 0;  // `true`
inline constexpr SchemaId kNothing = 1;     // `false`

// Types of values. Integers are numbers.
namespace json_type {
inline constexpr std::uint8_t null = 1, boolean = 2, integer = 4, fraction = 8, string = 16, array = 32, object = 64;
inline constexpr std::uint8_t number = integer | fraction, all = 127;
}  // namespace json_type

// What a value must be. One node of:
struct SchemaNode {
  enum class Kind : std::uint8_t {
    everything,
    nothing,
    source,      // the keywords of an object of the schema's text
    negation,    // not parts[0]
    all,         // every one of parts
    any,         // at least one of parts
    types,       // of one of the types
    property,    // if an object with the property `name`: its value is parts[0]
    contains,    // if an array: an item is parts[0]
    items,       // if an array: every item is parts[0]
    not_values,  // none of the values of the list `json`
    not_pattern,
    not_format,    // a string, and `name` does not match it
    not_multiple,  // a number, and not a multiple of `json`
    one_of,        // exactly one of parts
  };
  Kind kind;
  std::uint8_t types = 0;
  const chat::Json* json = nullptr;
  std::string name = {};
  std::vector<SchemaId> parts = {};
  std::string path = {};  // of a source: a JSON pointer from the root, for messages
  std::size_t base = 0;
  bool ref_alone = false;  // keywords beside $ref count for nothing (drafts up to 7)
};

// Thrown where a schema cannot be enforced: a keyword that is not supported here, or a schema that is none.
class SchemaRefused : public std::runtime_error {
 public:
  SchemaRefused(std::string keyword, std::string path, const std::string& why)
      : std::runtime_error(why), keyword(std::move(keyword)), path(std::move(path)) {}
  std::string keyword, path;
};

// The nodes of one schema. Ids are given in the order in which nodes are asked for; equal questions have equal ids. Not
// thread-safe. Throws SchemaRefused.
class SchemaDocument {
 public:
  // Keeps `root`.
  explicit SchemaDocument(chat::Json root);
  SchemaDocument(const SchemaDocument&) = delete;
  SchemaDocument& operator=(const SchemaDocument&) = delete;

  SchemaId root() const { return root_; }
  const SchemaNode& node(SchemaId id) const { return nodes_[id]; }

  // The subschema in `json`, a member or item of the source `parent`; step: how its path goes on ("properties/a").
  SchemaId child(SchemaId parent, const chat::Json& json, std::string_view step);
  SchemaId negation_of(SchemaId id);
  SchemaId all_of(std::vector<SchemaId> parts);
  SchemaId any_of(std::vector<SchemaId> parts);
  SchemaId of_types(std::uint8_t types);
  SchemaId with_property(std::string name, SchemaId value);
  // The target of the $ref of a source.
  SchemaId target_of(SchemaId source, const std::string& reference);

  // What a source asserts beyond its own keywords, as nodes that must all hold: $ref, allOf, anyOf, oneOf, not, if,
  // dependencies.
  const std::vector<SchemaId>& conditions_of(SchemaId source);
  // A negation as alternatives one of which must hold.
  std::vector<SchemaId> alternatives_of_negation(SchemaId negation);

 private:
  SchemaId add(SchemaNode node);
  SchemaId derived(SchemaNode node);  // equal nodes have one id
  SchemaId source(const chat::Json& json, std::string path, std::size_t base);
  SchemaId made(SchemaId parent, chat::Json json);
  void find_resources(const chat::Json& json, const std::string& base, const std::string& path, std::size_t depth);
  std::vector<SchemaId> children(SchemaId parent, const chat::Json& list, std::string_view keyword);
  std::vector<SchemaId> made_conditions(SchemaId id);
  SchemaId negated_source(SchemaId id);

  std::deque<chat::Json> texts_;  // the root, and what is made here
  std::deque<SchemaNode> nodes_;
  std::unordered_map<const chat::Json*, SchemaId> sources_;
  std::map<std::string, SchemaId> derived_;
  std::unordered_map<SchemaId, std::vector<SchemaId>> conditions_;
  std::unordered_map<SchemaId, SchemaId> negated_;
  std::vector<std::string> bases_;
  std::map<std::string, std::pair<const chat::Json*, std::string>> resources_;  // by URI: a schema and its path
  std::unordered_map<const chat::Json*, std::size_t> base_of_;
  bool old_refs_ = false;
  SchemaId root_ = 0;
};

// A name as a part of a JSON pointer (RFC 6901).
[[nodiscard]] std::string pointer_token(std::string_view name);
// Whether there is a value and it is `true`.
[[nodiscard]] bool is_true(const chat::Json* value);
// The types that a type keyword names. Throws SchemaRefused.
[[nodiscard]] std::uint8_t types_named(const chat::Json& type, const std::string& path);
// The type of a value.
[[nodiscard]] std::uint8_t type_of(const chat::Json& value);
// A whole number of at least 0 of a keyword, capped; nothing if it is absent. Throws SchemaRefused.
[[nodiscard]] std::optional<std::uint32_t> count_of(const SchemaNode& source, std::string_view keyword);

}  // namespace troupe::engine::constraints
