// Checksums of a model's resident weights, to find bytes that have changed in memory since the model was loaded
// (Hochschild et al., "Cores that don't count", 2021; Dixit et al., "Silent Data Corruptions at Scale", 2021).
//
//   WeightChecks checks;
//   checks.add(*model);                       // once it is loaded
//   WeightScan scan(checks);
//   while (scan.next()) {}                    // piece by piece, at any pace
//   if (scan.damage()) ...                    // "matrix 17 of 156 (Q4_K, 2048 x 5632)"
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/weights/weight_visitor.h"

namespace troupe::engine {

class Encoder;
class Model;

// Refers to the models that were added, which must outlive it and stay where they are. Immutable once they are. A
// matrix's checksum is that of the moment when it was packed, or read from the weights cache; those of vectors and
// tables are taken when their model is added, O(their bytes).
class WeightChecks final : private WeightVisitor {
 public:
  template <class WithWeights>  // Model, Encoder
  void add(const WithWeights& model) {
    model.visit_weights(*this);
  }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

 private:
  friend class WeightScan;
  // A matrix's body, or a vector.
  struct Region {
    std::span<const std::byte> bytes;
    std::uint64_t hash = 0;
    const PackedMatrix* matrix = nullptr;  // null: a vector
    std::size_t number = 0;                // among the matrices, or the vectors, from 1 on
  };
  void matrix(const PackedMatrix& matrix) override;
  void vector(std::span<const float> numbers) override;
  [[nodiscard]] std::string describe(const Region& region) const;

  std::vector<Region> regions_;
  std::uint64_t bytes_ = 0;
  std::size_t num_matrices_ = 0, num_vectors_ = 0;
};

// One pass over all of them. Used by one thread; any number of scans may run beside steps. Only reads.
class WeightScan {
 public:
  explicit WeightScan(const WeightChecks& checks) : checks_(checks) {}

  // Looks at some more bytes, at most kPieceBytes of weights: some 100 us of memory bandwidth. Returns how many; 0 once
  // all are seen.
  static constexpr std::size_t kPieceBytes = kChecksumPiece;
  std::size_t next();
  // What first differed from its checksum; none so far.
  [[nodiscard]] const std::optional<std::string>& damage() const { return damage_; }

 private:
  void end_region();

  const WeightChecks& checks_;
  std::size_t region_ = 0;
  std::size_t done_ = 0;               // bytes of it
  std::vector<std::uint64_t> pieces_;  // hashes of these
  std::optional<std::string> damage_;
};

}  // namespace troupe::engine
