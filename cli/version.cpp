#include "cli/version.h"

#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <vector>

#include "cli/subcommands.h"
#include "cli/terminal/exit_code.h"
#include "cli/terminal/output.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/kernels.h"

namespace troupe::cli {

Result<int> version(const config::VersionOptions& options) {
  std::vector<std::string_view> kernels;
  for (const kernels::KernelTable* table : kernels::supported_tables()) kernels.push_back(table->name);
  const std::string_view best = kernels::best_table().name;
  const std::string refusal = kernels::amx_refusal();
  if (options.json) {
    const nlohmann::ordered_json object{
        {"version", kVersion},
        {"commit", kCommit},
        {"compiler", kCompiler},
        {"build_type", kBuildType},
        {"kernels", kernels},
        {"best_kernels", best},
        {"amx_refusal", refusal.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(refusal)},
        {"recipe_version", kernels::kRecipeVersion},
    };
    write_json(object, std::cout);
    return kExitOk;
  }
  std::cout << fmt::format("troupe {}\ncompiler  {}, {}\nkernels   {} (best: {})\n{}recipes   version {}\n",
                           kVersionAndCommit, kCompiler, kBuildType, fmt::join(kernels, ", "), best,
                           refusal.empty() ? "" : "          not amx: " + refusal + "\n", kernels::kRecipeVersion);
  return kExitOk;
}

}  // namespace troupe::cli
