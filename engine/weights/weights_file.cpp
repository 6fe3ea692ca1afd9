#include "engine/weights/weights_file.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <type_traits>

#include "config/assert.h"

namespace troupe::engine {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::array<char, 8> kMagic = {'t', 'r', 'o', 'u', 'p', 'e', 'W', 'C'};
constexpr std::size_t kVariantBytes = 16;
constexpr std::uint64_t kMaxExtent = 1u << 24;  // of rows and k, so that their products do not overflow

// The parts of a header as they are in the file.
struct FixedPart {
  std::array<char, 8> magic = kMagic;
  std::uint32_t version = kWeightsFileVersion;
  std::uint32_t recipe = 0;
  std::uint64_t model_hash = 0, source_hash = 0;
  std::array<char, kVariantBytes> variant = {};
  std::uint64_t file_bytes = 0;
  std::uint32_t num_matrices = 0, zero = 0;
};
struct StampPart {
  FileStamp stamp;
  std::uint64_t checksum = 0;
};
struct EntryPart {
  std::uint64_t name_hash, offset;
  std::uint32_t type, layout;
  std::uint64_t rows, k, body_bytes, checksum, content;
};
using Checksum = std::uint64_t;
static_assert(sizeof(FixedPart) == kWeightsStampAt && sizeof(FileStamp) == 32 && sizeof(StampPart) == 40);
static_assert(sizeof(EntryPart) == 64);

template <class Part>
Part take(std::span<const std::byte> bytes, std::size_t at) {
  static_assert(std::is_trivially_copyable_v<Part>);
  TROUPE_ASSERT(at + sizeof(Part) <= bytes.size());  // lengths were checked before
  Part part;
  std::memcpy(&part, bytes.data() + at, sizeof part);
  return part;
}
template <class Part>
void put(std::vector<std::byte>& bytes, const Part& part) {
  static_assert(std::is_trivially_copyable_v<Part>);
  const auto raw = std::as_bytes(std::span(&part, 1));
  bytes.insert(bytes.end(), raw.begin(), raw.end());
}

template <class... Args>
Error damaged(fmt::format_string<Args...> format, Args&&... args) {
  return {ErrorCode::io, "damaged: " + fmt::format(format, std::forward<Args>(args)...)};
}

// The checksum of everything except the stamp.
std::uint64_t header_checksum(std::span<const std::byte> without_checksum) {
  const auto matrices = without_checksum.subspan(kWeightsFixedBytes);
  return XXH3_64bits_withSeed(matrices.data(), matrices.size(), XXH3_64bits(without_checksum.data(), kWeightsStampAt));
}

Checksum checksum_of(const FileStamp& stamp) { return XXH3_64bits(&stamp, sizeof stamp); }

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
  return kWeightsFixedBytes + num_matrices * sizeof(EntryPart) + sizeof(Checksum);
}

Result<std::size_t> parse_weights_count(std::span<const std::byte> fixed) {
  TROUPE_ASSERT(fixed.size() == kWeightsFixedBytes);
  const auto part = take<FixedPart>(fixed, 0);
  if (part.magic != kMagic)
    return Error{ErrorCode::unsupported, "not a file of packed weights: it does not begin with troupeWC"};
  if (part.version != kWeightsFileVersion)
    return Error{ErrorCode::unsupported,
                 fmt::format("version {} of the format, and this program has {}", part.version, kWeightsFileVersion)};
  if (part.num_matrices > kMaxWeightsEntries) return damaged("{} matrices", part.num_matrices);
  return std::size_t{part.num_matrices};
}

