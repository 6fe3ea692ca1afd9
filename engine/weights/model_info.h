// What files of every family say of themselves, and the limits of it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/formats/metadata.h"
#include "engine/model.h"

namespace troupe::engine {

// Beyond these a file is refused before memory is given for what it claims; docs/limits.md lists them.
inline constexpr std::int64_t kMaxLayers = 1024;
inline constexpr std::int64_t kMaxDim = 1 << 18;
inline constexpr std::int64_t kMaxFfnDim = 1 << 20;
inline constexpr std::int64_t kMaxHeads = 1024;
inline constexpr std::int64_t kMaxHeadDim = 1024;
inline constexpr std::int64_t kMaxContext = 1 << 24;

// Name, weight types and parameters; layers, dimension, contexts and pooling. What else there is, is the families' own.
// A context that is asked for, above kMaxContext, is an invalid_argument.
[[nodiscard]] ModelInfo read_model_info(const ModelFile& file, const std::string& family, Metadata& meta,
                                        const ModelOptions& options);

// Whether the file says that it is of this architecture.
[[nodiscard]] bool architecture_is(const ModelFile& file, std::string_view name);

// Error: unsupported where the file is one of several that a model was split into: its tensors lie in the others, too.
[[nodiscard]] Status refuse_shard(const ModelFile& file);

}  // namespace troupe::engine
