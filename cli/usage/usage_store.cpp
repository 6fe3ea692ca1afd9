#include "cli/usage/usage_store.h"

#include <fmt/format.h>
#include <pthread.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <csignal>
#include <ctime>
#include <map>
#include <optional>
#include <utility>

namespace troupe::cli {
namespace {

using StoreClock = std::chrono::steady_clock;
constexpr std::int64_t kDaySeconds = 24 * actors::kHourSeconds;
// Seconds by which clocks that agree may differ, of a correction or of a sleep.
constexpr std::int64_t kMostApart = 600;

UsageStoreOptions with_clock(UsageStoreOptions options) {
  if (!options.now) options.now = [] { return static_cast<std::int64_t>(std::time(nullptr)); };
  return options;
}

std::int64_t begin_of_period(std::int64_t hour, actors::UsagePeriod by) {
  if (by == actors::UsagePeriod::hour) return hour;
  return by == actors::UsagePeriod::day ? hour - hour % kDaySeconds : 0;
}

}  // namespace

UsageStore::UsageStore(UsageStoreOptions options) : options_(with_clock(std::move(options))), failure_(options_.note) {
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);  // inherited by the thread, which so handles no signals
  thread_ = std::thread([this] { run(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

UsageStore::~UsageStore() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
    ends_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void UsageStore::add(const actors::UsageEntry& entry) {
  actors::UsageTenant tenant = actors::usage_tenant(entry.tenant);
  const std::int64_t hour = actors::begin_of_hour(options_.now());
  bool was_empty = false;
  {
    const std::lock_guard lock(mutex_);
    if (!tenant.uid && !tenant.name.empty()) {
      if (names_.size() < kMaxPendingUsage) names_[entry.tenant.id] = tenant.name;
    } else if (!tenant.uid) {
      const auto known = names_.find(entry.tenant.id);
      tenant.name = known == names_.end() ? kOtherTenants : known->second;
    }
    was_empty = pending_.empty();
    pending_.add({hour, std::move(tenant)}, actors::counts_of(entry));
  }
  if (was_empty) changed_.notify_one();
}

void UsageStore::ask(actors::UsageQuery query, actors::OnUsageReport answer) {
  {
    const std::lock_guard lock(mutex_);
    const auto same = std::ranges::count(questions_, query.only, [](const Question& each) { return each.query.only; });
    if (questions_.size() < kMaxUsageQuestions && same < std::ptrdiff_t{kMaxUsageQuestionsOfOne}) {
      questions_.push_back({std::move(query), std::move(answer)});
      answer = nullptr;
    }
  }
  if (!answer) return changed_.notify_one();
  answer(Error{ErrorCode::busy, "too many questions about usage wait; ask again later"});
}

void UsageStore::run() {
  write_or_log(/*at_end=*/false);  // opens the file, so that the log says at the start what is wrong with it
  std::unique_lock lock(mutex_);
  for (bool stops = false; !stops;) {
    const auto is_called = [this] { return stops_ || !questions_.empty(); };
    const bool has_work = !unwritten_.empty() && !options_.path.empty();
    const auto has_news = [&] { return is_called() || !pending_.empty(); };
    if (!has_work && next_checkpoint_ &&
        !changed_.wait_until(lock, std::max(*next_checkpoint_, next_attempt_), has_news)) {
      lock.unlock();
      write_or_log(/*at_end=*/false);
      lock.lock();
      continue;
    }
    if (!has_work) changed_.wait(lock, has_news);
    // More comes soon after the first: it is written together.
    changed_.wait_until(lock, std::max(StoreClock::now() + options_.interval, next_attempt_), is_called);
    unwritten_.add(pending_);
    pending_.clear();
    std::optional<Question> question;
    stops = stops_;
    const std::deque<Question> unanswered = stops ? std::exchange(questions_, {}) : std::deque<Question>();
    if (!questions_.empty()) {
      question = std::move(questions_.front());
      questions_.pop_front();
    }
    lock.unlock();
    for (const Question& each : unanswered) each.answer(Error{ErrorCode::busy, "the server stops; ask again later"});
    write_or_log(/*at_end=*/stops);
    const auto begin = StoreClock::now();
    if (question) question->answer(report(question->query));
    const auto pause = 4 * (StoreClock::now() - begin);
    lock.lock();
    if (question) changed_.wait_for(lock, pause, [this] { return stops_; });
  }
}

void UsageStore::write_or_log(bool at_end) {
  if (options_.path.empty() || (!at_end && StoreClock::now() < next_attempt_)) return;
  if (const Status written = write(); !written) {
    failure_ = written.error().message;
    next_attempt_ = StoreClock::now() + options_.retry_after;
    spdlog::error("usage: {}; what is used is kept in memory{}", failure_,
                  at_end ? " and is lost now" : ", and the file is tried again later");
  } else if (!std::exchange(failure_, {}).empty()) {
    next_attempt_ = {};
    spdlog::info("usage: {} is written again", options_.path);
  }
}

Status UsageStore::write() {
  if (!database_) {
    auto opened = UsageDatabase::open(options_.path, {.ends = &ends_});
    if (!opened) return opened.error();
    database_ = std::move(*opened);
    if (database_->lacked_table())
      spdlog::warn(
          "usage: {} had no table, as a copy without its log has none (`troupe backup` makes whole copies); counts "
          "begin anew",
          options_.path);
  }
  const bool has_rows = !unwritten_.empty();
  Status done = database_->add(unwritten_);
  if (done) unwritten_.clear();
  if (done && has_rows && !next_checkpoint_) next_checkpoint_ = StoreClock::now() + options_.checkpoint_after;
  if (done && next_checkpoint_ && StoreClock::now() >= *next_checkpoint_) {
    next_checkpoint_.reset();
    done = database_->checkpoint();
  }
  const std::int64_t now = options_.now();
  const std::int64_t hour = actors::begin_of_hour(now);
  if (is_clock_trusted(now) && done && hour != cleaned_hour_) {
    done = database_->forget_before(first_kept_hour());
    cleaned_hour_ = hour;
  }
  if (!done && done.error().code == ErrorCode::bad_config) database_ = nullptr;  // it is damaged
  return done;
}

std::int64_t UsageStore::first_kept_hour() const {
  return actors::begin_of_hour(options_.now()) - options_.keep_days * kDaySeconds;
}

// A machine that sleeps makes the clocks differ, too: then it takes another while.
bool UsageStore::is_clock_trusted(std::int64_t now) {
  const auto steady = StoreClock::now();
  if (clocks_agree_since_) {
    const auto passed = std::chrono::duration_cast<std::chrono::seconds>(steady - clocks_agree_since_->steady).count();
    const std::int64_t apart = now - clocks_agree_since_->now - passed;
    if (apart < -kMostApart || apart > kMostApart) clocks_agree_since_.reset();
  }
  if (!clocks_agree_since_) clocks_agree_since_ = {now, steady};
  return steady - clocks_agree_since_->steady >= options_.trust_clock_after;
}

Result<actors::UsageReport> UsageStore::report(actors::UsageQuery query) const {
  query.since = std::max(query.since, first_kept_hour());
  actors::UsageReport report;
  if (database_) {
    auto rows = database_->rows(query);
    if (!rows) return rows.error();
    report.rows = std::move(*rows);
  }
  if (!failure_.empty())
    report.note =
        fmt::format("{}: {}", database_ ? "not all is written" : "only what was used since the start", failure_);
  if (unwritten_.empty()) return report;
  std::map<std::pair<std::int64_t, actors::UsageTenant>, actors::UsageCounts> sums;
  for (const actors::UsageRow& row : report.rows) sums[{row.begin, row.tenant}] = row.counts;
  for (const auto& [key, counts] : unwritten_.rows()) {
    const auto& [hour, tenant] = key;
    if (hour < actors::begin_of_hour(query.since) || (query.only && tenant != *query.only)) continue;
    sums[{begin_of_period(hour, query.by), tenant}] += counts;
  }
  report.rows.clear();
  for (const auto& [key, counts] : sums) report.rows.push_back({key.first, key.second, counts});
  return report;
}

}  // namespace troupe::cli
