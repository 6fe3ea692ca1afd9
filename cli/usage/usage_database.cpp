#include "cli/usage/usage_database.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <utility>
#include <vector>

#include "config/file_descriptor.h"
#include "config/printable.h"
#include "config/state_directory.h"
#include "config/system_error.h"

namespace troupe::cli {
namespace {

namespace fs = std::filesystem;
using actors::UsageCounts;
using actors::UsageTenant;

constexpr int kApplicationId = 0x74727570;  // "trup", in the file's header
constexpr int kSchemaVersion = 1;
constexpr std::int64_t kNoUid = -1;  // the tenant has a name instead
constexpr int kBusyMs = 2'000;       // how long another process may hold the lock
constexpr int kMaxRowBytes = 1 << 20;
constexpr int kStepsBetweenLooks = 1'000;  // of SQLite's machine, at the clock: far less than a millisecond

class Statement {
 public:
  Statement(sqlite3* database, const std::string& sql) {
    ::sqlite3_prepare_v2(database, sql.c_str(), static_cast<int>(sql.size()), &statement_, nullptr);
  }
  ~Statement() { ::sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  // Values are bound to the parameters in their order.
  void bind(std::int64_t value) { ::sqlite3_bind_int64(statement_, ++bound_, value); }
  void bind(std::uint64_t value) { bind(static_cast<std::int64_t>(value)); }
  void bind(double value) { ::sqlite3_bind_double(statement_, ++bound_, value); }
  void bind(const std::string& value) {
    ::sqlite3_bind_text(statement_, ++bound_, value.data(), static_cast<int>(value.size()), SQLITE_TRANSIENT);
  }
  void bind(const UsageTenant& tenant) {
    bind(tenant.uid ? std::int64_t{*tenant.uid} : kNoUid);
    bind(tenant.name);
  }
  // SQLITE_ROW, SQLITE_DONE or an error, also that of a statement that could not be prepared.
  int step() { return statement_ ? ::sqlite3_step(statement_) : SQLITE_ERROR; }
  void reset() {
    ::sqlite3_reset(statement_);
    bound_ = 0;
  }

  std::int64_t integer(int column) const { return ::sqlite3_column_int64(statement_, column); }
  double real(int column) const { return ::sqlite3_column_double(statement_, column); }
  std::string text(int column) const {
    const auto* bytes = reinterpret_cast<const char*>(::sqlite3_column_text(statement_, column));
    return bytes ? std::string(bytes, static_cast<std::size_t>(::sqlite3_column_bytes(statement_, column))) : "";
  }

 private:
  sqlite3_stmt* statement_ = nullptr;
  int bound_ = 0;
};

// A text for each count, joined: "done INTEGER NOT NULL, ...".
template <class Write>
std::string for_counts(Write&& write) {
  std::string all;
  actors::for_each_count([&](const char* name, auto count) {
    constexpr bool kIsReal = std::is_same_v<decltype(count), double UsageCounts::*>;
    all += fmt::format("{}{}", all.empty() ? "" : ", ", write(name, kIsReal));
  });
  return all;
}

// As SQLite keeps it in the file.
std::string table_sql() {
  return fmt::format(
      "CREATE TABLE usage (hour INTEGER NOT NULL, uid INTEGER NOT NULL, name TEXT NOT NULL, {}, "
      "PRIMARY KEY (hour, uid, name)) STRICT, WITHOUT ROWID",
      for_counts([](const char* name, bool is_real) {
        return fmt::format("{} {} NOT NULL", name, is_real ? "REAL" : "INTEGER");
      }));
}

std::string schema() {
  return fmt::format("{}; PRAGMA application_id = {}; PRAGMA user_version = {}", table_sql(), kApplicationId,
                     kSchemaVersion);
}

std::string insertion() {
  return fmt::format(
      "INSERT INTO usage (hour, uid, name, {}) VALUES (?, ?, ?, {}) ON CONFLICT (hour, uid, name) DO UPDATE SET {}",
      for_counts([](const char* name, bool) { return std::string(name); }),
      for_counts([](const char*, bool) { return std::string("?"); }),
      for_counts([](const char* name, bool) { return fmt::format("{0} = {0} + excluded.{0}", name); }));
}

bool is_network_filesystem(const std::string& path) {
  // NFS, CIFS, SMB2, FUSE (sshfs), Lustre, GPFS, Ceph, AFS: of linux/magic.h, or of their own sources.
  constexpr std::array<std::uint32_t, 8> kMagics{0x6969,     0xff534d42, 0xfe534d42, 0x65735546,
                                                 0x0bd00bd0, 0x47504653, 0x00c36400, 0x5346414f};
  struct statfs info {};
  if (::statfs(path.c_str(), &info) != 0) return false;
  return std::ranges::find(kMagics, static_cast<std::uint32_t>(info.f_type)) != kMagics.end();
}

Error file_error(ErrorCode code, const std::string& path, const std::string& what) {
  return {code, fmt::format("{} {}; move it away, or choose another file (--usage-db)", path, what)};
}

// Whether only this user and root can have written to the file; `info`: of it.
Status check_owner(const std::string& path, const struct stat& info, bool any_owner) {
  if (S_ISLNK(info.st_mode)) return file_error(ErrorCode::bad_config, path, "is a symbolic link");
  if (!S_ISREG(info.st_mode)) return file_error(ErrorCode::bad_config, path, "is not a plain file");
  if (info.st_uid != ::geteuid() && info.st_uid != 0 && !any_owner)
    return file_error(ErrorCode::permission, path, fmt::format("belongs to another user (uid {})", info.st_uid));
  if ((info.st_mode & 022) != 0)
    return file_error(ErrorCode::permission, path, "can be written to by other users (chmod 600 it)");
  return Ok{};
}

// Opens the file without reading it and checks it, and those that SQLite has beside it. The descriptor (O_PATH) does
// not release this process's locks on the file when it is closed, as another one would.
Result<FileDescriptor> open_checked(const std::string& path, bool any_owner) {
  FileDescriptor file(::open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  struct stat info {};
  if (file.get() < 0 || ::fstat(file.get(), &info) != 0) {
    Error error = system_error(path, errno);
    error.message += "; choose another file (--usage-db), or none (off)";
    return error;
  }
  if (Status safe = check_owner(path, info, any_owner); !safe) return safe.error();
  for (const char* suffix : {"-wal", "-shm", "-journal"}) {
    struct stat beside {};
    const std::string name = path + suffix;
    if (::lstat(name.c_str(), &beside) != 0) continue;
    if (Status safe = check_owner(name, beside, any_owner); !safe) return safe.error();
  }
  if (info.st_uid == ::geteuid() && (info.st_mode & 077) != 0)
    ::chmod(fmt::format("/proc/self/fd/{}", file.get()).c_str(), 0600);
  return file;
}

// The path without symbolic links above the file: SQLite is told to follow none at all.
std::string resolved(const std::string& path) {
  std::error_code failed;
  const fs::path file(path);
  const fs::path folder = fs::canonical(file.has_parent_path() ? file.parent_path() : fs::path("."), failed);
  return failed ? path : (folder / file.filename()).string();
}

// Makes the file, and its folder and the one above that, unless they exist; readable for this user only.
void make_file(const std::string& path) {
  const fs::path folder = fs::path(path).parent_path();
  for (const fs::path& each : {folder.parent_path(), folder})
    if (!each.empty()) ::mkdir(each.c_str(), 0700);
  // What fails shows when it is opened. A file that is there is left alone.
  const FileDescriptor made(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
}

}  // namespace

void UsageDatabase::Close::operator()(sqlite3* database) const { ::sqlite3_close_v2(database); }

UsageDatabase::~UsageDatabase() = default;

Result<std::unique_ptr<UsageDatabase>> UsageDatabase::open(const std::string& path, const UsageTimes& times) {
  make_file(path);
  std::error_code unknown;
  const auto size = fs::file_size(path, unknown);
  std::unique_ptr<UsageDatabase> opened(new UsageDatabase(path, times));
  opened->begin(times.open);
  if (Status done = opened->connect(SQLITE_OPEN_READWRITE); !done) return done.error();
  const auto tables = opened->number("SELECT count(*) FROM sqlite_master");
  if (!tables) return tables.error();
  // Nothing in a file of another program is changed.
  if (Status done = *tables > 0 ? opened->check() : Status(Ok{}); !done) return done.error();
  opened->lacked_table_ = *tables == 0 && !unknown && size > 0;
  if (Status done = opened->prepare(); !done) return done.error();
  if (Status done = opened->checkpoint(); !done) return done.error();
  return opened;
}

Result<std::unique_ptr<UsageDatabase>> UsageDatabase::open_to_read(const std::string& path, const UsageTimes& times) {
  std::unique_ptr<UsageDatabase> opened(new UsageDatabase(path, times));
  opened->begin(times.open);
  if (Status done = opened->connect(SQLITE_OPEN_READONLY); !done) return done.error();
  if (Status done = opened->check(); !done) return done.error();
  return opened;
}

Result<std::unique_ptr<UsageDatabase>> UsageDatabase::open_alone(const std::string& path, const UsageTimes& times) {
  std::unique_ptr<UsageDatabase> opened(new UsageDatabase(path, times));
  opened->begin(times.open);
  if (Status done = opened->connect(SQLITE_OPEN_READWRITE); !done) return done.error();
  // Another process that has it open holds a lock that keeps this one from leaving the write-ahead log.
  for (const char* each : {"PRAGMA locking_mode = EXCLUSIVE", "PRAGMA journal_mode = DELETE", "BEGIN EXCLUSIVE"})
    if (Status done = opened->run(each); !done) {
      if ((::sqlite3_errcode(opened->database_.get()) & 0xff) != SQLITE_BUSY) return done.error();
      return Error{ErrorCode::busy, path + ": a server uses it; stop it first"};
    }
  return opened;
}

Status UsageDatabase::connect(int flags) {
  const std::string path = resolved(path_);
  const auto checked = open_checked(path, (flags & SQLITE_OPEN_READONLY) != 0 && ::geteuid() == 0);
  if (!checked) return checked.error();
  sqlite3* database = nullptr;
  const int code =
      ::sqlite3_open_v2(path.c_str(), &database, flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW, nullptr);
  database_.reset(database);  // also of a failure
  if (code != SQLITE_OK) return failure("open it");
  // SQLite has opened what was checked, unless the name has been given to another file meanwhile.
  struct stat before {
  }, after{};
  if (::fstat(checked->get(), &before) != 0 || ::lstat(path.c_str(), &after) != 0 || before.st_dev != after.st_dev ||
      before.st_ino != after.st_ino)
    return Error{ErrorCode::io, fmt::format("{}: it was replaced while it was opened", path_)};
  ::sqlite3_busy_timeout(database, kBusyMs);
  ::sqlite3_extended_result_codes(database, 1);
  // What a prepared schema might have SQLite do.
  for (const auto& [option, on] :
       {std::pair(SQLITE_DBCONFIG_DEFENSIVE, 1), std::pair(SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0),
        std::pair(SQLITE_DBCONFIG_ENABLE_TRIGGER, 0), std::pair(SQLITE_DBCONFIG_ENABLE_VIEW, 0)})
    ::sqlite3_db_config(database, option, on, nullptr);
  ::sqlite3_limit(database, SQLITE_LIMIT_LENGTH, kMaxRowBytes);
  ::sqlite3_limit(database, SQLITE_LIMIT_ATTACHED, 0);
  ::sqlite3_progress_handler(database, kStepsBetweenLooks, on_progress, this);
  return Ok{};
}

void UsageDatabase::begin(std::chrono::milliseconds limit) const {
  began_ = std::chrono::steady_clock::now();
  limit_ = limit;
}

// Not 0: SQLite gives the statement up.
int UsageDatabase::on_progress(void* self) {
  const auto& database = *static_cast<const UsageDatabase*>(self);
  const bool ends = database.times_.ends != nullptr && *database.times_.ends;
  const auto limit = ends ? std::min(database.limit_, database.times_.at_end) : database.limit_;
  return std::chrono::steady_clock::now() - database.began_ > limit ? 1 : 0;
}

// Sets up the connection, and makes the table in an empty file; another process may do the same at the same time.
Status UsageDatabase::prepare() {
  const bool is_remote = is_network_filesystem(path_);
  if (Status done = run(is_remote ? "PRAGMA journal_mode = DELETE" : "PRAGMA journal_mode = WAL"); !done) return done;
  // A crash of the machine may lose the last transactions of a write-ahead log, but damages nothing.
  if (Status done = run(is_remote ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = NORMAL"); !done) return done;
  if (Status done = run("BEGIN IMMEDIATE"); !done) return done;
  const auto tables = number("SELECT count(*) FROM sqlite_master");
  Status made = !tables ? Status(tables.error()) : *tables > 0 ? check_schema() : run(schema());
  if (made) made = run("COMMIT");
  if (!made) (void)run("ROLLBACK");
  return made;
}

Status UsageDatabase::check() {
  const auto id = number("PRAGMA application_id");
  if (!id) return id.error();
  const auto version = number("PRAGMA user_version");
  if (!version) return version.error();
  const auto refuse = [&](const std::string& why) {
    return Error{ErrorCode::bad_config, fmt::format("{}: {}", path_, why)};
  };
  const auto tables = number("SELECT count(*) FROM sqlite_master");
  if (!tables) return tables.error();
  if (*id == 0 && *tables == 0)
    return refuse(
        fmt::format("it is empty, as a copy without its log is: copy {}-wal with it, or let `troupe backup` "
                    "make the copy",
                    fs::path(path_).filename().string()));
  if (*id != kApplicationId) return refuse("this is another program's database; choose another file (--usage-db)");
  if (*version != kSchemaVersion)
    return refuse(
        fmt::format("it has version {}, and this troupe writes version {}; move it away, or choose another "
                    "file (--usage-db)",
                    *version, kSchemaVersion));
  if (Status ours = check_schema(); !ours) return ours;
  Statement check(database_.get(), "PRAGMA quick_check(1)");
  if (check.step() != SQLITE_ROW) return failure("check it");
  if (const std::string found = check.text(0); found != "ok")
    return refuse(fmt::format("it is damaged ({}); move it away, and a new one is begun", found));
  return Ok{};
}

// Whether the table is there as schema() makes it, and nothing else.
Status UsageDatabase::check_schema() {
  Statement all(database_.get(), "SELECT type, name, sql FROM sqlite_master");
  bool has_table = false;
  int code = SQLITE_DONE;
  while ((code = all.step()) == SQLITE_ROW) {
    const std::string type = all.text(0), name = all.text(1);
    const bool is_table = type == "table" && name == "usage";
    if (is_table && all.text(2) == table_sql() && !has_table) {
      has_table = true;
      continue;
    }
    return Error{ErrorCode::bad_config,
                 fmt::format("{}: its {} {} is not one that troupe makes; move it away, and a new one is begun", path_,
                             Printable(type).text(), Printable(name).text())};
  }
  if (code != SQLITE_DONE) return failure("read it");
  if (has_table) return Ok{};
  return Error{ErrorCode::bad_config,
               fmt::format("{}: it has no table of usage; move it away, and a new one is begun", path_)};
}

Status UsageDatabase::add(const UsageTable& rows) {
  if (rows.empty()) return Ok{};
  begin(times_.write);
  if (Status begun = run("BEGIN IMMEDIATE"); !begun) return begun;
  Status done = Ok{};
  {
    Statement insert(database_.get(), insertion());
    for (const auto& [key, counts] : rows.rows()) {
      insert.bind(key.first);
      insert.bind(key.second);
      actors::for_each_count([&, &values = counts](const char*, auto count) { insert.bind(values.*count); });
      if (insert.step() != SQLITE_DONE) done = failure("write to it");
      insert.reset();
      if (!done) break;
    }
  }
  if (done) done = run("COMMIT");
  if (!done) (void)run("ROLLBACK");  // SQLite has done it already after some errors
  return done;
}

Status UsageDatabase::checkpoint() {
  begin(times_.write);
  const int code = ::sqlite3_wal_checkpoint_v2(database_.get(), nullptr, SQLITE_CHECKPOINT_PASSIVE, nullptr, nullptr);
  return code == SQLITE_OK || (code & 0xff) == SQLITE_BUSY ? Status(Ok{}) : failure("write to it");
}

Status UsageDatabase::forget_before(std::int64_t time) {
  begin(times_.write);
  return run(fmt::format("DELETE FROM usage WHERE hour < {}", actors::begin_of_hour(time)));
}

Result<std::vector<actors::UsageRow>> UsageDatabase::rows(const actors::UsageQuery& query) const {
  begin(times_.read);
  const char* const period = query.by == actors::UsagePeriod::hour  ? "hour"
                             : query.by == actors::UsagePeriod::day ? "hour - hour % 86400"
                                                                    : "0";
  Statement select(database_.get(),
                   fmt::format("SELECT {} AS period, uid, name, {} FROM usage WHERE hour >= ? {} GROUP BY 1, 2, 3 "
                               "ORDER BY 1, 2, 3 LIMIT {}",
                               period, for_counts([](const char* name, bool) { return fmt::format("sum({})", name); }),
                               query.only ? "AND uid = ? AND name = ?" : "", actors::kMaxUsageRows + 1));
  select.bind(actors::begin_of_hour(query.since));
  if (query.only) select.bind(*query.only);
  std::vector<actors::UsageRow> rows;
  int code = SQLITE_DONE;
  while ((code = select.step()) == SQLITE_ROW) {
    actors::UsageRow& row = rows.emplace_back();
    row.begin = select.integer(0);
    if (select.integer(1) != kNoUid) row.tenant.uid = static_cast<std::uint32_t>(select.integer(1));
    row.tenant.name = select.text(2);
    int column = 3;
    actors::for_each_count([&](const char*, auto count) {
      if constexpr (std::is_same_v<decltype(count), double UsageCounts::*>)
        row.counts.*count = select.real(column++);
      else
        row.counts.*count = static_cast<std::uint64_t>(select.integer(column++));
    });
  }
  if (code != SQLITE_DONE) return failure("read it");
  if (rows.size() > actors::kMaxUsageRows)
    return Error{ErrorCode::invalid_argument,
                 fmt::format("these are more than {} rows; ask for a shorter time, or for days or totals",
                             actors::kMaxUsageRows)};
  return rows;
}

Status UsageDatabase::copy_to(const std::string& path) const {
  const FileDescriptor made(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (made.get() < 0) return system_error(path + ": cannot be made", errno);
  sqlite3* opened = nullptr;
  int code = ::sqlite3_open_v2(resolved(path).c_str(), &opened,
                               SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW, nullptr);
  const std::unique_ptr<sqlite3, Close> copy(opened);  // also of a failure
  if (code == SQLITE_OK) {
    sqlite3_backup* const backup = ::sqlite3_backup_init(copy.get(), "main", database_.get(), "main");
    if (backup != nullptr) (void)::sqlite3_backup_step(backup, -1);  // all pages: of one moment
    code = backup != nullptr ? ::sqlite3_backup_finish(backup) : ::sqlite3_errcode(copy.get());
  }
  // As in the file that was copied, a log would lie beside it.
  if (code == SQLITE_OK) code = ::sqlite3_exec(copy.get(), "PRAGMA journal_mode = DELETE", nullptr, nullptr, nullptr);
  if (code == SQLITE_OK) return Ok{};
  return Error{ErrorCode::io, fmt::format("{}: cannot be copied to {}: {}", path_, path, ::sqlite3_errstr(code))};
}

Status UsageDatabase::run(const std::string& sql) {
  if (::sqlite3_exec(database_.get(), sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) return failure("use it");
  return Ok{};
}

Result<std::int64_t> UsageDatabase::number(const std::string& sql) {
  Statement statement(database_.get(), sql);
  if (statement.step() != SQLITE_ROW) return failure("read it");
  return statement.integer(0);
}

Error UsageDatabase::failure(const char* doing) const {
  const int code = database_ ? ::sqlite3_errcode(database_.get()) & 0xff : SQLITE_NOMEM;
  const char* const why = database_ ? ::sqlite3_errmsg(database_.get()) : "out of memory";
  if (code == SQLITE_CORRUPT || code == SQLITE_NOTADB)
    return {
        ErrorCode::bad_config,
        fmt::format("{}: it is damaged, or no usage database ({}); move it away, and a new one is begun", path_, why)};
  if (code == SQLITE_INTERRUPT)
    return {ErrorCode::io, fmt::format("{}: cannot {}: it takes longer than {} ms", path_, doing, limit_.count())};
  const bool denied = code == SQLITE_PERM || code == SQLITE_READONLY || code == SQLITE_AUTH;
  return {denied ? ErrorCode::permission : ErrorCode::io, fmt::format("{}: cannot {}: {}", path_, doing, why)};
}

Result<std::string> usage_path(const std::string& option) {
  if (option != "auto") return option;
  auto path = state_path("usage-db", "usage.db");
  // The third folder above the file, ~/.local; open() makes the other two.
  if (path) ::mkdir(fs::path(*path).parent_path().parent_path().parent_path().c_str(), 0700);
  return path;
}

}  // namespace troupe::cli
