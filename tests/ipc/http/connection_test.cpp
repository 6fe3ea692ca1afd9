// How HTTP connections behave: order, ends, timeouts, limits.
#include <poll.h>

#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/ipc/fixture.h"
#include "tests/ipc/http/http_client.h"

using namespace troupe;
using namespace troupe::ipc;
using namespace troupe::ipc::test;
using namespace troupe::ipc::http::test;
using scheduler::Outcome;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

namespace {

const std::string kCompletion = R"({"model":"fake","prompt":"Once","stream":true})";

// A streamed answer that has begun.
FakeGateway::Submitted begin_stream(FakeServer& server, HttpClient& client) {
  client.post("/v1/completions", kCompletion);
  const auto submitted = server.gateway.wait_submitted(0);
  submitted.sink->tokens(run_of(0, {1}, "a"));
  const HttpResponse head = client.expect_head();
  REQUIRE(head.status == 200);
  CHECK(head.field("X-Request-Id") == submitted.request.client_id);
  REQUIRE(client.receive_chunk());
  return submitted;
}

}  // namespace

TEST_CASE("http: requests sent ahead are answered in their order") {
  FakeServer server({.max_questions_per_second = 1u << 30});
  HttpClient client(server.path());
  std::string bytes;
  constexpr int kRequests = 2000;  // more than the server keeps
  for (int i = 0; i < kRequests; ++i) {
    const std::string body = R"({"tokens":[)" + std::to_string(33 + i % 64) + "]}";
    bytes += i % 3 == 0
                 ? "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
                 : "POST /detokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + std::to_string(body.size()) +
                       "\r\n\r\n" + body;
  }
  REQUIRE(client.send(bytes));
  for (int i = 0; i < kRequests; ++i) {
    const HttpResponse answer = client.expect();
    REQUIRE(answer.status == 200);
    if (i % 3 == 0)
      REQUIRE(answer.body == R"({"status":"ok"})");
    else if (const char c = static_cast<char>(33 + i % 64); c != '"' && c != '\\')
      REQUIRE(has(answer.body, std::string("\"content\":\"") + c + "\""));
  }
}

TEST_CASE("http: every answer has its request's id, or a new one where that is none, and so has a refusal") {
  FakeServer server;
  HttpClient client(server.path());
  std::set<std::string> made;
  const auto id_of = [&](const std::string& path, const std::string& fields) {
    client.get(path, fields);
    return client.expect().field("X-Request-Id");
  };
  for (const char* path : {"/health", "/nowhere"}) {
    CHECK(id_of(path, "x-request-id: 0a-B_c.d:e/f+g=@\r\n") == "0a-B_c.d:e/f+g=@");
    CHECK(id_of(path, "X-Request-Id: " + std::string(128, 'x') + "\r\n") == std::string(128, 'x'));
    const std::vector<std::string> others{"",
                                          "X-Request-Id: \r\n",
                                          "X-Request-Id: a b\r\n",
                                          "X-Request-Id: \xc3\xa9\r\n",
                                          "X-Request-Id: \"\r\n",
                                          "X-Request-Id: " + std::string(129, 'x') + "\r\n"};
    for (const std::string& fields : others) {
      const std::string id = id_of(path, fields);
      CHECK(id.size() == 24);
      CHECK(made.insert(id).second);
    }
  }
  const auto stream = begin_stream(server, client);
  stream.sink->end(end_of(Outcome::eos));
}

TEST_CASE("http: a request sent ahead waits for the streamed answer before it") {
  FakeServer server;
  HttpClient client(server.path());
  const auto submitted = begin_stream(server, client);
  client.get("/health");
  submitted.sink->tokens(run_of(1, {2}, "b"));
  REQUIRE(has(*client.receive_chunk(), R"("text":"b")"));
  submitted.sink->end(end_of(Outcome::eos));
  while (!client.receive_chunk()->empty()) {
  }
  CHECK(client.expect().body == R"({"status":"ok"})");
}

TEST_CASE("http: a client that hangs up or closes its sending side cancels its request") {
  for (const bool half : {false, true})
    for (const bool sends_ahead : {false, true}) {
      FakeServer server;
      HttpClient client(server.path());
      const auto submitted = begin_stream(server, client);
      if (sends_ahead) client.send(std::string(100000, 'x'));  // more than is read ahead
      half ? client.finish() : client.hang_up();
      CHECK(server.gateway.wait_cancelled(1) == std::vector<actors::RequestId>{submitted.id});
    }
}

