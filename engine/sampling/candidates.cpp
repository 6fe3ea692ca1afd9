#include "engine/sampling/candidates.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "config/assert.h"

namespace troupe::engine {
namespace {

// An unsigned number with the sort order of the float.
std::uint32_t sort_key(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value + 0.0f);  // -0 becomes +0
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// The threshold of a selection: keeps all values with a larger key, and the first `num_equal` (by id) of those with
// this key.
struct Cut {
  std::uint32_t key;
  std::size_t num_equal;
};

// Most significant digit first radix selection: finds the smallest set of the largest values with weights that sum to
// at least `target`. `weight(i)` is the weight of values[i]; sums run in ascending order of i within a bucket and in
// descending order of buckets. `buckets` is scratch.
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
    // Scans from the largest values down to the bucket that reaches the target; or, if rounding keeps the sum just
    // below it, to the last bucket that is not empty.
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

// Compacts both arrays to the elements for which keep(i) holds and returns their number. Branch-free: the CPU cannot
// predict which tokens pass, and a misprediction costs more than the two copies.
template <class Keep>
std::size_t compact(TokenId* ids, float* values, std::size_t count, Keep keep) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const bool keeps = keep(i);
    ids[kept] = ids[i];
    values[kept] = values[i];
    kept += keeps;
  }
  return kept;
}

std::size_t apply(Cut cut, TokenId* ids, float* values, std::size_t count) {
  return compact(ids, values, count, [&](std::size_t i) {
    const std::uint32_t key = sort_key(values[i]);
    const bool is_equal = (key == cut.key) & (cut.num_equal > 0);
    cut.num_equal -= is_equal;
    return (key > cut.key) | is_equal;
  });
}

constexpr std::size_t kMaxBuckets = 1u << 12;
constexpr std::size_t kMinTile = 64;  // smaller tiles do not pay for a call each

}  // namespace

std::span<const TokenId> Candidates::ids() const {
  if (all_) std::iota(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(size()), TokenId{0});
  return std::span(ids_).first(size());
}

void Candidates::make_room(std::size_t count) {
  if (values_.size() >= count) return;
  ids_.resize(count);
  values_.resize(count);
}

void Candidates::assign(std::span<const float> logits) {
  TROUPE_ASSERT(!logits.empty());
  make_room(logits.size());
  source_ = logits;
  all_ = true;
}

void Candidates::assign_top_k(std::span<const float> logits, std::size_t k) {
  TROUPE_ASSERT(k > 0);
  assign(logits);
  if (k >= logits.size()) return;
  bucket_weight_.resize(kMaxBuckets);
  // With k tiles or more, the k-th largest tile maximum is a lower bound of the k-th largest logit: for the usual k of
  // 40 one fast pass leaves little more than k of 128,000 logits.
  const std::size_t tile = std::min(kernels::kSoftmaxTile, logits.size() / (4 * k));
  if (tile >= kMinTile) {
    tile_maxima_.clear();
    for (std::size_t begin = 0; begin < logits.size(); begin += tile)
      tile_maxima_.push_back(kernels_->arg_max(logits.data() + begin, std::min(tile, logits.size() - begin)).value);
    sorted_maxima_ = tile_maxima_;
    const auto kth = sorted_maxima_.begin() + static_cast<std::ptrdiff_t>(k - 1);
    std::nth_element(sorted_maxima_.begin(), kth, sorted_maxima_.end(), std::greater<>());
    std::size_t kept = 0;
    for (std::size_t i = 0; i < tile_maxima_.size(); ++i) {
      if (tile_maxima_[i] < *kth) continue;
      const std::size_t begin = i * tile;
      kept += kernels_->collect(logits.data() + begin, std::min(tile, logits.size() - begin), *kth,
                                static_cast<TokenId>(begin), ids_.data() + kept, values_.data() + kept);
    }
    source_ = std::span(values_).first(kept);
    all_ = false;
  } else {
    keep_from(-std::numeric_limits<float>::infinity());
  }
  const Cut cut = find_cut(
      source_, static_cast<double>(k), [](std::size_t) { return 1.0; }, bucket_weight_);
  source_ = source_.first(apply(cut, ids_.data(), values_.data(), size()));
}

