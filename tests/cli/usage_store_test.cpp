// The account of usage: its file, also damaged, full or of a process that was killed, and the thread that writes it.
#include "cli/usage/usage_store.h"

#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <csignal>
#include <fstream>
#include <future>
#include <sstream>
#include <thread>

#include "tests/support/temp_folder.h"

namespace troupe::cli {
namespace {

using actors::UsageCounts;
using actors::UsagePeriod;
using actors::UsageReport;
using actors::UsageRow;
using actors::UsageTenant;
using scheduler::Outcome;
using troupe::test::TempFolder;

constexpr std::int64_t kHour = actors::kHourSeconds;
constexpr std::int64_t kStart = 1'790'000 * kHour;
const UsageTenant kAnnUsed{.uid = 1000, .name = {}}, kLabUsed{.uid = {}, .name = "lab"};

UsageTable table_of(std::int64_t hour, const UsageTenant& tenant, std::uint64_t done) {
  UsageTable table(kMaxPendingUsage);
  table.add({hour, tenant}, {.done = done, .answer_tokens = 10 * done, .cpu_seconds = 0.5 * static_cast<double>(done)});
  return table;
}

std::unique_ptr<UsageDatabase> open_database(const std::string& path) {
  auto database = UsageDatabase::open(path);
  INFO((database ? "" : database.error().message));
  REQUIRE(database);
  return std::move(*database);
}

std::vector<UsageRow> rows_of(const UsageDatabase& database, const actors::UsageQuery& query = {}) {
  auto rows = database.rows(query);
  REQUIRE(rows);
  return *rows;
}

std::uint64_t done_in(const std::string& path) {
  const auto rows = rows_of(*open_database(path));
  return rows.empty() ? 0 : rows.at(0).counts.done;
}

mode_t mode_of(const std::string& path) {
  struct stat info {};
  REQUIRE(::stat(path.c_str(), &info) == 0);
  return info.st_mode & 0777;
}

std::string bytes_of(const std::string& path) {
  std::ostringstream bytes;
  bytes << std::ifstream(path, std::ios::binary).rdbuf();
  return bytes.str();
}

actors::UsageEntry ended(std::uint64_t tenant, Outcome outcome = Outcome::length) {
  actors::UsageEntry entry;
  entry.tenant.id = TenantId{tenant};
  entry.outcome = outcome;
  entry.has_begun = true;
  entry.usage.completion_tokens = 10;
  return entry;
}

Result<UsageReport> ask(UsageStore& store, const actors::UsageQuery& query = {}) {
  std::promise<Result<UsageReport>> answer;
  store.ask(query, [&](Result<UsageReport> report) { answer.set_value(std::move(report)); });
  return answer.get_future().get();
}

UsageStoreOptions store_options(const std::string& path) {
  UsageStoreOptions options;
  options.path = path;
  options.now = [] { return kStart + 5; };
  return options;
}

}  // namespace

TEST_CASE("usage table: sums by hour and tenant, and a full one merges further tenants") {
  UsageTable table(2);
  table.add({kStart, kAnnUsed}, {.done = 1});
  table.add({kStart, kLabUsed}, {.done = 2});
  table.add({kStart, kAnnUsed}, {.done = 3});
  for (std::uint32_t uid = 1; uid <= 50; ++uid) table.add({kStart, {.uid = uid, .name = {}}}, {.refused = 1});
  CHECK(table.rows().size() == 3);
  CHECK(table.rows().at({kStart, kAnnUsed}).done == 4);
  CHECK(table.rows().at({kStart, kLabUsed}).done == 2);
  CHECK(table.rows().at({kStart, {.uid = {}, .name = kOtherTenants}}).refused == 50);
}

TEST_CASE("usage file: rows add up over transactions and openings, by total, day and hour") {
  const TempFolder folder;
  const std::string path = folder.path("state/troupe/usage.db");
  const std::int64_t day = kStart - kStart % (24 * kHour);
  {
    const auto database = open_database(path);
    REQUIRE(database->add(table_of(day, kAnnUsed, 1)));
    REQUIRE(database->add(table_of(day, kAnnUsed, 2)));
    REQUIRE(database->add(table_of(day + kHour, kAnnUsed, 4)));
    REQUIRE(database->add(table_of(day + 24 * kHour, kLabUsed, 8)));
  }
  CHECK(mode_of(path) == 0600);
  CHECK(mode_of(folder.path("state/troupe")) == 0700);
  const auto database = open_database(path);
  const auto total = rows_of(*database);
  REQUIRE(total.size() == 2);
  CHECK(total[0].tenant == kLabUsed);
  CHECK(total[0].counts == UsageCounts{.done = 8, .answer_tokens = 80, .cpu_seconds = 4});
  CHECK(total[1].tenant == kAnnUsed);
  CHECK(total[1].counts.done == 7);
  const auto days = rows_of(*database, {.by = UsagePeriod::day});
  REQUIRE(days.size() == 2);
  CHECK(days[0].begin == day);
  CHECK(days[0].counts.done == 7);
  CHECK(days[1].begin == day + 24 * kHour);
  CHECK(rows_of(*database, {.by = UsagePeriod::hour}).size() == 3);
  const auto later = rows_of(*database, {.since = day + kHour + 17, .only = kAnnUsed});
  REQUIRE(later.size() == 1);
  CHECK(later[0].counts.done == 4);
  CHECK(rows_of(*database, {.only = UsageTenant{.uid = 7, .name = {}}}).empty());

  REQUIRE(database->forget_before(day + kHour + 17));
  CHECK(rows_of(*database, {.by = UsagePeriod::hour}).size() == 2);
}

TEST_CASE("usage file: more rows than an answer may have are an error that says what to ask instead") {
  const TempFolder folder;
  const auto database = open_database(folder.path("usage.db"));
  UsageTable table(actors::kMaxUsageRows + 1);
  for (std::size_t i = 0; i <= actors::kMaxUsageRows; ++i)
    table.add({kStart + static_cast<std::int64_t>(i) * kHour, kAnnUsed}, {.done = 1});
  REQUIRE(database->add(table));
  const auto rows = database->rows({.by = UsagePeriod::hour});
  REQUIRE_FALSE(rows);
  CHECK(rows.error().code == ErrorCode::invalid_argument);
  CHECK(rows.error().message.find("10000 rows; ask for a shorter time") != std::string::npos);
  CHECK(rows_of(*database).at(0).counts.done == actors::kMaxUsageRows + 1);
}

TEST_CASE("usage file: a process that is killed while it writes loses at most the transaction that it is in") {
  const TempFolder folder;
  const std::string path = folder.path("usage.db");
  std::uint64_t written = 0;
  for (const int num_seen : {1, 7, 40, 3}) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      ::close(ends[0]);
      auto database = UsageDatabase::open(path);
      if (!database) ::_exit(1);
      for (;;) {
        if (!(*database)->add(table_of(kStart, kAnnUsed, 1))) ::_exit(2);
        if (::write(ends[1], "x", 1) != 1) ::_exit(3);
      }
    }
    ::close(ends[1]);
    char byte = 0;
    for (int i = 0; i < num_seen; ++i) REQUIRE(::read(ends[0], &byte, 1) == 1);
    REQUIRE(::kill(child, SIGKILL) == 0);
    std::uint64_t num_told = num_seen;
    while (::read(ends[0], &byte, 1) == 1) ++num_told;
    ::close(ends[0]);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFSIGNALED(status));
    const std::uint64_t found = done_in(path);  // checks the whole file
    CHECK(found >= written + num_told);
    CHECK(found <= written + num_told + 1);
    written = found;
  }
}

