// Helpers for a caller that has a model to itself: logits of a text, a greedy continuation.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/ids.h"
#include "config/result.h"
#include "engine/engine.h"

namespace troupe::engine {

// Raw logits [tokens.size(), vocab_size] of every position, computed `chunk` tokens at a time (>= 1; the bits do not
// depend on it). Uses the model's KV blocks from 0 on: no other caller may use them at the same time. Error:
// invalid_argument for ids outside the vocabulary or more tokens than context and blocks hold.
[[nodiscard]] Result<std::vector<float>> evaluate(const LoadedModel& model, Team& team, std::span<const TokenId> tokens,
                                                  std::uint32_t chunk = 512);

// The likeliest next `count` tokens one after another; fewer after an end-of-generation token or if the context is
// full. Otherwise as evaluate().
[[nodiscard]] Result<std::vector<TokenId>> greedy(const LoadedModel& model, Team& team, std::span<const TokenId> prompt,
                                                  std::uint32_t count, bool ignore_eos = false);

}  // namespace troupe::engine
