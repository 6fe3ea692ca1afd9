#include "engine/weights/weight_checks.h"

#include <fmt/format.h>

#include <algorithm>

namespace troupe::engine {
namespace {

// What belongs to a matrix beside its body: the header before it, and the factor of its products.
std::uint64_t with_frame(std::uint64_t body, const PackedMatrix& matrix) {
  const std::uint64_t header = hash_piece(matrix.bytes().first(kPackedHeaderBytes));
  const std::uint64_t scale = hash_piece(std::as_bytes(std::span(&matrix.view().scale, 1)));
  return combine_hashes(combine_hashes(body, header), scale);
}

}  // namespace

void WeightChecks::matrix(const PackedMatrix& matrix) {
  const std::span<const std::byte> body = matrix.bytes().subspan(kPackedHeaderBytes);
  regions_.push_back({body, with_frame(matrix.header().checksum, matrix), &matrix, ++num_matrices_});
  bytes_ += body.size();
}

void WeightChecks::vector(std::span<const float> numbers) {
  const std::span<const std::byte> bytes = std::as_bytes(numbers);
  regions_.push_back({bytes, checksum(bytes), nullptr, ++num_vectors_});
  bytes_ += bytes.size();
}

std::string WeightChecks::describe(const Region& region) const {
  if (!region.matrix)
    return fmt::format("vector {} of {} ({} numbers)", region.number, num_vectors_,
                       region.bytes.size() / sizeof(float));
  const kernels::MatrixView& view = region.matrix->view();
  return fmt::format("matrix {} of {} ({}, {} x {})", region.number, num_matrices_, kernels::info(view.type).name,
                     view.rows, view.k);
}

std::size_t WeightScan::next() {
  std::size_t seen = 0;
  while (region_ < checks_.regions_.size()) {
    const std::span<const std::byte> bytes = checks_.regions_[region_].bytes;
    const std::size_t size = std::min(kChecksumPiece, bytes.size() - done_);
    if (seen + size > kPieceBytes) break;
    pieces_.push_back(hash_piece(bytes.subspan(done_, size)));
    seen += size;
    done_ += size;
    if (done_ == bytes.size()) end_region();
  }
  return seen;
}

void WeightScan::end_region() {
  const WeightChecks::Region& region = checks_.regions_[region_];
  std::uint64_t found = join_pieces(pieces_, region.bytes.size());
  if (region.matrix) found = with_frame(found, *region.matrix);
  if (found != region.hash && !damage_) damage_ = checks_.describe(region);
  ++region_;
  done_ = 0;
  pieces_.clear();
}

}  // namespace troupe::engine
