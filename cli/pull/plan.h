// What a pull would fetch: asks the hub or the registry, and chooses a quantization that fits this machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/pull/network.h"
#include "cli/pull/transfer.h"
#include "cli/store/model_source.h"
#include "cli/store/record.h"
#include "cli/store/store.h"
#include "config/result.h"

namespace troupe::cli {

struct FitRequest {
  std::uint64_t memory = 0;           // 0: as a server would have
  std::uint32_t context = 0;          // 0: kChoiceContext, or what it was trained for if that is less
  std::uint64_t max_store_bytes = 0;  // 0: any; of what is read to choose
};
inline constexpr std::uint32_t kChoiceContext = 8192;

struct PullPlan {
  StoredModel model;  // without files
  std::vector<WantedFile> files;
  std::string why;  // this quantization; empty: there was no choice

  [[nodiscard]] std::uint64_t bytes() const;  // 0: not known
};

// Error: of the network, of choose_named() and choose_fitting(); unsupported: nothing there is a GGUF model.
[[nodiscard]] Result<PullPlan> make_plan(const Store& store, Network& network, const ModelSource& source,
                                         const ModelHosts& hosts, const FitRequest& fit);

// Whether a server would take the model: metadata, tensors' names and shapes, vocabulary, as `troupe serve --check`
// judges it. Its family. Error: bad_model, unsupported, invalid_argument.
[[nodiscard]] Result<std::string> judge_model(const std::string& path);

}  // namespace troupe::cli
