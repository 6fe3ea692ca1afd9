#include "ipc/client/client.h"

#include <fmt/format.h>

#include <algorithm>
#include <future>
#include <map>
#include <utility>

#include "config/utf8.h"
#include "ipc/client/connection.h"
#include "ipc/client/conversions.h"
#include "ipc/client/stream.h"
#include "ipc/frames/model_keys.h"
#include "ipc/sockets/socket_path.h"

namespace troupe::client {
namespace {

// Bound for choices; servers allow fewer.
constexpr std::uint32_t kMostChoices = 1u << 16;

constexpr std::string_view kOtherAnswer = "its answer is of another kind";

std::size_t num_inputs(const EmbedRequest& request) {
  return std::visit([](const auto& inputs) { return inputs.size(); }, request.inputs);
}

// How the answer to so many inputs breaks the protocol; empty: it does not.
std::string what_is_wrong(const v1::Embeddings& answer, std::size_t count) {
  if (static_cast<std::size_t>(answer.vectors_size()) == count) return "";
  return fmt::format("it sends {} vectors for {} inputs", answer.vectors_size(), count);
}

// SplitMix64 (Steele, Lea, Flood 2014), so that the delays between retries are the same with every standard library.
std::uint64_t split_mix(std::uint64_t& state) {
  std::uint64_t z = state += 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

}  // namespace

struct Client::Impl {
  // Sends a request that one frame answers, and waits for it. `body`: that of `frame`; `expected`: the kind of the
  // answer, any other is an error.
  template <class Body>
  Result<v1::ServerFrame> ask(v1::ClientFrame& frame, Body& body, v1::ServerFrame::BodyCase expected) {
    body.set_stream(connection->next_stream());
    return exchange(body.stream(), frame, expected, request_timeout, /*cancels=*/false);
  }
  // The same for a frame with the number of its stream. `timeout`: absent: none; `cancels`: cancels the request then.
  Result<v1::ServerFrame> exchange(std::uint64_t stream, const v1::ClientFrame& frame,
                                   v1::ServerFrame::BodyCase expected, std::optional<std::chrono::milliseconds> timeout,
                                   bool cancels) const;
  Result<SessionInfo> ask_session(v1::ClientFrame& frame);
  template <class Body>
  Result<Health::Model> change_model(v1::ClientFrame& frame, Body& body) {
    body.set_stream(connection->next_stream());
    const auto answer = exchange(body.stream(), frame, v1::ServerFrame::kModelChanged, std::nullopt, /*cancels=*/false);
    if (!answer) return answer.error();
    return to_model_health(answer->model_changed().model());
  }
  // One attempt of complete_all().
  Result<std::vector<Completion>> complete_once(Client& client, const Request& request,
                                                std::optional<std::chrono::milliseconds> timeout) const;

