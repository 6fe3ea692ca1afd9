#include "cli/events.h"

namespace troupe::cli {

void EventQueue::post(Event event) { push({event, 0}); }
void EventQueue::post_signal(int number) { push({Event::signal, number}); }

void EventQueue::push(Entry entry) {
  {
    const std::lock_guard lock(mutex_);
    entries_.push_back(entry);
  }
  posted_.notify_one();
}

std::optional<Event> EventQueue::wait(std::optional<std::chrono::milliseconds> timeout) {
  std::unique_lock lock(mutex_);
  const auto is_posted = [this] { return !entries_.empty(); };
  if (!timeout)
    posted_.wait(lock, is_posted);
  else if (!posted_.wait_for(lock, *timeout, is_posted))
    return std::nullopt;
  const Entry entry = entries_.front();
  entries_.pop_front();
  if (entry.event == Event::signal) last_signal_ = entry.signal;
  return entry.event;
}

}  // namespace troupe::cli
