#include "actors/sessions/sessions.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

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
  void admitted(const Admitted& choice) override { sink_->admitted(choice); }
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

Sessions::Sessions(const SessionsPlace& place, const config::SessionLimits& limits, const std::vector<int>& cpus,
                   Log log, TurnThread::Clock clock)
    : directory_(place.sessions_directory),
      log_(std::move(log)),
      cpus_(cpus),
      clock_(std::move(clock)),
      max_questions_(limits.max_session_questions_per_user),
      write_rate_(static_cast<double>(limits.max_session_write_rate)),
      index_(limits),
      buffers_({.name = "max_session_buffer_bytes",
                .what = "bytes of sessions on their way to and from the disk",
                .limit = limits.max_session_buffer_bytes}) {
  if (directory_.empty())
    status_ = Error{ErrorCode::unsupported,
                    "this server keeps no sessions (" +
                        (place.no_sessions_because.empty() ? "--sessions-dir off" : place.no_sessions_because) + ")"};
  else
    (void)open();
}

// A failure lasts: what is there is not known then.
Status Sessions::open() {
  const std::lock_guard lock(mutex_);
  auto store = SessionStore::open(directory_);
  if (!store) return status_ = store.error();
  std::vector<SessionProblem> problems;
  const auto found = store->scan(&problems);
  if (!found) return status_ = found.error();
  add(*found, problems);
  small_.emplace("session tokens", cpus_, clock_);
  large_.emplace("session files", cpus_, clock_);
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
      unreadable_[each.tenant] = each.message;
    else if (each.part == SessionPart::tokens)
      index_.add_unusable({each.tenant, each.session}, each.last_used);
  }
}

std::optional<scheduler::Refusal> Sessions::why_unreadable(TenantId tenant) const {
  const std::lock_guard lock(mutex_);
  const auto found = unreadable_.find(tenant);
  if (found == unreadable_.end()) return std::nullopt;
  return session_refusal(Outcome::unsupported, fmt::format("your sessions cannot be used: {}", found->second));
}

// A folder that could not be used is looked at again: it may have been mended. What is in it is not known before. On
// the thread of small jobs, as it waits for the disk.
std::optional<scheduler::Refusal> Sessions::read_again(TenantId tenant) {
  if (!why_unreadable(tenant)) return std::nullopt;
  std::vector<SessionProblem> problems;
  const auto found = files_->store().scan_tenant(tenant, problems);
  {
    const std::lock_guard lock(mutex_);
    if (!found) {
      unreadable_[tenant] = found.error().message;
    } else {
      add(*found, problems);
      unreadable_.erase(tenant);
    }
  }
  return why_unreadable(tenant);
}

// At most once at a time.
void Sessions::read_again_later(TenantId tenant) {
  {
    const std::lock_guard lock(mutex_);
    if (!being_read_.insert(tenant).second) return;
  }
  post(Size::small, tenant, [this, tenant] {
    (void)read_again(tenant);
    const std::lock_guard lock(mutex_);
    being_read_.erase(tenant);
  });
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
  for (int round = 0; round < 2 && files_; ++round) {
    large_->wait();
    small_->wait();
  }
}

void Sessions::post(Size size, TenantId tenant, std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    ++num_open_;
  }
  (size == Size::small ? small_ : large_)->post(tenant, [this, job = std::move(job)]() mutable {
    job();
    job = nullptr;  // what it holds is gone before it counts as done
    one_less();
  });
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
  if (const Status opened = status(); !opened) return session_refusal(Outcome::unsupported, opened.error().message);
  if (auto refused = why_unreadable(tenant.id)) {
    // The caller cannot wait for the disk: what is mended is found by the next one.
    read_again_later(tenant.id);
    return *std::move(refused);
  }
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
  const auto tell = [](const SessionTurn& of, const std::string& problem, End& with) {
    if (problem.empty()) return;
    with.message += (with.message.empty() ? "" : "; ") + (of.tenant_.is_owner ? problem : without_folders(problem));
  };
  tell(*turn, turn->take_problem(), end);
  auto record = is_kept(end, !answer.empty()) ? turn->record_with(answer) : std::nullopt;
  if (!record) {
    if (const auto gone = end_use(turn->use_))
      post(Size::small, gone->key.tenant, [this, gone = *gone] { remove_all({gone}); });
    return sink->end(std::move(end));
  }
  post(Size::small, turn->tenant_.id,
       [this, turn, sink, tell, end = std::move(end), record = *std::move(record)]() mutable {
         const std::string problem = store_turn(*turn, record);
         if (const auto gone = end_use(turn->use_)) remove_all({*gone});
         if (!problem.empty()) report(problem);
         tell(*turn, problem, end);
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
  changed(use);
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
  const Status written = files_->write_contents(use.key, number, saving.record_, *saving.image_, is_wanted).status;
  changed(use);
  if (written) return;
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

// A file of it was written: what is known of it is no longer true.
void Sessions::changed(const SessionUse& use) {
  const std::lock_guard lock(mutex_);
  index_.forget_info(use);
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

// Ten seconds' worth may come at once; a longer conversation's contents when all of that has been saved up.
bool Sessions::take_write(TenantId tenant, std::uint64_t bytes) {
  const double now = std::chrono::duration<double>(clock_().time_since_epoch()).count();
  const double capacity = 10 * write_rate_, amount = static_cast<double>(bytes);
  const std::lock_guard lock(mutex_);
  std::erase_if(writes_, [&](const auto& each) { return each.second.is_full(now); });
  scheduler::TokenBucket& bucket = writes_.try_emplace(tenant, capacity, write_rate_).first->second;
  if (bucket.level(now) < std::min(amount, capacity)) return false;
  bucket.take(amount, now);
  return true;
}

void Sessions::give_buffer_back(const scheduler::Tenant& tenant, std::uint64_t bytes) {
  if (bytes == 0) return;
  const std::lock_guard lock(mutex_);
  buffers_.give_back(tenant.id, bytes);
}

}  // namespace troupe::actors
