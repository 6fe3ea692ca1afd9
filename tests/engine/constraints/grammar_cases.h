// Helpers of the tests of grammars and masks.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <catch2/catch.hpp>

#include "engine/chat/values/json.h"
#include "engine/constraints/grammar/machine.h"
#include "engine/constraints/schema/json_schema.h"
#include "engine/constraints/token_filter.h"

namespace troupe::engine::constraints::test {

inline chat::Json json(std::string_view text) {
  auto parsed = chat::parse_json(text);
  if (!parsed) FAIL(text << ": " << parsed.error().message);
  return *std::move(parsed);
}

inline Machine machine_of(std::string_view schema, const SchemaOptions& options = {}) {
  auto grammar = grammar_of_schema(json(schema), options);
  if (const auto* const refusal = std::get_if<SchemaRefusal>(&grammar)) FAIL(schema << ": " << refusal->message);
  return Machine(std::get<Grammar>(std::move(grammar)));
}

inline SchemaRefusal refusal_of(std::string_view schema) {
  auto grammar = grammar_of_schema(json(schema));
  if (const auto* const refusal = std::get_if<SchemaRefusal>(&grammar)) return *refusal;
  FAIL(schema << " is taken");
  return {};
}

// What takes too much work to tell is not let through.
inline bool accepts(Machine& machine, std::string_view text) {
  try {
    const StateId state = machine.after(machine.begin(), text);
    return state != kStuck && machine.may_end(state);
  } catch (const ConstraintLimit&) {
    return false;
  }
}

inline bool accepts(std::string_view schema, std::string_view text, const SchemaOptions& options = {}) {
  Machine machine = machine_of(schema, options);
  return accepts(machine, text);
}

// Every byte, and `words`.
inline std::shared_ptr<const TokenTrie> small_vocabulary(const std::vector<std::string>& words) {
  std::vector<std::string> pieces{""};  // a control token
  for (unsigned byte = 0; byte < 256; ++byte) pieces.emplace_back(1, static_cast<char>(byte));
  pieces.insert(pieces.end(), words.begin(), words.end());
  return std::make_shared<const TokenTrie>(pieces);
}

}  // namespace troupe::engine::constraints::test
