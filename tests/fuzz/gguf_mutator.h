// Mutates GGUF files with knowledge of the format: the numbers that a reader depends on, and the borders of its parts.
//
// Written apart from engine/formats/gguf.cpp on purpose, and takes any bytes: what does not parse is damaged blindly.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::fuzz {

// The kind of a part of a file. Numbers are of 1 to 8 bytes; texts and arrays may have any length.
enum class GgufPart : std::uint8_t {
  version,
  num_tensors,
  num_metadata,
  text_length,  // of keys, strings and names
  text,         // of keys, strings and names
  value_type,   // of values and of an array's elements
  array_length,
  value,  // one number
  array,  // the numbers of an array, or one string of it
  num_dimensions,
  dimension,
  weight_type,
  tensor_offset,
  tensor_data,  // everything behind the directory
};
inline constexpr std::size_t kNumGgufParts = 14;

class GgufMutator {
 public:
  // Finds the parts of `bytes`, as far as they make sense. O(bytes.size()).
  explicit GgufMutator(std::string bytes);

  const std::string& original() const { return bytes_; }
  // Bytes in front of the tensor data.
  std::size_t header_bytes() const { return header_bytes_; }

  // The file with one to three mutations: numbers become others that overflow or contradict, parts are copied over
  // others, left out or repeated, the file is cut at a border, an alignment is set, bits flip. The same random state
  // gives the same bytes.
  std::string mutate(std::mt19937_64& random) const;

 private:
  struct Place {
    std::size_t offset = 0;
    std::size_t size = 0;
  };
  class Parser;

  void damage(std::string& bytes, std::mt19937_64& random) const;
  Place pick(std::mt19937_64& random) const;

  std::string bytes_;
  std::size_t header_bytes_ = 0;
  std::array<std::vector<Place>, kNumGgufParts> places_;
};

}  // namespace troupe::fuzz
