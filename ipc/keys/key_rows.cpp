#include "ipc/keys/key_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <span>

#include "config/options/values.h"
#include "config/printable.h"
#include "ipc/keys/key_text.h"

namespace troupe::ipc {
namespace {

constexpr std::string_view kFirstLine = "troupe-keys 1";
constexpr std::string_view kLimitNames[] = {
    "weight",      "max-running",   "max-queued",  "max-prompt-tokens-per-minute", "max-answer-tokens-per-minute",
    "max-context", "max-kv-blocks", "max-choices",
};

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string hex(std::span<const std::uint8_t> bytes) {
  std::string text;
  for (const std::uint8_t byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

// Whether the text is exactly these bytes in lower case.
bool read_hex(std::string_view text, std::span<std::uint8_t> bytes) {
  if (text.size() != 2 * bytes.size() || text.find_first_not_of("0123456789abcdef") != std::string_view::npos)
    return false;
  for (std::size_t i = 0; i < bytes.size(); ++i)
    std::from_chars(text.data() + 2 * i, text.data() + 2 * i + 2, bytes[i], 16);
  return true;
}

// Seconds since 1970, before the year 10000.
std::optional<std::int64_t> read_time(std::string_view text) {
  constexpr std::int64_t kYear10000 = 253'402'300'800;
  std::int64_t seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size() || seconds < 0 || seconds >= kYear10000)
    return std::nullopt;
  return seconds;
}

// A tenant's name, or a uid in digits.
bool is_label(std::string_view label) {
  constexpr std::size_t kMaxUidDigits = 10;
  if (!label.empty() && label.size() <= kMaxUidDigits && std::all_of(label.begin(), label.end(), is_digit)) return true;
  return is_key_name(label);
}

// Sets what one field of a line says; why not: the result, empty if it can.
std::string read_field(std::string_view field, std::string_view value, KeyRow& row) {
  const auto is_good = [&](bool good) { return good ? std::string() : fmt::format("{} has a bad value", field); };
  if (field == "name") return is_good(is_key_name(row.name = value));
  if (field == "tenant") return is_good(is_label(row.tenant = value));
  if (field == "id") {
    row.id = value;
    return is_good(value.size() == kKeyIdChars && is_base62(value));
  }
  if (field == "created") {
    const auto time = read_time(value);
    row.created = time.value_or(0);
    return is_good(time.has_value());
  }
  if (field == "expires") return is_good((row.expires = read_time(value)).has_value());
  if (field == "salt") return is_good(read_hex(value, row.salt));
  if (field == "hash") return is_good(read_hex(value, row.hash));
  if (std::ranges::find(kLimitNames, field) == std::end(kLimitNames))
    return fmt::format("there is no field {}", Printable(field, config::kMaxTenantNameBytes).text());
  row.limits.emplace_back(field, value);
  return {};
}

// Why the line is no key; empty: it is one.
std::string read_line(std::string_view line, KeyRow& row) {
  if (line.size() > kMaxKeyLineBytes) return fmt::format("a line has at most {} bytes", kMaxKeyLineBytes);
  constexpr std::string_view kKey = "key ";
  if (!line.starts_with(kKey)) return "a line begins with 'key '";
  line.remove_prefix(kKey.size());
  std::set<std::string_view> seen;
  while (!line.empty()) {
    const std::string_view word = line.substr(0, line.find(' '));
    line.remove_prefix(std::min(word.size() + 1, line.size()));
    const std::size_t equals = word.find('=');
    if (equals == std::string_view::npos) return "a field is FIELD=VALUE, with one space before the next";
    const std::string_view field = word.substr(0, equals);
    if (std::string wrong = read_field(field, word.substr(equals + 1), row); !wrong.empty()) return wrong;
    if (!seen.insert(field).second) return fmt::format("{} is there twice", field);
  }
  for (const std::string_view field : {"name", "id", "created", "salt", "hash"})
    if (!seen.contains(field)) return fmt::format("{} is missing", field);
  if (!row.tenant.empty() && !row.limits.empty())
    return fmt::format("{} belongs to a key without tenant", row.limits.front().first);
  if (const auto rule = rule_of(row.limits); !rule) return rule.error().message;
  return {};
}

}  // namespace

bool is_key_name(std::string_view name) {
  return !name.empty() && name.size() <= config::kMaxTenantNameBytes && is_letter(name.front()) &&
         std::all_of(name.begin(), name.end(),
                     [](char c) { return is_letter(c) || is_digit(c) || c == '.' || c == '_' || c == '-'; });
}

Result<config::TenantRule> rule_of(const KeyLimits& limits) {
  config::Table table{.entries = {{.key = "default", .values = {true}}}};
  for (const auto& [name, value] : limits) {
    const auto wrong = [&, &limit = name](const std::string& why) {
      return Error{ErrorCode::invalid_argument,
                   fmt::format("{}: {}", Printable(limit, config::kMaxTenantNameBytes).text(), why)};
    };
    if (std::ranges::find(kLimitNames, name) == std::end(kLimitNames))
      return wrong(fmt::format("a key has no such limit; there are {}", fmt::join(kLimitNames, ", ")));
    if (std::ranges::count(limits, name, &KeyLimits::value_type::first) > 1) return wrong("it is given twice");
    const auto number = config::parse_number(value);
    const auto whole = config::parse_integer(value);
    if (!number && !whole) return wrong("its value is no number");
    config::TableEntry entry{.key = name, .values = {}};
    if (whole)
      entry.values.emplace_back(*whole);
    else
      entry.values.emplace_back(*number);
    table.entries.push_back(std::move(entry));
  }
  const auto rules = config::to_tenant_rules({&table, 1});
  if (rules) return rules->front();
  const std::string& why = rules.error().message;  // "LINE: WHY"
  return Error{ErrorCode::invalid_argument, why.substr(std::min(why.find(": ") + 2, why.size()))};
}

Result<std::vector<KeyRow>> parse_keys(std::string_view text, const std::string& path,
                                       std::vector<std::string>* wrong) {
  const auto bad = [&](std::size_t line, const std::string& why) {
    return Error{ErrorCode::bad_config, fmt::format("{}:{}: {}", path, line, why)};
  };
  if (text.size() > kMaxKeyFileBytes)
    return Error{ErrorCode::bad_config, fmt::format("{}: a file of keys has at most {} bytes", path, kMaxKeyFileBytes)};
  std::vector<KeyRow> rows;
  std::set<std::string> names, ids;
  bool has_begun = false;
  for (std::size_t number = 1; !text.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.empty() || (line.front() == '#' && line.size() <= kMaxKeyLineBytes)) continue;
    if (!std::exchange(has_begun, true)) {
      if (line == kFirstLine) continue;
      return bad(number, fmt::format("this is no file of keys: its first line is '{}'", kFirstLine));
    }
    if (rows.size() == kMaxKeys) return bad(number, fmt::format("there may be at most {} keys", kMaxKeys));
    KeyRow row;
    std::string why = read_line(line, row);
    if (why.empty() && !names.insert(row.name).second) why = fmt::format("there is another key {}", row.name);
    if (why.empty() && !ids.insert(row.id).second) why = fmt::format("key {} has the id of another one", row.name);
    if (why.empty())
      rows.push_back(std::move(row));
    else if (wrong == nullptr)
      return bad(number, why);
    else
      wrong->push_back(bad(number, why).message);
  }
  return rows;
}

std::string format_keys(const std::vector<KeyRow>& rows) {
  std::string text = fmt::format("{}\n", kFirstLine);
  for (const KeyRow& row : rows) {
    text += fmt::format("key name={} id={}", row.name, row.id);
    if (!row.tenant.empty()) text += " tenant=" + row.tenant;
    text += fmt::format(" created={}", row.created);
    if (row.expires) text += fmt::format(" expires={}", *row.expires);
    text += fmt::format(" salt={} hash={}", hex(row.salt), hex(row.hash));
    for (const auto& [limit, value] : row.limits) text += fmt::format(" {}={}", limit, value);
    text += '\n';
  }
  return text;
}

}  // namespace troupe::ipc
