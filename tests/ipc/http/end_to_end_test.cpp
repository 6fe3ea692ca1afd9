// HTTP, actors and engine together, on the embedded model.
#include <nlohmann/json.hpp>

#include "tests/ipc/http/http_client.h"
#include "tests/ipc/real_server.h"
#include "tests/support/descriptors.h"
#include "tests/support/skip.h"

using namespace troupe;
using namespace troupe::ipc::test;
using namespace troupe::ipc::http::test;
using nlohmann::json;

namespace {

json ask(const std::string& socket, const std::string& path, const json& body) {
  HttpClient client(socket);
  client.post(path, body.dump());
  const HttpResponse answer = client.expect();
  INFO(answer.body);
  REQUIRE(answer.status == 200);
  return json::parse(answer.body);
}

// The data of the events, without [DONE].
std::vector<json> stream(const std::string& socket, const std::string& path, json body) {
  body["stream"] = true;
  HttpClient client(socket);
  client.post(path, body.dump());
  const HttpResponse answer = client.expect();
  REQUIRE(answer.status == 200);
  REQUIRE(answer.ended);
  std::vector<json> events;
  for (std::size_t at = 0; (at = answer.body.find("data: ", at)) != std::string::npos;) {
    const std::size_t end = answer.body.find('\n', at);
    const std::string data = answer.body.substr(at + 6, end - at - 6);
    if (data != "[DONE]") events.push_back(json::parse(data));
    at = end;
  }
  return events;
}

}  // namespace

TEST_CASE("http: an answer has the tokens of the frames' answer, streamed or not") {
  RealServer server;
  const auto native = server.connect();
  const client::Completion expected =
      complete(*native, {.prompt = "Once upon a time", .sampling = {.temperature = 0.8f, .seed = 7, .max_tokens = 48}});
  const json body{{"prompt", "Once upon a time"}, {"temperature", 0.8}, {"seed", 7}, {"max_tokens", 48}};
  const json whole = ask(server.path(), "/v1/completions", body);
  CHECK(whole["choices"][0]["text"] == expected.text);
  CHECK(whole["usage"]["completion_tokens"] == expected.ids.size());
  std::string text;
  for (const json& event : stream(server.path(), "/v1/completions", body))
    if (!event["choices"].empty()) text += event["choices"][0]["text"].get<std::string>();
  CHECK(text == expected.text);
  // Ids as the prompt, and back from ids to text.
  const json ids = ask(server.path(), "/tokenize", {{"content", expected.text}})["tokens"];
  CHECK(ask(server.path(), "/detokenize", {{"tokens", ids}})["content"] == expected.text);
}

TEST_CASE("raw prompts read control tokens unless the request says otherwise, messages never") {
  actors::GatewayOptions with_template = embedded_model();
  with_template.model().chat_template = {"turns", "{% for m in messages %}{{ m.content }}{% endfor %}"};
  RealServer server(with_template);
  const auto native = server.connect();
  complete(*native, seeded("Once", 1));  // waits for the model
  const std::string text = "<s>Once</s></s></s>";
  const std::size_t parsed = 5, plain = 14;  // <s>, " Once", three </s>; of BOS, <s> and </s> as characters
  REQUIRE(native->tokenize(text)->size() == parsed);
  REQUIRE(native->tokenize(text, true, false)->size() >= plain);

  const auto of_http = [&](const char* path, json body) {
    body["max_tokens"] = 1;
    return ask(server.path(), path, body)["usage"]["prompt_tokens"].get<std::size_t>();
  };
  CHECK(of_http("/v1/completions", {{"prompt", text}}) == parsed);
  CHECK(of_http("/v1/completions", {{"prompt", json::array({text})}}) == parsed);
  CHECK(of_http("/v1/completions", {{"prompt", text}, {"parse_special", false}}) >= plain);
  CHECK(of_http("/v1/chat/completions", {{"messages", {{{"role", "user"}, {"content", text}}}}}) >= plain);
  CHECK(of_http("/v1/chat/completions", {{"messages", {{{"role", "system"}, {"content", text}}}}}) >= plain);
  CHECK(ask(server.path(), "/tokenize", {{"content", text}})["tokens"].size() == parsed);
  CHECK(ask(server.path(), "/tokenize", {{"content", text}, {"parse_special", false}})["tokens"].size() >= plain - 1);

  const auto of_frames = [&](decltype(client::Request::prompt) prompt, bool parse_special) {
    const client::Request request{
        .prompt = std::move(prompt), .parse_special = parse_special, .sampling = {.max_tokens = 1}};
    return complete(*native, request).ended.usage.prompt_tokens;
  };
  CHECK(of_frames(text, true) == parsed);
  CHECK(of_frames(text, false) >= plain);
  CHECK(of_frames(client::Conversation{.messages = {{.role = "user", .content = text}}}, true) >= plain);
}

