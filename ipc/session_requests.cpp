// What a session does with each frame of the protocol.
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>

#include "config/printable.h"
#include "engine/check_ids.h"
#include "ipc/session.h"
#include "ipc/utf8.h"

namespace troupe::ipc {
namespace {

using scheduler::Outcome;

constexpr std::uint32_t kProtocol = 1;
constexpr std::size_t kMaxClientNameBytes = 64;
// Far above every context and far below what overflows when grants are added up.
constexpr std::uint64_t kMaxCredit = 1ull << 32;

// After this a place may be free; no answer says when one is.
constexpr std::chrono::seconds kRetryAfter{1};

Refusal invalid(std::string field, std::string message) {
  return {.code = Outcome::invalid_argument,
          .field = std::move(field),
          .message = std::move(message),
          .limit = {},
          .retry_after = {}};
}

// Why the gateway could not answer a question.
Refusal to_refusal(const Error& error, actors::Readiness readiness) {
  Outcome code = Outcome::internal;
  if (readiness == actors::Readiness::loading)
    code = Outcome::loading;
  else if (readiness == actors::Readiness::draining)
    code = Outcome::draining;
  else if (error.code == ErrorCode::invalid_argument)
    code = Outcome::invalid_argument;
  else if (error.code == ErrorCode::model_missing)
    code = Outcome::unknown_model;
  else if (error.code == ErrorCode::busy)
    code = Outcome::queue_full;
  else
    code = Outcome::unsupported;
  Refusal refusal{.code = code, .field = {}, .message = error.message, .limit = {}, .retry_after = {}};
  if (code == Outcome::queue_full) refusal.field = "max_queued_texts";  // the one queue that questions wait in
  if (scheduler::info(code).retryable) refusal.retry_after = kRetryAfter;
  return refusal;
}

v1::Limits limits_of(const ServerOptions& options) {
  v1::Limits limits;
  limits.set_max_frame_bytes(options.max_frame_bytes);
  limits.set_max_streams(options.max_streams);
  limits.set_max_outbox_bytes(options.max_outbox_bytes);
  limits.set_stall_timeout_ms(static_cast<std::uint64_t>(options.stall_timeout.count()));
  limits.set_max_stop_strings(actors::kMaxStopStrings);
  limits.set_max_stop_string_bytes(actors::kMaxStopStringBytes);
  limits.set_max_stop_ids(engine::kMaxStopIds);
  limits.set_max_logit_bias(engine::kMaxLogitBias);
  limits.set_max_logprobs(static_cast<std::uint32_t>(engine::kMaxLogprobs));
  limits.set_max_prompt_bytes(max_prompt_bytes(options.max_frame_bytes));
  limits.set_max_detokenize_ids(kMaxDetokenizeIds);
  limits.set_max_choices(actors::kMaxChoices);
  limits.set_max_embed_inputs(actors::kMaxEmbedInputs);
  return limits;
}

v1::Health health_now(const actors::Gateway& gateway) {
  const actors::Readiness readiness = gateway.readiness();
  return to_health(readiness, gateway.load_fraction(),
                   readiness != actors::Readiness::failed && !gateway.is_making_progress());
}

}  // namespace

void Session::on_frame(Decoded&& decoded, std::size_t bytes) {
  if (decoded.damaged)
    return break_off(invalid("frame", "a frame of " + std::to_string(bytes) +
                                          " bytes is not a ClientFrame: damaged, or a string in it is not UTF-8"));
  const bool is_hello = decoded.frame.body_case() == v1::ClientFrame::kHello;
  if (welcomed_ == is_hello)
    return break_off(invalid(
        "hello", is_hello ? "a second Hello; it is sent once" : "the first frame of a connection must be Hello"));
  if (is_hello) return on_hello(decoded.frame.hello());
  if (!decoded.refusal) return on_request(decoded.frame);
  // Answering an open stream's number would look like that stream's end.
  refuse(streams_.contains(decoded.stream) ? 0 : decoded.stream, *decoded.refusal);
}

void Session::on_request(v1::ClientFrame& frame) {
  switch (frame.body_case()) {
    case v1::ClientFrame::kGenerate:
      return on_generate(*frame.mutable_generate());
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
    case v1::ClientFrame::kModels: {
      const std::uint64_t stream = frame.models().stream();
      if (open_stream(stream)) answer(stream, to_frame(stream, hub_.gateway->models()));
      return;
    }
    case v1::ClientFrame::kHealth: {
      const std::uint64_t stream = frame.health().stream();
      if (!open_stream(stream)) return;
      v1::ServerFrame health;
      *health.mutable_health() = health_now(*hub_.gateway);
      health.mutable_health()->set_stream(stream);
      return answer(stream, std::move(health));
    }
    default:
      return refuse(0, invalid("frame", "the frame has no body; see ClientFrame in the protocol"));
  }
}

void Session::on_hello(const v1::Hello& hello) {
  if (hello.protocol() < kProtocol)
    return break_off({.code = Outcome::unsupported,
                      .field = "hello.protocol",
                      .message = "protocol version " + std::to_string(hello.protocol()) +
                                 " is not spoken; this server speaks version " + std::to_string(kProtocol),
                      .limit = kProtocol,
                      .retry_after = {}});
  if (hello.client().size() > kMaxClientNameBytes)
    return break_off(invalid("hello.client", "the client's name has " + std::to_string(hello.client().size()) +
                                                 " bytes; at most 64 are taken"));
  welcomed_ = true;
  spdlog::debug("connection of uid {} pid {}: {}", peer_.uid, peer_.pid, printable(hello.client()));
  v1::ServerFrame frame;
  v1::Welcome& welcome = *frame.mutable_welcome();
  welcome.set_protocol(kProtocol);
  welcome.set_server(server_name());
  if (const auto model = hub_.gateway->model()) welcome.set_numerics_id(valid_utf8(model->numerics_id()));
  if (const auto encoder = hub_.gateway->encoder()) welcome.set_numerics_id(valid_utf8(encoder->numerics_id()));
  *welcome.mutable_limits() = limits_of(hub_.options);
  *welcome.mutable_health() = health_now(*hub_.gateway);
  outbox_->push({0, std::move(frame)});
}

Session::Stream* Session::open_stream(std::uint64_t number) {
  if (number == 0) {
    refuse(0, invalid("stream", "stream 0 is the connection; number requests from 1"));
    return nullptr;
  }
  if (streams_.contains(number)) {
    refuse(0, invalid("stream", "stream " + std::to_string(number) + " is in use; its request goes on"));
    return nullptr;
  }
  if (streams_.size() >= hub_.options.max_streams) {
    refuse(number,
           {.code = Outcome::quota,
            .field = "max_streams",
            .message = std::to_string(streams_.size()) + " requests of this connection are unanswered, at most " +
                       std::to_string(hub_.options.max_streams) + " may be (max_streams); wait for one to end",
            .limit = hub_.options.max_streams,
            .retry_after = kRetryAfter});
    return nullptr;
  }
  return &streams_[number];
}

void Session::on_generate(v1::Generate& generate) {
  const std::uint64_t number = generate.stream();
  Stream* stream = open_stream(number);
  if (!stream) return;
  auto checked = to_request(generate, peer_.uid, max_prompt_bytes(hub_.options.max_frame_bytes));
  if (const Refusal* refusal = std::get_if<Refusal>(&checked)) {
    streams_.erase(number);
    return refuse(number, *refusal);
  }
  auto& request = std::get<actors::Request>(checked);
  request.credit = std::min(request.credit, kMaxCredit);
  Choice choice;
  choice.credit = request.credit;
  choice.empty_since = Clock::now();
  stream->implicit_credit = !generate.has_credit();
  stream->choices.assign(request.num_choices, choice);
  stream->num_open = request.num_choices;
  if (!stream->implicit_credit && choice.credit == 0) hub_.arm_tick();
  // The sink may hear the end before submit() returns; what it hears waits in the outbox for this thread.
  const actors::RequestId first =
      hub_.gateway->submit(std::move(request), std::make_shared<OutboxSink>(outbox_, number));
  for (std::size_t i = 0; i < stream->choices.size(); ++i) stream->choices[i].request = first + i;
}

void Session::on_cancel(const v1::Cancel& cancel) {
  const auto found = streams_.find(cancel.stream());
  if (found != streams_.end()) cancel_stream(found->second);
}

void Session::on_credit(const v1::Credit& credit) {
  const auto found = streams_.find(credit.stream());
  if (found == streams_.end() || found->second.implicit_credit) return;
  if (credit.choice() >= found->second.choices.size()) return;
  Choice& choice = found->second.choices[credit.choice()];
  const std::uint64_t tokens = std::min(credit.tokens(), kMaxCredit - choice.credit);
  choice.credit += tokens;
  if (tokens > 0 && choice.to_credit == 0) credited_.push_back(credit.stream());
  choice.to_credit += tokens;
}

void Session::pass_on_credit() {
  for (const std::uint64_t number : credited_) {
    const auto found = streams_.find(number);
    if (found == streams_.end()) continue;
    for (Choice& choice : found->second.choices) {
      const std::uint64_t tokens = std::exchange(choice.to_credit, 0);
      if (tokens > 0) hub_.gateway->credit(choice.request, tokens);
    }
  }
  credited_.clear();
}

bool Session::refuse_unknown_model(std::uint64_t stream, const std::string& model) {
  if (model.empty()) return false;
  std::string known;
  for (const actors::ModelDescription& description : hub_.gateway->models()) {
    if (description.name == model) return false;
    known += (known.empty() ? "" : ", ") + description.name;
  }
  if (known.empty()) return false;  // still loading: the gateway says so
  streams_.erase(stream);
  refuse(stream, {.code = Outcome::unknown_model,
                  .field = "model",
                  .message = "there is no model " + printable(model) + "; this server has " + known,
                  .limit = {},
                  .retry_after = {}});
  return true;
}

void Session::on_tokenize(v1::Tokenize& tokenize) {
  const std::uint64_t stream = tokenize.stream();
  if (!open_stream(stream) || refuse_unknown_model(stream, tokenize.model())) return;
  const std::uint32_t most = max_prompt_bytes(hub_.options.max_frame_bytes);
  if (const std::size_t bytes = tokenize.text().size(); bytes > most)
    return answer(stream, to_frame(stream, above(Outcome::too_long, "text", "the text's size in bytes", bytes, most)));
  const engine::EncodeOptions options{.add_special = !tokenize.has_add_special() || tokenize.add_special(),
                                      .parse_special = tokenize.parse_special()};
  hub_.gateway->tokenize(std::move(*tokenize.mutable_text()), options,
                         [outbox = outbox_, stream, gateway = hub_.gateway](Result<std::vector<TokenId>> ids) {
                           v1::ServerFrame frame;
                           if (ids) {
                             frame.mutable_tokenized()->set_stream(stream);
                             frame.mutable_tokenized()->mutable_ids()->Add(ids->begin(), ids->end());
                           } else {
                             frame = to_frame(stream, to_refusal(ids.error(), gateway->readiness()));
                           }
                           outbox->push({stream, std::move(frame)});
                         });
}

void Session::on_detokenize(const v1::Detokenize& detokenize) {
  const std::uint64_t stream = detokenize.stream();
  if (!open_stream(stream) || refuse_unknown_model(stream, detokenize.model())) return;
  if (const auto count = static_cast<std::size_t>(detokenize.ids_size()); count > kMaxDetokenizeIds)
    return answer(stream,
                  to_frame(stream, above(Outcome::too_long, "ids", "the number of ids", count, kMaxDetokenizeIds)));
  const auto model = hub_.gateway->model();
  const std::uint32_t vocab_size = model ? model->info().vocab_size : 0;
  std::vector<TokenId> ids(detokenize.ids().begin(), detokenize.ids().end());
  const auto unknown = model ? engine::find_unknown_id(ids, vocab_size) : std::nullopt;
  if (unknown) {
    return answer(stream, to_frame(stream, invalid("ids", "token id " + std::to_string(ids[*unknown]) +
                                                              " is not in the vocabulary of " +
                                                              std::to_string(vocab_size) + " tokens")));
  }
  hub_.gateway->detokenize(std::move(ids),
                           [outbox = outbox_, stream, gateway = hub_.gateway](Result<std::string> text) {
                             v1::ServerFrame frame;
                             if (text) {
                               frame.mutable_detokenized()->set_stream(stream);
                               frame.mutable_detokenized()->set_text(valid_utf8(*text));
                               frame.mutable_detokenized()->set_raw(std::move(*text));
                             } else {
                               frame = to_frame(stream, to_refusal(text.error(), gateway->readiness()));
                             }
                             outbox->push({stream, std::move(frame)});
                           });
}

void Session::on_embed(v1::Embed& embed) {
  const std::uint64_t number = embed.stream();
  Stream* const stream = open_stream(number);
  if (!stream || refuse_unknown_model(number, embed.model())) return;
  auto checked = to_request(embed, peer_.uid, max_prompt_bytes(hub_.options.max_frame_bytes));
  if (const Refusal* refusal = std::get_if<Refusal>(&checked)) return answer(number, to_frame(number, *refusal));
  auto& request = std::get<actors::EmbedRequest>(checked);
  // A float has 4 bytes, and each vector a length before it. Computed in vain is worse than refused.
  const auto vectors = hub_.gateway->vectors();
  const std::uint64_t bytes = vectors ? request.num_inputs() * (std::uint64_t{vectors->info().dim} * 4 + 16) + 256 : 0;
  const bool outbox_is_less = outbox_->max_bytes() < hub_.options.max_frame_bytes;
  const std::uint64_t most = outbox_is_less ? outbox_->max_bytes() : hub_.options.max_frame_bytes;
  if (bytes > most)
    return answer(number,
                  to_frame(number, above(Outcome::too_long, outbox_is_less ? "max_outbox_bytes" : "max_frame_bytes",
                                         "the answer's size in bytes", bytes, most)));
  // The answer may be there before the flag is; it waits in the outbox for this thread.
  stream->unwanted = hub_.gateway->embed(std::move(request), [outbox = outbox_, number](actors::EmbedAnswer answer) {
    outbox->push({number, to_frame(number, std::move(answer))});
  });
}

void Session::on_status(const v1::StatusRequest& question) {
  const std::uint64_t stream = question.stream();
  if (!open_stream(stream)) return;
  // The counters of connections are added where they live: on the io thread, when the answer is encoded.
  hub_.gateway->status([outbox = outbox_, stream, uid = peer_.uid, list = question.list_requests(),
                        profile = question.profile()](actors::StatusSnapshot snapshot) {
    if (!list) snapshot.requests.clear();
    if (!profile) snapshot.profile.reset();
    keep_visible(snapshot.requests, uid, ::geteuid());
    outbox->push({stream, std::move(snapshot)});
  });
}

void Session::refuse(std::uint64_t stream, const Refusal& refusal) { outbox_->push({0, to_frame(stream, refusal)}); }

void Session::answer(std::uint64_t stream, v1::ServerFrame frame) { outbox_->push({stream, std::move(frame)}); }

}  // namespace troupe::ipc