TEST_CASE("usage file: a damaged one, and that of another program, are refused and left as they are") {
  const TempFolder folder;
  const std::string path = folder.path("usage.db");
  const std::string text(9000, 'x');
  folder.write("usage.db", text);
  auto opened = UsageDatabase::open(path);
  REQUIRE_FALSE(opened);
  CHECK(opened.error().code == ErrorCode::bad_config);
  CHECK(opened.error().message.find(path + ": it is damaged, or no usage database") == 0);
  CHECK(bytes_of(path) == text);
  CHECK_FALSE(UsageDatabase::open_to_read(path));

  const std::string torn = folder.path("torn.db");
  {
    const auto database = open_database(torn);
    UsageTable table(2000);
    for (int i = 0; i < 1000; ++i) table.add({kStart + i * kHour, kAnnUsed}, {.done = 1});
    REQUIRE(database->add(table));
  }
  std::string bytes = bytes_of(torn);
  for (std::size_t i = 4096; i < bytes.size(); i += 97) bytes[i] = static_cast<char>(i * 131);
  folder.write("torn.db", bytes);
  opened = UsageDatabase::open(torn);
  REQUIRE_FALSE(opened);
  CHECK(opened.error().message.find("it is damaged") != std::string::npos);

  const std::string newer = folder.path("newer.db");
  open_database(newer).reset();
  std::string header = bytes_of(newer);
  header[63] = 9;  // user_version, big-endian, at offset 60 of the header
  folder.write("newer.db", header);
  opened = UsageDatabase::open(newer);
  REQUIRE_FALSE(opened);
  CHECK(opened.error().message.find("it has version 9") != std::string::npos);
  header[63] = 1;
  header[71] = 1;  // application_id, at 68
  folder.write("newer.db", header);
  opened = UsageDatabase::open(newer);
  REQUIRE_FALSE(opened);
  CHECK(opened.error().message.find("another program's database") != std::string::npos);
  CHECK(bytes_of(newer) == header);

  CHECK_FALSE(UsageDatabase::open(folder.path()));  // a folder
  CHECK_FALSE(UsageDatabase::open_to_read(folder.path("none.db")));
}