  std::shared_ptr<Connection> connection;
  std::chrono::milliseconds request_timeout{0};
  ServerInfo info;
};

Result<v1::ServerFrame> Client::Impl::exchange(std::uint64_t stream, const v1::ClientFrame& frame,
                                               v1::ServerFrame::BodyCase expected,
                                               std::optional<std::chrono::milliseconds> timeout, bool cancels) const {
  if (connection->on_reader()) return inside_callback();
  const auto question = std::make_shared<Question>();
  auto future = question->answer();
  if (Status sent = connection->request(stream, frame, question); !sent) return sent.error();
  if (timeout && future.wait_for(*timeout) != std::future_status::ready) {
    if (cancels) send_cancel(*connection, stream);
    return Error{ErrorCode::io, fmt::format("the server did not answer within {} ms", timeout->count())};
  }
  auto answer = future.get();
  if (answer && answer->has_failed()) return Error{ErrorCode::io, printable(answer->failed().message())};
  if (answer && answer->has_done()) return Error{ErrorCode::io, "the server ended the request: it stops"};
  if (answer && answer->body_case() != expected) return breach(*connection, std::string(kOtherAnswer));
  return answer;
}

Client::Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Client::~Client() { close(); }

Result<std::unique_ptr<Client>> Client::connect(const ConnectOptions& options) {
  std::vector<std::string> paths = {options.socket};
  if (options.socket.empty()) {
    auto candidates = ipc::client_socket_paths(ipc::SocketEnvironment::current());
    if (!candidates) return candidates.error();
    paths = std::move(*candidates);
  }
  std::optional<Error> first;
  for (const std::string& path : paths) {
    if (Status checked = ipc::check_socket_path(path); !checked) return checked.error();
    auto connection = Connection::open(path, options);
    if (connection) {
      auto impl = std::make_unique<Impl>();
      impl->connection = std::move(*connection);
      impl->request_timeout = options.request_timeout;
      impl->info = to_info(impl->connection->welcome());
      impl->info.distrust = impl->connection->distrust();
      return std::unique_ptr<Client>(new Client(std::move(impl)));
    }
    if (!first) {
      first = connection.error();
    } else {
      first->message += "; " + connection.error().message;
      if (connection.error().code != ErrorCode::io) first->code = connection.error().code;
    }
  }
  if (first->code == ErrorCode::io) first->message += "; start one with: troupe serve";
  return *first;
}

const ServerInfo& Client::server() const { return impl_->info; }

Result<Stream> Client::generate(const Request& request, Callbacks callbacks) {
  if (Status checked = check_text(request); !checked) return checked.error();
  const std::uint32_t num_choices = std::clamp<std::uint32_t>(request.n, 1, kMostChoices);  // more is refused
  const std::uint64_t stream = impl_->connection->next_stream();
  v1::ClientFrame frame = to_frame(stream, request, impl_->info.takes_presets);
  frame.mutable_generate()->set_tell_waiting(callbacks.on_waiting && impl_->info.tells_waiting);
  const auto state =
      std::make_shared<Stream::State>(impl_->connection, stream, std::move(callbacks), num_choices, request);
  if (Status sent = impl_->connection->request(stream, frame, state); !sent) return sent.error();
  return Stream(state);
}

void add_call_part(std::vector<ToolCall>& calls, const CallPart& part) {
  if (part.index >= calls.size()) calls.resize(std::size_t{part.index} + 1);
  ToolCall& call = calls[part.index];
  call.id += part.id;
  call.name += part.name;
  call.arguments += part.arguments;
  call.is_complete |= part.ends;
}

Backoff::Backoff(const RetryPolicy& policy) : policy_(policy), random_(policy.seed) {}

std::optional<std::chrono::milliseconds> Backoff::next(const Ended& ended) {
  const bool refused = scheduler::info(ended.outcome).kind == scheduler::OutcomeKind::refused;
  // A draining server will close the connection: a retry needs a new connection, to the next server.
  if (!refused || !ended.retry_after || ended.outcome == Outcome::draining) return std::nullopt;
  if (retries_ >= policy_.max_retries || *ended.retry_after > policy_.max_delay) return std::nullopt;
  // 2^20 times the first delay is beyond every sensible max_delay, and more doublings would overflow.
  const std::uint32_t doublings = std::min(retries_++, 20u);
  const auto base = std::max<std::int64_t>(1, ended.retry_after->count());
  const std::int64_t delay =
      base > (policy_.max_delay.count() >> doublings) ? policy_.max_delay.count() : base << doublings;
  const auto spread = static_cast<std::uint64_t>(delay / 2 + 1);
  return std::chrono::milliseconds(delay + static_cast<std::int64_t>(split_mix(random_) % spread));
}

Result<Completion> Client::complete(const Request& request, std::optional<std::chrono::milliseconds> timeout,
                                    const RetryPolicy& retry) {
  auto completions = complete_all(request, timeout, retry);
  if (!completions) return completions.error();
  return std::move(completions->front());
}

Result<std::vector<Completion>> Client::complete_all(const Request& request,
                                                     std::optional<std::chrono::milliseconds> timeout,
                                                     const RetryPolicy& retry) {
  using SteadyClock = std::chrono::steady_clock;
  const SteadyClock::time_point start = SteadyClock::now();
  Backoff backoff(retry);
  for (;;) {
    std::optional<std::chrono::milliseconds> left;
    if (timeout) {
      const auto used = std::chrono::duration_cast<std::chrono::milliseconds>(SteadyClock::now() - start);
      left = std::max(std::chrono::milliseconds(0), *timeout - used);
    }
    auto completions = impl_->complete_once(*this, request, left);
    if (!completions) return completions;
    const auto delay = backoff.next(completions->front().ended);
    if (!delay || (left && *delay >= *left)) return completions;
    if (const auto lost = impl_->connection->wait_lost(*delay)) return *lost;
  }
}

Result<std::vector<Completion>> Client::Impl::complete_once(Client& client, const Request& request,
                                                            std::optional<std::chrono::milliseconds> timeout) const {
  if (connection->on_reader()) return inside_callback();
  // By choice; shared with a stream that may outlive this call.
  const auto completions = std::make_shared<std::map<std::uint32_t, Completion>>();
  const auto collect = [completions](const Tokens& tokens) {
    Completion& completion = (*completions)[tokens.choice];
    completion.text += tokens.text;
    completion.ids.insert(completion.ids.end(), tokens.ids.begin(), tokens.ids.end());
    completion.logprobs.insert(completion.logprobs.end(), tokens.logprobs.begin(), tokens.logprobs.end());
    for (const CallPart& part : tokens.calls) add_call_part(completion.calls, part);
  };
  const auto conclude = [completions](const Result<Ended>& ended) {
    if (ended) (*completions)[ended->choice].ended = *ended;
  };
  auto stream = client.generate(request, {.on_tokens = collect, .on_end = conclude});
  if (!stream) return stream.error();
  std::optional<Result<Ended>> ended = timeout ? stream->wait_for(*timeout) : stream->wait();
  if (!ended) {
    stream->cancel();
    ended = stream->wait_for(request_timeout);
  }
  if (!ended) return Error{ErrorCode::io, "the server did not answer a cancel in time"};
  if (!*ended) return ended->error();
  std::vector<Completion> all;
  for (auto& [choice, completion] : *completions) all.push_back(std::move(completion));
  return all;
}

Result<std::vector<TokenId>> Client::tokenize(const std::string& text, bool add_special, bool parse_special,
                                              const std::string& model) {
  if (!is_utf8(text)) return not_utf8("the text");
  v1::ClientFrame frame;
  v1::Tokenize& body = *frame.mutable_tokenize();
  body.set_model(model);
  body.set_text(text);
  body.set_add_special(add_special);
  body.set_parse_special(parse_special);
  const auto answer = impl_->ask(frame, body, v1::ServerFrame::kTokenized);
  if (!answer) return answer.error();
  return std::vector<TokenId>(answer->tokenized().ids().begin(), answer->tokenized().ids().end());
}

Result<std::string> Client::detokenize(const std::vector<TokenId>& ids, const std::string& model) {
  v1::ClientFrame frame;
  frame.mutable_detokenize()->set_model(model);
  frame.mutable_detokenize()->mutable_ids()->Add(ids.begin(), ids.end());
  const auto answer = impl_->ask(frame, *frame.mutable_detokenize(), v1::ServerFrame::kDetokenized);
  if (!answer) return answer.error();
  return answer->detokenized().raw();
}

Result<Embeddings> Client::embed(const EmbedRequest& request, std::optional<std::chrono::milliseconds> timeout) {
  if (Status checked = check_text(request); !checked) return checked.error();
  const std::uint64_t stream = impl_->connection->next_stream();
  const auto answer = impl_->exchange(stream, to_frame(stream, request), v1::ServerFrame::kEmbeddings, timeout,
                                      /*cancels=*/true);
  if (!answer) return answer.error();
  if (const std::string wrong = what_is_wrong(answer->embeddings(), num_inputs(request)); !wrong.empty())
    return breach(*impl_->connection, wrong);
  return to_embeddings(answer->embeddings());
}

Status Client::embed(const EmbedRequest& request, std::function<void(const Result<Ended>&, const Embeddings&)> on_end) {
  if (Status checked = check_text(request); !checked) return checked;
  const std::uint64_t stream = impl_->connection->next_stream();
  auto reply = std::make_shared<Reply>(
      impl_->connection,
      [count = num_inputs(request)](const v1::ServerFrame& frame) {
        return frame.has_embeddings() ? what_is_wrong(frame.embeddings(), count) : std::string(kOtherAnswer);
      },
      [on_end = std::move(on_end)](const Result<Ended>& ended, v1::ServerFrame& frame) {
        on_end(ended, frame.has_embeddings() ? to_embeddings(frame.embeddings()) : Embeddings{});
      });
  return impl_->connection->request(stream, to_frame(stream, request), std::move(reply));
}

Status Client::tokenize(const std::string& text, const std::string& model,
                        std::function<void(const Result<Ended>&, const std::vector<TokenId>&)> on_end) {
  if (!is_utf8(text)) return not_utf8("the text");
  v1::ClientFrame frame;
  v1::Tokenize& body = *frame.mutable_tokenize();
  body.set_stream(impl_->connection->next_stream());
  body.set_model(model);
  body.set_text(text);
  auto reply = std::make_shared<Reply>(
      impl_->connection,
      [](const v1::ServerFrame& answer) { return std::string(answer.has_tokenized() ? "" : kOtherAnswer); },
      [on_end = std::move(on_end)](const Result<Ended>& ended, v1::ServerFrame& answer) {
        const auto& ids = answer.tokenized().ids();
        on_end(ended, {ids.begin(), ids.end()});
      });
  return impl_->connection->request(body.stream(), frame, std::move(reply));
}

Result<std::vector<ModelDescription>> Client::models() {
  v1::ClientFrame frame;
  const auto answer = impl_->ask(frame, *frame.mutable_models(), v1::ServerFrame::kModels);
  if (!answer) return answer.error();
  return to_models(answer->models());
}

Result<Health::Model> Client::load_model(const ModelRequest& request) {
  bool is_text = is_utf8(request.chat_template_source);
  config::for_each_model_key(request, [&](const auto& value) {
    if constexpr (std::is_same_v<decltype(value), const std::string&>) is_text = is_text && is_utf8(value);
  });
  is_text = is_text && is_utf8(request.defaults.reasoning) && is_utf8(request.defaults.system);
  if (!is_text || !std::ranges::all_of(request.aliases, is_utf8)) return not_utf8("a value of the model");
  v1::ClientFrame frame;
  v1::LoadModel& body = *frame.mutable_load_model();
  ipc::put_model_keys(request, body);
  body.set_chat_template_source(request.chat_template_source);
  return impl_->change_model(frame, body);
}

Result<Health::Model> Client::unload_model(const std::string& model) {
  if (!is_utf8(model)) return not_utf8("the model's name");
  v1::ClientFrame frame;
  frame.mutable_unload_model()->set_model(model);
  return impl_->change_model(frame, *frame.mutable_unload_model());
}

Result<std::vector<ModelCheck>> Client::check_models(const std::vector<std::string>& models) {
  if (!std::ranges::all_of(models, is_utf8)) return not_utf8("a model's name");
  v1::ClientFrame frame;
  v1::CheckModels& body = *frame.mutable_check_models();
  body.set_stream(impl_->connection->next_stream());
  for (const std::string& model : models) body.add_models(model);
  const auto answer =
      impl_->exchange(body.stream(), frame, v1::ServerFrame::kModelsChecked, std::nullopt, /*cancels=*/false);
  if (!answer) return answer.error();
  std::vector<ModelCheck> checks;
  for (const v1::ModelsChecked::Check& each : answer->models_checked().checks())
    checks.push_back({.model = each.model(),
                      .canary_ok = each.canary_ok(),
                      .weights_ok = each.weights_ok(),
                      .bytes = each.bytes(),
                      .seconds = each.seconds(),
                      .file_change = each.file_change(),
                      .problem = each.problem()});
  return checks;
}

Result<ServerStatus> Client::status(bool list_requests, bool profile) {
  v1::ClientFrame frame;
  frame.mutable_status()->set_list_requests(list_requests);
  frame.mutable_status()->set_profile(profile);
  const auto answer = impl_->ask(frame, *frame.mutable_status(), v1::ServerFrame::kStatus);
  if (!answer) return answer.error();
  return to_status(answer->status());
}

Result<std::vector<LiveRequest>> Client::own_requests() {
  v1::ClientFrame frame;
  frame.mutable_status()->set_list_requests(true);
  frame.mutable_status()->set_this_connection(true);
  const auto answer = impl_->ask(frame, *frame.mutable_status(), v1::ServerFrame::kStatus);
  if (!answer) return answer.error();
  return to_status(answer->status()).live_requests;
}

Status Client::cancel_request(std::uint64_t request) {
  v1::ClientFrame frame;
  frame.mutable_cancel_request()->set_request(request);
  const auto answer = impl_->ask(frame, *frame.mutable_cancel_request(), v1::ServerFrame::kRequestCancelled);
  return answer ? Status(Ok{}) : answer.error();
}

Result<UsageReport> Client::usage(UsagePeriod by, std::optional<std::int64_t> since) {
  v1::ClientFrame frame;
  frame.mutable_usage_request()->set_by(static_cast<v1::UsageRequest::Period>(by));
  if (since) frame.mutable_usage_request()->set_since(static_cast<std::uint64_t>(std::max<std::int64_t>(0, *since)));
  const auto answer = impl_->ask(frame, *frame.mutable_usage_request(), v1::ServerFrame::kUsageReport);
  if (!answer) return answer.error();
  return to_usage_report(answer->usage_report());
}

Result<std::vector<SessionInfo>> Client::sessions() {
  v1::ClientFrame frame;
  frame.mutable_session_request()->mutable_list();
  const auto answer = impl_->ask(frame, *frame.mutable_session_request(), v1::ServerFrame::kSessions);
  if (!answer) return answer.error();
  return to_sessions(answer->sessions());
}

Result<SessionInfo> Client::inspect_session(const std::string& name) {
  v1::ClientFrame frame;
  frame.mutable_session_request()->mutable_inspect()->set_name(name);
  return impl_->ask_session(frame);
}

Result<SessionInfo> Client::save_session(const std::string& name) {
  v1::ClientFrame frame;
  frame.mutable_session_request()->mutable_save()->set_name(name);
  return impl_->ask_session(frame);
}

Result<SessionInfo> Client::fork_session(const std::string& from, const std::string& to) {
  v1::ClientFrame frame;
  frame.mutable_session_request()->mutable_fork()->set_from(from);
  frame.mutable_session_request()->mutable_fork()->set_to(to);
  return impl_->ask_session(frame);
}

Status Client::delete_session(const std::string& name) {
  if (!is_utf8(name)) return not_utf8("the session's name");
  v1::ClientFrame frame;
  frame.mutable_session_request()->mutable_delete_()->set_name(name);
  const auto answer = impl_->ask(frame, *frame.mutable_session_request(), v1::ServerFrame::kSessions);
  if (!answer) return answer.error();
  if (answer->sessions().sessions_size() == 0) return Ok{};
  return breach(*impl_->connection, "it tells of a session that it was to delete");
}

// Asks about one session.
Result<SessionInfo> Client::Impl::ask_session(v1::ClientFrame& frame) {
  const v1::SessionRequest& asked = frame.session_request();
  for (const std::string* name :
       {&asked.save().name(), &asked.inspect().name(), &asked.fork().from(), &asked.fork().to()})
    if (!is_utf8(*name)) return not_utf8("the session's name");
  const auto answer = ask(frame, *frame.mutable_session_request(), v1::ServerFrame::kSessions);
  if (!answer) return answer.error();
  auto all = to_sessions(answer->sessions());
  if (all.size() == 1) return std::move(all.front());
  return breach(*connection, fmt::format("it tells of {} sessions, not one", all.size()));
}

Result<Health> Client::health() {
  v1::ClientFrame frame;
  const auto answer = impl_->ask(frame, *frame.mutable_health(), v1::ServerFrame::kHealth);
  if (!answer) return answer.error();
  return to_health(answer->health());
}

std::uint64_t Client::stray_frames() const { return impl_->connection->stray_frames(); }

bool Client::draining() const { return impl_->connection->draining(); }

void Client::close() { impl_->connection->close(); }

}  // namespace troupe::client
