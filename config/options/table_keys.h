// The [[...]] tables of troupe.toml: a row of values from each, by a table of keys, and back.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "config/options/bytes.h"
#include "config/options/config_file.h"
#include "config/options/table.h"
#include "config/options/values.h"
#include "config/result.h"

namespace troupe::config {

// A key of such a table and the member of Row that holds its value. The range is of numbers and of bytes.
template <class Row>
struct TableKey {
  using Field = std::variant<bool Row::*, double Row::*, std::string Row::*, std::int64_t Row::*,
                             std::optional<std::int64_t> Row::*, std::optional<double> Row::*, Bytes Row::*,
                             std::vector<std::int64_t> Row::*, std::vector<std::string> Row::*>;
  std::string_view name;
  Field field;
  double min = 0, max = 0;
};

// "ctx-size is -1; it may be from 0 to 16777216"
template <class Row>
[[nodiscard]] std::string out_of_range(const TableKey<Row>& key, const std::string& value) {
  const auto text = [](double bound) {
    return bound == std::floor(bound) ? std::to_string(static_cast<std::int64_t>(bound)) : format_number(bound);
  };
  return fmt::format("{} is {}; it may be from {} to {}", key.name, value, text(key.min), text(key.max));
}

// "LINE: WHY".
[[nodiscard]] inline Error error_in_line(int line, const std::string& why) {
  return {ErrorCode::bad_config, fmt::format("{}: {}", line, why)};
}

// Sets one field from an entry; the result says why that cannot be, and is empty if it can.
template <class Row>
class RowReader {
 public:
  RowReader(const TableKey<Row>& key, const TableEntry& entry, Row& row) : key_(key), entry_(entry), row_(row) {}

  std::string read() {
    return std::visit([this](auto field) { return assign(row_.*field); }, key_.field);
  }

 private:
  std::string wrong_type(std::string_view wanted) const { return fmt::format("{} takes {}", key_.name, wanted); }
  std::string out_of_range(const std::string& value) const { return config::out_of_range(key_, value); }
  bool in_range(double value) const { return value >= key_.min && value <= key_.max; }

  // The one value, if it has this type.
  template <class T>
  const T* only() const {
    return entry_.is_list || entry_.values.size() != 1 ? nullptr : std::get_if<T>(&entry_.values.front());
  }

  std::string assign(bool& field) {
    const bool* value = only<bool>();
    if (!value) return wrong_type("true or false");
    field = *value;
    return {};
  }
  std::string assign(double& field) {
    const auto* whole = only<std::int64_t>();
    const auto* number = only<double>();
    if (!whole && !number) return wrong_type("a number");
    const double value = number ? *number : static_cast<double>(*whole);
    if (!in_range(value)) return out_of_range(format_number(value));
    field = value;
    return {};
  }
  std::string assign(std::int64_t& field) {
    const auto* value = only<std::int64_t>();
    if (!value) return wrong_type("a whole number");
    if (!in_range(static_cast<double>(*value))) return out_of_range(std::to_string(*value));
    field = *value;
    return {};
  }
  std::string assign(std::optional<std::int64_t>& field) { return assign(field.emplace()); }
  std::string assign(std::optional<double>& field) { return assign(field.emplace()); }
  std::string assign(std::string& field) {
    const auto* value = only<std::string>();
    if (!value) return wrong_type("a string in quotes");
    if (value->empty()) return wrong_type("a string that is not empty");
    field = *value;
    return {};
  }
  std::string assign(Bytes& field) {
    const auto* number = only<std::int64_t>();
    const auto* text = only<std::string>();
    const auto bytes = text ? parse_bytes(*text) : std::nullopt;
    if (!bytes && !(number && *number >= 0)) return wrong_type("a number of bytes or a string such as \"4GiB\"");
    field = bytes ? Bytes(*bytes) : Bytes(static_cast<std::uint64_t>(*number));
    if (!in_range(static_cast<double>(field.count))) return out_of_range(format_bytes(field.count));
    return {};
  }
  std::string assign(std::vector<std::int64_t>& field) {
    for (const TableEntry::Scalar& scalar : entry_.values) {
      const auto* value = std::get_if<std::int64_t>(&scalar);
      if (!value) return wrong_type("a whole number or a list of them");
      if (!in_range(static_cast<double>(*value))) return out_of_range(std::to_string(*value));
      field.push_back(*value);
    }
    return field.empty() ? wrong_type("at least one number") : "";
  }
  std::string assign(std::vector<std::string>& field) {
    for (const TableEntry::Scalar& scalar : entry_.values) {
      const auto* value = std::get_if<std::string>(&scalar);
      if (!value || value->empty()) return wrong_type("a name in quotes or a list of them");
      field.push_back(*value);
    }
    return field.empty() ? wrong_type("at least one name") : "";
  }

