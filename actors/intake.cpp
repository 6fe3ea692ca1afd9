#include "actors/intake.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <exception>
#include <stdexcept>
#include <utility>

#include "actors/serving/model_cache.h"

namespace troupe::actors {
namespace {

using scheduler::Outcome;

constexpr std::chrono::seconds kTimerReach{1};

// Encodes a text. Returns msg::Encoded, or msg::EncodeFailed if that threw, so that a bad text fails its request and
// not the actor or thread. Throws engine::Interrupted only.
caf::message encode_text(const engine::Tokenizer& tokenizer, const FaultPoints& faults, RequestId request,
                         const Request& body, const std::atomic<bool>* interrupt = nullptr) {
  try {
    if (faults.before_encode) faults.before_encode(body);
    auto ids = std::make_shared<std::vector<TokenId>>(tokenizer.encode(
        std::get<std::string>(body.prompt),
        {.add_special = body.add_special, .parse_special = body.parse_special, .interrupt = interrupt}));
    return caf::make_message(msg::Encoded{request, std::move(ids)});
  } catch (const engine::Interrupted&) {
    throw;
  } catch (...) {
    return caf::make_message(msg::EncodeFailed{request, failure_of(std::current_exception())});
  }
}

}  // namespace

Intake::Intake(caf::actor_config& cfg, const ServerContext& context) : ActorBase(cfg, "intake"), context_(context) {}

caf::behavior Intake::make_behavior() {
  // After a restart: requests that the previous intake had received.
  for (const RequestId request : context_.streams.unassigned()) waiting_.insert(request);
  arm_timer();
  return {
      [this](const msg::Submit& submit) {
        // In any other state the previous intake has handled it, and make_behavior() has found it.
        if (context_.streams.state(submit.request) == RequestState::received) look_at(submit.request);
        arm_timer();
      },
      [this](const msg::Encoded& done) { encoded(done.request, std::move(*done.ids)); },
      [this](const msg::EncodeFailed& failed) { not_encoded(failed.request, failed.why); },
      [this](const msg::Deadline&) { end_overdue(); },
      [this](const msg::Forget& message) { forget(message.request); },
      [this](const msg::ForgetAll&) { forget_all(); },
      [this](const msg::Wire& wire_message) { wire(wire_message.wiring); },
      [](const msg::Crash&) { throw std::runtime_error("a test asked for it"); },
  };
}

void Intake::on_exit() {
  forget_all();
  wiring_ = nullptr;
}

TimePoint Intake::now() { return home_system().clock().now(); }

// CAF's timers cannot be cancelled: one that fires early does nothing, and kTimerReach bounds how long the timer of an
// ended request remains.
void Intake::arm_timer() {
  const auto deadline = context_.streams.next_deadline();
  if (!deadline) return;
  const TimePoint when = std::min(*deadline, now() + kTimerReach);
  if (timer_ && *timer_ <= when) return;
  timer_ = when;
  scheduled_send(this, when, msg::Deadline{});
}

void Intake::end_overdue() {
  if (timer_ && *timer_ <= now()) timer_.reset();
  const bool begun = context_.model.model() != nullptr;
  End late = begun ? End{}
                   : refused({.outcome = Outcome::loading,
                              .message = "the model was still loading when the deadline came",
                              .field = {},
                              .limit = std::nullopt});
  if (begun) late.outcome = Outcome::deadline;
  for (const RequestId request : context_.streams.overdue(now())) end(request, late);
  arm_timer();
}

void Intake::look_at(RequestId request) {
  const auto body = context_.streams.request(request);
  if (!body) return;
  if (context_.model.draining()) {
    return end(request, refused({.outcome = Outcome::draining,
                                 .message = "this server is shutting down and takes no new requests",
                                 .field = {},
                                 .limit = std::nullopt}));
  }
  if (auto wrong = check_shape(*body)) return end(request, *wrong);
  if (const auto error = context_.model.error()) {
    End how;
    how.outcome = Outcome::model_unloaded;
    how.message = "this server has no model to serve with: " + error->message;
    return end(request, how);
  }
  if (auto full = context_.streams.take_place(request)) return end(request, refused(*std::move(full)));
  if (wiring_ && wiring_->model) return admit(request, *body);
  wait_for_model(request);
}

void Intake::wait_for_model(RequestId request) {
  if (auto over = context_.streams.take_quota(request)) return end(request, refused(std::move(*over)));
  waiting_.insert(request);
}

// Drops the request; its text need not be encoded any more.
void Intake::forget(RequestId request) {
  waiting_.erase(request);
  const auto encoding = encoding_.extract(request);
  if (!encoding.empty()) *encoding.mapped() = true;
}

void Intake::forget_all() {
  waiting_.clear();
  for (const auto& [request, unwanted] : std::exchange(encoding_, {})) *unwanted = true;
}

void Intake::admit(RequestId request, const Request& body) {
  if (auto wrong = check_for_model(body, limits_)) return end(request, *wrong);
  if (auto over = context_.streams.admit(request)) return end(request, refused(std::move(*over)));
  if (const auto* ids = std::get_if<std::vector<TokenId>>(&body.prompt)) return encoded(request, *ids);
  encode(request, context_.streams.request(request));
}

void Intake::encode(RequestId request, std::shared_ptr<const Request> body) {
  if (!body) return;
  if (std::get<std::string>(body->prompt).size() <= kMaxTextInActor) {
    const auto& tokenizers = wiring_->tokenizers;
    return send(tokenizers[next_tokenizer_++ % tokenizers.size()], msg::Encode{request, std::move(body)});
  }
  TextJob text;
  text.tenant = body->tenant;
  text.bytes = text.first_part = std::get<std::string>(body->prompt).size();
  encoding_[request] = text.unwanted;
  const auto result = std::make_shared<caf::message>();
  text.work = [result, request, body, faults = context_.faults, tokenizer = wiring_->model->tokenizer(),
               unwanted = text.unwanted] {
    *result = encode_text(*tokenizer, faults, request, *body, unwanted.get());
    return std::uint64_t{0};
  };
  // With an End the job was interrupted or dropped, and its request has ended: nothing is sent.
  text.ended = [result, self = caf::actor{this}](const std::optional<End>& end) {
    if (!end) caf::anon_send(self, std::move(*result));
  };
  if (auto full = context_.texts.post(std::move(text))) end(request, *full);
}

void Intake::encoded(RequestId request, std::vector<TokenId> ids) {
  const auto body = context_.streams.request(request);
  // After a tokenizer's death a text may be encoded twice; the second result is ignored.
  if (!body || context_.streams.state(request) != RequestState::encoding) return;
  encoding_.erase(request);
  context_.streams.clear_faults(request);
  if (auto wrong = check_length(*body, ids.size(), limits_)) return end(request, *wrong);
  if (auto full = context_.streams.retake_place(request, ids.size())) return end(request, refused(*std::move(full)));
  // Without a batcher nothing is sent: the one that the next msg::Wire brings gets all assigned requests.
  for (auto& task : context_.streams.assign(request, std::move(ids))) {
    if (wiring_->batcher) send(wiring_->batcher, msg::Enqueue{std::move(task)});
  }
}

// Encodes the text again, since the failure may have been temporary; after kMaxFaults failures ends the request.
void Intake::not_encoded(RequestId request, const Failure& why) {
  if (context_.streams.state(request) != RequestState::encoding) return;
  const std::uint32_t num_faults = context_.streams.record_fault(request);
  spdlog::error("request {}: its text could not be encoded ({} of at most {} times): {}", request, num_faults,
                kMaxFaults, why.what);
  if (num_faults >= kMaxFaults) return end(request, given_up(why, "to encode its text"));
  encode(request, context_.streams.request(request));
}

void Intake::wire(const std::shared_ptr<const Wiring>& wiring) {
  const bool has_new_batcher = wiring->batcher && (!wiring_ || wiring_->batcher != wiring->batcher);
  const bool has_new_tokenizers = wiring_ && wiring_->model && wiring_->tokenizers != wiring->tokenizers;
  wiring_ = wiring;
  if (wiring_->model) {
    const engine::ModelInfo& info = wiring_->model->info();
    limits_ = {.model = context_.model.name(),
               .vocab_size = info.vocab_size,
               .has_vocabulary = wiring_->model->tokenizer() != nullptr,
               .capacity = capacity_of(*wiring_->model)};
  }
  if (has_new_batcher) {
    // To a restarted intake every batcher is new; one that ran before may have requests that have ended since.
    send(wiring_->batcher, msg::ForgetAll{});
    for (auto& task : context_.streams.resume()) send(wiring_->batcher, msg::Enqueue{std::move(task)});
  }
  if (!wiring_->model && !context_.model.error()) return;
  for (const RequestId request : std::exchange(waiting_, {})) look_at(request);
  if (!has_new_tokenizers || wiring_->tokenizers.empty()) return;
  // Sends all unfinished texts again, because those of a dead tokenizer are lost. Texts that another tokenizer still
  // has are encoded twice, and the second result is ignored.
  for (const RequestId request : context_.streams.unassigned()) {
    if (context_.streams.state(request) == RequestState::encoding) encode(request, context_.streams.request(request));
  }
}

void Intake::end(RequestId request, const End& how) {
  if (!context_.streams.end(request, how, now())) return;
  forget(request);
  if (wiring_ && wiring_->batcher) send(wiring_->batcher, msg::Forget{request});
}

TextEncoder::TextEncoder(caf::actor_config& cfg, std::shared_ptr<const engine::Tokenizer> tokenizer, FaultPoints faults)
    : ActorBase(cfg, "tokenizer"), tokenizer_(std::move(tokenizer)), faults_(std::move(faults)) {}

caf::behavior TextEncoder::make_behavior() {
  return {
      [this](const msg::Encode& encode) {
        send(caf::actor_cast<caf::actor>(current_sender()),
             encode_text(*tokenizer_, faults_, encode.request, *encode.body));
      },
      [](const msg::Crash&) { throw std::runtime_error("a test asked for it"); },
  };
}

}  // namespace troupe::actors
