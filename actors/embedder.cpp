#include "actors/embedder.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <span>
#include <utility>

#include "actors/request_check.h"

namespace troupe::actors {
namespace {

using scheduler::Outcome;

// Of one turn: some milliseconds of a small encoder. A text is not cut.
constexpr std::size_t kTokensPerTurn = 1024;

End refusal(Outcome outcome, std::string field, std::string message,
            std::optional<std::uint64_t> limit = std::nullopt) {
  return refused({.outcome = outcome, .message = std::move(message), .field = std::move(field), .limit = limit});
}

End failed(const std::exception_ptr& thrown, const std::string& doing) {
  const Failure why = failure_of(thrown);
  return ended_as(why.out_of_memory ? Outcome::out_of_memory : Outcome::internal,
                  why.out_of_memory ? "there was no memory " + doing : "it could not be worked on: " + why.what);
}

// Whether these ids can go through the model. `field`: what the client calls the inputs.
std::optional<End> check_ids(const std::vector<TokenId>& ids, std::size_t input, const std::string& field,
                             const engine::TextVectors& vectors) {
  const engine::ModelInfo& info = vectors.info();
  const std::uint32_t max_tokens = vectors.max_tokens();
  const std::string name = field + "[" + std::to_string(input) + "]";
  if (ids.empty()) return refusal(Outcome::invalid_argument, field, name + " has no tokens");
  if (ids.size() > max_tokens) {
    return refusal(
        Outcome::too_long, field,
        name + " has " + std::to_string(ids.size()) + " tokens; this model reads at most " + std::to_string(max_tokens),
        max_tokens);
  }
  for (const TokenId id : ids) {
    if (id >= 0 && static_cast<std::uint32_t>(id) < info.vocab_size) continue;
    return refusal(Outcome::invalid_argument, field,
                   name + " has the id " + std::to_string(id) + "; this model's vocabulary has the ids 0 to " +
                       std::to_string(info.vocab_size - 1),
                   info.vocab_size);
  }
  return std::nullopt;
}

}  // namespace

struct Embedder::Job {
  EmbedRequest request;
  OnEmbedded done;
  CancelFlag cancelled;
  std::shared_ptr<const engine::TextVectors> vectors;
  std::vector<std::vector<TokenId>> ids;
  std::size_t next = 0;  // input
  Embeddings answer;
};

Embedder::Embedder(const GatewayOptions& options, ThreadPool& texts, Compute& compute)
    : options_(options), texts_(texts), compute_(compute), workspace_(options.load.memory_policy) {}

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
  auto job = std::make_shared<Job>();
  job->cancelled = std::make_shared<std::atomic<bool>>(false);
  const CancelFlag flag = job->cancelled;
  if (auto refused = admit(request, job->vectors)) {
    done(*std::move(refused));
    return flag;
  }
  job->request = std::move(request);
  job->done = std::move(done);
  if (auto* ids = std::get_if<std::vector<std::vector<TokenId>>>(&job->request.inputs)) {
    job->ids = std::move(*ids);
    for (std::size_t i = 0; i < job->ids.size(); ++i) {
      if (auto wrong = check_ids(job->ids[i], i, "token_ids", *job->vectors)) {
        finish(*job, *std::move(wrong));
        return flag;
      }
    }
    compute_.post([this, job] { take_turn(job); });
  } else if (!texts_.post([this, job] { read_texts(job); })) {
    finish(*job, queue_full(std::to_string(options_.max_queued_texts) + " texts wait to be encoded already",
                            "max_queued_texts", options_.max_queued_texts));
  }
  return flag;
}

