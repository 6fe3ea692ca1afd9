#include "ipc/client/client.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <utility>

#include "config/utf8.h"
#include "ipc/client/client_status.h"
#include "ipc/client/connection.h"
#include "ipc/socket_path.h"

namespace troupe::client {
namespace {

// Credit window when the library grants credit itself: large enough to hide the round trip at any speed, small enough
// that a slow reader's stream is parked soon.
constexpr std::uint64_t kCreditWindow = 256;
// Bound for choices; servers allow fewer.
constexpr std::uint32_t kMostChoices = 1u << 16;
// Servers ask for seconds; a much larger retry_after, or one that overflows, is a protocol error.
constexpr std::uint64_t kMaxRetryAfterMs = 3'600'000;

template <class Duration>
std::chrono::milliseconds to_ms(Duration count) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(count));
}

Error inside_callback() {
  return {ErrorCode::invalid_argument, "this call waits, and would wait for ever inside a callback of its client"};
}

Readiness to_readiness(v1::Readiness readiness) {
  switch (readiness) {
    case v1::READINESS_READY:
      return Readiness::ready;
    case v1::READINESS_DRAINING:
      return Readiness::draining;
    case v1::READINESS_FAILED:
      return Readiness::failed;
    default:
      return Readiness::loading;
  }
}

Health to_health(const v1::Health& health) {
  return {.readiness = to_readiness(health.readiness()),
          .load_fraction = health.load_fraction(),
          .stalled = health.stalled()};
}

void fill(v1::Sampling& out, const Sampling& sampling) {
  if (sampling.temperature) out.set_temperature(*sampling.temperature);
  if (sampling.top_k) out.set_top_k(*sampling.top_k);
  if (sampling.top_p) out.set_top_p(*sampling.top_p);
  if (sampling.min_p) out.set_min_p(*sampling.min_p);
  if (sampling.repeat_penalty) out.set_repeat_penalty(*sampling.repeat_penalty);
  if (sampling.presence_penalty) out.set_presence_penalty(*sampling.presence_penalty);
  if (sampling.frequency_penalty) out.set_frequency_penalty(*sampling.frequency_penalty);
  if (sampling.repeat_last_n) out.set_repeat_last_n(*sampling.repeat_last_n);
  if (sampling.seed) out.set_seed(*sampling.seed);
  if (sampling.max_tokens) out.set_max_tokens(*sampling.max_tokens);
  out.set_ignore_eos(sampling.ignore_eos);
  for (const auto& [id, value] : sampling.logit_bias) {
    v1::LogitBias& bias = *out.add_logit_bias();
    bias.set_id(id);
    bias.set_bias(value);
  }
  out.mutable_stop_ids()->Add(sampling.stop_ids.begin(), sampling.stop_ids.end());
}

v1::ClientFrame to_frame(std::uint64_t stream, const Request& request) {
  v1::ClientFrame frame;
  v1::Generate& out = *frame.mutable_generate();
  out.set_stream(stream);
  out.set_model(request.model);
  if (const auto* text = std::get_if<std::string>(&request.prompt)) {
    out.set_text(*text);
  } else {
    const auto& ids = std::get<std::vector<TokenId>>(request.prompt);
    out.mutable_token_ids()->mutable_ids()->Add(ids.begin(), ids.end());
  }
  out.set_add_special(request.add_special);
  out.set_parse_special(request.parse_special);
  fill(*out.mutable_sampling(), request.sampling);
  for (const std::string& stop : request.stop) out.add_stop(stop);
  if (request.deadline)
    out.set_deadline_ms(static_cast<std::uint64_t>(std::max<std::int64_t>(0, request.deadline->count())));
  if (request.priority != 0) out.set_priority(request.priority);
  out.set_cache_scope(request.cache_scope);
  if (request.logprobs) out.set_logprobs(*request.logprobs);
  if (request.n != 1) out.set_n(request.n);
  out.set_credit(request.credit.value_or(kCreditWindow));
  return frame;
}

