#include "ipc/frames/framing.h"

#include <random>
#include <string>
#include <vector>

#include <google/protobuf/stubs/logging.h>
#include <catch2/catch.hpp>

#include "ipc/troupe.pb.h"

namespace troupe::ipc {
namespace {

std::string frame_of(const std::string& body) {
  std::string bytes;
  append_frame_header(bytes, static_cast<std::uint32_t>(body.size()));
  return bytes + body;
}

// Bodies of all whole frames; nothing if the decoder returned an error.
std::optional<std::vector<std::string>> drain(FrameDecoder& decoder) {
  std::vector<std::string> bodies;
  for (;;) {
    const auto body = decoder.next();
    if (!body) return std::nullopt;
    if (!*body) return bodies;
    bodies.emplace_back(**body);
  }
}

TEST_CASE("a frame's header is its body's length, little-endian") {
  std::string bytes;
  append_frame_header(bytes, 0x00a1b2c3u);
  REQUIRE(bytes == std::string("\xc3\xb2\xa1\x00", 4));
}

TEST_CASE("frames are returned whole, in whatever pieces the bytes arrive") {
  const std::vector<std::string> bodies = {"", "a", std::string(300, 'b'), "", std::string(70000, 'c'), "end"};
  std::string stream;
  for (const std::string& body : bodies) stream += frame_of(body);
  for (const std::size_t piece : {std::size_t{1}, std::size_t{2}, std::size_t{3}, std::size_t{4}, std::size_t{5},
                                  std::size_t{4096}, stream.size()}) {
    FrameDecoder decoder(70000);
    std::vector<std::string> got;
    for (std::size_t begin = 0; begin < stream.size(); begin += piece) {
      decoder.append(std::string_view(stream).substr(begin, piece));
      const auto whole = drain(decoder);
      REQUIRE(whole);
      got.insert(got.end(), whole->begin(), whole->end());
    }
    REQUIRE(got == bodies);
    REQUIRE_FALSE(decoder.mid_frame());
  }
}

TEST_CASE("mid_frame() is true from a frame's first byte to its last") {
  FrameDecoder decoder(16);
  REQUIRE_FALSE(decoder.mid_frame());
  const std::string frame = frame_of("abc");
  for (std::size_t i = 0; i + 1 < frame.size(); ++i) {
    decoder.append(std::string_view(frame).substr(i, 1));
    REQUIRE(*decoder.next() == std::nullopt);
    REQUIRE(decoder.mid_frame());
  }
  decoder.append("c");
  REQUIRE(*decoder.next() == std::optional<std::string_view>("abc"));
  REQUIRE_FALSE(decoder.mid_frame());
}

TEST_CASE("a length above the limit is an error with both numbers, also in every later call") {
  FrameDecoder decoder(1000);
  decoder.append(frame_of(std::string(1000, 'x')));
  REQUIRE((*decoder.next())->size() == 1000);
  decoder.append(std::string("\xe9\x03\x00\x00", 4));  // 1001
  for (int again = 0; again < 3; ++again) {
    const auto body = decoder.next();
    REQUIRE_FALSE(body);
    REQUIRE(body.error().code == ErrorCode::protocol);
    REQUIRE(body.error().message.find("1001") != std::string::npos);
    REQUIRE(body.error().message.find("1000") != std::string::npos);
    decoder.append(frame_of("x"));
  }
}

TEST_CASE("HTTP is recognised, because none of its methods can be a length") {
  for (const std::string method :
       {"GET /", "POST /v1", "PUT /", "HEAD /", "OPTIONS", "DELETE", "PATCH /", "CONNECT ", "TRACE /"}) {
    FrameDecoder decoder(kMaxFrameBytesCeiling);
    decoder.append(method);
    const auto body = decoder.next();
    REQUIRE_FALSE(body);
    REQUIRE(body.error().message.find("HTTP") != std::string::npos);
  }
}

v1::ClientFrame rich_frame() {
  v1::ClientFrame frame;
  v1::Generate& generate = *frame.mutable_generate();
  generate.set_stream(7);
  generate.set_model("tales");
  generate.set_text(
      "Once upon a time, a cr\xc3\xa8me br\xc3\xbbl\xc3\xa9"
      "e");
  generate.mutable_sampling()->set_temperature(0.8f);
  generate.mutable_sampling()->set_seed(1234567890123ull);
  generate.mutable_sampling()->add_stop_ids(2);
  auto& bias = *generate.mutable_sampling()->add_logit_bias();
  bias.set_id(17);
  bias.set_bias(-1.5f);
  generate.add_stop("\n\n");
  generate.set_credit(0);
  generate.set_logprobs(3);
  return frame;
}

// Damages `bytes`: flips a bit, changes, erases or inserts bytes, or cuts the end off.
void mutate(std::string& bytes, std::mt19937_64& random) {
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  switch (random() % 5) {
    case 0:
      bytes[below(bytes.size())] ^= static_cast<char>(1u << below(8));
      break;
    case 1:
      bytes[below(bytes.size())] = static_cast<char>(random());
      break;
    case 2:
      bytes.erase(below(bytes.size()), 1 + below(4));
      break;
    case 3:
      bytes.insert(below(bytes.size() + 1), 1 + below(4), static_cast<char>(random()));
      break;
    default:
      bytes.resize(below(bytes.size()) + 1);
  }
}

TEST_CASE("20,000 damaged streams give an error or messages, never a crash or more memory than they hold") {
  std::string stream;
  for (int i = 0; i < 3; ++i) stream += frame_of(rich_frame().SerializeAsString());
  const google::protobuf::LogSilencer quiet;
  std::mt19937_64 random(20260820);
  int errors = 0, parsed = 0, unparsed = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = stream;
    for (std::uint64_t n = 1 + random() % 4; n > 0 && !bytes.empty(); --n) mutate(bytes, random);
    FrameDecoder decoder(4096);
    std::size_t consumed = 0;
    for (std::size_t begin = 0; begin < bytes.size(); begin += 61) {
      decoder.append(std::string_view(bytes).substr(begin, 61));
      const auto bodies = drain(decoder);
      if (!bodies) {
        ++errors;
        break;
      }
      for (const std::string& body : *bodies) {
        consumed += kFrameHeaderBytes + body.size();
        v1::ClientFrame frame;
        ++(frame.ParseFromString(body) ? parsed : unparsed);
      }
    }
    REQUIRE(consumed <= bytes.size());
  }
  // Every kind of answer occurred; otherwise the test would check nothing.
  REQUIRE(errors > 1000);
  REQUIRE(parsed > 1000);
  REQUIRE(unparsed > 1000);
}

}  // namespace
}  // namespace troupe::ipc
