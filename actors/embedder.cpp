#include "actors/embedder.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <span>
#include <utility>

#include "actors/request_check.h"
#include "actors/server_context.h"
#include "engine/sampling/check_ids.h"

namespace troupe::actors {
namespace {

using scheduler::Outcome;
using Texts = std::vector<std::string>;
using Ids = std::vector<std::vector<TokenId>>;

// A turn on the compute thread takes texts up to this many tokens (some milliseconds of a small encoder), or one longer
// text, since texts are not split.
constexpr std::size_t kTokensPerTurn = 1024;
// A turn on a text thread ends once it has encoded this many bytes (some milliseconds). Texts are not split.
constexpr std::size_t kBytesPerTurn = 64 << 10;

End failed(const std::exception_ptr& thrown, const std::string& doing) {
  const Failure why = failure_of(thrown);
  return ended_as(why.out_of_memory ? Outcome::out_of_memory : Outcome::internal,
                  why.out_of_memory ? "there was no memory " + doing : "it could not be worked on: " + why.what);
}

// Checks that the model can read these ids. `field`: the name of the inputs in the request.
std::optional<End> check_ids(const std::vector<TokenId>& ids, std::size_t input, const std::string& field,
                             const engine::TextVectors& vectors) {
  const std::uint32_t vocab_size = vectors.info().vocab_size;
  const std::uint32_t max_tokens = vectors.max_tokens();
  const std::string name = field + "[" + std::to_string(input) + "]";
  if (ids.empty()) return refusal(Outcome::invalid_argument, field, name + " has no tokens");
  if (ids.size() > max_tokens) {
    return refusal(
        Outcome::too_long, field,
        name + " has " + std::to_string(ids.size()) + " tokens; this model reads at most " + std::to_string(max_tokens),
        max_tokens);
  }
  if (const auto unknown = engine::find_unknown_id(ids, vocab_size)) {
    return refusal(Outcome::invalid_argument, field,
                   name + " has the id " + std::to_string(ids[*unknown]) +
                       "; this model's vocabulary has the ids 0 to " + std::to_string(vocab_size - 1),
                   vocab_size);
  }
  return std::nullopt;
}

template <class Container>
std::uint64_t bytes_of(const std::vector<Container>& all) {
  std::uint64_t bytes = 0;
  for (const Container& each : all) bytes += each.size() * sizeof(each[0]);
  return bytes;
}

// Calls `done` with the answer. If that throws, as when there is no memory for a copy of the vectors, calls `done` with
// the failure instead.
void tell(const OnEmbedded& done, EmbedAnswer answer) noexcept {
  std::exception_ptr thrown;
  try {
    return done(std::move(answer));
  } catch (...) {
    thrown = std::current_exception();
  }
  try {
    done(failed(thrown, "to answer it"));
  } catch (...) {
    // The failure could not be delivered either.
  }
}

}  // namespace

struct Embedder::Job {
  EmbedRequest request;
  OnEmbedded done;
  CancelFlag cancelled = std::make_shared<std::atomic<bool>>(false);
  std::shared_ptr<const engine::TextVectors> vectors;
  Ids ids;               // of the texts encoded so far, or the ids that the client sent
  std::size_t next = 0;  // input to compute
  Embeddings answer;
  std::uint64_t claimed = 0, held = 0;  // bytes
  bool ended = false;

