// What the io thread is doing, for the log of one that takes too long.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace troupe::ipc {

// For whom: a user that the kernel names, or a client over TCP of which nothing is known.
struct ActiveFor {
  std::uint32_t uid = 0;
  std::int32_t pid = 0;  // 0: unknown
  bool is_known = false;
};

// Written by the io thread, read by any.
class Activity {
 public:
  [[nodiscard]] std::string text() const;

 private:
  friend class Doing;
  std::atomic<const char*> what_{nullptr};  // null: waiting for events, or between two of them
  std::atomic<const char*> detail_{""};
  std::atomic<std::uint64_t> uid_and_pid_{0};
  std::atomic<bool> has_user_{false};
};

// Names what is done as long as it lives; not across a co_await. The texts are literals: "reads", "a request".
class Doing {
 public:
  Doing(Activity& activity, const char* what, const char* detail = "", ActiveFor user = {});
  ~Doing();
  Doing(const Doing&) = delete;
  Doing& operator=(const Doing&) = delete;

 private:
  Activity& activity_;
  const char* const what_before_;
};

}  // namespace troupe::ipc
