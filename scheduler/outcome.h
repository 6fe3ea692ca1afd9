// How a request can end: one table, shared by the wire, the exit codes and the counters. Append only. And why one is
// refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace troupe::scheduler {

enum class OutcomeKind : std::uint8_t { done, refused, failed };

// The numbers are on the wire: never reused, never changed.
enum class Outcome : std::uint16_t {
  // done: the stream ended as its request allows; cancelled, deadline, and tool_call behind the last call that it may
  // have, end it before its natural end
  eos = 1,
  stop_id = 2,
  stop_string = 3,
  length = 4,
  cancelled = 5,
  deadline = 6,
  tool_call = 7,
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

// The tokens of a prompt, or of it and its answer, and the most that a sequence can hold.
struct Overflow {
  std::uint64_t tokens = 0, most = 0;
};

// Why a request, a question or a connection is refused: in this one form from the limit that was met to the client.
struct Refusal {
  Outcome outcome = Outcome::internal;
  std::string message{};                 // one line for the user: what is wrong, the numbers, what to do
  std::string field{};                   // the field that would have to change, by its path, or the limit's name
  std::optional<std::uint64_t> limit{};  // the limit that was met
  // Seconds after which a retry may succeed; infinite: none can; no value: not known.
  std::optional<double> retry_after{};
  double to_free = 0;  // of what is held, the part that has to be given back before a retry can succeed; 0: not known
  std::optional<Overflow> overflow{};  // too_long and never_fits, of a sequence
};

// Where nothing better is known.
inline constexpr std::uint64_t kRetryMsIfUnknown = 1000;

// In how many milliseconds a client may try again: retry_after rounded up, at least 1; kRetryMsIfUnknown for a
// retryable outcome without one. nullopt: no retry can succeed.
[[nodiscard]] std::optional<std::uint64_t> retry_ms(const Refusal& refusal);

// The refusal of a wrong value: invalid_argument.
[[nodiscard]] Refusal invalid(std::string field, std::string message);

// The refusal of a value above a limit. `what` begins the message: "the number of ids".
[[nodiscard]] Refusal above(Outcome outcome, std::string field, std::string_view what, std::uint64_t value,
                            std::uint64_t limit);

// The refusal of what would begin while the server drains; its message is also what a client hears when the drain
// begins.
[[nodiscard]] Refusal server_drains();

}  // namespace troupe::scheduler
