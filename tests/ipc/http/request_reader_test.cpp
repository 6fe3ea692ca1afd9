// Requests as bytes: well-formed ones, hostile ones, and every way to cut them.
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "ipc/http/request_reader.h"
#include "tests/ipc/http/read_all.h"

using namespace troupe::ipc::http;
using namespace troupe::ipc::http::test;

namespace {

const std::string kHost = "Host: localhost\r\n";

std::string get(const std::string& fields) { return "GET /health HTTP/1.1\r\n" + kHost + fields + "\r\n"; }
std::string post(const std::string& fields, const std::string& body = {}) {
  return "POST /tokenize HTTP/1.1\r\n" + kHost + fields + "\r\n" + body;
}

int status_of(const std::string& bytes, std::uint64_t max_body_bytes = 1 << 20) {
  const ReadResult result = read_all({bytes}, max_body_bytes);
  return result.failed ? result.error.status : 200;
}

}  // namespace

TEST_CASE("a request is read with its method, path, query, fields and body") {
  const ReadResult result =
      read_all({"POST /tokenize?a=b&c HTTP/1.1\r\nHost: localhost:8080\r\nContent-Type: \t application/json \r\n"
                "content-LENGTH: 5\r\n\r\nhello"});
  REQUIRE_FALSE(result.failed);
  REQUIRE(result.requests.size() == 1);
  const Request& request = result.requests[0];
  CHECK(request.head.method == "POST");
  CHECK(request.head.path == "/tokenize");
  CHECK(request.head.query == "a=b&c");
  CHECK(request.head.host == "localhost:8080");
  REQUIRE(request.head.find("content-type"));
  CHECK(*request.head.find("content-type") == "application/json");
  CHECK(request.head.length == 5);
  CHECK(request.head.keep_alive);
  CHECK(request.body == "hello");
}

TEST_CASE("requests sent one after the other are read one after the other") {
  const ReadResult result = read_all({get("") + post("Content-Length: 3\r\n", "abc") + "\r\n" + get("X: 1\r\n")});
  REQUIRE_FALSE(result.failed);
  REQUIRE(result.requests.size() == 3);
  CHECK(result.requests[1].body == "abc");
  CHECK(*result.requests[2].head.find("x") == "1");
  CHECK(result.rest == 0);
}

TEST_CASE("a chunked body is put together, its extensions mean nothing, and trailers are refused") {
  const std::string chunks = "5\r\nhello\r\n00A;name=\"va;l\"\r\n0123456789\r\n0\r\n";
  const ReadResult plain = read_all({post("Transfer-Encoding: Chunked\r\n", chunks + "\r\n")});
  INFO(plain.error.message);
  REQUIRE(plain.requests.size() == 1);
  CHECK(plain.requests[0].body == "hello0123456789");
  for (const char* trailer : {"X-Sum: 7\r\n", "Connection: close\r\n", "Authorization: Bearer x\r\n"}) {
    const ReadResult result = read_all({post("Transfer-Encoding: chunked\r\n", chunks + trailer + "\r\n")});
    CHECK(result.failed);
    CHECK(result.requests.empty());
    CHECK(result.error.status == 400);
    CHECK(result.error.message.find("trailers") != std::string::npos);
  }
  // The parser itself refuses a length among the trailers.
  CHECK(read_all({post("Transfer-Encoding: chunked\r\n", chunks + "Content-Length: 7\r\n\r\n")}).failed);
}

