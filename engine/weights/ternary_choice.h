// Which of the layouts of ternary weights a model gets: asked for, as they were kept, or measured.
#pragma once

#include <vector>

#include "engine/formats/model_file.h"
#include "engine/model.h"

namespace troupe::engine {

// Seconds that one row and then eight rows take, their rounding included, times a matrix of the type's weights in each
// layout that the kernels have for them, panels first: a server has a stream alone as well as some at once. The fastest
// of several runs, in turns: others disturb all alike.
struct TernaryTime {
  kernels::Layout layout;
  double seconds;
};
[[nodiscard]] std::vector<TernaryTime> time_ternary(const kernels::KernelTable& kernels, Team& team,
                                                    kernels::WeightType type, std::size_t k);

// Layout::panels, lookup or trits, for the ternary weights of `file`; where the kernels have no choice, or the file no
// such weights, panels, which then says nothing. Measures, and says so in a note, only where nobody asked for one of
// them, the cache keeps none, and the weights are too many for caches: where they fit in there, the first is as good.
// Error: unsupported, if one was asked for that the kernels do not have.
[[nodiscard]] Result<kernels::Layout> choose_ternary_layout(const ModelFile& file, const ModelOptions& options);

}  // namespace troupe::engine
