#include "config/options/config_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <sstream>

#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>

#include "config/options/values.h"
#include "config/plain_file.h"

namespace troupe::config {
namespace {

// Far above every real file; bounds the read of files without an end (/dev/zero).
constexpr std::size_t kMaxFileBytes = 1u << 20;

constexpr std::string_view kTenantKey = "tenant";
constexpr std::string_view kModelKey = "model";  // also that of an option

// A TOML scalar as the text that a flag would have; nullopt for tables, arrays and dates.
std::optional<std::string> scalar_text(const toml::node& node) {
  if (const auto* value = node.as_string()) return value->get();
  if (const auto* value = node.as_integer()) return std::to_string(value->get());
  if (const auto* value = node.as_floating_point()) return format_number(value->get());
  if (const auto* value = node.as_boolean()) return value->get() ? "true" : "false";
  return std::nullopt;
}

// Which types of scalar an option's key may have, for a message; empty if `node` has one of them.
std::string wanted_type(const Option& option, const toml::node& node) {
  struct Check {
    const toml::node& node;
    bool is_time;
    std::string operator()(bool Options::*) const { return node.is_boolean() ? "" : "true or false"; }
    std::string operator()(std::int64_t Options::*) const { return whole_number(); }
    std::string operator()(std::uint32_t Options::*) const { return whole_number(); }
    std::string operator()(std::uint64_t Options::*) const { return whole_number(); }
    std::string operator()(std::vector<std::int64_t> Options::*) const {
      return node.is_integer() ? "" : "whole numbers";
    }
    std::string operator()(double Options::*) const { return node.is_number() ? "" : "a number"; }
    std::string operator()(std::string Options::*) const {
      if (is_time && node.is_number()) return "";  // seconds, as of all times
      return node.is_string() ? "" : is_time ? "a number of seconds or a string such as \"10m\"" : "a string in quotes";
    }
    std::string operator()(std::vector<std::string> Options::*) const {
      return node.is_string() ? "" : "strings in quotes";
    }
    std::string operator()(Seed Options::*) const {
      return node.is_integer() || node.is_string() ? "" : "a whole number";
    }
    std::string operator()(Bytes Options::*) const {
      return node.is_integer() || node.is_string() ? "" : "a number of bytes or a string such as \"4GiB\"";
    }
    std::string operator()(std::chrono::milliseconds Options::*) const {
      return node.is_number() || node.is_string() ? "" : "a number of seconds or a string such as \"30s\"";
    }
    std::string whole_number() const { return node.is_integer() ? "" : "a whole number"; }
  };
  return std::visit(Check{node, option.value == "TIME"}, option.field);
}

// The texts of an entry's value, or an error.
Result<std::vector<std::string>> read_texts(const Option& option, const toml::node& node) {
  std::vector<const toml::node*> scalars{&node};
  if (const toml::array* array = node.as_array(); array && option.is_list()) {
    scalars.clear();
    for (const toml::node& element : *array) scalars.push_back(&element);
  }
  std::vector<std::string> texts;
  for (const toml::node* scalar : scalars) {
    const std::string wanted = wanted_type(option, *scalar);
    const auto text = scalar_text(*scalar);
    if (!wanted.empty() || !text)
      return Error{ErrorCode::bad_config, fmt::format("{} is of the wrong type: {} takes {}",
                                                      text.value_or("the value"), option.name, wanted)};
    texts.push_back(*text);
  }
  return texts;
}

// Whether a configuration file may set the option.
bool is_key(const Option& option) { return !option.flag_only && option.name != "config"; }

const Option* find_key(std::string_view key) {
  for (const Option& option : option_table())
    if (option.name == key && is_key(option)) return &option;
  return nullptr;
}

std::string unknown_key(std::string_view key, bool is_table) {
  std::vector<std::string> known;
  for (const Option& option : option_table())
    if (is_key(option)) known.emplace_back(option.name);
  known.emplace_back(kTenantKey);
  if (const auto likely = nearest(key, known)) return fmt::format("unknown key {}; did you mean {}?", key, *likely);
  return fmt::format("unknown key {}{}", key,
                     is_table ? "; keys are not grouped in tables, but for [[model]] and [[tenant]]"
                              : " (`troupe serve --print-config` shows those it has)");
}

// A scalar of a table; nullopt for tables, arrays and dates.
std::optional<TableEntry::Scalar> scalar_of(const toml::node& node) {
  if (const auto* value = node.as_string()) return value->get();
  if (const auto* value = node.as_integer()) return value->get();
  if (const auto* value = node.as_floating_point()) return value->get();
  if (const auto* value = node.as_boolean()) return value->get();
  return std::nullopt;
}

Error error_at(const std::string& path, const toml::node& node, const std::string& why) {
  return {ErrorCode::bad_config, fmt::format("{}:{}: {}", path, node.source().begin.line, why)};
}

// `below`: tables may stand in it.
Result<Table> read_table(const std::string& path, const toml::table& from, bool below = true) {
  Table table{static_cast<int>(from.source().begin.line), {}};
  for (const auto& [key, node] : from) {
    if (const toml::table* const inner = below ? node.as_table() : nullptr) {
      auto read = read_table(path, *inner, false);
      if (!read) return read.error();
      table.tables.emplace_back(std::string(key.str()), *std::move(read));
      continue;
    }
    TableEntry entry{std::string(key.str()), static_cast<int>(node.source().begin.line), node.is_array(), {}};
    const auto add = [&](const toml::node& element) {
      auto scalar = scalar_of(element);
      if (scalar) entry.values.push_back(std::move(*scalar));
      return scalar.has_value();
    };
    bool taken = true;
    if (const toml::array* array = node.as_array())
      for (const toml::node& element : *array) taken = taken && add(element);
    else
      taken = add(node);
    if (!taken) return error_at(path, node, fmt::format("{} takes no date and no table", key.str()));
    table.entries.push_back(std::move(entry));
  }
  return table;
}

// The tables under the key `kind`, as to_rows() takes them.
template <class Row>
Result<std::vector<Row>> read_tables(const std::string& path, std::string_view kind, const toml::node& node,
                                     Result<std::vector<Row>> (*to_rows)(std::span<const Table>)) {
  const toml::array* const array = node.as_array();
  std::vector<Table> tables;
  for (std::size_t i = 0; array && i < array->size(); ++i) {
    const toml::table* const element = array->get(i)->as_table();
    if (!element)
      return error_at(path, *array->get(i), fmt::format("{0} is a table; each begins with a line [[{0}]]", kind));
    auto table = read_table(path, *element);
    if (!table) return table.error();
    tables.push_back(std::move(*table));
  }
  if (!array)
    return error_at(path, node, fmt::format("there may be several {0}s: each begins with a line [[{0}]]", kind));
  auto rows = to_rows(tables);
  if (!rows) return Error{rows.error().code, fmt::format("{}:{}", path, rows.error().message)};
  return rows;
}

// Whether the option's key holds tables instead.
bool has_model_tables(std::string_view key, const toml::node& node) {
  if (key != kModelKey) return false;
  const toml::array* const array = node.as_array();
  return node.is_table() || (array && !array->empty() && array->get(0)->is_table());
}

// Scans a TOML document by its strings and comments.
class TomlScan {
 public:
  explicit TomlScan(std::string_view document) : rest_(document) {
    if (rest_.starts_with("\xEF\xBB\xBF")) skip(3);  // a byte order mark
  }

