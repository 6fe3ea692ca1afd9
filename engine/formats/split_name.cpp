#include "engine/formats/split_name.h"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>

namespace troupe::engine {
namespace {

constexpr std::size_t kSplitDigits = 5;

// A number of exactly kSplitDigits digits.
std::optional<std::uint32_t> five_digits(std::string_view text) {
  if (text.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
  std::uint32_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

}  // namespace

std::string SplitName::path_of(std::uint32_t part_number) const {
  return fmt::format("{}-{:05}-of-{:05}.gguf", beginning, part_number, count);
}

std::optional<SplitName> parse_split_name(std::string_view path) {
  constexpr std::string_view kPattern = "-#####-of-#####.gguf";
  constexpr std::size_t kNumberAt = kPattern.find('#'), kCountAt = kPattern.rfind('#') + 1 - kSplitDigits;
  if (path.size() <= kPattern.size()) return std::nullopt;
  const std::string_view end = path.substr(path.size() - kPattern.size());
  const auto number = five_digits(end.substr(kNumberAt, kSplitDigits));
  const auto count = five_digits(end.substr(kCountAt, kSplitDigits));
  if (!number || !count || *number < 1 || *number > *count) return std::nullopt;
  SplitName name{std::string(path.substr(0, path.size() - kPattern.size())), *number, *count};
  if (name.beginning.ends_with('/') || name.path_of(*number) != path) return std::nullopt;
  return name;
}

std::string name_after_file(const std::string& path) {
  const auto split = parse_split_name(path);
  return split ? std::filesystem::path(split->beginning).filename().string()
               : std::filesystem::path(path).stem().string();
}

std::uint64_t bytes_with_parts(const std::string& path, std::error_code& error) {
  std::uint64_t bytes = std::filesystem::file_size(path, error);
  const auto name = parse_split_name(path);
  if (error || !name || name->number != 1) return bytes;
  for (std::uint32_t number = 2; number <= name->count; ++number) {
    std::error_code missing;
    const std::uintmax_t of_part = std::filesystem::file_size(name->path_of(number), missing);
    if (!missing) bytes += of_part;
  }
  return bytes;
}

}  // namespace troupe::engine
