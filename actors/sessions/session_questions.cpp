// What clients ask about their sessions: list, save, fork, delete, inspect.
#include <fmt/format.h>

#include "actors/requests/request_check.h"
#include "actors/sessions/sessions.h"
#include "config/assert.h"

namespace troupe::actors {

using scheduler::Outcome;

namespace {
// A question takes a few milliseconds.
constexpr double kRetrySeconds = 0.1;
}  // namespace

// The session as it is now; not a hold on it.
std::variant<SessionUse, scheduler::Refusal> Sessions::look_up(const SessionQuestion& question) const {
  const SessionKey key{question.tenant.id, question.name};
  {
    const std::lock_guard lock(mutex_);
    const auto* const entry = index_.find(key);
    if (entry != nullptr && entry->is_there()) return SessionUse{.key = key, .generation = entry->generation};
  }
  return session_refusal(
      Outcome::invalid_argument,
      is_session_name(question.name)
          ? fmt::format("there is no session \"{}\"; troupe session list shows those that there are", question.name)
          : "that is no name of a session",
      "name");
}

void Sessions::ask(const SessionQuestion& question, OnAnswer done) {
  const TenantId tenant = question.tenant.id;
  bool is_one_too_many = false;
  {
    const std::lock_guard lock(mutex_);
    std::uint32_t& open = num_questions_[tenant];
    is_one_too_many = open == max_questions_;
    if (!is_one_too_many) ++open;
  }
  if (is_one_too_many) {
    scheduler::Refusal refused =
        session_refusal(Outcome::quota,
                        fmt::format("{} questions about your sessions are not answered yet, as many as a user may have "
                                    "(max_session_questions_per_user); wait for one of them",
                                    max_questions_),
                        "max_session_questions_per_user", max_questions_);
    refused.retry_after = kRetrySeconds;
    return done(std::move(refused));
  }
  answer(question, [this, tenant, done = std::move(done)](SessionAnswer told) {
    {
      const std::lock_guard lock(mutex_);
      const auto open = num_questions_.find(tenant);
      if (--open->second == 0) num_questions_.erase(open);
    }
    done(std::move(told));
  });
}

void Sessions::answer(const SessionQuestion& question, OnAnswer done) {
  if (draining_) return done(scheduler::server_drains());
  if (const Status opened = status(); !opened)
    return done(session_refusal(Outcome::unsupported, opened.error().message));
  if (!why_unreadable(question.tenant.id)) return answer_of_readable(question, std::move(done));
  post(Size::small, question.tenant.id, [this, question, done = std::move(done)] {
    if (draining_) return done(scheduler::server_drains());
    if (auto refused = read_again(question.tenant.id)) return done(*std::move(refused));
    answer_of_readable(question, done);
  });
}

void Sessions::answer_of_readable(const SessionQuestion& question, OnAnswer done) {
  using Kind = SessionQuestion::Kind;
  if (question.kind == Kind::fork) return ask_fork(question, done);
  if (question.kind == Kind::remove) return ask_remove(question, done);
  if (question.kind == Kind::list) return ask_list(question.tenant.id, std::move(done));
  auto found = look_up(question);
  if (auto* refused = std::get_if<scheduler::Refusal>(&found)) return done(std::move(*refused));
  const bool is_save = question.kind == Kind::save;
  auto job = [this, session = std::get<SessionUse>(found), is_save, done = std::move(done)] {
    if (draining_) return done(scheduler::server_drains());
    if (auto now = info(session, !is_save)) return done(std::vector{*std::move(now)});
    done(session_refusal(Outcome::invalid_argument,
                         fmt::format("session \"{}\" was deleted meanwhile", session.key.name), "name"));
  };
  const TenantId tenant = question.tenant.id;
  if (!is_save) return post(Size::small, tenant, std::move(job));
  // After what is being copied now, and what is being written.
  auto flush = [this, tenant, job = std::move(job)] { post(Size::large, tenant, job); };
  {
    const std::lock_guard lock(mutex_);
    const SessionKey key{question.tenant.id, question.name};
    if (num_saving_.contains(key)) {
      after_saving_.emplace(key, std::move(flush));
      return;
    }
  }
  flush();
}

void Sessions::ask_list(TenantId tenant, OnAnswer done) {
  post(Size::small, tenant, [this, tenant, done = std::move(done)] {
    std::vector<std::pair<std::string, SessionIndex::Entry>> all;
    {
      const std::lock_guard lock(mutex_);
      all = index_.of(tenant);
    }
    std::vector<SessionInfo> infos;
    for (const auto& [name, entry] : all) {
      if (draining_) return done(scheduler::server_drains());
      if (!entry.is_there()) continue;
      // One that was deleted or evicted meanwhile is none any more.
      if (auto now = info({.key = {tenant, name}, .generation = entry.generation}, false))
        infos.push_back(*std::move(now));
    }
    done(std::move(infos));
  });
}

void Sessions::ask_remove(const SessionQuestion& question, const OnAnswer& done) {
  std::optional<scheduler::Refusal> refused;
  SessionIndex::Entry before;
  Evicted gone;
  {
    const std::lock_guard lock(mutex_);
    auto begun = index_.begin(question.tenant.id, question.name, /*must_exist=*/true);
    if (auto* why = std::get_if<scheduler::Refusal>(&begun)) {
      refused = std::move(*why);
    } else {
      before = *index_.find({question.tenant.id, question.name});
      gone = index_.remove(std::get<SessionUse>(begun));
    }
  }
  if (refused) return done(*std::move(refused));
  post(Size::small, gone.key.tenant, [this, gone, before, done] {
    const Status removed = files_->remove(gone);
    const Status synced = removed ? files_->sync(gone.key.tenant) : removed;
    if (synced) return done(std::vector<SessionInfo>());
    const bool is_still_there = !removed && files_->store().has(gone.key, SessionPart::tokens);
    {
      const std::lock_guard lock(mutex_);
      if (is_still_there && index_.find(gone.key) == nullptr) {
        if (before.is_unusable)
          index_.add_unusable(gone.key, before.last_used);
        else
          index_.add(gone.key, before.token_bytes, before.content_bytes, before.last_used);
      }
    }
    done(session_refusal(Outcome::unsupported,
                         fmt::format("session \"{}\" {}: {}", gone.key.name,
                                     is_still_there ? "could not be deleted" : "is deleted, but may not be on disk",
                                     synced.error().message),
                         "name"));
  });
}

void Sessions::ask_fork(const SessionQuestion& question, const OnAnswer& done) {
  std::optional<scheduler::Refusal> refused;
  std::optional<SessionUse> source, target;
  {
    const std::lock_guard lock(mutex_);
    auto from = index_.begin(question.tenant.id, question.name, /*must_exist=*/true);
    if (auto* why = std::get_if<scheduler::Refusal>(&from)) {
      refused = std::move(*why);
    } else {
      source = std::get<SessionUse>(from);
      auto to = index_.begin(question.tenant.id, question.to, /*must_exist=*/false);
      if (auto* no = std::get_if<scheduler::Refusal>(&to)) {
        refused = std::move(*no);
        index_.end(*source, index_.find(source->key)->last_used);
      } else {
        target = std::get<SessionUse>(to);
      }
    }
  }
  if (refused) return done(*std::move(refused));
  // With the contents that are being written now.
  post(Size::large, question.tenant.id, [this, done, from = *source, to = *target, tenant = question.tenant] {
    SessionAnswer answer = draining_ ? SessionAnswer(scheduler::server_drains()) : fork(from, to, tenant);
    {
      const std::lock_guard lock(mutex_);
      index_.end(from, index_.find(from.key)->last_used);
    }
    if (const auto gone = end_use(to)) remove_all({*gone});
    done(std::move(answer));
  });
}

// Whether the new session has the contents of the old one. A file of two sessions counts for each: which of them is
// deleted first is not known.
bool Sessions::link_contents(const SessionUse& from, const SessionUse& to, const scheduler::Tenant& tenant) {
  std::vector<Evicted> evicted;
  std::uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    const std::uint64_t bytes = index_.find(from.key)->content_bytes;
    if (bytes > 0 && !index_.reserve(to, tenant, SessionPart::contents, bytes, evicted))
      number = index_.find(to.key)->content_number;
  }
  remove_all(evicted);
  if (number > 0 && files_->link_contents(from.key, to.key, number)) return true;
  remove_all({{.key = to.key, .number = to.generation}});  // of an earlier session of this name
  if (number > 0) count_again(to, tenant, SessionPart::contents, 0);
  return false;
}

