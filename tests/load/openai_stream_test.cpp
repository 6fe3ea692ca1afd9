// Reads the answers of OpenAI-compatible servers from bytes: whole, in pieces, and malformed.
#include "bench/load/drivers/openai_stream.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

using namespace troupe::load;

namespace {

struct Events {
  std::vector<std::string> data{};
  bool ok = true;
};

Events parse(const std::string& bytes, std::size_t piece, std::size_t max_bytes = 1000) {
  Events events;
  EventParser parser(max_bytes);
  for (std::size_t at = 0; at < bytes.size() && events.ok; at += piece)
    events.ok = parser.feed(std::string_view(bytes).substr(at, piece), [&](std::string_view data) {
      events.data.emplace_back(data);
      return true;
    });
  return events;
}

}  // namespace

TEST_CASE("events are found in a stream, however it is cut into pieces") {
  const std::string bytes =
      ": a comment\ndata: one\n\nevent: ping\n\ndata:two\r\nid: 7\r\n\r\ndata: three\ndata:  four\n\ndata\n\ndata: cut";
  for (std::size_t piece = 1; piece <= bytes.size(); ++piece) {
    const Events events = parse(bytes, piece);
    CHECK(events.ok);
    CHECK(events.data == std::vector<std::string>{"one", "two", "three\n four", ""});
  }
}

TEST_CASE("an event without an end is given up at its limit") {
  CHECK_FALSE(parse("data: " + std::string(2000, 'x'), 16).ok);
  std::string lines;
  for (int i = 0; i < 100; ++i) lines += "data: 0123456789abcdef\n";
  CHECK_FALSE(parse(lines, 7).ok);
  CHECK_FALSE(parse(std::string(2000, ':'), 2000).ok);
  CHECK(parse("data: " + std::string(900, 'x') + "\n\ndata: " + std::string(900, 'x') + "\n\n", 16).data.size() == 2);
}

TEST_CASE("llama.cpp's chunks count tokens by its timings, and its usage says what was cached") {
  RequestRecord record;
  CompletionReader reader(record);
  CHECK(reader.read(R"({"choices":[{"text":"a","finish_reason":null}],"timings":{"predicted_n":1}})", 1.0));
  CHECK(reader.read(R"({"choices":[{"text":"bc","finish_reason":null}],"timings":{"predicted_n":4}})", 2.0));
  CHECK_FALSE(reader.finished());
  CHECK(reader.read(R"({"choices":[{"text":"","finish_reason":"length"}],"timings":{"predicted_n":5}})", 3.0));
  CHECK(reader.read(R"({"choices":[],"usage":{"prompt_tokens":40,"completion_tokens":5,
                        "prompt_tokens_details":{"cached_tokens":32}}})",
                    3.0));
  CHECK(reader.read("[DONE]", 3.0));
  CHECK(reader.finish_reason() == "length");
  CHECK(reader.num_finishes() == 1);
  REQUIRE(record.arrivals.size() == 3);
  CHECK(record.arrivals[1].at_s == 2.0);
  CHECK(record.arrivals[1].num_tokens == 3);
  CHECK(record.completion_tokens == 5);
  CHECK(record.prompt_tokens == 40);
  CHECK(record.cached_tokens == 32);
}

TEST_CASE("chunks without counts are one token each, and the usage at the end corrects the sum") {
  RequestRecord record;
  CompletionReader reader(record);
  CHECK(reader.read(R"({"choices":[{"text":"a"}],"usage":null,"error":null})", 1.0));
  CHECK(reader.read(R"({"choices":[{"text":""}]})", 1.5));
  CHECK(reader.read(R"({"choices":[{"text":"b","finish_reason":"stop"}]})", 2.0));
  CHECK(record.completion_tokens == 2);
  CHECK(reader.read(R"({"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}})", 2.1));
  CHECK(record.completion_tokens == 4);
  CHECK(record.arrivals.size() == 2);
}