TEST_CASE("http: a request for vectors whose client has gone already is cancelled") {
  FakeServer server;
  HttpClient client(server.path());
  const std::string body = R"({"model":"fake","input":["a"]})";
  std::string bytes;
  for (int i = 0; i < 100; ++i) bytes += "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
  client.send(bytes + "POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n" + body);
  client.finish();
  server.gateway.wait_cancelled(1);
  CHECK(has(client.rest(), R"({"status":"ok"})"));
}

TEST_CASE("http: what was asked before the client closed its sending side is answered") {
  FakeServer server;
  HttpClient client(server.path());
  client.get("/health");
  client.get("/version");
  client.finish();
  CHECK(client.expect().status == 200);
  CHECK(client.expect().status == 200);
  CHECK(client.rest().empty());
}

TEST_CASE("http: a request that its client has not finished when it closes its sending side ends the connection") {
  FakeServer server;
  for (const char* begun :
       {"GET /hea", "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nab",
        "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"}) {
    HttpClient client(server.path());
    client.send(begun);
    client.finish();
    CHECK(client.rest().empty());
  }
}

TEST_CASE("http: an answer of which one choice fails ends, and the other choices are cancelled") {
  FakeServer server;
  HttpClient client(server.path());
  client.post("/v1/completions", R"({"model":"fake","prompt":"x","n":2})");
  const auto first = server.gateway.wait_submitted(0), second = server.gateway.wait_submitted(1);
  first.sink->end(end_of(Outcome::worker_lost));
  CHECK(client.expect().status == 500);
  CHECK(server.gateway.wait_cancelled(1) == std::vector<actors::RequestId>{second.id});
  client.get("/health");
  CHECK(client.expect().status == 200);
}

TEST_CASE("http: a connection is kept or closed as the client says") {
  FakeServer server;
  HttpClient close(server.path());
  close.get("/health", "Connection: close\r\n");
  CHECK(close.expect().field("Connection") == "close");
  CHECK(close.rest().empty());
  HttpClient old(server.path());
  old.send("GET /health HTTP/1.0\r\n\r\n");
  CHECK(old.expect().field("Connection") == "close");
  CHECK(old.rest().empty());
  HttpClient old_kept(server.path());
  for (int i = 0; i < 2; ++i) {
    old_kept.send("GET /health HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    CHECK(old_kept.expect().field("Connection") == "keep-alive");
  }
}

TEST_CASE("http: a stream to a client of HTTP/1.0 has no chunks and ends with the connection") {
  FakeServer server;
  HttpClient client(server.path());
  client.send("POST /v1/completions HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: " +
              std::to_string(kCompletion.size()) + "\r\n\r\n" + kCompletion);
  const auto submitted = server.gateway.wait_submitted(0);
  submitted.sink->tokens(run_of(0, {1}, "a"));
  submitted.sink->end(end_of(Outcome::eos));
  const HttpResponse answer = client.expect();
  CHECK(answer.field("Transfer-Encoding").empty());
  CHECK(answer.field("Connection") == "close");
  CHECK(answer.body.starts_with("data: {"));
  CHECK(answer.body.ends_with("data: [DONE]\n\n"));
}

TEST_CASE("http: a damaged request is answered once, and what follows it is not read as a request") {
  FakeServer server;
  HttpClient client(server.path());
  client.send(
      "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
      "0\r\n\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const HttpResponse answer = client.expect();
  CHECK(answer.status == 400);
  CHECK(answer.field("Connection") == "close");
  CHECK(has(answer.body, "beside Content-Length"));
  client.finish();
  CHECK(client.rest().empty());
}

TEST_CASE("http: a client that waits for 100 Continue gets it, unless its body is refused") {
  FakeServer server({.max_frame_bytes = 1u << 20});
  HttpClient client(server.path());
  client.send("POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 16\r\nExpect: 100-continue\r\n\r\n");
  CHECK(client.expect().status == 100);
  client.send(R"({"content":"AB"})");
  CHECK(client.expect().status == 200);
  client.send("POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1048577\r\nExpect: 100-continue\r\n\r\n");
  const HttpResponse refused = client.expect();
  CHECK(refused.status == 413);
  CHECK(refused.field("Connection") == "close");
}

TEST_CASE("http: a body above the limit is refused before it has come, and the client can read why") {
  FakeServer server({.max_frame_bytes = 1u << 20});
  HttpClient client(server.path());
  const std::string body(3u << 20, ' ');
  // The client sends all of it before it reads.
  std::thread sender([&] { client.post("/tokenize", body); });
  const HttpResponse answer = client.expect();
  sender.join();
  CHECK(answer.status == 413);
  CHECK(has(answer.body, "max_frame_bytes"));
}

TEST_CASE("http: a large body, in one piece or in chunks, is read as a whole") {
  FakeServer server;
  const std::string text(300000, 'A');
  const std::string body = R"({"content":")" + text + "\"}";
  HttpClient client(server.path());
  client.post("/tokenize", body);
  const HttpResponse whole = client.expect();
  CHECK(whole.status == 200);
  std::string chunked = "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (std::size_t at = 0; at < body.size(); at += 4096) {
    const std::string piece = body.substr(at, 4096);
    char size[32];
    std::snprintf(size, sizeof(size), "%zx\r\n", piece.size());
    chunked += size + piece + "\r\n";
  }
  std::thread sender([&] { client.send(chunked + "0\r\n\r\n"); });
  const HttpResponse pieces = client.expect();
  sender.join();
  CHECK(pieces.status == 200);
  CHECK(pieces.body == whole.body);
}

