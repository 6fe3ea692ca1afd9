// The driver against a real HTTP server (http_server.py), which answers and misbehaves as each request tells it.
#include "bench/load/drivers/openai_driver.h"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <future>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/load/drivers/shut_out.h"
#include "bench/load/report/summary.h"
#include "tests/cli/process.h"

using namespace troupe;
using namespace troupe::load;
using namespace std::chrono_literals;

namespace {

class HttpServer {
 public:
  explicit HttpServer(bool unix_socket = false, const std::string& key = {}) : process_(spawn(unix_socket, key)) {
    REQUIRE(process_.wait_for_out("\n"));
    address_ = process_.out().substr(0, process_.out().find('\n'));
  }
  const std::string& address() const { return address_; }
  bool wait_for(const std::string& said) { return process_.wait_for_out(said); }

 private:
  test::Spawn spawn(bool unix_socket, const std::string& key) const {
    test::Spawn spawn{.arguments = {TROUPE_HTTP_SERVER, folder_.path("http.sock"), unix_socket ? "--unix" : "--tcp"},
                      .program = TROUPE_PYTHON};
    if (!key.empty()) spawn.arguments.push_back(key);
    return spawn;
  }

  test::TempFolder folder_;
  test::Process process_;
  std::string address_;
};

PlannedRequest request_of(TokenId kind, std::uint32_t max_tokens) {
  PlannedRequest request;
  request.prompt = std::vector<TokenId>{kind, 5, 6, 7};
  request.sampling.max_tokens = max_tokens;
  request.sampling.seed = max_tokens;
  return request;
}

Result<Run> drive(const std::string& address, std::vector<PlannedRequest> requests, OpenAiOptions options = {},
                  std::uint32_t clients = 4) {
  PlanSpec spec;
  spec.pace.clients = clients;
  spec.faults.slow_reader_pause_s = 0.05;
  const auto plan = Plan::from_trace(spec, std::move(requests), false);
  REQUIRE(plan);
  const auto server = reach_openai(address, "", 1000ms);
  if (!server) return server.error();
  return run_openai(*plan, *server, options);
}

}  // namespace

TEST_CASE("a plan runs against an HTTP server on TCP and on a Unix socket") {
  for (const bool unix_socket : {false, true}) {
    const HttpServer server(unix_socket);
    std::vector<PlannedRequest> requests;
    for (std::uint32_t i = 0; i < 40; ++i) requests.push_back(request_of(i % 2 ? 100 : 1, 8));
    const auto run = drive(server.address(), requests);
    REQUIRE(run);
    REQUIRE(run->records.size() == 40);
    const Summary summary = summarize(*run, {});
    CHECK(summary.completed == 40);
    CHECK(summary.ended_exactly_once());
    CHECK(summary.input_tokens == 160);
    CHECK(summary.output_tokens == 320);
    CHECK(summary.cached_tokens == 40 * 32);
    for (const RequestRecord& record : run->records) {
      CHECK(record.outcome == "length");
      CHECK(record.arrivals.size() <= (record.index % 2 ? 4 : 8));  // chunks that one read brings are one arrival
      CHECK(record.arrivals.back().at_s <= record.end_s);
      CHECK(record.sent_s <= record.arrivals.front().at_s);
    }
  }
}

TEST_CASE("an open loop sends at its times and not when answers come") {
  const HttpServer server;
  PlanSpec spec;
  const auto reached = reach_openai(server.address(), "tiny", 1000ms);
  REQUIRE(reached);
  CHECK(reached->vocabulary.size == 256);
  CHECK(reached->vocabulary.context == 512u);
  std::vector<PlannedRequest> requests;
  for (std::uint32_t i = 0; i < 20; ++i) {
    requests.push_back(request_of(1, 4));
    requests.back().arrival_s = 0.005 * i;
  }
  const auto plan = Plan::from_trace(spec, requests, true);
  REQUIRE(plan);
  const auto run = run_openai(*plan, *reached, {});
  REQUIRE(run);
  CHECK(summarize(*run, {}).completed == 20);
  for (const RequestRecord& record : run->records) {
    CHECK(record.intended_s == Approx(0.005 * static_cast<double>(record.index)));
    CHECK(record.sent_s >= record.intended_s);
  }
}

