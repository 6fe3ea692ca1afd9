// The whole server on the embedded model, and a client's view of it.
#pragma once

#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "actors/gateway.h"
#include "ipc/client/client.h"
#include "ipc/server.h"
#include "tests/ipc/support.h"

namespace troupe::ipc::test {

inline actors::GatewayOptions embedded_model() {
  actors::GatewayOptions options;
  options.model().path = TROUPE_MODELS "/tales-5m-tq2_0.gguf";
  options.num_threads = 2;
  options.model().load.num_blocks = 1024;
  return options;
}

struct RealServer {
  explicit RealServer(actors::GatewayOptions gateway_options = embedded_model(), ServerOptions options = {}) {
    options.socket_path = dir / "troupe.sock";
    options.limits.max_questions_per_second =
        1u << 30;  // tests ask in loops until something is so, as fast as a machine can
    auto bound = Server::bind(std::move(options));
    REQUIRE(bound);
    server = std::move(*bound);
    auto started = actors::Gateway::start(std::move(gateway_options));
    if (!started) FAIL(started.error().message);
    gateway = std::move(*started);
    server->start(*gateway);
  }
  ~RealServer() { server->stop(); }

  const std::string& path() const { return server->socket_path(); }
  std::unique_ptr<client::Client> connect() const {
    auto client =
        client::Client::connect({.socket = path(), .connect_timeout = kPatience, .request_timeout = kPatience});
    if (!client) FAIL(client.error().message);
    return std::move(*client);
  }

  TempDir dir;
  std::unique_ptr<actors::Gateway> gateway;
  std::unique_ptr<Server> server;
};

// A repeatable request with logprobs, whose bits are compared.
inline client::Request seeded(decltype(client::Request::prompt) prompt, std::uint32_t max_tokens,
                              std::uint64_t seed = 1) {
  return {.prompt = std::move(prompt),
          .sampling = {.temperature = 0.8f, .seed = seed, .max_tokens = max_tokens, .ignore_eos = true},
          .logprobs = 2};
}

inline client::Completion complete(client::Client& client, const client::Request& request) {
  auto answer = client.complete(request, kPatience);
  if (!answer) FAIL(answer.error().message);
  return std::move(*answer);
}

// The answer to the request alone and with nothing cached for it: the caller ensures that no other request runs; a
// scope of its own ensures the rest.
inline client::Completion alone(client::Client& client, client::Request request) {
  static std::atomic<int> next{0};
  request.cache_scope = "alone-" + std::to_string(next++);
  client::Completion answer = complete(client, request);
  REQUIRE(answer.ended.usage.cached_tokens == 0);
  return answer;
}

// Same tokens, same text, and the same bits in every logprob.
inline bool same_bits(const client::Completion& a, const client::Completion& b) {
  const auto equal = [](float x, float y) { return std::memcmp(&x, &y, sizeof(x)) == 0; };
  if (a.ids != b.ids || a.text != b.text || a.logprobs.size() != b.logprobs.size()) return false;
  for (std::size_t i = 0; i < a.logprobs.size(); ++i) {
    if (!equal(a.logprobs[i].logprob, b.logprobs[i].logprob)) return false;
    if (a.logprobs[i].top.size() != b.logprobs[i].top.size()) return false;
    for (std::size_t k = 0; k < a.logprobs[i].top.size(); ++k)
      if (a.logprobs[i].top[k].id != b.logprobs[i].top[k].id ||
          !equal(a.logprobs[i].top[k].logprob, b.logprobs[i].top[k].logprob))
        return false;
  }
  return true;
}

// The server's status once `settled` is true for it, which takes no event from outside.
template <class Settled>
client::ServerStatus wait_status(client::Client& client, Settled settled) {
  const auto give_up = std::chrono::steady_clock::now() + kPatience;
  for (;;) {
    auto status = client.status();
    if (!status) FAIL(status.error().message);
    if (settled(*status)) return *status;
    if (std::chrono::steady_clock::now() > give_up) FAIL("the server's status did not settle");
    std::this_thread::yield();
  }
}

// Until the model is loaded: its name alone is known before.
inline void wait_ready(client::Client& client) {
  wait_status(client, [](const client::ServerStatus& s) { return s.health.readiness == client::Readiness::ready; });
}

inline std::uint64_t ended_as(const client::ServerStatus& status, const std::string& outcome) {
  for (const auto& [name, count] : status.requests_ended)
    if (name == outcome) return count;
  return 0;
}

// The server is at rest: nothing runs, nothing is referenced, every block is free or cached.
inline void require_at_rest(client::Client& client) {
  const auto status = wait_status(client, [](const client::ServerStatus& s) {
    return s.count("requests_waiting") + s.count("requests_running") + s.count("requests_parked") == 0 &&
           s.count("blocks_referenced") == 0;
  });
  REQUIRE(status.count("blocks_free") + status.count("blocks_cached") == status.count("blocks_total"));
}

}  // namespace troupe::ipc::test
