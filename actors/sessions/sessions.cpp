#include "actors/sessions/sessions.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <limits>

#include "actors/request_check.h"
#include "config/assert.h"
#include "config/folders.h"

namespace troupe::actors {
namespace {

using scheduler::Outcome;

// Whether a turn that ended like this becomes part of its session.
bool is_kept(const End& end, bool has_tokens) {
  if (scheduler::info(end.outcome).kind != scheduler::OutcomeKind::done) return false;
  return has_tokens || (end.outcome != Outcome::cancelled && end.outcome != Outcome::deadline);
}

}  // namespace

std::uint64_t unix_seconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::seconds>(now).count());
}

// Collects the answer, and passes everything on.
class SessionSink final : public StreamSink {
 public:
  using Ended = std::function<void(End, const std::vector<TokenId>&)>;
  SessionSink(std::shared_ptr<StreamSink> sink, Ended ended) : sink_(std::move(sink)), ended_(std::move(ended)) {}
  void tokens(TokenRun run) override {
    answer_.insert(answer_.end(), run.ids.begin(), run.ids.end());
    sink_->tokens(std::move(run));
  }
  void end(End end) override { ended_(std::move(end), answer_); }

 private:
  const std::shared_ptr<StreamSink> sink_;
  const Ended ended_;
  std::vector<TokenId> answer_;
};

Sessions::Sessions(const SessionsOptions& options, const std::vector<int>& cpus, Log log)
    : directory_(options.sessions_directory),
      log_(std::move(log)),
      cpus_(cpus),
      index_(options),
      buffers_({.name = "max_session_buffer_bytes",
                .what = "bytes of sessions on their way to and from the disk",
                .limit = options.max_session_buffer_bytes}) {
  if (directory_.empty())
    status_ = Error{ErrorCode::unsupported, "this server keeps no sessions (--sessions-dir off)"};
  else if (std::filesystem::exists(std::filesystem::symlink_status(directory_)))
    (void)open();
}

// Opens the directory at its first use. A failure lasts: what is there is not known then.
Status Sessions::open() {
  const std::lock_guard lock(mutex_);
  if (files_ || !status_) return status_;
  auto store = SessionStore::open(directory_);
  if (!store) return status_ = store.error();
  std::vector<SessionProblem> problems;
  const auto found = store->scan(&problems);
  if (!found) return status_ = found.error();
  add(*found, problems);
  constexpr std::size_t kAnyNumber = std::numeric_limits<std::size_t>::max();  // bounded by the open streams
  small_.emplace("session tokens", 1, kAnyNumber, cpus_);
  large_.emplace("session files", 1, kAnyNumber, cpus_);
  files_.emplace(std::move(*store));
  return status_;
}

// Under the lock.
void Sessions::add(const std::vector<SessionStore::Found>& found, const std::vector<SessionProblem>& problems) {
  for (const auto& [key, token_bytes, content_bytes, last_used] : found)
    index_.add(key, token_bytes, content_bytes, last_used);
  for (const SessionProblem& each : problems) {
    problems_.push_back(each.message);
    if (each.session.empty())
      unreadable_.insert(each.tenant);
    else if (each.part == SessionPart::tokens)
      index_.add_unusable({each.tenant, each.session}, each.last_used);
  }
}

// A folder that could not be used is looked at again: it may have been mended. What is in it is not known before.
std::optional<scheduler::Refusal> Sessions::check_tenant(TenantId tenant) {
  const std::lock_guard lock(mutex_);
  if (!unreadable_.contains(tenant)) return std::nullopt;
  std::vector<SessionProblem> problems;
  const auto found = files_->store().scan_tenant(tenant, problems);
  if (!found)
    return session_refusal(Outcome::unsupported,
                           fmt::format("your sessions cannot be used: {}", found.error().message));
  add(*found, problems);
  unreadable_.erase(tenant);
  return std::nullopt;
}

Status Sessions::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