// What another user might have put where the file is expected.
void run_sql(const std::string& path, const std::string& statements) {
  sqlite3* database = nullptr;
  REQUIRE(::sqlite3_open(path.c_str(), &database) == SQLITE_OK);
  char* why = nullptr;
  const int code = ::sqlite3_exec(database, statements.c_str(), nullptr, nullptr, &why);
  INFO((why ? why : ""));
  CHECK(code == SQLITE_OK);
  ::sqlite3_free(why);
  ::sqlite3_close(database);
}

TEST_CASE("usage file: copied without its log it has its table, and what the last checkpoint had") {
  const TempFolder folder;
  const std::string path = folder.path("usage.db"), copy = folder.path("copy.db");
  const auto database = open_database(path);
  folder.write("copy.db", bytes_of(path));
  CHECK(done_in(copy) == 0);
  CHECK_FALSE(open_database(copy)->lacked_table());
  REQUIRE(database->add(table_of(kStart, kAnnUsed, 3)));
  REQUIRE(database->checkpoint());
  folder.write("second.db", bytes_of(path));
  CHECK(done_in(folder.path("second.db")) == 3);
}

TEST_CASE("usage file: one without its table, as an early copy without its log, is called that") {
  const TempFolder folder;
  const std::string path = folder.path("usage.db");
  sqlite3* empty = nullptr;
  REQUIRE(::sqlite3_open(path.c_str(), &empty) == SQLITE_OK);
  REQUIRE(::sqlite3_exec(empty, "PRAGMA journal_mode = WAL", nullptr, nullptr, nullptr) == SQLITE_OK);
  ::sqlite3_close(empty);
  const auto read = UsageDatabase::open_to_read(path);
  REQUIRE_FALSE(read);
  CHECK(read.error().message == path +
                                    ": it is empty, as a copy without its log is: copy usage.db-wal with it, or let "
                                    "`troupe backup` make the copy");
  CHECK(open_database(path)->lacked_table());
  CHECK_FALSE(open_database(path)->lacked_table());
}

TEST_CASE("usage store: what was written is in the file without its log after a while") {
  const TempFolder folder;
  const std::string path = folder.path("usage.db");
  UsageStoreOptions options;
  options.path = path;
  options.checkpoint_after = std::chrono::milliseconds(0);
  options.now = [] { return kStart; };
  UsageStore store(options);
  store.add(ended(1000));
  std::promise<void> answered;
  store.ask({}, [&](const Result<UsageReport>&) { answered.set_value(); });
  answered.get_future().wait();
  folder.write("copy.db", bytes_of(path));
  CHECK(done_in(folder.path("copy.db")) == 1);
}

