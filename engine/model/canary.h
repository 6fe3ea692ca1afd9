// A canary: fixed tokens that a model computes, whose bits must always be the same.
//
// The promise of numerics_id, equal ids give equal bits, is what makes one number enough: a model whose canary differs
// from that of an earlier load, of an earlier hour or of another machine with the same numerics_id has damaged weights,
// or a CPU, memory or kernel that does not compute what it should. What it cannot see: weights that these tokens do not
// touch, as most of a mixture's experts and of an embedding's rows (WeightChecks sees them), and errors that come and
// go.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/compute/team.h"
#include "engine/engine.h"
#include "engine/model/encoder.h"

namespace troupe::engine {

// Tokens: kCanaryPrompt in one pass, as a prompt, then kCanarySteps passes of one row, as steps of one stream; fewer in
// a shorter context. Token i is the id (104729 i + 1) mod the vocabulary.
inline constexpr std::uint32_t kCanaryPrompt = 16;
inline constexpr std::uint32_t kCanarySteps = 4;

// The computation of one. Between two passes the team may run steps; the canary's K, V and states are its own, a few
// blocks from the model's MemoryPolicy.
class Canary {
 public:
  virtual ~Canary() = default;
  // Runs one pass. True after the last one: then value() is known, and advance() must not be called again. Throws
  // Stopped, and bad_alloc.
  [[nodiscard]] virtual bool advance(Team& team) = 0;
  // Of the bits of all logits, and of what the greedy head takes from the last ones; of an encoder, of a text's vector.
  [[nodiscard]] std::uint64_t value() const { return value_; }
  // Equal keys have equal values: the numerics_id and, of one that is shorter because the context is, its tokens.
  [[nodiscard]] const std::string& key() const { return key_; }

 protected:
  Canary(const std::string& numerics_id, std::size_t num_tokens);
  std::uint64_t value_ = 0;

 private:
  const std::string key_;
};
// The model must outlive it. Throws bad_alloc.
[[nodiscard]] std::unique_ptr<Canary> make_canary(const LoadedModel& model);
[[nodiscard]] std::unique_ptr<Canary> make_canary(const Encoder& encoder);

}  // namespace troupe::engine