TEST_CASE("http: bodies in chunks that wait for the room of one another are refused in time") {
  ServerOptions options;
  options.limits.max_frame_bytes = 2u << 20;
  options.limits.max_buffer_bytes = 16u << 20;
  options.limits.stall_timeout = milliseconds(200);
  FakeServer server(options);
  const std::string piece = "40000\r\n" + std::string(1 << 18, 'A') + "\r\n";
  std::vector<std::unique_ptr<HttpClient>> clients;
  std::vector<std::thread> senders;
  for (int i = 0; i < 24; ++i) {
    clients.push_back(std::make_unique<HttpClient>(server.path()));
    senders.emplace_back([&client = *clients.back(), &piece] {
      std::string bytes = "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
      for (int n = 0; n < 6; ++n) bytes += piece;
      client.send(bytes);  // as far as the server takes it
    });
  }
  int refused = 0;
  for (const auto& client : clients)
    if (const HttpResponse answer = client->expect(); has(answer.body, "max_buffer_bytes")) ++refused;
  CHECK(refused > 0);
  for (std::thread& sender : senders) sender.join();
}

TEST_CASE("http: a client that does not send its head or its body in time is told so") {
  FakeServer server;
  HttpClient head(server.path());
  head.send("GET /health HTT");
  HttpClient body(server.path());
  body.send("POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 16\r\n\r\n{");
  HttpClient second(server.path());  // also the second request of a connection
  second.get("/health");
  CHECK(second.expect().status == 200);
  second.send("GET /health HTT");
  REQUIRE(
      server.server->reconfigure({.limits = {.hello_timeout = milliseconds(60), .stall_timeout = milliseconds(60)}}));
  const HttpResponse late = head.expect();
  CHECK(late.status == 408);
  CHECK(late.field("Connection") == "close");
  CHECK(body.expect().status == 408);
  CHECK(second.expect().status == 408);
}

TEST_CASE("http: a body that comes in crumbs ends its connection, however long it goes on") {
  FakeServer server({.stall_timeout = milliseconds(100)});
  HttpClient client(server.path());
  REQUIRE(client.send("POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n"));
  while (client.send("x")) std::this_thread::yield();  // a byte at a time: fails when the server has closed
  SUCCEED();
}

TEST_CASE("http: a body that is not complete after the body timeout is refused") {
  FakeServer server({.body_timeout = milliseconds(60)});
  for (const std::string body : {"Content-Length: 16\r\n\r\n{", "Transfer-Encoding: chunked\r\n\r\n5\r\n{"}) {
    HttpClient client(server.path());
    client.send("POST /tokenize HTTP/1.1\r\nHost: localhost\r\n" + body);
    const HttpResponse late = client.expect();
    CHECK(late.status == 408);
    CHECK(late.field("Connection") == "close");
    CHECK(has(late.body, "body_timeout"));
  }
}

