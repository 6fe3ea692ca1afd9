// The adversary's own writer and reader of the protocol, beside protobuf.
#include "tests/adversary/wire.h"

#include <catch2/catch.hpp>
#include <limits>

#include "ipc/troupe.pb.h"
#include "tests/adversary/frames.h"

namespace troupe::adversary {
namespace {

v1::ClientFrame parsed(const std::string& frame) {
  v1::ClientFrame message;
  FrameCutter cutter;
  cutter.append(frame);
  const auto body = cutter.next();
  REQUIRE(body);
  REQUIRE(message.ParseFromArray(body->data(), static_cast<int>(body->size())));
  return message;
}

TEST_CASE("the adversary's Generate says to protobuf what was asked") {
  const Asked asked{.stream = 1ull << 40,
                    .text = "Once",
                    .n = 3,
                    .temperature = 0.5f,
                    .seed = std::numeric_limits<std::uint64_t>::max(),
                    .max_tokens = 300,
                    .credit = 0,
                    .stop = {"a", ""},
                    .stop_ids = {0, 1, 127, 128, -1},
                    .num_biased = 2,
                    .priority = -5};
  const v1::ClientFrame frame = parsed(generate_frame(asked));
  const v1::Generate& generate = frame.generate();
  REQUIRE(generate.stream() == asked.stream);
  REQUIRE(generate.text() == asked.text);
  REQUIRE(generate.n() == 3);
  REQUIRE(generate.priority() == -5);
  REQUIRE(generate.has_credit());
  REQUIRE_FALSE(generate.has_deadline_ms());
  REQUIRE(generate.stop_size() == 2);
  const v1::Sampling& sampling = generate.sampling();
  REQUIRE(sampling.temperature() == 0.5f);
  REQUIRE(sampling.seed() == asked.seed);
  REQUIRE(sampling.max_tokens() == 300);
  REQUIRE(std::vector<std::int32_t>(sampling.stop_ids().begin(), sampling.stop_ids().end()) == asked.stop_ids);
  REQUIRE(sampling.logit_bias_size() == 2);
  REQUIRE(sampling.logit_bias(1).id() == 1);
  REQUIRE(sampling.logit_bias(1).bias() == -0.5f);
}

TEST_CASE("the adversary's other frames are what protobuf reads") {
  REQUIRE(parsed(hello_frame("a")).hello().protocol() == 1);
  REQUIRE(parsed(plain_frame(Ask::cancel, 7)).cancel().stream() == 7);
  REQUIRE(parsed(status_frame(7, true)).status().list_requests());
  REQUIRE(parsed(credit_frame(7, 300, 2)).credit().choice() == 2);
  REQUIRE(parsed(tokenize_frame(7, "text")).tokenize().text() == "text");
  REQUIRE(parsed(detokenize_frame(7, {5, -6})).detokenize().ids(1) == -6);
  REQUIRE(parsed(embed_frame(7, {"a", "b"})).embed().texts(1) == "b");
}

TEST_CASE("the adversary reads the ends and counters that protobuf writes") {
  v1::ServerFrame frame;
  v1::Refused& refused = *frame.mutable_refused();
  refused.set_stream(9);
  refused.set_code(v1::OUTCOME_QUOTA);
  refused.set_field("max_streams");
  refused.set_closing(true);
  const auto answer = read_answer(frame.SerializeAsString());
  REQUIRE(answer);
  REQUIRE(answer->reply == Reply::refused);
  REQUIRE(answer->stream == 9);
  REQUIRE(outcome_name(answer->outcome) == "quota");
  REQUIRE(answer->field == "max_streams");
  REQUIRE(answer->closing);

  v1::Status& status = *frame.mutable_status();
  status.set_requests_received(3);
  v1::Status::Ended& ended = *status.add_requests_ended();
  ended.set_outcome("length");
  ended.set_count(2);
  v1::Status::Kind& kind = *status.add_kinds();
  kind.set_kind("health");
  kind.set_received(1);
  status.add_histogram_bounds(0.5);
  const auto said = read_answer(frame.SerializeAsString());
  REQUIRE(said);
  const Figures figures = read_figures(said->body);
  REQUIRE(figures.received == 3);
  REQUIRE(figures.all_ended() == 2);
  REQUIRE(figures.kinds.at("health received") == 1);
}

TEST_CASE("the adversary's reader takes frames in any pieces, and says what is damaged") {
  const std::string frames = hello_frame() + plain_frame(Ask::health, 1);
  for (std::size_t piece = 1; piece <= frames.size(); ++piece) {
    FrameCutter cutter;
    std::size_t num_frames = 0;
    for (std::size_t begin = 0; begin < frames.size(); begin += piece) {
      cutter.append(std::string_view(frames).substr(begin, piece));
      while (cutter.next()) ++num_frames;
    }
    REQUIRE(num_frames == 2);
  }
  REQUIRE_FALSE(read_answer(std::string_view("\x12\x05\x08", 3)));  // Tokens of five bytes that has one
  REQUIRE_FALSE(read_answer(""));
}

}  // namespace
}  // namespace troupe::adversary
