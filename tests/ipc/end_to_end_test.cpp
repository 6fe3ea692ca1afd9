// Clients over a real socket, the real actors, the embedded model: the answers, and that they are the same every time.
#include <algorithm>
#include <future>
#include <random>

#include "tests/ipc/real_server.h"
#include "tests/support/shared_data.h"

namespace troupe::ipc {
namespace {

using namespace test;
using client::Completion;
using client::Request;
using scheduler::Outcome;

std::vector<TokenId> random_tokens(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<TokenId> ids(count);
  for (TokenId& id : ids) id = static_cast<TokenId>(300 + random() % 1700);  // of 2,048, no control tokens
  return ids;
}

TEST_CASE("an answer over the socket: text, ids, usage, seed, and the same from text and from ids") {
  RealServer server;
  const auto client = server.connect();
  const Completion text = complete(*client, seeded("Once upon a time", 24, 5));
  REQUIRE(text.ended.outcome == Outcome::length);
  REQUIRE(text.ended.seed == 5);
  REQUIRE(text.ids.size() == 24);
  REQUIRE(text.logprobs.size() == 24);
  REQUIRE(text.ended.usage.completion_tokens == 24);
  REQUIRE(text.ended.usage.ttft_seconds > 0);
  const auto ids = client->tokenize("Once upon a time");
  REQUIRE(ids);
  REQUIRE(text.ended.usage.prompt_tokens == ids->size());
  REQUIRE(same_bits(complete(*client, seeded(*ids, 24, 5)), text));
  REQUIRE(*client->detokenize(*ids) == "Once upon a time");
  const auto models = client->models();
  REQUIRE(models->size() == 1);
  REQUIRE(models->at(0).family == "bitnet");
  REQUIRE(models->at(0).vocab_size == 2048);
  REQUIRE(models->at(0).end_ids == std::vector<TokenId>{*models->at(0).eos});
  Request by_name = seeded("Once upon a time", 24, 5);
  by_name.model = models->at(0).name;
  REQUIRE(same_bits(complete(*client, by_name), text));
  REQUIRE(client->status()->numerics_id == models->at(0).numerics_id);
}

TEST_CASE("a conversation over the socket gets the answer to the prompt that its template makes") {
  actors::GatewayOptions options = embedded_model();
  options.model().chat_template = {
      "plain", "{{ bos_token }}{% for m in messages %}{{ m.name ~ m.content }}{% endfor %}{{ more }}"};
  RealServer server(options);
  const auto client = server.connect();
  const Completion text = complete(*client, seeded("Once upon a time", 12, 5));
  Request chat = seeded("", 12, 5);
  client::Conversation conversation;
  conversation.messages = {{.role = "user", .content = "upon a ", .name = "Once "}};
  conversation.variables = R"({"more": "time"})";
  chat.prompt = conversation;
  REQUIRE(same_bits(complete(*client, chat), text));
  REQUIRE(client->models()->at(0).chat_template == "plain");
  conversation.variables = "{";
  chat.prompt = conversation;
  const auto refused = client->complete(chat, kPatience);
  REQUIRE(refused);
  REQUIRE(refused->ended.outcome == Outcome::invalid_argument);
  REQUIRE(refused->ended.field == "messages");
  conversation.messages[0].content = "\xFF";
  chat.prompt = conversation;
  REQUIRE_FALSE(client->complete(chat, kPatience));
}

TEST_CASE("models with windows and with recurrent state give the same bits cold, from their cache, and four at once") {
  for (const std::string name : {"gemma3-F32", "falcon-h1-F32"}) {
    INFO(name);
    const auto path = troupe::test::shared_file("golden/" + name + ".gguf");
    if (!path) return;
    actors::GatewayOptions options;
    options.model().path = *path;
    options.num_threads = 2;
    options.model().load.num_blocks = 128;
    options.model().load.snapshot_every = 64;
    RealServer server(options);
    const auto client = server.connect();
    std::vector<TokenId> prompt = random_tokens(150, 6);
    for (TokenId& id : prompt) id %= 500;  // of 512
    Request request = seeded(prompt, 40, 5);
    const Completion cold = alone(*client, request);
    REQUIRE(cold.ids.size() == 40);
    REQUIRE(same_bits(complete(*client, request), cold));
    const Completion warm = complete(*client, request);
    REQUIRE(warm.ended.usage.cached_tokens == 128);
    REQUIRE(same_bits(warm, cold));
    request.n = 4;
    const auto four = client->complete_all(request, kPatience);
    REQUIRE(four);
    REQUIRE(same_bits(four->front(), cold));
    require_at_rest(*client);
    const auto status = wait_status(*client, [](const auto& s) { return s.count("window_blocks_referenced") == 0; });
    const bool has_windows = name == "gemma3-F32";
    REQUIRE((status.count("window_blocks_total") > 0) == has_windows);
    REQUIRE(status.count("window_blocks_free") + status.count("window_blocks_cached") ==
            status.count("window_blocks_total"));
    REQUIRE((status.count("window_blocks_cached") > 0) == has_windows);
    REQUIRE((status.count("snapshots_total") > 0) == !has_windows);
    REQUIRE((status.count("snapshots_cached") > 0) == !has_windows);
    REQUIRE((status.count("snapshot_hits") >= 2) == !has_windows);
  }
}

TEST_CASE("several answers come from one prefill, each the same again, and the first is what one alone is") {
  RealServer server;
  const auto client = server.connect();
  Request request = seeded(random_tokens(101, 4), 24, 5);
  request.n = 4;
  const auto four = client->complete_all(request, kPatience);
  REQUIRE(four);
  REQUIRE(four->size() == 4);
  REQUIRE(client->status()->count("prefix_blocks_computed") > 0);
  for (std::uint32_t choice = 0; choice < 4; ++choice) {
    const Completion& answer = four->at(choice);
    REQUIRE(answer.ended.choice == choice);
    REQUIRE(answer.ended.outcome == Outcome::length);
    REQUIRE(answer.ids.size() == 24);
    REQUIRE(answer.ended.usage.cached_tokens == (choice == 0 ? 0 : 100));
    for (std::uint32_t other = 0; other < choice; ++other) REQUIRE(answer.ids != four->at(other).ids);
  }
  const auto again = client->complete_all(request, kPatience);
  REQUIRE(again);
  for (std::size_t choice = 0; choice < 4; ++choice) REQUIRE(same_bits(again->at(choice), four->at(choice)));
  request.n = 1;
  REQUIRE(same_bits(complete(*client, request), four->front()));
  request.n = client->server().max_choices + 1;
  const auto refused = client->complete_all(request, kPatience);
  REQUIRE(refused);
  REQUIRE(refused->size() == 1);
  REQUIRE(refused->front().ended.field == "n");
  require_at_rest(*client);
}

TEST_CASE("a seed that the server drew gives the same answer again") {
  RealServer server;
  const auto client = server.connect();
  Request request = seeded("One day, a little cat", 24);
  request.sampling.seed.reset();
  const Completion first = complete(*client, request);
  request.sampling.seed = first.ended.seed;
  REQUIRE(same_bits(complete(*client, request), first));
}

TEST_CASE("what the model or the request forbids is refused by name with its numbers") {
  RealServer server;
  const auto client = server.connect();
  Request request = seeded("Once", 4);
  request.model = "gpt-9";
  Completion answer = complete(*client, request);
  REQUIRE(answer.ended.outcome == Outcome::unknown_model);
  REQUIRE(answer.ended.field == "model");
  answer = complete(*client, seeded(random_tokens(5000, 1), 4));
  REQUIRE(answer.ended.outcome == Outcome::too_long);
  REQUIRE(answer.ended.message.find("5000") != std::string::npos);
  request = seeded("Once", 4);
  request.sampling.top_p = 1.5f;
  answer = complete(*client, request);
  REQUIRE(answer.ended.outcome == Outcome::invalid_argument);
  REQUIRE(answer.ended.field == "sampling.top_p");
  answer = complete(*client, seeded(std::vector<TokenId>{1, 99999}, 4));
  REQUIRE(answer.ended.field == "token_ids");
  require_at_rest(*client);
}

TEST_CASE("stop strings end an answer over the socket and are not part of it") {
  RealServer server;
  const auto client = server.connect();
  const Completion whole = complete(*client, seeded("Once upon a time", 60, 3));
  const std::size_t space = whole.text.find(' ', 20);
  REQUIRE(space != std::string::npos);
  Request request = seeded("Once upon a time", 60, 3);
  request.stop = {whole.text.substr(space, 4)};
  const Completion cut = complete(*client, request);
  REQUIRE(cut.ended.outcome == Outcome::stop_string);
  REQUIRE(cut.ended.stop == request.stop[0]);
  REQUIRE(cut.text == whole.text.substr(0, whole.text.find(request.stop[0])));
}

// The requests of one client, one after the other, on a new connection.
std::vector<Completion> run_client(const RealServer& server, const std::vector<Request>& requests) {
  std::vector<Completion> answers;
  const auto client = client::Client::connect({.socket = server.path(), .connect_timeout = kPatience});
  if (!client) return answers;
  for (const Request& request : requests)
    if (auto answer = (*client)->complete(request, kPatience)) answers.push_back(std::move(*answer));
  return answers;
}

TEST_CASE("16 clients with 4 shared prefixes get what each request gets alone, and each prefix is computed once") {
  constexpr std::size_t kClients = 16, kPrefixes = 4, kRequestsEach = 4, kPrefixTokens = 200, kFullBlockTokens = 192;
  std::vector<std::vector<TokenId>> prefixes;
  for (std::size_t p = 0; p < kPrefixes; ++p) prefixes.push_back(random_tokens(kPrefixTokens, 100 + p));
  std::vector<std::vector<Request>> work(kClients);
  for (std::size_t c = 0; c < kClients; ++c)
    for (std::size_t r = 0; r < kRequestsEach; ++r) {
      std::vector<TokenId> prompt = prefixes[c % kPrefixes];
      const auto unique = static_cast<TokenId>(400 + c * kRequestsEach + r);
      prompt.push_back(unique);  // where the suffixes part
      for (const TokenId id : random_tokens(11, c * kRequestsEach + r)) prompt.push_back(id);
      work[c].push_back(seeded(prompt, 16, c * kRequestsEach + r));
    }

  RealServer crowd;
  std::vector<std::vector<Completion>> answers(kClients);
  {
    std::vector<std::thread> clients;
    for (std::size_t c = 0; c < kClients; ++c)
      clients.emplace_back([&, c] { answers[c] = run_client(crowd, work[c]); });
    for (std::thread& client : clients) client.join();
  }
  const auto observer = crowd.connect();
  require_at_rest(*observer);
  const client::ServerStatus status = *observer->status();
  constexpr std::uint64_t kCached = (kClients * kRequestsEach - kPrefixes) * kFullBlockTokens;
  CHECK(status.count("cached_tokens") == kCached);
  CHECK(status.count("prompt_tokens") == kClients * kRequestsEach * (kPrefixTokens + 12));
  std::uint64_t cached = 0;
  for (const auto& mine : answers) {
    REQUIRE(mine.size() == kRequestsEach);
    for (const Completion& answer : mine) cached += answer.ended.usage.cached_tokens;
  }
  CHECK(cached == kCached);

  RealServer quiet;
  const auto client = quiet.connect();
  for (std::size_t c = 0; c < kClients; ++c)
    for (std::size_t r = 0; r < kRequestsEach; ++r) {
      INFO("client " << c << ", request " << r);
      REQUIRE(same_bits(answers[c][r], alone(*client, work[c][r])));
    }
}

TEST_CASE("logprobs over the socket have the same bits alone, in a crowd, and after a prefix hit") {
  RealServer server;
  const auto client = server.connect();
  const std::vector<TokenId> prompt = random_tokens(150, 77);
  const Request request = seeded(prompt, 40, 9);
  const Completion reference = alone(*client, request);
  REQUIRE(reference.logprobs.size() == 40);

  const Completion cold = complete(*client, request);
  REQUIRE(cold.ended.usage.cached_tokens == 0);
  REQUIRE(same_bits(cold, reference));
  const Completion hit = complete(*client, request);
  REQUIRE(hit.ended.usage.cached_tokens == 128);  // 4 full blocks; the last token is never served from cache
  REQUIRE(same_bits(hit, reference));

  std::vector<client::Stream> strangers;
  for (std::uint64_t i = 0; i < 24; ++i) {
    auto stream = client->generate(seeded(random_tokens(10 + 13 * i, i), 60, i), {});
    REQUIRE(stream);
    strangers.push_back(*stream);
  }
  Request crowded = request;
  crowded.cache_scope = "crowd";
  REQUIRE(same_bits(complete(*client, crowded), reference));
  REQUIRE(same_bits(complete(*client, crowded), reference));  // a hit in a crowd
  for (const client::Stream& stream : strangers) REQUIRE(stream.wait()->outcome == Outcome::length);
  require_at_rest(*client);
}

TEST_CASE("128 shuffled requests over 8 prefixes with room for 3 find most of their blocks") {
  constexpr std::size_t kPrefixes = 8, kRequests = 128, kPrefixBlocks = 8;
  actors::GatewayOptions options = embedded_model();
  // Blocks for three prefixes and for four requests at a time (a block or two each).
  options.model().load.num_blocks = 3 * kPrefixBlocks + 8;
  options.max_sequences = 4;
  RealServer server(options);
  const auto client = server.connect();
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < kRequests; ++i) order.push_back(i);
  std::shuffle(order.begin(), order.end(), std::mt19937_64(4));
  std::vector<client::Stream> streams;
  const auto flush = [&] {
    std::uint64_t cached = 0;
    for (const client::Stream& stream : streams) {
      const auto end = stream.wait();
      REQUIRE(end);
      INFO(end->message);
      REQUIRE(end->outcome == Outcome::length);
      cached += end->usage.cached_tokens;
    }
    streams.clear();
    return cached;
  };
  std::uint64_t cached = 0;
  for (const std::size_t i : order) {
    std::vector<TokenId> prompt = random_tokens(kPrefixBlocks * 32, 900 + i % kPrefixes);
    prompt.push_back(static_cast<TokenId>(300 + i));
    auto stream = client->generate(seeded(prompt, 4, i), {});
    REQUIRE(stream);
    streams.push_back(*stream);
    if (streams.size() == 64) cached += flush();  // as many as a connection may have
  }
  cached += flush();
  const double hit = static_cast<double>(cached) / (kRequests * kPrefixBlocks * 32);
  INFO("share of prefix blocks found: " << hit);
  CHECK(hit >= 0.8);
  require_at_rest(*client);
}

TEST_CASE("a request that comes while the model is loading is answered when it is there") {
  RealServer server;  // returns before the model is loaded
  const auto client = server.connect();
  REQUIRE(complete(*client, seeded("Once", 2)).ended.outcome == Outcome::length);
}

TEST_CASE("a drain over the socket finishes what runs and refuses what is new") {
  RealServer server;
  const auto client = server.connect();
  const Completion reference = alone(*client, seeded("Once upon a time", 200, 8));
  std::promise<void> first_token;
  Completion got;
  Request held = seeded("Once upon a time", 200, 8);
  held.credit = 5;  // so that it still runs when the drain begins
  auto running = client->generate(held, {.on_tokens =
                                             [&](const client::Tokens& tokens) {
                                               if (tokens.first_index == 0) first_token.set_value();
                                               got.ids.insert(got.ids.end(), tokens.ids.begin(), tokens.ids.end());
                                             },
                                         .on_end = {}});
  REQUIRE(running);
  first_token.get_future().wait();
  std::promise<void> drained;
  server.server->drain([&] { drained.set_value(); });
  running->credit(1000);
  REQUIRE(running->wait()->outcome == Outcome::length);
  REQUIRE(client->draining());
  REQUIRE(got.ids == reference.ids);
  REQUIRE(drained.get_future().wait_for(kPatience) == std::future_status::ready);
  REQUIRE_FALSE(client->health());  // closed
  REQUIRE_FALSE(std::filesystem::exists(server.path()));
}

}  // namespace
}  // namespace troupe::ipc