Result<WeightsHeader> parse_weights_header(std::span<const std::byte> bytes, std::uint64_t file_bytes) {
  if (bytes.size() < kWeightsFixedBytes) return damaged("it has {} bytes", bytes.size());
  const auto count = parse_weights_count(bytes.first(kWeightsFixedBytes));
  if (!count) return count.error();
  if (bytes.size() != weights_header_bytes(*count)) return damaged("its header is cut off");
  const auto checked = bytes.first(bytes.size() - sizeof(Checksum));
  if (take<Checksum>(bytes, checked.size()) != header_checksum(checked))
    return damaged("the checksum of its header is wrong");

  const auto fixed = take<FixedPart>(bytes, 0);
  const auto variant_end = std::find(fixed.variant.begin(), fixed.variant.end(), '\0');
  if (fixed.zero != 0 || std::any_of(variant_end, fixed.variant.end(), [](char c) { return c != '\0'; }))
    return damaged("something stands where zeros should");
  if (fixed.file_bytes != file_bytes) return damaged("it has {} bytes of {}", file_bytes, fixed.file_bytes);
  WeightsHeader header{.recipe = fixed.recipe,
                       .model_hash = fixed.model_hash,
                       .source_hash = fixed.source_hash,
                       .variant = {fixed.variant.begin(), variant_end},
                       .file_bytes = file_bytes,
                       .stamp = {},
                       .entries = {}};
  const auto stamp = take<StampPart>(bytes, kWeightsStampAt);
  if (stamp.checksum == checksum_of(stamp.stamp)) header.stamp = stamp.stamp;

  std::uint64_t end = bytes.size();
  for (std::size_t i = 0; i < *count; ++i) {
    const auto part = take<EntryPart>(bytes, kWeightsFixedBytes + i * sizeof(EntryPart));
    if (!is_matrix(part.type, part.layout, part.rows, part.k))
      return damaged("matrix {} has an impossible type or shape", i);
    const WeightsEntry entry{.name_hash = part.name_hash,
                             .offset = part.offset,
                             .header = {.version = header.recipe,
                                        .type = static_cast<kernels::WeightType>(part.type),
                                        .layout = static_cast<kernels::Layout>(part.layout),
                                        .rows = part.rows,
                                        .k = part.k,
                                        .body_bytes = part.body_bytes,
                                        .checksum = part.checksum,
                                        .content = part.content}};
    if (part.body_bytes != kernels::packed_bytes(entry.header.type, entry.header.layout, part.rows, part.k))
      return damaged("matrix {} has a body of {} bytes", i, part.body_bytes);
    if (part.offset < end || part.offset % kWeightsBodyAlignment != 0 || part.offset > file_bytes ||
        part.body_bytes > file_bytes - part.offset)
      return damaged("matrix {} lies where it cannot", i);
    end = part.offset + part.body_bytes;
    header.entries.push_back(entry);
  }
  return header;
}

std::vector<std::byte> write_weights_stamp(const FileStamp& stamp) {
  std::vector<std::byte> bytes;
  put(bytes, StampPart{.stamp = stamp, .checksum = checksum_of(stamp)});
  return bytes;
}

std::vector<std::byte> write_weights_header(const WeightsHeader& header) {
  TROUPE_ASSERT(header.variant.size() <= kVariantBytes && header.entries.size() <= kMaxWeightsEntries);
  FixedPart fixed{.recipe = header.recipe,
                  .model_hash = header.model_hash,
                  .source_hash = header.source_hash,
                  .file_bytes = header.file_bytes,
                  .num_matrices = static_cast<std::uint32_t>(header.entries.size())};
  std::copy(header.variant.begin(), header.variant.end(), fixed.variant.begin());
  std::vector<std::byte> bytes;
  put(bytes, fixed);
  if (header.stamp) put(bytes, StampPart{.stamp = *header.stamp, .checksum = checksum_of(*header.stamp)});
  bytes.resize(kWeightsFixedBytes);
  for (const auto& [name_hash, offset, matrix] : header.entries)
    put(bytes, EntryPart{.name_hash = name_hash,
                         .offset = offset,
                         .type = static_cast<std::uint32_t>(matrix.type),
                         .layout = static_cast<std::uint32_t>(matrix.layout),
                         .rows = matrix.rows,
                         .k = matrix.k,
                         .body_bytes = matrix.body_bytes,
                         .checksum = matrix.checksum,
                         .content = matrix.content});
  put(bytes, header_checksum(bytes));
  TROUPE_ASSERT(bytes.size() == weights_header_bytes(header.entries.size()));
  return bytes;
}

}  // namespace troupe::engine