Tokens to_tokens(v1::Tokens& in) {
  Tokens tokens;
  tokens.choice = in.choice();
  tokens.first_index = in.first_index();
  tokens.ids.assign(in.ids().begin(), in.ids().end());
  tokens.text = std::move(*in.mutable_text());
  for (const v1::TokenLogprobs& entry : in.logprobs()) {
    Logprobs& logprobs = tokens.logprobs.emplace_back();
    logprobs.logprob = entry.logprob();
    for (int i = 0; i < std::min(entry.top_ids_size(), entry.top_logprobs_size()); ++i)
      logprobs.top.push_back({.id = entry.top_ids(i), .logprob = entry.top_logprobs(i)});
  }
  return tokens;
}

Usage to_usage(const v1::Usage& in, const v1::Timings& timings) {
  return {.prompt_tokens = in.prompt_tokens(),
          .cached_tokens = in.cached_tokens(),
          .completion_tokens = in.completion_tokens(),
          .preemptions = in.preemptions(),
          .queue_seconds = timings.queue_seconds(),
          .prefill_seconds = timings.prefill_seconds(),
          .decode_seconds = timings.decode_seconds(),
          .ttft_seconds = timings.ttft_seconds()};
}

// An outcome of a newer server that this library does not know counts as `internal`.
Outcome to_outcome(v1::Outcome number) {
  return scheduler::outcome_from_number(static_cast<std::uint32_t>(number)).value_or(Outcome::internal);
}

Ended to_ended(const v1::ServerFrame& frame) {
  Ended ended;
  if (frame.has_done()) {
    const v1::Done& done = frame.done();
    ended.choice = done.choice();
    ended.outcome = to_outcome(done.reason());
    ended.message = done.message();
    ended.stop = done.stop();
    ended.seed = done.seed();
    ended.usage = to_usage(done.usage(), done.timings());
  } else if (frame.has_refused()) {
    const v1::Refused& refused = frame.refused();
    ended.outcome = to_outcome(refused.code());
    ended.message = refused.message();
    ended.field = refused.field();
    if (refused.has_limit()) ended.limit = refused.limit();
    if (refused.has_retry_after_ms()) ended.retry_after = to_ms(refused.retry_after_ms());
  } else {
    const v1::Failed& failed = frame.failed();
    ended.choice = failed.choice();
    ended.outcome = to_outcome(failed.code());
    ended.message = failed.message();
    ended.seed = failed.seed();
    ended.usage = to_usage(failed.usage(), {});
  }
  return ended;
}

Error to_error(const v1::Refused& refused) {
  switch (to_outcome(refused.code())) {
    case Outcome::invalid_argument:
    case Outcome::too_long:
    case Outcome::never_fits:
      return {ErrorCode::invalid_argument, refused.message()};
    case Outcome::unknown_model:
      return {ErrorCode::model_missing, refused.message()};
    case Outcome::permission:
      return {ErrorCode::permission, refused.message()};
    case Outcome::unsupported:
      return {ErrorCode::unsupported, refused.message()};
    case Outcome::loading:
    case Outcome::draining:
    case Outcome::queue_full:
    case Outcome::quota:
      return {ErrorCode::busy, refused.message()};
    default:
      return {ErrorCode::io, refused.message()};
  }
}

Error not_utf8(const std::string& what) {
  return {ErrorCode::invalid_argument, what + " is not valid UTF-8; send exact bytes as token ids"};
}

// Strings must be valid UTF-8: otherwise the server would end the whole connection.
Status check_text(const Request& request) {
  const auto* text = std::get_if<std::string>(&request.prompt);
  if (text && !is_utf8(*text)) return not_utf8("the prompt");
  if (!is_utf8(request.model)) return not_utf8("the model's name");
  if (!is_utf8(request.cache_scope)) return not_utf8("cache_scope");
  for (const std::string& stop : request.stop)
    if (!is_utf8(stop)) return not_utf8("a stop string");
  return Ok{};
}

// Receives the one frame that answers a request.
class Question final : public Receiver {
 public:
  bool on_frame(v1::ServerFrame& frame) override {
    set(frame.has_refused() ? Result<v1::ServerFrame>(to_error(frame.refused())) : std::move(frame));
    return true;
  }
  void on_lost(const Error& error) override { set(error); }

