// The numbers that say how a token is drawn: their names, ranges and defaults, once for the options, the protocols, the
// client library, traces and the sampler, whose structs have members of these names.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>

namespace troupe::config {

struct SamplingNumber {
  std::string_view name;    // of the members, and in every protocol: "top_p"
  std::string_view option;  // "top-p"
  double min, max;
  bool above_min = false;   // min itself is not allowed
  std::string_view range;   // "above 0 and at most 1"
  bool only_draws = false;  // no part in an answer of temperature 0
  // As llama.cpp names it in a GGUF file, behind "general.sampling."; empty: it does not.
  std::string_view file_key = {};
};

inline constexpr SamplingNumber kTemperature{"temperature", "temp", 0, 100, false, "from 0 (greedy) to 100",
                                             false,         "temp"};
inline constexpr SamplingNumber kTopK{"top_k", "top-k", -1, 2147483647, false, "-1 or 0 (all), or more", true, "top_k"};
inline constexpr SamplingNumber kTopP{"top_p", "top-p", 0, 1, true, "above 0 and at most 1", true, "top_p"};
inline constexpr SamplingNumber kMinP{"min_p", "min-p", 0, 1, false, "from 0 to 1", true, "min_p"};
inline constexpr SamplingNumber kRepeatPenalty{
    "repeat_penalty", "repeat-penalty", 0, 100, true, "above 0 and at most 100", false, "penalty_repeat"};
inline constexpr SamplingNumber kPresencePenalty{"presence_penalty", "presence-penalty", -100, 100, false,
                                                 "from -100 to 100"};
inline constexpr SamplingNumber kFrequencyPenalty{"frequency_penalty", "frequency-penalty", -100, 100, false,
                                                  "from -100 to 100"};
inline constexpr SamplingNumber kRepeatLastN{
    "repeat_last_n", "repeat-last-n", -1, 2147483647, false, "-1 (all), 0 (off) or a number of tokens",
    false,           "penalty_last_n"};

// Calls f(number, members of that name of each struct...).
template <class F, class... Structs>
void for_each_sampling_number(const F& f, Structs&... structs) {
  f(kTemperature, structs.temperature...);
  f(kTopK, structs.top_k...);
  f(kTopP, structs.top_p...);
  f(kMinP, structs.min_p...);
  f(kRepeatPenalty, structs.repeat_penalty...);
  f(kPresencePenalty, structs.presence_penalty...);
  f(kFrequencyPenalty, structs.frequency_penalty...);
  f(kRepeatLastN, structs.repeat_last_n...);
}

// A set of the numbers.
class SamplingNumbers {
 public:
  void add(const SamplingNumber& number) { bits_ |= bit(number); }
  [[nodiscard]] bool has(const SamplingNumber& number) const { return (bits_ & bit(number)) != 0; }
  friend bool operator==(const SamplingNumbers&, const SamplingNumbers&) = default;

 private:
  static std::uint32_t bit(const SamplingNumber& wanted) {
    std::uint32_t next = 1, found = 0;
    for_each_sampling_number([&](const SamplingNumber& number) {
      if (&number == &wanted) found = next;
      next <<= 1;
    });
    return found;
  }
  std::uint32_t bits_ = 0;
};

// Whether the value is a number in the range: NaN is not.
[[nodiscard]] constexpr bool is_in_range(const SamplingNumber& number, double value) {
  return (number.above_min ? value > number.min : value >= number.min) && value <= number.max;
}

// Those that are said.
struct SomeSamplingNumbers {
  std::optional<double> temperature{};
  std::optional<std::int64_t> top_k{};
  std::optional<double> top_p{};
  std::optional<double> min_p{};
  std::optional<double> repeat_penalty{};
  std::optional<double> presence_penalty{};
  std::optional<double> frequency_penalty{};
  std::optional<std::int64_t> repeat_last_n{};
  friend bool operator==(const SomeSamplingNumbers&, const SomeSamplingNumbers&) = default;
};

// Pointers to the members, for tables of keys.
struct SamplingMembers {
  template <class T>
  using Member = std::optional<T> SomeSamplingNumbers::*;
  Member<double> temperature = &SomeSamplingNumbers::temperature;
  Member<std::int64_t> top_k = &SomeSamplingNumbers::top_k;
  Member<double> top_p = &SomeSamplingNumbers::top_p;
  Member<double> min_p = &SomeSamplingNumbers::min_p;
  Member<double> repeat_penalty = &SomeSamplingNumbers::repeat_penalty;
  Member<double> presence_penalty = &SomeSamplingNumbers::presence_penalty;
  Member<double> frequency_penalty = &SomeSamplingNumbers::frequency_penalty;
  Member<std::int64_t> repeat_last_n = &SomeSamplingNumbers::repeat_last_n;
};

using Seed = std::optional<std::uint64_t>;  // written as a number; "-1" or nullopt: drawn for each request

// As options. The defaults are llama.cpp's; those of the protocols are neutral (engine::SamplingParams).
struct SamplingOptions {
  double temperature = 0.8;
  Seed seed;
  std::int64_t top_k = 40;
  double top_p = 0.95;
  double min_p = 0.05;
  double repeat_penalty = 1.0;
  std::int64_t repeat_last_n = 64;
  double presence_penalty = 0.0;
  double frequency_penalty = 0.0;
};

}  // namespace troupe::config
