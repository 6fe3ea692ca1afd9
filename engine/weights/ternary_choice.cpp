#include "engine/weights/ternary_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <iterator>
#include <vector>

#include "engine/weights/timed_product.h"
#include "engine/weights/weights_cache.h"

namespace troupe::engine {
namespace {

using kernels::Layout;

constexpr std::uint64_t kWorthMeasuring = 32u << 20;  // bytes of ternary weights
constexpr double kLeastGain = 0.98;  // another layout must take less than this share of the time of multiply-adds

// The ways to multiply ternary weights, with their names in the option and the log; multiply-adds, which all kernels
// have, first.
struct Way {
  Ternary ternary;
  Layout layout;
  std::string_view name, words, bits;
};
constexpr Way kWays[] = {
    {Ternary::multiply, Layout::panels, "multiply", "multiply-add", "2.1 bits"},
    {Ternary::lookup, Layout::lookup, "lookup", "lookup tables", "1.75 bits"},
    {Ternary::trits, Layout::trits, "trits", "packed trits", "1.6 bits"},
};

const Way& way_of(Layout layout) { return *std::ranges::find(kWays, layout, &Way::layout); }
const Way& way_of(Ternary ternary) { return *std::ranges::find(kWays, ternary, &Way::ternary); }

bool has_way(const kernels::KernelTable& kernels, const Way& way) {
  return way.layout == Layout::panels || kernels::has_ternary_layout(kernels, way.layout);
}
std::ptrdiff_t num_ways(const kernels::KernelTable& kernels) {
  return std::ranges::count_if(kWays, [&](const Way& way) { return has_way(kernels, way); });
}

// The fastest layout, but multiply-adds unless the gain is large enough.
Layout fastest(const std::vector<TernaryTime>& times) {
  const TernaryTime& best = *std::ranges::min_element(times, {}, &TernaryTime::seconds);
  return best.seconds < kLeastGain * times[0].seconds ? best.layout : times[0].layout;
}

std::string times_text(const std::vector<TernaryTime>& times, Layout chosen) {
  const Way& way = way_of(chosen);
  std::string own, others;
  for (const TernaryTime& time : times) {
    const long us = std::lround(1e6 * time.seconds);
    if (time.layout == chosen)
      own = fmt::format("{} us for one row and eight", us);
    else
      others += fmt::format("{}{} us of {}", others.empty() ? " against " : " and ", us, way_of(time.layout).words);
  }
  return fmt::format("{}, {}: {}{}", way.words, way.bits, own, others);
}

}  // namespace

std::string_view name(Ternary ternary) { return ternary == Ternary::automatic ? "auto" : way_of(ternary).name; }

std::optional<Ternary> find_ternary(std::string_view wanted) {
  if (wanted == name(Ternary::automatic)) return Ternary::automatic;
  for (const Way& way : kWays)
    if (way.name == wanted) return way.ternary;
  return std::nullopt;
}

std::vector<TernaryTime> time_ternary(const kernels::KernelTable& kernels, Team& team, kernels::WeightType type,
                                      std::size_t k) {
  std::vector<TernaryTime> times;
  std::deque<TimedProduct> products;
  for (const Way& way : kWays) {
    if (!has_way(kernels, way) || !kernels::has_layout(type, way.layout, k)) continue;
    if (!products.emplace_back(kernels, team, type, way.layout, k).is_there())
      return {{Layout::panels, 0}};  // the model will not fit either; its load reports it
    times.push_back({way.layout, 0});
  }
  time_in_turn(products);
  for (std::size_t i = 0; i < times.size(); ++i) times[i].seconds = products[i].seconds();
  return times;
}

Result<Layout> choose_ternary_layout(const ModelFile& file, const LoadOptions& options) {
  const TensorInfo* largest = nullptr;
  std::uint64_t bytes = 0;
  for (const TensorInfo& tensor : file.tensors()) {
    if (!kernels::is_ternary(tensor.type) || tensor.rows() < 2) continue;
    bytes += tensor.bytes.size();
    if (!largest || tensor.bytes.size() > largest->bytes.size()) largest = &tensor;
  }
  if (!largest) return Layout::panels;
  if (options.ternary.value_or(Ternary::automatic) != Ternary::automatic) {
    const Way& way = way_of(*options.ternary);
    if (has_way(kernels_of(options), way)) return way.layout;
    return Error{ErrorCode::unsupported,
                 fmt::format("the kernels '{}' have no {} for ternary weights; use --ternary auto, or --kernels with "
                             "another variant",
                             options.kernels, way.words)};
  }
  if (num_ways(kernels_of(options)) == 1 || bytes < kWorthMeasuring) return Layout::panels;
  const auto say = [&](const std::string& text) {
    if (options.notes) options.notes({.warning = false, .text = "ternary weights: " + text});
  };
  for (auto way = std::rbegin(kWays); way != std::rend(kWays); ++way)
    if (WeightsCache::has_file(options.weights_cache, file, options.kernels, way->layout)) {
      say(fmt::format("{}, as they were kept", way->words));
      return way->layout;
    }
  const auto times = time_ternary(kernels_of(options), *options.team, largest->type, largest->columns());
  const Layout chosen = fastest(times);
  say(times_text(times, chosen));
  return chosen;
}

}  // namespace troupe::engine
