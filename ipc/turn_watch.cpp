#include "ipc/turn_watch.h"

#include <algorithm>

#include "config/assert.h"

namespace troupe::ipc {

TurnWatch::TurnWatch(std::chrono::milliseconds patience)
    : patience_(std::max<std::chrono::milliseconds>(patience, kLateTurn)) {}

void TurnWatch::asked(TimePoint now) {
  TROUPE_ASSERT(!asked_);
  asked_ = counted_ = now;
  told_ = counts_ = false;
}

TurnWatch::Verdict TurnWatch::came(TimePoint now) {
  TROUPE_ASSERT(asked_);
  const std::chrono::milliseconds late = lateness(now);
  asked_.reset();
  if (late < patience_)
    num_in_a_row_ = 0;
  else if (!counts_ && ++num_in_a_row_ >= 2)
    return Verdict::stuck;
  return late >= kLateTurn ? Verdict::late : Verdict::fine;
}

TurnWatch::Verdict TurnWatch::look(TimePoint now) {
  TROUPE_ASSERT(asked_);
  if (now - counted_ >= patience_) {
    counted_ = now;  // a pause of the whole process, however long, is counted once
    counts_ = true;
    if (++num_in_a_row_ >= 2) return Verdict::stuck;
  }
  if (told_ || lateness(now) < kLateTurn) return Verdict::fine;
  told_ = true;
  return Verdict::late;
}

TurnWatch::TimePoint TurnWatch::next_look() const {
  TROUPE_ASSERT(asked_);
  const TimePoint counts = counted_ + patience_;
  return told_ ? counts : std::min<TimePoint>(*asked_ + kLateTurn, counts);
}

std::chrono::milliseconds TurnWatch::lateness(TimePoint now) const {
  return std::chrono::duration_cast<std::chrono::milliseconds>(now - *asked_);
}

}  // namespace troupe::ipc