// Enters the request, or says why not.
std::optional<End> Embedder::admit(const EmbedRequest& request, std::shared_ptr<const engine::TextVectors>& vectors) {
  const std::lock_guard lock(mutex_);
  const auto no = [&](End end) {
    ++num_received_;
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
  if (std::holds_alternative<std::vector<std::string>>(request.inputs) && !vectors_->tokenizer()) {
    return no(refusal(Outcome::unsupported, "texts", "this model has no vocabulary; send token_ids"));
  }
  if (num_open_ >= options_.max_queued_requests) {
    return no(queue_full(std::to_string(num_open_) + " requests wait already", "max_queued_requests",
                         options_.max_queued_requests));
  }
  const auto mine = open_of_.find(request.uid);
  if (mine != open_of_.end() && mine->second >= options_.max_requests_per_uid) {
    return no(refusal(Outcome::quota, "max_requests_per_user",
                      std::to_string(mine->second) + " requests of this user are under way, at most " +
                          std::to_string(options_.max_requests_per_uid) + " may be; wait for one to end",
                      options_.max_requests_per_uid));
  }
  ++num_received_;
  ++num_open_;
  ++open_of_[request.uid];
  vectors = vectors_;
  return std::nullopt;
}

void Embedder::read_texts(const std::shared_ptr<Job>& job) {
  try {
    const auto& texts = std::get<std::vector<std::string>>(job->request.inputs);
    const engine::EncodeOptions options{.add_special = job->request.add_special,
                                        .parse_special = job->request.parse_special};
    for (std::size_t i = 0; i < texts.size(); ++i) {
      if (unwanted(*job)) return finish(*job, ended_as(Outcome::cancelled, {}));
      job->ids.push_back(job->vectors->tokenizer()->encode(texts[i], options));
      if (auto wrong = check_ids(job->ids.back(), i, "texts", *job->vectors)) return finish(*job, *std::move(wrong));
    }
  } catch (...) {
    return finish(*job, failed(std::current_exception(), "to encode its text"));
  }
  compute_.post([this, job] { take_turn(job); });
}

void Embedder::take_turn(const std::shared_ptr<Job>& job) {
  bool ended = true;
  try {
    ended = encode_some(*job);
  } catch (...) {
    finish(*job, failed(std::current_exception(), "to compute it"));
  }
  if (!ended) compute_.post([this, job] { take_turn(job); });
}

bool Embedder::encode_some(Job& job) {
  if (unwanted(job)) {
    finish(job, ended_as(Outcome::cancelled, {}));
    return true;
  }
  const std::size_t dim = job.vectors->info().dim;
  Embeddings& answer = job.answer;
  if (job.next == 0) {
    answer.dim = static_cast<std::uint32_t>(dim);
    answer.pooling = job.request.pooling.value_or(job.vectors->pooling());
    answer.values.resize(job.ids.size() * dim);
  }
  std::vector<std::span<const TokenId>> texts;
  std::size_t tokens = 0;
  for (std::size_t i = job.next; i < job.ids.size(); ++i) {
    if (!texts.empty() && tokens + job.ids[i].size() > kTokensPerTurn) break;
    texts.emplace_back(job.ids[i]);
    tokens += job.ids[i].size();
  }
  float* const rows = answer.values.data() + job.next * dim;
  job.vectors->encode(compute_.team(), texts, {answer.pooling, job.request.normalise}, workspace_, rows);
  answer.prompt_tokens += tokens;
  job.next += texts.size();
  {
    const std::lock_guard lock(mutex_);
    prompt_tokens_ += tokens;
    workspace_bytes_ = workspace_.total_bytes();
  }
  if (!std::all_of(rows, rows + texts.size() * dim, [](float x) { return std::isfinite(x); })) {
    finish(job, ended_as(Outcome::internal, "the model gave numbers that are not finite"));
    return true;
  }
  if (job.next < job.ids.size()) return false;
  finish(job, std::move(answer));
  return true;
}

bool Embedder::unwanted(const Job& job) const {
  if (*job.cancelled) return true;
  const std::lock_guard lock(mutex_);
  return drained_at_ && std::chrono::steady_clock::now() >= *drained_at_;
}

void Embedder::finish(Job& job, EmbedAnswer answer) {
  const End* const end = std::get_if<End>(&answer);
  const Outcome outcome = end ? end->outcome : Outcome::eos;
  std::exchange(job.done, nullptr)(std::move(answer));
  std::vector<std::function<void()>> waiting;
  {
    const std::lock_guard lock(mutex_);
    ++num_ended_[outcome];
    --num_open_;
    const auto mine = open_of_.find(job.request.uid);
    if (--mine->second == 0) open_of_.erase(mine);
    if (num_open_ == 0) waiting = std::exchange(waiting_, {});
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
    if (num_open_ > 0) {
      waiting_.push_back(std::move(done));
      return;
    }
  }
  done();
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
  if (encoder_) {  // of another model the rest of the house tells
    snapshot.numerics_id = encoder_->numerics_id();
    snapshot.kernels = encoder_->kernels().name;
    snapshot.weight_bytes = encoder_->weight_bytes();
  }
  for (MemoryUse& use : snapshot.memory) {
    const std::uint64_t bytes = use.kind == "weights" && encoder_ ? encoder_->matrix_bytes()
                                : use.kind == "step_buffers"      ? workspace_bytes_
                                                                  : 0;
    use.bytes += bytes;
    use.peak_bytes = std::max(use.peak_bytes, use.bytes);
  }
}

}  // namespace troupe::actors
