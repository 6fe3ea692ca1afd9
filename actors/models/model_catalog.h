// What is known of a model before anything of it is loaded: each file is opened and its metadata read once, when the
// server starts or is asked to load it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/gateway_options.h"
#include "actors/models/memory_budget.h"
#include "config/result.h"
#include "engine/formats/model_file.h"

namespace troupe::actors {

struct CatalogEntry {
  ModelSource source{};
  std::string name{};  // what clients call it: never empty
  // Open until the model is loaded; null: a file could not be opened, or there is none.
  std::shared_ptr<const engine::ModelFile> file{};
  std::shared_ptr<const engine::ModelFile> draft_file{};
  MemoryDemand demand{};
  config::ModelDefaults defaults{};  // of the source, and what they lack from the file
  std::vector<std::string> notes{};  // what in the file is not taken over
  std::optional<Error> problem{};    // why the model cannot be loaded
};

// Opens the source's files. A source without a path is a model that is given to its unit (tests). The problem is one
// that metadata shows: model_missing, bad_model, unsupported, invalid_argument (a kernel variant, the context). Reads
// metadata only; nothing of a source that was described, whose entry has no files.
[[nodiscard]] CatalogEntry describe(ModelSource source);

// Its name, then its aliases.
[[nodiscard]] std::vector<std::string> names_of(const CatalogEntry& entry);
// The first of these names that is there a second time; empty: each is there once.
[[nodiscard]] std::string twice_in(const std::vector<std::string>& names);

}  // namespace troupe::actors
