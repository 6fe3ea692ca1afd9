// A string that knows which of its bytes came from users.
//
// A template puts control tokens ("<|im_end|>") around what users wrote. Both end up in one text, but only the
// template's part may become control tokens; so every operation on a text keeps the ranges of bytes that came from
// input.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::engine::chat {

struct ByteRange {
  std::size_t begin, end;  // half open
  bool operator==(const ByteRange&) const = default;
};

// A value; any bytes. Not thread-safe while it changes.
class Text {
 public:
  Text() = default;
  explicit Text(std::string bytes, bool from_input = false);

  const std::string& bytes() const { return bytes_; }
  std::size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  // Ascending, apart from one another, none empty.
  const std::vector<ByteRange>& input() const { return input_; }
  // Whether any byte, or the byte at `position`, came from input. O(log ranges).
  bool has_input() const { return !input_.empty(); }
  bool is_input(std::size_t position) const;

  // The bytes [begin, end), which must be inside.
  Text substr(std::size_t begin, std::size_t end) const;
  void append(const Text& other) { append(other, 0, other.size()); }
  void append(const Text& other, std::size_t begin, std::size_t end);
  void append(std::string_view bytes, bool from_input);

 private:
  void add_range(std::size_t begin, std::size_t end);

  std::string bytes_;
  std::vector<ByteRange> input_;
};

}  // namespace troupe::engine::chat