TEST_CASE("refusals, failures and lost connections are distinguished, each with the server's message") {
  const HttpServer server;
  const auto run = drive(server.address(), {request_of(101, 1), request_of(102, 1), request_of(103, 4),
                                            request_of(104, 4), request_of(105, 4), request_of(106, 1),
                                            request_of(107, 4), request_of(108, 1), request_of(1, 4)});
  REQUIRE(run);
  const auto expect = [&](std::size_t index, EndKind kind, const std::string& outcome, const std::string& words) {
    const RequestRecord& record = run->records.at(index);
    INFO(index << ": " << record.outcome << ": " << record.message);
    CHECK(record.kind == kind);
    CHECK(record.outcome == outcome);
    CHECK(record.message.find(words) != std::string::npos);
    CHECK(record.num_ends == 1);
  };
  expect(0, EndKind::refused, "http_429", "later");
  expect(1, EndKind::refused, "http_503", "no slot is free");
  expect(2, EndKind::lost, "connection", "");
  expect(3, EndKind::failed, "server_error", "step failed");
  expect(4, EndKind::failed, "protocol", "an event of more than 1048576 bytes");
  expect(5, EndKind::failed, "protocol", "an error of more than 65536 bytes");
  expect(6, EndKind::lost, "connection", "ended before it was finished");
  expect(7, EndKind::failed, "protocol", "headers of more than 65536 bytes");
  expect(8, EndKind::done, "length", "");
  CHECK(run->records[2].completion_tokens == 2);
}

TEST_CASE("a refusal with Retry-After is tried again, as often as was allowed") {
  const HttpServer server;
  const auto run =
      drive(server.address(), {request_of(101, 3), request_of(102, 2)}, {.max_retries = 2, .max_backoff = 1ms});
  REQUIRE(run);
  CHECK(run->records[0].outcome == "length");
  CHECK(run->records[0].retries == 1);
  CHECK(run->records[0].completion_tokens == 3);
  CHECK(run->records[1].outcome == "http_503");
  CHECK(run->records[1].retries == 2);
  CHECK(run->records[1].message == "no slot is free");
}

TEST_CASE("Retry-After is waited for, max_backoff at most, and an invalid request is not sent again") {
  const HttpServer server;
  const auto patient = drive(server.address(), {request_of(110, 1), request_of(109, 1)}, {.max_retries = 2});
  REQUIRE(patient);
  CHECK(patient->records[0].outcome == "length");
  CHECK(patient->records[0].end_s - patient->records[0].sent_s >= 1.0);
  CHECK(patient->records[1].outcome == "http_400");
  CHECK(patient->records[1].retries == 0);
  const auto hasty = drive(server.address(), {request_of(110, 3600)}, {.max_retries = 1, .max_backoff = 1ms});
  REQUIRE(hasty);
  CHECK(hasty->records[0].outcome == "length");
}

TEST_CASE("an answer that is too long, stalls or ends twice is reported as such") {
  const HttpServer server;
  const auto too_long = drive(server.address(), {request_of(1, 200)}, {.max_answer_bytes = 1000});
  REQUIRE(too_long);
  CHECK(too_long->records[0].kind == EndKind::failed);
  CHECK(too_long->records[0].message.find("an answer of more than 1000 bytes") != std::string::npos);
  const auto held = drive(server.address(), {request_of(111, 4), request_of(112, 4)}, {.patience = 1s});
  REQUIRE(held);
  CHECK(held->records[0].kind == EndKind::lost);
  CHECK(held->records[0].outcome == "timeout");
  CHECK(held->records[0].completion_tokens == 1);
  CHECK(held->records[1].num_ends == 2);
  CHECK_FALSE(summarize(*held, {}).ended_exactly_once());
}

TEST_CASE("after `stop` is set it ends running requests and sends nothing more") {
  HttpServer server;
  std::atomic<bool> stop{false};
  auto stopper = std::async(std::launch::async, [&] {
    const bool held = server.wait_for("held");
    stop = true;
    return held;
  });
  const auto run = drive(server.address(), {request_of(111, 4), request_of(1, 4)}, {.stop = &stop}, 1);
  CHECK(stopper.get());
  REQUIRE(run);
  REQUIRE(run->records.size() == 1);
  CHECK(run->records[0].outcome == "cancelled");
  CHECK(run->records[0].num_ends == 1);
}

TEST_CASE("faults: a cancel and a disconnect hang up at their token, a slow reader goes on after its pause") {
  const HttpServer server;
  std::vector<PlannedRequest> requests(3, request_of(1, 200));
  requests.push_back(request_of(111, 4));
  requests[3].fault = Fault::disconnect;
  requests[3].fault_point.delay_s = 0.01;  // of an answer that would never end
  requests[0].fault = Fault::cancel;
  requests[0].fault_point.after_tokens = 3;
  requests[1].fault = Fault::disconnect;
  requests[1].fault_point.after_tokens = 5;
  requests[2].fault = Fault::slow_reader;
  requests[2].fault_point.after_tokens = 1;
  const auto run = drive(server.address(), requests);
  REQUIRE(run);
  CHECK(run->records[0].kind == EndKind::done);
  CHECK(run->records[0].outcome == "cancelled");
  CHECK(run->records[0].completion_tokens == 3);
  CHECK(run->records[1].outcome == "disconnected");
  CHECK(run->records[1].completion_tokens == 5);
  CHECK(run->records[2].outcome == "length");
  CHECK(run->records[2].completion_tokens == 200);
  CHECK(run->records[2].fault_at_s);
  CHECK(run->records[3].outcome == "disconnected");
  CHECK(summarize(*run, {}).ended_exactly_once());
}

