// Any JSON as a schema: a grammar or a refusal within the limits of work, and whatever the grammar lets through is JSON
// that meets the schema. The schema ends with a zero byte, behind which come bytes that choose a way through the
// grammar.
#include <string>

#include "engine/constraints/grammar/machine.h"
#include "engine/constraints/schema/json_schema.h"
#include "engine/constraints/schema/schema_values.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/grammar_walk.h"

namespace troupe::engine::constraints {
namespace {

constexpr std::size_t kMaxWork = kMaxMakingWork / 20;  // sanitizers make each derivation that much slower

void check_text(const chat::Json& schema, const std::string& text) {
  const auto value = chat::parse_json(text);
  if (!value && text.find_first_of("[{") != std::string::npos && text.size() > 60) return;  // deeper than is read
  TROUPE_ASSERT(value);
  RegexPool pool;
  pool.limit_work(kMaxWork);
  SchemaDocument document(schema);
  SchemaValues values(document, pool);
  TROUPE_ASSERT(values.matches(document.root(), *value));
}

void check_schema(const chat::Json& schema, std::string_view choices) {
  auto made = grammar_of_schema(schema, {.max_work = kMaxWork});
  if (const auto* const refusal = std::get_if<SchemaRefusal>(&made)) {
    fuzz::check_message(refusal->message);
    return;
  }
  Machine machine(std::get<Grammar>(std::move(made)));
  machine.pool().limit_work(kMaxWork);
  check_text(schema, machine.shortest_text(machine.begin()));
  check_text(schema, walked(machine, choices));
}

}  // namespace
}  // namespace troupe::engine::constraints

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troupe;
  using namespace troupe::engine::constraints;
  fuzz::Input in(data, size);
  const auto schema = engine::chat::parse_json(in.until('\0'));
  if (!schema) return 0;
  try {
    check_schema(*schema, in.rest());
  } catch (const ConstraintLimit& limit) {
    fuzz::check_message(limit.what());
  } catch (const SchemaRefused&) {
    // Of the validator, which supports no more than the grammar.
  }
  return 0;
}
