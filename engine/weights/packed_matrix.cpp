#include "engine/weights/packed_matrix.h"

#include <fmt/format.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <vector>

#include "config/assert.h"
#include "engine/compute/team.h"
#include "engine/formats/finite_weights.h"

namespace troupe::engine {
namespace {

constexpr std::size_t kPanelsPerChunk = 16;  // 256 rows: some hundred KiB of source

// The checksum of `bytes`. Each piece is hashed by the thread that called get(begin, size) for it, which may write its
// bytes: they are then in that core's cache.
template <class Get>
std::uint64_t checksum_after(Team& team, std::span<const std::byte> bytes, Get get) {
  std::vector<std::uint64_t> pieces((bytes.size() + kChecksumPiece - 1) / kChecksumPiece);
  team.parallel_for(pieces.size(), [&](std::size_t i, std::uint32_t) {
    const std::size_t begin = i * kChecksumPiece, size = std::min(kChecksumPiece, bytes.size() - begin);
    get(begin, size);
    pieces[i] = hash_piece(bytes.subspan(begin, size));
  });
  return join_pieces(pieces, bytes.size());
}

}  // namespace

std::uint64_t hash_piece(std::span<const std::byte> piece) { return XXH3_64bits(piece.data(), piece.size()); }

std::uint64_t join_pieces(std::span<const std::uint64_t> hashes, std::uint64_t num_bytes) {
  return XXH3_64bits_withSeed(hashes.data(), hashes.size_bytes(), num_bytes);
}

bool read_at(int file, std::uint64_t offset, std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::pread(file, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
  return true;
}

std::uint64_t combine_hashes(std::uint64_t hash, std::uint64_t next) {
  return XXH3_64bits_withSeed(&next, sizeof next, hash);
}

std::uint64_t checksum(Team& team, std::span<const std::byte> bytes) {
  return checksum_after(team, bytes, [](std::size_t, std::size_t) {});
}

std::uint64_t checksum(std::span<const std::byte> bytes) {
  std::vector<std::uint64_t> pieces;
  for (std::size_t at = 0; at < bytes.size(); at += kChecksumPiece)
    pieces.push_back(hash_piece(bytes.subspan(at, std::min(kChecksumPiece, bytes.size() - at))));
  return join_pieces(pieces, bytes.size());
}

Result<PackedMatrix> PackedMatrix::pack(Team& team, const MatrixForm& form, std::span<const std::byte> file_rows,
                                        const std::shared_ptr<MemoryPolicy>& policy) {
  const kernels::WeightType type = form.type;
  const std::size_t rows = form.rows, k = form.k;
  const kernels::WeightTypeInfo& type_info = kernels::info(type);
  TROUPE_ASSERT(rows >= 1 && k % type_info.group_size == 0);
  TROUPE_ASSERT(file_rows.size() == rows * (k / type_info.group_size) * type_info.group_bytes);
  PackedHeader header{.version = kernels::kRecipeVersion,
                      .type = type,
                      .layout = form.layout,
                      .rows = rows,
                      .k = k,
                      .body_bytes = kernels::packed_bytes(type, form.layout, rows, k)};
  auto matrix = allocate(header, form.scale, policy);
  if (!matrix) return matrix.error();
  std::byte* body = matrix->body();
  const std::size_t panels = matrix->view_.num_panels();
  const std::size_t row_bytes = file_rows.size() / rows;
  std::atomic<bool> finite = true;
  team.parallel_for((panels + kPanelsPerChunk - 1) / kPanelsPerChunk, [&](std::size_t chunk, std::uint32_t) {
    const std::size_t begin = chunk * kPanelsPerChunk;
    for (std::size_t panel = begin; panel < std::min(begin + kPanelsPerChunk, panels); ++panel) {
      const std::size_t first_row = panel * kernels::kPanelRows;
      const std::size_t num_rows = std::min(kernels::kPanelRows, rows - first_row);
      // The check brings the rows into this core's cache, where packing reads them.
      if (!all_finite(type, file_rows.subspan(first_row * row_bytes, num_rows * row_bytes))) finite = false;
      kernels::pack_panels(type, form.layout, file_rows.data(), rows, k, panel, panel + 1, body);
    }
  });
  if (!finite) return Error{ErrorCode::bad_model, "has a weight that is not finite"};
  header.checksum = checksum(team, {body, header.body_bytes});
  header.content = kernels::is_ternary(type) ? engine::checksum(team, file_rows) : header.checksum;
  new (matrix->memory_.data()) PackedHeader(header);
  return matrix;
}

Result<PackedMatrix> PackedMatrix::read(Team& team, const PackedHeader& header, int file, std::uint64_t offset,
                                        float scale, const std::shared_ptr<MemoryPolicy>& policy) {
  auto matrix = allocate(header, scale, policy);
  if (!matrix) return matrix.error();
  const std::span<std::byte> body(matrix->body(), header.body_bytes);
  std::atomic<bool> complete = true;
  const std::uint64_t found = checksum_after(team, body, [&](std::size_t begin, std::size_t size) {
    if (!read_at(file, offset + begin, body.subspan(begin, size))) complete = false;
  });
  if (!complete || found != header.checksum) return PackedMatrix();
  new (matrix->memory_.data()) PackedHeader(header);
  return matrix;
}

Result<PackedMatrix> PackedMatrix::allocate(const PackedHeader& header, float scale,
                                            const std::shared_ptr<MemoryPolicy>& policy) {
  PackedMatrix matrix;
  matrix.memory_ = AlignedMemory::allocate(policy, MemoryKind::weights, kPackedHeaderBytes + header.body_bytes);
  if (!matrix.memory_.data()) {
    return Error{ErrorCode::out_of_memory,
                 fmt::format("no memory for a matrix of {} bytes; load a smaller model", header.body_bytes)};
  }
  matrix.view_ = {.type = header.type,
                  .layout = header.layout,
                  .rows = header.rows,
                  .k = header.k,
                  .body = matrix.body(),
                  .scale = scale};
  return matrix;
}

}  // namespace troupe::engine
