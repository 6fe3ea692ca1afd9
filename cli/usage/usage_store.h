// Keeps what tenants have used, off the path of requests: they add to a small table in memory, and a thread writes it
// to a UsageDatabase about every second, while there is something to write.
//
// The server serves whatever becomes of the file. One that cannot be opened, is damaged or cannot be written (a full
// disk) is logged and tried again each minute; until then the counts are kept in memory, up to kMaxPendingUsage rows.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>

#include "actors/requests/usage_report.h"
#include "cli/usage/usage_database.h"
#include "cli/usage/usage_table.h"

namespace troupe::cli {

inline constexpr std::size_t kMaxPendingUsage = 4096;      // rows
inline constexpr std::size_t kMaxUsageQuestions = 64;      // that wait for an answer
inline constexpr std::size_t kMaxUsageQuestionsOfOne = 8;  // of these, about one tenant; and about all of them

struct UsageStoreOptions {
  std::string path;  // empty: there is no file, and `note` says why
  std::string note;
  std::int64_t keep_days = 400;
  std::chrono::milliseconds interval{1'000};      // between two writes
  std::chrono::milliseconds retry_after{60'000};  // from a failure to the next attempt
  // From the first write after a checkpoint to the next one: a copy of the file without its log is so much behind.
  std::chrono::milliseconds checkpoint_after{60'000};
  // Old hours are removed from the file once `now` has agreed with the steady clock for so long: a clock that jumps
  // ahead for a while erases nothing. Until then they are only left out of reports.
  std::chrono::milliseconds trust_clock_after{3'600'000};
  std::function<std::int64_t()> now;  // seconds since 1970; from any thread. Empty: the system's clock
};

// Thread-safe.
class UsageStore {
 public:
  // Opens the file on the thread that it starts. Throws std::system_error if that cannot be started.
  explicit UsageStore(UsageStoreOptions options);
  // Writes what is left. What is read is read to its end; questions that wait are answered as busy.
  ~UsageStore();
  UsageStore(const UsageStore&) = delete;
  UsageStore& operator=(const UsageStore&) = delete;

  // Counts for the hour that it is now. Never waits for the disk.
  void add(const actors::UsageEntry& entry);
  // Answers on its thread, with all that was added before. Busy, on this thread, while kMaxUsageQuestions wait, or
  // kMaxUsageQuestionsOfOne with the same UsageQuery::only. Reading takes at most a fifth of a core: after each answer
  // the thread pauses four times as long as that took.
  void ask(actors::UsageQuery query, actors::OnUsageReport answer);

 private:
  struct Question {
    actors::UsageQuery query;
    actors::OnUsageReport answer;
  };

  void run();
  Status write();
  void write_or_log(bool at_end);
  Result<actors::UsageReport> report(actors::UsageQuery query) const;
  bool is_clock_trusted(std::int64_t now);
  std::int64_t first_kept_hour() const;

  const UsageStoreOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  UsageTable pending_{kMaxPendingUsage};
  std::unordered_map<TenantId, std::string> names_;  // of tenants that are no users, as their requests said them
  std::deque<Question> questions_;
  bool stops_ = false;
  std::atomic<bool> ends_{false};  // as stops_, for the database

  // Of the thread.
  UsageTable unwritten_{kMaxPendingUsage};
  std::unique_ptr<UsageDatabase> database_;  // null: not opened yet, or the last attempt failed
  std::string failure_;                      // of the last attempt; empty: it succeeded
  std::chrono::steady_clock::time_point next_attempt_{};
  std::optional<std::chrono::steady_clock::time_point> next_checkpoint_;  // absent: all is in the file
  std::int64_t cleaned_hour_ = 0;                                         // when old hours were last removed
  // Since when both clocks agree.
  struct ClockMark {
    std::int64_t now = 0;
    std::chrono::steady_clock::time_point steady{};
  };
  std::optional<ClockMark> clocks_agree_since_;
  std::thread thread_;
};

}  // namespace troupe::cli
