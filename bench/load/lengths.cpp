#include "bench/load/lengths.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "config/options/values.h"

namespace troupe::load {
namespace {

constexpr double kLongest = 1 << 24;  // tokens

// "128,32": two numbers, the first at least 1, the second not negative.
std::optional<Lengths> parse_moments(Lengths::Kind kind, std::string_view text) {
  const std::size_t comma = text.find(',');
  if (comma == std::string_view::npos) return std::nullopt;
  const auto mean = config::parse_number(text.substr(0, comma));
  const auto deviation = config::parse_number(text.substr(comma + 1));
  if (!mean || !deviation || *mean < 1 || *mean > kLongest || *deviation < 0 || *deviation > kLongest)
    return std::nullopt;
  return Lengths{kind, *mean, *deviation};
}

std::optional<double> parse_length(std::string_view text) {
  const auto length = config::parse_integer(text);
  if (!length || *length < 1 || static_cast<double>(*length) > kLongest) return std::nullopt;
  return static_cast<double>(*length);
}

std::optional<Lengths> parse(std::string_view text) {
  if (text.starts_with("normal:")) return parse_moments(Lengths::Kind::normal, text.substr(7));
  if (text.starts_with("lognormal:")) return parse_moments(Lengths::Kind::lognormal, text.substr(10));
  if (const std::size_t dots = text.find(".."); dots != std::string_view::npos) {
    const auto low = parse_length(text.substr(0, dots)), high = parse_length(text.substr(dots + 2));
    if (!low || !high || *low > *high) return std::nullopt;
    return Lengths{Lengths::Kind::uniform, *low, *high};
  }
  const auto length = parse_length(text);
  if (!length) return std::nullopt;
  return Lengths{Lengths::Kind::fixed, *length, 0};
}

}  // namespace

std::uint32_t Lengths::whole(double length) {
  return static_cast<std::uint32_t>(std::clamp(std::round(length), 1.0, kLongest));
}

std::uint32_t Lengths::draw(Random& random) const {
  switch (kind) {
    case Kind::fixed:
      return whole(a);
    case Kind::uniform:
      return whole(a + static_cast<double>(random.below(static_cast<std::uint64_t>(b - a) + 1)));
    case Kind::normal:
      return whole(a + b * random.normal());
    case Kind::lognormal: {
      const double variance = std::log1p(b * b / (a * a));  // of the logarithm
      return whole(std::exp(std::log(a) - variance / 2 + std::sqrt(variance) * random.normal()));
    }
  }
  return 1;
}

Result<Lengths> parse_lengths(std::string_view text, std::string_view what) {
  if (const auto lengths = parse(text)) return *lengths;
  return Error{
      ErrorCode::invalid_argument,
      fmt::format("{}: '{}' is no length of 1 to 16777216 tokens; write 128, 32..256, normal:MEAN,DEVIATION or "
                  "lognormal:MEAN,DEVIATION",
                  what, text)};
}

}  // namespace troupe::load
