// A string that knows which of its bytes came from users.
//
// A template puts control tokens ("<|im_end|>") around what users wrote. Both end up in one text, but only the
// template's part may become control tokens; so every operation on a text keeps the ranges of bytes that came from
// input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::engine::chat {

// Where bytes come from. Input may have a number of its own, by which it is found again in what is rendered.
using Origin = std::uint32_t;
inline constexpr Origin kFromTemplate = 0,
                        kFromInput = 1;  // true and false of `from_input`; above: input with a number

struct ByteRange {
  std::size_t begin, end;  // half open
  Origin origin = kFromInput;
  bool operator==(const ByteRange&) const = default;
};

// A value; any bytes. Not thread-safe while it changes.
class Text {
 public:
  Text() = default;
  explicit Text(std::string bytes, Origin origin = kFromTemplate);

  const std::string& bytes() const { return bytes_; }
  std::size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  // Ascending, none empty; those that touch differ in their origin.
  const std::vector<ByteRange>& input() const { return input_; }
  // Whether any byte came from input; whether all did.
  bool has_input() const { return !input_.empty(); }
  bool is_all_input() const;
  // Of the byte at `position`. O(log ranges).
  Origin origin(std::size_t position) const;

  // The bytes [begin, end), which must be inside.
  Text substr(std::size_t begin, std::size_t end) const;
  void append(const Text& other) { append(other, 0, other.size()); }
  void append(const Text& other, std::size_t begin, std::size_t end);
  void append(std::string_view bytes, Origin origin);

 private:
  void add_range(std::size_t begin, std::size_t end, Origin origin);

  std::string bytes_;
  std::vector<ByteRange> input_;
};

}  // namespace troupe::engine::chat
