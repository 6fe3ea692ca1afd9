// A string that knows which of its bytes came from users.
//
// A template puts control tokens ("<|im_end|>") around what users wrote. Both end up in one text, but only the
// template's part may become control tokens; so every operation on a text keeps the ranges of bytes that came from
// input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "engine/chat/values/charged.h"
#include "engine/chat/values/meter.h"

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

// A value; any bytes. What makes it longer is charged to a meter and done in pieces, so it is moved and not copied. Not
// thread-safe while it changes.
class Text {
 public:
  Text() = default;
  // For texts that are short, or there already: not charged.
  explicit Text(std::string_view bytes, Origin origin = kFromTemplate);
  Text(Text&&) = default;
  Text& operator=(Text&&) = default;
  Text(const Text&) = delete;
  Text& operator=(const Text&) = delete;

  std::string_view bytes() const { return bytes_; }
  std::size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  // Ascending, none empty; those that touch differ in their origin.
  const ChargedVector<ByteRange>& input() const { return input_; }
  // Whether any byte came from input; whether all did. The second: O(ranges).
  bool has_input() const { return !input_.empty(); }
  bool is_all_input(Meter& meter) const;
  // Of the byte at `position`. O(log ranges).
  Origin origin(std::size_t position) const;

  // Makes room, so that bytes which are appended are not moved again.
  void reserve(std::size_t bytes) { bytes_.reserve(bytes); }
  // The bytes [begin, end), which must be inside.
  Text part(std::size_t begin, std::size_t end, Meter& meter) const;
  void append(const Text& other, Meter& meter) { append(other, 0, other.size(), meter); }
  void append(const Text& other, std::size_t begin, std::size_t end, Meter& meter);
  void append(std::string_view bytes, Origin origin, Meter& meter);

 private:
  void append_piece(const Text& other, std::size_t begin, std::size_t end);
  void add_range(std::size_t begin, std::size_t end, Origin origin);

  ChargedBytes bytes_;
  ChargedVector<ByteRange> input_;
};

}  // namespace troupe::engine::chat
