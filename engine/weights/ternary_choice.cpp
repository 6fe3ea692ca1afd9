#include "engine/weights/ternary_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <deque>
#include <iterator>
#include <limits>
#include <vector>

#include "engine/compute/team.h"
#include "engine/memory/aligned_memory.h"
#include "engine/weights/weights_cache.h"

namespace troupe::engine {
namespace {

using kernels::Layout;

constexpr std::uint64_t kWorthMeasuring = 32u << 20;  // bytes of ternary weights
constexpr std::size_t kProbeBytes = 8u << 20;         // of the measured matrix, read from memory
constexpr int kProbeRuns = 7;
constexpr std::size_t kProbeRows[] = {1, 8};  // a single stream, and a batch: the sum of both times decides
constexpr std::size_t kMostRows = 8;
constexpr double kLeastGain = 0.98;  // another layout must take less than this share of the time of multiply-adds
constexpr std::size_t kProbeChunksPerThread = 8;

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

// A layout to measure: a matrix of equal panels.
class Candidate {
 public:
  Candidate(const kernels::KernelTable& kernels, Team& team, kernels::WeightType type, Layout layout, std::size_t k,
            std::size_t num_panels)
      : kernels_(kernels), team_(team), activation_(kernels.activation(type, layout)), k_(k) {
    const std::size_t panel_bytes = kernels::packed_bytes(type, layout, kernels::kPanelRows, k);
    body_ = AlignedMemory::allocate(num_panels * panel_bytes);
    prepared_ = AlignedMemory::allocate(kernels::prepared_bytes(activation_, k, kMostRows) + 64);
    if (!is_there()) return;
    const kernels::WeightTypeInfo& t = kernels::info(type);
    // These bytes hold no code 3; scales, the last two bytes of TQ's groups, are a small number.
    const std::vector<std::byte> rows(kernels::kPanelRows * k / t.group_size * t.group_bytes, std::byte{0x24});
    team.parallel_for(num_panels, [&](std::size_t panel, std::uint32_t) {
      kernels::pack_panels(type, layout, rows.data(), kernels::kPanelRows, k, 0, 1, body_.data() + panel * panel_bytes);
    });
    view_ = {.type = type, .layout = layout, .rows = num_panels * kernels::kPanelRows, .k = k, .body = body_.data()};
    x_.assign(kMostRows * k, 1.0f);
    out_.resize(kMostRows * view_.rows);
  }

  bool is_there() const { return body_.data() != nullptr && prepared_.data() != nullptr; }

  double seconds() {
    double sum = 0;
    for (const std::size_t rows : kProbeRows) {
      for_each_chunk([&](std::size_t begin, std::size_t end) {
        const kernels::MatrixView panels = kernels::panel_range(view_, begin, end);
        kernels::leave_caches(panels.body, kernels::packed_bytes(panels.type, panels.layout, panels.rows, k_));
      });
      const auto begin = std::chrono::steady_clock::now();
      kernels_.prepare[static_cast<std::size_t>(activation_)](x_.data(), k_, k_, 0, rows, prepared_.data());
      for_each_chunk([&](std::size_t first, std::size_t end) {
        kernels_.matmul(view_.type, view_.layout)(view_, prepared_.data(), rows, out_.data(), view_.rows, first, end);
      });
      sum += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    }
    return sum;
  }

 private:
  template <class Work>
  void for_each_chunk(const Work& work) {
    const std::size_t chunks = team_.num_threads() * kProbeChunksPerThread, panels = view_.num_panels();
    team_.parallel_for(chunks, [&](std::size_t chunk, std::uint32_t) {
      work(chunk * panels / chunks, (chunk + 1) * panels / chunks);
    });
  }

  const kernels::KernelTable& kernels_;
  Team& team_;
  kernels::Activation activation_;
  std::size_t k_;
  AlignedMemory body_, prepared_;
  kernels::MatrixView view_;
  std::vector<float> x_, out_;
};

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
  const std::size_t num_panels =
      std::max<std::size_t>(1, kProbeBytes / kernels::packed_bytes(type, Layout::panels, kernels::kPanelRows, k));
  std::vector<TernaryTime> best;
  std::deque<Candidate> candidates;
  for (const Way& way : kWays) {
    if (!has_way(kernels, way) || !kernels::has_layout(type, way.layout, k)) continue;
    const Candidate& candidate = candidates.emplace_back(kernels, team, type, way.layout, k, num_panels);
    if (!candidate.is_there()) return {{Layout::panels, 0}};  // the model will not fit either; its load reports it
    best.push_back({way.layout, std::numeric_limits<double>::infinity()});
  }
  for (int run = 0; run < kProbeRuns + 1; ++run)  // the first round warms up
    for (std::size_t i = 0; i < best.size(); ++i) best[i].seconds = std::min(best[i].seconds, candidates[i].seconds());
  return best;
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
