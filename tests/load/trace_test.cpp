#include "bench/load/trace.h"

#include <catch2/catch.hpp>
#include <sstream>

using namespace troupe;
using namespace troupe::load;

namespace {

PlanSpec spec_for_traces() {
  PlanSpec spec;
  spec.seed = 11;
  spec.pace.clients = 1;
  spec.pace.num_requests = 50;
  spec.vocabulary.size = 300;
  spec.shape.sampling.temperature = 0.75f;
  return spec;
}

std::vector<PlannedRequest> read(const std::string& text, const PlanSpec& spec = spec_for_traces()) {
  std::istringstream in(text);
  auto requests = read_trace(in, spec);
  if (!requests) FAIL(requests.error().message);
  return std::move(*requests);
}

std::string error_of(const std::string& text) {
  std::istringstream in(text);
  const auto requests = read_trace(in, spec_for_traces());
  return requests ? "no error" : requests.error().message;
}

const std::vector<TokenId>& ids_of(const PlannedRequest& request) {
  return std::get<std::vector<TokenId>>(request.prompt);
}

}  // namespace

TEST_CASE("a plan that is written as a trace and read again sends the same requests") {
  PlanSpec spec = spec_for_traces();
  spec.pace.rate = 10;
  spec.faults = {.cancel = 0.2, .disconnect = 0.2, .slow_reader = 0.2, .garbage = 0.2};
  spec.shape.output = {Lengths::Kind::uniform, 1, 20};
  spec.shape.prefix_share = 0.5;
  spec.shape.prefix_tokens = 40;
  spec.shape.sampling.min_p = 0.05f;
  spec.shape.sampling.top_k = 40;
  spec.shape.sampling.ignore_eos = true;
  const auto plan = Plan::make(spec);
  REQUIRE(plan);
  std::string text;
  for (std::uint64_t i = 0; i < 50; ++i) text += to_trace_line(plan->request(i)) + "\n";

  PlanSpec other = spec_for_traces();  // nothing of it may show
  other.seed = 99;
  const std::vector<PlannedRequest> requests = read(text, other);
  REQUIRE(requests.size() == 50);
  const auto replay = Plan::from_trace(other, requests, true);
  REQUIRE(replay);
  CHECK(replay->open_loop());
  REQUIRE(replay->size() == 50);
  for (std::uint64_t i = 0; i < 50; ++i) {
    const PlannedRequest before = plan->request(i), after = replay->request(i);
    REQUIRE(to_trace_line(after) == to_trace_line(before));
    REQUIRE(ids_of(after) == ids_of(before));
    REQUIRE(after.arrival_s == before.arrival_s);
    REQUIRE(replay->arrival_s(i) == before.arrival_s);
    REQUIRE(after.prefix == before.prefix);
    REQUIRE(after.sampling.temperature == before.sampling.temperature);
    REQUIRE(after.sampling.min_p == before.sampling.min_p);
    REQUIRE(after.sampling.seed == before.sampling.seed);
    REQUIRE(after.sampling.max_tokens == before.sampling.max_tokens);
    REQUIRE(after.fault == before.fault);
    REQUIRE((after.fault == Fault::none || after.fault_point.after_tokens == before.fault_point.after_tokens));
  }
}

TEST_CASE("fields that a line leaves out come from the run") {
  const auto requests = read(
      "{\"prompt\": \"Once \\u00fcpon\", \"max_tokens\": 5}\n"
      "\n"
      "{\"at_s\": 1.5, \"prompt_ids\": [1, 2, 3], \"max_tokens\": 6, \"temperature\": 0, \"seed\": 4}\n"
      "{\"at_s\": 1.5, \"prompt_tokens\": 20, \"max_tokens\": 7, \"ignore_eos\": true}\n");
  REQUIRE(requests.size() == 3);
  CHECK(std::get<std::string>(requests[0].prompt) == "Once \xc3\xbcpon");
  CHECK(requests[0].sampling.temperature == 0.75f);
  CHECK(requests[0].sampling.seed == 11);
  CHECK_FALSE(requests[0].sampling.ignore_eos);
  CHECK(ids_of(requests[1]) == std::vector<TokenId>{1, 2, 3});
  CHECK(requests[1].arrival_s == 1.5);
  CHECK(requests[1].sampling.temperature == 0.0f);
  CHECK(requests[1].sampling.seed == 4);
  CHECK(ids_of(requests[2]).size() == 20);
  CHECK(requests[2].sampling.seed == 13);
  CHECK(requests[2].sampling.ignore_eos);
}

TEST_CASE("recordings with hashes of their blocks keep their common beginnings") {
  const auto requests = read(
      "{\"timestamp\": 0, \"input_length\": 1100, \"output_length\": 9, \"hash_ids\": [5, 6, 7]}\n"
      "{\"timestamp\": 250, \"input_length\": 1030, \"output_length\": 3, \"hash_ids\": [5, 6, 8]}\n");
  REQUIRE(requests.size() == 2);
  CHECK(requests[1].arrival_s == 0.25);
  CHECK(requests[1].sampling.max_tokens == 3);
  const auto &a = ids_of(requests[0]), &b = ids_of(requests[1]);
  REQUIRE(a.size() == 1100);
  REQUIRE(b.size() == 1030);
  CHECK(std::equal(a.begin(), a.begin() + 1024, b.begin()));
  CHECK_FALSE(std::equal(a.begin() + 1024, a.begin() + 1030, b.begin() + 1024));
}

TEST_CASE("a line that cannot be read is an error with its number") {
  const std::string good = "{\"at_s\": 2, \"prompt\": \"a\", \"max_tokens\": 1}\n";
  CHECK(error_of(good + "nonsense\n") == "line 2 of the trace is no JSON object");
  CHECK(error_of(good + "\n[1]\n") == "line 3 of the trace is no JSON object");
  CHECK(error_of("{\"promt\": \"a\", \"max_tokens\": 1}") == "line 1 of the trace has the unknown key 'promt'");
  CHECK(error_of("{\"max_tokens\": 1}").find("needs one of prompt") != std::string::npos);
  CHECK(error_of("{\"prompt\": \"a\", \"prompt_ids\": [1], \"max_tokens\": 1}").find("needs one of prompt") !=
        std::string::npos);
  CHECK(error_of("{\"prompt\": \"a\"}").find("needs max_tokens") != std::string::npos);
  CHECK(error_of("{\"prompt\": 3, \"max_tokens\": 1}").find("'prompt' has a value of the wrong type: 3") !=
        std::string::npos);
  CHECK(error_of("{\"prompt\": \"a\", \"max_tokens\": 0}").find("'max_tokens' is 0, which is out of range") !=
        std::string::npos);
  CHECK(error_of("{\"prompt\": \"a\", \"max_tokens\": 1, \"fault\": \"cansel\"}").find("'cansel'; there are cancel") !=
        std::string::npos);
  CHECK(error_of(good + "{\"at_s\": 1, \"prompt\": \"a\", \"max_tokens\": 1}\n")
            .find("line 2 of the trace arrives before the line above") == 0);
}

TEST_CASE("a trace without requests is no plan") {
  const auto plan = Plan::from_trace(spec_for_traces(), {}, true);
  REQUIRE_FALSE(plan);
  CHECK(plan.error().message.find("no requests") != std::string::npos);
}
