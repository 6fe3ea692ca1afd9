#include "actors/unit/intake.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <exception>

#include "actors/requests/answer_form.h"
#include "actors/serving/encoding.h"
#include "actors/serving/model_cache.h"
#include "config/printable.h"
#include "engine/tokenizers/reasoning_limit.h"

namespace troupe::actors {
namespace {

using scheduler::Outcome;

constexpr std::chrono::seconds kTimerReach{1};

// Encodes the next part of a request's texts. Returns whether all are encoded: then `result` is msg::Encoded, or
// msg::NotRendered if its conversation was refused. It is msg::EncodeFailed if that threw, so that a bad text fails its
// request and not the actor or thread. Throws engine::Interrupted only.
bool encode_part(Encoding& encoding, const FaultPoints& faults, RequestId request, const Request& body,
                 caf::message& result, const std::atomic<bool>* interrupt = nullptr) {
  try {
    if (faults.before_encode) faults.before_encode(body);
    encoding.encode_some(interrupt);
    if (encoding.next_part() > 0) return false;
    if (const auto& why = encoding.refusal())
      result = caf::make_message(msg::NotRendered{request, encoding.refused_field(), why->message});
    else
      result = caf::make_message(msg::Encoded{request, std::make_shared<EmbedIds>(encoding.take_ids())});
  } catch (const engine::Interrupted&) {
    throw;
  } catch (...) {
    result = caf::make_message(msg::EncodeFailed{request, failure_of(std::current_exception())});
  }
  return true;
}

}  // namespace

Intake::Intake(caf::actor_config& cfg, UnitId unit, const ModelState& model, StreamTable& streams, TextThreads& texts,
               FaultPoints faults)
    : ActorBase(cfg, "intake"),
      unit_(unit),
      model_(model),
      streams_(streams),
      texts_(texts),
      faults_(std::move(faults)) {}

caf::behavior Intake::make_behavior() {
  arm_timer();
  return {
      [this](const msg::Submit& submit) {
        // In any other state wire() has handled it already.
        if (streams_.state(submit.request) == RequestState::received) try_to_admit(submit.request);
        arm_timer();
      },
      [this](const msg::Encoded& done) { encoded(done.request, done.ids); },
      [this](const msg::NotRendered& refused) { not_rendered(refused.request, refused.field, refused.why); },
      [this](const msg::NotEncoded& dropped) {
        if (streams_.state(dropped.request) == RequestState::encoding) end(dropped.request, dropped.how);
      },
      [this](const msg::EncodeFailed& failed) { not_encoded(failed.request, failed.why); },
      [this](const msg::SessionLoaded& done) { session_loaded(done.request, *done.tokens); },
      [this](const msg::Deadline&) { end_overdue(); },
      [this](const msg::Forget& message) { forget(message.request); },
      [this](const msg::ForgetAll&) { forget_all(); },
      [this](const msg::Wire& wire_message) { wire(wire_message.wiring); },
      msg::throw_for_test,
  };
}

void Intake::on_exit() {
  forget_all();
  wiring_ = nullptr;
}

// CAF's timers cannot be cancelled: one that fires early does nothing, and kTimerReach bounds how long the timer of an
// ended request remains.
void Intake::arm_timer() {
  const auto deadline = streams_.next_deadline(unit_);
  if (!deadline) return;
  const TimePoint when = std::min(*deadline, now() + kTimerReach);
  if (timer_ && *timer_ <= when) return;
  timer_ = when;
  scheduled_send(this, when, msg::Deadline{});
}

void Intake::end_overdue() {
  if (timer_ && *timer_ <= now()) timer_.reset();
  const End late = model_.model() ? ended_as(Outcome::deadline, {})
                                  : refusal(Outcome::loading, {}, "the model was still loading when the deadline came");
  for (const RequestId request : streams_.overdue(unit_, now())) end(request, late);
  arm_timer();
}

void Intake::try_to_admit(RequestId request) {
  const auto body = streams_.request(request);
  if (!body || streams_.unit(request) != unit_) return;  // it has ended, or was passed on to another unit
  if (model_.draining()) {
    return end(request, refused(scheduler::server_drains()));
  }
  if (model_.unloading()) return end(request, being_unloaded(model_.name()));
  if (const auto error = model_.error()) return end(request, not_served(model_.name(), *error));
  if (wiring_ && wiring_->model) return admit(request, *body);
  if (auto over = streams_.take_quota(request, now())) return end(request, refused(std::move(*over)));
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
  if (body.embed) {
    if (auto full = check_embed_bytes(request, body, 0)) return end(request, *full);
  }
  if (auto over = streams_.admit(request, now())) return end(request, refused(std::move(*over)));
  if (needs_encoding(body)) return encode(request, streams_.request(request));
  if (!body.embed) return load_session(request, body, std::get<std::vector<TokenId>>(body.prompt));
  auto own = streams_.request(request);
  if (!own) return;
  const EmbedIds* const ids = &std::get<EmbedIds>(own->embed->texts);
  if (own->embed->truncate.value_or(false)) {
    auto shorter = std::make_shared<EmbedIds>(*ids);
    const std::uint32_t cut = cut_inputs(*own, *shorter, limits_, std::nullopt);
    if (auto wrong = check_lengths(*own, *shorter, limits_)) return end(request, *wrong);
    return assign(request, std::move(shorter), cut);
  }
  assign(request, std::shared_ptr<const EmbedIds>(std::move(own), ids), 0);  // the request lives as long
}

// Counts what the request, the ids of its texts and all its vectors take.
std::optional<End> Intake::check_embed_bytes(RequestId request, const Request& body, std::uint64_t id_bytes) {
  const std::uint64_t vectors = body.embed->count() * std::uint64_t{wiring_->model->info().dim} * sizeof(float);
  auto full = streams_.take_embed_bytes(request, input_bytes(body) + id_bytes + vectors, now());
  return full ? std::optional(refused(*std::move(full))) : std::nullopt;
}

void Intake::encode(RequestId request, std::shared_ptr<const Request> body) {
  if (!body) return;
  const bool is_chat = is_conversation(*body);
  if (is_chat && model_.draining()) return end(request, refused(scheduler::server_drains()));
  if (is_chat && model_.unloading()) return end(request, being_unloaded(model_.name()));
  const auto form = form_of(*body);
  const std::uint64_t bytes = input_bytes(*body) + (form ? bytes_of(form->constraint()) : 0);
  const bool is_short = bytes <= kMaxTextInActor;
  if (is_short && !is_chat && !form) {
    const auto& tokenizers = wiring_->tokenizers;
    return send(tokenizers[next_tokenizer_++ % tokenizers.size()], msg::Encode{request, std::move(body)});
  }
  const auto encoding = std::make_shared<Encoding>(body, wiring_->model);
  TextJob text;
  text.tenant = body->tenant;
  text.bytes = bytes;
  text.first_part = encoding->next_part();
  text.renders = is_chat ? wiring_->model.get() : nullptr;
  text.compiles = form != nullptr;
  text.is_counted = !is_short;  // short ones are bounded by the limits of requests that wait
  encoding_[request] = text.unwanted;
  const auto result = std::make_shared<caf::message>();
  text.work = [result, request, body, encoding, faults = faults_, unwanted = text.unwanted] {
    return encode_part(*encoding, faults, request, *body, *result, unwanted.get()) ? 0 : encoding->next_part();
  };
  // With an End the job was interrupted or dropped: its request has ended, or ends so.
  text.ended = [result, request, self = caf::actor{this}](const std::optional<End>& end) {
    caf::anon_send(self, end ? caf::make_message(msg::NotEncoded{request, *end}) : std::move(*result));
  };
  if (auto full = texts_.post(std::move(text))) end(request, *full);
}

void Intake::encoded(RequestId request, std::shared_ptr<EmbedIds> ids) {
  const auto body = streams_.request(request);
  // After a tokenizer's death a text may be encoded twice; the second result is ignored.
  if (!body || streams_.state(request) != RequestState::encoding) return;
  encoding_.erase(request);
  streams_.clear_faults(request);
  if (const auto form = form_of(*body))
    if (const std::string note = form->note(); !note.empty())
      spdlog::warn("request {}: {}", request, Printable(note, note.size()).text());
  if (!body->embed) return load_session(request, *body, std::move(ids->front()));
  const auto end_token = body->add_special ? wiring_->model->tokenizer()->eos() : std::nullopt;
  const std::uint32_t cut = cut_inputs(*body, *ids, limits_, end_token);
  if (auto wrong = check_lengths(*body, *ids, limits_)) return end(request, *wrong);
  std::uint64_t bytes = 0;
  for (const auto& each : *ids) bytes += each.size() * sizeof(TokenId);
  if (auto full = check_embed_bytes(request, *body, bytes)) return end(request, *full);
  assign(request, std::move(ids), cut);
}

// A request that continues a session has its tokens before its own.
void Intake::load_session(RequestId request, const Request& body, std::vector<TokenId> prompt) {
  if (!body.turn) return assign(request, body, std::move(prompt));
  const ServedModel& model = *wiring_->model;
  body.turn->load({.model = model.language_model(), .template_digest = model.template_digest()},
                  [self = caf::actor{this}, request, prompt = std::move(prompt)](SessionTurn::Loaded loaded) {
                    if (auto* tokens = std::get_if<std::vector<TokenId>>(&loaded))
                      tokens->insert(tokens->end(), prompt.begin(), prompt.end());
                    auto shared = std::make_shared<SessionTurn::Loaded>(std::move(loaded));
                    caf::anon_send(self, msg::SessionLoaded{request, std::move(shared)});
                  });
}

void Intake::session_loaded(RequestId request, SessionTurn::Loaded& loaded) {
  const auto body = streams_.request(request);
  // It may be loaded twice, as a text may be encoded twice; the second result is ignored.
  if (!body || streams_.state(request) != RequestState::encoding) return;
  if (auto* refusal = std::get_if<scheduler::Refusal>(&loaded)) return end(request, refused(std::move(*refusal)));
  auto& tokens = std::get<std::vector<TokenId>>(loaded);
  body->turn->set_prompt(tokens);
  assign(request, *body, std::move(tokens));
}

void Intake::assign(RequestId request, const Request& body, std::vector<TokenId> prompt) {
  if (auto wrong = check_length(body, prompt.size(), limits_)) return end(request, *wrong);
  if (auto full = streams_.retake_queue_room(request, prompt.size(), now()))
    return end(request, refused(*std::move(full)));
  const auto* const chat = std::get_if<ChatPrompt>(&body.prompt);
  const bool in_reasoning = chat != nullptr && begins_in_reasoning(*chat, *wiring_->model, prompt);
  const ServedModel& model = *wiring_->model;
  const auto form = form_of(body);
  if (in_reasoning && form && form->least_tokens() > 0 &&
      !engine::ends_with_opening(*model.tokenizer(), model.reasoning(), prompt))
    return end(request,
               refused(scheduler::invalid("continue_final_message",
                                          "the message to continue leaves its reasoning open, and the answer "
                                          "has to have a form; close the reasoning, or leave out one of them")));
  ServedBy served_by;
  if (body.wants_proof)
    served_by = {.model = limits_.model,
                 .numerics_id = model.numerics_id(),
                 .begins_with = beginning_of(body, model.tool_format()),
                 .shown_ids = shown_ids_of(body, model.tool_format(), model.tokenizer().get()),
                 .form = proved_form(form, model.tool_format())};
  if (body.turn) served_by.recomputed_from = body.turn->recomputed_from();
  // Without a batcher nothing is sent: the one that the next msg::Wire brings gets all assigned requests.
  for (auto& task : streams_.assign(request, std::move(prompt), served_by,
                                    {.in_reasoning = in_reasoning, .model = answering_model_})) {
    if (wiring_->batcher) send(wiring_->batcher, msg::Enqueue{std::move(task)});
  }
}

void Intake::assign(RequestId request, std::shared_ptr<const EmbedIds> inputs, std::uint32_t num_cut) {
  std::uint64_t tokens = 0;
  for (const auto& ids : *inputs) tokens += ids.size();
  if (auto full = streams_.retake_queue_room(request, tokens, now())) return end(request, refused(*std::move(full)));
  auto task = streams_.assign_inputs(request, std::move(inputs), num_cut, {.model = answering_model_});
  if (task && wiring_->embedder) send(wiring_->embedder, msg::Enqueue{std::move(task)});
}

void Intake::not_rendered(RequestId request, const std::string& field, const std::string& why) {
  if (streams_.state(request) != RequestState::encoding) return;
  end(request, refusal(Outcome::invalid_argument, field, why));
}

// Encodes the text again, since the failure may have been temporary; after kMaxFaults failures ends the request.
void Intake::not_encoded(RequestId request, const Failure& why) {
  if (streams_.state(request) != RequestState::encoding) return;
  const std::uint32_t num_faults = streams_.record_fault(request);
  spdlog::error("request {}: its text could not be encoded ({} of at most {} times): {}", request, num_faults,
                kMaxFaults, why.what);
  if (num_faults >= kMaxFaults) return end(request, given_up(why, "to encode its text"));
  encode(request, streams_.request(request));
}

void Intake::wire(const std::shared_ptr<const Wiring>& wiring) {
  const std::shared_ptr<const Wiring> old = std::exchange(wiring_, wiring);
  // Requests that a previous intake had received, also those sent to it when it was dead.
  if (!old) {
    for (const RequestId request : streams_.unassigned(unit_)) waiting_.insert(request);
  }
  if (const auto& model = wiring_->model) {
    const auto& language_model = model->language_model();
    answering_model_ = std::make_shared<const AnsweringModel>(model->answering_as(model_.name()));
    limits_ = {.model = model_.name(),
               .vocab_size = model->info().vocab_size,
               .has_vocabulary = model->tokenizer() != nullptr,
               .chat_problem = model->chat_template() ? "" : model->chat_problem(),
               .has_draft_model = model->draft_model() != nullptr,
               .generates = language_model != nullptr,
               .max_embed_tokens = model->vectors().max_tokens(),
               .capacity = language_model ? capacity_of(*language_model) : scheduler::Capacity{}};
  }
  // To a restarted intake every batcher is new; one that ran before may have requests that have ended since.
  for (const WorkKind kind : {WorkKind::generate, WorkKind::embed}) {
    const caf::actor& worker = wiring_->worker_for(kind);
    if (!worker || (old && old->worker_for(kind) == worker)) continue;
    send(worker, msg::ForgetAll{});
    for (auto& task : streams_.resume(unit_, kind)) send(worker, msg::Enqueue{std::move(task)});
  }
  if (!wiring_->model && !model_.error()) return;
  for (const RequestId request : std::exchange(waiting_, {})) try_to_admit(request);
  const bool has_new_tokenizers = old && old->model && old->tokenizers != wiring_->tokenizers;
  if (!has_new_tokenizers || wiring_->tokenizers.empty()) return;
  // Sends all unfinished texts again, because those of a dead tokenizer are lost. Texts that another tokenizer still
  // has are encoded twice, and the second result is ignored.
  for (const RequestId request : streams_.unassigned(unit_)) {
    if (streams_.state(request) == RequestState::encoding) encode(request, streams_.request(request));
  }
}

void Intake::end(RequestId request, const End& how) {
  const auto body = streams_.request(request);
  if (!body || !streams_.end(request, how, now())) return;
  forget(request);
  if (!wiring_) return;
  if (const caf::actor& worker = wiring_->worker_for(body->kind())) send(worker, msg::Forget{request});
}

TextEncoder::TextEncoder(caf::actor_config& cfg, std::shared_ptr<const ServedModel> model, FaultPoints faults)
    : ActorBase(cfg, "tokenizer"), model_(std::move(model)), faults_(std::move(faults)) {}

caf::behavior TextEncoder::make_behavior() {
  return {
      [this](const msg::Encode& encode) {
        Encoding encoding(encode.body, model_);
        caf::message result;
        while (!encode_part(encoding, faults_, encode.request, *encode.body, result)) continue;
        send(sender(), std::move(result));
      },
      msg::throw_for_test,
  };
}

}  // namespace troupe::actors
