// Any bytes as a grammar of GBNF: read or refused within the limits of work and memory, and what it lets through is
// UTF-8 that ends. The grammar ends with a zero byte, behind which come bytes that choose a way through it.
#include <string>

#include "config/utf8.h"
#include "engine/constraints/gbnf/gbnf_grammar.h"
#include "engine/constraints/grammar/machine.h"
#include "tests/fuzz/fuzz_target.h"

namespace troupe::engine::constraints {
namespace {

constexpr std::size_t kMaxWalkedBytes = 400;
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
  const std::string shortest = machine.shortest_text(machine.begin());
  TROUPE_ASSERT(is_utf8(shortest) && machine.may_end(machine.after(machine.begin(), shortest)));
  // Each byte is one that can follow, or the next one that can.
  StateId state = machine.begin();
  std::string walked;
  for (const char choice : choices.substr(0, kMaxWalkedBytes)) {
    StateId next = kStuck;
    for (unsigned step = 0; step < 256 && next == kStuck; ++step) {
      const auto byte = static_cast<std::uint8_t>(static_cast<std::uint8_t>(choice) + step);
      next = machine.next(state, byte);
      if (next != kStuck) walked += static_cast<char>(byte);
    }
    if (next == kStuck) break;
    TROUPE_ASSERT(machine.shortest(next) + 1 >= machine.shortest(state));
    state = next;
  }
  walked += machine.shortest_text(state);
  TROUPE_ASSERT(is_utf8(walked) && machine.may_end(machine.after(machine.begin(), walked)));
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
