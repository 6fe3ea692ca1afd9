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
  while (auto check = line_.pop()) wipe(check->secret);
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
  std::optional<Told> told;
  {
    const std::lock_guard lock(mutex_);
    told = enter(address, text, std::move(done));
  }
  changed_.notify_one();
  if (!told) return;
  for (const OnKeyVerdict& each : told->callers) each(told->verdict);
}

std::optional<KeyChecker::Told> KeyChecker::enter(std::string_view address, std::string_view text, OnKeyVerdict done) {
  const double now = clock_().seconds;
  const auto parts = split_key(text);
  const Hash digest = keyed_hash(process_key_, text);
  const auto found = parts ? keys_.find(std::string(parts->id)) : keys_.end();
  const bool has_id = found != keys_.end();
  if (has_id && found->second.digest && equal_in_constant_time(*found->second.digest, digest))
    return Told{{std::move(done)}, verdict_of(found->second.key)};
  if (const auto same = waiting_.find(digest); same != waiting_.end()) {
    same->second.push_back(std::move(done));
    return std::nullopt;
  }
  std::string peer = guessing_peer(address);
  if (!has_id) {
    const KeyVerdict wrong = wrong_key(peer, now);
    if (!parts || wrong.kind == KeyVerdict::Kind::too_many) return Told{{std::move(done)}, wrong};
  }
  waiting_[digest].push_back(std::move(done));
  const ServedKey& against = has_id ? found->second.key : nobody_;
  auto lost = line_.push({.peer = std::move(peer),
                          .id = std::string(parts->id),
                          .has_id = has_id,
                          .secret = std::string(parts->secret),
                          .salt = against.salt,
                          .hash = against.hash,
                          .digest = digest});
  if (!lost) return std::nullopt;
  wipe(lost->secret);
  if (!lost->has_id) guesses_.give_back(lost->peer, now);
  return Told{std::move(waiting_.extract(lost->digest).mapped()),
              {.kind = KeyVerdict::Kind::busy, .retry_after_seconds = kBusySeconds}};
}

KeyVerdict KeyChecker::wrong_key(const std::string& peer, double now) {
  const double wait = guesses_.take(peer, now);
  if (wait == 0) return {};
  return {.kind = KeyVerdict::Kind::too_many, .retry_after_seconds = wait};
}

KeyVerdict KeyChecker::verdict_of(const ServedKey& key) const {
  if (key.expires && *key.expires <= clock_().unix_seconds)
    return {.kind = KeyVerdict::Kind::expired, .name = key.name};
  return {.kind = KeyVerdict::Kind::accepted, .name = key.name, .tenant = key.tenant};
}

void KeyChecker::on_checked(const KeyCheck& check, bool right) {
  KeyVerdict verdict;
  Callers callers;
  {
    const std::lock_guard lock(mutex_);
    auto waiting = waiting_.extract(check.digest);
    TROUPE_ASSERT(!waiting.empty());
    callers = std::move(waiting.mapped());
    // The key may have been revoked, or the file replaced, since it was asked for.
    const auto found = keys_.find(check.id);
    if (right && found != keys_.end() && equal_in_constant_time(found->second.key.hash, check.hash)) {
      found->second.digest = check.digest;
      verdict = verdict_of(found->second.key);
    } else if (check.has_id && !right) {
      verdict = wrong_key(check.peer, clock_().seconds);
    }
  }
  for (const OnKeyVerdict& done : callers) done(verdict);
}

void KeyChecker::run() {
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kNice);  // of this thread; it serves without, too
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stops_ || !line_.empty(); });
    if (stops_) return;
    KeyCheck check = *line_.pop();
    ++num_checked_;
    lock.unlock();
    const auto hash = scrypt(check.secret, check.salt);
    const bool right = hash && equal_in_constant_time(*hash, check.hash);
    wipe(check.secret);
    on_checked(check, right);
    lock.lock();
  }
}

}  // namespace troupe::ipc