  const TableKey<Row>& key_;
  const TableEntry& entry_;
  Row& row_;
};

// Sets the members of `row` from a table of this kind ("tenant"). Error: bad_config, "LINE: WHY": an unknown key (with
// the nearest name), a value of the wrong type or out of range, a table below it of another name than `below`.
template <class Row>
[[nodiscard]] Status read_row(std::span<const TableKey<Row>> keys, std::string_view kind, const Table& table, Row& row,
                              std::string_view below = {}) {
  const auto unknown = [&](const std::string& key) {
    std::vector<std::string> known;
    for (const TableKey<Row>& one : keys) known.emplace_back(one.name);
    const auto is_option = [&](const Option& option) { return option.name == key; };
    if (std::any_of(option_table().begin(), option_table().end(), is_option))
      return fmt::format("{} is no key of a {}; options stand above the first [[{}]]", key, kind, kind);
    if (const auto likely = nearest(key, known))
      return fmt::format("unknown key {} of a {}; did you mean {}?", key, kind, *likely);
    return fmt::format("unknown key {} of a {}; there are {}", key, kind, fmt::join(known, ", "));
  };
  for (const TableEntry& entry : table.entries) {
    const auto key = std::ranges::find(keys, entry.key, &TableKey<Row>::name);
    if (key == keys.end()) return error_in_line(entry.line, unknown(entry.key));
    if (const std::string wrong = RowReader<Row>(*key, entry, row).read(); !wrong.empty())
      return error_in_line(entry.line, wrong);
  }
  for (const auto& [name, inner] : table.tables)
    if (name != below)
      return error_in_line(
          inner.line, below.empty() ? fmt::format("{} takes no date and no table", name)
                                    : fmt::format("a {0} has no table {1}; there is [{0}.{2}]", kind, name, below));
  return Ok{};
}

// The members that have another value than a new Row, a line each, as they stand below the table's header.
template <class Row>
[[nodiscard]] std::string row_to_toml(std::span<const TableKey<Row>> keys, const Row& row) {
  static const Row kPresets;
  const auto list = [](const auto& values, auto to_text) {
    std::vector<std::string> texts;
    for (const auto& value : values) texts.push_back(to_text(value));
    return texts.empty() ? std::string() : fmt::format("[{}]", fmt::join(texts, ", "));
  };
  const auto digits = [](std::int64_t number) { return std::to_string(number); };
  const auto scalar = [&](auto member, const auto& to_text) {
    return row.*member == kPresets.*member ? std::string() : std::string(to_text(row.*member));
  };
  const auto text_of = [&](auto member) -> std::string {
    using Member = std::remove_cvref_t<decltype(row.*member)>;
    if constexpr (std::is_same_v<Member, bool>)
      return scalar(member, [](bool value) { return value ? "true" : "false"; });
    else if constexpr (std::is_same_v<Member, double>)
      return scalar(member, format_number);
    else if constexpr (std::is_same_v<Member, std::string>)
      return scalar(member, toml_string);
    else if constexpr (std::is_same_v<Member, std::int64_t>)
      return scalar(member, digits);
    else if constexpr (std::is_same_v<Member, std::optional<std::int64_t>>)
      return row.*member ? digits(*(row.*member)) : std::string();
    else if constexpr (std::is_same_v<Member, std::optional<double>>)
      return row.*member ? format_number(*(row.*member)) : std::string();
    else if constexpr (std::is_same_v<Member, Bytes>)
      return scalar(member, [](Bytes bytes) { return toml_string(format_bytes(bytes.count)); });
    else if constexpr (std::is_same_v<Member, std::vector<std::int64_t>>)
      return list(row.*member, digits);
    else
      return list(row.*member, toml_string);
  };
  std::string text;
  for (const TableKey<Row>& key : keys)
    if (const std::string value = std::visit(text_of, key.field); !value.empty())
      text += fmt::format("{} = {}\n", key.name, value);
  return text;
}

}  // namespace troupe::config
