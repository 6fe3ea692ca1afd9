#include "tests/fuzz/gguf_mutator.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace troupe::fuzz {
namespace {

// Borders of types and of limits, and what overflows when it is added or multiplied.
constexpr std::uint64_t kInteresting[] = {0,
                                          1,
                                          2,
                                          3,
                                          7,
                                          8,
                                          9,
                                          12,
                                          31,
                                          32,
                                          33,
                                          64,
                                          127,
                                          128,
                                          255,
                                          256,
                                          1023,
                                          4096,
                                          0x7fff,
                                          0xffff,
                                          0x10000,
                                          0x10001,
                                          0xffffff,
                                          0x1000000,
                                          0x7fffffff,
                                          0x80000000,
                                          0xffffffff,
                                          1ull << 32,
                                          (1ull << 32) + 1,
                                          1ull << 40,
                                          1ull << 60,
                                          1ull << 61,
                                          (1ull << 62) + 1,
                                          0x7fffffffffffffff,
                                          1ull << 63,
                                          ~0ull - 31,
                                          ~0ull};
constexpr std::uint32_t kFloats[] = {0x7f800000, 0xff800000, 0x7fc00000, 0x80000000, 0x00000001, 0x7f7fffff};

std::size_t below(std::mt19937_64& random, std::size_t limit) { return limit == 0 ? 0 : random() % limit; }

std::uint64_t read(std::string_view bytes, std::size_t offset, std::size_t size) {
  std::uint64_t value = 0;
  std::memcpy(&value, bytes.data() + offset, std::min({size, sizeof value, bytes.size() - offset}));
  return value;
}

void write(std::string& bytes, std::size_t offset, std::size_t size, std::uint64_t value) {
  if (offset < bytes.size())
    std::memcpy(bytes.data() + offset, &value, std::min({size, sizeof value, bytes.size() - offset}));
}

}  // namespace

// Reads the file as its writer meant it; stops at the first thing that cannot be.
class GgufMutator::Parser {
 public:
  explicit Parser(GgufMutator& out) : out_(out), bytes_(out.bytes_) {}

  // Of several files in a row, the parts of a split model, all are read.
  void run() {
    constexpr std::string_view kBeginning("GGUF\3\0\0\0", 8);
    while (good_ && at_ < bytes_.size()) {
      run_file();
      if (out_.header_bytes_ == 0) out_.header_bytes_ = std::min(at_, bytes_.size());
      const std::size_t end = std::min(bytes_.size(), bytes_.find(kBeginning, std::max<std::size_t>(at_, 1)));
      if (good_) take(GgufPart::tensor_data, end - std::min(at_, end));
    }
  }

 private:
  void run_file() {
    at_ += 4;
    number(GgufPart::version, 4);
    const std::uint64_t num_tensors = number(GgufPart::num_tensors, 8);
    const std::uint64_t num_metadata = number(GgufPart::num_metadata, 8);
    for (std::uint64_t i = 0; i < num_metadata && good_; ++i) {
      text(GgufPart::text);
      value(number(GgufPart::value_type, 4));
    }
    for (std::uint64_t i = 0; i < num_tensors && good_; ++i) {
      text(GgufPart::text);
      const std::uint64_t dimensions = std::min<std::uint64_t>(number(GgufPart::num_dimensions, 4), 8);
      for (std::uint64_t d = 0; d < dimensions; ++d) number(GgufPart::dimension, 8);
      number(GgufPart::weight_type, 4);
      number(GgufPart::tensor_offset, 8);
    }
  }

