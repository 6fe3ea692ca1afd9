#include "actors/sessions/sessions.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <limits>
#include <new>

#include "config/assert.h"

namespace troupe::actors {
namespace {

using scheduler::Outcome;

std::uint64_t seconds_now() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::seconds>(now).count());
}

scheduler::Refusal refused_for(Outcome outcome, std::string message, std::string field = "session") {
  return {.outcome = outcome, .message = std::move(message), .field = std::move(field), .limit = std::nullopt};
}

// Whether a turn that ended like this becomes part of its session.
bool is_kept(const End& end, bool has_tokens) {
  if (scheduler::info(end.outcome).kind != scheduler::OutcomeKind::done) return false;
  return has_tokens || (end.outcome != Outcome::cancelled && end.outcome != Outcome::deadline);
}

}  // namespace

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

// --- a turn ---

SessionTurn::SessionTurn(Sessions& sessions, SessionUse use, scheduler::Tenant tenant, bool recompute)
    : sessions_(sessions), use_(std::move(use)), tenant_(std::move(tenant)), recompute_(recompute) {}

SessionTurn::~SessionTurn() {
  forget_image();
  sessions_.one_less();
}

void SessionTurn::load(std::shared_ptr<const engine::LoadedModel> model, std::function<void(Loaded)> done) {
  sessions_.post(Sessions::Size::small,
                 [self = shared_from_this(), model = std::move(model), done = std::move(done)]() mutable {
                   Loaded loaded = self->read_tokens(*model);
                   {
                     const std::lock_guard lock(self->mutex_);
                     self->model_ = std::move(model);
                   }
                   done(std::move(loaded));
                 });
}

SessionTurn::Loaded SessionTurn::read_tokens(const engine::LoadedModel& model) {
  engine::SequenceRecord record{.numerics_id = model.numerics_id(),
                                .model_hash = model.model().content_hash(),
                                .tokens = {},
                                .created = seconds_now(),
                                .num_answers = 0};
  std::vector<TokenId> tokens;
  std::optional<engine::SequenceFile> contents;
  if (!use_.is_new) {
    auto file = sessions_.store_->open_tokens(use_.key);
    if (!file)
      return refused_for(Outcome::invalid_argument,
                         fmt::format("session \"{}\" cannot be continued: {}; delete it and begin another one", name(),
                                     file.error().message));
    const engine::SequenceRecord& old = file->record();
    if (old.model_hash != record.model_hash)
      return refused_for(Outcome::unsupported,
                         fmt::format("session \"{}\" is a conversation with another model (numerics {}); this server "
                                     "has {}: serve that model, or begin another session",
                                     name(), old.numerics_id, record.numerics_id));
    const bool is_same = old.numerics_id == record.numerics_id;
    if (!is_same && !recompute_)
      return refused_for(
          Outcome::unsupported,
          fmt::format("session \"{}\" was computed under numerics {}, and this server has {}: serve with the same "
                      "kernels and KV type, or continue from its tokens with other bits (session_recompute; troupe run "
                      "--recompute)",
                      name(), old.numerics_id, record.numerics_id));
    record.created = old.created;
    record.num_answers = old.num_answers;
    tokens = old.tokens;
    if (is_same && !recompute_) {
      auto saved = sessions_.store_->open_contents(use_.key);
      const auto is_prefix = [&](const engine::SequenceFile& of) {
        const std::uint32_t count = of.num_computed();
        return count > 0 && count <= tokens.size() && count <= of.record().tokens.size() &&
               std::equal(tokens.begin(), tokens.begin() + count, of.record().tokens.begin());
      };
      if (saved && saved->check(model) && is_prefix(*saved)) contents.emplace(std::move(*saved));
    }
  }
  const std::lock_guard lock(mutex_);
  if (has_prompt_) return tokens;  // loaded before, and in use
  record_ = std::move(record);
  contents_ = std::move(contents);
  num_saved_ = contents_ ? contents_->num_computed() : 0;
  return tokens;
}

void SessionTurn::set_prompt(std::vector<TokenId> prompt) {
  const std::lock_guard lock(mutex_);
  TROUPE_ASSERT(model_ != nullptr);
  record_.tokens = std::move(prompt);
  has_prompt_ = true;
}

