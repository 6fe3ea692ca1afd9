// Mutated requests against a server: each is answered or its connection ends, and the server goes on.
//
//   TROUPE_MUTATIONS=100000 build/asan/tests/ipc/ipc_http_test "*mutated*"
#include <random>
#include <string>
#include <vector>

#include "tests/fuzz/mutation_count.h"
#include "tests/ipc/fixture.h"
#include "tests/ipc/http/http_client.h"

using namespace troupe;
using namespace troupe::ipc::test;
using namespace troupe::ipc::http::test;

namespace {

std::string posted(const std::string& path, const std::string& body, bool chunked) {
  std::string bytes = "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
  if (!chunked) return bytes + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  const std::string half = body.substr(0, body.size() / 2), rest = body.substr(half.size());
  char line[32];
  std::snprintf(line, sizeof(line), "%zx\r\n", half.size());
  bytes += std::string("Transfer-Encoding: chunked\r\n\r\n") + line + half + "\r\n";
  std::snprintf(line, sizeof(line), "%zX;x=y\r\n", rest.size());
  return bytes + line + rest + "\r\n0\r\n\r\n";
}

std::vector<std::string> valid_requests() {
  std::vector<std::string> requests{
      "GET /health HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\nConnection: keep-alive\r\n\r\n",
      "GET /v1/models/fake?x=y HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n\r\n",
      "HEAD /version HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
      "OPTIONS * HTTP/1.1\r\nHost: [::1]:80\r\n\r\n",
  };
  const std::vector<std::pair<std::string, std::string>> bodies{
      {"/tokenize", R"({"content":"Once upon","add_special":true,"with_pieces":true})"},
      {"/detokenize", R"({"tokens":[1,2,3]})"},
      {"/v1/completions", R"({"model":"fake","prompt":"x","n":2,"stream":true,"stop":["a"],"temperature":0.5})"},
      {"/v1/chat/completions", R"({"model":"fake","messages":[{"role":"user","content":"x"}],"stream":true})"},
      {"/v1/messages", R"({"model":"fake","max_tokens":9,"messages":[{"role":"user","content":"x"}]})"},
      {"/v1/embeddings", R"({"model":"fake","input":["a","b"]})"},
  };
  for (const auto& [path, body] : bodies)
    for (const bool chunked : {false, true}) requests.push_back(posted(path, body, chunked));
  return requests;
}

void mutate(std::string& bytes, std::mt19937_64& random) {
  static const std::vector<std::string> kWords{"\r\n",
                                               "\n",
                                               "\r",
                                               " ",
                                               "\t",
                                               ":",
                                               std::string(1, '\0'),
                                               "\r\n\r\n",
                                               "Content-Length: 5\r\n",
                                               "Transfer-Encoding: chunked\r\n",
                                               "Host: other\r\n",
                                               "0\r\n\r\n",
                                               "Expect: 100-continue\r\n",
                                               "Connection: close\r\n",
                                               "18446744073709551616",
                                               "-1",
                                               "\"",
                                               "[[[[[[[[",
                                               "\xff\xfe"};
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  const std::size_t at = below(bytes.size() + 1);
  switch (below(6)) {
    case 0:
      if (at < bytes.size()) bytes[at] = static_cast<char>(random());
      break;
    case 1:
      bytes.insert(at, kWords[below(kWords.size())]);
      break;
    case 2:
      bytes.erase(at, 1 + below(8));
      break;
    case 3:
      bytes.insert(at, bytes.substr(below(bytes.size() + 1), below(64)));
      break;
    case 4:
      bytes.resize(at);
      break;
    default:
      if (at < bytes.size()) bytes[at] ^= static_cast<char>(1u << below(8));
  }
}

}  // namespace

TEST_CASE("http: 10,000 mutated requests are answered or end their connection, and the server goes on") {
  ServerOptions options;
  options.limits.max_frames_per_second = options.limits.max_questions_per_second =
      options.limits.max_refusals_per_second = 1u << 30;
  FakeServer server(options);
  const std::vector<std::string> valid = valid_requests();
  std::mt19937_64 random(17);
  const int count = fuzz::num_mutations(10000);
  int answered = 0;
  for (int i = 0; i < count; ++i) {
    std::string bytes;
    for (std::size_t n = 1 + random() % 3; n > 0; --n) bytes += valid[random() % valid.size()];
    for (std::size_t n = 1 + random() % 4; n > 0; --n) mutate(bytes, random);
    if (!ipc::begins_http(bytes)) bytes.insert(0, "GET ");
    INFO(bytes);
    HttpClient client(server.path());
    client.send(bytes);
    client.finish();
    const std::string answer = client.rest();  // until the server closes
    if (!answer.empty()) {
      REQUIRE(answer.starts_with("HTTP/1.1 "));
      ++answered;
    }
  }
  CHECK(answered > count / 2);
  HttpClient client(server.path());
  client.get("/health");
  CHECK(client.expect().status == 200);
}
