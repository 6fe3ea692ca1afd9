#include "engine/weights/timed_product.h"

#include <algorithm>
#include <chrono>

#include "engine/compute/team.h"

namespace troupe::engine {
namespace {

constexpr std::size_t kMatrixBytes = 8u << 20;
constexpr int kTimedRuns = 8;  // the first warms up
constexpr std::size_t kTimedRows[] = {1, 8};
constexpr std::size_t kMostRows = 8;
constexpr std::size_t kPartsPerThread = 8;

}  // namespace

TimedProduct::TimedProduct(const kernels::KernelTable& kernels, Team& team, kernels::WeightType type,
                           kernels::Layout layout, std::size_t k)
    : kernels_(kernels), team_(team), activation_(kernels.activation(type, layout)), k_(k) {
  const std::size_t panel_bytes = kernels::packed_bytes(type, layout, kernels::kPanelRows, k);
  const std::size_t num_panels = std::max<std::size_t>(1, kMatrixBytes / panel_bytes);
  body_ = AlignedMemory::allocate(num_panels * panel_bytes);
  prepared_ = AlignedMemory::allocate(kernels::prepared_bytes(activation_, k, kernels::kRowsPerTile) + 64);
  if (!is_there()) return;
  const kernels::WeightTypeInfo& t = kernels::info(type);
  // These bytes are small numbers as scales, and no code 3 of ternary types.
  const std::vector<std::byte> rows(kernels::kPanelRows * k / t.group_size * t.group_bytes, std::byte{0x24});
  team.parallel_for(num_panels, [&](std::size_t panel, std::uint32_t) {
    kernels::pack_panels(type, layout, rows.data(), kernels::kPanelRows, k, 0, 1, body_.data() + panel * panel_bytes);
  });
  view_ = {.type = type, .layout = layout, .rows = num_panels * kernels::kPanelRows, .k = k, .body = body_.data()};
  x_.assign(kMostRows * k, 1.0f);
  out_.resize(kMostRows * view_.rows);
}

void TimedProduct::run() {
  if (!is_there()) return;
  double sum = 0;
  for (const std::size_t rows : kTimedRows) {
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
  best_ = std::min(best_, sum);
}

template <class Work>
void TimedProduct::for_each_chunk(const Work& work) {
  const std::size_t chunks = team_.num_threads() * kPartsPerThread, panels = view_.num_panels();
  team_.parallel_for(
      chunks, [&](std::size_t chunk, std::uint32_t) { work(chunk * panels / chunks, (chunk + 1) * panels / chunks); });
}

void time_in_turn(std::deque<TimedProduct>& products) {
  for (int run = 0; run < kTimedRuns; ++run)
    for (TimedProduct& product : products) product.run();
}

}  // namespace troupe::engine