  std::uint64_t answer_bytes() const {
    return request.num_inputs() * std::uint64_t{vectors->info().dim} * sizeof(float);
  }
};

Embedder::Embedder(const GatewayOptions& options, StreamTable& streams, TextThreads& texts, Compute& compute)
    : options_(options),
      streams_(streams),
      texts_(texts),
      compute_(compute),
      workspace_(options.load.memory_policy),
      requests_({.name = "max_queued_requests", .what = "requests for vectors", .limit = options.max_queued_requests}),
      bytes_({.name = "max_embed_bytes",
              .what = "bytes of texts and vectors",
              .limit = options.max_embed_bytes,
              .takes_any_alone = true}) {}

void Embedder::loaded(std::shared_ptr<const engine::Encoder> encoder) {
  const std::lock_guard lock(mutex_);
  vectors_ = encoder;
  encoder_ = std::move(encoder);
}

void Embedder::loaded(std::shared_ptr<const engine::TextVectors> hidden_states) {
  const std::lock_guard lock(mutex_);
  vectors_ = std::move(hidden_states);
}

std::shared_ptr<const engine::TextVectors> Embedder::vectors() const {
  const std::lock_guard lock(mutex_);
  return vectors_;
}

std::shared_ptr<const engine::Encoder> Embedder::encoder() const {
  const std::lock_guard lock(mutex_);
  return encoder_;
}

CancelFlag Embedder::embed(EmbedRequest request, OnEmbedded done) {
  const auto job = std::make_shared<Job>();
  job->request = std::move(request);
  job->done = std::move(done);
  if (auto no = admit(*job)) {
    tell(job->done, *std::move(no));
    return job->cancelled;
  }
  if (auto* ids = std::get_if<Ids>(&job->request.inputs)) {
    job->ids = std::exchange(*ids, Ids(ids->size()));
    for (std::size_t i = 0; i < job->ids.size(); ++i) {
      if (auto wrong = check_ids(job->ids[i], i, "token_ids", *job->vectors)) {
        finish(*job, *std::move(wrong));
        return job->cancelled;
      }
    }
    wait_to_compute(job);
  } else {
    encode(job);
  }
  return job->cancelled;
}

// Counts the request against all limits, or returns the refusal.
std::optional<End> Embedder::admit(Job& job) {
  const EmbedRequest& request = job.request;
  const std::lock_guard lock(mutex_);
  ++num_received_;
  const auto no = [&](End end) {
    ++num_ended_[end.outcome];
    return std::optional<End>(std::move(end));
  };
  if (drained_at_) {
    return no(refusal(Outcome::draining, {}, "this server is shutting down and takes no new requests"));
  }
  if (!vectors_) return no(refusal(Outcome::loading, {}, "the model is still loading; try again later"));
  if (request.num_inputs() == 0) return no(refusal(Outcome::invalid_argument, "texts", "there is no text to embed"));
  if (request.num_inputs() > kMaxEmbedInputs) {
    return no(refusal(Outcome::invalid_argument, "texts",
                      std::to_string(request.num_inputs()) + " texts were given; at most " +
                          std::to_string(kMaxEmbedInputs) + " are taken at once",
                      kMaxEmbedInputs));
  }
  if (std::holds_alternative<Texts>(request.inputs) && !vectors_->tokenizer()) {
    return no(refusal(Outcome::unsupported, "texts", "this model has no vocabulary; send token_ids"));
  }
  if (auto full = requests_.try_take(request.tenant)) return no(refused(*std::move(full)));
  job.vectors = vectors_;
  const std::uint64_t held = std::visit([](const auto& inputs) { return bytes_of(inputs); }, request.inputs);
  const std::uint64_t claimed = held + job.answer_bytes();
  auto over = bytes_.try_take(request.tenant, claimed);
  if (!over) {
    job.claimed = claimed;
    over = streams_.take_quota_of(request.tenant.id);
    if (over) bytes_.give_back(request.tenant.id, claimed);
  }
  if (over) {
    requests_.give_back(request.tenant.id);
    return no(refused(*std::move(over)));
  }
  if (num_open_ == 0) last_progress_ = std::chrono::steady_clock::now();
  ++num_open_;
  ++num_unanswered_;
  count_memory(job, held);
  return std::nullopt;
}

// Call with the lock. Sets the bytes that the job holds now; it claims those and the bytes of all its vectors.
void Embedder::count_memory(Job& job, std::uint64_t held) {
  const std::uint64_t inputs = held - std::min<std::uint64_t>(held, job.answer.values.size() * sizeof(float));
  const std::uint64_t claimed = job.ended ? 0 : inputs + job.answer_bytes();
  bytes_.give_back(job.request.tenant.id, job.claimed);
  bytes_.take(job.request.tenant.id, claimed);
  held_bytes_ += held - job.held;
  job.claimed = claimed;
  job.held = held;
}

// --- encoding ---

// Texts of up to kMaxTextInActor bytes together are encoded on the caller's thread, longer ones on the text threads.
void Embedder::encode(const JobPtr& job) {
  if (bytes_of(std::get<Texts>(job->request.inputs)) > kMaxTextInActor) return wait_to_encode(job);
  if (encode_some(*job, kMaxTextInActor)) wait_to_compute(job);
}

void Embedder::wait_to_encode(const JobPtr& job) {
  TextJob text;
  text.tenant = job->request.tenant;
  text.bytes = bytes_of(std::get<Texts>(job->request.inputs));
  text.first_part = next_part(*job);
  text.unwanted = job->cancelled;
  text.work = [this, job] {
    if (!encode_some(*job, kBytesPerTurn) && !job->ended) return next_part(*job);
    return std::uint64_t{0};
  };
  text.ended = [this, job](std::optional<End> end) {
    if (end) return finish(*job, *std::move(end));
    if (!job->ended) wait_to_compute(job);
  };
  if (auto refused = texts_.post(std::move(text))) finish(*job, *std::move(refused));
}

// Bytes of the texts that encode_some() does next; at least 1.
std::uint64_t Embedder::next_part(const Job& job) {
  const auto& texts = std::get<Texts>(job.request.inputs);
  std::uint64_t bytes = 0;
  for (std::size_t i = job.ids.size(); i < texts.size() && bytes < kBytesPerTurn; ++i) bytes += texts[i].size() + 1;
  return std::max<std::uint64_t>(bytes, 1);
}

// Encodes at least one text and stops after max_bytes. Returns whether all texts are encoded; if not, there are more or
// the job has ended.
bool Embedder::encode_some(Job& job, std::size_t max_bytes) {
  std::uint64_t held = 0;
  try {
    auto& texts = std::get<Texts>(job.request.inputs);
    const engine::EncodeOptions options{.add_special = job.request.add_special,
                                        .parse_special = job.request.parse_special,
                                        .interrupt = job.cancelled.get()};
    for (std::size_t bytes = 0; job.ids.size() < texts.size() && (bytes == 0 || bytes < max_bytes);) {
      if (unwanted(job)) {
        finish(job, ended_as(Outcome::cancelled, {}));
        return false;
      }
      const std::size_t i = job.ids.size();
      const std::string text = std::exchange(texts[i], {});  // not needed any more
      bytes += text.size() + 1;
      job.ids.push_back(job.vectors->tokenizer()->encode(text, options));
      job.ids.back().shrink_to_fit();
      if (auto wrong = check_ids(job.ids.back(), i, "texts", *job.vectors)) {
        finish(job, *std::move(wrong));
        return false;
      }
    }
    held = bytes_of(texts) + bytes_of(job.ids);
  } catch (const engine::Interrupted&) {
    finish(job, ended_as(Outcome::cancelled, {}));
    return false;
  } catch (...) {
    finish(job, failed(std::current_exception(), "to encode its text"));
    return false;
  }
  const std::lock_guard lock(mutex_);
  count_memory(job, held);
  last_progress_ = std::chrono::steady_clock::now();
  return job.ids.size() == job.request.num_inputs();
}

// --- computing ---

void Embedder::wait_to_compute(const JobPtr& job) {
  {
    const std::lock_guard lock(mutex_);
    to_compute_.push(job->request.tenant.id, job);
    if (std::exchange(computing_, true)) return;
  }
  compute_.post([this] { compute_waiting(); });
}

// On the compute thread: runs one pass of the current turn, then posts itself again, so that steps waiting there go
// first.
void Embedder::compute_waiting() {
  if (!turn_.job && !begin_turn()) return;
  const JobPtr job = turn_.job;
  std::optional<End> end;
  bool turn_over = true;
  try {
    if (unwanted(*job)) {  // in the middle of a text
      end = ended_as(Outcome::cancelled, {});
    } else {
      turn_over = advance_turn();
      if (turn_over) end_turn(*job);
    }
  } catch (const engine::Stopped&) {  // the server ends
    end = ended_as(Outcome::cancelled, {});
  } catch (...) {
    end = failed(std::current_exception(), "to compute it");
  }
  if (turn_over) turn_ = {};
  const bool complete = turn_over && !end && job->next == job->ids.size();
  bool more = false;
  {
    const std::lock_guard lock(mutex_);
    last_progress_ = std::chrono::steady_clock::now();
    workspace_bytes_ = workspace_.total_bytes();
    reading_bytes_ = turn_.reading ? turn_.reading->bytes() : 0;
    if (turn_over && !end && !complete) to_compute_.push(job->request.tenant.id, job);
    more = computing_ = turn_.job || !to_compute_.empty();
  }
  if (more) compute_.post([this] { compute_waiting(); });
  if (end) return finish(*job, *std::move(end));
  if (!complete) return;
  const std::vector<float>& values = job->answer.values;
  if (std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); })) {
    finish(*job, std::move(job->answer));
  } else {
    finish(*job, ended_as(Outcome::internal, "the model gave numbers that are not finite"));
  }
}

