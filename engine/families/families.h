// Finds the family of a model file; families.cpp lists all of them.
#pragma once

#include "engine/model.h"

namespace troupe::engine {

// The first family that accepts the file. Error: bad_model without an architecture, or unsupported (with the supported
// families).
[[nodiscard]] Result<const Family*> find_family(const ModelFile& file);

// Loads with that family. Error: as find_family, or from the family's load.
[[nodiscard]] Result<std::unique_ptr<Model>> load_model(const ModelFile& file, const ModelOptions& options);

}  // namespace troupe::engine
