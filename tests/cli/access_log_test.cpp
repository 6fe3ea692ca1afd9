// serve --access-log: a line for each request, over frames and HTTP, however it ended, and none of its text.
#include <sys/socket.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/process.h"

using namespace troupe::test;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;
using nlohmann::json;

namespace {

const std::string kPrompt = "Zebra Zanzibar";

std::string text_of(const std::string& path) {
  std::ifstream stream(path);
  return {std::istreambuf_iterator<char>(stream), {}};
}

// The lines about requests in a log of JSON.
std::vector<json> requests_in(const std::string& log) {
  std::vector<json> all;
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    const json object = json::parse(line);
    if (object.at("message") == "request") all.push_back(object);
  }
  return all;
}

// What those lines say of one member.
json column(const std::vector<json>& lines, const char* name) {
  json all = json::array();
  for (const json& line : lines) all.push_back(line.at(name));
  return all;
}

bool has_ended(const ServerProcess& server, const char* outcome, int count) {
  for (int look = 0; look < 1000; ++look)
    if (json::parse(server.call({"status", "--json"}).out)["requests_ended"][outcome] == count) return true;
  return false;
}

// Sends a request over HTTP and goes away once its answer has begun.
void leave_answer(const ServerProcess& server, const std::string& path, const std::string& body) {
  const troupe::FileDescriptor fd = connect_to(server.socket());
  const std::string request = post_of(path, body, "X-Request-Id: leaves\r\n");
  REQUIRE(::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(request.size()));
  std::string answer;
  char part[4096];
  while (answer.find("data: ") == std::string::npos) {
    const ssize_t size = ::recv(fd.get(), part, sizeof part, 0);
    REQUIRE(size > 0);
    answer.append(part, static_cast<std::size_t>(size));
  }
}

}  // namespace

TEST_CASE("--access-log: each request has one line, with what it was and how it ended, and none has a text or a key") {
  const TempFolder folder;
  const std::string path = folder.path("access.log");
  ServerProcess server(
      {"--access-log", path, "--log-format", "json", "-c", "65536", "--alias", "tales", "--chat-template", "chatml"});
  const auto http = [&](const std::string& endpoint, const json& body, const std::string& id) {
    return post(server.socket(), endpoint, body.dump(),
                "X-Request-Id: " + id + "\r\nAuthorization: Bearer trp_geheim\r\n");
  };
  const json say = {{"role", "user"}, {"content", kPrompt}};
  CHECK(server.call({"run", "-n", "5", "--ignore-eos", "--temp", "0", kPrompt}).code == 0);
  CHECK(server.call({"run", "--model-name", "other", kPrompt}).code == 2);
  CHECK(server.call({"run", "--choices", "2", "-n", "1", "--ignore-eos", kPrompt}).code == 0);
  CHECK(server.call({"embed", kPrompt}).code == 0);
  CHECK(server.call({"status"}).code == 0);
  Process cancelled(server.spawn({"run", "--ignore-eos", "--temp", "0", kPrompt}));
  REQUIRE(cancelled.wait_for_out(" "));
  cancelled.signal(SIGINT);
  CHECK(cancelled.wait().code == 130);
  CHECK_THAT(http("/v1/completions", {{"prompt", kPrompt}, {"max_tokens", 3}, {"ignore_eos", true}}, "done"),
             StartsWith("HTTP/1.1 200"));
  CHECK_THAT(http("/v1/chat/completions", {{"messages", {say}}, {"max_tokens", 2}, {"ignore_eos", true}}, "chat"),
             StartsWith("HTTP/1.1 200"));
  CHECK_THAT(http("/v1/completions", {{"prompt", kPrompt}, {"model", "x\" id=1\n"}}, "forged"),
             StartsWith("HTTP/1.1 404"));
  CHECK_THAT(http("/v1/completions", {{"prompt", kPrompt}, {"max_tokens", kPrompt}}, "wrong"),
             StartsWith("HTTP/1.1 400"));
  CHECK_THAT(http("/tokenize", {{"content", kPrompt}}, "ids"), StartsWith("HTTP/1.1 200"));
  CHECK_THAT(http("/v1/nothing", {{"prompt", kPrompt}}, "nothing"), StartsWith("HTTP/1.1 404"));
  leave_answer(server, "/v1/completions",
               json{{"prompt", kPrompt}, {"stream", true}, {"ignore_eos", true}, {"max_tokens", 60000}}.dump());
  REQUIRE(has_ended(server, "cancelled", 2));
  const Finished stopped = server.stop();
  CHECK(stopped.code == 0);
  CHECK(requests_in(stopped.err).empty());

  const std::string log = text_of(path);
  INFO(log);
  CHECK_THAT(log, !Contains("Zebra") && !Contains("Zanzibar") && !Contains("geheim"));
  const std::vector<json> lines = requests_in(log);
  REQUIRE(lines.size() == 12);
  CHECK(column(lines, "outcome") == json{"done", "refused", "done", "done", "done", "cancelled", "done", "done",
                                         "refused", "refused", "done", "cancelled"});
  CHECK(column(lines, "code") == json{"length", "unknown_model", "length", "length", "eos", "cancelled", "length",
                                      "length", "unknown_model", "invalid_argument", "eos", "cancelled"});
  CHECK(column(lines, "kind") == json{"generate", "generate", "generate", "generate", "embed", "generate", "generate",
                                      "generate", "generate", "generate", "tokenize", "generate"});
  CHECK(column(lines, "model") == json{"tales", "other", "tales", "tales", "tales", "tales", "tales", "tales",
                                       "x\" id=1\\n", nullptr, nullptr, "tales"});
  for (std::size_t i = 0; i < lines.size(); ++i) {
    INFO(lines[i].dump());
    CHECK(lines[i].at("protocol") == (i < 6 ? "frames" : "http"));
    CHECK(lines[i].at("tenant") == std::to_string(::geteuid()));
    CHECK(lines[i].at("total_ms") >= 0);
    const bool answers = lines[i].at("answer_tokens") > 0;
    CHECK(lines[i].at("ttft_ms").is_null() == !answers);
    if (!answers) continue;
    CHECK(lines[i].at("ttft_ms") <= lines[i].at("total_ms"));
    CHECK(lines[i].at("queue_ms") <= lines[i].at("ttft_ms"));
    CHECK(lines[i].at("prompt_tokens") > 0);
    CHECK(lines[i].at("id") > 0);
  }
  CHECK(lines[0].at("answer_tokens") == 5);
  CHECK(lines[2].at("choice") != lines[3].at("choice"));
  CHECK(lines[6].at("client_id") == "done");
  CHECK(lines[7].at("client_id") == "chat");
  CHECK(lines[9].at("id").is_null());
  CHECK(lines[9].at("client_id") == "wrong");
  CHECK(lines[11].at("client_id") == "leaves");
}

