// A weight matrix in the order its kernels read, in memory of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "config/result.h"
#include "engine/memory/aligned_memory.h"
#include "kernels/kernels.h"

namespace troupe::engine {

class Team;

// Precedes a packed body and describes its bytes, also for other processes.
struct PackedHeader {
  std::uint32_t version = 0;  // kernels::kRecipeVersion when it was packed
  kernels::WeightType type = kernels::WeightType::f32;
  kernels::Layout layout = kernels::Layout::panels;
  std::uint64_t rows = 0;
  std::uint64_t k = 0;
  std::uint64_t body_bytes = 0;
  std::uint64_t checksum = 0;  // of the body
  // Its contribution to the model's content hash: the checksum; for ternary weights, which have several layouts with
  // the same bits, a hash of the rows before packing.
  std::uint64_t content = 0;
  friend bool operator==(const PackedHeader&, const PackedHeader&) = default;
};
inline constexpr std::size_t kPackedHeaderBytes = 64;  // the body follows, 64-byte aligned
static_assert(sizeof(PackedHeader) <= kPackedHeaderBytes);

// A matrix to pack or to read: `scale` is multiplied with every output.
struct MatrixForm {
  kernels::WeightType type;
  kernels::Layout layout;
  std::size_t rows, k;
  float scale = 1.0f;
};

// Header and body are one position-independent range of bytes that can be copied, sent or mapped. Immutable once
// packed; move-only.
class PackedMatrix {
 public:
  PackedMatrix() = default;  // empty: rows() == 0

  // Packs `file_rows` (all rows x k weights in file format, row-major), panels in parallel. `policy` allocates the
  // memory. Errors: out_of_memory; bad_model, for a weight that is not finite. O(rows * k).
  static Result<PackedMatrix> pack(Team& team, const MatrixForm& form, std::span<const std::byte> file_rows,
                                   const std::shared_ptr<MemoryPolicy>& policy = system_memory());

  // Reads a packed matrix from a file: `header.body_bytes` from `offset` on, read and checked in parallel. Empty if
  // they cannot be read or do not match `header`. Error: out_of_memory.
  static Result<PackedMatrix> read(Team& team, const PackedHeader& header, int file, std::uint64_t offset, float scale,
                                   const std::shared_ptr<MemoryPolicy>& policy = system_memory());

  explicit operator bool() const { return memory_.data() != nullptr; }
  const PackedHeader& header() const { return *reinterpret_cast<const PackedHeader*>(memory_.data()); }
  std::span<const std::byte> bytes() const { return {memory_.data(), memory_.size()}; }  // header and body
  const kernels::MatrixView& view() const { return view_; }
  std::size_t rows() const { return view_.rows; }
  std::size_t k() const { return view_.k; }

 private:
  static Result<PackedMatrix> allocate(const PackedHeader& header, float scale,
                                       const std::shared_ptr<MemoryPolicy>& policy);
  std::byte* body() const { return memory_.data() + kPackedHeaderBytes; }

  AlignedMemory memory_;
  kernels::MatrixView view_;
};

// The checksum of a body: its pieces of kChecksumPiece bytes are hashed each, and joined in order.
inline constexpr std::size_t kChecksumPiece = 1u << 20;
[[nodiscard]] std::uint64_t hash_piece(std::span<const std::byte> piece);
[[nodiscard]] std::uint64_t join_pieces(std::span<const std::uint64_t> hashes, std::uint64_t num_bytes);

// A hash of `bytes`, in an order that does not depend on the team's size; without a team on this thread.
[[nodiscard]] std::uint64_t checksum(Team& team, std::span<const std::byte> bytes);
[[nodiscard]] std::uint64_t checksum(std::span<const std::byte> bytes);
// Reads all of `bytes` from `offset` of a file on; false if the file is shorter or cannot be read.
[[nodiscard]] bool read_at(int file, std::uint64_t offset, std::span<std::byte> bytes);
// Joins hashes in order: combine(combine(seed, a), b).
[[nodiscard]] std::uint64_t combine_hashes(std::uint64_t hash, std::uint64_t next);

}  // namespace troupe::engine
