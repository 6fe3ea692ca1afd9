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
#include "engine/model/encoder.h"

namespace troupe::cli {

// One test: with `depth` tokens in the cache, num_prompt tokens of a prompt are computed, then num_gen tokens are
// decoded in each of `batch` sequences (one, if there is a prompt too). Of an encoder: `batch` texts of num_prompt
// tokens.
struct BenchCase {
  std::uint32_t depth = 0;
  std::uint32_t num_prompt = 0;
  std::uint32_t num_gen = 0;
  std::uint32_t batch = 1;
  std::uint32_t step_tokens = 512;  // prompt tokens that one step computes at most

  std::string name() const;    // "pp512", "pp512+tg128", "tg64 x8 @ d512"; "pp128 x8" of an encoder
  double num_tokens() const {  // computed in a round
    return static_cast<double>(std::uint64_t{batch} * (num_prompt + num_gen));
  }
};

struct BenchResult {
  BenchCase test;
  std::vector<double> tokens_per_second;  // one per round
  std::optional<engine::ProfileSnapshot> profile;
  std::uint64_t step_buffer_bytes = 0;

  double seconds() const;  // of the median round
};

// What all tests of one `troupe bench` share.
struct BenchContext {
  const engine::LoadedModel* model = nullptr;  // or an encoder
  std::uint64_t file_bytes = 0;
  std::uint32_t num_threads = 0;
  const engine::MachineProbe* probe = nullptr;  // for results as shares of the machine's limits; null: none was made
  const engine::Encoder* encoder = nullptr;
};

// The machine's limits for one round of a test, step by step as the bench runs it.
[[nodiscard]] engine::RunLimits limits_of(const BenchContext& context, const BenchCase& test);

[[nodiscard]] double median(std::vector<double> values);  // not empty

void print_markdown_head(const BenchContext& context, std::ostream& out);
void print_markdown_row(const BenchContext& context, const BenchResult& result, std::ostream& out);
// The time of each test by operation, and the peak memory.
void print_profiles(const BenchContext& context, const std::vector<BenchResult>& results, std::ostream& out);
void print_json(const BenchContext& context, const std::vector<BenchResult>& results, std::ostream& out);

}  // namespace troupe::cli
