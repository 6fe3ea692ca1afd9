// Answers are those without drafts, bit for bit, for every drafter with every length of drafts, way of sampling, number
// of streams and family: each pair of these comes at least once. TROUPE_CHURN=1: all of the product.
#include <algorithm>
#include <array>
#include <bit>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/actors/clients.h"

namespace troupe::actors {
namespace {

using namespace test;
using engine::DraftSource;

constexpr std::uint32_t kAnswer = 48;

// right, wrong: the request proposes its answer, or one that is right for four tokens.
constexpr std::array kDrafters{"draft", "ngram", "suffix", "right", "wrong"};
constexpr std::array kLengths{"0", "1", "3", "8", "dynamic"};
constexpr std::array kSamplings{"greedy", "seeded", "penalties", "stops", "late stops"};
constexpr std::array kStreams{1, 16};
constexpr std::array kFamilies{"llama", "bitnet", "qwen2",     "gemma2",  "gemma3",
                               "mamba", "rwkv7",  "falcon-h1", "lfm2moe", "tales"};

constexpr std::array<std::size_t, 5> kSizes{kDrafters.size(), kLengths.size(), kSamplings.size(), kStreams.size(),
                                            kFamilies.size()};
using Combination = std::array<std::size_t, kSizes.size()>;  // a place in each list

std::string name_of(const Combination& of) {
  return std::string(kFamilies[of[4]]) + ", " + std::to_string(kStreams[of[3]]) + " streams, " + kSamplings[of[2]] +
         ", drafter " + kDrafters[of[0]] + ", at most " + kLengths[of[1]];
}

std::vector<Combination> all_combinations() {
  std::vector<Combination> all{{}};
  for (std::size_t list = 0; list < kSizes.size(); ++list) {
    std::vector<Combination> longer;
    for (Combination of : all)
      for (of[list] = 0; of[list] < kSizes[list]; ++of[list]) longer.push_back(of);
    all = std::move(longer);
  }
  return all;
}

// So many that every pair of places comes once: each time the one with most new pairs.
std::vector<Combination> every_pair(std::vector<Combination> all) {
  using Place = std::pair<std::size_t, std::size_t>;
  std::set<std::pair<Place, Place>> seen;
  const auto pairs_of = [](const Combination& of) {
    std::vector<std::pair<Place, Place>> pairs;
    for (std::size_t a = 0; a < of.size(); ++a)
      for (std::size_t b = a + 1; b < of.size(); ++b) pairs.push_back({{a, of[a]}, {b, of[b]}});
    return pairs;
  };
  const auto num_new = [&](const Combination& of) {
    return std::ranges::count_if(pairs_of(of), [&](const auto& pair) { return !seen.contains(pair); });
  };
  std::vector<Combination> chosen;
  while (true) {
    const auto best = std::max_element(
        all.begin(), all.end(), [&](const Combination& a, const Combination& b) { return num_new(a) < num_new(b); });
    if (num_new(*best) == 0) return chosen;
    chosen.push_back(*best);
    for (const auto& pair : pairs_of(*best)) seen.insert(pair);
  }
}

std::shared_ptr<engine::LoadedModel> model_of(const std::string& family) {
  engine::LoadOptions options;
  options.num_blocks = 80;
  options.num_snapshots = 24;
  options.snapshot_every = 64;
  options.max_sequences = 24;
  const std::string path = family == "tales" ? std::string(TROUPE_MODELS) + "/tales-5m-tq2_0.gguf"
                                             : std::string(TROUPE_TEST_DATA) + "/golden/" + family + ".gguf";
  return load_model(path, options);
}

// Some with prompts that repeat themselves, so that there is something to draft from.
std::vector<Request> requests_of(const engine::LoadedModel& model, const std::string& sampling, int count) {
  std::vector<Request> requests;
  for (int i = 0; i < count; ++i) {
    Request request;
    request.tenant.is_owner = true;
    std::vector<TokenId> prompt{1};
    const int length = 20 + 3 * i, period = i % 3 == 0 ? 7 : 61;
    for (int place = 1; place < length; ++place)
      prompt.push_back(static_cast<TokenId>((place % period * 37 + 5 + i) % static_cast<int>(model.info().vocab_size)));
    request.prompt = std::move(prompt);
    request.sampling.temperature = sampling == "seeded" || sampling == "penalties" ? 0.8f : 0.f;
    request.sampling.seed = 11 + static_cast<std::uint64_t>(i);
    request.sampling.max_tokens = kAnswer;
    request.sampling.ignore_eos = true;
    request.sampling.num_logprobs = 1;
    if (sampling == "penalties") {
      request.sampling.repeat_penalty = 1.3f;
      request.sampling.frequency_penalty = 0.2f;
      request.sampling.presence_penalty = 0.1f;
      request.sampling.repeat_last_n = 20;
    }
    request.credit = ~std::uint64_t{0};
    requests.push_back(std::move(request));
  }
  return requests;
}

struct Answer : Listener {
  void tokens(TokenRun run) override {
    logprobs.insert(logprobs.end(), run.logprobs.begin(), run.logprobs.end());
    Listener::tokens(std::move(run));
  }
  std::vector<engine::SampledToken> logprobs;
};
using Answers = std::vector<std::shared_ptr<Answer>>;

Answers answer(Stage& stage, const std::vector<Request>& requests) {
  Answers answers;
  for (const Request& request : requests) {
    answers.push_back(std::make_shared<Answer>());
    stage.submit(request, answers.back());
  }
  stage.run_with_time();
  for (const auto& each : answers) REQUIRE(each->end_);
  check_all_came_back(stage);
  return answers;
}

bool same(const Answer& one, const Answer& other) {
  const auto same_logprob = [](const engine::SampledToken& a, const engine::SampledToken& b) {
    return std::bit_cast<std::uint32_t>(a.logprob) == std::bit_cast<std::uint32_t>(b.logprob);
  };
  return one.ids == other.ids && one.text == other.text && one.end_->outcome == other.end_->outcome &&
         one.end_->stop == other.end_->stop && std::ranges::equal(one.logprobs, other.logprobs, same_logprob);
}

class Product {
 public:
  void check(const Combination& of) {
    INFO(name_of(of));
    const std::string family = kFamilies[of[4]], drafter = kDrafters[of[0]], length = kLengths[of[1]];
    const auto& [requests, expected] = without_drafts(family, kSamplings[of[2]], kStreams[of[3]]);
    GatewayOptions options;
    options.speculation.source = engine::draft_source(drafter).value_or(DraftSource::off);
    options.verify_all_drafts = length != "dynamic";
    options.speculation.n_max = length == "dynamic" ? 16 : static_cast<std::uint32_t>(std::stoul(length));
    ServedModel served(model(family));
    if (drafter == "draft")
      if (const auto fits = served.set_draft_model(model(family + " ")); !fits) FAIL(fits.error().message);
    Stage stage(options);
    stage.serve(std::move(served));
    const std::uint32_t vocab_size = model(family)->info().vocab_size;
    std::vector<Request> asked = requests;
    for (std::size_t i = 0; i < asked.size(); ++i) {
      if (drafter == "right" || drafter == "wrong") asked[i].proposal = expected[i]->ids;
      if (drafter == "wrong")
        for (std::size_t place = 4; place < asked[i].proposal.size(); ++place)
          asked[i].proposal[place] = (asked[i].proposal[place] + 1) % static_cast<TokenId>(vocab_size);
    }
    const auto answers = answer(stage, asked);
    for (std::size_t i = 0; i < answers.size(); ++i) {
      INFO("stream " << i);
      CHECK(same(*answers[i], *expected[i]));
      num_drafted_[drafter] += answers[i]->end_->usage.drafted_tokens;
    }
  }