SessionAnswer Sessions::fork(const SessionUse& from, const SessionUse& to, const scheduler::Tenant& tenant) {
  auto file = files_->store().open_tokens(from.key);
  if (!file) return session_refusal(Outcome::invalid_argument, file.error().message, "from");
  engine::SequenceRecord record = file->record();
  record.created = unix_seconds();
  std::vector<Evicted> evicted;
  std::uint64_t number = 0;
  std::optional<scheduler::Refusal> refused;
  {
    const std::lock_guard lock(mutex_);
    refused = index_.reserve(to, tenant, SessionPart::tokens, engine::sequence_file_bytes(record, 0), evicted);
    if (!refused) number = index_.find(to.key)->token_number;
  }
  remove_all(evicted);
  if (refused) return *std::move(refused);
  (void)link_contents(from, to, tenant);
  const SessionFiles::Written written = files_->write_tokens(to.key, number, record);
  changed(to);
  if (!written.status) {
    count_again(to, tenant, SessionPart::tokens, 0);  // its end forgets it
    remove_all({{.key = to.key, .whole = true, .number = number}});
    return session_refusal(Outcome::quota, written.status.error().message, "to");
  }
  auto made = info(to, false);
  TROUPE_ASSERT(made);  // it is in use
  made->in_use = false;
  made->last_used = record.created;
  return std::vector{*std::move(made)};
}

