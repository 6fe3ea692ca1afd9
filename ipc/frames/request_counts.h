// Counters of received requests by kind, and of their outcomes. Plain values; not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "scheduler/outcome.h"

namespace troupe::ipc {

// The kind of a request, in frames or over HTTP. Cancel and Credit are not requests.
enum class RequestKind : std::uint8_t { generate, embed, tokenize, detokenize, models, status, health, other };
inline constexpr std::array<std::string_view, 8> kRequestKindNames{"generate", "embed",  "tokenize", "detokenize",
                                                                   "models",   "status", "health",   "other"};

// Every request is received once and ends once. A Generate for n answers counts as n requests; if n is out of range, as
// one. A request answered by one frame ended as `eos`; one that was open when its connection closed as `cancelled`.
class RequestCounts {
 public:
  void received(RequestKind kind, std::uint64_t count = 1) { received_[index(kind)] += count; }
  void ended(RequestKind kind, scheduler::Outcome outcome, std::uint64_t count = 1) {
    ended_[index(kind)].at(scheduler::index_of(outcome)) += count;
  }
  std::uint64_t num_received(RequestKind kind) const { return received_[index(kind)]; }
  std::uint64_t num_ended(RequestKind kind, scheduler::Outcome outcome) const {
    return ended_[index(kind)][scheduler::index_of(outcome)];
  }

 private:
  static constexpr std::size_t kMaxOutcomes = 32;  // rows of scheduler::outcomes()
  static std::size_t index(RequestKind kind) { return static_cast<std::size_t>(kind); }

  std::array<std::uint64_t, kRequestKindNames.size()> received_{};
  std::array<std::array<std::uint64_t, kMaxOutcomes>, kRequestKindNames.size()> ended_{};
};

}  // namespace troupe::ipc
