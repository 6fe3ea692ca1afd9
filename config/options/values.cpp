#include "config/options/values.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

namespace troupe::config {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

constexpr double kKi = 1024.0;
constexpr std::array kByteUnits{
    Unit{"", 1.0},       Unit{"b", 1.0},        Unit{"k", kKi},           Unit{"kib", kKi},
    Unit{"m", kKi* kKi}, Unit{"mib", kKi* kKi}, Unit{"g", kKi* kKi* kKi}, Unit{"gib", kKi* kKi* kKi},
    Unit{"t", 0x1p40},   Unit{"tib", 0x1p40},   Unit{"kb", 1e3},          Unit{"mb", 1e6},
    Unit{"gb", 1e9},     Unit{"tb", 1e12},
};
constexpr std::array kTimeUnits{
    Unit{"ms", 1.0},   Unit{"", 1e3},     Unit{"s", 1e3},     Unit{"m", 60e3},
    Unit{"min", 60e3}, Unit{"h", 3600e3}, Unit{"d", 86400e3},
};

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

// Parses a number >= 0 and a unit to a count of the base unit; nullopt if that is not a whole count within `max`.
std::optional<double> parse_with_unit(std::string_view text, std::span<const Unit> units, double max) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  const auto number = parse_number(text.substr(0, digits));
  const std::string unit = lower(text.substr(digits));
  const auto found = std::find_if(units.begin(), units.end(), [&](const Unit& u) { return u.name == unit; });
  if (!number || found == units.end()) return std::nullopt;
  const double count = std::round(*number * found->factor);
  if (count > max) return std::nullopt;
  return count;
}

