// What a template takes is charged as it is taken: for fuzzing, which looks for one that gets away with more.
#pragma once

#include <chrono>
#include <string_view>

#include "config/assert.h"
#include "tests/engine/chat/metered.h"
#include "tests/support/sanitized.h"

namespace troupe::engine::chat {

// Renders `source` over one short message within `limits`, and asserts that it ends within a look at the meter of
// limits.max_steps, that its memory stays within limits.max_value_bytes, and that a step is no more than ten times the
// 100 ns that it stands for (a hundred times with sanitizers), on average over as many as there are in a second.
inline void check_bounds(std::string_view source, const Limits& limits) {
  constexpr std::uint64_t kMostBetweenLooks = Meter::kStepsPerLook + Meter::kMaxPiece;
  constexpr std::int64_t kMostNsPerStep = troupe::test::kSanitized ? 10'000 : 1'000;
  const TimeBudget::Time begin = TimeBudget::kSystem.processor();
  const test::Metered made = test::metered(source, nullptr, nullptr, limits);
  const TimeBudget::Time took = TimeBudget::kSystem.processor() - begin;
  TROUPE_ASSERT(made.longest_piece <= kMostBetweenLooks);
  TROUPE_ASSERT(made.steps <= limits.max_steps + kMostBetweenLooks);
  TROUPE_ASSERT(made.most_bytes <= limits.max_value_bytes);
  TROUPE_ASSERT(made.output_bytes <= limits.max_output_bytes);
  // Reading the source is work, too: of the size of the source.
  TROUPE_ASSERT(took.count() <= kMostNsPerStep * static_cast<std::int64_t>(limits.max_steps + source.size()));
}

}  // namespace troupe::engine::chat