TEST_CASE("http: a client that is refused at the door of the Unix socket is told so in HTTP") {
  ServerOptions options;
  options.limits.max_connections_per_uid = 1;
  FakeServer server(options);
  HttpClient first(server.path());
  begin_stream(server, first);
  for (int i = 0; i < 3; ++i) {  // whether its bytes or the server come first
    HttpClient second(server.path());
    second.get("/health");
    const HttpResponse refused = second.expect();
    CHECK(refused.status == 429);
    CHECK(has(refused.body, "max_connections_per_uid"));
    CHECK_FALSE(refused.field("Retry-After").empty());
  }
  CHECK(RawClient(server.path()).expect().refused().field() == "max_connections_per_uid");  // one that says nothing
}

TEST_CASE("http: an idle connection is closed without a word, and one with a request is not") {
  FakeServer server({.keep_alive_timeout = milliseconds(60)});
  HttpClient busy(server.path());
  const auto submitted = begin_stream(server, busy);
  HttpClient idle(server.path());
  idle.get("/health");
  CHECK(idle.expect().status == 200);
  CHECK(idle.rest().empty());  // waits for the end
  submitted.sink->end(end_of(Outcome::eos));
  while (!busy.receive_chunk()->empty()) {
  }
}

TEST_CASE("http: of a user's connections the one that has waited longest for a next request makes room for another") {
  FakeServer server({.max_connections_per_uid = 3});
  HttpClient one(server.path()), two(server.path()), busy(server.path());
  const auto ask = [](HttpClient& client) {
    REQUIRE(client.get("/health"));
    CHECK(client.expect().status == 200);
  };
  ask(one);
  ask(two);
  ask(one);
  const auto submitted = begin_stream(server, busy);
  HttpClient three(server.path());
  ask(three);
  CHECK(two.rest().empty());  // without a word
  ask(one);
  HttpClient four(server.path());
  ask(four);
  CHECK(three.rest().empty());
  ask(one);
  submitted.sink->end(end_of(Outcome::eos));
  while (const auto chunk = busy.receive_chunk())
    if (chunk->empty()) break;
  ask(busy);
}

TEST_CASE("http: connections that were never used, are used, or speak frames make no room for others") {
  FakeServer server({.max_connections_per_uid = 3});
  HttpClient unused(server.path()), busy(server.path());
  begin_stream(server, busy);
  RawClient frames(server.path());
  frames.hello();
  HttpClient refused(server.path());
  REQUIRE(refused.get("/health"));
  CHECK(refused.expect().status == 429);
  REQUIRE(unused.get("/health"));
  CHECK(unused.expect().status == 200);
}

TEST_CASE("http: a client that reads nothing parks its answer, and is closed after the stall timeout") {
  FakeServer server({.stall_timeout = milliseconds(200)});
  HttpClient client(server.path());
  client.post("/v1/completions", kCompletion);
  const auto submitted = server.gateway.wait_submitted(0);
  std::uint64_t sent = 0;
  // As many tokens as credit allows, until no more credit comes.
  for (std::uint64_t credit = submitted.request.credit; server.gateway.num_cancelled() == 0;
       credit = submitted.request.credit + server.gateway.credit_of(submitted.id))
    if (sent < credit) submitted.sink->tokens(run_of(sent++, {1}, std::string(1000, 'a')));
  CHECK(server.gateway.wait_cancelled(1) == std::vector<actors::RequestId>{submitted.id});
}

TEST_CASE("http: while the server drains, running answers end, and new requests are refused") {
  FakeServer server;
  HttpClient client(server.path()), idle(server.path());
  idle.get("/health");
  CHECK(idle.expect().status == 200);
  const auto submitted = begin_stream(server, client);
  std::promise<void> drained;
  server.server->drain([&] { drained.set_value(); });
  const auto done = server.gateway.wait_draining();
  idle.get("/health");
  const HttpResponse answer = idle.expect();
  CHECK(answer.status == 503);
  CHECK(answer.field("Connection") == "close");
  submitted.sink->tokens(run_of(1, {2}, "b"));
  submitted.sink->end(end_of(Outcome::eos));
  std::string rest;
  while (const auto chunk = client.receive_chunk()) {
    rest += *chunk;
    if (chunk->empty()) break;
  }
  CHECK(rest.ends_with("data: [DONE]\n\n"));
  done();
  CHECK(drained.get_future().wait_for(kPatience) == std::future_status::ready);
}