  static std::size_t width(std::uint64_t type) {
    constexpr std::size_t kWidths[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return type < std::size(kWidths) ? kWidths[type] : 0;
  }

  void take(GgufPart part, std::uint64_t size) {
    good_ = good_ && size <= bytes_.size() - std::min(at_, bytes_.size());
    if (!good_ || size == 0) return;
    out_.places_[static_cast<std::size_t>(part)].push_back({at_, static_cast<std::size_t>(size)});
    at_ += size;
  }
  std::uint64_t number(GgufPart part, std::size_t size) {
    const std::size_t at = at_;
    take(part, size);
    return good_ ? read(bytes_, at, size) : 0;
  }
  void text(GgufPart part) { take(part, number(GgufPart::text_length, 8)); }
  void value(std::uint64_t type) {
    if (type == 8) return text(GgufPart::text);
    if (type != 9) return take(GgufPart::value, width(type));
    const std::uint64_t element = number(GgufPart::value_type, 4);
    const std::uint64_t count = number(GgufPart::array_length, 8);
    if (element != 8) return take(GgufPart::array, std::min<std::uint64_t>(count, bytes_.size()) * width(element));
    for (std::uint64_t i = 0; i < count && good_; ++i) text(GgufPart::array);
  }

  GgufMutator& out_;
  std::string_view bytes_;
  std::size_t at_ = 0;
  bool good_ = true;
};

GgufMutator::GgufMutator(std::string bytes) : bytes_(std::move(bytes)) { Parser(*this).run(); }

// The kind first, so that a vocabulary's thousands of strings do not hide one count.
GgufMutator::Place GgufMutator::pick(std::mt19937_64& random) const {
  for (int attempts = 0; attempts < 32; ++attempts) {
    const auto& places = places_[below(random, kNumGgufParts)];
    if (!places.empty()) return places[below(random, places.size())];
  }
  return {below(random, bytes_.size()), 1};
}

std::string GgufMutator::mutate(std::mt19937_64& random) const {
  std::string bytes = bytes_;
  for (std::size_t count = 1 + below(random, 3); count > 0; --count) damage(bytes, random);
  return bytes;
}

void GgufMutator::damage(std::string& bytes, std::mt19937_64& random) const {
  if (bytes.empty()) return;
  const Place place = pick(random);
  const std::size_t offset = std::min(place.offset, bytes.size() - 1);
  const std::size_t size = std::min(place.size, bytes.size() - offset);
  const std::size_t width = std::min<std::size_t>(size, 8);
  switch (below(random, 12)) {
    case 0:
    case 1:
    case 2:
      return write(bytes, offset, width, kInteresting[below(random, std::size(kInteresting))]);
    case 3:  // near what it was
      return write(bytes, offset, width, read(bytes, offset, width) + below(random, 65) - 32);
    case 4: {  // a bit of it, low ones as often as high ones
      const std::size_t bit = below(random, size * 8);
      bytes[offset + bit / 8] = static_cast<char>(bytes[offset + bit / 8] ^ (1 << bit % 8));
      return;
    }
    case 5: {  // another place's content, of as many bytes
      const Place from = pick(random);
      const std::string copy = bytes.substr(std::min(from.offset, bytes.size()), std::min(from.size, size));
      bytes.replace(offset, copy.size(), copy);
      return;
    }
    case 6:  // left out, and everything behind it moves
      bytes.erase(offset, std::min<std::size_t>(size, 4096));
      return;
    case 7:  // said twice
      bytes.insert(offset, bytes.substr(offset, std::min<std::size_t>(size, 4096)));
      return;
    case 8: {  // the file ends at a border, or beside it
      const std::size_t end = offset + (below(random, 2) == 0 ? size : 0) + below(random, 17);
      bytes.resize(std::min(bytes.size(), end < 8 ? end : end - 8));
      return;
    }
    case 9: {  // an alignment that the offsets were not made for
      const std::uint64_t alignment =
          below(random, 2) == 0 ? kInteresting[below(random, std::size(kInteresting))] : 1ull << below(random, 24);
      std::string entry("\x11\0\0\0\0\0\0\0general.alignment\x04\0\0\0", 8 + 17 + 4);
      entry.append(reinterpret_cast<const char*>(&alignment), 4);
      if (bytes.size() < 24) return;
      write(bytes, 16, 8, read(bytes, 16, 8) + 1);
      bytes.insert(24, entry);
      return;
    }
    case 10: {  // numbers that are none, in the weights as in the metadata
      const std::uint32_t value = kFloats[below(random, std::size(kFloats))];
      const std::size_t at = offset + below(random, size);
      return write(bytes, at, 4, value);
    }
    default:  // anywhere
      for (std::size_t count = 1 + below(random, 16); count > 0; --count)
        bytes[below(random, bytes.size())] = static_cast<char>(random());
      return;
  }
}

}  // namespace troupe::fuzz