template <class T>
std::optional<T> parse_whole(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// A bound of the range in the unit of the option.
std::string format_bound(const Field& field, double bound) {
  if (std::holds_alternative<Bytes Options::*>(field)) return format_bytes(static_cast<std::uint64_t>(bound));
  if (std::holds_alternative<std::chrono::milliseconds Options::*>(field))
    return format_duration(std::chrono::milliseconds(static_cast<std::int64_t>(bound)));
  if (std::holds_alternative<double Options::*>(field)) return format_number(bound);
  return fmt::format("{}", static_cast<std::int64_t>(bound));
}

bool in_range(const Range& range, double value) {
  return value <= range.max && (range.above_min ? value > range.min : value >= range.min);
}

// Optimal string alignment distance (Damerau-Levenshtein without edits of swapped letters): three rows of the table.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

std::string_view without_dashes(std::string_view name) {
  return name.substr(std::min(name.find_first_not_of('-'), name.size()));
}

// "8k" is 8192.
std::optional<std::int64_t> parse_tokens(std::string_view text) {
  const bool has_unit = text.ends_with('k') || text.ends_with('K');
  if (has_unit) text.remove_suffix(1);
  const auto count = parse_integer(text);
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  if (!count || !has_unit || *count < 0 || *count > kMost) return has_unit && count ? std::nullopt : count;
  return *count * 1024;
}

// Sets one field; one overload per type of field. Each returns an error message or nullopt.
class Assigner {
 public:
  Assigner(const Option& option, std::span<const std::string> texts, Options& options)
      : option_(option), texts_(texts), options_(options) {}

  using Error = std::optional<std::string>;

  Error operator()(bool Options::*field) const {
    const auto value = parse_switch(text());
    if (!value) return fmt::format("'{}' is not a switch: it must be true or false", text());
    options_.*field = *value;
    return std::nullopt;
  }
  template <class Integer>
  requires std::is_integral_v<Integer> Error operator()(Integer Options::*field) const {
    const bool is_tokens = option_.value == "TOKENS";
    return checked(is_tokens ? parse_tokens(text()) : parse_integer(text()), text(),
                   is_tokens ? "a whole number, such as 8192 or 8k" : "a whole number",
                   [&](std::int64_t v) { options_.*field = static_cast<Integer>(v); });
  }
  Error operator()(double Options::*field) const {
    return checked(parse_number(text()), text(), "a number", [&](double v) { options_.*field = v; });
  }
  Error operator()(Bytes Options::*field) const {
    return checked(parse_bytes(text()), text(), "an amount of memory such as 512M or 4GiB",
                   [&](std::uint64_t v) { options_.*field = Bytes{v}; });
  }
  Error operator()(std::chrono::milliseconds Options::*field) const {
    const auto duration = parse_duration(text());
    const auto count = duration ? std::optional<std::int64_t>(duration->count()) : std::nullopt;
    return checked(count, text(), "a duration such as 500ms or 30s",
                   [&](std::int64_t v) { options_.*field = std::chrono::milliseconds(v); });
  }
  Error operator()(Seed Options::*field) const {
    const auto value = parse_whole<std::uint64_t>(text());
    if (!value && text() != "-1")
      return fmt::format("'{}' is not a seed: it must be a whole number from 0 on, or -1", text());
    options_.*field = value;
    return std::nullopt;
  }
  Error operator()(std::string Options::*field) const {
    const std::string& value = text();
    if (option_.value.find('|') != std::string_view::npos) {
      const std::vector<std::string> choices = split(option_.value, '|');
      if (std::find(choices.begin(), choices.end(), value) == choices.end()) {
        const auto likely = nearest(value, choices);
        return fmt::format("'{}' is not one of {}{}", value, option_.value,
                           likely ? fmt::format(" (did you mean {}?)", *likely) : "");
      }
    }
    options_.*field = value;
    return std::nullopt;
  }
  Error operator()(std::vector<std::int64_t> Options::*field) const {
    std::vector<std::int64_t> values;
    for (const std::string& text : texts_)
      for (const std::string& part : split(text, ',')) {
        if (texts_.size() == 1 && text.empty()) break;  // TROUPE_ALLOW_UID= empties the list
        auto error = checked(parse_integer(part), part, "a whole number", [&](std::int64_t v) { values.push_back(v); });
        if (error) return error;
      }
    options_.*field = std::move(values);
    return std::nullopt;
  }
  Error operator()(std::vector<std::string> Options::*field) const {
    options_.*field = std::vector<std::string>(texts_.begin(), texts_.end());
    return std::nullopt;
  }

 private:
  const std::string& text() const { return texts_.back(); }

  template <class T, class Set>
  Error checked(std::optional<T> value, const std::string& text, std::string_view kind, Set set) const {
    const std::string range = describe_range(option_);
    const std::string must = range.empty() ? "" : fmt::format(" ({})", range);
    if (!value) return fmt::format("'{}' is not {}{}", text, kind, must);
    if (!in_range(option_.range, static_cast<double>(*value)))
      return fmt::format("{} is out of range: it must be {}", text, range);
    set(*value);
    return std::nullopt;
  }

  const Option& option_;
  std::span<const std::string> texts_;
  Options& options_;
};

}  // namespace

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::optional<std::uint64_t> parse_bytes(std::string_view text) {
  const auto count = parse_with_unit(text, kByteUnits, 0x1p62);
  if (!count) return std::nullopt;
  return static_cast<std::uint64_t>(*count);
}