TEST_CASE("http: a client that asks as the drain begins, or as it ends, is answered in HTTP") {
  FakeServer server;
  std::promise<void> go_on;
  server.gateway.stop_at_models(go_on);
  HttpClient early(server.path()), late(server.path());
  RawClient asking(server.path());
  asking.hello();  // what came before it was accepted
  std::promise<void> drained;
  server.server->drain([&] { drained.set_value(); });
  const auto done = server.gateway.wait_draining();
  early.get("/health");
  CHECK(early.expect().status == 503);
  v1::ClientFrame ask;
  ask.mutable_models()->set_stream(1);
  REQUIRE(asking.send(ask));  // the io thread stops at it
  late.get("/health");
  done();
  go_on.set_value();
  CHECK(late.expect().status == 503);
  CHECK(drained.get_future().wait_for(kPatience) == std::future_status::ready);
}

TEST_CASE("http: a connection that is broken off in the middle of a stream gets an error event and no end") {
  FakeServer server({.max_outbox_bytes = 1u << 16});
  HttpClient client(server.path());
  const auto submitted = begin_stream(server, client);
  // More than the outbox holds, at once: no gateway sends beyond the credit.
  submitted.sink->tokens(run_of(1, {2}, std::string(1u << 17, 'a')));
  std::string rest;
  std::optional<std::string> chunk;
  while ((chunk = client.receive_chunk()) && !chunk->empty()) rest += *chunk;
  CHECK_FALSE(chunk);
  CHECK(has(rest, "max_outbox_bytes"));
}

namespace {

// A server whose silence lasts no time.
FakeServer& impatient(std::optional<FakeServer>& server) {
  ServerOptions options;
  options.http.silence = {.head_after = milliseconds(1), .ping_after = milliseconds(1), .load_after = milliseconds(1)};
  return server.emplace(std::move(options));
}

const std::string kPing = ": keep-alive\n\n";

}  // namespace

TEST_CASE("http: an admitted stream that says nothing sends its head, and then comments until its tokens come") {
  std::optional<FakeServer> owned;
  FakeServer& server = impatient(owned);
  HttpClient client(server.path());
  for (std::size_t i = 0; i < 2; ++i) {  // on a connection that is kept, too
    client.post("/v1/completions", kCompletion);
    const auto submitted = server.gateway.wait_submitted(i);
    submitted.sink->admitted({});
    const HttpResponse head = client.expect_head();
    CHECK(head.status == 200);
    CHECK(head.field("Content-Type") == "text/event-stream");
    CHECK(head.field("X-Accel-Buffering") == "no");
    for (int ping = 0; ping < 3; ++ping) CHECK(client.receive_chunk() == kPing);
    submitted.sink->tokens(run_of(0, {1}, ""));  // a token without text ends no silence
    CHECK(client.receive_chunk() == kPing);
    submitted.sink->tokens(run_of(1, {2}, "a"));
    submitted.sink->end(end_of(Outcome::eos));
    std::string rest;
    std::optional<std::string> chunk;
    while ((chunk = client.receive_chunk()) && !chunk->empty())
      if (*chunk != kPing) rest += *chunk;
    CHECK(chunk == "");
    CHECK(has(rest, R"("text":"a")"));
    CHECK(rest.ends_with("data: [DONE]\n\n"));
  }
}

TEST_CASE("http: an answer to a prompt that ends within reasoning begins with it, in one body and as events") {
  FakeServer server;
  std::size_t index = 0;
  for (const bool stream : {false, true}) {
    HttpClient client(server.path());
    client.post("/v1/chat/completions", std::string(R"({"messages":[{"role":"user","content":"Hi"}],"n":2)") +
                                            (stream ? R"(,"stream":true})" : "}"));
    for (std::uint32_t choice = 0; choice < 2; ++choice)
      server.gateway.wait_submitted(index + choice).sink->admitted({.choice = choice, .in_reasoning = true});
    for (std::uint32_t choice = 0; choice < 2; ++choice) {
      const auto sink = server.gateway.wait_submitted(index++).sink;
      actors::TokenRun run = run_of(0, {1}, "hm</think>so");
      actors::End end = end_of(Outcome::eos);
      run.choice = end.choice = choice;
      sink->tokens(std::move(run));
      sink->end(std::move(end));
    }
    const std::string body = client.expect().body;
    INFO(body);
    CHECK(has(body, R"("reasoning_content":"hm")"));
    CHECK(has(body, R"("content":"so")"));
    CHECK_FALSE(has(body, "think>"));
  }
}

