// Random clients, and the answer that each of them gets alone.
#pragma once

#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "tests/actors/stage.h"

namespace troupe::actors::test {

inline constexpr std::uint32_t kLongest = 40;

struct Client {
  RequestId id;
  std::shared_ptr<Listener> sink;
  std::vector<TokenId> prompt;
  bool drawn;
  std::uint32_t max_tokens;
};

// Prompts that share prefixes of two or three blocks, of ids that the smallest vocabulary has (512).
inline std::vector<TokenId> some_prompt(std::mt19937& random) {
  std::vector<TokenId> ids = {1};
  const auto family = static_cast<TokenId>(random() % 3);
  const std::size_t shared = 40 + 20 * static_cast<std::size_t>(family);
  while (ids.size() < shared) ids.push_back(300 + (static_cast<TokenId>(ids.size()) * 7 + family * 31) % 200);
  for (std::size_t own = random() % 4; own > 0; --own) ids.push_back(500 + static_cast<TokenId>(random() % 4));
  return ids;
}

// Prompts with different `salt` share no block.
inline Client client_with(std::size_t prompt_tokens, TokenId salt, std::uint32_t max_tokens) {
  Client client{.id = 0, .sink = std::make_shared<Listener>(), .prompt = {1}, .drawn = false, .max_tokens = max_tokens};
  while (client.prompt.size() < prompt_tokens)
    client.prompt.push_back(300 + (static_cast<TokenId>(client.prompt.size()) * 7 + salt * 31) % 200);
  return client;
}

inline Request request_for(const Client& client) {
  Request request;
  request.tenant.is_owner = true;
  request.prompt = client.prompt;
  request.sampling.temperature = client.drawn ? 1 : 0;
  request.sampling.seed = 9;
  request.sampling.max_tokens = client.max_tokens;
  request.sampling.ignore_eos = true;
  request.credit = ~std::uint64_t{0};
  return request;
}

// Submits the request and runs until its answer has ended.
template <class Sink = Listener>
std::shared_ptr<Sink> ask(Stage& stage, Request request) {
  auto sink = std::make_shared<Sink>();
  stage.submit(std::move(request), sink);
  stage.run_with_time();
  REQUIRE(sink->end_);
  return sink;
}

class Reference {
 public:
  explicit Reference(std::shared_ptr<engine::LoadedModel> model) { stage_.serve(std::move(model)); }

  const std::vector<TokenId>& of(Client client) {
    const auto [known, is_new] = known_.try_emplace({client.prompt, client.drawn});
    if (is_new) {
      client.max_tokens = kLongest;
      const auto sink = std::make_shared<Listener>();
      stage_.submit(request_for(client), sink);
      stage_.run();
      known->second = sink->ids;
    }
    return known->second;
  }

 private:
  Stage stage_;
  std::map<std::pair<std::vector<TokenId>, bool>, std::vector<TokenId>> known_;
};

// Whether it got a beginning of what it gets alone; all of it if it ended by its length. Call after its end.
inline void check_answer(const Client& client, Reference& reference) {
  REQUIRE(client.sink->end_);
  const std::vector<TokenId>& whole = reference.of(client);
  REQUIRE(client.sink->ids.size() <= client.max_tokens);
  CHECK(std::equal(client.sink->ids.begin(), client.sink->ids.end(), whole.begin()));
  if (client.sink->end_->outcome == scheduler::Outcome::length) CHECK(client.sink->ids.size() == client.max_tokens);
}

inline void check_all_came_back(Stage& stage) {
  const StatusSnapshot after = stage.status();
  CHECK(after.count("blocks_referenced") == 0);
  CHECK(after.count("blocks_free") + after.count("blocks_cached") == after.count("blocks_total"));
  CHECK(after.count("window_blocks_referenced") == 0);
  CHECK(after.count("window_blocks_free") + after.count("window_blocks_cached") == after.count("window_blocks_total"));
  CHECK(stage.streams.live().empty());
}

}  // namespace troupe::actors::test