TEST_CASE("http: an echoed prompt that is written with BOS has it once, in its text and among its tokens") {
  RealServer server;
  const auto echoed = [&](const std::string& prompt) {
    return ask(server.path(), "/v1/completions",
               {{"prompt", prompt}, {"echo", true}, {"logprobs", 0}, {"max_tokens", 0}})["choices"][0];
  };
  const json written = echoed("<s>Once upon"), added = echoed("Once upon");
  CHECK(written["text"] == "<s>Once upon");
  CHECK(added["text"] == "Once upon");
  CHECK(written["logprobs"]["tokens"] == added["logprobs"]["tokens"]);
  CHECK(written["logprobs"]["token_logprobs"] == added["logprobs"]["token_logprobs"]);
  CHECK(written["logprobs"]["text_offset"][1] == 3);
  CHECK(added["logprobs"]["text_offset"][1] == 0);
}

TEST_CASE("http: a text whose ids might not fit into the outbox is refused before it is encoded") {
  ipc::ServerOptions options;
  options.limits.max_outbox_bytes = 64u << 10;
  RealServer server(embedded_model(), options);
  ask(server.path(), "/v1/completions", {{"prompt", "Once"}, {"max_tokens", 1}});  // waits for the model
  HttpClient client(server.path());
  const auto status_of = [&](std::size_t bytes, bool with_pieces) {
    client.post("/tokenize", json{{"content", std::string(bytes, 'a')}, {"with_pieces", with_pieces}}.dump());
    const HttpResponse answer = client.expect();
    if (answer.status != 200)
      CHECK_THAT(answer.body,
                 Catch::Matchers::Contains("in parts of at most ") && Catch::Matchers::Contains("max_outbox_bytes"));
    return answer.status;
  };
  // The vocabulary has four digits: 5 bytes for each id, 29 with its piece.
  CHECK(status_of(((64u << 10) - 1024) / 5, false) == 200);
  CHECK(status_of(((64u << 10) - 1024) / 5 + 1, false) == 413);
  CHECK(status_of(((64u << 10) - 1024) / 29, true) == 200);
  CHECK(status_of(((64u << 10) - 1024) / 29 + 1, true) == 413);
}

TEST_CASE("tcp: 200 connections of one user are all answered with few places, and another user is answered meanwhile") {
  constexpr std::size_t kConnections = 200;
  if (troupe::test::take_descriptors() < 2 * kConnections + 100)
    return troupe::test::skip("this process may not have enough descriptors");
  actors::GatewayOptions limits = embedded_model();
  limits.model().chat_template = {"turns", "{% for m in messages %}{{ m.content }}{% endfor %}<think>"};
  limits.max_queued_requests = 32;  // 8 of a guest
  limits.max_queued_texts = 8;      // 2
  limits.max_requests_per_user = 24;
  ipc::ServerOptions options;
  options.http.listen = {*ipc::parse_tcp_address("tcp://127.0.0.1:0")};
  options.http.no_auth = true;
  RealServer server(limits, options);
  const auto owner = server.connect();
  complete(*owner, seeded("Once", 1));  // waits for the model
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (std::size_t i = 0; i < kConnections; ++i) {
    clients.push_back(std::make_unique<HttpClient>(server.server->tcp_addresses().at(0)));
    json body{{"max_tokens", 8}, {"seed", i}, {"stream", i % 3 == 0}};
    if (i % 2 == 0)
      body["prompt"] = "Once upon a time";
    else
      body["messages"] = json::array({{{"role", "user"}, {"content", "Once upon a time"}}});
    clients.back()->post(i % 2 == 0 ? "/v1/completions" : "/v1/chat/completions", body.dump());
  }
  CHECK(complete(*owner, seeded("The dog", 8)).ended.outcome == scheduler::Outcome::length);
  for (const auto& client : clients) {
    const HttpResponse answer = client->expect();
    INFO(answer.body);
    REQUIRE(answer.status == 200);
    REQUIRE(answer.body.find(R"("error")") == std::string::npos);
  }
}

