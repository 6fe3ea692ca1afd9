// Random numbers of a plan: every draw is a function of (seed, purpose, index, number), so that request 917 is the same
// whether or not requests 0 to 916 were generated, and the same on every machine.
#pragma once

#include <cstdint>

namespace troupe::load {

// The uses of draws. Append only: a seed's draws depend on these numbers.
enum class Purpose : std::uint32_t {
  arrival,
  prefix,
  prefix_tokens,
  prompt_length,
  prompt_tokens,
  output_length,
  fault,
  garbage,
  backoff,
  trace_block,
};

// The draws of one purpose for one index (of a request, a prefix, ...). A value; not thread-safe.
class Random {
 public:
  Random(std::uint64_t seed, Purpose purpose, std::uint64_t index) : seed_(seed), purpose_(purpose), index_(index) {}

  double uniform();                          // in [0, 1), 53 bits
  std::uint64_t below(std::uint64_t bound);  // 0 to bound - 1; bound >= 1, at most 2^32 (the bias is below 2^-21)
  double exponential();                      // mean 1
  double normal();                           // mean 0, standard deviation 1
  double gamma(double shape);                // mean `shape`, scale 1; shape > 0

 private:
  std::uint64_t seed_;
  Purpose purpose_;
  std::uint64_t index_;
  std::uint32_t number_ = 0;
};

}  // namespace troupe::load
