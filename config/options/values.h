// The text forms of option values: reading, checking against a row's range, and writing back.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/options/option.h"

namespace troupe::config {

// The parts of a text between its separators; of an empty text one empty part.
[[nodiscard]] std::vector<std::string> split(std::string_view text, char separator);

// "4GiB", "512M", "1.5GB", "4096": K, M, G, T and KiB, MiB, GiB, TiB are powers of 1024, KB, MB, GB, TB of 1000.
[[nodiscard]] std::optional<std::uint64_t> parse_bytes(std::string_view text);
// The shortest exact form: "4GiB", "1536MiB", "1000".
[[nodiscard]] std::string format_bytes(std::uint64_t bytes);

// "500ms", "30s", "1.5m", "2h"; a plain number is seconds. At most a thousand days.
[[nodiscard]] std::optional<std::chrono::milliseconds> parse_duration(std::string_view text);
// The shortest exact form: "30s", "1500ms", "2h".
[[nodiscard]] std::string format_duration(std::chrono::milliseconds duration);

// Decimal, the whole text, no surrounding spaces.
[[nodiscard]] std::optional<std::int64_t> parse_integer(std::string_view text);
[[nodiscard]] std::optional<double> parse_number(std::string_view text);  // finite
// 1 0 true false yes no on off, in any case.
[[nodiscard]] std::optional<bool> parse_switch(std::string_view text);

// The shortest text that reads back to the same double.
[[nodiscard]] std::string format_number(double value);

// Sets the option's field of `options` from `texts`: the last one, or for a list all of them, each of which may hold
// several integers separated by commas. The error is a sentence without source: "0 is out of range: it must be ...".
[[nodiscard]] std::optional<std::string> assign(const Option& option, std::span<const std::string> texts,
                                                Options& options);

// "1..65536", "above 0, at most 1", "0 or more"; empty if there is no bound.
[[nodiscard]] std::string describe_range(const Option& option);

// Whether the field's value, or each entry of a list, is in the row's range; texts and seeds always are.
[[nodiscard]] bool is_in_range(const Option& option, const Options& options);

// The field's value as texts that assign() reads back: one entry, or one per entry of a list.
[[nodiscard]] std::vector<std::string> to_texts(const Option& option, const Options& options);

// The name that the option has today which was called `name`; `name` itself, if none was.
[[nodiscard]] std::string_view name_today(std::string_view name, FormerNames former_names);

// The one of `names` that is most similar to `name` (fewest edits: insert, delete, replace, swap neighbours), if it is
// close enough for a typo: at most one edit per three letters, but at least one. Leading dashes are ignored.
// O(sum of lengths x name.size()).
[[nodiscard]] std::optional<std::string> nearest(std::string_view name, std::span<const std::string> names);

// The value of --predict as a request has its length: the largest number for -1, which is no limit.
[[nodiscard]] constexpr std::uint32_t answer_length(std::int64_t predict) {
  return static_cast<std::uint32_t>(predict);
}

}  // namespace troupe::config
