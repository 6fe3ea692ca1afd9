// Whether the io thread comes to its work in time, by turns that are asked of it: the next is asked for a while after
// the last has come. Plain: time is an argument.
#pragma once

#include <chrono>
#include <optional>

namespace troupe::ipc {

// A turn that comes so much later than it was asked for is late.
inline constexpr std::chrono::seconds kLateTurn{1};

class TurnWatch {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;  // CLOCK_MONOTONIC: stands still while the machine sleeps

  // patience: a turn that is so late counts, at least kLateTurn, and once more after as long again. The second in a row
  // is one too many. One alone is not: after SIGSTOP and SIGCONT, or a pause of a virtual machine, a turn is late that
  // comes at once.
  explicit TurnWatch(std::chrono::milliseconds patience);

  enum class Verdict { fine, late, stuck };

  // A turn is asked for; not while another is outstanding.
  void asked(TimePoint now);
  // It has come.
  [[nodiscard]] Verdict came(TimePoint now);
  // While a turn is outstanding. late: said once of each turn. stuck: the second in a row that counts.
  [[nodiscard]] Verdict look(TimePoint now);
  // When to look again.
  [[nodiscard]] TimePoint next_look() const;
  [[nodiscard]] bool is_outstanding() const { return asked_.has_value(); }
  // Of the outstanding turn.
  [[nodiscard]] std::chrono::milliseconds lateness(TimePoint now) const;

 private:
  const std::chrono::milliseconds patience_;
  std::optional<TimePoint> asked_;
  TimePoint counted_{};  // when the outstanding turn was asked for, or last counted
  bool told_ = false;    // that it is late
  bool counts_ = false;  // the outstanding turn has been counted
  int num_in_a_row_ = 0;
};

}  // namespace troupe::ipc