TEST_CASE("what a proxy might read differently is refused") {
  const std::string chunked = "Transfer-Encoding: chunked\r\n", length = "Content-Length: 5\r\n";
  const std::vector<std::pair<int, std::string>> hostile{
      {400, post(length + chunked, "0\r\n\r\n")},
      {400, post(chunked + length, "0\r\n\r\n")},
      {400, post(length + length, "hello")},
      {400, post(length + "Content-Length: 6\r\n", "hello!")},
      {400, post("Content-Length: 5, 5\r\n", "hello")},
      {400, post("Content-Length: +5\r\n", "hello")},
      {400, post("Content-Length: 5 5\r\n", "hello")},
      {400, post("Content-Length: 0x5\r\n", "hello")},
      {400, post("Content-Length: -1\r\n", "hello")},
      {400, post("Content-Length: \r\n", "hello")},
      {400, post("Content-Length: 18446744073709551621\r\n", "hello")},
      {400, post(chunked + chunked, "0\r\n\r\n")},
      {501, post("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n")},
      {501, post("Transfer-Encoding: chunked, chunked\r\n", "0\r\n\r\n")},
      {501, post("Transfer-Encoding: chunked, identity\r\n", "0\r\n\r\n")},
      {501, post("Transfer-Encoding: xchunked\r\n", "0\r\n\r\n")},
      {400, post("Transfer-Encoding: \x0b"
                 "chunked\r\n",
                 "0\r\n\r\n")},
      {400, "POST / HTTP/1.0\r\n" + chunked + "\r\n0\r\n\r\n"},
      {400, get("Transfer-Encoding : chunked\r\n")},
      {400, get("X: a\r\n b\r\n")},
      {400, get("X: a\r\n\tb\r\n")},
      {400, get(" X: a\r\n")},
      {400, "GET / HTTP/1.1\nHost: a\n\n"},
      {400, "GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n"},
      {400, "GET / HTTP/1.1\r\nHost: a\rX: b\r\n\r\n"},
      {400, "GET / HTTP/1.1\r\nHost: a\r\r\n\r\n"},
      {400, get("X: a\x01\r\n")},
      {400, get(std::string("X: a\0b\r\n", 8))},
      {400, get(": a\r\n")},
      {400, get("X\r\n")},
      {400, get("X(: a\r\n")},
      {400, get("Host: localhost\r\n")},
      {400, "GET / HTTP/1.1\r\n\r\n"},
      {400, "GET / HTTP/1.1\r\nHost: a b\r\n\r\n"},
      {400, "GET / HTTP/1.1\r\nHost: a@b\r\n\r\n"},
      {400, "GET / HTTP/1.1\r\nHost: [::1\r\n\r\n"},
      {400, "GET / HTTP/1.1\r\nHost: a:80a\r\n\r\n"},
      {400, "GET  / HTTP/1.1\r\n" + kHost + "\r\n"},
      {400, "GET /  HTTP/1.1\r\n" + kHost + "\r\n"},
      {400, "GET / x HTTP/1.1\r\n" + kHost + "\r\n"},
      {400, " GET / HTTP/1.1\r\n" + kHost + "\r\n"},
      {400, "GET /\r\n" + kHost + "\r\n"},
      {400, "GET / HTTP/1.1 \r\n" + kHost + "\r\n"},
      {400, "GET / HTTP/1.x\r\n" + kHost + "\r\n"},
      {400, "GET / http/1.1\r\n" + kHost + "\r\n"},
      {505, "GET / HTTP/2.0\r\n" + kHost + "\r\n"},
      {505, "GET / HTTP/0.9\r\n" + kHost + "\r\n"},
      {400, "GET health HTTP/1.1\r\n" + kHost + "\r\n"},
      {400, "GET * HTTP/1.1\r\n" + kHost + "\r\n"},
      {400, "GET /a#b HTTP/1.1\r\n" + kHost + "\r\n"},
      {400, "GET /\xc3\xa4 HTTP/1.1\r\n" + kHost + "\r\n"},
      {400, "GET http:///a HTTP/1.1\r\n" + kHost + "\r\n"},
      {400, "GET http://a@b/ HTTP/1.1\r\n" + kHost + "\r\n"},
      {400, "CONNECT localhost:80 HTTP/1.1\r\n" + kHost + "\r\n"},
      {400, "\r\n\r\nGET / HTTP/1.1\r\n" + kHost + "\r\n"},
      {415, post("Content-Encoding: gzip\r\n" + length, "hello")},
      {417, post("Expect: 200-ok\r\n" + length, "hello")},
      {400, post(chunked, "5 \r\nhello\r\n0\r\n\r\n")},
      {400, post(chunked, "+5\r\nhello\r\n0\r\n\r\n")},
      {400, post(chunked, "0x5\r\nhello\r\n0\r\n\r\n")},
      {400, post(chunked, "-5\r\nhello\r\n0\r\n\r\n")},
      {400, post(chunked, "\r\nhello\r\n0\r\n\r\n")},
      {400, post(chunked, "5\nhello\r\n0\r\n\r\n\r\n")},
      {400, post(chunked, "5\r\nhelloX\r\n0\r\n\r\n")},
      {400, post(chunked, "5\r\nhello0\r\n\r\n\r\n")},
      {400, post(chunked, "5;a=\"\n\"\r\nhello\r\n0\r\n\r\n")},
      {400, post(chunked, "5;\r\nhello\r\n0\r\n\r\n")},
      {400, post(chunked, "5\rXhello\r\n0\r\n\r\n")},
      {400, post(chunked, "0\r\nX: a\nY: b\r\n\r\n")},
      {400, post(chunked, "0\r\nX : a\r\n\r\n")},
      {413, post(chunked, "fffffffffffffff\r\n")},
      {400, post(chunked, "10000000000000000\r\n")},
  };
  for (const auto& [status, bytes] : hostile) {
    INFO(bytes);
    CHECK(status_of(bytes) == status);
  }
}

