// The header of a file of packed weights: its source, and the offset of each matrix.
//
// The format, version 3 (hashes and checksums are XXH3); integers are little-endian, offsets count from the beginning
// of the file:
//
//     0  magic "troupeWC" | u32 version | u32 recipe version | u64 model hash | u64 source hash
//        char[16] variant, padded with zeros | u64 bytes of the file | u32 matrices (<= 2^20) | u32 0
//    64  stamp of the source: u64 inode | u64 bytes | i64 mtime, i64 ctime in ns | u64 checksum of these | zeros
//   128  per matrix: u64 hash of its name | u64 offset of its body | u32 type | u32 layout | u64 rows | u64 k
//        u64 bytes of the body | u64 checksum of the body | u64 content (PackedHeader)
//        u64 checksum of bytes 0 to 64 and of the matrices
//        bodies, each at a multiple of 4096, in the order of the matrices
//
// Only the stamp may be rewritten in place: a torn write leaves at worst an invalid stamp, and then the source is
// hashed and compared.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/result.h"
#include "engine/formats/mapped_file.h"
#include "engine/weights/packed_matrix.h"

namespace troupe::engine {

inline constexpr std::uint32_t kWeightsFileVersion = 3;  // also raised when the same weights are packed to other bytes
inline constexpr std::size_t kWeightsFixedBytes = 128;   // up to the matrices
inline constexpr std::size_t kWeightsStampAt = 64;
inline constexpr std::uint64_t kWeightsBodyAlignment = 4096;

// Each expert of each layer counts separately: the largest mixtures have some 50,000 matrices.
inline constexpr std::size_t kMaxWeightsEntries = 1u << 20;

struct WeightsEntry {
  std::uint64_t name_hash = 0;
  std::uint64_t offset = 0;
  PackedHeader header;  // version: WeightsHeader::recipe
};

struct WeightsHeader {
  std::uint32_t recipe = 0;
  std::uint64_t model_hash = 0;   // ModelFile::content_hash
  std::uint64_t source_hash = 0;  // of the bytes of all tensors
  std::string variant;            // of kernels, at most 16 bytes
  std::uint64_t file_bytes = 0;
  std::optional<FileStamp> stamp;
  std::vector<WeightsEntry> entries;  // in the order of their bodies, which do not overlap
};

// Bytes of a header with `num_matrices` matrices.
[[nodiscard]] std::size_t weights_header_bytes(std::size_t num_matrices);

// The number of matrices in a file, from its first kWeightsFixedBytes. Error: unsupported if it is no such file or of
// another version, else io.
[[nodiscard]] Result<std::size_t> parse_weights_count(std::span<const std::byte> fixed);

// Parses a header of exactly weights_header_bytes, of a file of `file_bytes`. Every number is checked: each entry is a
// valid matrix for packed_bytes, and is within the file. Errors as above.
[[nodiscard]] Result<WeightsHeader> parse_weights_header(std::span<const std::byte> bytes, std::uint64_t file_bytes);

// At most kMaxWeightsEntries (asserted).
[[nodiscard]] std::vector<std::byte> write_weights_header(const WeightsHeader& header);
[[nodiscard]] std::vector<std::byte> write_weights_stamp(const FileStamp& stamp);  // the bytes at kWeightsStampAt

}  // namespace troupe::engine
