#include "cli/terminal/text.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <limits>
#include <string_view>

#include "cli/terminal/output.h"
#include "cli/terminal/process.h"
#include "config/options/values.h"
#include "config/printable.h"
#include "config/system_error.h"

namespace troupe::cli {
namespace {

constexpr std::size_t kMaxLabelBytes = 128;
constexpr std::size_t kMaxTextBytes = std::size_t{1} << 30;  // of a file or standard input that is read whole

std::string scaled(double value, double step, const std::array<const char*, 5>& units) {
  std::size_t unit = 0;
  while (value >= step && unit + 1 < units.size()) {
    value /= step;
    ++unit;
  }
  const int decimals = unit == 0 ? 0 : value < 10 ? 2 : value < 100 ? 1 : 0;
  return fmt::format("{:.{}f}{}", value, decimals, units[unit]);
}

}  // namespace

std::string human_bytes(std::uint64_t bytes) {
  return scaled(static_cast<double>(bytes), 1024, {" B", " KiB", " MiB", " GiB", " TiB"});
}

std::string name_of(const client::Health& health) {
  if (health.stalled) return "stalled";
  switch (health.readiness) {
    case client::Readiness::loading:
      return "loading";
    case client::Readiness::ready:
      return "ready";
    case client::Readiness::draining:
      return "draining";
    case client::Readiness::failed:
      return "failed";
    case client::Readiness::on_request:
      return "on-request";
  }
  return "unknown";
}

std::string state_of(const client::Health::Model& model) {
  std::string state = name_of(client::Health{.readiness = model.readiness, .stalled = model.stalled});
  if (state == "loading") state += fmt::format(" ({:.0f} %)", 100 * model.load_fraction);
  if (model.replacing) state += ", to replace it";
  if (model.retiring && state == "draining") state = "retiring";
  if (!model.problem.empty()) state += ": " + model.problem;
  return state;
}

std::string human_count(std::uint64_t count) {
  return scaled(static_cast<double>(count), 1000, {"", " k", " M", " G", " T"});
}

std::string local_time(std::int64_t seconds, const char* format) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm parts{};
  constexpr int kFirstYear = 1900, kLastYear = 9999;  // tm_year counts from the first
  const bool has_date =
      ::localtime_r(&time, &parts) != nullptr && parts.tm_year >= 0 && parts.tm_year <= kLastYear - kFirstYear;
  std::array<char, 64> text{};
  if (!has_date || std::strftime(text.data(), text.size(), format, &parts) == 0) return fmt::format("@{}", seconds);
  return text.data();
}

std::string local_time(std::uint64_t seconds, const char* format) {
  if (seconds > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
    return fmt::format("@{}", seconds);
  return local_time(static_cast<std::int64_t>(seconds), format);
}

std::vector<client::MemoryUse> largest_first(std::vector<client::MemoryUse> uses) {
  std::stable_sort(uses.begin(), uses.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return uses;
}

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name")) return line.substr(std::min(line.find(": ") + 2, line.size()));
  return "unknown CPU";
}

std::string aligned(const std::vector<std::pair<std::string, std::string>>& lines) {
  std::vector<std::string> labels;
  std::size_t width = 0;
  for (const auto& [label, value] : lines)
    width = std::max(width, labels.emplace_back(Printable(label, kMaxLabelBytes).text()).size());
  std::string out;
  for (std::size_t i = 0; i < lines.size(); ++i)
    out.append(labels[i])
        .append(width - labels[i].size() + 2, ' ')
        .append(Printable(lines[i].second, kMaxMessageBytes))
        .append("\n");
  return out;
}

Result<std::string> read_text(const std::string& path) {
  std::error_code ignored;
  std::ifstream file;
  if (path != "-") {
    file.open(path, std::ios::binary);
    if (!file || std::filesystem::is_directory(path, ignored)) return system_error(path, file ? EISDIR : errno);
  }
  std::istream& stream = path == "-" ? std::cin : file;
  std::string text;
  std::array<char, 1 << 16> part;
  while (text.size() <= kMaxTextBytes && (stream.read(part.data(), part.size()), stream.gcount() > 0))
    text.append(part.data(), static_cast<std::size_t>(stream.gcount()));
  if (text.size() > kMaxTextBytes)
    return Error{ErrorCode::invalid_argument,
                 fmt::format("{}: has more than {} bytes", path == "-" ? "standard input" : path, kMaxTextBytes)};
  return text;
}

Result<std::string> input_text(const config::TextOptions& options, const config::Given& given) {
  std::string text;
  for (const std::string& argument : given.arguments) text += (text.empty() ? "" : " ") + argument;
  if (!options.file.empty()) {
    if (!given.arguments.empty())
      return Error{ErrorCode::invalid_argument,
                   fmt::format("the text is given twice: as arguments ('{}') and as --file {}; give one of them", text,
                               options.file)};
    return read_text(options.file);
  }
  if (!given.arguments.empty()) return text;
  if (::isatty(STDIN_FILENO) != 0)
    return Error{ErrorCode::invalid_argument, "there is no text: give it as arguments, with --file, or on stdin"};
  return read_text("-");
}

Result<std::string> piped_text(const config::TokenTextOptions& options, const config::Given& given,
                               const std::string& name) {
  const bool is_the_text = given.arguments.empty() && (options.file.empty() || options.file == "-");
  if (is_the_text || options.stdin_timeout.count() == 0 || ::isatty(STDIN_FILENO) != 0) return std::string();
  pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  const auto end = std::chrono::steady_clock::now() + options.stdin_timeout;
  int ready = ::poll(&input, 1, 0);
  if (ready == 0 && ::isatty(STDERR_FILENO) != 0)
    complain(name, "waiting for standard input, which goes before the text (</dev/null: without it)");
  while (ready == 0 || (ready < 0 && errno == EINTR)) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    if (left.count() <= 0)
      return Error{ErrorCode::invalid_argument,
                   fmt::format("standard input is open, and nothing came from it within {}: end the command with "
                               "</dev/null (or set --stdin-timeout 0) to use the text alone; a longer "
                               "--stdin-timeout waits for a slow program",
                               config::format_duration(options.stdin_timeout))};
    ready = ::poll(&input, 1, static_cast<int>(left.count()));
  }
  auto text = read_text("-");
  if (text && !text->empty() && !text->ends_with('\n')) *text += '\n';
  return text;
}

Result<std::string> input_and_piped_text(const config::TokenTextOptions& options, const config::Given& given,
                                         const std::string& name) {
  auto text = input_text(options, given);
  if (!text) return text;
  auto piped = piped_text(options, given, name);
  if (!piped) return piped;
  return *piped + *text;
}

Result<std::vector<TokenId>> parse_ids(const std::string& text) {
  constexpr std::string_view kSeparators = " ,\t\r\n[]";
  std::vector<TokenId> ids;
  for (std::size_t begin = text.find_first_not_of(kSeparators); begin != std::string::npos;) {
    const std::size_t end = std::min(text.find_first_of(kSeparators, begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    const auto id = config::parse_integer(word);
    if (!id || *id < 0 || *id > std::numeric_limits<TokenId>::max())
      return Error{ErrorCode::invalid_argument,
                   fmt::format("'{}' is not a token id: ids are whole numbers from 0 to 2147483647", word)};
    ids.push_back(static_cast<TokenId>(*id));
    begin = text.find_first_not_of(kSeparators, end);
  }
  return ids;
}

std::string format_ids(const std::vector<TokenId>& ids) { return fmt::format("[{}]", fmt::join(ids, ", ")); }

}  // namespace troupe::cli
