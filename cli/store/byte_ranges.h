// Which bytes of a file have arrived. Plain logic.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace troupe::cli {

struct ByteRange {
  std::uint64_t begin = 0, end = 0;  // end: behind the last byte

  [[nodiscard]] std::uint64_t size() const { return end - begin; }
  friend bool operator==(const ByteRange&, const ByteRange&) = default;
};

// A set of bytes, kept as ranges that neither touch nor overlap. O(log n) each, of n ranges.
class ByteRanges {
 public:
  void add(ByteRange range);  // may overlap what is there; an empty one adds nothing
  // The length of what is there from the first byte on.
  [[nodiscard]] std::uint64_t front() const;
  [[nodiscard]] std::uint64_t total() const { return total_; }
  // The first bytes that are not there, below `size`, at most `most` of them; nothing if all are.
  [[nodiscard]] std::optional<ByteRange> first_gap(std::uint64_t size, std::uint64_t most) const;
  [[nodiscard]] std::vector<ByteRange> ranges() const;  // ascending

 private:
  std::map<std::uint64_t, std::uint64_t> ends_;  // by begin
  std::uint64_t total_ = 0;
};

}  // namespace troupe::cli
