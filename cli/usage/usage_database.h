// The file of what tenants have used: a SQLite database, one row for each hour and tenant.
//
// Rows are added up in transactions with a write-ahead log, so a process that is killed loses only what it had not
// written, and several servers of a user may share a file. The file alone, without its log, has the table from the
// beginning and the rows of the last checkpoint(). On a network filesystem, where the log's shared memory does
// not work between machines, a rollback journal takes its place.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "actors/requests/usage_report.h"
#include "cli/usage/usage_table.h"
#include "config/result.h"

struct sqlite3;

namespace troupe::cli {

// How long SQLite may work for a call: a file that another user has prepared, or that has grown without bound, must not
// keep the server busy.
struct UsageTimes {
  std::chrono::milliseconds open{20'000};
  std::chrono::milliseconds read{3'000};
  std::chrono::milliseconds write{10'000};
  std::chrono::milliseconds at_end{1'000};  // at most, of each of these, once *ends is set
  const std::atomic<bool>* ends = nullptr;  // from any thread; outlives the database. Null: it is never set
};

// Not thread-safe. All calls block on the disk; errors name the file.
//
// The file may have been put there by another user. Symbolic links are not followed to it (those above it are), it
// and SQLite's files beside it belong to this user or root and no other user can write to them, and its schema is
// exactly the one that this class makes: anything else in it, as a trigger or a view, is refused by name before it is
// used.
class UsageDatabase {
 public:
  // Opens the file, or makes it (mode 0600) with the folder that it is in (0700) and the one above. Checks all of it:
  // O(size). Errors: bad_config if it is damaged or not such a file, which is left as it is; permission, io.
  static Result<std::unique_ptr<UsageDatabase>> open(const std::string& path, const UsageTimes& times = {});
  // Opens an existing file for rows() only. Root may open any user's.
  static Result<std::unique_ptr<UsageDatabase>> open_to_read(const std::string& path, const UsageTimes& times = {});
  // Opens a file that no other process has open, and keeps it so; the log beside it goes into it. Error: busy, if
  // another process has it; as open().
  static Result<std::unique_ptr<UsageDatabase>> open_alone(const std::string& path, const UsageTimes& times = {});
  ~UsageDatabase();
  UsageDatabase(const UsageDatabase&) = delete;
  UsageDatabase& operator=(const UsageDatabase&) = delete;

  // Adds all rows, or none if it fails (a full disk).
  Status add(const UsageTable& rows);
  // Removes the hours before this time.
  Status forget_before(std::int64_t time);
  // Writes the log into the file, as far as other processes let it. Error: of the disk alone.
  Status checkpoint();
  // Whether open() found a file that is not empty and has no table, as a copy without its log.
  [[nodiscard]] bool lacked_table() const { return lacked_table_; }
  // By period, then by tenant. invalid_argument: more than kMaxUsageRows.
  Result<std::vector<actors::UsageRow>> rows(const actors::UsageQuery& query) const;
  // Copies all of it, as it is at this moment, to a new file (mode 0600) that needs no log beside it. Others may write
  // meanwhile.
  Status copy_to(const std::string& path) const;

 private:
  struct Close {
    void operator()(sqlite3* database) const;
  };
  UsageDatabase(std::string path, const UsageTimes& times) : path_(std::move(path)), times_(times) {}
  Status connect(int flags);
  Status prepare();
  Status check();
  Status check_schema();
  void begin(std::chrono::milliseconds limit) const;
  static int on_progress(void* self);
  Status run(const std::string& sql);
  Result<std::int64_t> number(const std::string& sql);
  Error failure(const char* doing) const;

  const std::string path_;
  const UsageTimes times_;
  bool lacked_table_ = false;
  mutable std::chrono::steady_clock::time_point began_{};  // the call that is being made
  mutable std::chrono::milliseconds limit_{0};             // for it
  std::unique_ptr<sqlite3, Close> database_;
};

// The path for --usage-db: "auto" is usage.db in the directory of state_path(). Error: as there.
[[nodiscard]] Result<std::string> usage_path(const std::string& option);

}  // namespace troupe::cli