TEST_CASE("a server that cannot be reached or is no OpenAI server is an error that names it") {
  for (const char* target : {"127.0.0.1:80", "ftp://host", "http+unix://relative.sock", "http://", ""}) {
    INFO(target);
    CHECK(parse_openai_target(target).error().code == ErrorCode::invalid_argument);
  }
  CHECK(parse_openai_target("http://127.0.0.1:8080/v1/")->url == "http://127.0.0.1:8080");
  CHECK(parse_openai_target("http+unix:///run/x.sock")->unix_socket == "/run/x.sock");
  CHECK(reach_openai("http+unix:///nowhere/x.sock", "", 0ms).error().code == ErrorCode::io);
  const HttpServer server;
  const auto other = reach_openai(server.address(), "another", 0ms);
  CHECK(other.error().code == ErrorCode::model_missing);
  CHECK(other.error().message.find("it has: tiny") != std::string::npos);
}

TEST_CASE("the API key is sent with every request, and a server that wants another one is an error") {
  const HttpServer server(false, "secret");
  const auto none = reach_openai(server.address(), "", 0ms);
  REQUIRE_FALSE(none);
  CHECK(none.error().code == ErrorCode::permission);
  CHECK(none.error().message.find("--api-key") != std::string::npos);
  const auto wrong = reach_openai(server.address(), "", 0ms, "guess");
  CHECK(wrong.error().message.find("another key") != std::string::npos);
  const auto reached = reach_openai(server.address(), "", 0ms, "secret");
  REQUIRE(reached);
  PlanSpec spec;
  spec.pace.clients = 1;
  const auto plan = Plan::from_trace(spec, {request_of(1, 4)}, false);
  REQUIRE(plan);
  CHECK(run_openai(*plan, *reached, {}).value().records.at(0).outcome == "length");
}

TEST_CASE("a key that is revoked during the run ends it, and so does a server that has gone") {
  const HttpServer server;
  std::vector<PlannedRequest> requests(40, request_of(1, 4));
  requests[5] = request_of(113, 4);
  const auto run = drive(server.address(), requests, {}, 2);
  REQUIRE(run);
  REQUIRE(run->shut_out);
  CHECK(run->shut_out->denied);
  CHECK(run->shut_out->why == "Invalid API Key");
  CHECK(run->interrupted);
  CHECK(run->records.size() < 20);
  // The other client may be in the middle of a request when the key is found wrong; that one is cut off.
  const auto done = std::count_if(run->records.begin(), run->records.begin() + 5,
                                  [](const RequestRecord& record) { return record.kind == EndKind::done; });
  CHECK(done >= 4);

  // Nothing listens there any more.
  PlanSpec spec;
  spec.pace.clients = 1;
  const auto plan = Plan::from_trace(spec, requests, false);
  REQUIRE(plan);
  OpenAiServer gone;
  {
    const HttpServer other;
    gone = *reach_openai(other.address(), "", 1000ms);
  }
  const auto none = run_openai(*plan, gone, {});
  REQUIRE(none);
  REQUIRE(none->shut_out);
  CHECK_FALSE(none->shut_out->denied);
  CHECK(none->records.size() == ShutOut::kEnough + 1);
}

TEST_CASE("a request's JSON holds exact ids, its sampling, and asks for counts") {
  PlannedRequest request = request_of(9, 16);
  request.sampling.temperature = 0;
  request.sampling.seed = ~std::uint64_t{0};
  request.sampling.ignore_eos = true;
  const OpenAiServer ours{.model = "tiny", .server = "troupe"}, other{.model = "tiny", .server = "llama.cpp"};
  CHECK(nlohmann::json::parse(completion_body(request, other))["timings_per_token"] == true);
  const auto body = nlohmann::json::parse(completion_body(request, ours));
  CHECK_FALSE(body.contains("timings_per_token"));
  CHECK(body["prompt"] == nlohmann::json::array({9, 5, 6, 7}));
  CHECK(body["max_tokens"] == 16);
  CHECK(body["temperature"] == 0);
  CHECK(body["seed"] == 0x7fffffff);
  CHECK(body["ignore_eos"] == true);
  CHECK(body["stream"] == true);
  CHECK(body["stream_options"]["include_usage"] == true);
  CHECK_FALSE(body.contains("top_k"));
}
