#include "ipc/http/http_connection.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "actors/visible_models.h"
#include "ipc/frames/decode.h"
#include "ipc/http/authenticator.h"
#include "ipc/http/border.h"
#include "ipc/http/key_authenticator.h"
#include "ipc/http/request_id.h"
#include "ipc/keys/guess_limits.h"

namespace troupe::ipc::http {
namespace {

using scheduler::Outcome;
using Stage = RequestReader::Stage;

// What a client may send ahead of an answer; the rest stays in the socket.
constexpr std::size_t kMaxPendingBytes = 16u << 10;
// With so many bytes ahead nothing is read: how often it is checked whether the client has hung up.
constexpr std::chrono::milliseconds kHangUpInterval{100};
// Of a body at least so much must come within each stall_timeout.
constexpr std::size_t kMinBodyBytes = 1024;
// A request in the line of its tenant is woken when there may be room; this often it looks by itself, and an answer in
// pieces shows that it is alive.
constexpr std::chrono::milliseconds kLineInterval{1000};
// A request that waits for the model looks for it this often.
constexpr std::chrono::milliseconds kLoadInterval{50};

// Whether the tenant's model of this name or alias is loading; an empty one: its default model. A request for one that
// is loaded on request goes on: its load waits for it.
bool is_loading(const actors::Gateway& gateway, const scheduler::Tenant& tenant, const std::string& name) {
  for (const actors::ModelHealth& each : actors::visible_health(gateway, tenant)) {
    if (each.replacing || each.retiring) continue;
    if (name.empty() || each.name == name || std::ranges::find(each.aliases, name) != each.aliases.end())
      return each.readiness == actors::Readiness::loading && !each.on_request;
  }
  return false;
}

// Large bodies wait for room that all share (max_buffer_bytes).
BadRequest too_large_without_key() {
  return {413, fmt::format("without a key a body has at most {} bytes", kStrangerBodyBytes)};
}

// What a request takes of its tenant's limits, at most: its prompts are part of its body, and no token has less than a
// byte.
scheduler::RequestLoad load_of(const Asked& asked, std::size_t body_bytes, const actors::Gateway& gateway,
                               const scheduler::Tenant& tenant) {
  scheduler::RequestLoad load{
      .live = asked.num_choices, .waiting = asked.num_choices, .prompt_bytes = body_bytes, .texts = asked.num_texts};
  const auto model = asked.num_vectors > 0 ? actors::visible_model(gateway, tenant, asked.model) : nullptr;
  if (model)
    load.vector_bytes =
        body_bytes * (1 + sizeof(TokenId)) + std::uint64_t{asked.num_vectors} * model->info().dim * sizeof(float);
  return load;
}

bool needs_model(RequestKind kind) { return kind == RequestKind::generate || kind == RequestKind::embed; }

}  // namespace

HttpConnection::HttpConnection(Hub& hub, Caller caller, Socket&& socket, std::string received)
    : Connection(hub, std::move(caller), std::move(socket)),
      peer_(guessing_peer(caller_.address)),
      reader_(hub.options.limits.max_frame_bytes),
      pending_(std::move(received)),
      event_(hub.io, Clock::time_point::max()),
      resume_(hub.io),
      silence_timer_(hub.io),
      line_timer_(hub.io) {}

void HttpConnection::start() {
  spawn(read_loop());
  spawn(serve_loop());
  spawn(write_loop());
  hub_.arm_tick();
}

asio::awaitable<void> HttpConnection::read_loop() {
  const auto self = shared_from_this();
  asio::error_code error, ignored;
  while (socket_.is_open()) {
    // What comes after bytes that are no request is read once their answer has been sent.
    if ((pending_.size() >= kMaxPendingBytes || reader_.stage() == Stage::failed) && !lingering_) {
      resume_.expires_after(kHangUpInterval);
      co_await resume_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
      if (!socket_.is_open()) co_return;
      pollfd entry{.fd = socket_.native_handle(), .events = POLLRDHUP, .revents = 0};
      if (::poll(&entry, 1, 0) > 0) break;
      continue;
    }
    co_await socket_.async_wait(Socket::wait_read, asio::redirect_error(asio::use_awaitable, error));
    if (error) break;
    const std::size_t most = lingering_ ? hub_.scratch.size() : kMaxPendingBytes - pending_.size();
    std::size_t size = 0;
    {
      const Doing doing(hub_.activity, "reads over HTTP", "", active_for());
      size = socket_.read_some(asio::buffer(hub_.scratch, most), error);
      if (error == asio::error::would_block || error == asio::error::try_again) continue;
      if (error) break;
      last_read_ = Clock::now();
      if (closing_ || lingering_) continue;
      pending_.append(hub_.scratch.data(), size);
      event_.cancel();
    }
    // A client that sends a head byte by byte is read less often.
    const auto pause = pace_.after_read(size, std::exchange(request_ended_, false));
    for (const auto until = Clock::now() + pause; Clock::now() < until && socket_.is_open();) {
      resume_.expires_at(until);
      co_await resume_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    }
  }
  on_end_of_input(error && error != asio::error::eof);
}

void HttpConnection::on_end_of_input(bool is_broken) {
  if (!socket_.is_open()) return;
  input_ended_ = true;
  // A client that has closed its sending side waits for no tokens; what is answered already is sent.
  if (is_broken || lingering_ || awaits_gateway() || in_line_) return close();
  event_.cancel();
}

bool HttpConnection::awaits_gateway() const {
  if (!owes_answer()) return false;
  const Streams::Stream* const stream = streams_.find(answering_->number);
  return stream && !stream->choices.empty();
}

asio::awaitable<void> HttpConnection::something() {
  asio::error_code ignored;
  co_await event_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
}

bool HttpConnection::push_pending() {
  const std::size_t used = reader_.push(pending_);
  if (pending_.size() >= kMaxPendingBytes && used > 0) resume_.cancel();
  used == pending_.size() ? void(pending_ = std::string()) : void(pending_.erase(0, used));
  return reader_.stage() == Stage::head || reader_.stage() == Stage::complete || reader_.stage() == Stage::failed;
}

asio::awaitable<void> HttpConnection::serve_loop() {
  const auto self = shared_from_this();
  while (!closing_ && !end_after_writing_) {
    const Stage before = reader_.stage();
    if (push_pending()) {
      if (reader_.stage() == Stage::head) {
        co_await on_head();
      } else if (reader_.stage() == Stage::complete) {
        co_await on_request();
      } else {
        co_await fail_reading();
      }
      while (!closing_ && owes_answer()) co_await something();
      if (reader_.stage() == Stage::idle) head_since_ = Clock::now();
      hub_.arm_tick();
      continue;
    }
    if (before == Stage::idle && reader_.stage() == Stage::header) {
      head_since_ = Clock::now();
      hub_.arm_tick();
    }
    if (reader_.stage() == Stage::body) co_await make_room_for_body();
    if (!pending_.empty() || closing_) continue;
    if (input_ended_) break;
    co_await something();
  }
  if (!closing_ && !end_after_writing_) end_after_writing();  // the client sends no more requests
}

// A body that is announced has its room since on_head(); one in chunks gets it as it grows. Those that grow may wait
// for the room of one another: one that gets none in time gives up its own.
asio::awaitable<void> HttpConnection::make_room_for_body() {
  const std::size_t bytes = reader_.body_bytes();
  if (bytes <= kSmallFrameBytes || bytes <= input_.bytes()) co_return;
  if (is_stranger() && bytes > kStrangerBodyBytes) co_return reject(error_response(too_large_without_key()));
  const Clock::time_point begun = Clock::now();
  const bool has_room = co_await wait_for_room(std::min<std::uint64_t>(bytes * 2, hub_.options.limits.max_frame_bytes),
                                               begun + hub_.options.limits.stall_timeout);
  body_arrival_.excuse(Clock::now() - begun);
  if (has_room || closing_) co_return;
  reject(error_response(
      Refusal{.outcome = Outcome::queue_full,
              .message =
                  "there was no room for a body that comes in chunks beside others (max_buffer_bytes); send it again "
                  "later, with Content-Length",
              .field = "max_buffer_bytes",
              .limit = hub_.options.limits.max_buffer_bytes},
      answering_->dialect));
}

asio::awaitable<void> HttpConnection::on_head() {
  const RequestHead& head = reader_.head();
  begin_answering(head);
  if (outbox_is_full() || !user_->frames.take(Clock::now())) co_await wait_for_leave();
  if (closing_) co_return;
  if (caller_.is_tcp) {
    if (const auto wrong = check_host(head, hub_.options.http.border)) co_return reject(error_response(*wrong));
    if (const auto wrong = check_origin(head, hub_.options.http.border)) co_return reject(error_response(*wrong));
  }
  auto misdirected = choose_endpoint(head);
  if (const auto& why = caller_.refused; why && !may_come_by_key(head)) {
    answering_->framing.keep_alive = false;  // the next connection is asked for anew: rules may have changed
    must_linger_ = true;
    co_return reject(error_response(*why, answering_->dialect));
  }
  std::optional<api::ApiError> refused;
  if (endpoint_ && endpoint_->needs_key) co_await wait_for_tenant(refused);
  if (closing_) co_return;
  // Clients over TCP without a user are one tenant until they show a key: questions for a load balancer wait for none.
  if (caller_.is_known || (endpoint_ && endpoint_->cost == api::Cost::work && !refused)) co_await wait_after_refusals();
  if (closing_) co_return;
  if (misdirected) co_return reject(std::move(*misdirected));
  if (refused) co_return reject(error_response(*refused, endpoint_->dialect, Outcome::permission));
  if (endpoint_->cost == api::Cost::question && !user_->questions.take(Clock::now()))
    co_return reject(error_response(
        Refusal{.outcome = Outcome::quota,
                .message =
                    fmt::format("questions come more than {} times a second (max_questions_per_second); ask less often",
                                hub_.options.limits.max_questions_per_second),
                .field = "max_questions_per_second",
                .limit = hub_.options.limits.max_questions_per_second,
                .retry_after = user_->questions.seconds_to_next(Clock::now())},
        endpoint_->dialect));
  if (head.length.value_or(0) > kSmallFrameBytes) {
    if (is_stranger() && *head.length > kStrangerBodyBytes) co_return reject(error_response(too_large_without_key()));
    co_await wait_for_room(*head.length);
    if (!closing_) reader_.reserve_body();
  }
  if (closing_) co_return;
  reader_.read_body();
  body_mark_ = Clock::now();
  body_then_ = 0;
  body_arrival_.begin(body_mark_);
  if (reader_.stage() != Stage::body) co_return;
  if (head.expects_continue && pending_.empty()) outbox_->push({0, EncodedAnswer{"HTTP/1.1 100 Continue\r\n\r\n"}});
  hub_.arm_tick();
}

bool HttpConnection::may_come_by_key(const RequestHead& head) const {
  if (!hub_.options.http.authenticator) return false;
  return (endpoint_ && !endpoint_->needs_key) || !presented_key(head).empty();
}

bool HttpConnection::needs_key(const RequestHead& head) const {
  const Authenticator* const authenticator = hub_.options.http.authenticator.get();
  if (!authenticator) return false;
  // A client that the kernel's word lets in needs none, and any key but the page's means nothing then.
  if (caller_.is_tcp && hub_.options.http.kernel_names) {
    const std::string_view key = presented_key(head);
    return !key.empty() && (caller_.refused || authenticator->is_page_key(key));
  }
  // Load balancers ask for the health, and have no key.
  if (caller_.is_tcp) return !(endpoint_->kind == RequestKind::health && presented_key(head).empty());
  // On the Unix socket the kernel names the user. A proxy may pass a client's key on instead of naming a tenant.
  return !presented_key(head).empty() && !head.find("troupe-tenant") &&
         hub_.options.tenants.resolve(caller_.facts).trusted_proxy;
}

asio::awaitable<void> HttpConnection::wait_for_tenant(std::optional<api::ApiError>& refused) {
  const RequestHead& head = reader_.head();
  if (!needs_key(head)) {
    const std::string* label = head.find("troupe-tenant");
    if (caller_.is_tcp && hub_.options.http.kernel_names && (!label || !caller_.is_known)) {
      set_tenant(first_tenant(hub_, caller_));  // the request before may have had the page's key
      co_return;
    }
    if (!label || !caller_.is_known) {
      static_cast<void>(decide_tenant());
      co_return;
    }
    auto tenant = tenant_for(hub_.options.tenants, caller_.facts, *label, "Troupe-Tenant");
    if (const Refusal* refusal = std::get_if<Refusal>(&tenant))
      refused = api::api_error(*refusal);
    else
      set_tenant(std::get<scheduler::Tenant>(std::move(tenant)));
    co_return;
  }
  const auto decision = std::make_shared<std::optional<Authenticator::Decision>>();
  hub_.options.http.authenticator->decide(
      head, caller_.is_tcp ? caller_.address : fmt::format("uid {}", caller_.peer.uid),
      [decision, weak = weak_from_this(), &io = hub_.io](Authenticator::Decision decided) {
        asio::post(io, [decision, weak, decided = std::move(decided)]() mutable {
          *decision = std::move(decided);
          if (const auto self = weak.lock()) static_cast<HttpConnection&>(*self).event_.cancel();
        });
      });
  key_is_checked_ = true;
  while (!closing_ && !decision->has_value()) co_await something();
  key_is_checked_ = false;
  if (closing_) co_return;
  if (auto* error = std::get_if<api::ApiError>(&**decision)) {
    if (comes_as_stranger(hub_, caller_)) hub_.make_stranger(*this, true);
    refused = std::move(*error);
  } else if (const auto no_place = hub_.let_in(*this)) {
    refused = api::api_error(*no_place);
  } else {
    set_tenant(std::get<scheduler::Tenant>(std::move(**decision)));
    if (!comes_as_stranger(hub_, caller_)) co_return;
    outbox_->count_for(tenant_);
    input_.count_for(tenant_);
  }
}

void HttpConnection::begin_answering() { answering_.emplace(++number_, hub_.options.http.silence); }

void HttpConnection::begin_answering(const RequestHead& head) {
  begin_answering();
  answering_->framing = {.is_http11 = head.is_http11,
                         .keep_alive = head.keep_alive && !hub_.draining,
                         .is_head = head.method == "HEAD",
                         .fields = caller_.is_tcp ? cors_fields(head, hub_.options.http.border) : std::vector<Field>{}};
  answering_->id = request_id(head);
  answering_->asked_for = head.method + " " + head.path;
  if (head.path.starts_with("/api/")) answering_->dialect = api::Dialect::ollama;
  answering_->framing.fields.push_back({"X-Request-Id", answering_->id});
  endpoint_ = nullptr;
}

std::optional<Response> HttpConnection::choose_endpoint(const RequestHead& head) {
  const std::vector<const api::EndpointInfo*> endpoints = endpoints_at(head.path);
  if (endpoints.empty() && head.path != "*") {
    const bool is_ollama = answering_->dialect == api::Dialect::ollama;
    return error_response(
        api::ApiError{.status = 404,
                      .message = "there is no " + head.path + " here" +
                                 (is_ollama ? "; OpenAI's API is at /v1 (docs/api.md)" : "; see docs/api.md"),
                      .code = "not_found"},
        answering_->dialect);
  }
  const std::string_view wanted = head.method == "HEAD" ? "GET" : std::string_view(head.method);
  std::string allow = "OPTIONS";
  for (const api::EndpointInfo* each : endpoints) {
    if (each->method == wanted) endpoint_ = each;
    allow += fmt::format(", {}{}", each->method, each->method == "GET" ? ", HEAD" : "");
  }
  if (endpoint_) {
    answering_->dialect = endpoint_->dialect;
    answering_->kind = endpoint_->kind;
    return std::nullopt;
  }
  if (head.method == "OPTIONS") return Response{.status = 204, .content_type = {}, .fields = {{"Allow", allow}}};
  Response response =
      error_response(api::ApiError{.status = 405,
                                   .message = fmt::format("{} takes {}, not {}", head.path, allow, head.method),
                                   .code = "method_not_allowed"},
                     api::Dialect::openai);
  response.fields.push_back({"Allow", allow});
  return response;
}

void HttpConnection::reject(Response response) {
  if (reader_.head().has_body) {
    answering_->framing.keep_alive = false;
    must_linger_ = true;
  }
  respond(std::move(response));
  if (must_linger_) return end_after_writing();
  reader_.read_body();
  static_cast<void>(reader_.take());
}

asio::awaitable<void> HttpConnection::fail_reading() {
  const BadRequest& bad = reader_.error();
  co_await wait_after_refusals();
  if (closing_) co_return;
  if (!answering_) begin_answering();
  answering_->framing.keep_alive = false;
  must_linger_ = true;
  note_broken(bad.message);
  respond(error_response(bad));
  end_after_writing();
}

// Answers name the model and depend on its template, so they begin once it is there. Looks every kLoadInterval: nothing
// tells of a load's end, and a load takes longer.
asio::awaitable<void> HttpConnection::wait_until_loaded(std::string model, bool streams) {
  held_back_ = true;
  while (!closing_ && is_loading(*hub_.gateway, tenant_, model)) {
    if (streams) end_silence_of_load();
    co_await wait(kLoadInterval);
  }
  held_back_ = false;
}

// More than the gateway takes of a tenant waits here, and its bytes count as those of a body that is read. Where they
// have no room, the gateway refuses it.
asio::awaitable<void> HttpConnection::wait_in_line(const Asked& asked, std::size_t body_bytes) {
  const std::shared_ptr<Tally> tally = tally_;  // a reload may change the connection's
  const bool is_owner = tenant_.is_owner;
  const scheduler::RequestLoad load = load_of(asked, body_bytes, *hub_.gateway, tenant_);
  const auto has_room = [&] { return tally->line.has_room(load, hub_.gateway->room_of(tenant_)); };
  if ((!tally->line.is_empty(is_owner) || !has_room()) && input_.grow_to(body_bytes)) {
    const scheduler::RequestLine::Place place(tally->line, is_owner, [this] { line_timer_.cancel(); });
    const Clock::time_point begun = Clock::now();
    asio::error_code ignored;
    held_back_ = in_line_ = true;
    while (!closing_ && !hub_.draining && !(place.is_first() && has_room())) {
      if (asked.streams) end_silence_of_load();
      line_timer_.expires_after(kLineInterval);
      co_await line_timer_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    }
    held_back_ = in_line_ = false;
    answering_->waited = Clock::now() - begun;
  }
  if (closing_) co_return;
  answering_->has_place = has_room();
  answering_->held = tally_->line.take(load);
}

asio::awaitable<void> HttpConnection::on_request() {
  request_ended_ = true;
  Request request = reader_.take();
  const std::size_t body_bytes = request.body.size();
  Asked asked;
  const ReadContext context{.endpoint = endpoint_,
                            .tenant = tenant_,
                            .uid = caller_.peer.uid,
                            .max_prompt_bytes = max_prompt_bytes(hub_.options.limits.max_frame_bytes),
                            .gateway = hub_.gateway,
                            .asked = &asked};
  Act act;
  if (request.body.size() <= kMaxInlineFrameBytes) {
    const Doing doing(hub_.activity, "checks a request for ", endpoint_->path.data(), active_for());
    act = read_request(std::move(request), context);
  } else {
    co_await elsewhere([&] { act = read_request(std::move(request), context); });
  }
  if (!asked.ignored.empty()) answering_->framing.fields.push_back({"x-troupe-ignored", std::move(asked.ignored)});
  if (needs_model(endpoint_->kind)) co_await wait_until_loaded(asked.model, asked.streams);
  if (asked.num_choices > 0) co_await wait_in_line(asked, body_bytes);
  input_.shrink_to(0);
  if (closing_) co_return;
  answering_->model = std::move(asked.model);
  {
    const Doing doing(hub_.activity, "answers ", endpoint_->path.data(), active_for());
    act(*this);
    act = nullptr;
  }
  if (input_ended_ && awaits_gateway()) close();
}

std::optional<Clock::time_point> HttpConnection::idle_since() {
  const bool is_kept = number_ > 0 && !closing_ && !end_after_writing_ && !answering_ && !decoding_ && !held_back_ &&
                       !input_ended_ && pending_.empty() && reader_.stage() == Stage::idle && outbox_->bytes() == 0;
  return is_kept ? std::optional(head_since_) : std::nullopt;
}

Stranger HttpConnection::stranger() {
  Stranger self{.peer = peer_};
  if (!key_is_checked_) self.idle_since = head_since_;
  return self;
}

bool HttpConnection::has_unread() {
  if (outbox_->bytes() > 0) return false;
  char byte = 0;
  return !pending_.empty() || ::recv(socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

bool HttpConnection::watch(Clock::time_point now) {
  const ServerOptions& options = hub_.options;
  const auto too_late = [&](const std::string& why) {
    if (!answering_) begin_answering();
    answering_->framing.keep_alive = false;
    must_linger_ = true;
    break_off(why, answering_->opened ? std::string()
                                      : response_bytes(error_response(BadRequest{408, why}), answering_->framing));
    return false;
  };
  if (end_after_writing_) return false;
  switch (reader_.stage()) {
    case Stage::header:
      if (now - head_since_ >= options.limits.hello_timeout)
        return too_late(
            fmt::format("the request's head did not come within {} ms", options.limits.hello_timeout.count()));
      return true;
    case Stage::body:
      if (held_back_) body_mark_ = now;
      if (reader_.body_bytes() >= body_then_ + kMinBodyBytes) {
        body_mark_ = last_read_;
        body_then_ = reader_.body_bytes();
      }
      if (now - body_mark_ >= options.limits.stall_timeout)
        return too_late(
            fmt::format("the request's body did not come on for {} ms", options.limits.stall_timeout.count()));
      if (!held_back_ && body_arrival_.is_late(now, reader_.body_bytes(), options.limits.body_timeout))
        return too_late(
            fmt::format("the request's body was not complete after {} ms (body_timeout) and 1 s for each "
                        "{} bytes that had come; send it faster, or in smaller requests",
                        options.limits.body_timeout.count(), MessageArrival::kMinBodyRate));
      return true;
    default:
      break;
  }
  if (answering_ || decoding_ || held_back_) return false;
  const auto& limits = options.limits;
  const auto idle = number_ == 0    ? limits.hello_timeout
                    : is_stranger() ? std::min(limits.hello_timeout, limits.keep_alive_timeout)
                                    : limits.keep_alive_timeout;
  if (now - head_since_ < idle) return true;
  close();  // nothing is sent: a client would take it for the answer to its next request
  return false;
}

}  // namespace troupe::ipc::http

namespace troupe::ipc {

void serve_http(Hub& hub, Caller caller, Socket&& socket, std::string begun) {
  const auto client =
      std::make_shared<http::HttpConnection>(hub, std::move(caller), std::move(socket), std::move(begun));
  hub.remember(client);
  client->start();
}

}  // namespace troupe::ipc
