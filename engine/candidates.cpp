#include "engine/candidates.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "config/assert.h"

namespace troupe::engine {
namespace {

// An unsigned number that sorts as the float does.
std::uint32_t sort_key(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value + 0.0f);  // -0 becomes +0
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// Where a selection ends: all values with a larger key are in, and the first `num_equal` (by id) of
// those with this key.
struct Cut {
  std::uint32_t key;
  std::size_t num_equal;
};

// Most significant digit first radix selection: finds the smallest set of the largest values whose
// weights sum to at least `target`. `weight(i)` is the weight of values[i]; sums run in ascending
// order of i within a bucket and in descending order of buckets. `buckets` is scratch.
template <class Weight>
Cut find_cut(std::span<const float> values, double target, Weight weight, std::vector<double>& buckets) {
  constexpr int kBits[] = {12, 10, 10};
  std::uint32_t prefix = 0;
  int shift = 32;
  double above = 0;  // weight of all values above the current prefix
  for (const int bits : kBits) {
    const int prefix_shift = shift;
    shift -= bits;
    const std::uint32_t num_buckets = 1u << bits;
    std::fill_n(buckets.begin(), num_buckets, 0.0);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::uint64_t key = sort_key(values[i]);
      if (key >> prefix_shift == prefix) buckets[(key >> shift) & (num_buckets - 1)] += weight(i);
    }
    // Down from the largest values to the bucket where the target is reached; or, if rounding put it
    // just out of reach, to the last one that holds anything.
    std::uint32_t chosen = 0;
    double sum = above;
    for (std::uint32_t bucket = num_buckets; bucket-- > 0 && sum < target;) {
      if (buckets[bucket] == 0) continue;
      above = sum;
      sum += buckets[bucket];
      chosen = bucket;
    }
    prefix = prefix << bits | chosen;
  }
  Cut cut{prefix, 0};
  for (std::size_t i = 0; i < values.size() && (cut.num_equal == 0 || above < target); ++i) {
    if (sort_key(values[i]) != cut.key) continue;
    above += weight(i);
    ++cut.num_equal;
  }
  return cut;
}

// Compacts both arrays to the elements for which keep(i) holds. Without a branch: which tokens pass
// is as good as random to the CPU, and a misprediction costs more than the two copies.
template <class Keep>
void compact(std::vector<TokenId>& ids, std::vector<float>& values, Keep keep) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const bool keeps = keep(i);
    ids[kept] = ids[i];
    values[kept] = values[i];
    kept += keeps;
  }
  ids.resize(kept);
  values.resize(kept);
}

void apply(Cut cut, std::vector<TokenId>& ids, std::vector<float>& values) {
  compact(ids, values, [&](std::size_t i) {
    const std::uint32_t key = sort_key(values[i]);
    const bool is_equal = (key == cut.key) & (cut.num_equal > 0);
    cut.num_equal -= is_equal;
    return (key > cut.key) | is_equal;
  });
}

constexpr std::size_t kMaxBuckets = 1u << 12;

}  // namespace

void Candidates::assign(std::span<const float> logits) {
  TROUPE_ASSERT(!logits.empty());
  values_.assign(logits.begin(), logits.end());
  ids_.resize(logits.size());
  for (std::size_t i = 0; i < ids_.size(); ++i) ids_[i] = static_cast<TokenId>(i);
}

void Candidates::assign_top_k(std::span<const float> logits, std::size_t k) {
  TROUPE_ASSERT(k > 0);
  if (k >= logits.size()) return assign(logits);
  bucket_weight_.resize(kMaxBuckets);
  // With k tiles or more, the k-th largest of their maxima bounds the k-th largest logit from below:
  // for the usual k of 40 one fast pass leaves little more than k of 128,000.
  float bound = logits[0];
  tile_maxima_.clear();
  for (std::size_t begin = 0; begin < logits.size(); begin += kernels::kSoftmaxTile) {
    const std::size_t count = std::min(kernels::kSoftmaxTile, logits.size() - begin);
    tile_maxima_.push_back(kernels_->arg_max(logits.data() + begin, count).value);
  }
  const bool bounded = k <= tile_maxima_.size();
  if (bounded) {
    const auto kth = tile_maxima_.begin() + static_cast<std::ptrdiff_t>(k - 1);
    std::nth_element(tile_maxima_.begin(), kth, tile_maxima_.end(), std::greater<>());
    bound = *kth;
  }
  ids_.clear();
  values_.clear();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (bounded && logits[i] < bound) continue;  // nearly always, so predicted
    ids_.push_back(static_cast<TokenId>(i));
    values_.push_back(logits[i]);
  }
  apply(find_cut(
            values_, static_cast<double>(k), [](std::size_t) { return 1.0; }, bucket_weight_),
        ids_, values_);
}

void Candidates::to_weights(float inv_temperature) {
  const float max = kernels_->arg_max(values_.data(), values_.size()).value;
  tile_sums_.clear();
  for (std::size_t begin = 0; begin < values_.size(); begin += kernels::kSoftmaxTile) {
    const std::size_t count = std::min(kernels::kSoftmaxTile, values_.size() - begin);
    float* const tile = values_.data() + begin;
    tile_sums_.push_back(kernels_->exp_tile(tile, max, inv_temperature, tile, count));
  }
}

double Candidates::total() const {
  double sum = 0;
  for (const double tile : tile_sums_) sum += tile;
  return sum;
}

void Candidates::sum_tiles() {
  tile_sums_.clear();
  for (std::size_t begin = 0; begin < values_.size(); begin += kernels::kSoftmaxTile) {
    const std::size_t end = std::min(values_.size(), begin + kernels::kSoftmaxTile);
    double sum = 0;
    for (std::size_t i = begin; i < end; ++i) sum += values_[i];
    tile_sums_.push_back(sum);
  }
}

void Candidates::keep_top_p(float top_p) {
  const double sum = total();
  const double target = sum * static_cast<double>(top_p);
  // Tokens below this bound hold less than 1 - top_p of the sum together, so none is needed (the
  // factor leaves room for the rounding of the sums); the largest always is.
  const float max = kernels_->arg_max(values_.data(), values_.size()).value;
  const double bound = std::min(0.999 * (sum - target) / static_cast<double>(values_.size()), static_cast<double>(max));
  compact(ids_, values_, [&](std::size_t i) { return values_[i] >= bound; });
  bucket_weight_.resize(kMaxBuckets);
  apply(find_cut(
            values_, target, [&](std::size_t i) { return static_cast<double>(values_[i]); }, bucket_weight_),
        ids_, values_);
  sum_tiles();
}

void Candidates::keep_min_p(float min_p) {
  const float bound = min_p * kernels_->arg_max(values_.data(), values_.size()).value;
  compact(ids_, values_, [&](std::size_t i) { return values_[i] >= bound; });
  sum_tiles();
}

TokenId Candidates::draw(double u) const {
  const double target = u * total();
  double sum = 0;
  std::size_t tile = 0;
  for (std::size_t next = 0; next < tile_sums_.size(); ++next) {
    if (tile_sums_[next] == 0) continue;
    tile = next;
    if (sum + tile_sums_[next] > target) break;
    sum += tile_sums_[next];
  }
  const std::size_t end = std::min(values_.size(), (tile + 1) * kernels::kSoftmaxTile);
  std::size_t last = 0;  // the last one with any weight: where rounding may leave us
  for (std::size_t i = tile * kernels::kSoftmaxTile; i < end; ++i) {
    if (values_[i] == 0) continue;
    sum += values_[i];
    last = i;
    if (sum > target) break;
  }
  return ids_[last];
}

}  // namespace troupe::engine
