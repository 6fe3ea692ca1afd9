#include "cli/pull/http_fields.h"

#include <algorithm>
#include <charconv>
#include <ctime>

namespace troupe::cli {
namespace {

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

}  // namespace

void add_field(std::string_view line, HttpFields& fields) {
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos || colon == 0) return;
  std::string name(line.substr(0, colon));
  for (char& c : name)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  fields[name] = trimmed(line.substr(colon + 1));
}

std::string_view field_of(const HttpFields& fields, std::string_view name) {
  const auto found = fields.find(name);
  return found == fields.end() ? std::string_view() : std::string_view(found->second);
}

std::optional<std::uint64_t> parse_length(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<ContentRange> parse_content_range(std::string_view text) {
  if (!text.starts_with("bytes ")) return std::nullopt;
  text = trimmed(text.substr(6));
  const std::size_t dash = text.find('-'), slash = text.find('/');
  if (dash == std::string_view::npos || slash == std::string_view::npos || slash < dash) return std::nullopt;
  const auto first = parse_length(text.substr(0, dash)), last = parse_length(text.substr(dash + 1, slash - dash - 1)),
             size = parse_length(text.substr(slash + 1));
  if (!first || !last || !size || *first > *last || *last >= *size) return std::nullopt;
  return ContentRange{*first, *last + 1, *size};
}

std::optional<std::chrono::seconds> parse_retry_after(std::string_view text, std::int64_t now) {
  text = trimmed(text);
  if (const auto seconds = parse_length(text))
    return std::chrono::seconds(std::min<std::uint64_t>(*seconds, std::uint64_t{1} << 31));
  std::tm date{};
  const std::string copy(text);
  const char* const end = ::strptime(copy.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &date);
  if (end == nullptr || *end != '\0') return std::nullopt;
  return std::chrono::seconds(std::max<std::int64_t>(0, ::timegm(&date) - now));
}

std::string next_link(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t open = text.find('<', at), close = text.find('>', open == text.npos ? at : open);
    if (open == text.npos || close == text.npos) break;
    const std::size_t next = std::min(text.find('<', close), text.size());
    if (text.substr(close, next - close).find("rel=\"next\"") != text.npos)
      return std::string(text.substr(open + 1, close - open - 1));
    at = next;
  }
  return {};
}

std::chrono::milliseconds backoff(int failures) {
  constexpr std::int64_t kFirst = 500, kMost = 30'000;
  return std::chrono::milliseconds(std::min(kMost, kFirst << std::clamp(failures - 1, 0, 10)));
}

}  // namespace troupe::cli
