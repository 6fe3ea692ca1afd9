// The metadata common to all families, and their limits.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/formats/metadata.h"
#include "engine/model.h"

namespace troupe::engine {

// A file with larger sizes is refused before memory is allocated for them; docs/limits.md lists these limits.
inline constexpr std::int64_t kMaxLayers = 1024;
inline constexpr std::int64_t kMaxDim = 1 << 18;
inline constexpr std::int64_t kMaxFfnDim = 1 << 20;
inline constexpr std::int64_t kMaxHeads = 1024;
inline constexpr std::int64_t kMaxHeadDim = 1024;
inline constexpr std::int64_t kMaxContext = 1 << 24;

// Reads name, weight types and parameters; layers, dimension, contexts and pooling. The families read the rest. An
// options.context above kMaxContext is an invalid_argument.
[[nodiscard]] ModelInfo read_model_info(const ModelFile& file, const std::string& family, Metadata& meta,
                                        const LoadOptions& options);

// Error: bad_model if the file names none.
[[nodiscard]] Result<std::string> read_architecture(const ModelFile& file);

// Whether the file's architecture is `name`.
[[nodiscard]] bool architecture_is(const ModelFile& file, std::string_view name);

// The context in tokens that the file names; 0 if it names none.
[[nodiscard]] std::uint64_t trained_context(const ModelFile& file);

}  // namespace troupe::engine