std::uint32_t SessionTurn::num_saved() const {
  const std::lock_guard lock(mutex_);
  return num_saved_ < record_.tokens.size() ? num_saved_ : 0;
}

std::shared_ptr<const engine::SequenceImage> SessionTurn::image() const {
  const std::lock_guard lock(mutex_);
  return image_;
}

void SessionTurn::read_image(std::function<void()> done) {
  std::uint64_t bytes = 0;
  {
    const std::lock_guard lock(mutex_);
    if (!readers_.empty()) return readers_.push_back(std::move(done));
    if (num_saved_ > 0 && !image_) bytes = contents_->content_bytes();
  }
  if (bytes == 0 || !sessions_.take_buffer(tenant_, bytes)) {
    if (bytes > 0) forget_image();
    return done();
  }
  {
    const std::lock_guard lock(mutex_);
    image_bytes_ = bytes;
    readers_.push_back(std::move(done));
  }
  sessions_.post(Sessions::Size::large, [self = shared_from_this()] {
    std::shared_ptr<engine::SequenceImage> image;
    try {  // while it has readers nothing else uses contents_
      image = std::make_shared<engine::SequenceImage>(*self->model_, self->contents_->num_computed());
      if (!self->contents_->read(*image)) image = nullptr;
    } catch (const std::bad_alloc&) {
      image = nullptr;
    }
    if (!image) self->forget_image();
    std::vector<std::function<void()>> readers;
    {
      const std::lock_guard lock(self->mutex_);
      self->image_ = std::move(image);
      readers = std::exchange(self->readers_, {});
    }
    for (const auto& done : readers) done();
  });
}

void SessionTurn::forget_image() {
  std::uint64_t bytes = 0;
  {
    const std::lock_guard lock(mutex_);
    num_saved_ = 0;
    image_ = nullptr;
    std::swap(bytes, image_bytes_);
  }
  sessions_.give_buffer_back(tenant_, bytes);
}

std::shared_ptr<SessionSaving> SessionTurn::save(std::vector<TokenId> tokens, std::uint32_t num_computed) {
  engine::SequenceRecord record;
  std::shared_ptr<const engine::LoadedModel> model;
  {
    const std::lock_guard lock(mutex_);
    record = {.numerics_id = record_.numerics_id,
              .model_hash = record_.model_hash,
              .tokens = std::move(tokens),
              .created = record_.created,
              .num_answers = record_.num_answers + 1};
    model = model_;
  }
  if (num_computed == 0) return nullptr;
  const std::uint64_t bytes = engine::SequenceImage::bytes_for(*model, num_computed);
  if (!sessions_.take_buffer(tenant_, bytes)) return nullptr;
  try {
    return std::make_shared<SessionSaving>(shared_from_this(), std::move(record),
                                           std::make_unique<engine::SequenceImage>(*model, num_computed));
  } catch (const std::bad_alloc&) {
    sessions_.give_buffer_back(tenant_, bytes);
    return nullptr;
  }
}

std::optional<engine::SequenceRecord> SessionTurn::record_with(const std::vector<TokenId>& answer) const {
  const std::lock_guard lock(mutex_);
  if (!has_prompt_) return std::nullopt;
  engine::SequenceRecord record = record_;
  record.tokens.insert(record.tokens.end(), answer.begin(), answer.end());
  ++record.num_answers;
  return record;
}

// --- contents on their way to the disk ---

SessionSaving::SessionSaving(std::shared_ptr<SessionTurn> turn, engine::SequenceRecord record,
                             std::unique_ptr<engine::SequenceImage> image)
    : turn_(std::move(turn)), record_(std::move(record)), image_(std::move(image)) {
  const std::lock_guard lock(turn_->sessions_.mutex_);
  ++turn_->sessions_.num_saving_[turn_->use_.key];
}

SessionSaving::~SessionSaving() {
  turn_->sessions_.give_buffer_back(turn_->tenant_, image_->bytes().size());
  turn_->sessions_.saving_ended(turn_->use_.key);
}

void SessionSaving::commit(std::shared_ptr<SessionSaving> saving) {
  Sessions& sessions = saving->turn_->sessions_;
  sessions.post(Sessions::Size::large, [&sessions, saving = std::move(saving)] { sessions.write_contents(*saving); });
}

// --- all sessions ---

