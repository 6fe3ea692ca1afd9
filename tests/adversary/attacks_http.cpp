// Attacks in HTTP, on the same socket.
#include <array>
#include <random>
#include <string>

#include "tests/adversary/attack.h"

namespace troupe::adversary {
namespace {

constexpr std::size_t kMostUnsent = 1 << 20;
constexpr std::size_t kPiece = 64 << 10;

std::string get(std::string_view path, std::string_view fields = "") {
  return "GET " + std::string(path) + " HTTP/1.1\r\nHost: localhost\r\n" + std::string(fields) + "\r\n";
}

std::string post(std::string_view path, std::string_view fields, std::string_view body) {
  return "POST " + std::string(path) + " HTTP/1.1\r\nHost: localhost\r\n" + std::string(fields) + "\r\n" +
         std::string(body);
}

std::string posted(std::string_view path, std::string_view body) {
  return post(path, "Content-Length: " + std::to_string(body.size()) + "\r\n", body);
}

// Requests of which a proxy might read another one: two framings, and a second request within the body.
std::string smuggled(std::mt19937_64& random) {
  static const std::array<std::string, 10> kFields{
      "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n",
      "Transfer-Encoding: chunked\r\nContent-Length: 6\r\n",
      "Content-Length: 6\r\nContent-Length: 7\r\n",
      "Content-Length: 6, 6\r\n",
      "Transfer-Encoding : chunked\r\n",
      "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
      "Transfer-Encoding: xchunked\r\n",
      "X: a\r\n Content-Length: 6\r\n",
      "X: a\nContent-Length: 6\r\n",
      "Content-Length: +6\r\n",
  };
  return post("/tokenize", kFields[random() % kFields.size()], "0\r\n\r\nGET /health HTTP/1.1\r\nX: x");
}

// A gigabyte that is announced, or chunks without end: whatever the server takes of it.
void send_more(Link& link, const std::string& kind) {
  const std::string piece = words(kPiece, link.number);
  if (link.counter++ == 0)
    link.send(post("/v1/completions",
                   kind == "chunks" ? "Transfer-Encoding: chunked\r\n" : "Content-Length: 1073741824\r\n",
                   kind == "chunks" ? "" : "{\"prompt\":\""));
  if (kind == "chunks")
    link.send("10000\r\n" + piece.substr(0, kPiece) + "\r\n");
  else
    link.send(piece);
}

// Fields without end, or one field that is.
void send_field(Link& link) {
  if (link.counter++ == 0) link.send("GET /health HTTP/1.1\r\nHost: localhost\r\n");
  if (link.number % 2 == 0)
    link.send("X-" + std::to_string(link.counter) + ": " + std::string(200, 'x') + "\r\n");
  else
    link.send((link.counter == 2 ? "X: " : "") + std::string(4096, 'x'));
}

std::string streamed(Link& link) {
  return posted("/v1/completions",
                R"({"prompt":"Once","n":4,"max_tokens":900,"ignore_eos":true,"stream":true,"seed":)" +
                    std::to_string(++link.counter) + "}");
}

}  // namespace

void http(Assault& assault) {
  static const std::array<std::string, 5> kPaths{"/health", "/v1/models", "/metrics", "/openapi.json", "/"};
  const std::string& kind = assault.parameters.kind;
  std::mt19937_64 random(assault.seed);
  Swarm swarm(
      {.socket = assault.socket, .connections = assault.parameters.connections, .greets = false, .speaks_http = true},
      assault.tally);
  swarm.on_room = [&](Link& link) {
    if (link.unsent() > kMostUnsent) return;
    if (kind == "questions") link.send(get(kPaths[++link.counter % kPaths.size()]));
    if (kind == "health") link.send(get("/health"));
    if (kind == "models") link.send(get("/v1/models"));
    if (kind == "smuggled") link.send(smuggled(random));
    if (kind == "bodies" || kind == "chunks") send_more(link, kind);
    if (kind == "heads") send_field(link);
    if (kind == "ahead") {
      link.reads = false;
      link.send(streamed(link));
    }
    if (kind == "leaves") {
      if (link.next == Clock::time_point{}) link.send(streamed(link));
      if (link.next == Clock::time_point{}) link.next = Clock::now() + std::chrono::milliseconds(random() % 200);
    }
  };
  swarm.on_turn = [&](Link& link) {
    if (kind == "leaves" && link.next != Clock::time_point{} && Clock::now() > link.next) link.close();
  };
  swarm.run(assault.until);
}

void strangers(Assault& assault) {
  constexpr std::string_view kDigits = "0123456789abcdefghijklmnopqrstuvwxyz";
  const std::string& kind = assault.parameters.kind;
  const auto pause = std::chrono::duration_cast<Clock::duration>(Seconds(assault.parameters.seconds_between));
  std::mt19937_64 random(assault.seed);
  const auto wrong_key = [&] {
    std::string key = "trp_0123456789_";
    while (key.size() < 58) key += kDigits[random() % kDigits.size()];
    return key;
  };
  Swarm swarm(
      {.socket = assault.tcp, .connections = assault.parameters.connections, .greets = false, .speaks_http = true},
      assault.tally);
  swarm.on_room = [&](Link& link) {
    const auto now = Clock::now();
    if (now < link.next) return;
    link.next = now + pause;  // one that the server ends comes again after it, too
    const bool is_first = link.counter++ == 0;
    if (kind == "half" && is_first) link.send("GET / HTTP/1.1\r\nHost: local");
    if (kind == "page" || kind == "unread") link.send(get("/"));
    link.reads = kind != "unread";
    if (kind == "guesses") link.send(get("/v1/models", "x-api-key: " + wrong_key() + "\r\n"));
  };
  swarm.run(assault.until);
}

void slowloris(Assault& assault) {
  const std::string& kind = assault.parameters.kind;
  Swarm swarm(
      {.socket = assault.socket, .connections = assault.parameters.connections, .greets = false, .speaks_http = true},
      assault.tally);
  swarm.on_room = [&](Link& link) {
    const auto now = Clock::now();
    if (now < link.next) return;
    link.next = now + std::chrono::milliseconds(500);
    if (link.counter++ == 0)
      link.send(kind == "head" ? "GET /health HTTP/1.1\r\nHost: localhost\r\nX: "
                               : post("/tokenize", "Content-Length: 100000\r\n", "{"));
    else
      link.send("a");
  };
  swarm.run(assault.until);
}

}  // namespace troupe::adversary