  // nullopt: no answer within the timeout.
  std::optional<Result<v1::ServerFrame>> wait(std::optional<std::chrono::milliseconds> timeout) {
    std::unique_lock lock(mutex_);
    const auto is_there = [&] { return answer_.has_value(); };
    if (!timeout) answered_.wait(lock, is_there);
    if (timeout && !answered_.wait_for(lock, *timeout, is_there)) return std::nullopt;
    return *std::move(answer_);
  }

  Result<v1::ServerFrame> wait_for(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    if (answered_.wait_for(lock, timeout, [&] { return answer_.has_value(); })) return *std::move(answer_);
    return Error{ErrorCode::io, fmt::format("the server did not answer within {} ms", timeout.count())};
  }

 private:
  void set(Result<v1::ServerFrame> answer) {
    const std::lock_guard lock(mutex_);
    answer_ = std::move(answer);
    answered_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable answered_;
  std::optional<Result<v1::ServerFrame>> answer_;
};

}  // namespace

bool Ended::done() const { return scheduler::info(outcome).kind == scheduler::OutcomeKind::done; }

// The state of one stream: updated by the reader thread; any thread may wait for its end.
struct Stream::State final : Receiver {
  State(std::shared_ptr<Connection> stream_connection, std::uint64_t number, Callbacks stream_callbacks,
        std::uint32_t num_choices, bool grants_credit)
      : connection(std::move(stream_connection)),
        id(number),
        callbacks(std::move(stream_callbacks)),
        automatic(grants_credit),
        open(num_choices),
        choices(num_choices) {}

  bool on_frame(v1::ServerFrame& frame) override {
    if (const std::string wrong = what_is_wrong(frame); !wrong.empty()) {
      finish(Error{ErrorCode::protocol, "the server breaks the protocol: " + wrong});
      v1::ClientFrame cancel;
      cancel.mutable_cancel()->set_stream(id);
      connection->tell(cancel);
      return true;
    }
    if (!frame.has_tokens()) {
      const bool is_last = frame.has_refused() || --open == 0;
      const Ended how = to_ended(frame);
      choices[how.choice].ended = true;
      if (is_last) {
        finish(how);
      } else if (callbacks.on_end) {
        callbacks.on_end(how);
      }
      return is_last;
    }
    Tokens tokens = to_tokens(*frame.mutable_tokens());
    tokens.received_at = connection->read_at();
    Choice& choice = choices[tokens.choice];
    choice.next_index += tokens.ids.size();
    choice.since_grant += tokens.ids.size();
    if (callbacks.on_tokens) callbacks.on_tokens(tokens);
    if (automatic && choice.since_grant >= kCreditWindow / 2)
      grant(std::exchange(choice.since_grant, 0), tokens.choice);
    return false;
  }

  // How the frame breaks the protocol; empty: it does not.
  std::string what_is_wrong(const v1::ServerFrame& frame) const {
    if (frame.has_refused()) {
      const std::uint64_t ms = frame.refused().retry_after_ms();
      return ms <= kMaxRetryAfterMs
                 ? ""
                 : fmt::format("it asks for another try after {} ms, at most {} are meant to be", ms, kMaxRetryAfterMs);
    }
    if (!frame.has_tokens() && !frame.has_done() && !frame.has_failed())
      return "it answers a request for tokens with another message";
    const std::uint32_t choice = frame.has_tokens() ? frame.tokens().choice()
                                 : frame.has_done() ? frame.done().choice()
                                                    : frame.failed().choice();
    if (choice >= choices.size()) return fmt::format("it sends choice {} of a request for {}", choice, choices.size());
    if (choices[choice].ended) return fmt::format("it sends more of choice {}, which has ended", choice);
    if (frame.has_tokens() && frame.tokens().first_index() != choices[choice].next_index)
      return fmt::format("it sends tokens of choice {} from {} on, and {} is next", choice,
                         frame.tokens().first_index(), choices[choice].next_index);
    return "";
  }

