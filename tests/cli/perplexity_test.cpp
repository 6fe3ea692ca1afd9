// `troupe perplexity`, and the comparisons of `troupe eval`.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "tests/cli/process.h"
#include "tests/support/shared_data.h"

using namespace troupe::test;
using Catch::Matchers::Contains;
using nlohmann::json;

namespace {

const std::string kStories = TROUPE_TEST_DATA "/stories.txt";
const std::string kDraft = TROUPE_MODELS "/tales-draft-q8_0.gguf";

json result_of(std::vector<std::string> arguments, const std::string& stdin_text = "") {
  const Finished finished = invoke(std::move(arguments), stdin_text);
  INFO(finished.err);
  REQUIRE(finished.code == 0);
  return json::parse(finished.out);
}

}  // namespace

TEST_CASE("perplexity prints a table, and the estimate after each passage on stderr") {
  const Finished finished = invoke({"perplexity", "-f", kStories, "-c", "128", "--chunks", "3"});
  INFO(finished.err);
  REQUIRE(finished.code == 0);
  CHECK_THAT(finished.out, Contains("; a text of 1552 tokens\n"));
  CHECK_THAT(finished.out, Contains("| troupe tales 5M | TQ2_0 x 42, F32 x 25, Q8_0 x 1 | ") &&
                               Contains(" | f16 | 3 x 128 | 189 | "));
  for (const char* line : {"\n[1/3] ", "\n[2/3] ", "\n[3/3] "}) CHECK_THAT(finished.err, Contains(line));
  // The last estimate is the result.
  const std::string last = finished.err.substr(finished.err.rfind("[3/3] ") + 6);
  CHECK_THAT(finished.out, Contains(" | " + last.substr(0, last.find('\n')) + " ± "));
}

TEST_CASE("perplexity as JSON has all figures, those by position where they are asked for") {
  const json plain = result_of({"perplexity", "-f", kStories, "-c", "64", "--chunks", "5", "-o", "json"});
  CHECK(plain["text_tokens"] == 1552);
  CHECK(plain["passage"] == 64);
  CHECK(plain["passages"] == 5);
  CHECK(plain["scored_tokens"] == 5 * 31);
  CHECK(plain["kv_type"] == "f16");
  const double perplexity = plain["perplexity"];
  CHECK(perplexity == Approx(std::exp(plain["nll"].get<double>())));
  CHECK(plain["perplexity_error"].get<double>() == Approx(plain["nll_error"].get<double>() * perplexity));
  REQUIRE(plain["running"].size() == 5);
  CHECK(plain["running"][4] == perplexity);
  CHECK(plain.count("by_position") == 0);

  const json by_position =
      result_of({"perplexity", "-f", kStories, "-c", "64", "--chunks", "5", "-o", "json", "--by-position"});
  CHECK(by_position["perplexity"] == perplexity);
  REQUIRE(by_position["by_position"].size() == 16);
  CHECK(by_position["by_position"][0]["first"] == 1);
  CHECK(by_position["by_position"][15]["last"] == 63);
  CHECK_THAT(invoke({"perplexity", "-f", kStories, "-c", "64", "--chunks", "5", "--by-position"}).out,
             Contains("\n| 1 - 3 | 15 | "));
}

TEST_CASE("perplexity with a stride: longer passages, each token scored once") {
  const json result = result_of({"perplexity", "-f", kStories, "-c", "96", "--ppl-stride", "64", "-o", "json"});
  CHECK(result["passage"] == 128);
  CHECK(result["stride"] == 64);
  CHECK(result["passages"] == (1552 - 128 + 63) / 64);
  CHECK(result["scored_tokens"] == result["passages"].get<int>() * 64);
}