std::vector<std::string> Sessions::problems() const {
  const std::lock_guard lock(mutex_);
  return problems_;
}

Sessions::~Sessions() { finish(); }

void Sessions::finish() {
  // A job of the one may post to the other, but what is left then (a write after a save) ends in two rounds.
  std::function<void()> none = [] {};
  for (int round = 0; round < 2 && files_; ++round) {
    for (ThreadPool* pool : {&*large_, &*small_}) {
      std::mutex mutex;
      std::condition_variable reached;
      bool done = false;
      const bool posted = pool->post([&] {
        const std::lock_guard lock(mutex);
        done = true;
        reached.notify_all();
      });
      TROUPE_ASSERT(posted);
      std::unique_lock lock(mutex);
      reached.wait(lock, [&] { return done; });
    }
  }
}

void Sessions::post(Size size, std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    ++num_open_;
  }
  const bool posted = (size == Size::small ? small_ : large_)->post([this, job = std::move(job)]() mutable {
    job();
    job = nullptr;  // what it holds is gone before it counts as done
    one_less();
  });
  TROUPE_ASSERT(posted);
}

// A job has ended, or a turn.
void Sessions::one_less() {
  std::vector<std::function<void()>> done;
  {
    const std::lock_guard lock(mutex_);
    TROUPE_ASSERT(num_open_ > 0);
    if (--num_open_ == 0) done = std::exchange(when_idle_, {});
  }
  for (const auto& call : done) call();
}

void Sessions::when_idle(std::function<void()> done) {
  {
    const std::lock_guard lock(mutex_);
    if (num_open_ > 0) {
      when_idle_.push_back(std::move(done));
      return;
    }
  }
  done();
}

Sessions::Begun Sessions::begin(const scheduler::Tenant& tenant, const std::string& name, bool recompute) {
  if (const Status opened = open(); !opened) return session_refusal(Outcome::unsupported, opened.error().message);
  if (auto refused = check_tenant(tenant.id)) return *std::move(refused);
  std::optional<SessionUse> use;
  {
    const std::lock_guard lock(mutex_);
    auto begun = index_.begin(tenant.id, name);
    if (auto* refused = std::get_if<scheduler::Refusal>(&begun)) return std::move(*refused);
    use = std::get<SessionUse>(std::move(begun));
    ++num_open_;
  }
  return std::make_shared<SessionTurn>(*this, *std::move(use), tenant, recompute);
}

std::shared_ptr<StreamSink> Sessions::wrap(std::shared_ptr<SessionTurn> turn, std::shared_ptr<StreamSink> sink) {
  auto ended = [this, turn = std::move(turn), sink](End end, const std::vector<TokenId>& answer) {
    end_turn(turn, std::move(end), answer, sink);
  };
  return std::make_shared<SessionSink>(std::move(sink), std::move(ended));
}

void Sessions::end_turn(const std::shared_ptr<SessionTurn>& turn, End end, const std::vector<TokenId>& answer,
                        const std::shared_ptr<StreamSink>& sink) {
  auto record = is_kept(end, !answer.empty()) ? turn->record_with(answer) : std::nullopt;
  if (!record) {
    if (const auto gone = end_use(turn->use_)) post(Size::small, [this, gone = *gone] { remove_all({gone}); });
    return sink->end(std::move(end));
  }
  post(Size::small, [this, turn, sink, end = std::move(end), record = *std::move(record)]() mutable {
    const std::string problem = store_turn(*turn, record);
    if (const auto gone = end_use(turn->use_)) remove_all({*gone});
    if (!problem.empty()) {
      if (log_) log_(problem);
      end.message += (end.message.empty() ? "" : "; ") + (turn->tenant_.is_owner ? problem : without_folders(problem));
    }
    sink->end(std::move(end));
  });
}

std::optional<Evicted> Sessions::end_use(const SessionUse& use) {
  const std::lock_guard lock(mutex_);
  return index_.end(use, unix_seconds());
}