  void on_lost(const Error& error) override { finish(error); }

  void grant(std::uint64_t tokens, std::uint32_t choice) {
    v1::ClientFrame frame;
    frame.mutable_credit()->set_stream(id);
    frame.mutable_credit()->set_tokens(tokens);
    frame.mutable_credit()->set_choice(choice);
    connection->tell(frame);
  }

  // Calls on_end before it wakes waiters, so that a thread returning from wait() sees its effects.
  void finish(const Result<Ended>& result) {
    if (callbacks.on_end) callbacks.on_end(result);
    callbacks = {};  // destroys what they captured
    const std::lock_guard lock(mutex);
    end = result;
    ended.notify_all();
  }

  const std::shared_ptr<Connection> connection;
  const std::uint64_t id;
  Callbacks callbacks;  // used by the reader thread only
  const bool automatic;
  std::uint32_t open;  // choices that have not ended; reader thread only
  struct Choice {
    std::uint64_t next_index = 0;   // of the next token
    std::uint64_t since_grant = 0;  // tokens since the last grant of credit
    bool ended = false;
  };
  std::vector<Choice> choices;  // used by the reader thread only
  std::mutex mutex;
  std::condition_variable ended;
  std::optional<Result<Ended>> end;
};

Stream::Stream(std::shared_ptr<State> state) : state_(std::move(state)) {}

std::uint64_t Stream::id() const { return state_->id; }

void Stream::cancel() const {
  v1::ClientFrame frame;
  frame.mutable_cancel()->set_stream(state_->id);
  state_->connection->tell(frame);
}

void Stream::credit(std::uint64_t tokens, std::uint32_t choice) const { state_->grant(tokens, choice); }

Result<Ended> Stream::wait() const {
  if (state_->connection->on_reader()) return inside_callback();
  std::unique_lock lock(state_->mutex);
  state_->ended.wait(lock, [&] { return state_->end.has_value(); });
  return *state_->end;
}

std::optional<Result<Ended>> Stream::wait_for(std::chrono::milliseconds timeout) const {
  if (state_->connection->on_reader()) return inside_callback();
  std::unique_lock lock(state_->mutex);
  if (!state_->ended.wait_for(lock, timeout, [&] { return state_->end.has_value(); })) return std::nullopt;
  return *state_->end;
}

struct Client::Impl {
  // Sends a request that one frame answers, and waits for it. `fill` writes the body into a frame for a stream number.
  template <class Fill>
  Result<v1::ServerFrame> ask(Fill fill) {
    if (connection->on_reader()) return inside_callback();
    const std::uint64_t stream = connection->next_stream();
    v1::ClientFrame frame;
    fill(frame, stream);
    const auto question = std::make_shared<Question>();
    if (Status sent = connection->request(stream, frame, question); !sent) return sent.error();
    auto answer = question->wait_for(request_timeout);
    if (answer && answer->has_failed()) return Error{ErrorCode::io, answer->failed().message()};
    if (answer && answer->has_done()) return Error{ErrorCode::io, "the server ended the request: it stops"};
    return answer;
  }

  // One attempt of complete_all().
  Result<std::vector<Completion>> complete_once(Client& client, const Request& request,
                                                std::optional<std::chrono::milliseconds> timeout) const;