// None: the session was deleted or evicted.
std::optional<SessionInfo> Sessions::info(const SessionUse& session, bool with_anchors) {
  const SessionKey& key = session.key;
  bool is_known = false;
  std::uint64_t changes = 0;
  SessionInfo info;
  info.name = key.name;
  {
    const std::lock_guard lock(mutex_);
    if (!index_.is_current(session)) return std::nullopt;
    const auto* const entry = index_.find(key);
    if (entry->info && !with_anchors) info = *entry->info;
    is_known = entry->info != nullptr;
    changes = entry->num_changes;
    info.last_used = entry->last_used;
    info.bytes = entry->bytes();
    info.in_use = entry->in_use;
  }
  if (is_known && !with_anchors) return info;
  const auto file = files_->store().open_tokens(key);
  {
    const std::lock_guard lock(mutex_);  // until now the name was this session's
    if (!index_.is_current(session)) return std::nullopt;
  }
  if (!file) {
    info.problem = file.error().message;
    return info;
  }
  const engine::SequenceRecord& record = file->record();
  info.created = record.created;
  info.num_tokens = static_cast<std::uint32_t>(record.tokens.size());
  info.num_answers = record.num_answers;
  info.file_version = file->version();
  info.numerics_id = record.numerics_id;
  const auto contents = files_->store().open_contents(key);
  if (contents && engine::is_prefix(*contents, record.tokens)) {
    info.num_computed = contents->num_computed();
    info.num_blocks = blocks_for(info.num_computed);
  }
  {
    const std::lock_guard lock(mutex_);
    index_.set_info(session, changes, info);
  }
  if (with_anchors)
    for (const cache::Anchor& anchor : file->anchors()) info.anchors.push_back({anchor, false});
  return info;
}

}  // namespace troupe::actors
