#include "bench/load/drivers/troupe_server.h"

#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "ipc/sockets/socket_path.h"

namespace troupe::load {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kRestPatience{10};
constexpr std::chrono::milliseconds kPoll{5};  // interval of status queries while waiting for the server

Result<std::unique_ptr<client::Client>> connect(const std::string& socket, bool strict_modes) {
  return client::Client::connect({.socket = socket, .strict_modes = strict_modes, .name = "troupe load"});
}

// Finds the one of the default paths that answers, because raw connections must go to the same server.
Result<TroupeServer> find_server(const std::string& socket, bool strict_modes) {
  std::vector<std::string> paths{socket};
  if (socket.empty()) {
    auto candidates = ipc::client_socket_paths(ipc::SocketEnvironment::current());
    if (!candidates) return candidates.error();
    paths = std::move(*candidates);
  }
  for (const std::string& path : paths)
    if (auto client = connect(path, strict_modes)) return TroupeServer{path, std::move(*client), {}, {}, strict_modes};
  auto last = connect(socket, strict_modes);  // its error names all paths
  if (!last) return last.error();
  return Error{ErrorCode::io, "the server appeared only now; try again"};
}

Status wait_until_ready(client::Client& client) {
  for (;;) {
    const auto health = client.health();
    if (!health) return health.error();
    switch (health->readiness) {
      case client::Readiness::ready:
      case client::Readiness::on_request:
        return Ok{};
      case client::Readiness::draining:
        return Error{ErrorCode::busy, "the server drains; it takes nothing new"};
      case client::Readiness::failed:
        return Error{ErrorCode::model_missing, "the server could not load its model"};
      case client::Readiness::loading:
        std::this_thread::sleep_for(20 * kPoll);
    }
  }
}

std::uint64_t num_live(const client::ServerStatus& status) {
  return status.count("requests_waiting") + status.count("requests_running") + status.count("requests_parked");
}

bool is_at_rest(const client::ServerStatus& status) {
  return num_live(status) == 0 && status.count("blocks_referenced") == 0;
}

std::uint64_t num_ended(const client::ServerStatus& status) {
  std::uint64_t sum = 0;
  for (const auto& [outcome, count] : status.requests_ended) sum += count;
  return sum;
}

}  // namespace

Result<TroupeServer> reach_troupe(const std::string& socket, bool strict_modes, const std::string& model) {
  auto server = find_server(socket, strict_modes);
  if (!server) return server.error();
  if (Status ready = wait_until_ready(*server->control); !ready) return ready.error();
  const auto models = server->control->models();
  if (!models) return models.error();
  std::string names;
  for (const client::ModelDescription& candidate : *models) {
    names += (names.empty() ? "" : ", ") + candidate.name;
    if (server->model.name.empty() && (model.empty() || candidate.name == model)) server->model = candidate;
  }
  if (server->model.name.empty())
    return Error{ErrorCode::model_missing, "the server has no model '" + model + "'; it serves " + names};
  const auto status = server->control->status();
  if (!status) return status.error();
  server->status = *status;
  return server;
}

Vocabulary vocabulary_of(const client::ModelDescription& model) {
  Vocabulary vocabulary{.size = model.vocab_size, .avoid = {}, .begin = model.bos, .context = model.context};
  if (model.bos) vocabulary.avoid.push_back(*model.bos);
  if (model.eos) vocabulary.avoid.push_back(*model.eos);
  return vocabulary;
}

client::Request to_client_request(const PlannedRequest& request, const std::string& model,
                                  const std::string& cache_scope) {
  client::Request out;
  out.model = model;
  std::visit([&](const auto& prompt) { out.prompt = prompt; }, request.prompt);
  out.sampling = request.sampling;
  out.cache_scope = cache_scope;
  return out;
}

Result<std::unique_ptr<client::Client>> connect_as(const TroupeServer& server, const std::optional<User>& user) {
  if (!user) return connect(server.socket, server.strict_modes);
  Result<std::unique_ptr<client::Client>> client = Error{ErrorCode::io, "not connected"};
  if (Status acted = act_as(*user, [&] { client = connect(server.socket, server.strict_modes); }); !acted)
    return acted.error();
  if (client) return client;
  return Error{client.error().code, fmt::format("as uid {}: {}", user->uid, client.error().message)};
}

client::EmbedRequest to_embed_request(const PlannedRequest& request, const std::string& model) {
  client::EmbedRequest out;
  out.model = model;
  if (const auto* ids = std::get_if<std::vector<TokenId>>(&request.prompt))
    out.inputs = std::vector<std::vector<TokenId>>{*ids};
  else
    out.inputs = std::vector<std::string>{std::get<std::string>(request.prompt)};
  return out;
}

std::string text_of(const PlannedRequest& request) {
  if (const auto* text = std::get_if<std::string>(&request.prompt)) return *text;
  std::string words;
  for (const TokenId id : std::get<std::vector<TokenId>>(request.prompt)) words += fmt::format("{:x} ", id);
  return words;
}

Status warm_prefixes(const Plan& plan, client::Client& client, const std::string& model,
                     const std::string& cache_scope) {
  for (const std::vector<TokenId>& prefix : plan.prefixes()) {
    client::Request request;
    request.model = model;
    request.prompt = prefix;
    request.cache_scope = cache_scope;
    request.sampling.max_tokens = 1;
    const auto answer = client.complete(request);
    if (!answer) return answer.error();
    if (!answer->ended.done())
      return Error{ErrorCode::invalid_argument, "a shared prefix cannot be warmed: " + answer->ended.message};
  }
  return Ok{};
}

Result<ServerAccount> account_since(client::Client& client, const client::ServerStatus& before) {
  const Clock::time_point give_up = Clock::now() + kRestPatience;
  for (;;) {
    const auto after = client.status();
    if (!after) return after.error();
    const bool at_rest = is_at_rest(*after);
    if (!at_rest && Clock::now() < give_up) {
      std::this_thread::sleep_for(kPoll);
      continue;
    }
    const auto since = [&](std::string_view key) { return after->count(key) - before.count(key); };
    return ServerAccount{.at_rest = at_rest,
                         .received = since("requests_received"),
                         .ended = num_ended(*after) - num_ended(before),
                         .prompt_tokens = since("prompt_tokens"),
                         .cached_tokens = since("cached_tokens"),
                         .prefix_blocks_computed = since("prefix_blocks_computed"),
                         .evictions = since("evictions"),
                         .preemptions = since("preemptions"),
                         .worker_restarts = since("worker_restarts"),
                         .connections_accepted = since("connections_accepted"),
                         .connections_refused = since("connections_refused"),
                         .connections_broken = since("connections_broken"),
                         .requests_before = num_live(before),
                         .requests_left = num_live(*after),
                         .blocks_held = after->count("blocks_referenced")};
  }
}

}  // namespace troupe::load
