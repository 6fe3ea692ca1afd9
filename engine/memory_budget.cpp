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
    const bool is_experts = tensor.shape.size() == 3 && tensor.name.find("_exps.") != std::string::npos;
    if (tensor.shape.size() == 2 || is_experts) {
      // An embedding that is not the head too is only looked up, in the file's own layout.
      const bool looked_up = has_head && tensor.name == "token_embd.weight";
      const std::uint64_t num_matrices = is_experts ? tensor.shape[2] : 1;
      bytes += num_matrices *
               (kPackedHeaderBytes +
                kernels::packed_bytes(tensor.type, looked_up ? kernels::Layout::file : kernels.layout(tensor.type),
                                      tensor.rows() / num_matrices, tensor.columns()));
    } else {
      bytes += tensor.columns() * tensor.rows() * sizeof(float);  // vectors are kept as float32
    }
  }
  return bytes;
}

}  // namespace troupe::engine
