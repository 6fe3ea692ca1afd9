// A changed header of a file of packed weights: an error, or consistent numbers.
//
// The first byte of an input says how it is taken. Bit 0: the rest is a header as it stands; else it is a list of edits
// to a real one, each a position (u32, modulo the size), a kind and a byte: the kinds set, add to, cut at and lengthen.
// Bit 1: the checksum is made right afterwards. Bit 2: the file is as long as the header says, else as long as the real
// one.
//
// Every number of an accepted header is checked or used: written again it is the same header.
#include <xxhash.h>

#include <algorithm>
#include <vector>

#include "engine/weights/weights_file.h"
#include "tests/fuzz/fuzz_target.h"

namespace troupe::fuzz {
namespace {

using engine::WeightsEntry;
using engine::WeightsHeader;
using kernels::Layout;
using kernels::WeightType;

constexpr std::size_t kFileBytesAt = 48, kChecksumBytes = 8;
constexpr std::size_t kMostBytes = 1u << 16;

WeightsHeader real_header() {
  WeightsHeader header;
  header.recipe = kernels::kRecipeVersion;
  header.model_hash = 0x123456789abcdef0u;
  header.source_hash = 0xfedcba9876543210u;
  header.variant = "avx512vnni";
  header.stamp = engine::FileStamp{.inode = 7, .bytes = 1u << 20, .mtime_ns = 1, .ctime_ns = 2};
  std::uint64_t end = 4096;
  const auto add = [&](WeightType type, Layout layout, std::uint64_t rows, std::uint64_t k) {
    WeightsEntry entry{.name_hash = end, .offset = end, .header = {}};
    entry.header = {.version = header.recipe,
                    .type = type,
                    .layout = layout,
                    .rows = rows,
                    .k = k,
                    .body_bytes = kernels::packed_bytes(type, layout, rows, k),
                    .checksum = end * 3,
                    .content = end * 5};
    header.file_bytes = end + entry.header.body_bytes;
    end = (header.file_bytes + 4095) / 4096 * 4096;
    header.entries.push_back(entry);
  };
  add(WeightType::f32, Layout::panels, 48, 16);
  add(WeightType::q8_0, Layout::tiles, 40, 96);
  add(WeightType::q4_k, Layout::file, 100, 256);
  add(WeightType::tq2_0, Layout::panels, 17, 512);
  add(WeightType::i2_s, Layout::lookup, 20, 384);
  add(WeightType::tq1_0, Layout::trits, 33, 256);
  return header;
}

std::vector<std::byte> edited(Input& input, std::vector<std::byte> bytes) {
  while (!input.empty()) {
    const std::size_t position = input.number<std::uint32_t>() % (bytes.size() + 1);
    const std::uint8_t kind = input.byte(), value = input.byte();
    if (kind % 4 == 2) bytes.resize(position);
    if (kind % 4 == 3) bytes.resize(std::min(bytes.size() + std::size_t{value} * 8, kMostBytes));
    if (position >= bytes.size()) continue;
    if (kind % 4 == 0) bytes[position] = static_cast<std::byte>(value);
    if (kind % 4 == 1) bytes[position] = static_cast<std::byte>(std::to_integer<unsigned>(bytes[position]) + value);
  }
  return bytes;
}

void correct_checksum(std::vector<std::byte>& bytes) {
  if (bytes.size() < engine::kWeightsFixedBytes + kChecksumBytes) return;
  const auto checked = std::span<const std::byte>(bytes).first(bytes.size() - kChecksumBytes);
  const auto matrices = checked.subspan(engine::kWeightsFixedBytes);
  const std::uint64_t sum =
      XXH3_64bits_withSeed(matrices.data(), matrices.size(), XXH3_64bits(checked.data(), engine::kWeightsStampAt));
  std::memcpy(bytes.data() + checked.size(), &sum, sizeof sum);
}

void check(const WeightsHeader& header, const std::vector<std::byte>& bytes, std::uint64_t file_bytes) {
  std::uint64_t end = bytes.size();
  for (const WeightsEntry& entry : header.entries) {
    const engine::PackedHeader& h = entry.header;
    TROUPE_ASSERT(h.rows >= 1 && h.k >= 1 && h.k % kernels::info(h.type).group_size == 0);
    TROUPE_ASSERT(kernels::has_layout(h.type, h.layout, h.k));
    TROUPE_ASSERT(h.body_bytes == kernels::packed_bytes(h.type, h.layout, h.rows, h.k));
    TROUPE_ASSERT(entry.offset >= end && entry.offset % 4096 == 0);
    end = entry.offset + h.body_bytes;
    TROUPE_ASSERT(end > entry.offset && end <= file_bytes);
  }
  TROUPE_ASSERT(header.file_bytes == file_bytes);
  const std::vector<std::byte> again = engine::write_weights_header(header);
  TROUPE_ASSERT(again.size() == bytes.size());
  const auto same = [&](std::size_t begin, std::size_t end_of) {
    return std::equal(again.begin() + static_cast<std::ptrdiff_t>(begin),
                      again.begin() + static_cast<std::ptrdiff_t>(end_of),
                      bytes.begin() + static_cast<std::ptrdiff_t>(begin));
  };
  TROUPE_ASSERT(same(0, engine::kWeightsStampAt) && same(engine::kWeightsFixedBytes, bytes.size()));
  if (header.stamp) TROUPE_ASSERT(same(engine::kWeightsStampAt, engine::kWeightsStampAt + 40));
}

void run(Input input) {
  const std::uint8_t mode = input.byte();
  const WeightsHeader real = real_header();
  std::vector<std::byte> bytes;
  if (mode & 1) {
    const auto rest = std::as_bytes(std::span(input.rest()));
    bytes.assign(rest.begin(), rest.end());
  } else {
    bytes = edited(input, engine::write_weights_header(real));
  }
  if (mode & 2) correct_checksum(bytes);
  std::uint64_t file_bytes = real.file_bytes;
  if ((mode & 4) && bytes.size() >= kFileBytesAt + sizeof file_bytes)
    std::memcpy(&file_bytes, bytes.data() + kFileBytesAt, sizeof file_bytes);
  const auto header = engine::parse_weights_header(bytes, file_bytes);
  if (!header) return check_message(header.error().message);
  check(*header, bytes, file_bytes);
}

}  // namespace
}  // namespace troupe::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  troupe::fuzz::run(troupe::fuzz::Input(data, size));
  return 0;
}
