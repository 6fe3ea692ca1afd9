// Bodies of HTTP requests made of fields that the table has, with values of any kind, then mutated by bytes.
//
//   TROUPE_MUTATIONS=1000000 build/asan/tests/fuzz/api_mutation_test
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "ipc/http/api/fields.h"
#include "tests/fuzz/api_run.h"
#include "tests/fuzz/mutation_count.h"

namespace troupe::fuzz {
namespace {

using namespace ipc::api;

class BodyMaker {
 public:
  explicit BodyMaker(std::uint32_t seed) : random_(seed) {}

  EndpointInfo endpoint() { return kBodyEndpoints[pick(kBodyEndpoints.size())]; }

  // What the endpoint requires, and some more of its fields.
  std::string body(Endpoint endpoint) {
    std::string out = "{" + required(endpoint);
    for (std::size_t i = pick(5); i > 0; --i) {
      const Field& field = fields()[pick(fields().size())];
      const bool is_top = field.path.find_first_of(".[") == std::string_view::npos;
      const bool is_here = (field.endpoints & set_of(endpoint)) != 0;
      if (!is_top || (!is_here && pick(20) != 0) || is_required(endpoint, field.path)) continue;
      out += ",\"" + std::string(field.path) + "\":" + value_for(field);
    }
    return out + "}";
  }

  void mutate(std::string& bytes) {
    static const std::vector<std::string> kTokens = {"{",    "}",       "[",        "]",       ",",  ":",
                                                     "\"",   "null",    "true",     "1e999",   "-1", "\\ud800",
                                                     "\xff", "<think>", "</think>", "\\u0000", "1.5"};
    for (std::size_t i = 1 + pick(4); i > 0 && !bytes.empty(); --i) {
      const std::size_t at = pick(bytes.size());
      switch (pick(5)) {
        case 0:
          bytes[at] = static_cast<char>(pick(256));
          break;
        case 1:
          bytes.erase(at, 1 + pick(8));
          break;
        case 2:
          bytes.insert(at, kTokens[pick(kTokens.size())]);
          break;
        case 3:
          bytes.insert(at, bytes.substr(pick(bytes.size()), pick(64)));
          break;
        default:
          bytes.resize(at);
      }
    }
  }

  std::size_t pick(std::size_t count) { return random_() % count; }

 private:
  static std::string required(Endpoint endpoint) {
    switch (endpoint) {
      case Endpoint::completions:
        return R"("prompt":"<think>a</think>b")";
      case Endpoint::embeddings:
        return R"("input":["a","b"])";
      case Endpoint::responses:
        return R"("input":[{"role":"user","content":[{"type":"input_text","text":"a"}]},)"
               R"({"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"b"}]}])";
      case Endpoint::tokenize:
        return R"("content":"a")";
      case Endpoint::detokenize:
        return R"("tokens":[1,2])";
      case Endpoint::messages:
        return R"("max_tokens":9,"system":[{"type":"text","text":"s"}],)"
               R"("messages":[{"role":"user","content":[{"type":"text","text":"a"}]}])";
      default:
        return R"("messages":[{"role":"user","content":[{"type":"text","text":"a"}]},{"role":"user","content":"b"}])";
    }
  }

  std::string value_for(const Field& field) {
    static const std::vector<std::string> kValues = {"null",
                                                     "true",
                                                     "false",
                                                     "0",
                                                     "1",
                                                     "-1",
                                                     "2",
                                                     "1.5",
                                                     "1e300",
                                                     "18446744073709551615",
                                                     "\"\"",
                                                     "\"x\"",
                                                     "\"none\"",
                                                     "[]",
                                                     "[1,2]",
                                                     "[\"a\"]",
                                                     "[[]]",
                                                     "{}",
                                                     R"({"a":"b"})",
                                                     R"({"5":-100})",
                                                     R"({"type":"text"})",
                                                     R"({"include_usage":true})",
                                                     R"({"effort":"low"})",
                                                     R"({"type":"enabled","budget_tokens":1})"};
    if (!field.values.empty() && pick(3) != 0) {
      const std::string_view values = field.values;
      std::vector<std::string> listed;
      for (std::size_t at = 0; at <= values.size();) {
        const std::size_t end = std::min(values.find('|', at), values.size());
        listed.emplace_back(values.substr(at, end - at));
        at = end + 1;
      }
      return listed[pick(listed.size())];
    }
    if ((field.types & kBoolean) != 0 && pick(2) != 0) return "true";
    if ((field.types & (kInteger | kNumber)) != 0 && pick(2) != 0) return "1";
    return kValues[pick(kValues.size())];
  }

  std::mt19937 random_;
};

TEST_CASE("a body of any fields and bytes is refused with a reason, or answered in its endpoint's shape") {
  const int num_bodies = num_mutations(20000);
  BodyMaker maker(20171);
  int taken = 0;
  int taken_mutated = 0;
  for (int i = 0; i < num_bodies; ++i) {
    const Endpoint endpoint = *maker.endpoint().body;
    std::string body = maker.body(endpoint);
    const bool is_mutated = maker.pick(2) != 0;
    if (is_mutated) maker.mutate(body);
    const bool was_taken = run_body(endpoint, body);
    taken += was_taken;
    taken_mutated += was_taken && is_mutated;
  }
  std::printf("%d bodies: %d taken, %d of them mutated\n", num_bodies, taken, taken_mutated);
  REQUIRE(taken > num_bodies / 20);
  REQUIRE(taken < num_bodies);
  REQUIRE(taken_mutated > 0);
}

}  // namespace
}  // namespace troupe::fuzz