  std::shared_ptr<Connection> connection;
  std::chrono::milliseconds request_timeout{0};
  ServerInfo info;
};

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
    auto connection = Connection::open(path, options.name, options.strict_modes, options.connect_timeout);
    if (connection) {
      auto impl = std::make_unique<Impl>();
      impl->connection = std::move(*connection);
      impl->request_timeout = options.request_timeout;
      const v1::Welcome& welcome = impl->connection->welcome();
      impl->info = {.protocol = welcome.protocol(),
                    .server = welcome.server(),
                    .numerics_id = welcome.numerics_id(),
                    .health = to_health(welcome.health()),
                    .max_frame_bytes = welcome.limits().max_frame_bytes(),
                    .max_streams = welcome.limits().max_streams(),
                    .max_choices = welcome.limits().max_choices(),
                    .max_embed_inputs = welcome.limits().max_embed_inputs(),
                    .max_outbox_bytes = welcome.limits().max_outbox_bytes(),
                    .stall_timeout = to_ms(welcome.limits().stall_timeout_ms()),
                    .distrust = impl->connection->distrust()};
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
  const auto state = std::make_shared<Stream::State>(impl_->connection, stream, std::move(callbacks), num_choices,
                                                     !request.credit.has_value());
  if (Status sent = impl_->connection->request(stream, to_frame(stream, request), state); !sent) return sent.error();
  return Stream(state);
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
  };
  const auto conclude = [completions](const Result<Ended>& ended) {
    if (ended) (*completions)[ended->choice].ended = *ended;
  };
  auto stream = client.generate(request, {.on_tokens = collect, .on_end = conclude});
  if (!stream) return stream.error();
  std::optional<Result<Ended>> ended;
  if (timeout) {
    ended = stream->wait_for(*timeout);
    if (!ended) {
      stream->cancel();
      ended = stream->wait_for(request_timeout);
    }
    if (!ended) return Error{ErrorCode::io, "the server did not answer a cancel in time"};
  } else {
    ended = stream->wait();
  }
  if (!*ended) return ended->error();
  std::vector<Completion> all;
  for (auto& [choice, completion] : *completions) all.push_back(std::move(completion));
  return all;
}

Result<std::vector<TokenId>> Client::tokenize(const std::string& text, bool add_special, bool parse_special,
                                              const std::string& model) {
  if (!is_utf8(text)) return not_utf8("the text");
  const auto answer = impl_->ask([&](v1::ClientFrame& frame, std::uint64_t stream) {
    v1::Tokenize& tokenize = *frame.mutable_tokenize();
    tokenize.set_stream(stream);
    tokenize.set_model(model);
    tokenize.set_text(text);
    tokenize.set_add_special(add_special);
    tokenize.set_parse_special(parse_special);
  });
  if (!answer) return answer.error();
  return std::vector<TokenId>(answer->tokenized().ids().begin(), answer->tokenized().ids().end());
}

Result<std::string> Client::detokenize(const std::vector<TokenId>& ids, const std::string& model) {
  const auto answer = impl_->ask([&](v1::ClientFrame& frame, std::uint64_t stream) {
    v1::Detokenize& detokenize = *frame.mutable_detokenize();
    detokenize.set_stream(stream);
    detokenize.set_model(model);
    detokenize.mutable_ids()->Add(ids.begin(), ids.end());
  });
  if (!answer) return answer.error();
  return answer->detokenized().raw();
}

Result<Embeddings> Client::embed(const EmbedRequest& request, std::optional<std::chrono::milliseconds> timeout) {
  if (impl_->connection->on_reader()) return inside_callback();
  if (!is_utf8(request.model)) return not_utf8("the model's name");
  const std::uint64_t stream = impl_->connection->next_stream();
  v1::ClientFrame frame;
  v1::Embed& embed = *frame.mutable_embed();
  embed.set_stream(stream);
  embed.set_model(request.model);
  if (const auto* texts = std::get_if<std::vector<std::string>>(&request.inputs)) {
    for (const std::string& text : *texts) {
      if (!is_utf8(text)) return not_utf8("a text");
      embed.add_texts(text);
    }
  } else {
    for (const std::vector<TokenId>& ids : std::get<std::vector<std::vector<TokenId>>>(request.inputs))
      embed.add_token_ids()->mutable_ids()->Add(ids.begin(), ids.end());
  }
  if (request.pooling) embed.set_pooling(static_cast<v1::Pooling>(static_cast<int>(*request.pooling) + 1));
  embed.set_normalise(request.normalise);
  embed.set_add_special(request.add_special);
  embed.set_parse_special(request.parse_special);
  const auto question = std::make_shared<Question>();
  if (Status sent = impl_->connection->request(stream, frame, question); !sent) return sent.error();
  auto answer = question->wait(timeout);
  if (!answer) {
    v1::ClientFrame cancel;
    cancel.mutable_cancel()->set_stream(stream);
    impl_->connection->tell(cancel);
    return Error{ErrorCode::io, fmt::format("the server did not answer within {} ms", timeout->count())};
  }
  if (!*answer) return answer->error();
  if ((*answer)->has_failed()) return Error{ErrorCode::io, (*answer)->failed().message()};
  if (!(*answer)->has_embeddings()) return Error{ErrorCode::io, "the server ended the request: it stops"};
  const v1::Embeddings& in = (*answer)->embeddings();
  const std::size_t num_inputs = std::visit([](const auto& inputs) { return inputs.size(); }, request.inputs);
  if (static_cast<std::size_t>(in.vectors_size()) != num_inputs)
    return Error{ErrorCode::protocol, fmt::format("the server breaks the protocol: it sends {} vectors for {} inputs",
                                                  in.vectors_size(), num_inputs)};
  Embeddings out;
  for (const v1::Embeddings::Vector& vector : in.vectors())
    out.vectors.emplace_back(vector.values().begin(), vector.values().end());
  out.pooling = in.pooling() == v1::POOLING_CLS    ? Pooling::cls
                : in.pooling() == v1::POOLING_LAST ? Pooling::last
                                                   : Pooling::mean;
  out.prompt_tokens = in.usage().prompt_tokens();
  return out;
}

