// Whether the time to the first token tells which prompts another tenant has cached.
//
//   scope_timing -m MODEL.gguf [--threads 2] [--probes 2000] [--prompt-tokens 256] [--seed 1]
//
// Through the real gateway, in this process, with one request at a time. Before each probe a tenant asks for a random
// prompt. The probe then asks for the same prompt or for another one, by a coin, and its time to the first token is
// noted. Printed is the area under the ROC curve of the best classifier by a threshold on that time, of same against
// other (bench/auc.h): 0.5 is no better than guessing, 1 is always right. Once the probe is another tenant's, and once,
// to show that the method finds hits where there are some, the same tenant's.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "actors/gateway.h"
#include "bench/auc.h"

namespace {

using namespace troupe;
using Clock = std::chrono::steady_clock;

struct Arguments {
  std::string model;
  std::uint32_t threads = 2;
  std::uint32_t probes = 2000;
  std::uint32_t prompt_tokens = 256;
  std::uint64_t seed = 1;
};

// Records when the first token came, and the end.
struct FirstToken : actors::StreamSink {
  void tokens(actors::TokenRun run) override {
    if (!run.ids.empty() && first == Clock::time_point{}) first = Clock::now();
  }
  void end(actors::End end) override { ended.set_value(std::move(end)); }
  Clock::time_point first{};
  std::promise<actors::End> ended;
};

using Prompt = std::vector<TokenId>;

class Prober {
 public:
  Prober(actors::Gateway& gateway, const Arguments& arguments)
      : gateway_(gateway), arguments_(arguments), random_(arguments.seed) {}

  // Probes of tenant `probing` after requests of tenant 1. Returns false if a request was not answered.
  bool run(const char* what, TenantId probing) {
    std::vector<double> same, other;
    std::uint64_t cached_tokens = 0;
    for (std::uint32_t i = 0; i < arguments_.probes; ++i) {
      const Prompt prompt = random_prompt();
      if (!ask(TenantId{1}, prompt)) return false;
      const bool is_same = random_() % 2 == 0;
      const auto answer = ask(probing, is_same ? prompt : random_prompt());
      if (!answer) return false;
      (is_same ? same : other).push_back(answer->first);
      cached_tokens += answer->second;
    }
    std::printf("| %s | %zu | %.3f | %.3f | %llu | %.3f |\n", what, same.size() + other.size(), median(same),
                median(other), static_cast<unsigned long long>(cached_tokens), bench::auc(same, other));
    std::fflush(stdout);
    return true;
  }

 private:
  Prompt random_prompt() {
    Prompt prompt(arguments_.prompt_tokens);
    const std::uint32_t vocab_size = gateway_.model()->info().vocab_size;
    for (TokenId& token : prompt) token = static_cast<TokenId>(random_() % vocab_size);
    return prompt;
  }
  // Milliseconds to the first token, and how many of the prompt's tokens were cached; none if it was not answered.
  std::optional<std::pair<double, std::uint32_t>> ask(TenantId tenant, Prompt prompt) {
    actors::Request request;
    request.tenant = {.id = tenant};
    request.prompt = std::move(prompt);
    request.sampling.max_tokens = 1;
    request.sampling.ignore_eos = true;
    request.credit = 1;
    const auto sink = std::make_shared<FirstToken>();
    auto ended = sink->ended.get_future();
    const Clock::time_point start = Clock::now();
    gateway_.submit(std::move(request), sink);
    const actors::End end = ended.get();
    if (end.outcome != scheduler::Outcome::length) {
      std::fprintf(stderr, "a request was not answered: %s\n", end.message.c_str());
      return std::nullopt;
    }
    return std::pair(std::chrono::duration<double, std::milli>(sink->first - start).count(), end.usage.cached_tokens);
  }
  static double median(std::vector<double> values) {
    if (values.empty()) return 0;
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  }

  actors::Gateway& gateway_;
  const Arguments& arguments_;
  std::mt19937_64 random_;
};

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    const char* value = argv[i + 1];
    if (flag == "-m") arguments.model = value;
    if (flag == "--threads") arguments.threads = static_cast<std::uint32_t>(std::atoi(value));
    if (flag == "--probes") arguments.probes = static_cast<std::uint32_t>(std::atoi(value));
    if (flag == "--prompt-tokens") arguments.prompt_tokens = static_cast<std::uint32_t>(std::atoi(value));
    if (flag == "--seed") arguments.seed = std::strtoull(value, nullptr, 10);
  }
  return arguments;
}

}  // namespace

int main(int argc, char** argv) {
  const Arguments arguments = parse(argc, argv);
  actors::GatewayOptions options;
  options.model().path = arguments.model;
  options.num_threads = arguments.threads;
  auto gateway = actors::Gateway::start_loaded(options);
  if (!gateway) {
    std::fprintf(stderr, "%s\n", gateway.error().message.c_str());
    return 1;
  }
  std::printf("%s, %s, %u threads, prompts of %u tokens, seed %llu\n\n", (*gateway)->models().at(0).name.c_str(),
              std::string((*gateway)->model()->kernels().name).c_str(), arguments.threads, arguments.prompt_tokens,
              static_cast<unsigned long long>(arguments.seed));
  std::printf("| probes of | probes | same, ms | other, ms | cached tokens | AUC |\n|---|---:|---:|---:|---:|---:|\n");
  Prober prober(**gateway, arguments);
  const bool answered = prober.run("another tenant", TenantId{2}) && prober.run("the same tenant", TenantId{1});
  return answered ? 0 : 1;
}
