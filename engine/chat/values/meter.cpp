#include "engine/chat/values/meter.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/chat/values/template_error.h"
#include "engine/compute/interrupt.h"

namespace troupe::engine::chat {

Meter::Meter(std::uint64_t max_steps, TimeBudget* time, const std::atomic<bool>* interrupt)
    : max_steps_(max_steps), time_(time), interrupt_(interrupt), next_look_(std::min(kStepsPerLook, max_steps)) {}

void Meter::look() {
  longest_piece_ = std::max(longest_piece_, steps_ - last_look_);
  last_look_ = steps_;
  if (interrupt_ != nullptr && interrupt_->load(std::memory_order_relaxed)) throw Interrupted();
  if (steps_ > max_steps_) throw TemplateError(fmt::format("it takes more than {} steps", max_steps_));
  if (time_ != nullptr && time_->is_used_up())
    throw TemplateError(fmt::format("it takes longer than {} ms", time_->bound().count()));
  next_look_ = steps_ + std::min(kStepsPerLook, max_steps_ - steps_ + 1);
}

}  // namespace troupe::engine::chat
