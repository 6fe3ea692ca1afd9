#include "engine/memory_budget.h"

#include <algorithm>

#include "engine/machine.h"
#include "engine/packed_matrix.h"

namespace troupe::engine {
namespace {

constexpr double kBudgetShare = 0.6;

}  // namespace

std::uint64_t default_memory_budget() {
  return static_cast<std::uint64_t>(kBudgetShare * static_cast<double>(available_memory()));
}

std::uint64_t packed_weight_bytes(const ModelFile& file, const kernels::KernelTable& kernels) {
  const bool has_head = file.find_tensor("output.weight") != nullptr;
  std::uint64_t bytes = 0;
  for (const TensorInfo& tensor : file.tensors()) {
    if (tensor.shape.size() == 2) {
      // An embedding that is not the head too is only looked up, in the file's own layout.
      const bool looked_up = has_head && tensor.name == "token_embd.weight";
      bytes += kPackedHeaderBytes +
               kernels::packed_bytes(tensor.type, looked_up ? kernels::Layout::file : kernels.layout(tensor.type),
                                     tensor.rows(), tensor.columns());
    } else if (tensor.shape.size() < 2) {
      bytes += tensor.columns() * sizeof(float);  // vectors are kept as float32
    } else {
      bytes += tensor.bytes.size();
    }
  }
  return bytes;
}

std::uint64_t blocks_that_fit(std::uint64_t budget, std::uint64_t weight_bytes, std::uint64_t bytes_per_block) {
  return (budget - std::min(budget, weight_bytes)) / bytes_per_block;
}

}  // namespace troupe::engine
