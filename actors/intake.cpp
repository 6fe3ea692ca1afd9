#include "actors/intake.h"

#include <spdlog/spdlog.h>

#include <stdexcept>
#include <utility>

namespace troupe::actors {
namespace {

using scheduler::Outcome;

std::vector<TokenId> encode_text(const engine::Tokenizer& tokenizer, const Request& request) {
  return tokenizer.encode(std::get<std::string>(request.prompt),
                          {.add_special = request.add_special, .parse_special = request.parse_special});
}

}  // namespace

Intake::Intake(caf::actor_config& cfg, const House& house) : ActorBase(cfg, "intake"), house_(house) {}

caf::behavior Intake::make_behavior() {
  // What a predecessor left: it was told, but cannot act any more.
  for (const RequestId request : house_.streams.live()) arm_deadline(request);
  for (const RequestId request : house_.streams.unassigned()) waiting_.insert(request);
  return {
      [this](const msg::Submit& submit) {
        arm_deadline(submit.request);
        look_at(submit.request);
      },
      [this](const msg::Encoded& done) { encoded(done.request, std::move(*done.ids)); },
      [this](const msg::Deadline& deadline) {
        const bool begun = house_.model.model() != nullptr;
        End late = begun ? End{}
                         : refused({.outcome = Outcome::loading,
                                    .message = "the model was still loading when the deadline came",
                                    .field = {},
                                    .limit = std::nullopt});
        if (begun) late.outcome = Outcome::deadline;
        end(deadline.request, std::move(late));
      },
      [this](const msg::Forget& forget) { waiting_.erase(forget.request); },
      [this](const msg::Wire& wire_message) { wire(wire_message.wiring); },
      [](const msg::Crash&) { throw std::runtime_error("a test asked for it"); },
  };
}

void Intake::on_exit() { wiring_ = nullptr; }

TimePoint Intake::now() { return home_system().clock().now(); }

void Intake::arm_deadline(RequestId request) {
  if (const auto deadline = house_.streams.deadline(request)) {
    scheduled_send(this, *deadline, msg::Deadline{request});
  }
}

void Intake::look_at(RequestId request) {
  const auto body = house_.streams.request(request);
  if (!body) return;
  if (house_.model.draining()) {
    return end(request, refused({.outcome = Outcome::draining,
                                 .message = "this server is shutting down and takes no new requests",
                                 .field = {},
                                 .limit = std::nullopt}));
  }
  if (auto wrong = check_shape(*body)) return end(request, std::move(*wrong));
  if (const auto error = house_.model.error()) {
    End how;
    how.outcome = Outcome::model_unloaded;
    how.message = "this server has no model to serve with: " + error->message;
    return end(request, std::move(how));
  }
  if (wiring_ && wiring_->model) return admit(request, *body);
  if (waiting_.size() >= house_.options.max_queued_requests) {
    return end(request, refused({.outcome = Outcome::queue_full,
                                 .message = "the model is still loading and " + std::to_string(waiting_.size()) +
                                            " requests wait for it already; try again later",
                                 .field = {},
                                 .limit = house_.options.max_queued_requests}));
  }
  waiting_.insert(request);
}

void Intake::admit(RequestId request, const Request& body) {
  if (auto wrong = check_for_model(body, limits_)) return end(request, std::move(*wrong));
  const std::uint64_t queued = house_.streams.num_queued();
  if (queued >= house_.options.max_queued_requests) {
    return end(request, refused({.outcome = Outcome::queue_full,
                                 .message = std::to_string(queued) + " requests wait already, of at most " +
                                            std::to_string(house_.options.max_queued_requests) + "; try again later",
                                 .field = {},
                                 .limit = house_.options.max_queued_requests}));
  }
  if (auto over = house_.streams.admit(request)) return end(request, refused(std::move(*over)));
  if (const auto* ids = std::get_if<std::vector<TokenId>>(&body.prompt)) return encoded(request, *ids);
  encode(request, house_.streams.request(request));
}

void Intake::encode(RequestId request, std::shared_ptr<const Request> body) {
  if (!body) return;
  if (std::get<std::string>(body->prompt).size() <= kMaxTextInActor) {
    const auto& tokenizers = wiring_->tokenizers;
    return send(tokenizers[next_tokenizer_++ % tokenizers.size()], msg::Encode{request, std::move(body)});
  }
  const bool taken = house_.texts.post([self = caf::actor{this}, request, body,
                                        tokenizer = wiring_->model->tokenizer()] {
    caf::anon_send(self, msg::Encoded{request, std::make_shared<std::vector<TokenId>>(encode_text(*tokenizer, *body))});
  });
  if (taken) return;
  end(request,
      refused({.outcome = Outcome::queue_full,
               .message = std::to_string(kMaxQueuedTexts) + " long texts wait to be encoded already; try again later",
               .field = {},
               .limit = kMaxQueuedTexts}));
}

void Intake::encoded(RequestId request, std::vector<TokenId> ids) {
  const auto body = house_.streams.request(request);
  if (!body) return;
  if (auto wrong = check_length(*body, ids.size(), limits_)) return end(request, std::move(*wrong));
  const auto task = house_.streams.assign(request, std::move(ids));
  // Without a batcher the next wiring brings one, which then gets all that is assigned.
  if (task && wiring_->batcher) send(wiring_->batcher, msg::Enqueue{task});
}

void Intake::wire(const std::shared_ptr<const Wiring>& wiring) {
  const bool has_new_batcher = wiring->batcher && (!wiring_ || wiring_->batcher != wiring->batcher);
  wiring_ = wiring;
  if (wiring_->model) {
    const engine::ModelInfo& info = wiring_->model->info();
    limits_ = {.model = house_.model.name(),
               .vocab_size = info.vocab_size,
               .has_vocabulary = wiring_->model->tokenizer() != nullptr,
               .capacity = {.context = info.context, .num_blocks = wiring_->model->arena()->num_blocks()}};
  }
  if (has_new_batcher) {
    for (auto& task : house_.streams.resume()) send(wiring_->batcher, msg::Enqueue{std::move(task)});
  }
  if (!wiring_->model && !house_.model.error()) return;
  for (const RequestId request : std::exchange(waiting_, {})) look_at(request);
}

void Intake::end(RequestId request, End how) {
  if (!house_.streams.end(request, std::move(how), now())) return;
  waiting_.erase(request);
  if (wiring_ && wiring_->batcher) send(wiring_->batcher, msg::Forget{request});
}

TextEncoder::TextEncoder(caf::actor_config& cfg, std::shared_ptr<const engine::Tokenizer> tokenizer)
    : ActorBase(cfg, "tokenizer"), tokenizer_(std::move(tokenizer)) {}

caf::behavior TextEncoder::make_behavior() {
  return {
      [this](const msg::Encode& encode) {
        auto ids = std::make_shared<std::vector<TokenId>>(encode_text(*tokenizer_, *encode.body));
        send(caf::actor_cast<caf::actor>(current_sender()), msg::Encoded{encode.request, std::move(ids)});
      },
  };
}

}  // namespace troupe::actors
