// The time from a row of logits to a token, for a vocabulary of 128,000: Google Benchmark's flags, and --kernels=NAME.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "engine/sampling/sampler.h"
#include "kernels/kernels.h"

namespace {

using troupe::engine::Sampler;
using troupe::engine::SamplingParams;

constexpr std::size_t kVocabulary = 128'000;

// A few likely tokens over a broad tail, as from a language model.
std::vector<float> logits() {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 2);
  std::uniform_real_distribution<float> likely(6, 16);
  std::vector<float> all(kVocabulary);
  for (float& logit : all) logit = normal(random);
  for (int i = 0; i < 200; ++i) all[random() % kVocabulary] = likely(random);
  return all;
}

struct Case {
  const char* name;
  SamplingParams params;
};
const Case kCases[] = {
    {"greedy", {.temperature = 0}},
    {"softmax", {}},
    {"top_k_40", {.top_k = 40}},
    {"top_p_0.95", {.top_p = 0.95f}},
    {"top_k_40_top_p_0.95_min_p_0.05", {.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f}},
    {"penalties_top_k_40", {.top_k = 40, .repeat_penalty = 1.1f}},
    {"greedy_5_logprobs", {.temperature = 0, .num_logprobs = 5}},
};

void run(benchmark::State& state, const troupe::kernels::KernelTable& kernels, const SamplingParams& params) {
  Sampler sampler(kernels, params, {2});
  const std::vector<float> source = logits();
  std::vector<float> row(source.size());
  for (int token = 0; token < 64; ++token) sampler.accept(token * 100);
  std::uint64_t position = 0;
  for (auto _ : state) {
    state.PauseTiming();
    std::memcpy(row.data(), source.data(), row.size() * sizeof(float));  // the sampler changes them
    state.ResumeTiming();
    benchmark::DoNotOptimize(sampler.sample(row, ++position));
  }
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  std::string name{troupe::kernels::best_table().name};
  for (int i = 1; i < argc; ++i)
    if (std::strncmp(argv[i], "--kernels=", 10) == 0) name = argv[i] + 10;
  const troupe::kernels::KernelTable* const kernels = troupe::kernels::find_table(name);
  if (kernels == nullptr || !troupe::kernels::is_supported(*kernels)) {
    std::fprintf(stderr, "sampler_bench: this CPU has no kernels of the name %s\n", name.c_str());
    return 2;
  }
  troupe::kernels::set_flush_denormals();
  for (const Case& c : kCases)
    benchmark::RegisterBenchmark((name + "/" + c.name).c_str(), run, *kernels, c.params)->Unit(benchmark::kMicrosecond);
  benchmark::RunSpecifiedBenchmarks();
}