// Writes the tokens of a turn. Returns what is wrong if they could not be; empty: nothing.
std::string Sessions::store_turn(SessionTurn& turn, const engine::SequenceRecord& record) {
  const SessionUse& use = turn.use_;
  const auto lost = [&](const std::string& why) {
    return fmt::format("session \"{}\" does not have this answer, and goes on from before it: {}", turn.name(), why);
  };
  std::vector<Evicted> evicted;
  std::uint64_t before = 0, number = 0;
  std::optional<scheduler::Refusal> refused;
  {
    const std::lock_guard lock(mutex_);
    if (const auto* entry = index_.find(use.key)) before = entry->token_bytes;
    refused = index_.reserve(use, turn.tenant_, SessionPart::tokens, engine::sequence_file_bytes(record, 0), evicted);
    if (!refused) number = index_.find(use.key)->token_number;
  }
  remove_all(evicted);
  if (refused) return lost(refused->message);
  if (use.is_new) remove_all({{.key = use.key, .number = use.generation}});  // of an earlier session of this name
  const SessionFiles::Written written = files_->write_tokens(use.key, number, record);
  if (written.status) return "";
  if (written.is_there)
    return fmt::format("session \"{}\" has this answer, but may lose it if the system crashes: {}", turn.name(),
                       written.status.error().message);
  count_again(use, turn.tenant_, SessionPart::tokens, before);
  return lost(written.status.error().message);
}

void Sessions::write_contents(SessionSaving& saving) {
  const SessionUse& use = saving.turn_->use_;
  const std::uint64_t bytes = engine::sequence_file_bytes(saving.record_, saving.image_->bytes().size());
  std::vector<Evicted> evicted;
  std::uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    if (index_.reserve(use, saving.turn_->tenant_, SessionPart::contents, bytes, evicted)) return;
    number = index_.find(use.key)->content_number;
  }
  remove_all(evicted);
  // Deleted or evicted meanwhile, it does not count any more.
  const auto is_wanted = [&] {
    const std::lock_guard lock(mutex_);
    return index_.is_current(use) && index_.find(use.key)->content_number == number;
  };
  if (files_->write_contents(use.key, number, saving.record_, *saving.image_, is_wanted).is_there) return;
  remove_all({{.key = use.key, .number = number}});  // those from before, which do not count either
  if (is_wanted()) count_again(use, saving.turn_->tenant_, SessionPart::contents, 0);
}

// What was not written takes no room; `bytes` is what is there instead. Not more than was reserved: it fits.
void Sessions::count_again(const SessionUse& use, const scheduler::Tenant& tenant, SessionPart part,
                           std::uint64_t bytes) {
  std::vector<Evicted> evicted;
  {
    const std::lock_guard lock(mutex_);
    (void)index_.reserve(use, tenant, part, bytes, evicted);
  }
  remove_all(evicted);
}

// Without an answer to give. What cannot be deleted is counted again by the next server that reads the directory.
void Sessions::remove_all(const std::vector<Evicted>& gone) {
  for (const Evicted& each : gone) (void)files_->remove(each);
}

void Sessions::saving_ended(const SessionKey& key) {
  std::vector<std::function<void()>> waiting;
  {
    const std::lock_guard lock(mutex_);
    const auto found = num_saving_.find(key);
    TROUPE_ASSERT(found != num_saving_.end());
    if (--found->second > 0) return;
    num_saving_.erase(found);
    const auto [first, last] = after_saving_.equal_range(key);
    for (auto it = first; it != last; ++it) waiting.push_back(std::move(it->second));
    after_saving_.erase(first, last);
  }
  for (const auto& call : waiting) call();
}

bool Sessions::take_buffer(const scheduler::Tenant& tenant, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  return !buffers_.try_take(tenant, bytes);
}

void Sessions::give_buffer_back(const scheduler::Tenant& tenant, std::uint64_t bytes) {
  if (bytes == 0) return;
  const std::lock_guard lock(mutex_);
  buffers_.give_back(tenant.id, bytes);
}

