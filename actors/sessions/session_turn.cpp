// One request's hold on a session, and the contents that it leaves to be written.
#include <fmt/format.h>

#include <ctime>
#include <new>

#include "actors/sessions/sessions.h"
#include "config/assert.h"

namespace troupe::actors {

using scheduler::Outcome;

namespace {

// That this thread has computed.
double cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Why the tokens of another model cannot be computed anew by this one: what differs. Empty: they can.
std::string difference_of(const engine::SequenceRecord& old, const engine::SequenceRecord& now) {
  if (now.vocabulary_digest == 0) return "this one has no vocabulary that could be compared";
  if (old.vocabulary_digest == 0 || old.template_digest == 0)
    return "its file, which an earlier troupe wrote or a model without a vocabulary, does not say whether the "
           "vocabulary and the chat template are the same";
  if (old.vocabulary_digest != now.vocabulary_digest) return "the vocabulary of this one is another";
  if (old.template_digest != now.template_digest) return "the chat template of this one is another";
  return "";
}

// Why a session of the record `old` is not continued under `now`; none: it is.
std::optional<std::string> why_not_continued(const std::string& name, const engine::SequenceRecord& old,
                                             const engine::SequenceRecord& now, bool recompute) {
  if (old.model_hash != now.model_hash) {
    const std::string difference = difference_of(old, now);
    if (difference.empty() && recompute) return std::nullopt;
    return fmt::format("session \"{}\" is a conversation with another model (numerics {}); this one has {}{}", name,
                       old.numerics_id, now.numerics_id,
                       difference.empty()
                           ? ", with the same vocabulary and chat template: ask that model, or let this one "
                             "compute the conversation anew (session_recompute; troupe run --recompute)"
                           : fmt::format(", and {}: ask that model, or begin another session", difference));
  }
  if (old.numerics_id == now.numerics_id || recompute) return std::nullopt;
  return fmt::format(
      "session \"{}\" was computed under numerics {}, and this server has {}: serve with the same kernels and KV type, "
      "or continue from its tokens with other bits (session_recompute; troupe run --recompute)",
      name, old.numerics_id, now.numerics_id);
}

}  // namespace

SessionTurn::SessionTurn(Sessions& sessions, SessionUse use, scheduler::Tenant tenant, bool recompute)
    : sessions_(sessions), use_(std::move(use)), tenant_(std::move(tenant)), recompute_(recompute) {}

SessionTurn::~SessionTurn() {
  forget_image();
  sessions_.one_less();
}

void SessionTurn::load(SessionModel model, std::function<void(Loaded)> done) {
  sessions_.post(Sessions::Size::small, tenant_.id,
                 [self = shared_from_this(), model = std::move(model), done = std::move(done)]() mutable {
                   Loaded loaded = self->read_tokens(model);
                   {
                     const std::lock_guard lock(self->mutex_);
                     self->model_ = std::move(model.model);
                   }
                   done(std::move(loaded));
                 });
}

SessionTurn::Loaded SessionTurn::read_tokens(const SessionModel& by) {
  const engine::LoadedModel& model = *by.model;
  engine::SequenceRecord record{.numerics_id = model.numerics_id(),
                                .model_hash = model.model().content_hash(),
                                .tokens = {},
                                .created = unix_seconds(),
                                .num_answers = 0,
                                .vocabulary_digest = model.vocabulary_digest(),
                                .template_digest = by.template_digest};
  std::vector<TokenId> tokens;
  std::string earlier;
  std::optional<engine::SequenceFile> contents;
  if (!use_.is_new) {
    auto file = sessions_.files_->store().open_tokens(use_.key);
    const auto unusable = [&](const Error& why) {
      return session_refusal(
          Outcome::invalid_argument,
          fmt::format("session \"{}\" cannot be continued: {}; delete it and begin another one", name(), why.message));
    };
    if (!file) return unusable(file.error());
    const engine::SequenceRecord& old = file->record();
    if (auto why = why_not_continued(name(), old, record, recompute_))
      return session_refusal(Outcome::unsupported, *std::move(why));
    if (const Status known = file->check_vocabulary(model); !known) return unusable(known.error());
    record.created = old.created;
    record.num_answers = old.num_answers;
    tokens = old.tokens;
    if (old.numerics_id != record.numerics_id) earlier = old.numerics_id;
    if (!recompute_) {
      auto saved = sessions_.files_->store().open_contents(use_.key);
      if (!saved && sessions_.files_->store().has(use_.key, SessionPart::contents)) contents_unusable(saved.error());
      if (saved && saved->check(model) && engine::is_prefix(*saved, tokens)) contents.emplace(std::move(*saved));
    }
  }
  const std::lock_guard lock(mutex_);
  if (has_prompt_) return tokens;  // loaded before, and in use
  record_ = std::move(record);
  recomputed_from_ = std::move(earlier);
  contents_ = std::move(contents);
  num_saved_ = contents_ ? contents_->num_computed() : 0;
  return tokens;
}

std::string SessionTurn::recomputed_from() const {
  const std::lock_guard lock(mutex_);
  return recomputed_from_;
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
  sessions_.post(Sessions::Size::large, tenant_.id, [self = shared_from_this()] {
    std::shared_ptr<engine::SequenceImage> image;
    try {  // while it has readers nothing else uses contents_
      image = std::make_shared<engine::SequenceImage>(*self->model_, self->contents_->num_computed());
      if (const Status read = self->contents_->read(*image); !read) {
        self->contents_unusable(read.error());
        image = nullptr;
      }
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
              .num_answers = record_.num_answers + 1,
              .vocabulary_digest = record_.vocabulary_digest,
              .template_digest = record_.template_digest};
    model = model_;
  }
  if (num_computed == 0) return nullptr;
  const std::uint64_t bytes = engine::SequenceImage::bytes_for(*model, num_computed);
  if (!sessions_.take_buffer(tenant_, bytes)) return nullptr;
  if (!sessions_.take_write(tenant_.id, bytes)) {
    sessions_.give_buffer_back(tenant_, bytes);
    return nullptr;
  }
  try {
    return std::make_shared<SessionSaving>(shared_from_this(), std::move(record),
                                           std::make_unique<engine::SequenceImage>(*model, num_computed));
  } catch (const std::bad_alloc&) {
    sessions_.give_buffer_back(tenant_, bytes);
    return nullptr;
  }
}

void SessionTurn::contents_unusable(const Error& why) {
  std::string problem =
      fmt::format("K and V of session \"{}\" cannot be used and are computed again: {}", name(), why.message);
  sessions_.report(problem);
  const std::lock_guard lock(mutex_);
  problem_ = std::move(problem);
}

std::string SessionTurn::take_problem() {
  const std::lock_guard lock(mutex_);
  return std::exchange(problem_, {});
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

void SessionSaving::commit(std::shared_ptr<SessionSaving> saving, std::function<void(double)> charge) {
  Sessions& sessions = saving->turn_->sessions_;
  const TenantId tenant = saving->turn_->tenant_.id;
  sessions.post(Sessions::Size::large, tenant, [&sessions, saving = std::move(saving), charge = std::move(charge)] {
    const double before = cpu_seconds();
    sessions.write_contents(*saving);
    if (charge) charge(cpu_seconds() - before);
  });
}

}  // namespace troupe::actors
