// What the serving loop says to the keeper of a model's cache, and hears: values. The rules are those of
// cache/lease_book.h.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "cache/lease_book.h"
#include "scheduler/shares/admission.h"

namespace troupe::scheduler {

// Every step up to this one has ended. Sent before the messages that its result causes.
struct StepEnded {
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;
};

// Asks how many of this request's tokens are cached or being computed.
struct Predict {
  RequestNumber request = 0;
  cache::ScopeList scopes;
  cache::Tokens tokens;
};

using LeaseMessage =
    std::variant<StepEnded, cache::Acquire, cache::Extend, cache::Commit, cache::Yield, cache::Release, Predict>;

struct Prediction {
  RequestNumber request = 0;
  std::uint32_t tokens = 0;  // cached or in flight
};

}  // namespace troupe::scheduler
