// The client library against the real server with a fake gateway.
#include "ipc/client/client.h"

#include <array>
#include <future>
#include <string>
#include <thread>

#include "ipc/client/conversions.h"
#include "tests/ipc/fixture.h"

namespace troupe::client {
namespace {

using namespace ipc::test;
using std::chrono::milliseconds;

std::unique_ptr<Client> connect(const FakeServer& server) {
  auto client = Client::connect({.socket = server.path()});
  if (!client) FAIL(client.error().message);
  return std::move(*client);
}

// Runs a call that waits on another thread, so that the test can answer it.
template <class F>
auto in_background(F f) {
  return std::async(std::launch::async, std::move(f));
}

TEST_CASE("a connected client has the server's info") {
  FakeServer server;
  const auto client = connect(server);
  REQUIRE(client->server().protocol == 1);
  REQUIRE(client->server().server.starts_with("troupe "));
  REQUIRE(client->server().health.readiness == Readiness::ready);
  REQUIRE(client->server().health.models.size() == 1);
  REQUIRE(client->server().health.models[0].name == "fake");
  REQUIRE(client->server().health.models[0].readiness == Readiness::ready);
  REQUIRE(client->server().max_streams == 64);
  REQUIRE(client->server().stall_timeout == milliseconds(60000));
}

TEST_CASE("connecting without a server names the paths tried and what to start") {
  const TempDir dir;
  const auto missing = Client::connect({.socket = dir / "none.sock"});
  REQUIRE_FALSE(missing);
  REQUIRE(missing.error().code == ErrorCode::io);
  REQUIRE(missing.error().message.find(dir / "none.sock") != std::string::npos);
  REQUIRE(missing.error().message.find("troupe serve") != std::string::npos);
  const auto too_long = Client::connect({.socket = "/" + std::string(200, 'x')});
  REQUIRE_FALSE(too_long);
  REQUIRE(too_long.error().code == ErrorCode::invalid_argument);
}

TEST_CASE("TROUPE_HOST decides when no socket is given") {
  FakeServer server;
  ::setenv("TROUPE_HOST", ("unix://" + server.path()).c_str(), 1);
  REQUIRE(Client::connect());
  ::setenv("TROUPE_HOST", "tcp://localhost:1", 1);
  const auto tcp = Client::connect();
  REQUIRE_FALSE(tcp);
  REQUIRE(tcp.error().code == ErrorCode::unsupported);
  ::unsetenv("TROUPE_HOST");
}

TEST_CASE("a server that sends no Welcome is an error after the timeout, one connection too many is busy") {
  const TempDir dir;
  auto silent = ipc::Server::bind({.socket_path = dir / "silent.sock"});  // bound, not started
  REQUIRE(silent);
  const auto client = Client::connect({.socket = dir / "silent.sock", .connect_timeout = milliseconds(30)});
  REQUIRE_FALSE(client);
  REQUIRE(client.error().code == ErrorCode::io);
  FakeServer server({.max_connections = 1});
  const auto first = connect(server);
  const auto second = Client::connect({.socket = server.path()});
  REQUIRE_FALSE(second);
  REQUIRE(second.error().code == ErrorCode::busy);
  REQUIRE(second.error().message.find("max_connections") != std::string::npos);
}

TEST_CASE("a client sends nothing to another user's server in a shared directory, unless told to") {
  if (::geteuid() != 0) {
    WARN("skipped: only root can become another user");
    return;
  }
  const TempDir dir;
  REQUIRE(::chmod(dir.path().c_str(), 01777) == 0);
  const std::string path = dir / "a.sock";
  for (const bool strict : {true, false}) {
    std::array<int, 2> ready{};
    REQUIRE(::pipe(ready.data()) == 0);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {  // plain calls only; exits with the number of bytes that it was sent, at most 1
      if (::setgid(12345) != 0 || ::setuid(12345) != 0) ::_exit(3);
      const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
      sockaddr_un address{};
      address.sun_family = AF_UNIX;
      std::memcpy(address.sun_path, path.data(), path.size());
      ::unlink(path.c_str());
      if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 || ::listen(fd, 1) != 0)
        ::_exit(4);
      (void)!::write(ready[1], "x", 1);
      const int client = ::accept(fd, nullptr, nullptr);
      char byte = 0;
      ::_exit(static_cast<int>(::recv(client, &byte, 1, 0)));
    }
    ::close(ready[1]);
    char byte = 0;
    REQUIRE(::read(ready[0], &byte, 1) == 1);
    ::close(ready[0]);
    const auto client = Client::connect({.socket = path, .strict_modes = strict});
    REQUIRE_FALSE(client);  // nothing there answers a greeting
    REQUIRE((client.error().code == ErrorCode::permission) == strict);
    if (strict) {
      REQUIRE(client.error().message.find("uid 12345") != std::string::npos);
      REQUIRE(client.error().message.find(path) != std::string::npos);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    REQUIRE(WEXITSTATUS(status) == (strict ? 0 : 1));
  }
}

TEST_CASE("tokens and end of a stream reach its callbacks, and wait() returns after them") {
  FakeServer server;
  const auto client = connect(server);
  std::string text;
  std::vector<TokenId> ids;
  bool ended = false;
  auto stream = client->generate({.prompt = std::vector<TokenId>{1, 2}, .logprobs = 1},
                                 {.on_tokens =
                                      [&](const Tokens& tokens) {
                                        text += tokens.text;
                                        ids.insert(ids.end(), tokens.ids.begin(), tokens.ids.end());
                                        if (tokens.first_index == 0) REQUIRE(tokens.logprobs.at(0).top.at(0).id == 9);
                                      },
                                  .on_end = [&](const Result<Ended>& end) { ended = end && end->done(); }});
  REQUIRE(stream);
  const auto submitted = server.gateway.wait_submitted(0);
  REQUIRE(std::get<std::vector<TokenId>>(submitted.request.prompt) == std::vector<TokenId>{1, 2});
  REQUIRE_FALSE(stream->wait_for(milliseconds(1)));
  actors::TokenRun run = run_of(0, {5}, "a");
  run.logprobs = {{.id = 5, .logprob = -1.0f, .top = {{9, -0.5f}}}};
  submitted.sink->tokens(std::move(run));
  run = run_of(1, {6, 7}, "bc");
  run.logprobs = {{.id = 6, .logprob = -1.0f, .top = {}}, {.id = 7, .logprob = -1.0f, .top = {}}};
  submitted.sink->tokens(std::move(run));
  actors::End end = end_of(Outcome::stop_string);
  end.stop = "x";
  end.seed = 11;
  end.usage.completion_tokens = 3;
  end.usage.stalled_seconds = 0.5;
  end.usage.block_seconds = 8;
  end.recomputed_from = "4-scalar-f16-1";
  actors::Proof proof;
  proof.prompt = std::make_shared<const std::vector<TokenId>>(std::vector<TokenId>{1, 2});
  proof.recomputed_from = end.recomputed_from;
  end.proof = std::make_shared<const actors::Proof>(proof);
  submitted.sink->end(end);
  const auto result = stream->wait();
  REQUIRE(result);
  REQUIRE(result->outcome == Outcome::stop_string);
  REQUIRE(result->stop == "x");
  REQUIRE(result->seed == 11);
  REQUIRE(result->usage.completion_tokens == 3);
  REQUIRE(result->receipt);
  REQUIRE(result->receipt->stalled_seconds == 0.5);
  REQUIRE(result->receipt->block_seconds == 8);
  REQUIRE(result->receipt->recomputed_from == "4-scalar-f16-1");
  REQUIRE(result->receipt->proof);
  REQUIRE(result->receipt->proof->recomputed_from == "4-scalar-f16-1");
  REQUIRE(ended);
  REQUIRE(text == "abc");
  REQUIRE(ids == std::vector<TokenId>{5, 6, 7});
  stream->cancel();  // harmless after the end
  REQUIRE(stream->wait()->outcome == Outcome::stop_string);
}

TEST_CASE("an answer of another kind than what was asked for is an error, not an empty one, and ends the connection") {
  const TempDir dir;
  const std::string path = dir / "s.sock";
  const int listening = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  REQUIRE(::bind(listening, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  REQUIRE(::listen(listening, 1) == 0);
  v1::ServerFrame health, session;
  health.mutable_health()->set_stream(1);
  session.mutable_sessions()->set_stream(1);
  session.mutable_sessions()->add_sessions()->set_name("talk");
  // The answer to a question on a connection of its own, where the server sends `frame`. An error ends the connection.
  const auto told = [&](const v1::ServerFrame& frame, auto question) {
    auto connecting = in_background([&] { return Client::connect({.socket = path}); });
    const int server = ::accept(listening, nullptr, nullptr);
    REQUIRE(server >= 0);
    const auto send = [&](const v1::ServerFrame& sent) {
      const std::string bytes = RawClient::frame_bytes(sent);
      REQUIRE(::send(server, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()));
    };
    char bytes[4096];
    REQUIRE(::recv(server, bytes, sizeof bytes, 0) > 0);  // Hello
    v1::ServerFrame welcome;
    welcome.mutable_welcome()->set_protocol(1);
    send(welcome);
    const auto client = connecting.get();
    REQUIRE(client);
    auto answering = in_background([&] { return question(**client); });
    REQUIRE(::recv(server, bytes, sizeof bytes, 0) > 0);  // before the answer is sent
    send(frame);
    const auto answer = answering.get();
    if (!answer) CHECK(::recv(server, bytes, sizeof bytes, 0) == 0);
    ::close(server);
    return answer;
  };
  const auto check = [](const auto& answer) {
    REQUIRE_FALSE(answer);
    CHECK(answer.error().code == ErrorCode::protocol);
  };
  check(told(health, [](Client& asks) { return asks.delete_session("talk"); }));
  check(told(health, [](Client& asks) { return asks.sessions(); }));
  check(told(health, [](Client& asks) { return asks.save_session("talk"); }));
  check(told(health, [](Client& asks) { return asks.models(); }));
  check(told(health, [](Client& asks) { return asks.status(); }));
  check(told(health, [](Client& asks) { return asks.usage(); }));
  check(told(health, [](Client& asks) { return asks.tokenize("x"); }));
  check(told(health, [](Client& asks) { return asks.detokenize({1}); }));
  check(told(health, [](Client& asks) { return asks.load_model({.path = "/x"}); }));
  check(told(health, [](Client& asks) { return asks.embed({.inputs = std::vector<std::string>{"x"}}); }));
  CHECK(told(health, [](Client& asks) { return asks.health(); }));
  check(told(session, [](Client& asks) { return asks.delete_session("talk"); }));  // it tells of no session
  check(told(health, [](Client& asks) {
    std::promise<Result<Ended>> ended;
    REQUIRE(asks.tokenize("x", "", [&](const Result<Ended>& end, const std::vector<TokenId>& ids) {
      CHECK(ids.empty());
      ended.set_value(end);
    }));
    return ended.get_future().get();
  }));
  const auto vectors_in_callback = [](Client& asks) {
    std::promise<Result<Ended>> ended;
    REQUIRE(asks.embed({.inputs = std::vector<std::string>{"x"}},
                       [&](const Result<Ended>& end, const Embeddings&) { ended.set_value(end); }));
    return ended.get_future().get();
  };
  check(told(health, vectors_in_callback));
  v1::ServerFrame no_vectors;
  no_vectors.mutable_embeddings()->set_stream(1);
  check(told(no_vectors, vectors_in_callback));
  check(told(no_vectors, [](Client& asks) { return asks.embed({.inputs = std::vector<std::string>{"x"}}); }));
  ::close(listening);
}

TEST_CASE("runs of tokens that one read brings have one time, and later ones a later one") {
  const TempDir dir;
  const std::string path = dir / "s.sock";
  const int listening = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  REQUIRE(::bind(listening, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  REQUIRE(::listen(listening, 1) == 0);
  auto client = in_background([&] { return Client::connect({.socket = path}); });
  const int server = ::accept(listening, nullptr, nullptr);
  REQUIRE(server >= 0);
  const auto send = [&](const std::string& bytes) {
    REQUIRE(::send(server, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()));
  };
  v1::ServerFrame welcome;
  welcome.mutable_welcome()->set_protocol(1);
  send(RawClient::frame_bytes(welcome));
  auto connected = client.get();
  REQUIRE(connected);
  std::vector<std::chrono::steady_clock::time_point> times;
  std::promise<void> two_came;
  const auto stream = (*connected)->generate({.prompt = "x"}, {.on_tokens = [&](const Tokens& tokens) {
                                               times.push_back(tokens.received_at);
                                               if (times.size() == 2) two_came.set_value();
                                             }});
  REQUIRE(stream);
  const auto run = [&](std::uint64_t first) {
    v1::ServerFrame frame;
    frame.mutable_tokens()->set_stream(stream->id());
    frame.mutable_tokens()->set_first_index(first);
    frame.mutable_tokens()->add_ids(5);
    return RawClient::frame_bytes(frame);
  };
  send(run(0) + run(1));
  two_came.get_future().wait();
  v1::ServerFrame done;
  done.mutable_done()->set_stream(stream->id());
  done.mutable_done()->set_reason(v1::OUTCOME_LENGTH);
  send(run(2) + RawClient::frame_bytes(done));
  REQUIRE(stream->wait());
  REQUIRE(times.size() == 3);
  REQUIRE(times[0] == times[1]);
  REQUIRE(times[1] < times[2]);
  (*connected)->close();
  for (const int fd : {server, listening}) ::close(fd);
}

TEST_CASE("complete collects the whole answer") {
  FakeServer server;
  const auto client = connect(server);
  auto answer = in_background(
      [&] { return client->complete({.prompt = "p", .sampling = {.seed = 3, .max_tokens = 4}, .stop = {"."}}); });
  const auto submitted = server.gateway.wait_submitted(0);
  REQUIRE(submitted.request.sampling.seed == 3);
  REQUIRE(submitted.request.sampling.max_tokens == 4);
  REQUIRE(submitted.request.stop_strings == std::vector<std::string>{"."});
  submitted.sink->tokens(run_of(0, {1}, "x"));
  submitted.sink->tokens(run_of(1, {2}, "y"));
  submitted.sink->end(end_of(Outcome::eos));
  const auto got = answer.get();
  REQUIRE(got);
  REQUIRE(got->text == "xy");
  REQUIRE(got->ids == std::vector<TokenId>{1, 2});
  REQUIRE(got->ended.done());
}

TEST_CASE("presets are apart for a server that takes them, and a part of the sampling for an older one") {
  client::Request request{.prompt = "p", .sampling = {.top_k = 7}, .presets = {.top_k = 40, .top_p = 0.5f}};
  const v1::Generate apart = client::to_frame(1, request, true).generate();
  CHECK(apart.sampling().top_k() == 7);
  CHECK_FALSE(apart.sampling().has_top_p());
  CHECK(apart.presets().top_k() == 40);
  CHECK(apart.presets().top_p() == 0.5f);
  const v1::Generate together = client::to_frame(1, request, false).generate();
  CHECK(together.sampling().top_k() == 7);
  CHECK(together.sampling().top_p() == 0.5f);
  CHECK_FALSE(together.has_presets());
  request.presets = {};
  CHECK_FALSE(client::to_frame(1, request, true).generate().has_presets());

  FakeServer server;
  CHECK(connect(server)->server().takes_presets);
}

TEST_CASE("complete cancels after its timeout and returns the tokens so far") {
  FakeServer server;
  const auto client = connect(server);
  std::size_t num_asked = 0;
  std::string text;
  // Until the tokens come within the timeout, however slow this machine is.
  for (milliseconds timeout(50); text.empty(); timeout *= 4) {
    auto answer = in_background([&] { return client->complete({.prompt = "p"}, timeout); });
    server.gateway.wait_submitted(num_asked++).sink->tokens(run_of(0, {1}, "x"));
    const auto got = answer.get();
    REQUIRE(got);
    REQUIRE(got->ended.outcome == Outcome::cancelled);
    REQUIRE(server.gateway.wait_cancelled(num_asked).size() == num_asked);
    REQUIRE(timeout < kPatience);
    text = got->text;
  }
  REQUIRE(text == "x");
}

TEST_CASE("a refusal is the stream's end, with all its fields") {
  FakeServer server;
  const auto client = connect(server);
  auto answer = in_background([&] { return client->complete({.prompt = "p"}); });
  actors::End end = end_of(Outcome::queue_full);
  end.message = "full";
  end.field = "max_queued_requests";
  end.limit = 4;
  end.retry_after = milliseconds(20);
  end.predicted_first = milliseconds(3200);
  end.predicted_last = milliseconds(8100);
  server.gateway.wait_submitted(0).sink->end(end);
  const auto got = answer.get();
  REQUIRE(got);
  REQUIRE_FALSE(got->ended.done());
  REQUIRE(got->ended.outcome == Outcome::queue_full);
  REQUIRE(got->ended.message == "full");
  REQUIRE(got->ended.field == "max_queued_requests");
  REQUIRE(got->ended.limit == 4);
  REQUIRE(got->ended.retry_after == milliseconds(20));
  REQUIRE(got->ended.predicted_first == milliseconds(3200));
  REQUIRE(got->ended.predicted_last == milliseconds(8100));
}

TEST_CASE("the library grants credit as tokens are consumed, unless the request sets its own") {
  FakeServer server;
  const auto client = connect(server);
  auto automatic = client->generate({.prompt = "a"}, {});
  const auto first = server.gateway.wait_submitted(0);
  const std::uint64_t window = first.request.credit;
  REQUIRE(window > 0);
  first.sink->tokens(run_of(0, std::vector<TokenId>(window, 1), "x"));
  REQUIRE(server.gateway.wait_credit(1, window) == window);

  auto manual = client->generate({.prompt = "b", .credit = 0}, {});
  REQUIRE(server.gateway.wait_submitted(1).request.credit == 0);
  manual->credit(5);
  REQUIRE(server.gateway.wait_credit(2, 5) == 5);
}

TEST_CASE("a callback may start and cancel streams; calls that wait are errors in it") {
  FakeServer server;
  const auto client = connect(server);
  std::optional<Stream> inner;
  std::optional<Error> waiting, asking, completing;
  std::optional<Stream> outer;
  auto started =
      client->generate({.prompt = "outer", .credit = 1}, {.on_tokens =
                                                              [&](const Tokens&) {
                                                                waiting = outer->wait().error();
                                                                asking = client->health().error();
                                                                completing = client->complete({.prompt = "x"}).error();
                                                                inner = *client->generate({.prompt = "inner"}, {});
                                                                outer->cancel();
                                                              },
                                                          .on_end = {}});
  outer = *started;
  server.gateway.wait_submitted(0).sink->tokens(run_of(0, {1}, "x"));
  REQUIRE(outer->wait()->outcome == Outcome::cancelled);
  for (const auto& error : {waiting, asking, completing}) REQUIRE(error->code == ErrorCode::invalid_argument);
  server.gateway.wait_submitted(1).sink->end(end_of(Outcome::eos));
  REQUIRE(inner->wait()->outcome == Outcome::eos);
}

TEST_CASE("when the server stops, every stream and every later call ends with an error") {
  FakeServer server;
  const auto client = connect(server);
  std::promise<Error> ended;
  auto stream = client->generate(
      {.prompt = "a"}, {.on_tokens = {}, .on_end = [&](const Result<Ended>& end) { ended.set_value(end.error()); }});
  server.gateway.wait_submitted(0);
  server.gateway.keep_streams_on_cancel();
  server.server->stop();
  REQUIRE(ended.get_future().get().code == ErrorCode::io);
  REQUIRE_FALSE(stream->wait());
  REQUIRE_FALSE(client->generate({.prompt = "b"}, {}));
  REQUIRE_FALSE(client->health());
  stream->credit(3);  // harmless
}

TEST_CASE("close() ends the streams for client and server; handles stay valid") {
  FakeServer server;
  auto client = connect(server);
  auto stream = client->generate({.prompt = "a"}, {});
  server.gateway.wait_submitted(0);
  client->close();
  client->close();
  const auto end = stream->wait();
  REQUIRE_FALSE(end);
  REQUIRE(end.error().message.find("closed by this client") != std::string::npos);
  server.gateway.wait_cancelled(1);
  client.reset();
  stream->cancel();
  REQUIRE(stream->id() > 0);
}

TEST_CASE("questions: tokens, text, models, status, health, and their refusals") {
  FakeServer server;
  const auto client = connect(server);
  REQUIRE(*client->tokenize("abc") == std::vector<TokenId>{'a', 'b', 'c'});
  REQUIRE(*client->detokenize({0x61, 0xff}) == "a\xff");
  const auto models = client->models();
  REQUIRE(models);
  REQUIRE(models->at(0).name == "fake");
  REQUIRE(models->at(0).eos == 2);
  REQUIRE(models->at(0).end_ids == std::vector<TokenId>{2, 7});
  REQUIRE_FALSE(models->at(0).bos);
  const auto status = client->status();
  REQUIRE(status);
  REQUIRE(status->model == "fake");
  REQUIRE(status->count("connections") == 1);
  REQUIRE(client->health()->readiness == Readiness::ready);
  const auto unknown = client->tokenize("abc", true, false, "gpt-9");
  REQUIRE_FALSE(unknown);
  REQUIRE(unknown.error().code == ErrorCode::model_missing);
}

TEST_CASE("vectors and tokens can be asked for without waiting, and their end says how it came") {
  FakeServer server;
  const auto client = connect(server);
  std::promise<std::pair<Result<Ended>, std::vector<TokenId>>> ids;
  REQUIRE(client->tokenize("abc", "", [&](const Result<Ended>& ended, const std::vector<TokenId>& found) {
    ids.set_value({ended, found});
  }));
  const auto [tokenized, found] = ids.get_future().get();
  REQUIRE(tokenized);
  REQUIRE(tokenized->outcome == Outcome::eos);
  REQUIRE(tokenized->usage.prompt_tokens == 3);
  REQUIRE(found == std::vector<TokenId>{'a', 'b', 'c'});

  const auto embed = [&] {
    auto end = std::make_shared<std::promise<std::pair<Result<Ended>, Embeddings>>>();
    const EmbedRequest request{.inputs = std::vector<std::string>{"one"}};
    REQUIRE(client->embed(request, [end](const Result<Ended>& ended, const Embeddings& vectors) {
      end->set_value({ended, vectors});
    }));
    return end->get_future();
  };
  auto served = embed();
  actors::End done = end_of(Outcome::eos);
  done.usage.prompt_tokens = 9;
  done.embeddings = std::make_shared<const actors::Embeddings>(actors::Embeddings{.dim = 2, .values = {1, 2}});
  server.gateway.wait_submitted(0).sink->end(done);
  const auto [ended, vectors] = served.get();
  REQUIRE(ended);
  REQUIRE(ended->outcome == Outcome::eos);
  REQUIRE(ended->usage.prompt_tokens == 9);
  REQUIRE(vectors.vectors == std::vector<std::vector<float>>{{1, 2}});

  auto refused = embed();
  actors::End full = end_of(Outcome::queue_full);
  full.field = "max_queued";
  full.retry_after = std::chrono::milliseconds(250);
  server.gateway.wait_submitted(1).sink->end(full);
  const auto [refusal, none] = refused.get();
  REQUIRE(refusal);
  REQUIRE(refusal->outcome == Outcome::queue_full);
  REQUIRE(refusal->field == "max_queued");
  REQUIRE(refusal->retry_after == std::chrono::milliseconds(250));
  REQUIRE(none.vectors.empty());

  auto lost = embed();
  server.gateway.wait_submitted(2);
  client->close();
  REQUIRE_FALSE(lost.get().first);
}

TEST_CASE("Health, Status and Welcome report a stalled server") {
  FakeServer server;
  const auto client = connect(server);
  REQUIRE_FALSE(client->server().health.stalled);
  REQUIRE_FALSE(client->health()->stalled);
  REQUIRE_FALSE(client->status()->health.stalled);
  server.gateway.stand_still();
  REQUIRE(client->health()->stalled);
  REQUIRE(client->health()->readiness == Readiness::ready);
  REQUIRE(client->status()->health.stalled);
  REQUIRE(connect(server)->server().health.stalled);
}

TEST_CASE("the library refuses requests that are too long and text that is not UTF-8") {
  FakeServer server({.max_frame_bytes = 5000});
  const auto client = connect(server);
  const auto long_prompt = client->generate({.prompt = std::string(6000, 'x')}, {});
  REQUIRE_FALSE(long_prompt);
  REQUIRE(long_prompt.error().code == ErrorCode::invalid_argument);
  REQUIRE(long_prompt.error().message.find("5000") != std::string::npos);
  REQUIRE_FALSE(client->generate({.prompt = "\xff"}, {}));
  REQUIRE_FALSE(client->generate({.prompt = "a", .stop = {"\xff"}}, {}));
  REQUIRE_FALSE(client->tokenize("\xff"));
  REQUIRE(client->health());  // the connection is as good as before
}

TEST_CASE("a drain is announced") {
  FakeServer server;
  const auto client = connect(server);
  REQUIRE_FALSE(client->draining());
  auto stream = client->generate({.prompt = "a"}, {});
  const auto submitted = server.gateway.wait_submitted(0);
  server.server->drain([] {});
  const auto done = server.gateway.wait_draining();
  submitted.sink->end(end_of(Outcome::eos));  // comes after the announcement, on the same wire
  REQUIRE(stream->wait()->outcome == Outcome::eos);
  REQUIRE(client->draining());
  done();
}

TEST_CASE("eight threads share one client without mixing their answers") {
  FakeServer server({.max_streams = 1000});
  const auto client = connect(server);
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        const std::string text = "thread " + std::to_string(t) + " round " + std::to_string(i);
        const auto ids = client->tokenize(text);
        if (ids && std::string(ids->begin(), ids->end()) == text) ++right;
      }
    });
  for (std::thread& thread : threads) thread.join();
  REQUIRE(right == 1600);
}

}  // namespace
}  // namespace troupe::client
