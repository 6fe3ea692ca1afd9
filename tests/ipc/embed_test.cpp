// Embed over the socket: the frames with a fake gateway, then the whole server with a small encoder.
#include <cmath>
#include <fstream>
#include <future>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/ipc/fixture.h"
#include "tests/ipc/http/http_client.h"
#include "tests/ipc/real_server.h"

namespace troupe::ipc {
namespace {

using namespace test;
using scheduler::Outcome;

v1::ClientFrame embed_frame(std::uint64_t stream, const std::vector<std::string>& texts) {
  v1::ClientFrame frame;
  frame.mutable_embed()->set_stream(stream);
  for (const std::string& text : texts) frame.mutable_embed()->add_texts(text);
  return frame;
}

void require_refused(RawClient& client, const v1::ClientFrame& frame, v1::Outcome code, const std::string& field) {
  REQUIRE(client.send(frame));
  const v1::ServerFrame answer = client.expect();
  REQUIRE(answer.has_refused());
  INFO(answer.refused().message());
  REQUIRE(answer.refused().stream() == frame.embed().stream());
  REQUIRE(answer.refused().code() == code);
  REQUIRE(answer.refused().field() == field);
}

actors::GatewayOptions tiny_encoder() {
  actors::GatewayOptions options;
  options.model().path = TROUPE_TEST_DATA "/tiny-bert.gguf";
  options.num_threads = 2;
  return options;
}

using Vectors = std::vector<std::vector<float>>;

nlohmann::json posted(ipc::http::test::HttpClient& client, const nlohmann::json& body) {
  client.post("/v1/embeddings", body.dump());
  const auto answer = client.expect();
  INFO(answer.body);
  return nlohmann::json::parse(answer.body);
}

}  // namespace

TEST_CASE("all fields of an Embed reach the gateway, and its answer reaches the client") {
  FakeServer server;
  RawClient client(server.path());
  REQUIRE(client.hello().limits().max_embed_inputs() == actors::kMaxEmbedInputs);
  v1::ClientFrame frame = embed_frame(7, {"one", "two"});
  frame.mutable_embed()->set_pooling(v1::POOLING_LAST);
  frame.mutable_embed()->set_normalise(false);
  frame.mutable_embed()->set_add_special(false);
  frame.mutable_embed()->set_parse_special(true);
  frame.mutable_embed()->set_truncate_to(100);
  REQUIRE(client.send(frame));
  const auto asked = server.gateway.wait_submitted(0);
  REQUIRE(asked.request.embed);
  REQUIRE(std::get<std::vector<std::string>>(asked.request.embed->texts) == std::vector<std::string>{"one", "two"});
  REQUIRE(asked.request.embed->pooling == engine::Pooling::last);
  REQUIRE_FALSE(asked.request.embed->normalise);
  REQUIRE_FALSE(asked.request.add_special);
  REQUIRE(asked.request.parse_special);
  REQUIRE(asked.request.embed->truncate == true);
  REQUIRE(asked.request.embed->most_tokens == 100);
  REQUIRE(asked.request.tenant.id == TenantId{::geteuid()});
  actors::End done;
  done.outcome = Outcome::eos;
  done.usage.prompt_tokens = 9;
  done.usage.truncated_tokens = 3;
  done.usage.cpu_seconds = 0.5;
  done.embeddings = std::make_shared<const actors::Embeddings>(
      actors::Embeddings{.pooling = engine::Pooling::last, .dim = 2, .values = {1, 2, 3, 4}});
  asked.sink->end(done);
  const v1::ServerFrame answer = client.expect();
  REQUIRE(answer.embeddings().stream() == 7);
  REQUIRE(answer.embeddings().vectors_size() == 2);
  REQUIRE(answer.embeddings().vectors(1).values(0) == 3);
  REQUIRE(answer.embeddings().pooling() == v1::POOLING_LAST);
  REQUIRE(answer.embeddings().usage().prompt_tokens() == 9);
  REQUIRE(answer.embeddings().usage().truncated_tokens() == 3);
  REQUIRE(answer.embeddings().receipt().prompt_tokens() == 9);
  REQUIRE(answer.embeddings().receipt().cpu_seconds() == 0.5);

  v1::ClientFrame plain;
  plain.mutable_embed()->set_stream(7);  // free again
  plain.mutable_embed()->add_token_ids()->add_ids(5);
  plain.mutable_embed()->add_token_ids()->add_ids(6);
  REQUIRE(client.send(plain));
  const auto ids = server.gateway.wait_submitted(1);
  REQUIRE(std::get<1>(ids.request.embed->texts) == std::vector<std::vector<TokenId>>{{5}, {6}});
  REQUIRE(ids.request.embed->pooling == std::nullopt);
  REQUIRE(ids.request.embed->normalise);
  REQUIRE(ids.request.add_special);
  REQUIRE(ids.request.embed->truncate == std::nullopt);
  actors::End failed;
  failed.outcome = Outcome::internal;
  failed.message = "why";
  ids.sink->end(failed);
  REQUIRE(client.expect().failed().message() == "why");
}

TEST_CASE("an Embed without inputs, with two kinds of them, or with too many is refused by its field") {
  FakeServer server({.max_frame_bytes = 65536});
  RawClient client(server.path());
  client.hello();
  require_refused(client, embed_frame(1, {}), v1::OUTCOME_INVALID_ARGUMENT, "texts");
  v1::ClientFrame both = embed_frame(2, {"a"});
  both.mutable_embed()->add_token_ids()->add_ids(1);
  require_refused(client, both, v1::OUTCOME_INVALID_ARGUMENT, "token_ids");
  require_refused(client, embed_frame(3, std::vector<std::string>(2049, "a")), v1::OUTCOME_INVALID_ARGUMENT, "texts");
  v1::ClientFrame pooling = embed_frame(4, {"a"});
  pooling.mutable_embed()->set_pooling(static_cast<v1::Pooling>(9));
  require_refused(client, pooling, v1::OUTCOME_INVALID_ARGUMENT, "pooling");
  v1::ClientFrame cut = embed_frame(7, {"a"});
  cut.mutable_embed()->set_truncate(false);
  cut.mutable_embed()->set_truncate_to(9);
  require_refused(client, cut, v1::OUTCOME_INVALID_ARGUMENT, "truncate_to");
  v1::ClientFrame model = embed_frame(5, {"a"});
  model.mutable_embed()->set_model("unknown");
  require_refused(client, model, v1::OUTCOME_UNKNOWN_MODEL, "model");
  v1::ClientFrame ids;
  ids.mutable_embed()->set_stream(6);
  auto& many = *ids.mutable_embed()->add_token_ids();
  for (int i = 0; i < 20000; ++i) many.add_ids(1);  // a byte each in the frame, four in memory
  require_refused(client, ids, v1::OUTCOME_TOO_LONG, "token_ids");
}

TEST_CASE("a cancelled Embed ends once, as Done{cancelled}; one of a closed connection is not computed") {
  FakeServer server;
  RawClient client(server.path());
  client.hello();
  REQUIRE(client.send(embed_frame(7, {"one"})));
  const auto asked = server.gateway.wait_submitted(0);
  v1::ClientFrame cancel;
  cancel.mutable_cancel()->set_stream(7);
  REQUIRE(client.send(cancel));
  REQUIRE(client.send(embed_frame(8, {"two"})));
  const auto next = server.gateway.wait_submitted(1);
  REQUIRE(server.gateway.wait_cancelled(1) == std::vector<actors::RequestId>{asked.id});
  const v1::ServerFrame answer = client.expect();
  REQUIRE(answer.done().stream() == 7);
  REQUIRE(answer.done().reason() == v1::OUTCOME_CANCELLED);
  client.hang_up();
  REQUIRE(server.gateway.wait_cancelled(2) == std::vector<actors::RequestId>{asked.id, next.id});
}

TEST_CASE("a server with an encoder: every client gets the same vectors, alone or at once") {
  RealServer server(tiny_encoder());
  const auto client = server.connect();
  while (client->health()->readiness != client::Readiness::ready) std::this_thread::yield();
  const std::vector<std::string> texts = {"Once upon a time", "cat", "The sun is red!"};
  Vectors alone;
  for (const std::string& text : texts) {
    const auto answer = client->embed({.inputs = std::vector{text}}, kPatience);
    if (!answer) FAIL(answer.error().message);
    REQUIRE(answer->pooling == client::Pooling::cls);
    REQUIRE(answer->vectors.size() == 1);
    REQUIRE(answer->vectors[0].size() == 64);
    alone.push_back(answer->vectors[0]);
  }
  std::vector<std::future<Vectors>> others;
  for (int i = 0; i < 4; ++i)
    others.push_back(std::async(std::launch::async, [&] {
      const auto own = server.connect();
      Vectors last;
      for (int round = 0; round < 20; ++round) last = own->embed({.inputs = texts}, kPatience)->vectors;
      return last;
    }));
  for (auto& other : others) REQUIRE(other.get() == alone);
  const auto ids = client->tokenize("cat");
  REQUIRE(ids->size() == 3);
  REQUIRE(client->embed({.inputs = std::vector<std::vector<TokenId>>{*ids}}, kPatience)->vectors[0] == alone[1]);
  double squares = 0;
  for (const float x : alone[0]) squares += double{x} * x;
  REQUIRE(squares == Approx(1).epsilon(1e-5));
  REQUIRE(client->embed({.inputs = texts, .pooling = client::Pooling::mean}, kPatience)->vectors != alone);
  REQUIRE(client->models()->at(0).family == "bert");
  REQUIRE(client->models()->at(0).numerics_id == client->status()->numerics_id);
  REQUIRE(client->status()->count("requests_running") == 0);
  REQUIRE(ended_as(*client->status(), "eos") == 3 + 80 + 2);
}

TEST_CASE("vectors beyond the outbox are refused before they are computed, and the connection goes on") {
  RealServer server(tiny_encoder(), {.limits = {.max_outbox_bytes = 65536}});
  const auto own = server.connect();
  while (own->health()->readiness != client::Readiness::ready) std::this_thread::yield();
  RawClient client(server.path());
  client.hello();
  require_refused(client, embed_frame(1, std::vector<std::string>(256, "cat")), v1::OUTCOME_TOO_LONG,
                  "max_outbox_bytes");
  REQUIRE(client.send(embed_frame(2, std::vector<std::string>(200, "cat"))));
  REQUIRE(client.expect().embeddings().vectors_size() == 200);
}

TEST_CASE("an encoder refuses to generate, with the reason") {
  RealServer encoder(tiny_encoder());
  const auto generated = encoder.connect()->complete({.prompt = "Once"}, kPatience);
  REQUIRE(generated);
  REQUIRE(generated->ended.outcome == Outcome::unsupported);
  REQUIRE(generated->ended.message.find("encoder") != std::string::npos);
}

TEST_CASE("a language model embeds with its hidden states, with the same bits while it generates") {
  RealServer server;
  const auto client = server.connect();
  while (client->health()->readiness != client::Readiness::ready) std::this_thread::yield();
  const std::vector<std::string> texts = {"Once upon a time", "The sun is red!"};
  const auto alone = client->embed({.inputs = texts}, kPatience);
  if (!alone) FAIL(alone.error().message);
  REQUIRE(alone->pooling == client::Pooling::last);
  REQUIRE(alone->vectors.size() == 2);
  REQUIRE(alone->vectors[0] != alone->vectors[1]);
  const auto before = client->complete({.prompt = "Once", .sampling = {.temperature = 0, .max_tokens = 24}}, kPatience);
  REQUIRE(before);
  auto other = std::async(std::launch::async, [&] {
    return server.connect()->complete({.prompt = "Once", .sampling = {.temperature = 0, .max_tokens = 24}}, kPatience);
  });
  for (int round = 0; round < 20; ++round)
    REQUIRE(client->embed({.inputs = texts}, kPatience)->vectors == alone->vectors);
  const auto beside = other.get();
  REQUIRE(beside);
  REQUIRE(beside->text == before->text);
  const std::vector<std::vector<TokenId>> too_long = {std::vector<TokenId>(4000, 5)};
  const auto refused = client->embed({.inputs = too_long}, kPatience);
  REQUIRE_FALSE(refused);
  REQUIRE(client->status()->count("requests_running") == 0);
}

TEST_CASE("embed over HTTP: texts that are too long are cut where the request says so") {
  RealServer server(tiny_encoder());
  const auto native = server.connect();
  while (native->health()->readiness != client::Readiness::ready) std::this_thread::yield();
  http::test::HttpClient client(server.path());
  const std::string text(1000, '!');
  const nlohmann::json refused = posted(client, {{"input", {text, "cat", text}}});
  CHECK_THAT(refused["error"]["message"].get<std::string>(),
             Catch::Contains("[0] has 1002 tokens") && Catch::Contains("[2] has 1002 tokens"));
  const nlohmann::json cut = posted(client, {{"input", {text, "cat"}}, {"truncate", true}});
  CHECK(cut["usage"]["truncated_tokens"] == 682);
  CHECK(cut["data"].size() == 2);
  const nlohmann::json as_many = posted(client, {{"input", text}, {"truncate_prompt_tokens", -1}});
  CHECK(as_many["data"][0]["embedding"] == cut["data"][0]["embedding"]);
  const nlohmann::json ten = posted(client, {{"input", text}, {"truncate_prompt_tokens", 10}});
  CHECK(ten["usage"]["prompt_tokens"] == 10);
  CHECK_FALSE(posted(client, {{"input", "cat"}, {"truncate", true}})["usage"].contains("truncated_tokens"));
  for (const nlohmann::json& wrong :
       {nlohmann::json{{"input", text}, {"truncate_prompt_tokens", 0}},
        nlohmann::json{{"input", text}, {"truncate_prompt_tokens", -2}},
        nlohmann::json{{"input", text}, {"truncate_prompt_tokens", 5}, {"truncate", false}}})
    CHECK(posted(client, wrong)["error"]["param"] == "truncate_prompt_tokens");
}

TEST_CASE("embed over HTTP: 2,048 texts of one request come back in their order") {
  RealServer server(tiny_encoder());
  const auto native = server.connect();
  while (native->health()->readiness != client::Readiness::ready) std::this_thread::yield();
  http::test::HttpClient client(server.path());
  const std::vector<std::string> words{"cat", "dog", "sun", "moon", "star"};
  std::vector<nlohmann::json> alone;
  for (const std::string& word : words) alone.push_back(posted(client, {{"input", word}})["data"][0]["embedding"]);
  nlohmann::json texts;
  for (std::size_t i = 0; i < actors::kMaxEmbedInputs; ++i) texts.push_back(words[i * i % words.size()]);
  const nlohmann::json answer = posted(client, {{"input", texts}});
  REQUIRE(answer["data"].size() == 2048);
  for (std::size_t i = 0; i < 2048; ++i) {
    CHECK(answer["data"][i]["index"] == i);
    CHECK(answer["data"][i]["embedding"] == alone[i * i % words.size()]);
  }
  texts.push_back("cat");
  CHECK(posted(client, {{"input", texts}})["error"]["param"] == "input");
}

TEST_CASE("embed over frames: texts that are too long are cut where the request says so") {
  RealServer server(tiny_encoder());
  const auto client = server.connect();
  while (client->health()->readiness != client::Readiness::ready) std::this_thread::yield();
  const std::string text(1000, '!');
  const auto refused = client->embed({.inputs = std::vector{text}}, kPatience);
  REQUIRE_FALSE(refused);
  CHECK_THAT(refused.error().message, Catch::Contains("texts[0] has 1002 tokens"));
  const auto cut = client->embed({.inputs = std::vector<std::string>{text, "cat"}, .truncate = true}, kPatience);
  REQUIRE(cut);
  CHECK(cut->truncated_tokens == 682);
  const auto whole = client->embed({.inputs = std::vector<std::string>{"cat"}}, kPatience);
  CHECK(whole->truncated_tokens == 0);
  CHECK(cut->prompt_tokens == 320 + whole->prompt_tokens);
  CHECK(cut->vectors[1] == whole->vectors[0]);
  const auto ten = client->embed({.inputs = std::vector{text}, .truncate_to = 10}, kPatience);
  REQUIRE(ten);
  CHECK(ten->prompt_tokens == 10);
  CHECK(ten->truncated_tokens == 992);
  CHECK_FALSE(client->embed({.inputs = std::vector{text}, .truncate = false, .truncate_to = 10}, kPatience));
}

TEST_CASE("embed: a server that was started with --embed-truncate cuts texts, unless a request says otherwise") {
  actors::GatewayOptions options = tiny_encoder();
  options.embed_truncate = true;
  RealServer server(std::move(options));
  const auto native = server.connect();
  while (native->health()->readiness != client::Readiness::ready) std::this_thread::yield();
  const std::string text(1000, '!');
  const auto cut = native->embed({.inputs = std::vector{text}}, kPatience);
  REQUIRE(cut);
  CHECK(cut->prompt_tokens == 320);
  http::test::HttpClient client(server.path());
  CHECK(posted(client, {{"input", text}})["usage"]["truncated_tokens"] == 682);
  CHECK(posted(client, {{"input", text}, {"truncate", false}}).contains("error"));
}

TEST_CASE("draining finishes running Embeds, and stopping ends the rest: no client waits for ever") {
  std::vector<std::future<Result<client::Embeddings>>> waiting;
  std::vector<std::unique_ptr<client::Client>> clients;
  {
    RealServer server(tiny_encoder());
    const auto first = server.connect();
    while (first->health()->readiness != client::Readiness::ready) std::this_thread::yield();
    const std::vector<std::vector<TokenId>> much(256, std::vector<TokenId>(320, 7));
    for (int i = 0; i < 4; ++i) {
      clients.push_back(server.connect());
      waiting.push_back(std::async(
          std::launch::async, [&client = *clients.back(), much] { return client.embed({.inputs = much}, kPatience); }));
    }
    while (first->status()->count("requests_running") == 0) std::this_thread::yield();
  }
  for (auto& each : waiting) {
    const auto answer = each.get();  // vectors, or that the server has gone
    if (answer) REQUIRE(answer->vectors.size() == 256);
  }
}

}  // namespace troupe::ipc
