#include "tests/fuzz/frame_run.h"

#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/util/message_differencer.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <unistd.h>

#include <asio/post.hpp>
#include <asio/use_future.hpp>
#include <cerrno>
#include <utility>

#include "actors/serving/encoding.h"
#include "actors/serving/model_cache.h"
#include "config/assert.h"
#include "config/utf8.h"
#include "engine/chat/builtin_templates.h"
#include "engine/sampling/sampler.h"
#include "ipc/frames/unserved.h"
#include "tests/fuzz/fuzz_target.h"

namespace troupe::fuzz {
namespace {

using google::protobuf::util::MessageDifferencer;
using scheduler::Outcome;

constexpr std::uint32_t kUid = 4711;  // a guest: not the one that runs this, and not root
const scheduler::Tenant kGuest{.id = TenantId{kUid}};
constexpr std::uint32_t kTokensPerAnswer = 3;
// The pieces of an answer with tools, which ends within reasoning in some choices.
constexpr const char* kCall[kTokensPerAnswer] = {"no</think><tool_call>{\"name\": \"f\", \"argu",
                                                 "ments\": {\"a\": 1}}</tool", "_call> b"};

std::shared_ptr<const engine::LoadedModel> load_embedded() {
  engine::LoadOptions options;
  options.kernels = "scalar";
  options.num_blocks = 64;
  const auto model = engine::LoadedModel::load(TROUPE_MODELS "/tales-5m-tq2_0.gguf", options);
  TROUPE_ASSERT(model);
  return *model;
}

void check_refusal(Outcome code, const std::string& field, const std::string& message) {
  check_message(message);
  TROUPE_ASSERT(code != Outcome::invalid_argument || !field.empty());
}

void check_answer(const v1::ServerFrame& frame) {
  TROUPE_ASSERT(frame.body_case() != v1::ServerFrame::BODY_NOT_SET);
  if (frame.has_refused()) {
    const auto code = scheduler::outcome_from_number(static_cast<std::uint32_t>(frame.refused().code()));
    TROUPE_ASSERT(code && scheduler::info(*code).kind == scheduler::OutcomeKind::refused);
    check_refusal(*code, frame.refused().field(), frame.refused().message());
  }
  if (frame.has_failed()) check_message(frame.failed().message());
  for (const v1::CallPart& part : frame.tokens().calls())
    TROUPE_ASSERT(part.id().empty() == part.name().empty() && part.index() < engine::chat::kMaxCallsPerAnswer);
  TROUPE_ASSERT(!ipc::find_unserved(frame));
}

}  // namespace

JudgingGateway::JudgingGateway() {
  static const auto embedded = load_embedded();
  model_ = embedded;
  actors::ServedModel served(embedded);
  TROUPE_ASSERT(served.choose_chat_template({"chatml", std::string(*engine::chat::find_builtin_template("chatml"))}));
  served_ = std::make_shared<const actors::ServedModel>(std::move(served));
  limits_ = {.model = "tales",
             .vocab_size = model_->info().vocab_size,
             .has_vocabulary = true,
             .capacity = actors::capacity_of(*model_)};
}

JudgingGateway::~JudgingGateway() { TROUPE_ASSERT(live_.empty()); }

std::optional<actors::End> JudgingGateway::judge(const actors::Request& request) const {
  if (auto wrong = actors::check_shape(request)) return actors::refused(*std::move(wrong));
  if (auto wrong = actors::check_for_model(request, limits_)) return wrong;
  if (const auto* const chat = std::get_if<actors::ChatPrompt>(&request.prompt)) {
    const auto prompt = actors::render(*chat, *served_->chat_template(), *model_->tokenizer(), nullptr);
    if (!prompt) return actors::refusal(scheduler::Outcome::invalid_argument, "messages", prompt.error().message);
    const engine::EncodeOptions options{.add_special = request.add_special};
    return actors::check_length(request, model_->tokenizer()->encode(prompt->segments, options).size(), limits_);
  }
  const auto* text = std::get_if<std::string>(&request.prompt);
  const std::size_t num_tokens =
      text ? model_->tokenizer()
                 ->encode(*text, {.add_special = request.add_special, .parse_special = request.parse_special})
                 .size()
           : std::get<std::vector<TokenId>>(request.prompt).size();
  return actors::check_length(request, num_tokens, limits_);
}

// Two numbers for each input, at once.
actors::End embedded(const actors::EmbedInputs& asked) {
  TROUPE_ASSERT(asked.count() >= 1 && asked.count() <= actors::kMaxEmbedInputs);
  actors::End end;
  end.outcome = Outcome::eos;
  end.embeddings = std::make_shared<const actors::Embeddings>(
      actors::Embeddings{.pooling = asked.pooling.value_or(engine::Pooling::cls),
                         .dim = 2,
                         .values = std::vector<float>(2 * asked.count(), 0.5f)});
  return end;
}

actors::RequestId JudgingGateway::submit(actors::Request request, std::shared_ptr<actors::StreamSink> sink) {
  TROUPE_ASSERT(request.tenant.id == TenantId{kUid});
  TROUPE_ASSERT(request.num_choices >= 1 && request.num_choices <= actors::kMaxChoices);
  const actors::RequestId first = std::exchange(next_, next_ + request.num_choices);
  if (request.embed) {
    sink->end(embedded(*request.embed));
    return first;
  }
  const auto wrong = judge(request);
  for (std::uint32_t choice = 0; choice < request.num_choices; ++choice) {
    if (wrong) {
      actors::End end = *wrong;
      end.choice = choice;
      sink->end(std::move(end));
      continue;
    }
    ++num_accepted_;
    sink->admitted({.choice = choice, .in_reasoning = choice % 2 == 1});
    live_[first + choice] = {.choice = choice,
                             .sink = sink,
                             .calls_tools = request.tools.has_value(),
                             .credit = request.credit,
                             .wanted = std::min(kTokensPerAnswer, request.sampling.max_tokens)};
    advance(first + choice);
  }
  return first;
}

void JudgingGateway::advance(actors::RequestId id) {
  const auto found = live_.find(id);
  if (found == live_.end()) return;
  Live& live = found->second;
  for (; live.credit > 0 && live.sent < live.wanted; --live.credit) {
    actors::TokenRun run;
    run.choice = live.choice;
    run.first_index = live.sent++;
    run.ids = {static_cast<TokenId>(run.first_index)};
    run.text = live.calls_tools ? kCall[run.first_index] : "a";
    live.sink->tokens(std::move(run));
  }
  if (live.sent < live.wanted) return;
  const auto sink = std::move(live.sink);
  actors::End end;
  end.choice = live.choice;
  live_.erase(found);
  end.outcome = Outcome::length;
  sink->end(std::move(end));
}

void JudgingGateway::cancel(actors::RequestId id) {
  const auto found = live_.find(id);
  if (found == live_.end()) return;
  const auto sink = std::move(found->second.sink);
  actors::End end;
  end.choice = found->second.choice;
  live_.erase(found);
  end.outcome = Outcome::cancelled;
  sink->end(std::move(end));
}

void JudgingGateway::credit(actors::RequestId id, std::uint64_t tokens) {
  const auto found = live_.find(id);
  if (found == live_.end()) return;
  TROUPE_ASSERT(tokens <= (1ull << 33) && found->second.credit <= (1ull << 33));  // sums stay far from overflowing
  found->second.credit += tokens;
  advance(id);
}

void JudgingGateway::status(std::function<void(actors::StatusSnapshot)> done) {
  actors::StatusSnapshot snapshot;
  snapshot.readiness = actors::Readiness::ready;
  snapshot.model = limits_.model;
  done(std::move(snapshot));
}

std::vector<actors::ModelDescription> JudgingGateway::models() const {
  actors::ModelDescription description;
  description.name = limits_.model;
  description.info = model_->info();
  return {description};
}

actors::CancelFlag JudgingGateway::tokenize(actors::TextRequest, std::string text, engine::EncodeOptions options,
                                            actors::OnTokenized done) {
  done(model_->tokenizer()->encode(text, options));
  return std::make_shared<std::atomic<bool>>(false);
}

actors::CancelFlag JudgingGateway::detokenize(actors::TextRequest, std::vector<TokenId> ids,
                                              actors::OnDetokenized done) {
  if (engine::find_unknown_id(ids, limits_.vocab_size)) {
    done(actors::refusal(Outcome::invalid_argument, "ids", "an id is not in the vocabulary"));
  } else {
    done(model_->tokenizer()->decode(ids));
  }
  return std::make_shared<std::atomic<bool>>(false);
}

FrameRun::FrameRun() : gateway_(std::make_unique<JudgingGateway>()) {
  spdlog::set_level(spdlog::level::off);
  google::protobuf::SetLogHandler(nullptr);
  ipc::ServerOptions options;
  options.limits.max_frame_bytes = 1u << 20;
  options.limits.max_streams = 8;
  // A run waits for nothing.
  options.limits.max_frames_per_second = options.limits.max_questions_per_second =
      options.limits.max_refusals_per_second = 1u << 30;
  hub_ = std::make_unique<ipc::Hub>(options);
  hub_->gateway = gateway_.get();
}

FrameRun::~FrameRun() {
  hang_up();
  hub_->stop_ticking();
  settle();
}

void FrameRun::connect() {
  hang_up();
  int ends[2];
  TROUPE_ASSERT(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
  client_ = ends[0];
  server_closed_ = false;
  decoder_ = ipc::FrameDecoder(ipc::kMaxFrameBytesCeiling);
  answered_http_ = false;
  ipc::Socket socket(hub_->io, asio::generic::stream_protocol(AF_UNIX, 0), ends[1]);
  const auto session = std::make_shared<ipc::FrameConnection>(*hub_, std::move(socket), ipc::Peer{.uid = kUid});
  hub_->remember(session);
  session->start();
  settle();
}

void FrameRun::send(std::string_view bytes) {
  while (!bytes.empty() && is_open()) {
    const ssize_t sent = ::send(client_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) bytes.remove_prefix(static_cast<std::size_t>(sent));
    settle();
    if (sent < 0 && errno != EAGAIN) break;  // the server has closed, and has said why
  }
}

void FrameRun::hang_up() {
  if (client_ < 0) return;
  ::close(std::exchange(client_, -1));
  settle();
  // A session that waits before it reads more of a frame in crumbs looks for the end when the wait is over.
  for (int i = 0; i < 100 && !hub_->connections.empty(); ++i) {
    hub_->io.restart();
    hub_->io.run_one_for(ipc::ReadPace::kLongestWait);
    settle();
  }
  TROUPE_ASSERT(hub_->connections.empty());
  TROUPE_ASSERT(gateway_->num_live() == 0);
}

void FrameRun::settle() {
  for (bool busy = true; busy;) {
    hub_->io.restart();
    busy = hub_->io.poll() > 0;
    busy |= read_some();
    if (busy) continue;
    // Large frames are decoded by the pool's one thread: what it was given before this is back in `io` after it.
    asio::post(hub_->decoders, asio::use_future).get();
    hub_->io.restart();
    busy = hub_->io.poll() > 0;
  }
}

bool FrameRun::read_some() {
  if (!is_open()) return false;
  char bytes[16384];
  const ssize_t size = ::recv(client_, bytes, sizeof bytes, MSG_DONTWAIT);
  if (size < 0 && errno == EAGAIN) return false;
  if (size <= 0) {
    server_closed_ = true;
    TROUPE_ASSERT(!decoder_.mid_frame());  // its last words are whole
    return true;
  }
  answered_http_ |= std::string_view(bytes, static_cast<std::size_t>(size)).starts_with("HTTP/1.1 ");
  if (answered_http_) return true;
  decoder_.append({bytes, static_cast<std::size_t>(size)});
  for (;;) {
    const auto body = decoder_.next();
    TROUPE_ASSERT(body);
    if (!*body) return true;
    TROUPE_ASSERT((*body)->size() <= hub_->options.limits.max_frame_bytes);
    v1::ServerFrame frame;
    TROUPE_ASSERT(frame.ParseFromArray((*body)->data(), static_cast<int>((*body)->size())));
    check_answer(frame);
    answers_.push_back(std::move(frame));
  }
}

std::string framed(std::string_view body) {
  std::string bytes;
  ipc::append_frame_header(bytes, static_cast<std::uint32_t>(body.size()));
  return bytes.append(body);
}

std::string frame_bytes(const google::protobuf::MessageLite& message) { return framed(message.SerializeAsString()); }

v1::ClientFrame hello() {
  v1::ClientFrame frame;
  frame.mutable_hello()->set_protocol(1);
  frame.mutable_hello()->set_client("fuzz");
  return frame;
}

void check_body(std::string_view body) {
  v1::ClientFrame frame, again;
  if (!frame.ParseFromArray(body.data(), static_cast<int>(body.size()))) return;
  const std::string written = frame.SerializeAsString();
  TROUPE_ASSERT(again.ParseFromString(written));
  // Byte by byte, because a number that is none (NaN) is not equal to itself.
  TROUPE_ASSERT(again.SerializeAsString() == written);
  const auto unserved = ipc::find_unserved(frame);
  TROUPE_ASSERT(unserved.has_value() == ipc::find_unserved(again).has_value());
  if (unserved) check_message(unserved->message);
  if (!frame.has_generate()) return;
  if (const auto refusal = ipc::check_counts(frame))
    return check_refusal(refusal->outcome, refusal->field, refusal->message);
  const auto first = ipc::to_request(*frame.mutable_generate(), kGuest, actors::kMaxPromptBytes);
  const auto second = ipc::to_request(*again.mutable_generate(), kGuest, actors::kMaxPromptBytes);
  TROUPE_ASSERT(first.index() == second.index());
  if (const auto* refusal = std::get_if<ipc::Refusal>(&first))
    check_refusal(refusal->outcome, refusal->field, refusal->message);
  else
    TROUPE_ASSERT(std::get<actors::Request>(first).prompt == std::get<actors::Request>(second).prompt);
}

}  // namespace troupe::fuzz
