// The candidate tokens of a draw, and the filters that remove some of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cache/ids.h"
#include "kernels/kernels.h"

namespace troupe::engine {

// Ids in ascending order, each with its logit and later its weight (exp of the scaled logit, not
// normalised). All filters keep that order, cut equal values by id (the lower one stays), always
// keep at least one, and are O(vocabulary): they find a threshold by radix selection instead of
// sorting. Not thread-safe. Allocates only when a vocabulary is larger than any before.
class Candidates {
 public:
  explicit Candidates(const kernels::KernelTable& kernels) : kernels_(&kernels) {}

  // Starts with all of `logits` (no NaN, no infinity; at least one), which must stay until to_weights().
  void assign(std::span<const float> logits);
  // Starts with the k largest of `logits`.
  void assign_top_k(std::span<const float> logits, std::size_t k);

  // Turns logits into weights exp((logit - max) * inv_temperature).
  void to_weights(float inv_temperature);

  // Keeps the smallest set of the largest weights with at least `top_p` of the sum.
  void keep_top_p(float top_p);
  // Keeps weights of at least min_p times the largest one.
  void keep_min_p(float min_p);

  // The id at which the cumulative weight, in ascending order of id, first exceeds u of the sum.
  // u in [0, 1). Sums run over tiles of kernels::kSoftmaxTile candidates, merged in order.
  [[nodiscard]] TokenId draw(double u) const;

  std::span<const TokenId> ids() const;
  std::span<const float> values() const { return source_; }

 private:
  double total() const;
  std::size_t size() const { return source_.size(); }
  void make_room(std::size_t count);
  // Keeps the values >= least.
  void keep_from(float least);
  void sum_tiles();
  float largest() const { return kernels_->arg_max(source_.data(), source_.size()).value; }

  const kernels::KernelTable* kernels_;
  std::span<const float> source_;      // the values: the caller's logits at first, then values_
  bool all_ = false;                   // the ids are 0, 1, 2 .. and not in ids_
  mutable std::vector<TokenId> ids_;   // sized for the largest vocabulary so far
  std::vector<float> values_;          // likewise
  std::vector<double> tile_sums_;      // of the weights
  std::vector<float> tile_maxima_;     // scratch of assign_top_k
  std::vector<float> sorted_maxima_;   // likewise
  std::vector<double> bucket_weight_;  // scratch of the selection
};

}  // namespace troupe::engine