TEST_CASE("http: a stream that waits for its model on request says how the load stands, and goes on as any") {
  std::optional<FakeServer> owned;
  FakeServer& server = impatient(owned);
  server.gateway.load_wait =
      actors::LoadWait{.model = "fake", .why = actors::LoadWait::Why::load, .left_seconds = 30, .progress = 0.25};
  const std::string state = ": loading fake, 10 s of about 40 s\n";
  HttpClient client(server.path()), messages(server.path());
  client.post("/v1/completions", kCompletion);
  CHECK(client.expect_head().status == 200);
  for (int i = 0; i < 3; ++i) CHECK(client.receive_chunk() == state + "\n");
  const auto submitted = server.gateway.wait_submitted(0);
  submitted.sink->admitted({});
  submitted.sink->tokens(run_of(0, {1}, "a"));
  submitted.sink->end(end_of(Outcome::eos));
  std::string rest;
  std::optional<std::string> chunk;
  while ((chunk = client.receive_chunk()) && !chunk->empty()) rest += *chunk;
  CHECK(chunk == "");
  CHECK(has(rest, R"("text":"a")"));
  CHECK_FALSE(has(rest, "HTTP/1.1"));
  messages.post("/v1/messages",
                R"({"model":"fake","max_tokens":4,"stream":true,"messages":[{"role":"user","content":"x"}]})");
  CHECK(messages.expect_head().status == 200);
  CHECK(messages.receive_chunk() == state + "event: ping\ndata: {\"type\":\"ping\"}\n\n");
  server.gateway.wait_submitted(1).sink->end(end_of(Outcome::loading));
  rest.clear();
  while ((chunk = messages.receive_chunk()) && !chunk->empty()) rest += *chunk;
  CHECK_FALSE(chunk);
  CHECK(has(rest, "event: error\ndata: {\"type\":\"error\""));
}

TEST_CASE("http: a load that fails soon is a refusal with its own status") {
  FakeServer server;
  server.gateway.load_wait = actors::LoadWait{.model = "fake"};
  HttpClient client(server.path());
  client.post("/v1/completions", kCompletion);
  server.gateway.wait_submitted(0).sink->end(end_of(Outcome::loading));
  CHECK(client.expect().status == 503);
}

TEST_CASE("http: an answer is read as the model that was admitted with it writes") {
  FakeServer server;
  const auto model = std::make_shared<const actors::AnsweringModel>(
      actors::AnsweringModel{.name = "fake", .numerics_id = "id-1", .reasoning = {.open = "<r>", .close = "</r>"}});
  for (std::size_t i = 0; i < 2; ++i) {
    HttpClient client(server.path());
    client.post("/v1/chat/completions",
                std::string(R"({"messages":[{"role":"user","content":"Hi"}])") + (i == 1 ? R"(,"stream":true})" : "}"));
    const auto sink = server.gateway.wait_submitted(i).sink;
    sink->admitted({.model = model});
    sink->tokens(run_of(0, {1}, "<r>hm</r>so"));
    sink->end(end_of(Outcome::eos));
    const std::string body = client.expect().body;
    INFO(body);
    CHECK(has(body, R"("reasoning_content":"hm")"));
    CHECK(has(body, R"("content":"so")"));
    CHECK(has(body, R"("system_fingerprint":"id-1")"));
  }
}

TEST_CASE("http: a stream whose model is being loaded sends its head and comments until then, and goes on as any") {
  std::optional<FakeServer> owned;
  FakeServer& server = impatient(owned);
  HttpClient client(server.path());
  for (std::size_t i = 0; i < 2; ++i) {  // on a connection that is kept, too
    server.gateway.set_loading(true);
    client.post("/v1/completions", kCompletion);
    const HttpResponse head = client.expect_head();
    CHECK(head.status == 200);
    CHECK(head.field("Content-Type") == "text/event-stream");
    CHECK(head.field("X-Accel-Buffering") == "no");
    for (int ping = 0; ping < 3; ++ping) CHECK(client.receive_chunk() == kPing);
    server.gateway.set_loading(false);
    const auto submitted = server.gateway.wait_submitted(i);
    submitted.sink->admitted({});
    submitted.sink->tokens(run_of(0, {1}, "a"));
    submitted.sink->end(end_of(Outcome::eos));
    std::string rest;
    std::optional<std::string> chunk;
    while ((chunk = client.receive_chunk()) && !chunk->empty())
      if (*chunk != kPing) rest += *chunk;
    CHECK(chunk == "");
    CHECK(has(rest, R"("text":"a")"));
    CHECK_FALSE(has(rest, "HTTP/1.1"));
    CHECK(rest.ends_with("data: [DONE]\n\n"));
  }
}