Result<std::vector<ModelDescription>> Client::models() {
  const auto answer =
      impl_->ask([](v1::ClientFrame& frame, std::uint64_t stream) { frame.mutable_models()->set_stream(stream); });
  if (!answer) return answer.error();
  std::vector<ModelDescription> models;
  for (const v1::Models::Model& model : answer->models().models()) {
    ModelDescription& out = models.emplace_back();
    out.name = model.name();
    out.family = model.family();
    out.weight_types = model.weight_types();
    out.num_parameters = model.num_parameters();
    out.context = model.context();
    out.trained_context = model.trained_context();
    out.vocab_size = model.vocab_size();
    out.num_layers = model.num_layers();
    out.dim = model.dim();
    if (model.has_bos()) out.bos = model.bos();
    if (model.has_eos()) out.eos = model.eos();
    out.end_ids.assign(model.end_ids().begin(), model.end_ids().end());
    out.kv_bytes_per_token = model.kv_bytes_per_token();
    out.numerics_id = model.numerics_id();
  }
  return models;
}

Result<ServerStatus> Client::status(bool list_requests, bool profile) {
  const auto answer = impl_->ask([&](v1::ClientFrame& frame, std::uint64_t stream) {
    frame.mutable_status()->set_stream(stream);
    frame.mutable_status()->set_list_requests(list_requests);
    frame.mutable_status()->set_profile(profile);
  });
  if (!answer) return answer.error();
  return to_status(answer->status(), to_health(answer->status().health()));
}

Result<std::vector<LiveRequest>> Client::own_requests() {
  const auto answer = impl_->ask([](v1::ClientFrame& frame, std::uint64_t stream) {
    frame.mutable_status()->set_stream(stream);
    frame.mutable_status()->set_list_requests(true);
    frame.mutable_status()->set_this_connection(true);
  });
  if (!answer) return answer.error();
  return to_status(answer->status(), to_health(answer->status().health())).live_requests;
}

Status Client::cancel_request(std::uint64_t request) {
  const auto answer = impl_->ask([&](v1::ClientFrame& frame, std::uint64_t stream) {
    frame.mutable_cancel_request()->set_stream(stream);
    frame.mutable_cancel_request()->set_request(request);
  });
  if (!answer) return answer.error();
  return Ok{};
}

Result<Health> Client::health() {
  const auto answer =
      impl_->ask([](v1::ClientFrame& frame, std::uint64_t stream) { frame.mutable_health()->set_stream(stream); });
  if (!answer) return answer.error();
  return to_health(answer->health());
}

std::uint64_t Client::stray_frames() const { return impl_->connection->stray_frames(); }

bool Client::draining() const { return impl_->connection->draining(); }

void Client::close() { impl_->connection->close(); }

}  // namespace troupe::client