void Candidates::keep_from(float least) {
  std::size_t kept = 0;
  if (all_)
    kept = kernels_->collect(source_.data(), size(), least, 0, ids_.data(), values_.data());
  else
    kept = compact(ids_.data(), values_.data(), size(), [&](std::size_t i) { return values_[i] >= least; });
  source_ = std::span(values_).first(kept);
  all_ = false;
}

void Candidates::to_weights(float inv_temperature) {
  const float max = largest();
  tile_sums_.clear();
  for (std::size_t begin = 0; begin < size(); begin += kernels::kSoftmaxTile) {
    const std::size_t count = std::min(kernels::kSoftmaxTile, size() - begin);
    tile_sums_.push_back(
        kernels_->exp_tile(source_.data() + begin, max, inv_temperature, values_.data() + begin, count));
  }
  source_ = std::span(values_).first(size());
}

double Candidates::total() const {
  double sum = 0;
  for (const double tile : tile_sums_) sum += tile;
  return sum;
}

void Candidates::sum_tiles() {
  tile_sums_.clear();
  for (std::size_t begin = 0; begin < size(); begin += kernels::kSoftmaxTile) {
    const std::size_t end = std::min(size(), begin + kernels::kSoftmaxTile);
    double sum = 0;
    for (std::size_t i = begin; i < end; ++i) sum += values_[i];
    tile_sums_.push_back(sum);
  }
}

void Candidates::keep_top_p(float top_p) {
  const double sum = total();
  const double target = sum * static_cast<double>(top_p);
  // All tokens below this bound have together less than 1 - top_p of the sum, so none is needed (the factor allows for
  // rounding of the sums); the largest token always is.
  const float max = largest();
  auto bound = static_cast<float>(std::min(0.999 * (sum - target) / static_cast<double>(size()), double{max}));
  // Tokens below a higher bound are not needed either if those above it have more than enough weight: tries some bounds
  // between this one and the largest weight.
  if (size() > kernels::kSoftmaxTile && bound > 0) {
    const float step = std::sqrt(std::sqrt(std::sqrt(max / bound)));
    float least[kernels::kNumBounds];
    double above[kernels::kNumBounds] = {};
    float next = bound;
    for (float& value : least) value = next *= step;
    for (std::size_t begin = 0; begin < size(); begin += kernels::kSoftmaxTile) {
      float sums[kernels::kNumBounds];
      kernels_->sums_above(values_.data() + begin, std::min(kernels::kSoftmaxTile, size() - begin), least, sums);
      for (std::size_t i = 0; i < kernels::kNumBounds; ++i) above[i] += double{sums[i]};
    }
    for (std::size_t i = 0; i < kernels::kNumBounds; ++i)
      if (above[i] >= 1.001 * target) bound = least[i];
  }
  keep_from(bound);
  bucket_weight_.resize(kMaxBuckets);
  const Cut cut = find_cut(
      source_, target, [&](std::size_t i) { return static_cast<double>(values_[i]); }, bucket_weight_);
  source_ = source_.first(apply(cut, ids_.data(), values_.data(), size()));
  sum_tiles();
}

void Candidates::keep_min_p(float min_p) {
  keep_from(min_p * largest());
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
  const std::size_t end = std::min(size(), (tile + 1) * kernels::kSoftmaxTile);
  std::size_t last = 0;  // the last one with weight > 0, drawn if rounding keeps the sum below the target
  for (std::size_t i = tile * kernels::kSoftmaxTile; i < end; ++i) {
    if (values_[i] == 0) continue;
    sum += values_[i];
    last = i;
    if (sum > target) break;
  }
  return all_ ? static_cast<TokenId>(last) : ids_[last];
}

}  // namespace troupe::engine
