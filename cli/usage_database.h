// The file of what tenants have used: a SQLite database, one row for each hour and tenant.
//
// Rows are added up in transactions with a write-ahead log, so a process that is killed loses only what it had not
// written, and several servers of a user may share a file. On a network filesystem, where the log's shared memory does
// not work between machines, a rollback journal takes its place.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "actors/usage_report.h"
#include "cli/usage_table.h"
#include "config/result.h"

struct sqlite3;

namespace troupe::cli {

// Not thread-safe. All calls block on the disk; errors name the file.
class UsageDatabase {
 public:
  // Opens the file, or makes it (mode 0600) with the folder that it is in (0700) and the one above. Checks all of it:
  // O(size). Errors: bad_config if it is damaged or not such a file, which is left as it is; permission, io.
  static Result<std::unique_ptr<UsageDatabase>> open(const std::string& path);
  // Opens an existing file for rows() only.
  static Result<std::unique_ptr<UsageDatabase>> open_to_read(const std::string& path);
  ~UsageDatabase();
  UsageDatabase(const UsageDatabase&) = delete;
  UsageDatabase& operator=(const UsageDatabase&) = delete;

  // Adds all rows, or none if it fails (a full disk).
  Status add(const UsageTable& rows);
  // Removes the hours before this time.
  Status forget_before(std::int64_t time);
  // By period, then by tenant. invalid_argument: more than kMaxUsageRows.
  Result<std::vector<actors::UsageRow>> rows(const actors::UsageQuery& query) const;

 private:
  struct Close {
    void operator()(sqlite3* database) const;
  };
  explicit UsageDatabase(std::string path) : path_(std::move(path)) {}
  Status connect(int flags);
  Status prepare();
  Status check();
  Status run(const std::string& sql);
  Result<std::int64_t> number(const std::string& sql);
  Error failure(const char* doing) const;

  const std::string path_;
  std::unique_ptr<sqlite3, Close> database_;
};

// The path for --usage-db: "auto" is usage.db in $STATE_DIRECTORY (systemd's StateDirectory=), $XDG_STATE_HOME/troupe
// or
// ~/.local/state/troupe. Error: bad_config, if none of these is set or the home does not exist.
[[nodiscard]] Result<std::string> usage_path(const std::string& option);

}  // namespace troupe::cli
