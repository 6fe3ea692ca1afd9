#include "ipc/keys/key_checker.h"

#include <sys/resource.h>
#include <unistd.h>

#include <utility>

#include "config/assert.h"

namespace troupe::ipc {
namespace {

constexpr double kBusySeconds = 1;
constexpr int kNice = 10;

}  // namespace

KeyChecker::KeyChecker(std::vector<ServedKey> keys, std::function<KeyClock()> clock) : clock_(std::move(clock)) {
  fill_random(process_key_);
  fill_random(nobody_.salt);
  fill_random(nobody_.hash);
  replace(std::move(keys));
  thread_ = std::thread([this] { run(); });
}

KeyChecker::~KeyChecker() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  changed_.notify_one();
  thread_.join();
  for (Job& job : jobs_) wipe(job.secret);
}

void KeyChecker::replace(std::vector<ServedKey> keys) {
  const std::lock_guard lock(mutex_);
  Keys fresh;
  for (ServedKey& key : keys) {
    const auto before = keys_.find(key.id);
    const bool is_same = before != keys_.end() && before->second.key.salt == key.salt &&
                         equal_in_constant_time(before->second.key.hash, key.hash);
    std::string id = key.id;
    const bool is_new =
        fresh.try_emplace(std::move(id), Known{std::move(key), is_same ? before->second.digest : std::nullopt}).second;
    TROUPE_ASSERT(is_new);
  }
  keys_ = std::move(fresh);
}

std::uint64_t KeyChecker::num_checked() const {
  const std::lock_guard lock(mutex_);
  return num_checked_;
}

void KeyChecker::check(std::string_view address, std::string_view text, OnKeyVerdict done) {
  std::optional<KeyVerdict> verdict;
  {
    const std::lock_guard lock(mutex_);
    verdict = verdict_now(address, text, done);
  }
  if (verdict) return done(*verdict);
  changed_.notify_one();
}

std::optional<KeyVerdict> KeyChecker::verdict_now(std::string_view address, std::string_view text, OnKeyVerdict& done) {
  const double now = clock_().seconds;
  const auto parts = split_key(text);
  const Hash digest = keyed_hash(process_key_, text);
  const auto found = parts ? keys_.find(std::string(parts->id)) : keys_.end();
  if (found != keys_.end() && found->second.digest && equal_in_constant_time(*found->second.digest, digest))
    return verdict_of(found->second.key);
  if (const auto same = waiting_.find(digest); same != waiting_.end()) {
    same->second.callers.push_back(std::move(done));
    return std::nullopt;
  }
  std::string peer = guessing_peer(address);
  if (const double wait = guesses_.take(peer, now); wait > 0)
    return KeyVerdict{.kind = KeyVerdict::Kind::too_many, .retry_after_seconds = wait};
  if (!parts) return KeyVerdict{};
  if (waiting_.size() >= kMaxWaitingKeys) {
    guesses_.give_back(peer, now);
    return KeyVerdict{.kind = KeyVerdict::Kind::busy, .retry_after_seconds = kBusySeconds};
  }
  const ServedKey& against = found == keys_.end() ? nobody_ : found->second.key;
  Waiting& waiting = waiting_[digest];
  waiting.peer = std::move(peer);
  waiting.callers.push_back(std::move(done));
  ++num_checked_;
  jobs_.push_back({.secret = std::string(parts->secret),
                   .salt = against.salt,
                   .hash = against.hash,
                   .digest = digest,
                   .id = std::string(parts->id)});
  return std::nullopt;
}

KeyVerdict KeyChecker::verdict_of(const ServedKey& key) const {
  if (key.expires && *key.expires <= clock_().unix_seconds)
    return {.kind = KeyVerdict::Kind::expired, .name = key.name};
  return {.kind = KeyVerdict::Kind::accepted, .name = key.name, .tenant = key.tenant};
}

void KeyChecker::on_checked(const Job& job, bool right) {
  KeyVerdict verdict;
  std::vector<OnKeyVerdict> callers;
  {
    const std::lock_guard lock(mutex_);
    auto waiting = waiting_.extract(job.digest);
    TROUPE_ASSERT(!waiting.empty());
    callers = std::move(waiting.mapped().callers);
    // The key may have been revoked, or the file replaced, since it was asked for.
    const auto found = keys_.find(job.id);
    if (right && found != keys_.end() && equal_in_constant_time(found->second.key.hash, job.hash)) {
      found->second.digest = job.digest;
      verdict = verdict_of(found->second.key);
      guesses_.give_back(waiting.mapped().peer, clock_().seconds);
    }
  }
  for (const OnKeyVerdict& done : callers) done(verdict);
}

void KeyChecker::run() {
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kNice);  // of this thread; it serves without, too
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stops_ || !jobs_.empty(); });
    if (stops_) return;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    const auto hash = scrypt(job.secret, job.salt);
    const bool right = hash && equal_in_constant_time(*hash, job.hash);
    wipe(job.secret);
    on_checked(job, right);
    lock.lock();
  }
}

}  // namespace troupe::ipc
