// How a request can end: one table, shared by the wire, the exit codes and the counters. Append only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace troupe::scheduler {

enum class OutcomeKind : std::uint8_t { done, refused, failed };

// The numbers are on the wire: never reused, never changed.
enum class Outcome : std::uint16_t {
  // done: the stream ended as its request allows; cancelled and deadline end it before its natural end
  eos = 1,
  stop_id = 2,
  stop_string = 3,
  length = 4,
  cancelled = 5,
  deadline = 6,
  // refused: nothing was computed
  invalid_argument = 100,
  too_long = 101,
  never_fits = 102,
  unknown_model = 103,
  loading = 104,
  draining = 105,
  queue_full = 106,
  quota = 107,
  deadline_unmeetable = 108,
  permission = 109,
  unsupported = 110,
  // failed: the server failed after work began
  worker_lost = 200,
  quarantined = 201,
  preempted_too_often = 202,
  model_unloaded = 203,
  out_of_memory = 204,
  internal = 205,
};

struct OutcomeInfo {
  Outcome outcome;
  OutcomeKind kind;
  std::string_view name;  // "queue_full"
  bool retryable;         // the same request may succeed later
  int exit_code;          // of `troupe run`
  int http_status;
};

[[nodiscard]] std::span<const OutcomeInfo> outcomes();
[[nodiscard]] const OutcomeInfo& info(Outcome outcome);
[[nodiscard]] std::size_t index_of(Outcome outcome);  // of its row in outcomes()
[[nodiscard]] std::optional<Outcome> outcome_from_number(std::uint32_t number);

}  // namespace troupe::scheduler