TEST_CASE("http: several prompts of one request get what each gets alone, or nothing if one is refused") {
  RealServer server;
  json body{{"prompt", {"Once upon a time", "One day, a little cat", "The dog"}},
            {"temperature", 0.8},
            {"seed", 7},
            {"max_tokens", 24},
            {"n", 2}};
  std::vector<std::string> expected(6);
  std::uint64_t prompt_tokens = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    json alone = body;
    alone["prompt"] = body["prompt"][i];
    const json answer = ask(server.path(), "/v1/completions", alone);
    for (std::size_t k = 0; k < 2; ++k) expected[2 * i + k] = answer["choices"][k]["text"];
    prompt_tokens += answer["usage"]["prompt_tokens"].get<std::uint64_t>();
  }
  const json whole = ask(server.path(), "/v1/completions", body);
  REQUIRE(whole["choices"].size() == 6);
  std::vector<std::string> streamed(6);
  for (const json& event : stream(server.path(), "/v1/completions", body))
    for (const json& choice : event["choices"])
      streamed.at(choice["index"].get<std::size_t>()) += choice["text"].get<std::string>();
  for (std::size_t i = 0; i < 6; ++i) {
    CHECK(whole["choices"][i]["index"] == i);
    CHECK(whole["choices"][i]["text"] == expected[i]);
    CHECK(streamed[i] == expected[i]);
  }
  CHECK(whole["usage"]["prompt_tokens"] == prompt_tokens);
  CHECK(whole["troupe"]["choices"].size() == 6);
  for (const bool streams : {false, true}) {
    body["stream"] = streams;
    body["prompt"] = {"Once upon a time", std::vector<int>(5000, 5)};
    HttpClient client(server.path());
    client.post("/v1/completions", body.dump());
    const HttpResponse refused = client.expect();
    CHECK(refused.status == 400);
    CHECK(has(refused.body, R"("code": "context_length_exceeded")"));
    CHECK(has(refused.body, R"("param":"prompt[1]")"));
  }
  require_at_rest(*server.connect());
}

TEST_CASE("http: a client that leaves in the middle of an answer frees everything within steps") {
  RealServer server;
  {
    HttpClient client(server.path());
    client.post("/v1/completions", R"({"prompt":"Once","max_tokens":400,"ignore_eos":true,"stream":true})");
    REQUIRE(client.expect_head().status == 200);
    REQUIRE(client.receive_chunk());
  }
  const auto native = server.connect();
  const auto status = wait_status(*native, [](const client::ServerStatus& s) { return ended_as(s, "cancelled") == 1; });
  CHECK(status.count("streams") <= 1);
  require_at_rest(*native);
}

TEST_CASE("http: a model without a chat template refuses conversations and says what to do") {
  RealServer server;
  HttpClient client(server.path());
  client.post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"Hi"}]})");
  const HttpResponse answer = client.expect();
  CHECK(answer.status == 400);
  CHECK(has(answer.body, "chat template"));
}

TEST_CASE("http: reasoning is split by the markers that the model's template has, and its budget ends with them") {
  actors::GatewayOptions options = embedded_model();
  options.model().chat_template = {"test", "{% for m in messages %}{{ m.content }}{% endfor %}[THINK]"};
  RealServer server(options);
  const json messages = json::array({{{"role", "user"}, {"content", "Once upon a time"}}});
  const json chat{{"messages", messages},
                  {"max_tokens", 24},
                  {"temperature", 0},
                  {"ignore_eos", true},
                  {"thinking_token_budget", 4}};
  const json message = ask(server.path(), "/v1/chat/completions", chat)["choices"][0]["message"];
  INFO(message.dump());
  const auto reasoning = message["reasoning_content"].get<std::string>(),
             content = message["content"].get<std::string>();
  CHECK_FALSE(reasoning.empty());
  CHECK_FALSE(content.empty());
  CHECK_FALSE(has(reasoning + content, "THINK]"));
  std::string streamed_reasoning, streamed_content;
  for (const json& event : stream(server.path(), "/v1/chat/completions", chat)) {
    if (event["choices"].empty()) continue;
    const json& delta = event["choices"][0]["delta"];
    streamed_reasoning += delta.value("reasoning_content", "");
    if (delta.contains("content") && delta["content"].is_string())
      streamed_content += delta["content"].get<std::string>();
  }
  CHECK(streamed_reasoning == reasoning);
  CHECK(streamed_content == content);
}

TEST_CASE("http: an answer that goes on with begun reasoning begins within it") {
  actors::GatewayOptions options = embedded_model();
  options.model().chat_template = {"test", "{% for m in messages %}{{ m.content }} {% endfor %}"};
  RealServer server(options);
  const auto message_for = [&](const char* begun) {
    return ask(server.path(), "/v1/chat/completions",
               {{"messages",
                 json::array({{{"role", "user"}, {"content", "Once"}}, {{"role", "assistant"}, {"content", begun}}})},
                {"continue_final_message", true},
                {"max_tokens", 8},
                {"temperature", 0},
                {"ignore_eos", true}})["choices"][0]["message"];
  };
  CHECK_FALSE(message_for("<think>upon a time").value("reasoning_content", "").empty());
  CHECK(message_for("<think>hm</think>upon a time").value("reasoning_content", "").empty());
  CHECK_FALSE(message_for("upon a time").value("content", "").empty());
}

