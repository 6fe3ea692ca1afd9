// A connection's handlers, one for each kind of frame.
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <random>

#include "actors/requests/request_shape.h"
#include "actors/visible_models.h"
#include "config/printable.h"
#include "config/utf8.h"
#include "ipc/frames/frame_connection.h"
#include "ipc/frames/status_frame.h"
#include "ipc/frames/usage_frame.h"

namespace troupe::ipc {
namespace {

using scheduler::Outcome;

constexpr std::uint32_t kProtocol = 1;
constexpr std::size_t kMaxClientNameBytes = 64;

// The outcome in a frame: eos if the frame is an answer.
Outcome outcome_of(const v1::ServerFrame& frame) {
  std::uint32_t number = static_cast<std::uint32_t>(Outcome::eos);
  if (frame.has_done()) number = frame.done().reason();
  if (frame.has_refused()) number = frame.refused().code();
  if (frame.has_failed()) number = frame.failed().code();
  return scheduler::outcome_from_number(number).value_or(Outcome::internal);
}

// The frame as an answer, or a refusal if it is larger than max_frame_bytes.
EncodedAnswer to_answer(std::uint64_t stream, const v1::ServerFrame& frame, std::uint64_t max_frame_bytes) {
  const std::size_t size = frame.ByteSizeLong();
  if (size <= max_frame_bytes) return {to_bytes(frame), outcome_of(frame)};
  const Refusal refusal{
      .outcome = Outcome::too_long,
      .message = fmt::format("the answer has {} bytes, above the limit of {} (max_frame_bytes); ask in smaller pieces",
                             size, max_frame_bytes),
      .field = "max_frame_bytes",
      .limit = max_frame_bytes};
  return {to_bytes(to_frame(stream, refusal)), refusal.outcome};
}

// Pushes the answer to one request to its connection's outbox, from any thread.
struct Answering {
  std::shared_ptr<Outbox> outbox;
  std::uint64_t stream;
  std::uint64_t max_frame_bytes;

  void operator()(const v1::ServerFrame& frame) const {
    outbox->push({stream, to_answer(stream, frame, max_frame_bytes)});
  }
};

// The sink of an Embed: its answer is encoded on the thread that ends it, as it may have megabytes.
class AnswerSink final : public actors::StreamSink {
 public:
  explicit AnswerSink(Answering tell) : tell_(std::move(tell)) {}
  void tokens(actors::TokenRun) override {}
  void end(actors::End end) override {
    const actors::Usage usage = end.usage;
    try {
      tell_(to_frame(tell_.stream, std::move(end)));
    } catch (const std::bad_alloc&) {
      actors::End failed;
      failed.outcome = Outcome::out_of_memory;
      failed.message = "there was no memory to answer it";
      failed.usage = usage;
      tell_(to_frame(tell_.stream, std::move(failed)));
    }
  }

