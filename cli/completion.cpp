// troupe completion: prints the script that completes commands in a shell.
#include "config/options/completion.h"

#include <fmt/format.h>

#include <iostream>

#include "cli/subcommands.h"
#include "cli/terminal/exit_code.h"
#include "config/printable.h"
#include "engine/drafting/speculation.h"
#include "engine/layers/pooling.h"
#include "kernels/kernels.h"

namespace troupe::cli {
namespace {

// The values of options that lower folders know.
config::ValueNames value_names() {
  config::ValueNames names;
  names["spec-type"].assign(engine::kDraftSourceNames.begin(), engine::kDraftSourceNames.end());
  for (const engine::Pooling pooling : {engine::Pooling::mean, engine::Pooling::cls, engine::Pooling::last})
    names["pooling"].emplace_back(engine::name(pooling));
  for (const kernels::KernelTable* table : kernels::all_tables()) names["kernels"].emplace_back(table->name);
  names["compare-kernels"] = names["kernels"];
  names["compare-kernels"].emplace_back("same");
  return names;
}

}  // namespace

Result<int> completion(const config::Given& given) {
  if (given.arguments.size() != 1)
    return Error{ErrorCode::invalid_argument, "it takes the name of a shell: bash, zsh or fish"};
  const std::string& shell = given.arguments.front();
  const std::string script = config::completion(shell, value_names());
  if (script.empty())
    return Error{ErrorCode::invalid_argument,
                 fmt::format("there is no completion for '{}', only for bash, zsh and fish", Printable(shell).text())};
  std::cout << script;
  return kExitOk;
}

}  // namespace troupe::cli
