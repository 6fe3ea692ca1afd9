// Conversations of valid frames, mutated by field and by byte, against a session: each frame is answered or followed,
// or the connection ends with a reason.
//
//   TROUPE_MUTATIONS=100000 build/asan/tests/fuzz/frame_mutation_test
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/engine/model_harness.h"
#include "tests/fuzz/frame_mutator.h"
#include "tests/fuzz/frame_run.h"
#include "tests/fuzz/mutation_count.h"

namespace troupe::fuzz {
namespace {

// Frames that a client of this version sends, each with everything in it that can be.
std::vector<v1::ClientFrame> valid_frames() {
  std::vector<v1::ClientFrame> frames;
  v1::ClientFrame frame;
  v1::Generate& generate = *frame.mutable_generate();
  generate.set_stream(1);
  generate.set_model("tales");
  generate.set_text("Once upon a time");
  generate.set_n(1);
  generate.add_stop("\n\n");
  generate.set_deadline_ms(60000);
  generate.set_priority(3);
  generate.set_credit(1);
  generate.set_cache_scope("public");
  generate.set_logprobs(2);
  v1::Sampling& sampling = *generate.mutable_sampling();
  sampling.set_temperature(0.8f);
  sampling.set_top_k(40);
  sampling.set_top_p(0.95f);
  sampling.set_min_p(0.05f);
  sampling.set_repeat_penalty(1.1f);
  sampling.set_repeat_last_n(-1);
  sampling.set_seed(7);
  sampling.set_max_tokens(16);
  sampling.add_stop_ids(5);
  sampling.add_logit_bias()->set_id(9);
  frames.push_back(frame);
  generate.set_stream(2);
  generate.mutable_token_ids()->add_ids(4);
  frames.push_back(frame);
  v1::ClientFrame with_tools;
  v1::Generate& asks = *with_tools.mutable_generate();
  asks.set_stream(10);
  asks.set_n(2);
  asks.set_parallel_tool_calls(true);
  v1::Tool& tool = *asks.add_tools();
  tool.set_name("f");
  tool.set_description("It is f.");
  tool.set_parameters(R"({"type": "object", "properties": {"a": {"type": "integer"}}})");
  for (const char* const role : {"user", "assistant", "tool"}) {
    v1::Messages::Message& message = *asks.mutable_messages()->add_messages();
    message.set_role(role);
    message.set_content("Hello");
  }
  v1::ToolCall& call = *asks.mutable_messages()->mutable_messages(1)->add_tool_calls();
  call.set_id("c1");
  call.set_name("f");
  call.set_arguments(R"({"a": 1})");
  asks.mutable_messages()->mutable_messages(2)->set_tool_call_id("c1");
  asks.mutable_messages()->mutable_messages(2)->set_is_error(true);
  frames.push_back(with_tools);
  asks.set_stream(11);
  asks.set_tool_choice(v1::TOOL_CHOICE_REQUIRED);
  asks.set_called_tool("f");
  frames.push_back(with_tools);
  frame.mutable_credit()->set_stream(1);
  frame.mutable_credit()->set_tokens(8);
  frames.push_back(frame);
  frame.mutable_cancel()->set_stream(2);
  frames.push_back(frame);
  frame.mutable_tokenize()->set_stream(3);
  frame.mutable_tokenize()->set_text("a <s> b");
  frames.push_back(frame);
  frame.mutable_detokenize()->set_stream(4);
  frame.mutable_detokenize()->add_ids(300);
  frames.push_back(frame);
  frame.mutable_models()->set_stream(5);
  frames.push_back(frame);
  frame.mutable_status()->set_stream(6);
  frames.push_back(frame);
  frame.mutable_health()->set_stream(7);
  frames.push_back(frame);
  frame.mutable_cancel_request()->set_stream(8);
  frame.mutable_cancel_request()->set_request(1);
  frames.push_back(frame);
  frame.mutable_usage_request()->set_stream(9);
  frame.mutable_usage_request()->set_since(1);
  frames.push_back(frame);
  return frames;
}

// Counts of the answers to mutated frames.
struct Tally {
  int answered = 0;  // by a frame that is no refusal, or taken without one (credit, cancel)
  int refused = 0;
  int ended = 0;  // the connection, with a last word
};

void tell(FrameRun& run, const std::string& bytes, Tally& tally) {
  run.send(bytes);
  const auto answers = run.take_answers();
  const bool refused = !answers.empty() && answers.back().has_refused();
  if (!run.is_open()) {
    ++tally.ended;
    REQUIRE(refused);  // never without saying why
    REQUIRE(answers.back().refused().closing());
  } else if (refused) {
    ++tally.refused;
  } else {
    ++tally.answered;
  }
}

// A new connection is served as before.
void require_healthy(FrameRun& run) {
  run.connect();
  run.send(frame_bytes(hello()));
  v1::ClientFrame frame;
  frame.mutable_health()->set_stream(9);
  run.send(frame_bytes(frame));
  const auto answers = run.take_answers();
  REQUIRE(answers.size() == 2);
  REQUIRE(answers[0].has_welcome());
  REQUIRE(answers[1].health().stream() == 9);
  run.hang_up();
}

TEST_CASE("mutated frames are answered, refused or end their own connection with a reason") {
  FrameRun run;
  const std::vector<v1::ClientFrame> frames = valid_frames();
  const int count = num_mutations(test::kSanitized ? 3000 : 10000);
  Tally tally;
  for (int i = 0; i < count; ++i) {
    std::mt19937_64 random(static_cast<std::uint64_t>(i));
    if (!run.is_open() || random() % 16 == 0) {
      run.connect();
      if (random() % 32 != 0) run.send(frame_bytes(hello()));
      run.take_answers();
    }
    // Valid ones between them open streams that a mutated one can be about.
    const v1::ClientFrame& before = frames[random() % frames.size()];
    if (random() % 2 == 0) run.send(frame_bytes(before));
    run.take_answers();
    if (!run.is_open()) run.connect();
    const std::string body = mutate_frame(frames[random() % frames.size()], random);
    check_body(body);
    tell(run, mutate_framing(body, random), tally);
    if (i % 1000 == 0) require_healthy(run);
  }
  std::fprintf(stderr, "%d mutated frames: %d answered, %d refused, %d ended their connection; %llu requests taken\n",
               count, tally.answered, tally.refused, tally.ended,
               static_cast<unsigned long long>(run.gateway().num_accepted()));
  require_healthy(run);
  CHECK(tally.answered > count / 20);
  CHECK(tally.refused > count / 20);
  CHECK(tally.ended > count / 20);
}

}  // namespace
}  // namespace troupe::fuzz
