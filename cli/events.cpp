#include "cli/events.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cstdint>

#include "config/assert.h"

namespace troupe::cli {

EventQueue::EventQueue(std::initializer_list<int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : signals) sigaddset(&set, number);
  TROUPE_ASSERT(pthread_sigmask(SIG_BLOCK, &set, nullptr) == 0);
  signals_ = ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  TROUPE_ASSERT(signals_ >= 0 && wake_ >= 0);
}

EventQueue::~EventQueue() {
  ::close(signals_);
  ::close(wake_);
}

void EventQueue::post(Event event) {
  {
    const std::lock_guard lock(mutex_);
    posted_.push_back(event);
  }
  const std::uint64_t one = 1;
  // Cannot fail: the counter is read long before it is full.
  TROUPE_ASSERT(::write(wake_, &one, sizeof one) == sizeof one);
}

std::optional<Event> EventQueue::wait(std::optional<std::chrono::milliseconds> timeout) {
  while (true) {
    signalfd_siginfo info{};
    if (::read(signals_, &info, sizeof info) == sizeof info) {
      last_signal_ = static_cast<int>(info.ssi_signo);
      return Event::signal;
    }
    {
      const std::lock_guard lock(mutex_);
      if (!posted_.empty()) {
        const Event event = posted_.front();
        posted_.erase(posted_.begin());
        return event;
      }
      std::uint64_t count = 0;  // under the lock: a later post wakes the poll below
      [[maybe_unused]] const auto bytes = ::read(wake_, &count, sizeof count);
    }
    std::array<pollfd, 2> files{pollfd{signals_, POLLIN, 0}, pollfd{wake_, POLLIN, 0}};
    const int ready = ::poll(files.data(), files.size(), timeout ? static_cast<int>(timeout->count()) : -1);
    if (ready == 0) return std::nullopt;
  }
}

}  // namespace troupe::cli
