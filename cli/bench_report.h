// The results of `troupe bench` and how they are printed.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "engine/compute/profiler.h"
#include "engine/engine.h"
#include "engine/evaluation/limits.h"

namespace troupe::cli {

// One test: `depth` tokens are in the cache, then `num_prompt` tokens of a prompt are computed, then `num_gen` tokens
// are decoded in each of `batch` sequences (one, if there is a prompt too).
struct BenchCase {
  std::uint32_t depth = 0;
  std::uint32_t num_prompt = 0;
  std::uint32_t num_gen = 0;
  std::uint32_t batch = 1;
  std::uint32_t step_tokens = 512;  // of a prompt that one step computes

  std::string name() const;  // "pp512", "pp512+tg128", "tg64 x8 @ d512"
};

struct BenchResult {
  BenchCase test;
  std::vector<double> tokens_per_second;  // one per round
  std::optional<engine::ProfileSnapshot> profile;
  std::uint64_t step_buffer_bytes = 0;

  double seconds() const;  // of the median round
};

// Of the whole run.
struct BenchContext {
  const engine::LoadedModel* model = nullptr;
  std::uint64_t file_bytes = 0;
  std::uint32_t num_threads = 0;
  const engine::MachineProbe* probe = nullptr;  // of this machine, where there is one: results get their shares
};

// What one round of a test demands of the machine, step by step as the bench runs it.
[[nodiscard]] engine::RunLimits limits_of(const BenchContext& context, const BenchCase& test);

[[nodiscard]] double median(std::vector<double> values);  // not empty

// "Intel(R) Xeon(R) ...", from /proc/cpuinfo; "unknown CPU" elsewhere.
[[nodiscard]] std::string cpu_name();

void print_markdown_head(const BenchContext& context, std::ostream& out);
void print_markdown_row(const BenchContext& context, const BenchResult& result, std::ostream& out);
// Where the time of each test went, and what memory there was at most.
void print_profiles(const BenchContext& context, const std::vector<BenchResult>& results, std::ostream& out);
void print_json(const BenchContext& context, const std::vector<BenchResult>& results, std::ostream& out);

}  // namespace troupe::cli
