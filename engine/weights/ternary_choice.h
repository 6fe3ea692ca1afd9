// Chooses the layout of a model's ternary weights: from the options, from the weights cache, or by measurement.
#pragma once

#include <vector>

#include "engine/formats/model_file.h"
#include "engine/model.h"

namespace troupe::engine {

// Times the product of one row, then of eight rows, with a matrix of ternary weights, rounding included, in each layout
// that the kernels have, panels first. One and eight rows, because a server runs both single streams and batches.
// `seconds` is the fastest of several rounds; the layouts alternate so that other load affects all alike.
struct TernaryTime {
  kernels::Layout layout;
  double seconds;
};
[[nodiscard]] std::vector<TernaryTime> time_ternary(const kernels::KernelTable& kernels, Team& team,
                                                    kernels::WeightType type, std::size_t k);

// Layout::panels, lookup or trits for the ternary weights of `file`; panels, without meaning, if the kernels have only
// these or the file has no ternary weights. Measures, with a note in the log, only if the options name no layout, the
// weights cache has none, and the weights do not fit the CPU caches (then all layouts are equally fast). Error:
// unsupported, if the options name a layout that the kernels do not have.
[[nodiscard]] Result<kernels::Layout> choose_ternary_layout(const ModelFile& file, const LoadOptions& options);

}  // namespace troupe::engine