TEST_CASE("http: what is refused after its model was loaded is an error in the stream that has begun, without an end") {
  const std::string message =
      R"({"model":"alias","max_tokens":4,"stream":true,"messages":[{"role":"user","content":"x"}]})";
  const std::string ping = "event: ping\ndata: {\"type\":\"ping\"}\n\n";
  std::optional<FakeServer> owned;
  FakeServer& server = impatient(owned);
  server.gateway.aliases = {"alias"};
  server.gateway.set_loading(true);
  HttpClient client(server.path());
  client.post("/v1/messages", message);
  CHECK(client.expect_head().status == 200);
  CHECK(client.receive_chunk() == ping);
  server.gateway.set_loading(false);
  server.gateway.wait_submitted(0).sink->end(end_of(Outcome::queue_full));
  std::string rest;
  std::optional<std::string> chunk;
  while ((chunk = client.receive_chunk()) && !chunk->empty())
    if (*chunk != ping) rest += *chunk;
  CHECK_FALSE(chunk);
  CHECK(has(rest, "event: error\ndata: {\"type\":\"error\""));
  CHECK_FALSE(has(rest, "HTTP/1.1"));
}

TEST_CASE("http: an answer in one piece has no head while its model is loaded") {
  std::optional<FakeServer> owned;
  FakeServer& server = impatient(owned);
  server.gateway.set_loading(true);
  HttpClient client(server.path()), other(server.path());
  client.post("/v1/completions", R"({"model":"fake","prompt":"x"})");
  other.post("/v1/completions", kCompletion);
  CHECK(other.expect_head().status == 200);  // by then the first would have had its head
  server.gateway.set_loading(false);
  for (std::size_t i = 0; i < 2; ++i) server.gateway.wait_submitted(i).sink->end(end_of(Outcome::queue_full));
  CHECK(client.expect().status == 429);
}

TEST_CASE("http: a request that is not admitted has the status of its refusal, however long it waits") {
  std::optional<FakeServer> owned;
  FakeServer& server = impatient(owned);
  HttpClient client(server.path()), other(server.path());
  client.post("/v1/completions", R"({"model":"fake","prompt":["x","y"],"stream":true})");
  const auto first = server.gateway.wait_submitted(0), second = server.gateway.wait_submitted(1);
  first.sink->admitted({});  // of two prompts, one
  other.post("/v1/completions", kCompletion);
  server.gateway.wait_submitted(2).sink->admitted({});
  CHECK(other.expect_head().status == 200);  // by then the first would have had its head
  second.sink->end(end_of(Outcome::queue_full));
  CHECK(client.expect().status == 429);
}

TEST_CASE("http: a refusal after the head is an event, and the body has no end") {
  std::optional<FakeServer> owned;
  FakeServer& server = impatient(owned);
  HttpClient client(server.path());
  client.post("/v1/completions", kCompletion);
  const auto submitted = server.gateway.wait_submitted(0);
  submitted.sink->admitted({});
  CHECK(client.expect_head().status == 200);
  actors::End end = end_of(Outcome::deadline_unmeetable);
  end.message = "it cannot be kept";
  submitted.sink->end(std::move(end));
  std::string rest;
  std::optional<std::string> chunk;
  while ((chunk = client.receive_chunk())) rest += *chunk;
  CHECK_FALSE(chunk);
  CHECK(has(rest, R"(data: {"error":{"message":"it cannot be kept")"));
}

TEST_CASE("http: Anthropic's stream begins its message and pings, a response begins, and one body has nothing of it") {
  std::optional<FakeServer> owned;
  FakeServer& server = impatient(owned);
  HttpClient messages(server.path()), response(server.path()), whole(server.path());
  messages.post("/v1/messages",
                R"({"model":"fake","max_tokens":4,"stream":true,"messages":[{"role":"user","content":"x"}]})");
  server.gateway.wait_submitted(0).sink->admitted({});
  CHECK(messages.expect_head().status == 200);
  CHECK(messages.receive_chunk().value_or("").starts_with("event: message_start\n"));
  CHECK(messages.receive_chunk() == "event: ping\ndata: {\"type\":\"ping\"}\n\n");
  response.post("/v1/responses", R"({"model":"fake","input":"x","stream":true})");
  server.gateway.wait_submitted(1).sink->admitted({});
  CHECK(response.expect_head().status == 200);
  CHECK(response.receive_chunk().value_or("").starts_with("event: response.created\n"));
  CHECK(response.receive_chunk() == kPing);
  whole.post("/v1/completions", R"({"model":"fake","prompt":"x"})");
  const auto submitted = server.gateway.wait_submitted(2);
  submitted.sink->admitted({});
  CHECK(messages.receive_chunk());  // others go on meanwhile
  submitted.sink->tokens(run_of(0, {1}, "a"));
  submitted.sink->end(end_of(Outcome::eos));
  CHECK(whole.expect().body.starts_with("{"));
}

