// Any bytes as a grammar of GBNF: read or refused within the limits of work and memory, and what it lets through is
// UTF-8 that ends. The grammar ends with a zero byte, behind which come bytes that choose a way through it.
#include <string>

#include "config/utf8.h"
#include "engine/constraints/gbnf/gbnf_grammar.h"
#include "engine/constraints/grammar/machine.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/grammar_walk.h"

namespace troupe::engine::constraints {
namespace {

constexpr std::size_t kMaxWork = kMaxMakingWork / 20;  // sanitizers make each derivation that much slower

void check_grammar(std::string_view text, std::string_view choices) {
  auto grammar = grammar_of_gbnf(text);
  if (!grammar) {
    fuzz::check_message(grammar.error().message);
    TROUPE_ASSERT(grammar.error().code == ErrorCode::unsupported ||
                  grammar.error().code == ErrorCode::invalid_argument);
    return;
  }
  Machine machine(std::move(*grammar));
  machine.pool().limit_work(kMaxWork);
  for (const std::string& each : {machine.shortest_text(machine.begin()), walked(machine, choices)})
    TROUPE_ASSERT(is_utf8(each) && machine.may_end(machine.after(machine.begin(), each)));
}

}  // namespace
}  // namespace troupe::engine::constraints

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troupe;
  using namespace troupe::engine::constraints;
  fuzz::Input in(data, size);
  const std::string_view grammar = in.until('\0');
  try {
    check_grammar(grammar, in.rest());
  } catch (const ConstraintLimit& limit) {
    fuzz::check_message(limit.what());
  }
  return 0;
}
