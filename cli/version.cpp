#include "cli/version.h"

#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/exit_code.h"
#include "cli/output.h"
#include "cli/subcommands.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/kernels.h"

namespace troupe::cli {

Result<int> version(const config::VersionOptions& options) {
  nlohmann::ordered_json kernels = nlohmann::json::array();
  std::string names;
  for (const kernels::KernelTable* table : kernels::supported_tables()) {
    kernels.push_back(table->name);
    names += (names.empty() ? "" : ", ") + std::string(table->name);
  }
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
  std::cout << "troupe " << kVersionAndCommit << '\n'
            << "compiler  " << kCompiler << ", " << kBuildType << '\n'
            << "kernels   " << names << " (best: " << best << ")\n"
            << (refusal.empty() ? "" : "          not amx: " + refusal + "\n") << "recipes   version "
            << kernels::kRecipeVersion << '\n';
  return kExitOk;
}

}  // namespace troupe::cli
