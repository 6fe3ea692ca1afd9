// A set of byte values.
#pragma once

#include <array>
#include <bit>
#include <compare>
#include <cstddef>
#include <cstdint>

namespace troupe::engine::constraints {

class ByteSet {
 public:
  constexpr ByteSet() = default;

  static constexpr ByteSet of(std::uint8_t byte) { return range(byte, byte); }
  // Both ends belong to it.
  static constexpr ByteSet range(std::uint8_t first, std::uint8_t last) {
    ByteSet set;
    for (unsigned byte = first; byte <= last; ++byte) set.add(static_cast<std::uint8_t>(byte));
    return set;
  }
  static constexpr ByteSet all() { return range(0, 255); }

  constexpr void add(std::uint8_t byte) { words_[byte / 64] |= std::uint64_t{1} << (byte % 64); }
  constexpr bool contains(std::uint8_t byte) const { return (words_[byte / 64] >> (byte % 64)) & 1; }
  constexpr bool empty() const { return (words_[0] | words_[1] | words_[2] | words_[3]) == 0; }
  constexpr std::size_t size() const {
    std::size_t size = 0;
    for (const std::uint64_t word : words_) size += static_cast<std::size_t>(std::popcount(word));
    return size;
  }

  constexpr ByteSet operator|(const ByteSet& other) const {
    return zipped(other, [](auto a, auto b) { return a | b; });
  }
  constexpr ByteSet operator&(const ByteSet& other) const {
    return zipped(other, [](auto a, auto b) { return a & b; });
  }
  constexpr ByteSet operator~() const {
    return zipped(*this, [](auto a, auto) { return ~a; });
  }
  constexpr auto operator<=>(const ByteSet&) const = default;

  const std::array<std::uint64_t, 4>& words() const { return words_; }

 private:
  template <class Operation>
  constexpr ByteSet zipped(const ByteSet& other, Operation operation) const {
    ByteSet set;
    for (std::size_t at = 0; at < words_.size(); ++at) set.words_[at] = operation(words_[at], other.words_[at]);
    return set;
  }

  std::array<std::uint64_t, 4> words_{};
};

}  // namespace troupe::engine::constraints
