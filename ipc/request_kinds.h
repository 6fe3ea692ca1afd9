// The kinds of requests, and counters of requests by kind and outcome. Plain values; not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "scheduler/outcome.h"

namespace troupe::ipc {

// The kind of a request, in a frame or over HTTP. Cancel and Credit are not requests.
enum class RequestKind : std::uint8_t { generate, embed, tokenize, detokenize, models, status, health, other };

struct RequestKindInfo {
  RequestKind kind;
  std::string_view name;    // in metrics and lines of the log; that of the body in ClientFrame
  bool takes_work = false;  // of the model or its vocabulary: ServerOptions::on_ended is told of each
};

inline constexpr std::array kRequestKinds{
    RequestKindInfo{.kind = RequestKind::generate, .name = "generate", .takes_work = true},
    RequestKindInfo{.kind = RequestKind::embed, .name = "embed", .takes_work = true},
    RequestKindInfo{.kind = RequestKind::tokenize, .name = "tokenize", .takes_work = true},
    RequestKindInfo{.kind = RequestKind::detokenize, .name = "detokenize", .takes_work = true},
    RequestKindInfo{.kind = RequestKind::models, .name = "models"},
    RequestKindInfo{.kind = RequestKind::status, .name = "status"},
    RequestKindInfo{.kind = RequestKind::health, .name = "health"},
    RequestKindInfo{.kind = RequestKind::other, .name = "other"},
};

[[nodiscard]] constexpr const RequestKindInfo& info(RequestKind kind) {
  return kRequestKinds[static_cast<std::size_t>(kind)];
}

static_assert([] {
  for (const RequestKindInfo& each : kRequestKinds)
    if (&info(each.kind) != &each) return false;
  return true;
}());

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

  std::array<std::uint64_t, kRequestKinds.size()> received_{};
  std::array<std::array<std::uint64_t, kMaxOutcomes>, kRequestKinds.size()> ended_{};
};

}  // namespace troupe::ipc