TEST_CASE("usage file: a trigger, a view, or any other schema is refused by name, and never used") {
  const std::pair<const char*, const char*> cases[] = {
      {"CREATE TRIGGER zap AFTER INSERT ON usage BEGIN DELETE FROM usage; END", "trigger zap"},
      {"CREATE VIEW spy AS SELECT * FROM usage", "view spy"},
      {"CREATE TABLE other (x)", "table other"},
      {"CREATE INDEX slow ON usage (name)", "index slow"},
      {"ALTER TABLE usage ADD COLUMN more INTEGER DEFAULT 7", "table usage"},
      {"CREATE TABLE copy AS SELECT * FROM usage; DROP TABLE usage; CREATE VIEW usage AS SELECT * FROM copy",
       "table copy"},
  };
  for (const auto& [statements, name] : cases) {
    const TempFolder folder;
    const std::string path = folder.path("usage.db");
    REQUIRE(open_database(path)->add(table_of(kStart, kAnnUsed, 1)));
    run_sql(path, statements);
    const std::string before = bytes_of(path);
    for (const auto& opened : {UsageDatabase::open(path), UsageDatabase::open_to_read(path)}) {
      INFO(statements);
      REQUIRE_FALSE(opened);
      CHECK(opened.error().code == ErrorCode::bad_config);
      INFO(opened.error().message);
      CHECK(opened.error().message.find(path + ": its " + name) == 0);
    }
    CHECK(bytes_of(path) == before);
  }
}

TEST_CASE("usage file: a symbolic link is not followed, from the file or from one beside it; one above it is") {
  const TempFolder folder;
  const std::string target = folder.path("real.db"), path = folder.path("usage.db");
  REQUIRE(open_database(target)->add(table_of(kStart, kAnnUsed, 1)));
  REQUIRE(::symlink(target.c_str(), path.c_str()) == 0);
  CHECK(UsageDatabase::open(path).error().message == path +
                                                         " is a symbolic link; move it away, or choose another file "
                                                         "(--usage-db)");
  CHECK_FALSE(UsageDatabase::open_to_read(path));
  REQUIRE(::unlink(path.c_str()) == 0);
  REQUIRE(::symlink(folder.path("none.db").c_str(), path.c_str()) == 0);  // to be made when it is opened
  CHECK_FALSE(UsageDatabase::open(path));
  CHECK(::access(folder.path("none.db").c_str(), F_OK) != 0);
  REQUIRE(::symlink(folder.path("elsewhere").c_str(), (target + "-wal").c_str()) == 0);
  const auto opened = UsageDatabase::open(target);
  REQUIRE_FALSE(opened);
  CHECK(opened.error().message.find(target + "-wal is a symbolic link") == 0);
  REQUIRE(::symlink(folder.path().c_str(), folder.path("by-another-way").c_str()) == 0);
  REQUIRE(::unlink((target + "-wal").c_str()) == 0);
  CHECK(done_in(folder.path("by-another-way/real.db")) == 1);
}

TEST_CASE("usage file: one that others can write to, or that belongs to another user, is refused") {
  const TempFolder folder;
  const std::string path = folder.path("usage.db");
  REQUIRE(open_database(path)->add(table_of(kStart, kAnnUsed, 1)));
  REQUIRE(::chmod(path.c_str(), 0620) == 0);
  const auto writable = UsageDatabase::open(path);
  REQUIRE_FALSE(writable);
  CHECK(writable.error().code == ErrorCode::permission);
  CHECK(writable.error().message.find(path + " can be written to by other users") == 0);
  REQUIRE(::chmod(path.c_str(), 0644) == 0);
  CHECK(done_in(path) == 1);
  CHECK(mode_of(path) == 0600);
  if (::geteuid() != 0) return;
  REQUIRE(::chown(path.c_str(), 12345, 12345) == 0);
  const auto foreign = UsageDatabase::open(path);
  REQUIRE_FALSE(foreign);
  CHECK(foreign.error().code == ErrorCode::permission);
  CHECK(foreign.error().message.find("belongs to another user (uid 12345)") != std::string::npos);
  CHECK(UsageDatabase::open_to_read(path));  // by root
}