TEST_CASE("http: a stream that an error ends has an event of it and no end, and the connection ends") {
  for (const Outcome outcome : {Outcome::model_unloaded, Outcome::cancelled, Outcome::worker_lost, Outcome::quota}) {
    FakeServer server;
    HttpClient client(server.path());
    const auto submitted = begin_stream(server, client);
    submitted.sink->end(end_of(outcome));
    CHECK(client.receive_chunk().value_or("").starts_with("data: {\"error\":"));
    CHECK_FALSE(client.receive_chunk());
  }
}

TEST_CASE("http: requests beyond the rate of questions are refused with 429") {
  FakeServer server({.max_questions_per_second = 1});
  HttpClient client(server.path());
  client.get("/health");
  CHECK(client.expect().status == 200);
  client.get("/health");
  const HttpResponse refused = client.expect();
  CHECK(refused.status == 429);
  CHECK_FALSE(refused.field("Retry-After").empty());
  CHECK(has(refused.body, "max_questions_per_second"));
}

TEST_CASE("http: refusals in a row are sent ever later, and each comes with its status and reason") {
  FakeServer server({.max_questions_per_second = 1, .max_refusals_per_second = 10});
  const auto least = [](Clock::time_point begin) { return Clock::now() - begin >= milliseconds(450); };
  SECTION("of connections whose bytes are no request") {
    const auto begin = Clock::now();
    for (int i = 0; i < 56; ++i) {  // 50 are free, and one more waits for none
      HttpClient client(server.path());
      REQUIRE(client.send("POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: +6\r\n\r\n" +
                          std::string(4096, 'x')));
      const HttpResponse refused = client.expect();
      REQUIRE(refused.status == 400);
      REQUIRE(has(refused.body, "Content-Length"));
      REQUIRE(client.rest().empty());
    }
    REQUIRE(least(begin));
  }
  // Sent at once, as small reads are delayed by themselves.
  const auto all_of = [](int count, const std::string& path) {
    std::string bytes;
    for (int i = 0; i < count; ++i) bytes += "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n";
    return bytes;
  };
  SECTION("of questions above their rate") {
    HttpClient client(server.path());
    const auto begin = Clock::now();
    REQUIRE(client.send(all_of(60, "/health")));
    int refused = 0;
    for (int i = 0; i < 60; ++i) {  // one a second is answered
      const HttpResponse answer = client.expect();
      if (answer.status == 429 && has(answer.body, "max_questions_per_second")) ++refused;
    }
    REQUIRE(refused > 50);
    REQUIRE(least(begin));
  }
  SECTION("of endpoints that do not exist") {
    HttpClient client(server.path());
    const auto begin = Clock::now();
    REQUIRE(client.send(all_of(56, "/nothing")));
    for (int i = 0; i < 56; ++i) REQUIRE(client.expect().status == 404);
    REQUIRE(least(begin));
  }
}

TEST_CASE("http: every request is counted once, with its outcome") {
  FakeServer server;
  HttpClient client(server.path());
  client.post("/v1/completions", R"({"model":"fake","prompt":"x","n":2})");
  for (std::size_t i = 0; i < 2; ++i) {
    const auto submitted = server.gateway.wait_submitted(i);
    actors::End end = end_of(Outcome::eos);
    end.choice = submitted.choice;
    submitted.sink->end(std::move(end));
  }
  CHECK(client.expect().status == 200);
  client.post("/v1/completions", "{}");
  CHECK(client.expect().status == 400);
  client.get("/metrics");
  const std::string metrics = client.expect().body;
  INFO(metrics);
  const auto counted = [&](const std::string& labels) { return has(metrics, "model_name=\"fake\"," + labels); };
  CHECK(counted("finished_reason=\"eos\"} 2\n"));
  CHECK(counted("kind=\"refused\",reason=\"invalid_argument\"} 1\n"));
  CHECK(has(metrics, "\ntroupe:requests_received_total{model_name=\"fake\"} 3\n"));
}
