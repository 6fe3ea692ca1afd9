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
  if (store_ || !status_) return status_;
  auto store = SessionStore::open(directory_);
  if (!store) return status_ = store.error();
  const auto found = store->scan();
  if (!found) return status_ = found.error();
  for (const auto& [key, token_bytes, content_bytes, last_used] : *found)
    index_.add(key, token_bytes, content_bytes, last_used);
  constexpr std::size_t kAnyNumber = std::numeric_limits<std::size_t>::max();  // bounded by the open streams
  small_.emplace("session tokens", 1, kAnyNumber, cpus_);
  large_.emplace("session files", 1, kAnyNumber, cpus_);
  store_.emplace(std::move(*store));
  return status_;
}

Status Sessions::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

Sessions::~Sessions() { finish(); }

void Sessions::finish() {
  // A job of the one may post to the other, but what is left then (a write after a save) ends in two rounds.
  std::function<void()> none = [] {};
  for (int round = 0; round < 2 && store_; ++round) {
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
    {
      const std::lock_guard lock(mutex_);
      index_.end(turn->use_, unix_seconds());
    }
    return sink->end(std::move(end));
  }
  post(Size::small, [this, turn, sink, end = std::move(end), record = *std::move(record)]() mutable {
    const std::string problem = store_turn(*turn, record);
    {
      const std::lock_guard lock(mutex_);
      index_.end(turn->use_, unix_seconds());
    }
    if (!problem.empty()) {
      if (log_) log_(problem);
      end.message += (end.message.empty() ? "" : "; ") + (turn->tenant_.is_owner ? problem : without_folders(problem));
    }
    sink->end(std::move(end));
  });
}

// Writes the tokens of a turn. Returns what is wrong if they could not be; empty: nothing.
std::string Sessions::store_turn(SessionTurn& turn, const engine::SequenceRecord& record) {
  const auto lost = [&](const std::string& why) {
    return fmt::format("session \"{}\" does not have this answer, and goes on from before it: {}", turn.name(), why);
  };
  std::vector<Evicted> evicted;
  std::uint64_t before = 0;
  std::optional<scheduler::Refusal> refused;
  {
    const std::lock_guard lock(mutex_);
    if (const auto* entry = index_.find(turn.use_.key)) before = entry->token_bytes;
    refused =
        index_.reserve(turn.use_, turn.tenant_, SessionPart::tokens, engine::sequence_file_bytes(record, 0), evicted);
  }
  delete_evicted(evicted);
  if (refused) return lost(refused->message);
  const Status written = store_->write_tokens(turn.use_.key, record);
  if (written) return "";
  const std::lock_guard lock(mutex_);
  (void)index_.reserve(turn.use_, turn.tenant_, SessionPart::tokens, before, evicted);  // less than it is: evicts none
  return lost(written.error().message);
}

void Sessions::write_contents(SessionSaving& saving) {
  const SessionUse& use = saving.turn_->use_;
  const std::uint64_t bytes = engine::sequence_file_bytes(saving.record_, saving.image_->bytes().size());
  std::vector<Evicted> evicted;
  {
    const std::lock_guard lock(mutex_);
    if (index_.reserve(use, saving.turn_->tenant_, SessionPart::contents, bytes, evicted)) return;
  }
  delete_evicted(evicted);
  const bool written = static_cast<bool>(store_->write_contents(use.key, saving.record_, *saving.image_));
  bool counts = false;
  {
    const std::lock_guard lock(mutex_);
    counts = index_.is_current(use) && index_.find(use.key)->content_bytes == bytes;
    if (counts && !written) (void)index_.reserve(use, saving.turn_->tenant_, SessionPart::contents, 0, evicted);
  }
  // Deleted or evicted meanwhile; a file of the name that replaces it is written by this thread, later.
  if (!counts || !written) store_->remove_contents(use.key);
}