TEST_CASE("usage file: what takes too long is given up, and sooner at the end") {
  const TempFolder folder;
  const std::string path = folder.path("usage.db");
  UsageTable table(20'000);
  for (int i = 0; i < 20'000; ++i) table.add({kStart + i * kHour, kAnnUsed}, {.done = 1});
  REQUIRE(open_database(path)->add(table));
  CHECK_FALSE(UsageDatabase::open(path, {.open = std::chrono::milliseconds(-1)}));
  std::atomic<bool> ends = false;
  const auto database = UsageDatabase::open(
      path, {.write = std::chrono::milliseconds(-1), .at_end = std::chrono::milliseconds(-1), .ends = &ends});
  REQUIRE(database);
  CHECK(rows_of(**database).size() == 1);
  const Status written = (*database)->add(table);
  REQUIRE_FALSE(written);
  CHECK(written.error().message.find("takes longer than") != std::string::npos);
  ends = true;
  CHECK_FALSE((*database)->rows({}));
  ends = false;
  CHECK(rows_of(**database).at(0).counts.done == 20'000);  // nothing of what was given up
}

TEST_CASE("usage file: what cannot be written as a whole is not written, and can be written later") {
  const TempFolder folder;
  const std::string path = folder.path("usage.db");
  const auto database = open_database(path);
  REQUIRE(database->add(table_of(kStart, kAnnUsed, 1)));
  UsageTable table(20'000);
  for (int i = 0; i < 20'000; ++i) table.add({kStart + i * kHour, kAnnUsed}, {.done = 1});
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit less = before;
  less.rlim_cur = 256 << 10;
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &less) == 0);
  const Status full = database->add(table);
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  std::signal(SIGXFSZ, handler);
  CHECK_FALSE(full);
  CHECK(rows_of(*database).at(0).counts.done == 1);
  REQUIRE(database->add(table));
  CHECK(rows_of(*database).at(0).counts.done == 20'001);
}

TEST_CASE("usage store: an answer has all that was added before, and a restart loses nothing") {
  const TempFolder folder;
  const std::string path = folder.path("usage.db");
  {
    UsageStore store(store_options(path));
    store.add(ended(1000));
    store.add(ended(1000, Outcome::cancelled));
    const auto report = ask(store);
    REQUIRE(report);
    REQUIRE(report->rows.size() == 1);
    CHECK(report->rows[0].counts == UsageCounts{.done = 1, .cancelled = 1, .answer_tokens = 20});
    CHECK(report->note.empty());
    store.add(ended(1000));  // written at the end
  }
  CHECK(done_in(path) == 2);
  UsageStore again(store_options(path));
  again.add(ended(1000));
  CHECK(ask(again)->rows.at(0).counts.done == 3);
  CHECK(ask(again, {.since = kStart + kHour})->rows.empty());
}

TEST_CASE("usage store: a named tenant keeps its name where what is charged comes later") {
  const TempFolder folder;
  UsageStore store(store_options(folder.path("usage.db")));
  actors::UsageEntry entry = ended((1ull << 32) + 1);
  entry.tenant.policy =
      std::make_shared<const scheduler::TenantPolicy>(scheduler::TenantPolicy{.name = "lab", .limits = {}});
  store.add(entry);
  actors::UsageEntry late;
  late.tenant.id = entry.tenant.id;
  late.usage.cpu_seconds = 3;
  store.add(late);
  const auto rows = ask(store)->rows;
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].tenant == kLabUsed);
  CHECK(rows[0].counts.cpu_seconds == 3);
}

TEST_CASE("usage store: with a damaged file it counts in memory and says so, and writes once the file is gone") {
  const TempFolder folder;
  const std::string path = folder.write("usage.db", std::string(5000, 'x'));
  UsageStoreOptions options = store_options(path);
  options.retry_after = std::chrono::milliseconds(0);
  {
    UsageStore store(options);
    store.add(ended(1000));
    const auto report = ask(store, {.by = UsagePeriod::hour});
    REQUIRE(report);
    REQUIRE(report->rows.size() == 1);
    CHECK(report->rows[0].begin == kStart);
    CHECK(report->rows[0].counts.done == 1);
    CHECK(report->note.find("only what was used since the start: " + path + ": it is damaged") == 0);
    CHECK(ask(store, {.only = kLabUsed})->rows.empty());
    REQUIRE(::unlink(path.c_str()) == 0);
    CHECK(ask(store)->note.empty());
  }
  CHECK(done_in(path) == 1);
}

TEST_CASE("usage store: without a file it counts since its start") {
  UsageStoreOptions options = store_options("");
  options.note = "there is no HOME";
  UsageStore store(options);
  store.add(ended(1000));
  const auto report = ask(store);
  REQUIRE(report);
  CHECK(report->rows.at(0).counts.done == 1);
  CHECK(report->note == "only what was used since the start: there is no HOME");
}

TEST_CASE("usage store: threads add at the same time, and every entry counts once") {
  const TempFolder folder;
  UsageStoreOptions options = store_options(folder.path("usage.db"));
  options.interval = std::chrono::milliseconds(0);
  UsageStore store(options);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) store.add(ended(1000));
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(ask(store)->rows.at(0).counts.done == 2000);
}

TEST_CASE("usage store: more questions than may wait are answered as busy, at once") {
  const TempFolder folder;
  std::promise<std::array<std::size_t, 2>> num_refused;
  std::atomic<std::size_t> refused = 0;
  UsageStore store(store_options(folder.path("usage.db")));  // its end answers what waits
  const auto ask_about = [&](std::optional<UsageTenant> only) {
    store.ask({.only = std::move(only)}, [&](const Result<UsageReport>& report) {
      if (!report && report.error().code == ErrorCode::busy) ++refused;
    });
  };
  store.ask({}, [&](const Result<UsageReport>&) {  // on the store's thread: what is asked now waits
    for (std::size_t i = 0; i < kMaxUsageQuestionsOfOne + 3; ++i) ask_about(kAnnUsed);
    const std::size_t of_one = refused;
    for (std::uint32_t uid = 0; uid < kMaxUsageQuestions; ++uid) ask_about(UsageTenant{.uid = uid, .name = {}});
    num_refused.set_value({of_one, refused - of_one});
  });
  CHECK(num_refused.get_future().get() == std::array<std::size_t, 2>{3, kMaxUsageQuestionsOfOne});
}

TEST_CASE("usage store: old hours are removed") {
  const TempFolder folder;
  const std::string path = folder.path("usage.db");
  REQUIRE(open_database(path)->add(table_of(kStart - 50 * 24 * kHour, kAnnUsed, 5)));
  UsageStoreOptions options = store_options(path);
  options.keep_days = 50;
  CHECK(ask(*std::make_unique<UsageStore>(options))->rows.at(0).counts.done == 5);
  options.keep_days = 49;
  CHECK(ask(*std::make_unique<UsageStore>(options))->rows.empty());
  // The file has them until the clock can be trusted.
  CHECK(done_in(path) == 5);
  options.trust_clock_after = std::chrono::milliseconds(0);
  CHECK(ask(*std::make_unique<UsageStore>(options))->rows.empty());
  CHECK(done_in(path) == 0);
}

TEST_CASE("usage store: a clock that is ahead for a while, from the start or later, erases nothing") {
  const TempFolder folder;
  const std::string path = folder.path("usage.db");
  const std::int64_t ahead = kStart + 73 * 365 * 24 * kHour;
  std::atomic<std::int64_t> now = kStart;
  UsageStoreOptions options = store_options(path);
  options.keep_days = 50;
  options.now = [&now] { return now.load(); };
  {
    UsageStore store(options);
    store.add(ended(1000));
    CHECK(ask(store)->rows.at(0).counts.done == 1);
    now = ahead;
    store.add(ended(1000));
    CHECK(ask(store)->rows.at(0).counts.done == 1);  // what is not so old
    now = kStart + kHour;
    store.add(ended(1000));
    CHECK(ask(store)->rows.at(0).counts.done == 3);
  }
  now = ahead;
  {
    UsageStore store(options);
    store.add(ended(1000));
    (void)ask(store);
  }
  CHECK(done_in(path) == 4);
}

TEST_CASE("usage store: each question that waits when it ends is answered once") {
  const TempFolder folder;
  std::atomic<int> num_answered = 0;
  std::promise<void> asked;
  {
    UsageStore store(store_options(folder.path("usage.db")));
    store.ask({}, [&](const Result<UsageReport>&) {  // on the store's thread: what is asked now waits
      for (int i = 0; i < 5; ++i)
        store.ask({}, [&](const Result<UsageReport>& report) {
          num_answered += report || report.error().code == ErrorCode::busy ? 1 : 0;
        });
      asked.set_value();
    });
    asked.get_future().wait();
  }
  CHECK(num_answered == 5);
}

}  // namespace troupe::cli
