#include "actors/sessions/session_index.h"

#include <fmt/format.h>

#include <algorithm>

#include "config/assert.h"

namespace troupe::actors {
using scheduler::Outcome;

scheduler::Refusal session_refusal(Outcome outcome, std::string message, std::string field,
                                   std::optional<std::uint64_t> limit) {
  return {.outcome = outcome, .message = std::move(message), .field = std::move(field), .limit = limit};
}

bool is_session_name(std::string_view name) {
  const auto is_allowed = [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
  };
  return !name.empty() && name.size() <= kMaxSessionNameBytes && name.front() != '.' &&
         std::all_of(name.begin(), name.end(), is_allowed);
}

SessionIndex::SessionIndex(const config::SessionLimits& limits)
    : limits_(limits),
      total_({.name = "max_total_session_bytes",
              .what = "bytes of saved sessions",
              .limit = limits.max_total_session_bytes}) {}

void SessionIndex::add(const SessionKey& key, std::uint64_t token_bytes, std::uint64_t content_bytes,
                       std::uint64_t last_used) {
  const bool is_new = sessions_
                          .try_emplace(key, Entry{.generation = ++last_number_,
                                                  .token_bytes = token_bytes,
                                                  .content_bytes = content_bytes,
                                                  .last_used = last_used})
                          .second;
  TROUPE_ASSERT(is_new);
  count(key.tenant, 0, token_bytes + content_bytes);
}

void SessionIndex::add_unusable(const SessionKey& key, std::uint64_t last_used) {
  add(key, 0, 0, last_used);
  sessions_.at(key).is_unusable = true;
}

std::variant<SessionUse, scheduler::Refusal> SessionIndex::begin(TenantId tenant, const std::string& name) {
  if (!is_session_name(name))
    return session_refusal(Outcome::invalid_argument,
                           fmt::format("a session's name is 1 to {} letters, digits, '.', '_' and '-', and does not "
                                       "begin with '.'",
                                       kMaxSessionNameBytes),
                           "session", kMaxSessionNameBytes);
  const auto found = sessions_.find({tenant, name});
  if (found != sessions_.end() && found->second.in_use)
    return session_refusal(Outcome::quota,
                           fmt::format("session \"{}\" is in use by another request; wait for its end, or fork the "
                                       "session after it",
                                       name));
  const auto all = of(tenant);
  const auto in_use = std::ranges::count_if(all, [](const auto& each) { return each.second.in_use; });
  if (in_use >= std::ptrdiff_t{limits_.max_sessions_per_user})
    return session_refusal(Outcome::quota,
                           fmt::format("{} sessions are in use, as many as a user may have (max_sessions_per_user); "
                                       "wait for one of them",
                                       in_use),
                           "max_sessions_per_user", limits_.max_sessions_per_user);
  if (found != sessions_.end()) {
    found->second.in_use = true;
    return SessionUse{found->first, found->second.generation, false};
  }
  // Evicts nothing yet: that is for reserve(), because the turn may be refused before it.
  const SessionUse use{{tenant, name}, ++last_number_, true};
  sessions_.emplace(use.key, Entry{.generation = use.generation, .in_use = true, .is_new = true});
  return use;
}

std::variant<SessionUse, scheduler::Refusal> SessionIndex::begin(TenantId tenant, const std::string& name,
                                                                 bool must_exist) {
  const bool exists = find({tenant, name}) != nullptr;
  if (is_session_name(name) && exists != must_exist)
    return session_refusal(
        Outcome::invalid_argument,
        exists ? fmt::format("there is a session \"{}\" already; delete it, or choose another name", name)
               : fmt::format("there is no session \"{}\"; troupe session list shows those that there are", name),
        must_exist ? "name" : "to");
  return begin(tenant, name);
}

std::optional<Evicted> SessionIndex::end(const SessionUse& use, std::uint64_t now) {
  const auto found = sessions_.find(use.key);
  if (found == sessions_.end() || found->second.generation != use.generation) return std::nullopt;
  Entry& entry = found->second;
  TROUPE_ASSERT(entry.in_use);
  if (entry.token_bytes == 0 && !entry.is_unusable) {
    const bool has_contents = entry.content_bytes > 0;
    const Evicted forgotten = remove(use);
    return has_contents ? std::optional(forgotten) : std::nullopt;
  }
  entry.in_use = entry.is_new = false;
  entry.last_used = now;
  entry.use_number = ++last_number_;
  return std::nullopt;
}

Evicted SessionIndex::remove(const SessionUse& use) {
  const auto found = sessions_.find(use.key);
  TROUPE_ASSERT(found != sessions_.end() && found->second.in_use && found->second.generation == use.generation);
  count(use.key.tenant, found->second.bytes(), 0);
  sessions_.erase(found);
  return {.key = use.key, .whole = true, .number = ++last_number_};
}

// The tenant's other sessions that are not in use, that which was not used for longest first.
std::vector<SessionIndex::Sessions::const_iterator> SessionIndex::may_go(const SessionUse& use) const {
  std::vector<Sessions::const_iterator> all;
  for (auto it = sessions_.lower_bound({use.key.tenant, {}});
       it != sessions_.end() && it->first.tenant == use.key.tenant; ++it)
    if (!it->second.in_use && !it->second.is_unusable && it->first != use.key) all.push_back(it);
  std::ranges::stable_sort(all, {},
                           [](const auto& each) { return std::pair(each->second.last_used, each->second.use_number); });
  return all;
}

// What to evict so that the part has room for `bytes`. left: the tenant's bytes beside this part; lowered by what is
// evicted. If left + bytes is above the limit even then, nothing can make room.
std::vector<SessionIndex::Going> SessionIndex::make_room(const SessionUse& use, SessionPart part, std::uint64_t bytes,
                                                         std::uint64_t& left) const {
  const auto others = may_go(use);
  std::vector<Going> going;
  const auto add = [&](const SessionKey& key, bool whole, std::uint64_t each) {
    going.push_back({key, whole, each});
    left -= each;
  };
  const auto too_many = [&] { return left + bytes > limits_.max_session_bytes; };
  std::size_t first = 0;  // of others that stay
  if (part == SessionPart::tokens && bytes > 0) {
    const std::size_t count = count_of(use.key.tenant);
    if (count > limits_.max_sessions_per_user) first = count - limits_.max_sessions_per_user;
    TROUPE_ASSERT(first <= others.size());  // no more are in use than there may be
    for (std::size_t i = 0; i < first; ++i) add(others[i]->first, true, others[i]->second.bytes());
  }
  for (std::size_t i = first; i < others.size() && too_many(); ++i)
    if (others[i]->second.content_bytes > 0) add(others[i]->first, false, others[i]->second.content_bytes);
  if (part == SessionPart::contents) return going;
  // This session loses its contents before another one is deleted.
  const Entry& own = sessions_.at(use.key);
  if (too_many() && own.content_bytes > 0) add(use.key, false, own.content_bytes);
  for (std::size_t i = first; i < others.size() && too_many(); ++i)
    add(others[i]->first, true, others[i]->second.token_bytes);  // its contents went before
  return going;
}

std::optional<scheduler::Refusal> SessionIndex::reserve(const SessionUse& use, const scheduler::Tenant& tenant,
                                                        SessionPart part, std::uint64_t bytes,
                                                        std::vector<Evicted>& evicted) {
  if (!is_current(use))
    return session_refusal(Outcome::invalid_argument, fmt::format("session \"{}\" was deleted", use.key.name));
  Entry& entry = sessions_.at(use.key);
  std::uint64_t& counted = part == SessionPart::tokens ? entry.token_bytes : entry.content_bytes;
  std::uint64_t left = bytes_of(use.key.tenant) - counted;
  const std::vector<Going> going = make_room(use, part, bytes, left);
  if (left + bytes > limits_.max_session_bytes)
    return session_refusal(Outcome::quota,
                           fmt::format("the sessions of a user may have {} bytes (max_session_bytes); this one "
                                       "would take {} beside those in use",
                                       limits_.max_session_bytes, bytes),
                           "max_session_bytes", limits_.max_session_bytes);
  const std::uint64_t freed = bytes_of(use.key.tenant) - left;
  if (freed > 0) total_.give_back(use.key.tenant, freed);
  auto refused = total_.try_take(tenant, bytes);
  if (refused) {
    if (freed > 0) total_.take(use.key.tenant, freed);
    return refused;
  }
  if (bytes > 0) total_.give_back(use.key.tenant, bytes);
  if (freed > 0) total_.take(use.key.tenant, freed);
  for (const Going& each : going) evict(each, evicted);
  count(use.key.tenant, std::exchange(counted, bytes), bytes);
  (part == SessionPart::tokens ? entry.token_number : entry.content_number) = ++last_number_;
  forget_info(use);
  if (part == SessionPart::tokens && bytes > 0) entry.is_unusable = false;
  return std::nullopt;
}

bool SessionIndex::is_current(const SessionUse& use) const {
  const Entry* const entry = find(use.key);
  return entry != nullptr && entry->generation == use.generation;
}

void SessionIndex::set_info(const SessionUse& use, std::uint64_t num_changes, const SessionInfo& info) {
  if (!is_current(use)) return;
  Entry& entry = sessions_.at(use.key);
  if (entry.num_changes == num_changes) entry.info = std::make_shared<const SessionInfo>(info);
}

void SessionIndex::forget_info(const SessionUse& use) {
  if (!is_current(use)) return;
  Entry& entry = sessions_.at(use.key);
  ++entry.num_changes;
  entry.info = nullptr;
}

const SessionIndex::Entry* SessionIndex::find(const SessionKey& key) const {
  const auto found = sessions_.find(key);
  return found == sessions_.end() ? nullptr : &found->second;
}

std::vector<std::pair<std::string, SessionIndex::Entry>> SessionIndex::of(TenantId tenant) const {
  std::vector<std::pair<std::string, Entry>> all;
  for (auto it = sessions_.lower_bound({tenant, {}}); it != sessions_.end() && it->first.tenant == tenant; ++it)
    all.emplace_back(it->first.name, it->second);
  return all;
}

std::uint64_t SessionIndex::bytes_of(TenantId tenant) const {
  const auto found = bytes_.find(tenant);
  return found == bytes_.end() ? 0 : found->second;
}

// Those that take room.
std::size_t SessionIndex::count_of(TenantId tenant) const {
  const auto all = of(tenant);
  return static_cast<std::size_t>(
      std::ranges::count_if(all, [](const auto& each) { return !each.second.is_unusable; }));
}

void SessionIndex::count(TenantId tenant, std::uint64_t before, std::uint64_t after) {
  if (before > 0) total_.give_back(tenant, before);
  if (after > 0) total_.take(tenant, after);
  std::uint64_t& bytes = bytes_[tenant];
  bytes = bytes - before + after;
  if (bytes == 0) bytes_.erase(tenant);
}

void SessionIndex::evict(const Going& going, std::vector<Evicted>& evicted) {
  evicted.push_back({.key = going.key, .whole = going.whole, .number = ++last_number_});
  count(going.key.tenant, going.bytes, 0);
  const auto session = sessions_.find(going.key);
  if (going.whole) {
    sessions_.erase(session);
  } else {
    session->second.content_bytes = 0;
    session->second.content_number = 0;
    forget_info({.key = going.key, .generation = session->second.generation});
  }
}

}  // namespace troupe::actors
