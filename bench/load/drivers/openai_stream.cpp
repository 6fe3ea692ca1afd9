#include "bench/load/drivers/openai_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <ctime>
#include <nlohmann/json.hpp>

namespace troupe::load {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxMessageBytes = 500;
constexpr std::int64_t kMaxTokens = 1 << 30;

// A member of an object, or nullptr.
const json* find(const json* object, const char* key) {
  if (!object || !object->is_object()) return nullptr;
  const auto member = object->find(key);
  return member == object->end() ? nullptr : &*member;
}

// A plausible count; any other value is treated as absent.
std::optional<std::uint32_t> count(const json* value) {
  if (!value || !value->is_number_integer()) return std::nullopt;
  const auto number = value->get<std::int64_t>();
  return number >= 0 && number <= kMaxTokens ? std::optional(static_cast<std::uint32_t>(number)) : std::nullopt;
}

std::string text(const json* value) { return value && value->is_string() ? value->get<std::string>() : std::string(); }

std::string message_of(const json& error) {
  if (error.is_string()) return error.get<std::string>();
  return text(find(&error, "message"));
}

}  // namespace

bool EventParser::feed(std::string_view bytes, const std::function<bool(std::string_view)>& on_event) {
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    const std::string_view part = bytes.substr(0, end);
    if (line_.size() + part.size() + data_.size() > max_bytes_) return false;
    line_.append(part);
    if (end == std::string_view::npos) return true;
    bytes.remove_prefix(end + 1);
    if (!end_line(on_event)) return false;
  }
  return true;
}

bool EventParser::end_line(const std::function<bool(std::string_view)>& on_event) {
  std::string_view line = line_;
  if (line.ends_with('\r')) line.remove_suffix(1);
  bool go_on = true;
  if (line.empty()) {
    if (has_data_) go_on = on_event(data_);
    data_.clear();
    has_data_ = false;
  } else if (line == "data" || line.starts_with("data:")) {  // other lines are ignored
    line.remove_prefix(std::min<std::size_t>(line.size(), 5));
    if (line.starts_with(' ')) line.remove_prefix(1);
    if (has_data_) data_ += '\n';
    data_ += line;
    has_data_ = true;
  }
  line_.clear();
  return go_on;
}

bool CompletionReader::fail(std::string_view what) {
  failure_ = what.substr(0, kMaxMessageBytes);
  return false;
}

bool CompletionReader::read(std::string_view data, double at_s) {
  if (data == "[DONE]") return true;
  const json chunk = json::parse(data, nullptr, /*allow_exceptions=*/false);
  if (!chunk.is_object()) return fail("not a JSON object: " + std::string(data.substr(0, 80)));
  if (const json* error = find(&chunk, "error"); error && !error->is_null()) return fail(message_of(*error));

  const json* usage = find(&chunk, "usage");
  if (const auto prompt = count(find(usage, "prompt_tokens"))) record_.prompt_tokens = *prompt;
  if (const auto cached = count(find(find(usage, "prompt_tokens_details"), "cached_tokens")))
    record_.cached_tokens = *cached;

  const json* choices = find(&chunk, "choices");
  const json* choice = choices && choices->is_array() && !choices->empty() ? &choices->front() : nullptr;
  std::uint32_t total = record_.completion_tokens + !text(find(choice, "text")).empty();
  if (const auto counted = count(find(usage, "completion_tokens"))) total = *counted;
  if (const auto counted = count(find(find(&chunk, "timings"), "predicted_n"))) total = *counted;
  if (total > record_.completion_tokens) {
    if (choice) add_arrival(record_, at_s, total - record_.completion_tokens);
    record_.completion_tokens = total;
  }
  if (const std::string reason = text(find(choice, "finish_reason")); !reason.empty()) {
    finish_reason_ = reason.substr(0, kMaxMessageBytes);
    ++num_finishes_;
  }
  return true;
}

std::optional<double> retry_after_s(std::string_view value, double now_unix_s) {
  while (!value.empty() && (value.back() == ' ' || value.back() == '\r' || value.back() == '\n'))
    value.remove_suffix(1);
  while (!value.empty() && value.front() == ' ') value.remove_prefix(1);
  std::uint32_t seconds = 0;
  const auto [end, failed] = std::from_chars(value.data(), value.data() + value.size(), seconds);
  if (failed == std::errc() && end == value.data() + value.size()) return seconds;
  std::tm date{};
  const std::string text(value);
  const char* rest = ::strptime(text.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &date);
  if (!rest || *rest != '\0') return std::nullopt;
  return std::max(0.0, static_cast<double>(::timegm(&date)) - now_unix_s);
}

std::string error_message(std::string_view body) {
  const json parsed = json::parse(body, nullptr, /*allow_exceptions=*/false);
  std::string message;
  if (const json* error = find(&parsed, "error")) message = message_of(*error);
  if (message.empty()) message = text(find(&parsed, "message"));
  if (message.empty()) message = body;
  return message.substr(0, kMaxMessageBytes);
}

void read_http_error(int status, std::string_view body, RequestRecord& record) {
  record.kind = status == 503 || status < 500 ? EndKind::refused : EndKind::failed;
  record.outcome = fmt::format("http_{}", status);
  record.message = error_message(body);
}

}  // namespace troupe::load