Sessions::Sessions(const SessionsOptions& options, const std::vector<int>& cpus)
    : directory_(options.sessions_directory),
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
  if (const Status opened = open(); !opened) return refused_for(Outcome::unsupported, opened.error().message);
  std::vector<Evicted> evicted;
  std::optional<SessionUse> use;
  {
    const std::lock_guard lock(mutex_);
    auto begun = index_.begin(tenant.id, name, evicted);
    if (auto* refused = std::get_if<scheduler::Refusal>(&begun)) return std::move(*refused);
    use = std::get<SessionUse>(std::move(begun));
    ++num_open_;
  }
  auto turn = std::make_shared<SessionTurn>(*this, *std::move(use), tenant, recompute);
  if (!evicted.empty()) post(Size::small, [this, evicted = std::move(evicted)] { delete_evicted(evicted); });
  return turn;
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
      index_.end(turn->use_, seconds_now());
    }
    return sink->end(std::move(end));
  }
  post(Size::small, [this, turn, sink, end = std::move(end), record = *std::move(record)]() mutable {
    const std::string problem = store_turn(*turn, record);
    {
      const std::lock_guard lock(mutex_);
      index_.end(turn->use_, seconds_now());
    }
    if (!problem.empty()) end.message += (end.message.empty() ? "" : "; ") + problem;
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
  return refused_for(
      Outcome::invalid_argument,
      is_session_name(question.name)
          ? fmt::format("there is no session \"{}\"; troupe session list shows those that there are", question.name)
          : "that is no name of a session",
      "name");
}

void Sessions::ask(const SessionQuestion& question, OnAnswer done) {
  using Kind = SessionQuestion::Kind;
  if (const Status opened = open(); !opened) return done(refused_for(Outcome::unsupported, opened.error().message));
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
      for (const auto& [name, entry] : all)
        if (entry.token_bytes > 0) infos.push_back(info({tenant, name}, false));
      done(std::move(infos));
    });
  }
  if (auto refused = check_exists(question)) return done(*std::move(refused));
  const bool is_save = question.kind == Kind::save;
  auto job = [this, key, is_save, done = std::move(done)] { done(std::vector{info(key, !is_save)}); };
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
  std::vector<Evicted> evicted;
  std::optional<scheduler::Refusal> refused;
  {
    const std::lock_guard lock(mutex_);
    auto begun = index_.begin(question.tenant.id, question.name, /*must_exist=*/true, evicted);
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
  std::vector<Evicted> evicted;
  std::optional<scheduler::Refusal> refused;
  std::optional<SessionUse> source, target;
  {
    const std::lock_guard lock(mutex_);
    auto from = index_.begin(question.tenant.id, question.name, /*must_exist=*/true, evicted);
    if (auto* why = std::get_if<scheduler::Refusal>(&from)) {
      refused = std::move(*why);
    } else {
      source = std::get<SessionUse>(from);
      auto to = index_.begin(question.tenant.id, question.to, /*must_exist=*/false, evicted);
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
  post(Size::large, [this, done, evicted = std::move(evicted), from = *source, to = *target, tenant = question.tenant] {
    delete_evicted(evicted);
    SessionAnswer answer = fork(from, to, tenant);
    {
      const std::lock_guard lock(mutex_);
      index_.end(from, index_.find(from.key)->last_used);
      index_.end(to, seconds_now());
    }
    done(std::move(answer));
  });
}

SessionAnswer Sessions::fork(const SessionUse& from, const SessionUse& to, const scheduler::Tenant& tenant) {
  auto file = store_->open_tokens(from.key);
  if (!file) return refused_for(Outcome::invalid_argument, file.error().message, "from");
  engine::SequenceRecord record = file->record();
  record.created = seconds_now();
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
  delete_evicted(evicted);
  if (refused) return *std::move(refused);
  Status written = content_bytes > 0 ? store_->link_contents(from.key, to.key) : Status(Ok{});
  const bool linked = content_bytes > 0 && written;
  written = store_->write_tokens(to.key, record);
  const std::lock_guard lock(mutex_);
  if (content_bytes > 0 && !linked) (void)index_.reserve(to, tenant, SessionPart::contents, 0, evicted);
  if (!written) {
    store_->remove(to.key);
    (void)index_.reserve(to, tenant, SessionPart::tokens, 0, evicted);
    return refused_for(Outcome::quota, written.error().message, "to");
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
