#include "engine/memory_budget.h"

#include <string>

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
    if (tensor.shape.size() < 2 || (tensor.shape.size() > 2 && tensor.shape[1] == 1)) {
      bytes += tensor.columns() * tensor.rows() * sizeof(float);  // vectors, or several in one, are kept as float32
      continue;
    }
    // An embedding that is not the head too is only looked up, in the file's own layout.
    const bool looked_up = has_head && tensor.name == "token_embd.weight";
    const kernels::Layout layout = looked_up ? kernels::Layout::file : kernels.layout(tensor.type);
    // Each of several matrices in one tensor, such as experts, is packed by itself.
    const std::uint64_t num_matrices = tensor.rows() / tensor.shape[1];
    bytes += num_matrices *
             (kPackedHeaderBytes + kernels::packed_bytes(tensor.type, layout, tensor.shape[1], tensor.columns()));
  }
  return bytes;
}

}  // namespace troupe::engine