std::string format_bytes(std::uint64_t bytes) {
  constexpr std::array<std::string_view, 5> kNames{"", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  while (bytes != 0 && bytes % 1024 == 0 && unit + 1 < kNames.size()) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{}{}", bytes, kNames[unit]);
}

std::optional<std::chrono::milliseconds> parse_duration(std::string_view text) {
  const auto count = parse_with_unit(text, kTimeUnits, 1000 * 86400e3);
  if (!count) return std::nullopt;
  return std::chrono::milliseconds(static_cast<std::int64_t>(*count));
}

std::string format_duration(std::chrono::milliseconds duration) {
  const std::int64_t ms = duration.count();
  if (ms != 0 && ms % 3'600'000 == 0) return fmt::format("{}h", ms / 3'600'000);
  if (ms != 0 && ms % 60'000 == 0) return fmt::format("{}m", ms / 60'000);
  if (ms % 1000 == 0) return fmt::format("{}s", ms / 1000);
  return fmt::format("{}ms", ms);
}

std::optional<std::int64_t> parse_integer(std::string_view text) { return parse_whole<std::int64_t>(text); }

std::optional<double> parse_number(std::string_view text) {
  const auto value = parse_whole<double>(text);
  if (!value || !std::isfinite(*value)) return std::nullopt;
  return value;
}

std::optional<bool> parse_switch(std::string_view text) {
  const std::string word = lower(text);
  for (const std::string_view yes : {"1", "true", "yes", "on"})
    if (word == yes) return true;
  for (const std::string_view no : {"0", "false", "no", "off"})
    if (word == no) return false;
  return std::nullopt;
}

std::string format_number(double value) {
  std::array<char, 32> buffer{};
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return error == std::errc() ? std::string(buffer.data(), end) : std::string();
}

std::optional<std::string> assign(const Option& option, std::span<const std::string> texts, Options& options) {
  return std::visit(Assigner(option, texts, options), option.field);
}

std::string describe_range(const Option& option) {
  const Range& range = option.range;
  const bool low = std::isfinite(range.min);
  const bool high = std::isfinite(range.max);
  const std::string min = low ? format_bound(option.field, range.min) : "";
  const std::string max = high ? format_bound(option.field, range.max) : "";
  if (low && high) return range.above_min ? "above " + min + ", at most " + max : min + " to " + max;
  if (low) return range.above_min ? "above " + min : min + " or more";
  return high ? "at most " + max : "";
}

bool is_in_range(const Option& option, const Options& options) {
  const auto holds = [&](const auto& value) {
    using T = std::remove_cvref_t<decltype(value)>;
    if constexpr (std::is_same_v<T, std::chrono::milliseconds>)
      return in_range(option.range, static_cast<double>(value.count()));
    else if constexpr (std::is_arithmetic_v<T>)
      return in_range(option.range, static_cast<double>(value));
    else if constexpr (std::is_same_v<T, Bytes>)
      return in_range(option.range, static_cast<double>(value.count));
    else if constexpr (std::is_same_v<T, std::vector<std::int64_t>>)
      return std::all_of(value.begin(), value.end(),
                         [&](std::int64_t each) { return in_range(option.range, static_cast<double>(each)); });
    else
      return true;
  };
  return std::visit([&](const auto field) { return holds(options.*field); }, option.field);
}

std::vector<std::string> to_texts(const Option& option, const Options& options) {
  struct Writer {
    const Options& options;
    using Texts = std::vector<std::string>;
    Texts operator()(bool Options::*field) const { return {options.*field ? "true" : "false"}; }
    Texts operator()(std::int64_t Options::*field) const { return {std::to_string(options.*field)}; }
    Texts operator()(std::uint32_t Options::*field) const { return {std::to_string(options.*field)}; }
    Texts operator()(std::uint64_t Options::*field) const { return {std::to_string(options.*field)}; }
    Texts operator()(double Options::*field) const { return {format_number(options.*field)}; }
    Texts operator()(std::string Options::*field) const { return {options.*field}; }
    Texts operator()(Bytes Options::*field) const { return {format_bytes((options.*field).count)}; }
    Texts operator()(std::chrono::milliseconds Options::*field) const { return {format_duration(options.*field)}; }
    Texts operator()(Seed Options::*field) const { return {options.*field ? std::to_string(*(options.*field)) : "-1"}; }
    Texts operator()(std::vector<std::int64_t> Options::*field) const {
      Texts texts;
      for (const std::int64_t value : options.*field) texts.push_back(std::to_string(value));
      return texts;
    }
    Texts operator()(std::vector<std::string> Options::*field) const { return options.*field; }
  };
  return std::visit(Writer{options}, option.field);
}

std::string_view name_today(std::string_view name, FormerNames former_names) {
  for (const FormerName& each : former_names)
    if (each.was == name) return each.is;
  return name;
}

std::optional<std::string> nearest(std::string_view name, std::span<const std::string> names) {
  const std::string_view wanted = without_dashes(name);
  const std::string* best = nullptr;
  std::size_t best_distance = std::max<std::size_t>(1, wanted.size() / 3) + 1;
  for (const std::string& candidate : names) {
    const std::string_view letters = without_dashes(candidate);
    const std::size_t distance = edit_distance(wanted, letters);
    // Names with no letter in common are not similar: "x" is not a typo of "c".
    if (distance < best_distance && distance < std::max(wanted.size(), letters.size())) {
      best = &candidate;
      best_distance = distance;
    }
  }
  return best ? std::optional(*best) : std::nullopt;
}

}  // namespace troupe::config