TEST_CASE("an answer that is finished twice is counted as finished twice") {
  RequestRecord record;
  CompletionReader reader(record);
  for (int i = 0; i < 2; ++i) CHECK(reader.read(R"({"choices":[{"text":"","finish_reason":"length"}]})", 1.0));
  CHECK(reader.num_finishes() == 2);
}

TEST_CASE("vLLM's running usage counts the tokens of each chunk") {
  RequestRecord record;
  CompletionReader reader(record);
  CHECK(reader.read(R"({"choices":[{"text":"abc"}],"usage":{"prompt_tokens":3,"completion_tokens":3}})", 1.0));
  CHECK(record.arrivals.at(0).num_tokens == 3);
}

TEST_CASE("an error in the stream, or data that is no chunk, ends it with the server's message") {
  RequestRecord record;
  CompletionReader reader(record);
  CHECK_FALSE(reader.read(R"({"error":{"message":"out of memory","code":500}})", 1.0));
  CHECK(reader.failure() == "out of memory");
  CHECK_FALSE(reader.read(R"({"error":")" + std::string(9000, 'x') + R"("})", 1.0));
  CHECK(reader.failure().size() == 500);
  for (const char* bytes : {"", "nonsense", "[1,2]", "null", "{\"choices\":[}", "\xff\xfe", "7"}) {
    CompletionReader other(record);
    CHECK_FALSE(other.read(bytes, 1.0));
    CHECK_FALSE(other.failure().empty());
  }
}

TEST_CASE("members of the wrong type or size count as absent") {
  RequestRecord record;
  CompletionReader reader(record);
  for (const char* chunk :
       {R"({"choices":{}})", R"({"choices":[7]})", R"({"choices":[{"text":7,"finish_reason":{}}]})",
        R"({"choices":[{}],"timings":{"predicted_n":-5}})", R"({"choices":[{}],"timings":{"predicted_n":1e99}})",
        R"({"choices":[{}],"timings":{"predicted_n":18446744073709551615}})", R"({"choices":[{}],"timings":[]})",
        R"({"usage":{"prompt_tokens":"many","prompt_tokens_details":7}})",
        R"({"choices":[{}],"timings":{"predicted_n":4611686018427387904}})",
        R"({"choices":[{}],"timings":{"predicted_n":2147483648}})",
        R"({"choices":[{}],"timings":{"predicted_n":2.5}})"})
    CHECK(reader.read(chunk, 1.0));
  CHECK(record.completion_tokens == 0);
  CHECK(record.arrivals.empty());
  CHECK_FALSE(reader.finished());
}

TEST_CASE("Retry-After is a number of seconds or a date") {
  CHECK(retry_after_s(" 3\r\n", 0) == 3.0);
  CHECK(retry_after_s("Thu, 01 Jan 1970 00:01:40 GMT", 40) == 60.0);
  CHECK(retry_after_s("Thu, 01 Jan 1970 00:00:00 GMT", 40) == 0.0);
  for (const char* value : {"", "soon", "-1", "3.5", "99999999999999999999"}) CHECK_FALSE(retry_after_s(value, 0));
}

TEST_CASE("a status other than 200 is a refusal or a failure, with the server's message") {
  RequestRecord record;
  read_http_error(503, R"({"error":{"message":"no slot","type":"unavailable"}})", record);
  CHECK(record.kind == EndKind::refused);
  CHECK(record.outcome == "http_503");
  CHECK(record.message == "no slot");
  read_http_error(429, R"({"message":"slow down"})", record);
  CHECK(record.kind == EndKind::refused);
  CHECK(record.message == "slow down");
  read_http_error(400, R"({"error":"bad prompt"})", record);
  CHECK(record.kind == EndKind::refused);
  CHECK(record.message == "bad prompt");
  read_http_error(500, "<html>" + std::string(9000, 'x'), record);
  CHECK(record.kind == EndKind::failed);
  CHECK(record.message.size() == 500);
}