TEST_CASE("what is above a limit is refused with the status that says so") {
  CHECK(status_of(get("X: " + std::string(kMaxHeaderBytes, 'a') + "\r\n")) == 431);
  CHECK(status_of(std::string(kMaxHeaderBytes + 1, 'a')) == 431);
  std::string fields;
  for (std::size_t i = 0; i < kMaxFields; ++i) fields += "X: 1\r\n";  // and Host
  CHECK(status_of(get(fields)) == 431);
  CHECK(status_of(get(fields.substr(6))) == 200);
  CHECK(status_of("GET /" + std::string(kMaxTargetBytes, 'a') + " HTTP/1.1\r\n" + kHost + "\r\n") == 414);
  CHECK(status_of(post("Content-Length: 11\r\n"), 10) == 413);
  CHECK(status_of(post("Content-Length: 10\r\n", "0123456789"), 10) == 200);
  CHECK(status_of(post("Transfer-Encoding: chunked\r\n", "6\r\n012345\r\n5\r\n01234\r\n"), 10) == 413);
  CHECK(status_of(post("Transfer-Encoding: chunked\r\n", "1;" + std::string(kMaxChunkLineBytes, 'a'))) == 431);
  // A whole line, at once or byte by byte, up to the bound.
  for (const std::size_t size : {kMaxChunkLineBytes, kMaxChunkLineBytes + 1, kMaxChunkLineBytes + 10}) {
    for (const std::string& line :
         {"1;" + std::string(size - 2, 'a'), std::string(size - 1, '0') + "1", std::string(size - 3, '0') + "1;a"}) {
      const std::string whole =
          post("Transfer-Encoding: chunked\r\n", "2\r\nyz\r\n" + line + "\r\nx\r\n" + line + "\r\nx\r\n0\r\n\r\n");
      INFO(size << " bytes: " << line.substr(0, 2) << "..." << line.substr(size - 3));
      const int wanted = size > kMaxChunkLineBytes ? 431 : 200;
      CHECK(status_of(whole) == wanted);
      for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, kMaxChunkLineBytes}) {
        std::vector<std::string> pieces;
        for (std::size_t at = 0; at < whole.size(); at += piece) pieces.push_back(whole.substr(at, piece));
        const ReadResult slow = read_all(pieces);
        CHECK((slow.failed ? slow.error.status : 200) == wanted);
      }
    }
  }
  CHECK(status_of(post("Transfer-Encoding: chunked\r\n", "0\r\nX: " + std::string(kMaxChunkLineBytes, 'a'))) == 431);
}