void Sessions::delete_evicted(const std::vector<Evicted>& evicted) {
  for (const Evicted& each : evicted) each.whole ? store_->remove(each.key) : store_->remove_contents(each.key);
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

std::optional<scheduler::Refusal> Sessions::check_exists(const SessionQuestion& question) const {
  const std::lock_guard lock(mutex_);
  const auto* const entry = index_.find({question.tenant.id, question.name});
  if (entry != nullptr && entry->token_bytes > 0) return std::nullopt;
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
  const SessionKey key{question.tenant.id, question.name};
  if (question.kind == Kind::fork) return ask_fork(question, done);
  if (question.kind == Kind::remove) return ask_remove(question, done);
  if (question.kind == Kind::list) {
    return post(Size::small, [this, tenant = question.tenant.id, done = std::move(done)] {
      std::vector<std::pair<std::string, SessionIndex::Entry>> all;
      {
        const std::lock_guard lock(mutex_);
        all = index_.of(tenant);
      }
      std::vector<SessionInfo> infos;
      for (const auto& [name, entry] : all) {
        if (draining_) return done(draining_refusal());
        if (entry.token_bytes > 0) infos.push_back(info({tenant, name}, false));
      }
      done(std::move(infos));
    });
  }
  if (auto refused = check_exists(question)) return done(*std::move(refused));
  const bool is_save = question.kind == Kind::save;
  auto job = [this, key, is_save, done = std::move(done)] {
    if (draining_) return done(draining_refusal());
    done(std::vector{info(key, !is_save)});
  };
  if (!is_save) return post(Size::small, std::move(job));
  // After what is being copied now, and what is being written.
  auto flush = [this, job = std::move(job)] { post(Size::large, job); };
  {
    const std::lock_guard lock(mutex_);
    if (num_saving_.contains(key)) {
      after_saving_.emplace(key, std::move(flush));
      return;
    }
  }
  flush();
}

void Sessions::ask_remove(const SessionQuestion& question, const OnAnswer& done) {
  std::optional<scheduler::Refusal> refused;
  {
    const std::lock_guard lock(mutex_);
    auto begun = index_.begin(question.tenant.id, question.name, /*must_exist=*/true);
    if (auto* why = std::get_if<scheduler::Refusal>(&begun))
      refused = std::move(*why);
    else
      index_.remove(std::get<SessionUse>(begun));
  }
  if (refused) return done(*std::move(refused));
  post(Size::small, [this, key = SessionKey{question.tenant.id, question.name}, done] {
    store_->remove(key);
    done(std::vector<SessionInfo>());
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
      index_.end(to, unix_seconds());
    }
    done(std::move(answer));
  });
}

SessionAnswer Sessions::fork(const SessionUse& from, const SessionUse& to, const scheduler::Tenant& tenant) {
  auto file = store_->open_tokens(from.key);
  if (!file) return session_refusal(Outcome::invalid_argument, file.error().message, "from");
  engine::SequenceRecord record = file->record();
  record.created = unix_seconds();
  std::vector<Evicted> evicted;
  std::optional<scheduler::Refusal> refused;
  std::uint64_t content_bytes = 0;
  {
    const std::lock_guard lock(mutex_);
    refused = index_.reserve(to, tenant, SessionPart::tokens, engine::sequence_file_bytes(record, 0), evicted);
    content_bytes = index_.find(from.key)->content_bytes;
    // A file of two sessions counts for each: which of them is deleted first is not known.
    if (!refused && content_bytes > 0 && index_.reserve(to, tenant, SessionPart::contents, content_bytes, evicted))
      content_bytes = 0;
  }
  // By the thread that writes tokens, before it writes those of a new session of such a name.
  if (!evicted.empty()) post(Size::small, [this, gone = evicted] { delete_evicted(gone); });
  if (refused) return *std::move(refused);
  Status written = content_bytes > 0 ? store_->link_contents(from.key, to.key) : Status(Ok{});
  const bool linked = content_bytes > 0 && written;
  written = store_->write_tokens(to.key, record);
  const std::lock_guard lock(mutex_);
  if (content_bytes > 0 && !linked) (void)index_.reserve(to, tenant, SessionPart::contents, 0, evicted);
  if (!written) {
    store_->remove(to.key);
    (void)index_.reserve(to, tenant, SessionPart::tokens, 0, evicted);
    return session_refusal(Outcome::quota, written.error().message, "to");
  }
  SessionInfo made;
  made.name = to.key.name;
  made.created = made.last_used = record.created;
  made.num_tokens = static_cast<std::uint32_t>(record.tokens.size());
  made.num_answers = record.num_answers;
  made.bytes = index_.find(to.key)->bytes();
  made.file_version = engine::kSequenceFileVersion;
  made.numerics_id = record.numerics_id;
  return std::vector{std::move(made)};
}

SessionInfo Sessions::info(const SessionKey& key, bool with_anchors) const {
  SessionInfo info;
  info.name = key.name;
  {
    const std::lock_guard lock(mutex_);
    if (const auto* entry = index_.find(key)) {
      info.last_used = entry->last_used;
      info.bytes = entry->bytes();
      info.in_use = entry->in_use;
    }
  }
  const auto file = store_->open_tokens(key);
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
  if (const auto contents = store_->open_contents(key)) {
    info.num_computed = contents->num_computed();
    info.num_blocks = blocks_for(info.num_computed);
  }
  if (with_anchors)
    for (const cache::Anchor& anchor : file->anchors()) info.anchors.push_back({anchor, false});
  return info;
}

}  // namespace troupe::actors
