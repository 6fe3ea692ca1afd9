#include "engine/chat/values/time_budget.h"

#include <time.h>

namespace troupe::engine::chat {

const TimeBudget::Clock TimeBudget::kSystem = {
    .elapsed = []() -> Time { return std::chrono::steady_clock::now().time_since_epoch(); },
    .processor = []() -> Time {
      timespec used{};
      ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
      return std::chrono::seconds(used.tv_sec) + Time(used.tv_nsec);
    }};

TimeBudget::TimeBudget(std::chrono::milliseconds elapsed, std::chrono::milliseconds processor, const Clock& clock)
    : clock_(clock),
      elapsed_(elapsed),
      processor_(processor),
      begin_(clock.elapsed()),
      processor_begin_(clock.processor()) {}

bool TimeBudget::is_used_up() {
  constexpr int kLeastShare = 4;
  const Time elapsed = clock_.elapsed() - begin_;
  // A thread takes no more processor time than has gone by.
  if (used_up_ || elapsed < processor_) return used_up_;
  const Time processor = clock_.processor() - processor_begin_;
  used_up_ = processor >= processor_ || (elapsed >= elapsed_ && processor >= processor_ / kLeastShare);
  return used_up_;
}

}  // namespace troupe::engine::chat