 private:
  const Answering tell_;
};

// Of the ids of calls in an answer whose request has no seed.
std::uint64_t draw_id_seed() {
  std::random_device device;
  return (std::uint64_t{device()} << 32) | device();
}

v1::Limits limits_of(const ServerOptions& options) {
  v1::Limits limits;
  limits.set_max_frame_bytes(options.limits.max_frame_bytes);
  limits.set_max_streams(options.limits.max_streams);
  limits.set_max_outbox_bytes(options.limits.max_outbox_bytes);
  limits.set_stall_timeout_ms(static_cast<std::uint64_t>(options.limits.stall_timeout.count()));
  limits.set_max_stop_strings(actors::kMaxStopStrings);
  limits.set_max_stop_string_bytes(actors::kMaxStopStringBytes);
  limits.set_max_stop_ids(engine::kMaxStopIds);
  limits.set_max_logit_bias(engine::kMaxLogitBias);
  limits.set_max_logprobs(static_cast<std::uint32_t>(engine::kMaxLogprobs));
  limits.set_max_prompt_bytes(max_prompt_bytes(options.limits.max_frame_bytes));
  limits.set_max_detokenize_ids(actors::kMaxDetokenizeIds);
  limits.set_max_choices(actors::kMaxChoices);
  limits.set_max_embed_inputs(actors::kMaxEmbedInputs);
  return limits;
}

v1::Health health_now(const actors::Gateway& gateway, const scheduler::Tenant& tenant) {
  const actors::Readiness readiness = gateway.readiness();
  v1::Health health = to_health(readiness, gateway.load_fraction(),
                                readiness != actors::Readiness::failed && !gateway.is_making_progress());
  for (const actors::ModelHealth& each : actors::visible_health(gateway, tenant))
    *health.add_models() = to_model_health(each, tenant.is_owner);
  return health;
}

}  // namespace

std::optional<Refusal> FrameConnection::on_frame(Decoded&& decoded, std::size_t bytes) {
  if (decoded.damaged)
    return scheduler::invalid(
        "frame",
        fmt::format("a frame of {} bytes is not a ClientFrame: damaged, or a string in it is not UTF-8", bytes));
  const bool is_hello = decoded.frame.body_case() == v1::ClientFrame::kHello;
  if (welcomed_ == is_hello)
    return scheduler::invalid(
        "hello", is_hello ? "a second Hello; it is sent once" : "the first frame of a connection must be Hello");
  if (is_hello) return on_hello(decoded.frame.hello());
  const auto body = decoded.frame.body_case();
  if (body != v1::ClientFrame::kCancel && body != v1::ClientFrame::kCredit)
    hub_.count_received(*tally_, decoded.kind, decoded.count);
  if (!decoded.refusal)
    on_request(decoded.frame, decoded.count);
  else  // a refusal with an open stream's number would look like that stream's end
    refuse(streams_.contains(decoded.stream) ? 0 : decoded.stream, decoded.kind, *decoded.refusal, decoded.count);
  return std::nullopt;
}

void FrameConnection::on_request(v1::ClientFrame& frame, std::uint64_t count) {
  switch (frame.body_case()) {
    case v1::ClientFrame::kGenerate:
      return on_generate(*frame.mutable_generate(), count);
    case v1::ClientFrame::kCancel:
      return on_cancel(frame.cancel());
    case v1::ClientFrame::kCredit:
      return on_credit(frame.credit());
    case v1::ClientFrame::kTokenize:
      return on_tokenize(*frame.mutable_tokenize());
    case v1::ClientFrame::kDetokenize:
      return on_detokenize(frame.detokenize());
    case v1::ClientFrame::kEmbed:
      return on_embed(*frame.mutable_embed());
    case v1::ClientFrame::kStatus:
      return on_status(frame.status());
    case v1::ClientFrame::kCancelRequest:
      return on_cancel_request(frame.cancel_request());
    case v1::ClientFrame::kUsageRequest:
      return on_usage(frame.usage_request());
    case v1::ClientFrame::kSessionRequest:
      return on_session_request(frame.session_request());
    case v1::ClientFrame::kLoadModel:
      return on_load_model(*frame.mutable_load_model());
    case v1::ClientFrame::kUnloadModel:
      return on_unload_model(frame.unload_model());
    case v1::ClientFrame::kCheckModels:
      return on_check_models(frame.check_models());
    case v1::ClientFrame::kModels:
      return on_models(frame.models().stream());
    case v1::ClientFrame::kHealth:
      return on_health(frame.health().stream());
    default:
      return refuse(0, RequestKind::other,
                    scheduler::invalid("frame", "the frame has no body; see ClientFrame in the protocol"));
  }
}

void FrameConnection::on_models(std::uint64_t stream) {
  if (!open_control(stream, RequestKind::models)) return;
  v1::ServerFrame frame = to_frame(stream, actors::visible_models(*hub_.gateway, tenant_), tenant_.is_owner);
  for (const actors::ModelHealth& each : actors::visible_health(*hub_.gateway, tenant_))
    *frame.mutable_models()->add_health() = to_model_health(each, tenant_.is_owner);
  answer(stream, frame);
}

void FrameConnection::on_health(std::uint64_t stream) {
  if (!open_control(stream, RequestKind::health)) return;
  v1::ServerFrame health;
  *health.mutable_health() = health_now(*hub_.gateway, tenant_);
  health.mutable_health()->set_stream(stream);
  answer(stream, health);
}

std::optional<Refusal> FrameConnection::on_hello(const v1::Hello& hello) {
  if (hello.protocol() < kProtocol)
    return Refusal{.outcome = Outcome::unsupported,
                   .message = fmt::format("protocol version {} is not spoken; this server speaks version {}",
                                          hello.protocol(), kProtocol),
                   .field = "hello.protocol",
                   .limit = kProtocol};
  if (hello.client().size() > kMaxClientNameBytes)
    return scheduler::invalid("hello.client", fmt::format("the client's name has {} bytes; at most {} are taken",
                                                          hello.client().size(), kMaxClientNameBytes));
  acts_for_ = hello.tenant();
  if (auto refusal = decide_tenant()) return refusal;
  welcomed_ = true;
  spdlog::debug("connection of uid {} pid {} for {}: {}", caller_.peer.uid, caller_.peer.pid,
                scheduler::name_of(tenant_), Printable(hello.client()));
  v1::ServerFrame frame;
  v1::Welcome& welcome = *frame.mutable_welcome();
  welcome.set_protocol(kProtocol);
  welcome.set_server(server_name());
  if (const auto model = actors::visible_model(*hub_.gateway, tenant_))
    welcome.set_numerics_id(valid_utf8(model->numerics_id()));
  *welcome.mutable_limits() = limits_of(hub_.options);
  welcome.set_tenant(scheduler::label_of(tenant_));
  welcome.set_takes_presets(true);
  welcome.set_tells_waiting(true);
  *welcome.mutable_health() = health_now(*hub_.gateway, tenant_);
  outbox_->push({0, EncodedAnswer{to_bytes(frame)}});
  return std::nullopt;
}

Streams::Stream* FrameConnection::open_stream(std::uint64_t number, RequestKind kind, std::uint64_t count,
                                              const std::string& model) {
  const auto refused = [&](std::uint64_t stream, const Refusal& refusal) {
    refuse(stream, kind, refusal, count, model);
    return nullptr;
  };
  if (number == 0)
    return refused(0, scheduler::invalid("stream", "stream 0 is the connection; number requests from 1"));
  if (streams_.contains(number))
    return refused(0, scheduler::invalid("stream", fmt::format("stream {} is in use; its request goes on", number)));
  const std::uint32_t most = hub_.options.limits.max_streams;
  if (streams_.size() >= most)
    return refused(number, {.outcome = Outcome::quota,
                            .message = fmt::format("{} requests of this connection are unanswered, at most {} may be "
                                                   "(max_streams); wait for one to end",
                                                   streams_.size(), most),
                            .field = "max_streams",
                            .limit = most});
  return &streams_.enter(number, kind, tally_, count, arrival_of(model));
}

Arrival FrameConnection::arrival_of(const std::string& model) const {
  Arrival arrival{.tenant = tenant_, .protocol = actors::Protocol::frames};
  arrival.set_model(model);
  return arrival;
}

Streams::Stream* FrameConnection::open_control(std::uint64_t number, RequestKind kind) {
  const Clock::time_point now = Clock::now();
  if (user_->questions.take(now)) return open_stream(number, kind);
  const std::uint32_t most = hub_.options.limits.max_questions_per_second;
  refuse(streams_.contains(number) ? 0 : number, kind,
         {.outcome = Outcome::quota,
          .message = fmt::format(
              "uid {} asks for Health, Models, Status, Usage, sessions, loads and CancelRequest more than {} times "
              "a second (max_questions_per_second); ask less often",
              caller_.peer.uid, most),
          .field = "max_questions_per_second",
          .limit = most,
          .retry_after = user_->questions.seconds_to_next(now)});
  return nullptr;
}

Streams::Stream* FrameConnection::open_question(std::uint64_t number, RequestKind kind) {
  Streams::Stream* const opened = open_control(number, kind);
  if (!opened || !hub_.draining) return opened;
  answer(number, scheduler::server_drains());
  return nullptr;
}

void FrameConnection::on_generate(v1::Generate& generate, std::uint64_t count) {
  const std::uint64_t number = generate.stream();
  Streams::Stream* stream = open_stream(number, RequestKind::generate, count, generate.model());
  if (!stream) return;
  auto checked = to_request(generate, tenant_, max_prompt_bytes(hub_.options.limits.max_frame_bytes));
  if (const Refusal* refusal = std::get_if<Refusal>(&checked)) return answer(number, *refusal);
  auto& request = std::get<actors::Request>(checked);
  stream->implicit_credit = !generate.has_credit();
  if (!stream->implicit_credit && request.credit == 0) hub_.arm_tick();
  if (request.tools)
    tool_answers_[number] = {.tools = request.tools->set,
                             .id_seed = request.has_seed ? request.sampling.seed : draw_id_seed(),
                             .num_choices = request.num_choices};
  auto sink = std::make_shared<OutboxSink>(outbox_, number, 0, /*notes_admission=*/request.tools.has_value());
  streams_.submit(*stream, std::move(request), std::move(sink));
  if (!generate.tell_waiting() || !load_wait(number)) return;
  next_waiting_[number] = {};  // at once
  tell_waiting(Clock::now());
  hub_.arm_tick();
}

void FrameConnection::on_cancel(const v1::Cancel& cancel) { streams_.cancel(cancel.stream()); }

void FrameConnection::on_credit(const v1::Credit& credit) {
  streams_.grant(credit.stream(), credit.choice(), credit.tokens());
}

void FrameConnection::on_tokenize(v1::Tokenize& tokenize) {
  const std::uint64_t stream = tokenize.stream();
  Streams::Stream* const opened = open_stream(stream, RequestKind::tokenize, 1, tokenize.model());
  if (!opened) return;
  const std::uint64_t most = max_prompt_bytes(hub_.options.limits.max_frame_bytes);
  if (const auto wrong = actors::check_text(tokenize.text(), most)) return answer(stream, *wrong);
  const engine::EncodeOptions options{.add_special = !tokenize.has_add_special() || tokenize.add_special(),
                                      .parse_special = !tokenize.has_parse_special() || tokenize.parse_special()};
  opened->unwanted = hub_.gateway->tokenize(
      {tenant_, tokenize.model()}, std::move(*tokenize.mutable_text()), options,
      [tell = Answering{outbox_, stream, hub_.options.limits.max_frame_bytes}, stream](actors::Tokenized answer) {
        if (auto* end = std::get_if<actors::End>(&answer)) return tell(to_frame(stream, std::move(*end)));
        const auto& ids = std::get<std::vector<TokenId>>(answer);
        v1::ServerFrame frame;
        frame.mutable_tokenized()->set_stream(stream);
        frame.mutable_tokenized()->mutable_ids()->Add(ids.begin(), ids.end());
        tell(frame);
      });
}

void FrameConnection::on_detokenize(const v1::Detokenize& detokenize) {
  const std::uint64_t stream = detokenize.stream();
  Streams::Stream* const opened = open_stream(stream, RequestKind::detokenize, 1, detokenize.model());
  if (!opened) return;
  if (const auto count = static_cast<std::size_t>(detokenize.ids_size()); count > actors::kMaxDetokenizeIds)
    return answer(stream,
                  scheduler::above(Outcome::too_long, "ids", "the number of ids", count, actors::kMaxDetokenizeIds));
  std::vector<TokenId> ids(detokenize.ids().begin(), detokenize.ids().end());
  opened->unwanted = hub_.gateway->detokenize(
      {tenant_, detokenize.model()}, std::move(ids),
      [tell = Answering{outbox_, stream, hub_.options.limits.max_frame_bytes}, stream](actors::Detokenized answer) {
        if (auto* end = std::get_if<actors::End>(&answer)) return tell(to_frame(stream, std::move(*end)));
        auto& text = std::get<std::string>(answer);
        v1::ServerFrame frame;
        frame.mutable_detokenized()->set_stream(stream);
        frame.mutable_detokenized()->set_text(valid_utf8(text));
        frame.mutable_detokenized()->set_raw(std::move(text));
        tell(frame);
      });
}

void FrameConnection::on_embed(v1::Embed& embed) {
  const std::uint64_t number = embed.stream();
  Streams::Stream* const stream = open_stream(number, RequestKind::embed, 1, embed.model());
  if (!stream) return;
  auto checked = to_request(embed, tenant_, max_prompt_bytes(hub_.options.limits.max_frame_bytes));
  if (const Refusal* refusal = std::get_if<Refusal>(&checked)) return answer(number, *refusal);
  auto& request = std::get<actors::Request>(checked);
  // A float has 4 bytes, and each vector a length before it. Refuses now rather than compute an answer too large to
  // send.
  const auto model = actors::visible_model(*hub_.gateway, tenant_, request.model);
  const std::uint64_t bytes = model ? request.embed->count() * (std::uint64_t{model->info().dim} * 4 + 16) + 256 : 0;
  const bool outbox_is_less = outbox_->max_bytes() < hub_.options.limits.max_frame_bytes;
  const std::uint64_t most = std::min<std::uint64_t>(outbox_->max_bytes(), hub_.options.limits.max_frame_bytes);
  if (bytes > most)
    return answer(number, scheduler::above(Outcome::too_long, outbox_is_less ? "max_outbox_bytes" : "max_frame_bytes",
                                           "the answer's size in bytes", bytes, most));
  stream->implicit_credit = true;  // it needs none
  streams_.submit(*stream, std::move(request),
                  std::make_shared<AnswerSink>(Answering{outbox_, number, hub_.options.limits.max_frame_bytes}));
}

void FrameConnection::on_status(const v1::StatusRequest& question) {
  const std::uint64_t stream = question.stream();
  if (!open_question(stream, RequestKind::status)) return;
  hub_.ask_status([weak = weak_from_this(), question](const actors::StatusSnapshot& status) {
    if (const auto self = weak.lock()) static_cast<FrameConnection&>(*self).answer_status(question, status);
  });
}

void FrameConnection::on_cancel_request(const v1::CancelRequest& cancel) {
  const std::uint64_t stream = cancel.stream();
  if (!open_control(stream, RequestKind::other)) return;
  if (!hub_.cancel_request(cancel.request(), tenant_, caller_.peer.uid))
    return answer(stream, scheduler::invalid(
                              "request", fmt::format("{} no live request {}; it may have ended",
                                                     tenant_.is_owner ? "there is" : "you have", cancel.request())));
  v1::ServerFrame frame;
  frame.mutable_request_cancelled()->set_stream(stream);
  answer(stream, frame);
}

void FrameConnection::on_usage(const v1::UsageRequest& question) {
  const std::uint64_t stream = question.stream();
  if (!open_question(stream, RequestKind::other)) return;
  if (!hub_.options.ask_usage)
    return answer(stream, Refusal{.outcome = Outcome::unsupported,
                                  .message = "this server keeps no account of usage (--usage-db off)",
                                  .field = "usage_request"});
  auto query = to_query(question);
  if (const Refusal* refusal = std::get_if<Refusal>(&query)) return answer(stream, *refusal);
  auto& asked = std::get<actors::UsageQuery>(query);
  if (!tenant_.is_owner) asked.only = actors::usage_tenant(tenant_);
  hub_.options.ask_usage(std::move(asked), [tell = Answering{outbox_, stream, hub_.options.limits.max_frame_bytes},
                                            is_owner = tenant_.is_owner](const Result<actors::UsageReport>& report) {
    tell(usage_frame(tell.stream, report, is_owner));
  });
}

void FrameConnection::on_session_request(const v1::SessionRequest& asked) {
  const std::uint64_t stream = asked.stream();
  if (!open_question(stream, RequestKind::other)) return;
  auto question = to_question(asked, tenant_);
  if (const Refusal* refusal = std::get_if<Refusal>(&question)) return answer(stream, *refusal);
  hub_.gateway->session(std::get<actors::SessionQuestion>(std::move(question)),
                        [tell = Answering{outbox_, stream, hub_.options.limits.max_frame_bytes},
                         stream](const actors::SessionAnswer& answer) { tell(to_frame(stream, answer)); });
}

bool FrameConnection::open_change_of_models(std::uint64_t stream) {
  if (!open_control(stream, RequestKind::other)) return false;
  if (tenant_.is_owner) return true;
  answer(stream,
         Refusal{.outcome = Outcome::permission,
                 .message = "models are loaded, unloaded and checked by the user that runs the server, and by root"});
  return false;
}

void FrameConnection::on_load_model(v1::LoadModel& asked) {
  const std::uint64_t stream = asked.stream();
  if (!open_change_of_models(stream)) return;
  auto request = to_model_request(asked);
  if (const Refusal* refusal = std::get_if<Refusal>(&request)) return answer(stream, *refusal);
  hub_.gateway->load_models({{std::get<actors::ModelRequest>(std::move(request)), tell_of_model(stream)}});
}

void FrameConnection::on_unload_model(const v1::UnloadModel& asked) {
  if (!open_change_of_models(asked.stream())) return;
  hub_.gateway->unload_model(asked.model(), tell_of_model(asked.stream()));
}

void FrameConnection::on_check_models(const v1::CheckModels& asked) {
  const std::uint64_t stream = asked.stream();
  if (!open_change_of_models(stream)) return;
  if (static_cast<std::size_t>(asked.models_size()) > actors::kMaxModels)
    return answer(stream, scheduler::above(Outcome::invalid_argument, "models", "the number of models",
                                           static_cast<std::uint64_t>(asked.models_size()), actors::kMaxModels));
  hub_.gateway->check_models(
      {asked.models().begin(), asked.models().end()},
      [tell = Answering{outbox_, stream, hub_.options.limits.max_frame_bytes}](actors::ModelChecks result) {
        if (auto* end = std::get_if<actors::End>(&result)) return tell(to_frame(tell.stream, std::move(*end)));
        tell(to_frame(tell.stream, std::get<std::vector<actors::ModelCheck>>(result)));
      });
}

actors::OnModelChange FrameConnection::tell_of_model(std::uint64_t stream) {
  return [tell = Answering{outbox_, stream, hub_.options.limits.max_frame_bytes}](actors::ModelChange change) {
    if (auto* end = std::get_if<actors::End>(&change)) return tell(to_frame(tell.stream, std::move(*end)));
    v1::ServerFrame frame;
    frame.mutable_model_changed()->set_stream(tell.stream);
    *frame.mutable_model_changed()->mutable_model() = to_model_health(std::get<actors::ModelHealth>(change), true);
    tell(frame);
  };
}

void FrameConnection::answer_status(const v1::StatusRequest& question, const actors::StatusSnapshot& status) {
  const std::uint64_t stream = question.stream();
  if (!streams_.contains(stream)) return;
  StatusView view{.tenant = tenant_,
                  .list_requests = question.list_requests(),
                  .this_connection = question.this_connection(),
                  .profile = question.profile()};
  if (view.list_requests) view.own = hub_.requests_of(tenant_.id, *this);
  v1::ServerFrame frame = status_frame(stream, status, view);
  v1::Status& out = *frame.mutable_status();
  tenant_.is_owner ? hub_.add_counts(out) : tally_->add_counts(out);
  fit_status(frame, hub_.options.limits.max_frame_bytes);
  answer(stream, frame);
}

void FrameConnection::refuse(std::uint64_t stream, RequestKind kind, const Refusal& refusal, std::uint64_t count,
                             const std::string& model) {
  hub_.count_ended(*tally_, kind, refusal.outcome, count);
  hub_.tell_ended(arrival_of(model), kind, refusal.outcome);
  outbox_->push({0, EncodedAnswer{to_bytes(to_frame(stream, refusal))}});
}

void FrameConnection::answer(std::uint64_t stream, const v1::ServerFrame& frame) {
  Answering{outbox_, stream, hub_.options.limits.max_frame_bytes}(frame);
}

void FrameConnection::answer(std::uint64_t stream, const Refusal& refusal) {
  answer(stream, to_frame(stream, refusal));
}

}  // namespace troupe::ipc
