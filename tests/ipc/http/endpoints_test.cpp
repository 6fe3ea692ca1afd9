// What the endpoints answer, over the Unix socket.
#include "ipc/client/client.h"
#include "ipc/http/prometheus_text.h"
#include "tests/ipc/fixture.h"
#include "tests/ipc/http/http_client.h"

using namespace troupe;
using namespace troupe::ipc::test;
using namespace troupe::ipc::http::test;
using scheduler::Outcome;

TEST_CASE("http: one connection asks for health, version, models and metrics, one after the other") {
  FakeServer server;
  HttpClient client(server.path());
  client.get("/health");
  const HttpResponse health = client.expect();
  CHECK(health.status == 200);
  CHECK(health.body == R"({"status":"ok"})");
  CHECK(health.field("Content-Type") == "application/json");
  CHECK(health.field("Connection").empty());
  CHECK(health.field("Date").ends_with(" GMT"));
  client.get("/version");
  CHECK(has(client.expect().body, R"({"version":")"));
  client.get("/v1/models");
  const std::string models = client.expect().body;
  CHECK(has(models, R"("object":"list")"));
  CHECK(has(models, R"("id":"fake")"));
  client.get("/v1/models/fa%6be");
  const HttpResponse model = client.expect();
  CHECK(model.status == 200);
  CHECK(has(model.body, R"("id":"fake")"));
  client.get("/v1/models/other");
  const HttpResponse other = client.expect();
  CHECK(other.status == 404);
  CHECK(has(other.body, R"("code":"model_not_found")"));
}

TEST_CASE("http: models that are not loaded are listed behind those that serve") {
  FakeServer server;
  server.gateway.not_loaded = {
      {.name = "slow", .readiness = actors::Readiness::loading, .load_fraction = 0.25},
      {.name = "broken", .readiness = actors::Readiness::failed, .problem = "/home/me/model.gguf: damaged"}};
  HttpClient client(server.path());
  client.get("/v1/models");
  const std::string models = client.expect().body;
  CHECK(models.find(R"("id":"fake")") < models.find(R"("id":"slow")"));
  CHECK(has(models, R"("troupe":{"readiness":"ready")"));
  CHECK(has(models, R"("troupe":{"readiness":"loading","load_fraction":0.25})"));
  CHECK(has(models, R"("troupe":{"readiness":"failed","load_fraction":0})"));
  CHECK_FALSE(has(models, "/home/me"));
  client.get("/v1/models/broken");
  const HttpResponse broken = client.expect();
  CHECK(broken.status == 200);
  CHECK(has(broken.body, R"("readiness":"failed")"));
  client.get("/health");
  CHECK(client.expect().body == R"({"status":"ok"})");  // the one that serves is asked
}

TEST_CASE("http: a model with several names has a row for each") {
  FakeServer server;
  server.gateway.not_loaded = {
      {.name = "slow", .aliases = {"one", "two"}, .readiness = actors::Readiness::loading, .load_fraction = 0.25}};
  HttpClient client(server.path());
  client.get("/v1/models");
  const std::string models = client.expect().body;
  CHECK(has(models, R"({"readiness":"loading","aliases":["one","two"],"load_fraction":0.25})"));
  CHECK(models.find(R"("id":"slow")") < models.find(R"("id":"one")"));
  CHECK(models.find(R"("id":"one")") < models.find(R"("id":"two")"));
  client.get("/v1/models/two");
  CHECK(has(client.expect().body, R"({"readiness":"loading","alias_of":"slow","load_fraction":0.25})"));
}

TEST_CASE("http: /metrics is what `troupe status --prometheus` prints") {
  FakeServer server;
  HttpClient client(server.path());
  client.get("/metrics");  // so that there are numbers of it
  CHECK(client.expect().status == 200);
  client.get("/metrics");
  const HttpResponse answer = client.expect();
  CHECK(answer.status == 200);
  CHECK(answer.field("Content-Type").starts_with("text/plain; version=0.0.4"));
  auto native = client::Client::connect({.socket = server.path()});
  REQUIRE(native);
  const auto status = (*native)->status();
  REQUIRE(status);
  // The same metrics, whose numbers change from one question to the next.
  const auto names = [](const std::string& text) {
    std::string names;
    for (std::size_t at = 0; (at = text.find("# TYPE ", at)) != std::string::npos; ++at)
      names += text.substr(at, text.find('\n', at) - at) + "\n";
    return names;
  };
  CHECK(names(answer.body).size() > 100);
  CHECK(names(answer.body) == names(ipc::http::prometheus_text(*status)));
}

TEST_CASE("http: a server that loads or stands still is not healthy") {
  FakeServer server;
  server.gateway.stand_still();
  HttpClient client(server.path());
  client.get("/health");
  const HttpResponse answer = client.expect();
  CHECK(answer.status == 503);
  CHECK(has(answer.body, "unavailable_error"));
}

TEST_CASE("http: unknown paths and methods are refused, and the connection goes on") {
  FakeServer server;
  HttpClient client(server.path());
  client.get("/nothing");
  const HttpResponse unknown = client.expect();
  CHECK(unknown.status == 404);
  CHECK(has(unknown.body, R"({"error":{"message":"there is no /nothing here)"));
  client.get("/api/tags");  // Ollama's, whose clients want the error as a text
  const HttpResponse of_ollama = client.expect();
  CHECK(of_ollama.status == 404);
  CHECK(of_ollama.body == R"x({"error":"there is no /api/tags here; OpenAI's API is at /v1 (docs/api.md)"})x");
  client.get("/health", {}, "DELETE");
  const HttpResponse wrong = client.expect();
  CHECK(wrong.status == 405);
  CHECK(wrong.field("Allow") == "OPTIONS, GET, HEAD");
  client.get("/tokenize", {}, "OPTIONS");
  const HttpResponse options = client.expect();
  CHECK(options.status == 204);
  CHECK(options.field("Allow") == "OPTIONS, POST");
  CHECK(options.field("Access-Control-Allow-Origin").empty());
  client.get("*", {}, "OPTIONS");
  CHECK(client.expect().status == 204);
  client.get("/health", {}, "HEAD");
  const HttpResponse head = client.expect(/*has_body=*/false);
  CHECK(head.status == 200);
  CHECK(head.field("Content-Length") == "15");
  client.get("/health", {}, "BREW");
  CHECK(client.expect().status == 405);
  client.get("/health");
  CHECK(client.expect().status == 200);
}

TEST_CASE("http: texts become ids, and ids texts") {
  FakeServer server;
  HttpClient client(server.path());
  client.post("/tokenize", R"({"content":"AB"})");
  CHECK(has(client.expect().body, R"("tokens":[65,66])"));
  client.post("/detokenize", R"({"tokens":[65,66]})");
  CHECK(has(client.expect().body, R"("content":"AB")"));
  client.post("/detokenize", R"({"tokens":[65,66]})");
  CHECK(has(client.expect().body, R"("prompt":"AB")"));
  client.post("/tokenize", R"({"prompt":"AB","add_special_tokens":false})");
  CHECK(has(client.expect().body, R"("tokens":[65,66])"));
  client.post("/tokenize", R"({"content":)");
  CHECK(client.expect().status == 400);
  client.post("/tokenize", R"({"content":"AB","colour":"red"})");
  const HttpResponse unknown = client.expect();
  CHECK(unknown.status == 400);
  CHECK(has(unknown.body, "colour"));
  server.gateway.fail_texts(end_of(Outcome::loading));
  client.post("/tokenize", R"({"content":"AB"})");
  CHECK(client.expect().status == 503);
}

TEST_CASE("http: an answer that no outbox can hold is an error, and the connection goes on") {
  FakeServer server({.max_outbox_bytes = 8192});
  HttpClient client(server.path());
  client.post("/tokenize", R"({"content":")" + std::string(5000, 'A') + "\"}");
  const HttpResponse refused = client.expect();
  CHECK(refused.status == 413);
  CHECK(has(refused.body, "max_outbox_bytes"));
  CHECK(has(refused.body, "ask for less"));
  client.post("/tokenize", R"({"content":"AB"})");
  CHECK(client.expect().status == 200);
}

TEST_CASE("http: fields that are passed over are named in a header, also of an answer that streams") {
  FakeServer server;
  HttpClient client(server.path());
  for (const bool streams : {false, true}) {
    client.post("/v1/completions",
                std::string(R"({"prompt":"x","num_ctx":1,"keep_alive":-1,"stream":)") + (streams ? "true}" : "false}"));
    const auto submitted = server.gateway.wait_submitted(streams ? 1 : 0);
    submitted.sink->tokens(run_of(0, {1}, "a"));
    submitted.sink->end(end_of(Outcome::eos));
    const HttpResponse response = client.expect();
    CHECK(response.status == 200);
    CHECK(response.field("x-troupe-ignored") == "num_ctx, keep_alive");
  }
  client.post("/v1/completions", R"({"prompt":"x"})");
  const auto submitted = server.gateway.wait_submitted(2);
  submitted.sink->end(end_of(Outcome::eos));
  CHECK(client.expect().field("x-troupe-ignored").empty());
}

TEST_CASE("http: a completion comes as one body") {
  FakeServer server;
  HttpClient client(server.path());
  client.post("/v1/completions", R"({"model":"fake","prompt":"Once","max_tokens":5,"seed":1})");
  const auto submitted = server.gateway.wait_submitted(0);
  CHECK(std::get<std::string>(submitted.request.prompt) == "Once");
  CHECK(submitted.request.sampling.max_tokens == 5);
  submitted.sink->tokens(run_of(0, {1, 2}, " upon"));
  submitted.sink->tokens(run_of(2, {3}, " a time"));
  submitted.sink->end(end_of(Outcome::length));
  const HttpResponse answer = client.expect();
  CHECK(answer.status == 200);
  CHECK(has(answer.body, R"("text":" upon a time")"));
  CHECK(has(answer.body, R"("finish_reason":"length")"));
  client.get("/health");
  CHECK(client.expect().status == 200);
}

TEST_CASE("http: a streamed completion comes as events while it is made, and credit follows what is written") {
  FakeServer server;
  HttpClient client(server.path());
  client.post("/v1/completions", R"({"model":"fake","prompt":"Once","stream":true})");
  const auto submitted = server.gateway.wait_submitted(0);
  CHECK(submitted.request.credit > 0);
  submitted.sink->tokens(run_of(0, {1, 2}, " upon"));
  const HttpResponse head = client.expect_head();
  CHECK(head.status == 200);
  CHECK(head.field("Content-Type").starts_with("text/event-stream"));
  const auto first = client.receive_chunk();
  REQUIRE(first);
  CHECK(first->starts_with("data: {"));
  CHECK(first->ends_with("\n\n"));
  CHECK(has(*first, R"("text":" upon")"));
  CHECK(server.gateway.wait_credit(submitted.id, 2) == 2);
  submitted.sink->end(end_of(Outcome::eos));
  std::string rest;
  while (const auto chunk = client.receive_chunk()) {
    rest += *chunk;
    if (chunk->empty()) break;
  }
  CHECK(rest.ends_with("data: [DONE]\n\n"));
  client.get("/health");
  CHECK(client.expect().status == 200);
}

TEST_CASE("http: a request refused before its first token has the status of its refusal, also if it streams") {
  FakeServer server;
  for (const char* stream : {"false", "true"}) {
    HttpClient client(server.path());
    const std::size_t before = server.gateway.num_submitted();
    client.post("/v1/completions", std::string(R"({"model":"fake","prompt":"x","n":2,"stream":)") + stream + "}");
    for (std::size_t choice = 0; choice < 2; ++choice) {
      const auto submitted = server.gateway.wait_submitted(before + choice);
      actors::End end = end_of(Outcome::queue_full);
      end.choice = submitted.choice;
      end.message = "the queue is full";
      end.retry_after = std::chrono::milliseconds(1500);
      submitted.sink->end(std::move(end));
    }
    const HttpResponse answer = client.expect();
    CHECK(answer.status == 429);
    CHECK(answer.field("Retry-After") == "2");
    CHECK(has(answer.body, "the queue is full"));
    client.get("/health");
    CHECK(client.expect().status == 200);
  }
}

TEST_CASE("http: an unknown model is refused with 404 and its name") {
  FakeServer server;
  HttpClient client(server.path());
  client.post("/v1/completions", R"({"model":"other","prompt":"x"})");
  const HttpResponse answer = client.expect();
  CHECK(answer.status == 404);
  CHECK(has(answer.body, "other"));
}

TEST_CASE("http: the vectors of texts come as one body") {
  FakeServer server;
  HttpClient client(server.path());
  client.post("/v1/embeddings", R"({"model":"fake","input":["a","b"]})");
  const auto submitted = server.gateway.wait_submitted(0);
  REQUIRE(submitted.request.embed);
  CHECK(submitted.request.embed->count() == 2);
  actors::End end = end_of(Outcome::eos);
  end.embeddings = std::make_shared<const actors::Embeddings>(
      actors::Embeddings{.pooling = engine::Pooling::mean, .dim = 2, .values = {0.5f, 0.25f, 1, 2}});
  submitted.sink->end(std::move(end));
  const HttpResponse answer = client.expect();
  CHECK(answer.status == 200);
  CHECK(has(answer.body, "[0.5,0.25]"));
}

TEST_CASE("http: the openapi document names the paths") {
  FakeServer server;
  HttpClient client(server.path());
  client.get("/openapi.json");
  CHECK(has(client.expect().body, "/v1/completions"));
}

TEST_CASE("http: a conversation is answered in the shape of each API, in one body and as events") {
  FakeServer server;
  struct Api {
    std::string path, body, answer, last_event;
  };
  const std::vector<Api> apis{
      {"/v1/chat/completions", R"({"model":"fake","messages":[{"role":"user","content":"Hi"}])",
       R"("object":"chat.completion")", "data: [DONE]\n\n"},
      {"/v1/responses", R"({"model":"fake","store":false,"input":"Hi")", R"("object":"response")",
       "event: response.completed"},
      {"/v1/messages", R"({"model":"fake","max_tokens":9,"messages":[{"role":"user","content":"Hi"}])",
       R"("type":"message")", "event: message_stop"},
  };
  std::size_t index = 0;
  for (const Api& api : apis)
    for (const bool stream : {false, true}) {
      INFO(api.path << stream);
      HttpClient client(server.path());
      client.post(api.path, api.body + (stream ? ",\"stream\":true}" : "}"));
      const auto submitted = server.gateway.wait_submitted(index++);
      const auto& chat = std::get<actors::ChatPrompt>(submitted.request.prompt);
      REQUIRE(chat.messages.size() == 1);
      CHECK(chat.messages[0] == actors::ChatMessage{.role = "user", .content = "Hi"});
      CHECK(chat.add_generation_prompt);
      submitted.sink->tokens(run_of(0, {1}, "Hello"));
      submitted.sink->end(end_of(Outcome::eos));
      const HttpResponse answer = client.expect();
      CHECK(answer.status == 200);
      CHECK(has(answer.body, "Hello"));
      CHECK(has(answer.body, stream ? api.last_event : api.answer));
      CHECK(answer.field("Content-Type").starts_with(stream ? "text/event-stream" : "application/json"));
    }
}

TEST_CASE("http: errors of Anthropic's endpoints have Anthropic's shape") {
  FakeServer server;
  HttpClient client(server.path());
  client.post("/v1/messages", "{}");
  const HttpResponse wrong = client.expect();
  CHECK(wrong.status == 400);
  CHECK(has(wrong.body, R"({"type":"error","error":{"type":"invalid_request_error")"));
}

TEST_CASE("http: a conversation is shown and counted as the prompt that it would have") {
  FakeServer server;
  HttpClient client(server.path());
  client.post("/apply-template", R"({"messages":[{"role":"user","content":"Hi"}]})");
  CHECK(has(client.expect().body, R"("prompt":"user: Hi\nassistant:")"));
  client.post("/v1/messages/count_tokens", R"({"model":"fake","messages":[{"role":"user","content":"Hi"}]})");
  const HttpResponse count = client.expect();
  CHECK(count.status == 200);
  CHECK(has(count.body, R"("input_tokens":19)"));  // a byte is a token here
}
