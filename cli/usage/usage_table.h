// Usage that is not written yet: sums by hour and tenant. Plain; not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "actors/requests/usage_report.h"

namespace troupe::cli {

// The tenant of what came while the table was full.
inline constexpr const char* kOtherTenants = "(other)";

class UsageTable {
 public:
  using Key = std::pair<std::int64_t, actors::UsageTenant>;  // begin of the hour, tenant

  // With max_rows rows, what would be another one is counted for kOtherTenants, in one more row of its hour.
  explicit UsageTable(std::size_t max_rows) : max_rows_(max_rows) {}

  void add(const Key& key, const actors::UsageCounts& counts) {
    const bool has_room = rows_.size() < max_rows_ || rows_.contains(key);
    rows_[has_room ? key : Key{key.first, {.uid = {}, .name = kOtherTenants}}] += counts;
  }
  void add(const UsageTable& other) {
    for (const auto& [key, counts] : other.rows_) add(key, counts);
  }
  void clear() { rows_.clear(); }
  [[nodiscard]] bool empty() const { return rows_.empty(); }
  [[nodiscard]] const std::map<Key, actors::UsageCounts>& rows() const { return rows_; }

 private:
  std::size_t max_rows_;
  std::map<Key, actors::UsageCounts> rows_;
};

}  // namespace troupe::cli