TEST_CASE("perplexity depends on the KV cache's type and on the kernels, not on threads, and reads stdin") {
  const auto measure = [](std::vector<std::string> more, const std::string& stdin_text = "") {
    std::vector<std::string> arguments{"perplexity", "-c", "64", "--chunks", "2", "-o", "json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return result_of(arguments, stdin_text)["perplexity"].get<double>();
  };
  const double plain = measure({"-f", kStories, "-t", "1"});
  CHECK(measure({"-f", kStories, "-t", "2"}) == plain);
  CHECK(measure({"-f", kStories, "-ctk", "int8"}) != plain);
  CHECK(measure({"-f", kStories, "--kernels", "reference"}) != plain);
  std::ifstream file(kStories);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  CHECK(measure({}, text) == plain);
  CHECK(measure({"-f", "-"}, text.substr(text.find('\n') + 1)) != plain);
}

TEST_CASE("perplexity says what it cannot do") {
  const TempFolder folder;
  const Finished text = invoke({"perplexity", "-f", folder.write("short.txt", "Once upon a time\n")});
  CHECK(text.code == 2);
  CHECK_THAT(text.err, Contains("the text has 5 tokens, fewer than two passages of 512; use a longer text or a smaller "
                                "-c"));
  const Finished stride = invoke({"perplexity", "-f", kStories, "-c", "64", "--stride", "128"});
  CHECK(stride.code == 2);
  CHECK_THAT(stride.err, Contains("a stride of 128 leaves no context in passages of 128 tokens"));
  CHECK(invoke({"perplexity", "-f", folder.path("none.txt")}).code == 1);
  CHECK(invoke({"perplexity", "-f", kStories, "-c", "3"}).code == 2);
  CHECK(invoke({"perplexity", "some", "text"}).code == 2);
  if (const auto model = shared_file("golden/llama-F32.gguf")) {
    const Finished none = invoke({"perplexity", "-m", *model, "-f", kStories});
    CHECK(none.code == 65);
    CHECK_THAT(none.err, Contains("has no vocabulary"));
  }
}

TEST_CASE("eval takes a text instead of ids") {
  const TempFolder folder;
  const std::string ids = folder.write("ids.json", "[1, 424, 437, 261, 399]");
  const std::string text = folder.write("text.txt", "Once upon a time");
  const Finished by_ids = invoke({"eval", "--tokens", ids, "--greedy", "8"});
  CHECK(by_ids.code == 0);
  CHECK(invoke({"eval", "-f", text, "--greedy", "8"}).out == by_ids.out);
  const Finished both = invoke({"eval", "--tokens", ids, "-f", text, "--greedy", "8"});
  CHECK(both.code == 2);
  CHECK_THAT(both.err, Contains("given twice"));
  CHECK(invoke({"eval", "-f", folder.path("none.txt"), "--greedy", "8"}).code == 1);
}

TEST_CASE("eval compares two KV types, two variants, two ways to multiply, and two models") {
  const auto compare = [](std::vector<std::string> more) {
    std::vector<std::string> arguments{"eval", "-f", kStories, "-c", "256", "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return result_of(arguments);
  };
  const json kv = compare({"--compare-kv-type", "int8"});
  CHECK(kv["positions"] == 1553);  // also the last line's end
  CHECK_THAT(kv["numerics_id"].get<std::string>(), Contains("-f16-"));
  CHECK_THAT(kv["compared_numerics_id"].get<std::string>(), Contains("-int8-"));
  CHECK(kv["mean_kl_divergence"] > 0);
  CHECK(kv["mean_kl_divergence"] <= kv["p99_kl_divergence"]);
  CHECK(kv["p99_kl_divergence"] <= kv["max_kl_divergence"]);
  CHECK(kv["same_top"] > 0.9);
  CHECK(kv["same_top"] <= 1);

  const TempFolder folder;
  const std::string few = folder.write("few.txt", "One day a little cat went to the park. It saw a big dog and ran.");
  const auto compare_few = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments{"eval", "-f", few, "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return result_of(arguments);
  };
  const json variants = compare_few({"--kernels", "scalar", "--compare-kernels", "reference"});
  CHECK_THAT(variants["numerics_id"].get<std::string>(), Contains("-scalar-"));
  CHECK_THAT(variants["compared_numerics_id"].get<std::string>(), Contains("-reference-"));
  CHECK(variants["rms"] > 0);

  const json kernels = json::parse(invoke({"version", "--json"}).out)["kernels"];
  if (std::find(kernels.begin(), kernels.end(), "avx2") != kernels.end()) {
    const json ternary = compare_few({"--kernels", "avx2", "--ternary", "multiply", "--compare-ternary", "trits"});
    CHECK(ternary["max_abs"] == 0);
    CHECK(ternary["same_top"] == 1);
  }

  const json models = compare({"--compare", kDraft});
  CHECK(models["mean_kl_divergence"] > 0.05);
  CHECK(models["compared_perplexity"] > models["perplexity"]);

  const Finished text = invoke({"eval", "-f", kStories, "--compare", kDraft, "--compare-kv-type", "f32"});
  CHECK(text.code == 0);
  for (const char* part : {"\nKL divergence, mean ", "\nsame likeliest token ", "\nlogits, RMS of differences ",
                           " of their spread; at most "})
    CHECK_THAT(text.out, Contains(part));
}

TEST_CASE("eval compares over exactly the given ids, and refuses what it cannot compare") {
  const TempFolder folder;
  const std::string ids = folder.write("ids.json", "[1, 424, 437, 261, 399]");
  CHECK(result_of({"eval", "--tokens", ids, "--compare-kv-type", "f32", "--json"})["positions"] == 5);
  const Finished kernels = invoke({"eval", "--tokens", ids, "--compare-kernels", "avx9"});
  CHECK(kernels.code == 2);
  CHECK_THAT(kernels.err, Contains("--compare-kernels: there is no variant 'avx9'"));
  CHECK(invoke({"eval", "--tokens", ids, "--compare-kv-type", "int4"}).code == 2);
  const Finished nothing = invoke({"eval", "--tokens", ids});
  CHECK(nothing.code == 2);
  CHECK_THAT(nothing.err, Contains("nothing to do") && Contains("--compare"));
  if (const auto other = shared_file("golden/llama-Q8_0.gguf")) {
    const Finished sizes = invoke({"eval", "--tokens", ids, "--compare", *other});
    CHECK(sizes.code == 2);
    CHECK_THAT(sizes.err, Contains("vocabularies of 2048 and 512 tokens"));
    CHECK(invoke({"eval", "-f", kStories, "--compare", *other}).code == 65);  // it has no vocabulary
  }
}