TEST_CASE(
    "--access-log: a renamed file is left by SIGHUP, and a path that cannot be opened leaves lines where they went") {
  const TempFolder folder;
  const std::string path = folder.path("access.log");
  const auto configure = [&](const std::string& value) {
    return folder.write("t.toml", "access-log = \"" + value + "\"\n");
  };
  const std::string config = configure("off");
  ServerProcess server({"--config", config});
  const auto ask = [&] { CHECK(server.call({"run", "-n", "1", kPrompt}).code == 0); };
  const auto reload = [&](const std::string& says) {
    server.process().signal(SIGHUP);
    REQUIRE(server.process().wait_for_err(says));
  };
  const auto count_in = [](const std::string& file) {
    const std::string text = text_of(file);
    CHECK_THAT(text, !Contains("Zebra"));
    return std::count(text.begin(), text.end(), '\n');
  };
  ask();
  configure(path);
  reload("reload: access-log = \"" + path + "\" (" + config + ":1)");
  ask();
  ask();
  std::filesystem::rename(path, path + ".1");
  reload("reload: no option has changed");
  CHECK(count_in(path + ".1") == 2);
  ask();
  configure(folder.path("none/access.log"));
  reload("reload: --access-log: " + folder.path("none/access.log") + ": No such file");
  ask();
  configure("log");
  reload("reload: access-log = \"log\"");
  CHECK(count_in(path) == 2);
  ask();
  const Finished stopped = server.stop();
  CHECK(stopped.code == 0);
  CHECK_THAT(stopped.err, Contains(" info request id=6 client_id=- tenant=") && !Contains("request id=5"));
  CHECK(count_in(path) == 2);
  CHECK(count_in(path + ".1") == 2);
}

TEST_CASE(
    "--access-log log: whatever the log's level, a flood of refused requests is cut off at the limit and counted") {
  const TempFolder folder;
  const std::string socket = folder.path("t.sock");
  Process server(Spawn{.arguments = {"serve", "--socket", socket, "--access-log", "log",
                                     "--max-access-lines-per-second", "1", "--log-level", "off"}});
  bool served = false;
  for (int look = 0; look < 1000 && !served; ++look) served = invoke({"status", "--socket", socket}).code == 0;
  REQUIRE(served);
  constexpr int kAsked = 300;  // too many for one a second, however slow this machine is
  std::string requests;
  const std::string fields = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n";
  for (int i = 0; i < kAsked; ++i) requests += fields + (i + 1 < kAsked ? "\r\n{" : "Connection: close\r\n\r\n{");
  {
    const troupe::FileDescriptor fd = connect_to(socket);
    REQUIRE(::send(fd.get(), requests.data(), requests.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(requests.size()));
    char part[4096];
    while (::recv(fd.get(), part, sizeof part, 0) > 0) continue;
  }
  const Finished metrics = invoke({"status", "--prometheus", "--socket", socket});
  CHECK_THAT(metrics.out, Contains("\ntroupe:access_lines_left_out_total{"));
  server.signal(SIGTERM);
  const Finished stopped = server.wait();
  CHECK(stopped.code == 0);
  int lines = 0, left_out = 0;
  std::istringstream log(stopped.err);
  for (std::string line; std::getline(log, line);) {
    if (line.find(" request id=") != std::string::npos) ++lines;
    for (const std::string before : {" left_out=", " warning "})
      if (const std::size_t at = line.find(before); at != std::string::npos)
        left_out += std::atoi(line.c_str() + at + before.size());
  }
  INFO(stopped.err);
  CHECK(lines >= 5);
  CHECK(lines < kAsked);
  CHECK(lines + left_out == kAsked);
}
