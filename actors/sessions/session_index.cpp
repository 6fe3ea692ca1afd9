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

SessionIndex::SessionIndex(const SessionLimits& limits)
    : limits_(limits),
      total_({.name = "max_total_session_bytes",
              .what = "bytes of saved sessions",
              .limit = limits.max_total_session_bytes}) {}

void SessionIndex::add(const SessionKey& key, std::uint64_t token_bytes, std::uint64_t content_bytes,
                       std::uint64_t last_used) {
  const bool is_new = sessions_
                          .try_emplace(key, Entry{.generation = ++last_generation_,
                                                  .token_bytes = token_bytes,
                                                  .content_bytes = content_bytes,
                                                  .last_used = last_used})
                          .second;
  TROUPE_ASSERT(is_new);
  count(key.tenant, 0, token_bytes + content_bytes);
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
    return SessionUse{found->first, found->second.generation, found->second.token_bytes == 0};
  }
  // Another one goes for it only when it gets its file: it may be refused before.
  const SessionUse use{{tenant, name}, ++last_generation_, true};
  sessions_.emplace(use.key, Entry{.generation = use.generation, .in_use = true});
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

void SessionIndex::end(const SessionUse& use, std::uint64_t now) {
  const auto found = sessions_.find(use.key);
  if (found == sessions_.end() || found->second.generation != use.generation) return;
  TROUPE_ASSERT(found->second.in_use);
  found->second.in_use = false;
  found->second.last_used = now;
  if (found->second.token_bytes > 0) return;
  count(use.key.tenant, found->second.bytes(), 0);
  sessions_.erase(found);
}

void SessionIndex::remove(const SessionUse& use) {
  const auto found = sessions_.find(use.key);
  TROUPE_ASSERT(found != sessions_.end() && found->second.in_use && found->second.generation == use.generation);
  count(use.key.tenant, found->second.bytes(), 0);
  sessions_.erase(found);
}

std::optional<scheduler::Refusal> SessionIndex::reserve(const SessionUse& use, const scheduler::Tenant& tenant,
                                                        SessionPart part, std::uint64_t bytes,
                                                        std::vector<Evicted>& evicted) {
  if (!is_current(use))
    return session_refusal(Outcome::invalid_argument, fmt::format("session \"{}\" was deleted", use.key.name));
  Entry& entry = sessions_.at(use.key);
  std::uint64_t& counted = part == SessionPart::tokens ? entry.token_bytes : entry.content_bytes;
  const std::uint64_t before = counted;
  count(use.key.tenant, before, 0);
  counted = 0;
  const auto too_many = [&] { return bytes_of(use.key.tenant) + bytes > limits_.max_session_bytes; };
  const auto with_contents = [&](const Entry& other) { return other.content_bytes > 0 && &other != &entry; };
  const auto another = [&](const Entry& other) { return &other != &entry; };
  while (part == SessionPart::tokens && bytes > 0 && count_of(use.key.tenant) > limits_.max_sessions_per_user) {
    const auto oldest = least_recent(use.key.tenant, another);
    TROUPE_ASSERT(oldest != sessions_.end());  // no more are in use than there may be
    drop(oldest, evicted);
  }
  while (too_many()) {
    auto oldest = least_recent(use.key.tenant, with_contents);
    if (oldest != sessions_.end()) {
      count(use.key.tenant, std::exchange(oldest->second.content_bytes, 0), 0);
      evicted.push_back({oldest->first, false});
      continue;
    }
    // The own contents go before another conversation does.
    if (part == SessionPart::tokens && entry.content_bytes > 0) {
      count(use.key.tenant, std::exchange(entry.content_bytes, 0), 0);
      evicted.push_back({use.key, false});
      continue;
    }
    oldest = part == SessionPart::tokens ? least_recent(use.key.tenant, another) : sessions_.end();
    if (oldest == sessions_.end()) break;
    drop(oldest, evicted);
  }
  std::optional<scheduler::Refusal> refused;
  if (too_many())
    refused = session_refusal(Outcome::quota,
                              fmt::format("the sessions of a user may have {} bytes (max_session_bytes); this one "
                                          "would take {} beside those in use",
                                          limits_.max_session_bytes, bytes),
                              "max_session_bytes", limits_.max_session_bytes);
  else
    refused = total_.try_take(tenant, bytes);
  if (refused) {
    count(use.key.tenant, 0, before);
    counted = before;
    return refused;
  }
  counted = bytes;
  bytes_[use.key.tenant] += bytes;
  return std::nullopt;
}

bool SessionIndex::is_current(const SessionUse& use) const {
  const Entry* const entry = find(use.key);
  return entry != nullptr && entry->generation == use.generation;
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

std::size_t SessionIndex::count_of(TenantId tenant) const { return of(tenant).size(); }

// The session of the tenant that was not used for longest, of those that are not in use and may go.
template <class MayGo>
SessionIndex::Sessions::iterator SessionIndex::least_recent(TenantId tenant, MayGo may_go) {
  auto oldest = sessions_.end();
  for (auto it = sessions_.lower_bound({tenant, {}}); it != sessions_.end() && it->first.tenant == tenant; ++it) {
    if (it->second.in_use || !may_go(it->second)) continue;
    if (oldest == sessions_.end() || it->second.last_used < oldest->second.last_used) oldest = it;
  }
  return oldest;
}

void SessionIndex::count(TenantId tenant, std::uint64_t before, std::uint64_t after) {
  if (before > 0) total_.give_back(tenant, before);
  if (after > 0) total_.take(tenant, after);
  std::uint64_t& bytes = bytes_[tenant];
  bytes = bytes - before + after;
  if (bytes == 0) bytes_.erase(tenant);
}

void SessionIndex::drop(Sessions::iterator session, std::vector<Evicted>& evicted) {
  evicted.push_back({session->first, true});
  count(session->first.tenant, session->second.bytes(), 0);
  sessions_.erase(session);
}

}  // namespace troupe::actors
