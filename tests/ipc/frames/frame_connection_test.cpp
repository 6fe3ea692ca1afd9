// One connection's streams, seen from the client's side of a real socket.
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "actors/requests/answer_form.h"
#include "ipc/frames/wire.h"
#include "tests/ipc/fixture.h"

namespace troupe::ipc {
namespace {

using namespace test;
using scheduler::Outcome;

TEST_CASE("a welcome tells protocol, server, limits and readiness") {
  FakeServer server({.max_streams = 7, .max_frame_bytes = 5000});
  RawClient client(server.path());
  const v1::Welcome welcome = client.hello();
  REQUIRE(welcome.protocol() == 1);
  REQUIRE(welcome.server().starts_with("troupe "));
  REQUIRE(welcome.limits().max_streams() == 7);
  REQUIRE(welcome.limits().max_frame_bytes() == 5000);
  REQUIRE(welcome.limits().max_prompt_bytes() == 5000);  // no frame can carry more
  REQUIRE(welcome.limits().max_stop_strings() == actors::kMaxStopStrings);
  REQUIRE(welcome.limits().max_choices() == actors::kMaxChoices);
  REQUIRE(welcome.health().readiness() == v1::READINESS_READY);
}

TEST_CASE("a request reaches the gateway with every field, and the uid from the kernel") {
  FakeServer server;
  RawClient client(server.path());
  client.hello();
  v1::ClientFrame frame = generate_frame(3, "text");
  v1::Generate& generate = *frame.mutable_generate();
  generate.set_model("fake");
  generate.set_n(1);
  generate.set_deadline_ms(1500);
  generate.set_priority(-2);
  generate.set_credit(0);
  generate.set_cache_scope("public");
  generate.set_parse_special(true);
  generate.set_add_special(false);
  generate.set_logprobs(4);
  generate.add_stop("\n");
  v1::Sampling& sampling = *generate.mutable_sampling();
  sampling.set_temperature(0);
  sampling.set_top_k(40);
  sampling.set_top_p(0.9f);
  sampling.set_min_p(0.05f);
  sampling.set_repeat_penalty(1.1f);
  sampling.set_presence_penalty(0.2f);
  sampling.set_frequency_penalty(0.3f);
  sampling.set_repeat_last_n(-1);
  sampling.set_seed(0);
  sampling.set_max_tokens(12);
  sampling.set_min_tokens(4);
  sampling.set_ignore_eos(true);
  sampling.add_stop_ids(5);
  sampling.add_logit_bias()->set_id(9);
  sampling.mutable_logit_bias(0)->set_bias(-3);
  REQUIRE(client.send(frame));
  const actors::Request got = server.gateway.wait_submitted(0).request;
  REQUIRE(got.tenant.id == TenantId{::geteuid()});
  REQUIRE(got.model == "fake");
  REQUIRE(std::get<std::string>(got.prompt) == "text");
  REQUIRE(got.deadline == std::chrono::milliseconds(1500));
  REQUIRE(got.priority == -2);
  REQUIRE(got.credit == 0);
  REQUIRE(got.cache_scope == "public");
  REQUIRE(got.parse_special);
  REQUIRE_FALSE(got.add_special);
  REQUIRE(got.has_seed);
  REQUIRE(got.stop_strings == std::vector<std::string>{"\n"});
  REQUIRE(got.sampling.temperature == 0);
  REQUIRE(got.sampling.top_k == 40);
  REQUIRE(got.sampling.top_p == 0.9f);
  REQUIRE(got.sampling.min_p == 0.05f);
  REQUIRE(got.sampling.repeat_penalty == 1.1f);
  REQUIRE(got.sampling.presence_penalty == 0.2f);
  REQUIRE(got.sampling.frequency_penalty == 0.3f);
  REQUIRE(got.sampling.repeat_last_n == -1);
  REQUIRE(got.sampling.seed == 0);
  REQUIRE(got.sampling.max_tokens == 12);
  REQUIRE(got.sampling.min_tokens == 4);
  REQUIRE(got.has_max_tokens);
  REQUIRE(got.sampling.ignore_eos);
  REQUIRE(got.sampling.num_logprobs == 4);
  REQUIRE(got.sampling.stop_ids == std::vector<TokenId>{5});
  REQUIRE(got.sampling.logit_bias == std::vector<std::pair<TokenId, float>>{{9, -3.0f}});
}

TEST_CASE("fields that a request leaves out have their neutral values") {
  FakeServer server;
  RawClient client(server.path());
  client.hello();
  v1::ClientFrame frame;
  frame.mutable_generate()->set_stream(1);
  frame.mutable_generate()->mutable_token_ids()->add_ids(4);
  // Not 0, as which threads that compute take numbers below the normal ones.
  frame.mutable_generate()->mutable_sampling()->set_min_p(1e-40f);
  REQUIRE(client.send(frame));
  const actors::Request got = server.gateway.wait_submitted(0).request;
  REQUIRE(got.sampling.min_p == std::numeric_limits<float>::min());
  REQUIRE(std::get<std::vector<TokenId>>(got.prompt) == std::vector<TokenId>{4});
  REQUIRE(got.add_special);
  REQUIRE(got.parse_special);
  REQUIRE_FALSE(got.has_seed);
  REQUIRE_FALSE(got.deadline);
  REQUIRE(got.sampling.temperature == 1.0f);
  REQUIRE(got.sampling.top_p == 1.0f);
  REQUIRE(got.sampling.repeat_last_n == 64);
  REQUIRE(got.sampling.num_logprobs == -1);
  REQUIRE(got.sampling.max_tokens == std::numeric_limits<std::uint32_t>::max());
  REQUIRE(got.credit > 0);
}

TEST_CASE("tokens, logprobs and ends reach the stream they belong to, whatever the order of streams") {
  FakeServer server;
  RawClient client(server.path());
  client.hello();
  for (const std::uint64_t stream : {900ull, 2ull}) REQUIRE(client.send(generate_frame(stream)));
  const auto first = server.gateway.wait_submitted(0);
  const auto second = server.gateway.wait_submitted(1);
  second.sink->tokens(run_of(0, {5, 6}, "ab"));
  actors::TokenRun run = run_of(0, {7}, "c");
  run.logprobs = {{.id = 7, .logprob = -0.5f, .top = {{7, -0.5f}, {8, -1.5f}}}};
  first.sink->tokens(std::move(run));
  actors::End end = end_of(Outcome::stop_string);
  end.stop = "\n\n";
  end.seed = 42;
  end.usage.prompt_tokens = 10;
  end.usage.cached_tokens = 8;
  end.usage.completion_tokens = 1;
  end.usage.ttft_seconds = 0.25;
  end.usage.compute_seconds = 0.5;
  end.usage.preempted_seconds = 2;
  end.usage.tenant_share = 0.75;
  end.recomputed_from = "4-scalar-f16-1";
  actors::Proof proof;
  proof.prompt = std::make_shared<const std::vector<TokenId>>(std::vector<TokenId>{1});
  proof.recomputed_from = "4-scalar-f16-2";
  end.proof = std::make_shared<const actors::Proof>(proof);
  first.sink->end(end);
  second.sink->end(end_of(Outcome::eos));

  v1::ServerFrame frame = client.expect();
  REQUIRE(frame.tokens().stream() == 2);
  REQUIRE(frame.tokens().ids_size() == 2);
  REQUIRE(frame.tokens().text() == "ab");
  frame = client.expect();
  REQUIRE(frame.tokens().stream() == 900);
  REQUIRE(frame.tokens().logprobs(0).logprob() == -0.5f);
  REQUIRE(frame.tokens().logprobs(0).top_ids(1) == 8);
  REQUIRE(frame.tokens().logprobs(0).top_logprobs(1) == -1.5f);
  frame = client.expect();
  REQUIRE(frame.done().stream() == 900);
  REQUIRE(frame.done().reason() == v1::OUTCOME_STOP_STRING);
  REQUIRE(frame.done().stop() == "\n\n");
  REQUIRE(frame.done().seed() == 42);
  REQUIRE(frame.done().usage().cached_tokens() == 8);
  REQUIRE(frame.done().timings().ttft_seconds() == 0.25);
  REQUIRE(frame.done().receipt().prompt_tokens() == 10);
  REQUIRE(frame.done().receipt().cached_tokens() == 8);
  REQUIRE(frame.done().receipt().compute_seconds() == 0.5);
  REQUIRE(frame.done().receipt().preempted_seconds() == 2);
  REQUIRE(frame.done().receipt().share() == 0.75);
  REQUIRE(frame.done().receipt().recomputed_from() == "4-scalar-f16-1");
  REQUIRE(frame.done().receipt().proof().recomputed_from() == "4-scalar-f16-2");
  frame = client.expect();
  REQUIRE(frame.done().stream() == 2);
  REQUIRE(frame.done().reason() == v1::OUTCOME_EOS);
}

TEST_CASE("refusals and failures of the gateway keep code, field, limit and message") {
  FakeServer server;
  RawClient client(server.path());
  client.hello();
  REQUIRE(client.send(generate_frame(1)));
  REQUIRE(client.send(generate_frame(2)));
  actors::End refused = end_of(Outcome::queue_full);
  refused.message = "the queue is full";
  refused.field = "max_queued_requests";
  refused.limit = 1024;
  refused.retry_after = std::chrono::milliseconds(250);
  refused.predicted_first = std::chrono::milliseconds(0);
  refused.predicted_last = std::chrono::milliseconds(8100);
  server.gateway.wait_submitted(0).sink->end(refused);
  actors::End failed = end_of(Outcome::worker_lost);
  failed.message = "\xff broke";  // never invalid UTF-8 on the wire
  failed.usage.compute_seconds = 0.25;
  server.gateway.wait_submitted(1).sink->end(failed);
  v1::ServerFrame frame = client.expect();
  REQUIRE(frame.refused().stream() == 1);
  REQUIRE(frame.refused().code() == v1::OUTCOME_QUEUE_FULL);
  REQUIRE(frame.refused().field() == "max_queued_requests");
  REQUIRE(frame.refused().limit() == 1024);
  REQUIRE(frame.refused().retry_after_ms() == 250);
  REQUIRE(frame.refused().has_predicted_first_ms());
  REQUIRE(frame.refused().predicted_first_ms() == 0);
  REQUIRE(frame.refused().predicted_last_ms() == 8100);
  REQUIRE_FALSE(frame.refused().closing());
  frame = client.expect();
  REQUIRE(frame.failed().code() == v1::OUTCOME_WORKER_LOST);
  REQUIRE(frame.failed().message() == "\xef\xbf\xbd broke");
  REQUIRE(frame.failed().receipt().compute_seconds() == 0.25);
}

TEST_CASE("a stream number in use is refused and its request goes on; an ended one may be used again") {
  FakeServer server;
  RawClient client(server.path());
  client.hello();
  REQUIRE(client.send(generate_frame(5)));
  const auto first = server.gateway.wait_submitted(0);
  REQUIRE(client.send(generate_frame(5)));
  v1::ServerFrame frame = client.expect();
  REQUIRE(frame.refused().stream() == 0);  // not 5: that would look like the end of the first
  REQUIRE(frame.refused().field() == "stream");
  REQUIRE(frame.refused().message().find("5 is in use") != std::string::npos);
  REQUIRE_FALSE(frame.refused().closing());
  first.sink->end(end_of(Outcome::eos));
  REQUIRE(client.expect().done().stream() == 5);
  REQUIRE(client.send(generate_frame(5)));
  server.gateway.wait_submitted(1).sink->end(end_of(Outcome::length));
  REQUIRE(client.expect().done().reason() == v1::OUTCOME_LENGTH);
  REQUIRE(server.gateway.num_submitted() == 2);
}

TEST_CASE("a request with stream 0 is refused") {
  FakeServer server;
  RawClient client(server.path());
  client.hello();
  REQUIRE(client.send(generate_frame(0)));
  REQUIRE(client.expect().refused().field() == "stream");
  REQUIRE(server.gateway.num_submitted() == 0);
}

TEST_CASE("presets are the numbers that a request does not give itself") {
  FakeServer server;
  RawClient client(server.path());
  client.hello();
  v1::ClientFrame frame = generate_frame(1);
  frame.mutable_generate()->mutable_sampling()->set_top_k(7);
  frame.mutable_generate()->mutable_presets()->set_top_k(40);
  frame.mutable_generate()->mutable_presets()->set_top_p(0.5f);
  REQUIRE(client.send(frame));
  const actors::Request got = server.gateway.wait_submitted(0).request;
  CHECK(got.sampling.top_k == 7);
  CHECK(got.sampling.top_p == 0.5f);
  CHECK(got.given_numbers.has(config::kTopK));
  CHECK_FALSE(got.given_numbers.has(config::kTopP));

  const auto refused_field = [&](auto change) {
    v1::ClientFrame wrong = generate_frame(2);
    change(*wrong.mutable_generate()->mutable_presets());
    REQUIRE(client.send(wrong));
    return client.expect().refused().field();
  };
  CHECK(refused_field([](v1::Sampling& presets) { presets.set_seed(1); }) == "presets.seed");
  CHECK(refused_field([](v1::Sampling& presets) { presets.add_stop_ids(1); }) == "presets.stop_ids");
  CHECK(refused_field([](v1::Sampling& presets) { presets.set_temperature(-1); }) == "presets.temperature");
  CHECK(refused_field([](v1::Sampling& presets) { presets.set_min_p(std::nanf("")); }) == "presets.min_p");
}

TEST_CASE("a request with a value out of range is refused by the field's name, and no other is disturbed") {
  FakeServer server;
  RawClient client(server.path());
  client.hello();
  REQUIRE(client.send(generate_frame(100)));
  std::uint64_t stream = 0;
  const auto refusal_of = [&](auto change) {
    v1::ClientFrame frame = generate_frame(++stream);
    change(*frame.mutable_generate());
    REQUIRE(client.send(frame));
    const v1::ServerFrame answer = client.expect();
    REQUIRE(answer.refused().stream() == stream);
    REQUIRE_FALSE(answer.refused().message().empty());
    return answer.refused();
  };
  REQUIRE(refusal_of([](v1::Generate& g) { g.set_n(actors::kMaxChoices + 1); }).limit() == actors::kMaxChoices);
  REQUIRE(refusal_of([](v1::Generate& g) { g.set_n(0); }).code() == v1::OUTCOME_INVALID_ARGUMENT);
  REQUIRE(refusal_of([](v1::Generate& g) { g.clear_prompt(); }).field() == "prompt");
  REQUIRE(refusal_of([](v1::Generate& g) { g.mutable_token_ids()->add_ids(-1); }).field() == "token_ids");
  REQUIRE(refusal_of([](v1::Generate& g) { g.add_stop(""); }).field() == "stop");
  REQUIRE(refusal_of([](v1::Generate& g) { g.add_stop(std::string(257, 'x')); }).limit() == 256);
  REQUIRE(refusal_of([](v1::Generate& g) {
            for (int i = 0; i < 17; ++i) g.add_stop("x");
          }).limit() == 16);
  REQUIRE(refusal_of([](v1::Generate& g) { g.set_cache_scope(std::string(65, 'x')); }).field() == "cache_scope");
  REQUIRE(refusal_of([](v1::Generate& g) { g.set_deadline_ms(~0ull); }).field() == "deadline_ms");
  REQUIRE(refusal_of([](v1::Generate& g) { g.set_logprobs(21); }).limit() == 20);
  REQUIRE(refusal_of([](v1::Generate& g) {
            for (int i = 0; i < 65; ++i) g.mutable_sampling()->add_stop_ids(i);
          }).field() == "sampling.stop_ids");
  REQUIRE(refusal_of([](v1::Generate& g) {
            for (int i = 0; i < 1025; ++i) g.mutable_sampling()->add_logit_bias()->set_id(i);
          }).field() == "sampling.logit_bias");
  server.gateway.wait_submitted(0).sink->end(end_of(Outcome::eos));
  REQUIRE(client.expect().done().stream() == 100);
  REQUIRE(server.gateway.num_submitted() == 1);
}

TEST_CASE("fields of a newer protocol are refused by number, to the stream they came with") {
  FakeServer server;
  RawClient client(server.path());
  client.hello();
  v1::ClientFrame frame = generate_frame(1);
  frame.mutable_generate()
      ->mutable_sampling()
      ->GetReflection()
      ->MutableUnknownFields(frame.mutable_generate()->mutable_sampling())
      ->AddVarint(57, 1);
  REQUIRE(client.send(frame));
  v1::Refused refused = client.expect().refused();
  REQUIRE(refused.stream() == 1);
  REQUIRE(refused.code() == v1::OUTCOME_UNSUPPORTED);
  REQUIRE(refused.field() == "sampling.#57");

  v1::ClientFrame unknown;  // a whole request that this server has never heard of
  unknown.GetReflection()->MutableUnknownFields(&unknown)->AddLengthDelimited(99, std::string("\x08\x2a", 2));
  REQUIRE(client.send(unknown));
  refused = client.expect().refused();
  REQUIRE(refused.stream() == 42);
  REQUIRE(refused.field() == "#99");

  REQUIRE(client.send(v1::ClientFrame()));
  refused = client.expect().refused();
  REQUIRE(refused.stream() == 0);
  REQUIRE(refused.field() == "frame");
  REQUIRE_FALSE(refused.closing());
}

actors::End end_of_choice(std::uint32_t choice, Outcome outcome) {
  actors::End end = end_of(outcome);
  end.choice = choice;
  return end;
}

TEST_CASE("the form of an answer is one of five fields") {
  using engine::constraints::Constraint;
  using Kind = Constraint::Kind;
  FakeServer server;
  RawClient client(server.path());
  client.hello();
  const std::vector<std::pair<std::function<void(v1::Generate&)>, Constraint>> forms = {
      {[](v1::Generate& generate) { generate.set_json_schema("{}"); },
       {.kind = Kind::json_schema, .text = "{}", .spaces = true}},
      {[](v1::Generate& generate) { generate.set_regex("a+"); }, {.kind = Kind::regex, .text = "a+"}},
      {[](v1::Generate& generate) { generate.add_choices("a"); }, {.kind = Kind::choice, .choices = {"a"}}},
      {[](v1::Generate& generate) { generate.set_grammar("root ::= ."); },
       {.kind = Kind::grammar, .text = "root ::= ."}},
      {[](v1::Generate& generate) { generate.set_json_object(true), generate.set_compact_json(true); },
       {.kind = Kind::json_object}},
  };
  std::uint64_t stream = 1;
  for (const auto& [set, expected] : forms) {
    v1::ClientFrame frame = generate_frame(stream);
    set(*frame.mutable_generate());
    REQUIRE(client.send(frame));
    const auto submitted = server.gateway.wait_submitted(stream - 1);
    REQUIRE(submitted.request.form);
    CHECK(submitted.request.form->constraint() == expected);
    ++stream;
  }
  v1::ClientFrame frame = generate_frame(stream);
  frame.mutable_generate()->set_grammar("root ::= .");
  frame.mutable_generate()->set_regex("a");
  REQUIRE(client.send(frame));
  const v1::Refused refused = client.expect().refused();
  CHECK(refused.message().find("grammar") != std::string::npos);
  CHECK(refused.code() == v1::OUTCOME_INVALID_ARGUMENT);
}

TEST_CASE("the choices of a request have tokens and ends of their own, and the stream ends with the last") {
  FakeServer server;
  RawClient client(server.path());
  client.hello();
  v1::ClientFrame frame = generate_frame(4);
  frame.mutable_generate()->set_n(3);
  REQUIRE(client.send(frame));
  const auto submitted = server.gateway.wait_submitted(0);
  REQUIRE(submitted.request.num_choices == 3);
  actors::TokenRun run = run_of(0, {7}, "c");
  run.choice = 2;
  submitted.sink->tokens(std::move(run));
  submitted.sink->end(end_of_choice(2, Outcome::length));
  submitted.sink->end(end_of_choice(0, Outcome::eos));
  REQUIRE(client.expect().tokens().choice() == 2);
  v1::ServerFrame answer = client.expect();
  REQUIRE(answer.done().choice() == 2);
  REQUIRE(answer.done().reason() == v1::OUTCOME_LENGTH);
  answer = client.expect();
  REQUIRE(answer.done().choice() == 0);
  REQUIRE(client.send(generate_frame(4)));  // one is still open: the number is in use
  REQUIRE(client.expect().refused().field() == "stream");
  submitted.sink->end(end_of_choice(1, Outcome::worker_lost));
  answer = client.expect();
  REQUIRE(answer.failed().choice() == 1);
  REQUIRE(client.send(generate_frame(4)));
  server.gateway.wait_submitted(3);
}

TEST_CASE("a refusal of several choices is one answer") {
  FakeServer server;
  RawClient client(server.path());
  client.hello();
  v1::ClientFrame frame = generate_frame(4);
  frame.mutable_generate()->set_n(3);
  REQUIRE(client.send(frame));
  const auto submitted = server.gateway.wait_submitted(0);
  for (std::uint32_t choice = 0; choice < 3; ++choice) submitted.sink->end(end_of_choice(choice, Outcome::queue_full));
  REQUIRE(client.expect().refused().code() == v1::OUTCOME_QUEUE_FULL);
  REQUIRE(client.send(generate_frame(4)));
  server.gateway.wait_submitted(3).sink->end(end_of(Outcome::eos));
  REQUIRE(client.expect().done().stream() == 4);
}

TEST_CASE("each choice has credit of its own, and a cancel is for all that are open") {
  FakeServer server;
  RawClient client(server.path());
  client.hello();
  v1::ClientFrame frame = generate_frame(1);
  frame.mutable_generate()->set_credit(3);
  frame.mutable_generate()->set_n(3);
  REQUIRE(client.send(frame));
  const auto submitted = server.gateway.wait_submitted(0);
  v1::ClientFrame credit;
  credit.mutable_credit()->set_stream(1);
  credit.mutable_credit()->set_tokens(5);
  for (const std::uint32_t choice : {2u, 3u, ~0u}) {  // only the first of them exists
    credit.mutable_credit()->set_choice(choice);
    REQUIRE(client.send(credit));
  }
  REQUIRE(server.gateway.wait_credit(submitted.id + 2, 5) == 5);
  credit.mutable_credit()->set_choice(0);
  REQUIRE(client.send(credit));
  REQUIRE(server.gateway.wait_credit(submitted.id, 5) == 5);
  REQUIRE(server.gateway.num_credit_calls() == 2);
  submitted.sink->end(end_of_choice(1, Outcome::eos));
  REQUIRE(client.expect().done().choice() == 1);
  v1::ClientFrame cancel;
  cancel.mutable_cancel()->set_stream(1);
  REQUIRE(client.send(cancel));
  REQUIRE(client.expect().done().reason() == v1::OUTCOME_CANCELLED);
  REQUIRE(client.expect().done().reason() == v1::OUTCOME_CANCELLED);
  REQUIRE(server.gateway.wait_cancelled(2) == std::vector<actors::RequestId>{submitted.id, submitted.id + 2});
}

TEST_CASE("a cancel goes to the gateway; one for an unknown stream is ignored") {
  FakeServer server;
  RawClient client(server.path());
  client.hello();
  REQUIRE(client.send(generate_frame(1)));
  server.gateway.wait_submitted(0);
  v1::ClientFrame cancel;
  cancel.mutable_cancel()->set_stream(77);
  REQUIRE(client.send(cancel));
  cancel.mutable_cancel()->set_stream(1);
  REQUIRE(client.send(cancel));
  REQUIRE(client.expect().done().reason() == v1::OUTCOME_CANCELLED);
  REQUIRE(server.gateway.wait_cancelled(1) == std::vector<actors::RequestId>{1});
}

TEST_CASE("credit that the client grants goes to the gateway, and only that") {
  FakeServer server;
  RawClient client(server.path());
  client.hello();
  v1::ClientFrame frame = generate_frame(1);
  frame.mutable_generate()->set_credit(3);
  REQUIRE(client.send(frame));
  const auto submitted = server.gateway.wait_submitted(0);
  REQUIRE(submitted.request.credit == 3);
  submitted.sink->tokens(run_of(0, {1, 2, 3}, "abc"));
  REQUIRE(client.expect().tokens().ids_size() == 3);
  v1::ClientFrame credit;
  credit.mutable_credit()->set_stream(1);
  credit.mutable_credit()->set_tokens(5);
  REQUIRE(client.send(credit));
  REQUIRE(server.gateway.wait_credit(1, 5) == 5);
  credit.mutable_credit()->set_tokens(~0ull);  // more than any answer needs: capped, not overflowed
  REQUIRE(client.send(credit));
  REQUIRE(server.gateway.wait_credit(1, 6) <= (1ull << 33));
}

TEST_CASE("without a credit field the server grants what the socket has taken") {
  FakeServer server;
  RawClient client(server.path());
  client.hello();
  REQUIRE(client.send(generate_frame(1)));
  const auto submitted = server.gateway.wait_submitted(0);
  const std::uint64_t window = submitted.request.credit;
  REQUIRE(window > 0);
  submitted.sink->tokens(run_of(0, std::vector<TokenId>(window, 1), "x"));
  REQUIRE(client.expect().has_tokens());
  REQUIRE(server.gateway.wait_credit(1, window) == window);
}

}  // namespace
}  // namespace troupe::ipc