TEST_CASE("http: stop strings end the content, not the reasoning before it, and receipts say so") {
  actors::GatewayOptions options = embedded_model();
  options.model().chat_template = {"test", "{% for m in messages %}{{ m.content }}{% endfor %}<think>"};
  RealServer server(options);
  json chat{{"messages", json::array({{{"role", "user"}, {"content", "Once upon a time"}}})},
            {"max_tokens", 32},
            {"temperature", 0},
            {"ignore_eos", true},
            {"thinking_token_budget", 8}};
  const json free = ask(server.path(), "/v1/chat/completions", chat)["choices"][0]["message"];
  const auto reasoning = free["reasoning_content"].get<std::string>(), content = free["content"].get<std::string>();
  INFO(reasoning << " | " << content);
  REQUIRE(reasoning.size() > 4);
  REQUIRE(content.size() > 8);
  for (const std::string& stop : {reasoning.substr(1, 3), std::string("</think>"), content.substr(5, 3)}) {
    chat["stop"] = json::array({stop});
    chat["troupe"] = {{"receipt", "full"}};
    const json answer = ask(server.path(), "/v1/chat/completions", chat);
    INFO(stop << ": " << answer.dump());
    const json& message = answer["choices"][0]["message"];
    CHECK(message["reasoning_content"] == reasoning);
    CHECK(message["content"] == content.substr(0, content.find(stop)));
    CHECK(answer["troupe"]["choices"][0]["proof"]["sampling"]["stop_scope"] == "answer");
  }
}

TEST_CASE("http: an echoed prompt without tokens has its logprobs, and Anthropic's first event its tokens") {
  actors::GatewayOptions options = embedded_model();
  options.model().chat_template = {"test", "{% for m in messages %}{{ m.content }}{% endfor %}"};
  RealServer server(options);
  const json answer = ask(server.path(), "/v1/completions",
                          {{"prompt", "Once upon a time"}, {"echo", true}, {"max_tokens", 0}, {"logprobs", 0}});
  INFO(answer.dump());
  CHECK(answer["choices"][0]["text"] == "Once upon a time");
  CHECK(answer["choices"][0]["logprobs"]["tokens"].size() == answer["usage"]["prompt_tokens"]);
  CHECK(answer["usage"]["completion_tokens"] == 0);
  const json messages = json::array({{{"role", "user"}, {"content", "Once upon a time"}}});
  const json count = ask(server.path(), "/v1/messages/count_tokens", {{"messages", messages}});
  const auto events = stream(server.path(), "/v1/messages", {{"messages", messages}, {"max_tokens", 2}});
  REQUIRE(events[0]["type"] == "message_start");
  const json& usage = events[0]["message"]["usage"];
  CHECK(usage["input_tokens"].get<int>() + usage["cache_read_input_tokens"].get<int>() == count["input_tokens"]);
}

TEST_CASE("http: a conversation is answered, and what a template opens as reasoning is split off") {
  actors::GatewayOptions options = embedded_model();
  options.model().chat_template.source =
      "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
      "{% if add_generation_prompt %}assistant:<think>\n{% endif %}";
  options.model().chat_template.name = "test";
  RealServer server(options);
  const json messages = json::array({{{"role", "user"}, {"content", "Tell a story"}}});
  const json chat{{"messages", messages}, {"max_tokens", 16}, {"seed", 3}, {"ignore_eos", true}};
  const json answer = ask(server.path(), "/v1/chat/completions", chat);
  const json& message = answer["choices"][0]["message"];
  INFO(answer.dump());
  CHECK_FALSE(message["reasoning_content"].get<std::string>().empty());
  CHECK((message["content"].is_null() || message["content"] == ""));
  std::string reasoning;
  for (const json& event : stream(server.path(), "/v1/chat/completions", chat))
    if (!event["choices"].empty() && event["choices"][0]["delta"].contains("reasoning_content"))
      reasoning += event["choices"][0]["delta"]["reasoning_content"].get<std::string>();
  CHECK(reasoning == message["reasoning_content"]);
  const json prompt = ask(server.path(), "/apply-template", {{"messages", messages}})["prompt"];
  CHECK(prompt == "user: Tell a story\nassistant:<think>\n");
  const json count =
      ask(server.path(), "/v1/messages/count_tokens", {{"model", answer["model"]}, {"messages", messages}});
  CHECK(count["input_tokens"] == answer["usage"]["prompt_tokens"]);
}
