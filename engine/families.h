// One function per family, in the family's own file; families.cpp lists them.
#pragma once

#include <string_view>

#include "engine/model.h"

namespace troupe::engine {

Family llama_family();   // family_llama.cpp
Family bitnet_family();  // family_bitnet.cpp
Family mamba_family();   // family_mamba.cpp
Family mamba2_family();  // family_mamba2.cpp
Family rwkv6_family();   // family_rwkv6.cpp
Family rwkv7_family();   // family_rwkv7.cpp

// Whether the file says that it is of this architecture.
[[nodiscard]] bool architecture_is(const ModelFile& file, std::string_view name);

// Loads with the first family that accepts the file. Error: unsupported (with the families there are),
// or what the family says.
[[nodiscard]] Result<std::unique_ptr<Model>> load_model(const ModelFile& file, const ModelOptions& options);

}  // namespace troupe::engine
