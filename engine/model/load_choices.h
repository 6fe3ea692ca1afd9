// Choices made while any model is loaded: kernel variant, way of multiplying ternary weights, numerics id.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "config/result.h"
#include "engine/model.h"

namespace troupe::engine {

// Formats a number of bytes for messages ("12 MiB").
[[nodiscard]] std::string mebibytes(std::uint64_t bytes);

// The variant of this name; for an empty name that of TROUPE_KERNELS, else the best that can run, of which `notes` says
// so if AMX is refused. The error names those that can run: invalid_argument for an unknown name, unsupported for one
// that cannot run here.
[[nodiscard]] Result<const kernels::KernelTable*> choose_kernels(std::string name, const LoadNotes& notes = {});
// Without a value: TROUPE_TERNARY, else automatic. Error: invalid_argument.
[[nodiscard]] Result<Ternary> choose_ternary(std::optional<Ternary> ternary);

// Recipe version, variant, KV type, model hash, and with states kept as f16 the positions after which they are rounded
// ("4-avx512vnni-f16-9f3c...").
[[nodiscard]] std::string make_numerics_id(const kernels::KernelTable& kernels, const CacheSpec& cache,
                                           std::uint64_t hash);

}  // namespace troupe::engine
