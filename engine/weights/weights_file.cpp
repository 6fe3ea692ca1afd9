#include "engine/weights/weights_file.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "config/assert.h"

namespace troupe::engine {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::array<char, 8> kMagic = {'t', 'r', 'o', 'u', 'p', 'e', 'W', 'C'};
constexpr std::size_t kVariantBytes = 16;
constexpr std::size_t kStampBytes = 40;
constexpr std::size_t kEntryBytes = 64;
constexpr std::size_t kChecksumBytes = 8;
constexpr std::uint64_t kBodyAlignment = 4096;
constexpr std::uint64_t kMaxExtent = 1u << 24;  // of rows and k, so that their products do not overflow

// Serialises integers.
class Packer {
 public:
  template <class T>
  void put(T value) {
    const auto bytes = std::as_bytes(std::span(&value, 1));
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  void pad_to(std::size_t size) { bytes_.resize(size); }
  std::vector<std::byte>& bytes() { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

class Unpacker {
 public:
  explicit Unpacker(std::span<const std::byte> bytes) : left_(bytes) {}
  template <class T>
  T take() {
    T value;
    TROUPE_ASSERT(left_.size() >= sizeof value);  // lengths were checked before
    std::memcpy(&value, left_.data(), sizeof value);
    left_ = left_.subspan(sizeof value);
    return value;
  }

 private:
  std::span<const std::byte> left_;
};

Error damaged(const std::string& what) { return {ErrorCode::io, "damaged: " + what}; }

// The checksum of everything except the stamp.
std::uint64_t header_checksum(std::span<const std::byte> without_checksum) {
  const auto matrices = without_checksum.subspan(kWeightsFixedBytes);
  return XXH3_64bits_withSeed(matrices.data(), matrices.size(), XXH3_64bits(without_checksum.data(), kWeightsStampAt));
}

std::optional<FileStamp> parse_stamp(std::span<const std::byte> bytes) {
  Unpacker from(bytes);
  FileStamp stamp;
  stamp.inode = from.take<std::uint64_t>();
  stamp.bytes = from.take<std::uint64_t>();
  stamp.mtime_ns = from.take<std::int64_t>();
  stamp.ctime_ns = from.take<std::int64_t>();
  if (from.take<std::uint64_t>() != XXH3_64bits(bytes.data(), kStampBytes - kChecksumBytes)) return std::nullopt;
  return stamp;
}

// Whether the kernels support a matrix of `type` in `layout`.
bool is_matrix(std::uint32_t type, std::uint32_t layout, std::uint64_t rows, std::uint64_t k) {
  const auto types = kernels::weight_types();
  const auto found = std::find_if(types.begin(), types.end(),
                                  [&](const auto& info) { return static_cast<std::uint32_t>(info.type) == type; });
  if (found == types.end() || layout > static_cast<std::uint32_t>(kernels::kLastLayout)) return false;
  if (!kernels::has_layout(found->type, static_cast<kernels::Layout>(layout), k)) return false;
  return rows >= 1 && rows <= kMaxExtent && k >= 1 && k <= kMaxExtent && k % found->group_size == 0;
}

}  // namespace

std::size_t weights_header_bytes(std::size_t num_matrices) {
  return kWeightsFixedBytes + num_matrices * kEntryBytes + kChecksumBytes;
}

Result<std::size_t> parse_weights_count(std::span<const std::byte> fixed) {
  TROUPE_ASSERT(fixed.size() == kWeightsFixedBytes);
  Unpacker from(fixed);
  if (from.take<std::array<char, 8>>() != kMagic)
    return Error{ErrorCode::unsupported, "not a file of packed weights: it does not begin with troupeWC"};
  if (const auto version = from.take<std::uint32_t>(); version != kWeightsFileVersion)
    return Error{ErrorCode::unsupported, "version " + std::to_string(version) +
                                             " of the format, and this program has " +
                                             std::to_string(kWeightsFileVersion)};
  Unpacker count(fixed.subspan(56));
  const auto num_matrices = count.take<std::uint32_t>();
  if (num_matrices > kMaxWeightsEntries) return damaged(std::to_string(num_matrices) + " matrices");
  return std::size_t{num_matrices};
}

Result<WeightsHeader> parse_weights_header(std::span<const std::byte> bytes, std::uint64_t file_bytes) {
  if (bytes.size() < kWeightsFixedBytes) return damaged("it has " + std::to_string(bytes.size()) + " bytes");
  const auto count = parse_weights_count(bytes.first(kWeightsFixedBytes));
  if (!count) return count.error();
  if (bytes.size() != weights_header_bytes(*count)) return damaged("its header is cut off");
  const auto checked = bytes.first(bytes.size() - kChecksumBytes);
  if (Unpacker(bytes.last(kChecksumBytes)).take<std::uint64_t>() != header_checksum(checked))
    return damaged("the checksum of its header is wrong");

  Unpacker fixed(bytes.subspan(12));
  WeightsHeader header;
  header.recipe = fixed.take<std::uint32_t>();
  header.model_hash = fixed.take<std::uint64_t>();
  header.source_hash = fixed.take<std::uint64_t>();
  const auto variant = fixed.take<std::array<char, kVariantBytes>>();
  const auto variant_end = std::find(variant.begin(), variant.end(), '\0');
  header.variant.assign(variant.begin(), variant_end);
  header.file_bytes = fixed.take<std::uint64_t>();
  fixed.take<std::uint32_t>();  // the number of matrices
  if (fixed.take<std::uint32_t>() != 0 || std::any_of(variant_end, variant.end(), [](char c) { return c != '\0'; }))
    return damaged("something stands where zeros should");
  if (header.file_bytes != file_bytes)
    return damaged("it has " + std::to_string(file_bytes) + " bytes of " + std::to_string(header.file_bytes));
  header.stamp = parse_stamp(bytes.subspan(kWeightsStampAt, kStampBytes));

  Unpacker from(bytes.subspan(kWeightsFixedBytes));
  std::uint64_t end = bytes.size();
  for (std::size_t i = 0; i < *count; ++i) {
    WeightsEntry entry;
    entry.name_hash = from.take<std::uint64_t>();
    entry.offset = from.take<std::uint64_t>();
    const auto type = from.take<std::uint32_t>();
    const auto layout = from.take<std::uint32_t>();
    PackedHeader& h = entry.header;
    h.version = header.recipe;
    h.rows = from.take<std::uint64_t>();
    h.k = from.take<std::uint64_t>();
    h.body_bytes = from.take<std::uint64_t>();
    h.checksum = from.take<std::uint64_t>();
    h.content = from.take<std::uint64_t>();
    const std::string which = "matrix " + std::to_string(i);
    if (!is_matrix(type, layout, h.rows, h.k)) return damaged(which + " has an impossible type or shape");
    h.type = static_cast<kernels::WeightType>(type);
    h.layout = static_cast<kernels::Layout>(layout);
    if (h.body_bytes != kernels::packed_bytes(h.type, h.layout, h.rows, h.k))
      return damaged(which + " has a body of " + std::to_string(h.body_bytes) + " bytes");
    if (entry.offset < end || entry.offset % kBodyAlignment != 0 || entry.offset > file_bytes ||
        h.body_bytes > file_bytes - entry.offset)
      return damaged(which + " lies where it cannot");
    end = entry.offset + h.body_bytes;
    header.entries.push_back(entry);
  }
  return header;
}

std::vector<std::byte> write_weights_stamp(const FileStamp& stamp) {
  Packer to;
  to.put(stamp.inode);
  to.put(stamp.bytes);
  to.put(stamp.mtime_ns);
  to.put(stamp.ctime_ns);
  to.put(XXH3_64bits(to.bytes().data(), to.bytes().size()));
  return std::move(to.bytes());
}

std::vector<std::byte> write_weights_header(const WeightsHeader& header) {
  TROUPE_ASSERT(header.variant.size() <= kVariantBytes && header.entries.size() <= kMaxWeightsEntries);
  Packer to;
  to.put(kMagic);
  to.put(kWeightsFileVersion);
  to.put(header.recipe);
  to.put(header.model_hash);
  to.put(header.source_hash);
  std::array<char, kVariantBytes> variant{};
  std::copy(header.variant.begin(), header.variant.end(), variant.begin());
  to.put(variant);
  to.put(header.file_bytes);
  to.put(static_cast<std::uint32_t>(header.entries.size()));
  to.put(std::uint32_t{0});
  TROUPE_ASSERT(to.bytes().size() == kWeightsStampAt);
  if (header.stamp) {
    const std::vector<std::byte> stamp = write_weights_stamp(*header.stamp);
    to.bytes().insert(to.bytes().end(), stamp.begin(), stamp.end());
  }
  to.pad_to(kWeightsFixedBytes);
  for (const WeightsEntry& entry : header.entries) {
    to.put(entry.name_hash);
    to.put(entry.offset);
    to.put(static_cast<std::uint32_t>(entry.header.type));
    to.put(static_cast<std::uint32_t>(entry.header.layout));
    to.put(entry.header.rows);
    to.put(entry.header.k);
    to.put(entry.header.body_bytes);
    to.put(entry.header.checksum);
    to.put(entry.header.content);
  }
  to.put(header_checksum(to.bytes()));
  TROUPE_ASSERT(to.bytes().size() == weights_header_bytes(header.entries.size()));
  return std::move(to.bytes());
}

}  // namespace troupe::engine