  const std::map<std::string, std::uint64_t>& num_drafted() const { return num_drafted_; }

 private:
  struct Plain {
    std::vector<Request> requests;
    Answers answers;
  };

  // A name with a space behind it is the same model once more, with blocks of its own.
  const std::shared_ptr<engine::LoadedModel>& model(const std::string& family) {
    auto& found = models_[family];
    if (!found) found = model_of(family.substr(0, family.find(' ')));
    return found;
  }

  const Plain& without_drafts(const std::string& family, const std::string& sampling, int streams) {
    Plain& plain = plain_[{family, sampling, streams}];
    if (!plain.answers.empty()) return plain;
    plain.requests = requests_of(*model(family), sampling, streams);
    const auto whole = [&] {
      Stage stage;
      stage.serve(model(family));
      plain.answers = answer(stage, plain.requests);
    };
    whole();
    if (sampling != "stops" && sampling != "late stops") return plain;
    // At what the answers have somewhere in the middle; late: where min_tokens ends between what they have.
    for (std::size_t i = 0; i < plain.requests.size(); ++i) {
      const Answer& got = *plain.answers[i];
      if (sampling == "late stops") plain.requests[i].sampling.min_tokens = kAnswer * 5 / 8;
      if (family == "tales")
        plain.requests[i].stop_strings = {got.text.substr(got.text.size() / 2, 4)};
      else
        plain.requests[i].sampling.stop_ids = {got.ids[kAnswer / 2]};
    }
    whole();
    for (const auto& each : plain.answers)
      if (sampling == "late stops") CHECK(each->ids.size() >= kAnswer * 5 / 8);
    return plain;
  }

  std::map<std::string, std::shared_ptr<engine::LoadedModel>> models_;
  std::map<std::tuple<std::string, std::string, int>, Plain> plain_;
  std::map<std::string, std::uint64_t> num_drafted_;
};

TEST_CASE("speculation: no drafter, length, sampling, number of streams or family changes an answer") {
  std::vector<Combination> combinations = all_combinations();
  if (std::getenv("TROUPE_CHURN") == nullptr) combinations = every_pair(std::move(combinations));
  CHECK(combinations.size() >= kSizes[0] * kSizes[4]);
  Product product;
  for (const Combination& of : combinations) product.check(of);
  for (const char* drafter : kDrafters) {
    INFO(drafter);
    CHECK(product.num_drafted().at(drafter) > 0);
  }
}

}  // namespace
}  // namespace troupe::actors