// --- questions ---

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
  using Kind = SessionQuestion::Kind;
  if (draining_) return done(draining_refusal());
  if (const Status opened = open(); !opened) return done(session_refusal(Outcome::unsupported, opened.error().message));
  if (auto refused = check_tenant(question.tenant.id)) return done(*std::move(refused));
  if (question.kind == Kind::fork) return ask_fork(question, done);
  if (question.kind == Kind::remove) return ask_remove(question, done);
  if (question.kind == Kind::list) return ask_list(question.tenant.id, std::move(done));
  auto found = look_up(question);
  if (auto* refused = std::get_if<scheduler::Refusal>(&found)) return done(std::move(*refused));
  const bool is_save = question.kind == Kind::save;
  auto job = [this, session = std::get<SessionUse>(found), is_save, done = std::move(done)] {
    if (draining_) return done(draining_refusal());
    if (auto now = info(session, !is_save)) return done(std::vector{*std::move(now)});
    done(session_refusal(Outcome::invalid_argument,
                         fmt::format("session \"{}\" was deleted meanwhile", session.key.name), "name"));
  };
  if (!is_save) return post(Size::small, std::move(job));
  // After what is being copied now, and what is being written.
  auto flush = [this, job = std::move(job)] { post(Size::large, job); };
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
  post(Size::small, [this, tenant, done = std::move(done)] {
    std::vector<std::pair<std::string, SessionIndex::Entry>> all;
    {
      const std::lock_guard lock(mutex_);
      all = index_.of(tenant);
    }
    std::vector<SessionInfo> infos;
    for (const auto& [name, entry] : all) {
      if (draining_) return done(draining_refusal());
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
  post(Size::small, [this, gone, before, done] {
    const Status removed = files_->remove(gone);
    const Status synced = removed ? files_->sync(gone.key.tenant) : removed;
    if (synced) return done(std::vector<SessionInfo>());
    const bool is_still_there = !removed && files_->store().has_tokens(gone.key);
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
  post(Size::large, [this, done, from = *source, to = *target, tenant = question.tenant] {
    SessionAnswer answer = draining_ ? SessionAnswer(draining_refusal()) : fork(from, to, tenant);
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
  SessionInfo made;
  {
    const std::lock_guard lock(mutex_);
    made.bytes = index_.find(to.key)->bytes();
  }
  if (!written.status) {
    count_again(to, tenant, SessionPart::tokens, 0);  // its end forgets it
    remove_all({{.key = to.key, .whole = true, .number = number}});
    return session_refusal(Outcome::quota, written.status.error().message, "to");
  }
  made.name = to.key.name;
  made.created = made.last_used = record.created;
  made.num_tokens = static_cast<std::uint32_t>(record.tokens.size());
  made.num_answers = record.num_answers;
  made.file_version = engine::kSequenceFileVersion;
  made.numerics_id = record.numerics_id;
  return std::vector{std::move(made)};
}

// None: the session was deleted or evicted.
std::optional<SessionInfo> Sessions::info(const SessionUse& session, bool with_anchors) const {
  const SessionKey& key = session.key;
  SessionInfo info;
  info.name = key.name;
  {
    const std::lock_guard lock(mutex_);
    if (!index_.is_current(session)) return std::nullopt;
    const auto* const entry = index_.find(key);
    info.last_used = entry->last_used;
    info.bytes = entry->bytes();
    info.in_use = entry->in_use;
  }
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
  info.file_version = engine::kSequenceFileVersion;
  info.numerics_id = record.numerics_id;
  const auto contents = files_->store().open_contents(key);
  if (contents && engine::is_prefix(*contents, record.tokens)) {
    info.num_computed = contents->num_computed();
    info.num_blocks = blocks_for(info.num_computed);
  }
  if (with_anchors)
    for (const cache::Anchor& anchor : file->anchors()) info.anchors.push_back({anchor, false});
  return info;
}

}  // namespace troupe::actors