// Begins a turn for the next job that is not cancelled; returns whether there is one.
bool Embedder::begin_turn() {
  for (;;) {
    JobPtr job;
    {
      const std::lock_guard lock(mutex_);
      auto next = to_compute_.pop();
      if (!next) {
        computing_ = false;
        return false;
      }
      job = *std::move(next);
    }
    if (!unwanted(*job)) {
      turn_.job = job;
      return true;
    }
    finish(*job, ended_as(Outcome::cancelled, {}));
  }
}

// Runs one pass of the turn; returns whether all of its texts have been read.
bool Embedder::advance_turn() {
  Job& job = *turn_.job;
  if (!turn_.reading) {
    job.answer.dim = job.vectors->info().dim;
    job.answer.pooling = job.request.pooling.value_or(job.vectors->pooling());
    std::vector<std::span<const TokenId>> texts;
    for (std::size_t i = job.next; i < job.ids.size(); ++i) {
      if (!texts.empty() && turn_.num_tokens + job.ids[i].size() > kTokensPerTurn) break;
      texts.emplace_back(job.ids[i]);
      turn_.num_tokens += job.ids[i].size();
    }
    turn_.num_texts = texts.size();
    turn_.rows.resize(texts.size() * job.answer.dim);
    turn_.reading = job.vectors->read(texts, {job.answer.pooling, job.request.normalise}, turn_.rows.data());
  }
  return turn_.reading->advance(compute_.team(), workspace_, options_.max_step_tokens);
}

