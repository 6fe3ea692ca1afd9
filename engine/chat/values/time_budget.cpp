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
      processor_begin_(processor < elapsed ? clock.processor() : Time()) {}

bool TimeBudget::is_used_up() {
  const Time elapsed = clock_.elapsed() - begin_;
  // A thread takes no more processor time than has gone by.
  used_up_ = used_up_ || elapsed >= elapsed_ ||
             (processor_ < elapsed_ && elapsed >= processor_ && clock_.processor() - processor_begin_ >= processor_);
  return used_up_;
}

}  // namespace troupe::engine::chat