TEST_CASE("a client says whether the connection goes on") {
  const auto keep_alive = [](const std::string& bytes) {
    const ReadResult result = read_all({bytes});
    REQUIRE(result.requests.size() == 1);
    return result.requests[0].head.keep_alive;
  };
  CHECK(keep_alive(get("")));
  CHECK_FALSE(keep_alive(get("Connection: close\r\n")));
  CHECK_FALSE(keep_alive(get("Connection: TE, Close\r\n")));
  CHECK_FALSE(keep_alive(get("Connection: keep-alive\r\nConnection: close\r\n")));
  CHECK_FALSE(keep_alive("GET / HTTP/1.0\r\n\r\n"));
  CHECK(keep_alive("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"));
}

TEST_CASE("a target names a path, a whole address, or the server") {
  const auto head_of = [](const std::string& line) {
    const ReadResult result = read_all({line + " HTTP/1.1\r\n" + kHost + "\r\n"});
    INFO(result.error.message);
    REQUIRE(result.requests.size() == 1);
    return result.requests[0].head;
  };
  CHECK(head_of("GET http://other:80/a?b").path == "/a");
  CHECK(head_of("GET http://other:80/a?b").query == "b");
  CHECK(head_of("GET http://other:80/a?b").host == "other:80");  // it counts, and Host does not
  CHECK(head_of("GET HTTP://other").path == "/");
  CHECK(head_of("OPTIONS *").path == "*");
  CHECK(head_of("GET /?").path == "/");
}

TEST_CASE("however the bytes are cut, the same is read") {
  const std::vector<std::string> cases{
      get("") + post("Content-Length: 3\r\n", "abc") + get(""),
      "\r\n" + get("X: y\r\n") + "\r\n" + get(""),
      post("Transfer-Encoding: chunked\r\n", "5;a=\"b\"\r\nhello\r\na\r\n0123456789\r\n0\r\nX: y\r\n\r\n") + get(""),
      post("Transfer-Encoding: chunked\r\n", "0\r\n\r\n") + get(""),
      post("Transfer-Encoding: chunked\r\n", "5\r\nhelloX\r\n0\r\n\r\n"),
      post("Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n5\nhello\r\n"),
      post("Content-Length: 3\r\nExpect: 100-continue\r\n", "abcGET / HTTP/1.1\n"),
      get("X: a\r\n b\r\n"),
      "GET / HTTP/1.1\r\nHost: a\rX: b\r\n\r\n",
      post("Content-Length: 3\r\nContent-Length: 3\r\n", "abc"),
  };
  for (const std::string& bytes : cases) {
    INFO(bytes);
    const ReadResult whole = read_all({bytes});
    std::vector<std::string> crumbs;
    for (const char c : bytes) crumbs.emplace_back(1, c);
    REQUIRE(read_all(crumbs) == whole);
    for (std::size_t a = 1; a < bytes.size(); ++a) {
      REQUIRE(read_all({bytes.substr(0, a), bytes.substr(a)}) == whole);
      for (std::size_t b = a + 1; b < bytes.size(); b += 7)
        REQUIRE(read_all({bytes.substr(0, a), bytes.substr(a, b - a), bytes.substr(b)}) == whole);
    }
  }
}

TEST_CASE("an announced length reserves nothing until asked to") {
  RequestReader reader(std::uint64_t{1} << 40);
  const std::string head = post("Content-Length: 1000000000000\r\n");
  CHECK(reader.push(head) == head.size());
  CHECK(reader.stage() == RequestReader::Stage::head);
  CHECK(reader.body_bytes() == 0);
  reader.read_body();
  CHECK(reader.push("abc") == 3);
  CHECK(reader.body_bytes() == 3);
}
