// Counts of drafts, by what drafted them.
#pragma once

#include <array>
#include <cstdint>

#include "engine/drafting/speculation.h"

namespace troupe::actors {

// Drafts that steps verified.
struct DraftCounts {
  std::uint64_t drafts = 0;
  std::uint64_t tokens = 0;    // of these drafts
  std::uint64_t accepted = 0;  // of these tokens
};

using DraftCountsBySource = std::array<DraftCounts, engine::kDraftSourceNames.size()>;  // by engine::DraftSource

}  // namespace troupe::actors
