// The model families: one function each, in the file of the same name; families.cpp lists them.
#pragma once

#include "engine/model.h"

namespace troupe::engine {

Family llama_family();
Family qwen2_family();
Family qwen2moe_family();
Family qwen3_family();
Family qwen3moe_family();
Family phi3_family();
Family gemma2_family();
Family gemma3_family();
Family olmoe_family();
Family bitnet_family();
Family bitnet158_family();
Family bitnet25_family();  // both: bitnet158.cpp
Family falcon_h1_family();
Family mamba_family();
Family mamba2_family();
Family rwkv6_family();
Family rwkv7_family();

// The first family that accepts the file. Error: bad_model without an architecture, or unsupported (with the supported
// families).
[[nodiscard]] Result<const Family*> find_family(const ModelFile& file);

// Loads with that family. Error: as find_family, or from the family's load.
[[nodiscard]] Result<std::unique_ptr<Model>> load_model(const ModelFile& file, const ModelOptions& options);

}  // namespace troupe::engine