  // The line of the first non-ASCII character where TOML allows only ASCII: outside strings and comments, or after a
  // backslash in a multi-line string.
  //
  // toml++ 3.3 tests whether such a character is white space, which is undefined behaviour for most of those below
  // U+049A or near U+3000, so they must not reach it. It refuses all others by itself.
  std::optional<int> misplaced_character() {
    while (!rest_.empty()) {
      const char next = rest_.front();
      if (!is_ascii(next)) return line_;
      if (next == '#') {
        skip_until("\n");
      } else if (next == '"' || next == '\'') {
        if (!skip_string()) return line_;
      } else {
        skip(1);
      }
    }
    return std::nullopt;
  }

 private:
  static bool is_ascii(char byte) { return static_cast<unsigned char>(byte) < 0x80; }
  static bool is_blank(char byte) { return byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n'; }

  void skip(std::size_t bytes) {
    bytes = std::min(bytes, rest_.size());
    line_ += static_cast<int>(std::count(rest_.begin(), rest_.begin() + static_cast<std::ptrdiff_t>(bytes), '\n'));
    rest_.remove_prefix(bytes);
  }

  void skip_until(std::string_view end) { skip(std::min(rest_.find(end), rest_.size())); }

  // Moves past the string that begins here, or to the end of the line if it is not closed; false at a misplaced
  // character.
  bool skip_string() {
    const char quote = rest_.front();
    const bool multi_line = rest_.starts_with(std::string(3, quote));
    const std::string end(multi_line ? 3 : 1, quote);
    skip(end.size());
    bool continued = false;  // only blanks and escapes since a backslash at a line's end
    while (!rest_.empty() && !rest_.starts_with(end) && (multi_line || rest_.front() != '\n')) {
      if (continued && !is_ascii(rest_.front())) return false;
      if (quote == '\'' || rest_.front() != '\\') {
        continued = continued && is_blank(rest_.front());
        skip(1);
        continue;
      }
      skip(1);
      if (!multi_line || rest_.empty()) {
        skip(1);
      } else if (!is_ascii(rest_.front())) {
        return false;
      } else if (is_blank(rest_.front())) {
        continued = true;
      } else {
        skip(rest_.front() == 'u' ? 5 : rest_.front() == 'U' ? 9 : 1);
      }
    }
    skip(end.size());
    // A multi-line string may have up to two quotes right before its closing quotes.
    for (int own = 0; multi_line && own < 2 && rest_.starts_with(quote); ++own) skip(1);
    return true;
  }

  std::string_view rest_;
  int line_ = 1;
};

}  // namespace

Result<std::optional<ConfigFile>> read_config_file(const std::string& path, FormerNames former_names) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::optional<ConfigFile>();
  const auto read = read_plain_file(path, kMaxFileBytes);
  if (!read) return Error{ErrorCode::bad_config, read.error().message};
  const std::string& content = *read;
  if (const auto line = TomlScan(content).misplaced_character())
    return Error{
        ErrorCode::bad_config,
        fmt::format("{}:{}: a character beyond ASCII outside quotes; write values such as names and paths as \"...\"",
                    path, *line)};
  const toml::parse_result parsed = toml::parse(content, path);
  if (!parsed)
    return Error{ErrorCode::bad_config,
                 fmt::format("{}:{}: {}", path, parsed.error().source().begin.line, parsed.error().description())};
  ConfigFile file{.path = path, .entries = {}, .models = {}, .tenants = {}};
  for (const auto& [key, node] : parsed.table()) {
    const int line = static_cast<int>(node.source().begin.line);
    const std::string place = fmt::format("{}:{}: ", path, line);
    if (key.str() == kTenantKey) {
      auto tenants = read_tables(path, kTenantKey, node, to_tenant_rules);
      if (!tenants) return tenants.error();
      file.tenants = std::move(*tenants);
      continue;
    }
    if (has_model_tables(key.str(), node)) {
      auto models = read_tables(path, kModelKey, node, to_model_tables);
      if (!models) return models.error();
      file.models = std::move(*models);
      continue;
    }
    const std::string_view name = name_today(key.str(), former_names);
    const Option* option = find_key(name);
    if (!option) return Error{ErrorCode::bad_config, place + unknown_key(key.str(), node.is_table())};
    auto texts = read_texts(*option, node);
    if (!texts) return Error{ErrorCode::bad_config, place + texts.error().message};
    file.entries.push_back({option, std::move(*texts), line, name == key.str() ? "" : std::string(key.str())});
    if (name != key.str() && parsed.table().contains(name))
      return Error{
          ErrorCode::bad_config,
          fmt::format("{}{} is a former name of {}, which the file has too; leave it out", place, key.str(), name)};
  }
  return std::optional(std::move(file));
}

std::string toml_string(const std::string& text) {
  std::ostringstream out;
  out << toml::toml_formatter(toml::value<std::string>(text), toml::format_flags::none);
  return out.str();
}

}  // namespace troupe::config