// Appends the turn's vectors to the answer and frees the ids of its texts.
void Embedder::end_turn(Job& job) {
  std::vector<float>& values = job.answer.values;
  if (values.empty()) values.reserve(job.ids.size() * job.answer.dim);  // touched as it fills
  values.insert(values.end(), turn_.rows.begin(), turn_.rows.end());
  for (const std::size_t end = job.next + turn_.num_texts; job.next < end; ++job.next) job.ids[job.next] = {};
  job.answer.prompt_tokens += turn_.num_tokens;
  const std::lock_guard lock(mutex_);
  prompt_tokens_ += turn_.num_tokens;
  count_memory(job, bytes_of(job.ids) + values.size() * sizeof(float));
}

// --- the end ---

bool Embedder::unwanted(const Job& job) const {
  if (*job.cancelled) return true;
  const std::lock_guard lock(mutex_);
  return drained_at_ && std::chrono::steady_clock::now() >= *drained_at_;
}

// The job's claims on the limits are given back before `done` is called, so a client may send its next request at once.
void Embedder::finish(Job& job, EmbedAnswer answer) {
  const End* const end = std::get_if<End>(&answer);
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(job.ended, true)) return;
    ++num_ended_[end ? end->outcome : Outcome::eos];
    --num_open_;
    requests_.give_back(job.request.tenant.id);
    count_memory(job, 0);
  }
  streams_.give_back_quota_of(job.request.tenant.id);
  tell(job.done, std::move(answer));
  job.done = nullptr;
  std::vector<std::function<void()>> waiting;
  {
    const std::lock_guard lock(mutex_);
    if (--num_unanswered_ == 0) waiting = std::exchange(waiting_, {});
  }
  for (const auto& done : waiting) done();
}

void Embedder::drain(TimePoint deadline) {
  const std::lock_guard lock(mutex_);
  drained_at_ = std::min(deadline, drained_at_.value_or(deadline));
}

void Embedder::when_empty(std::function<void()> done) {
  {
    const std::lock_guard lock(mutex_);
    if (num_unanswered_ > 0) {
      waiting_.push_back(std::move(done));
      return;
    }
  }
  done();
}

// --- status ---

TimePoint::duration Embedder::without_progress(TimePoint now) const {
  const std::lock_guard lock(mutex_);
  if (num_open_ == 0) return {};
  return now - std::min(now, last_progress_);
}

void Embedder::fill(StatusSnapshot& snapshot) const {
  const std::lock_guard lock(mutex_);
  snapshot.requests_received += num_received_;
  snapshot.requests_running += num_open_;
  snapshot.prompt_tokens += prompt_tokens_;
  for (auto& [name, count] : snapshot.requests_ended) {
    for (const auto& [outcome, ended] : num_ended_)
      if (scheduler::info(outcome).name == name) count += ended;
  }
  if (!encoder_) return;  // take_snapshot() fills these in for other models
  snapshot.numerics_id = encoder_->numerics_id();
  snapshot.kernels = encoder_->kernels().name;
  snapshot.weight_bytes = encoder_->weight_bytes();
}

void Embedder::add_to(KnownMemory& known) const {
  const std::lock_guard lock(mutex_);
  known.streams += held_bytes_;
  known.step_buffers += workspace_bytes_ + reading_bytes_;
  if (!encoder_) return;
  known.weights += encoder_->weight_bytes();
  known.weights_on_heap += encoder_->weight_bytes() - encoder_->matrix_bytes();
  known.vocabulary += encoder_->vocabulary_bytes();
}

}  // namespace troupe::actors
