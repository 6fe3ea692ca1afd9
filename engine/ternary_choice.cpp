#include "engine/ternary_choice.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <vector>

#include "engine/aligned_memory.h"
#include "engine/team.h"
#include "engine/weights_cache.h"

namespace troupe::engine {
namespace {

using kernels::Layout;

constexpr std::uint64_t kWorthMeasuring = 32u << 20;  // bytes of ternary weights
constexpr std::size_t kProbeBytes = 8u << 20;         // beyond the second-level caches of a few cores
constexpr int kProbeRuns = 7;
constexpr std::size_t kProbeRows[] = {1, 8};  // a stream alone, and some at once: the sum of both decides
constexpr std::size_t kMostRows = 8;
constexpr double kLeastGain = 0.98;  // of the time of multiply-adds, or nothing is won
constexpr std::size_t kChunksPerThread = 8;

// One of the candidates: a matrix whose panels are all the same.
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
    // No code is 3 in these bytes; scales, the last two bytes of TQ's groups, are some small number.
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
    const auto begin = std::chrono::steady_clock::now();
    for (const std::size_t rows : kProbeRows) {
      kernels_.prepare[static_cast<std::size_t>(activation_)](x_.data(), k_, k_, 0, rows, prepared_.data());
      const std::size_t chunks = team_.num_threads() * kChunksPerThread, panels = view_.num_panels();
      team_.parallel_for(chunks, [&](std::size_t chunk, std::uint32_t) {
        kernels_.matmul(view_.type, view_.layout)(view_, prepared_.data(), rows, out_.data(), view_.rows,
                                                  chunk * panels / chunks, (chunk + 1) * panels / chunks);
      });
    }
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

 private:
  const kernels::KernelTable& kernels_;
  Team& team_;
  kernels::Activation activation_;
  std::size_t k_;
  AlignedMemory body_, prepared_;
  kernels::MatrixView view_;
  std::vector<float> x_, out_;
};

std::string times_text(const TernaryTimes& times, Layout chosen) {
  char text[128];
  if (chosen == Layout::lookup)
    std::snprintf(
        text, sizeof text,
        "ternary weights: lookup tables, 1.75 bits: %.0f us for one row and eight against %.0f us of multiply-add",
        1e6 * times.lookup, 1e6 * times.multiply);
  else
    std::snprintf(
        text, sizeof text,
        "ternary weights: multiply-add, 2.1 bits: %.0f us for one row and eight against %.0f us of lookup tables",
        1e6 * times.multiply, 1e6 * times.lookup);
  return text;
}

}  // namespace

std::string_view name(Ternary ternary) {
  return ternary == Ternary::automatic ? "auto" : ternary == Ternary::multiply ? "multiply" : "lookup";
}

std::optional<Ternary> find_ternary(std::string_view wanted) {
  for (const Ternary ternary : {Ternary::automatic, Ternary::multiply, Ternary::lookup})
    if (name(ternary) == wanted) return ternary;
  return std::nullopt;
}

TernaryTimes time_ternary(const kernels::KernelTable& kernels, Team& team, kernels::WeightType type, std::size_t k) {
  const std::size_t num_panels =
      std::max<std::size_t>(1, kProbeBytes / kernels::packed_bytes(type, Layout::panels, kernels::kPanelRows, k));
  Candidate multiply(kernels, team, type, Layout::panels, k, num_panels);
  Candidate lookup(kernels, team, type, Layout::lookup, k, num_panels);
  if (!multiply.is_there() || !lookup.is_there()) return {0, 0};  // the model will not fit either, and says so
  TernaryTimes best{multiply.seconds(), lookup.seconds()};
  for (int run = 0; run < kProbeRuns; ++run) {
    best.multiply = std::min(best.multiply, multiply.seconds());
    best.lookup = std::min(best.lookup, lookup.seconds());
  }
  return best;
}

Result<Layout> choose_ternary_layout(const ModelFile& file, const ModelOptions& options) {
  const TensorInfo* largest = nullptr;
  std::uint64_t bytes = 0;
  for (const TensorInfo& tensor : file.tensors()) {
    if (!kernels::is_ternary(tensor.type) || tensor.rows() < 2) continue;
    bytes += tensor.bytes.size();
    if (!largest || tensor.bytes.size() > largest->bytes.size()) largest = &tensor;
  }
  if (!largest) return Layout::panels;
  if (!kernels::has_lookup(*options.kernels)) {
    if (options.ternary != Ternary::lookup) return Layout::panels;
    return Error{ErrorCode::unsupported, "the kernels '" + std::string(options.kernels->name) +
                                             "' have no lookup tables for ternary weights; use --ternary auto, or "
                                             "--kernels with another variant"};
  }
  if (options.ternary == Ternary::multiply) return Layout::panels;
  if (options.ternary == Ternary::lookup) return Layout::lookup;
  if (bytes < kWorthMeasuring || !kernels::has_layout(largest->type, Layout::lookup, largest->columns()))
    return Layout::panels;
  for (const Layout kept : {Layout::lookup, Layout::panels})
    if (WeightsCache::has_file(options.weights_cache, file, options.kernels->name, kept)) {
      if (options.notes)
        options.notes({.warning = false,
                       .text = std::string("ternary weights: ") +
                               (kept == Layout::lookup ? "lookup tables" : "multiply-add") + ", as they were kept"});
      return kept;
    }
  const TernaryTimes times = time_ternary(*options.kernels, *options.team, largest->type, largest->columns());
  const Layout chosen = times.lookup < kLeastGain * times.multiply ? Layout::lookup : Layout::panels;
  if (options.notes) options.notes({.warning = false, .text = times_text(times, chosen)});
  return chosen;
}

}  // namespace troupe::engine
