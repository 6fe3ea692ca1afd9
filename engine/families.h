// One function per family, in the family's own file; families.cpp lists them.
#pragma once

#include <string_view>

#include "engine/model.h"

namespace troupe::engine {

Family llama_family();     // family_llama.cpp
Family qwen2_family();     // family_qwen2.cpp
Family qwen2moe_family();  // family_qwen2moe.cpp
Family qwen3_family();     // family_qwen3.cpp
Family qwen3moe_family();  // family_qwen3moe.cpp
Family phi3_family();      // family_phi3.cpp
Family gemma2_family();    // family_gemma2.cpp
Family gemma3_family();    // family_gemma3.cpp
Family olmoe_family();     // family_olmoe.cpp
Family bitnet_family();    // family_bitnet.cpp
Family bitnet158_family();
Family bitnet25_family();   // both: family_bitnet158.cpp
Family falcon_h1_family();  // family_falcon_h1.cpp
Family mamba_family();      // family_mamba.cpp
Family mamba2_family();     // family_mamba2.cpp
Family rwkv6_family();      // family_rwkv6.cpp
Family rwkv7_family();      // family_rwkv7.cpp

// Whether the file says that it is of this architecture.
[[nodiscard]] bool architecture_is(const ModelFile& file, std::string_view name);

// Error: unsupported where the file is one of several that a model was split into: its tensors lie in the others, too.
[[nodiscard]] Status refuse_shard(const ModelFile& file);

// The first family that accepts the file. Error: bad_model without an architecture, or unsupported (with the families
// there are).
[[nodiscard]] Result<const Family*> find_family(const ModelFile& file);

// Loads with that family. Error: as find_family, or what the family says.
[[nodiscard]] Result<std::unique_ptr<Model>> load_model(const ModelFile& file, const ModelOptions& options);

}  // namespace troupe::engine
