// The [[...]] tables of troupe.toml as they stand there.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::config {

// A key of a table and its value; a value that stands alone is a list of one.
struct TableEntry {
  using Scalar = std::variant<bool, std::int64_t, double, std::string>;
  std::string key;
  int line = 0;
  bool is_list = false;
  std::vector<Scalar> values;
};

struct Table {
  int line = 0;  // of its header
  std::vector<TableEntry> entries;
  std::vector<std::pair<std::string, Table>> tables{};  // below it, by the last part of their names: [model.defaults]
};

}  // namespace troupe::config
