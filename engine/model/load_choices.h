// What is decided while a model is loaded, whatever its shape: kernels, ternary weights, the name of its bits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "config/result.h"
#include "engine/model.h"

namespace troupe::engine {

// A number of bytes as people say it.
[[nodiscard]] std::string mebibytes(std::uint64_t bytes);

// The variant of this name; of none: of TROUPE_KERNELS, else the best that can run. Errors: invalid_argument,
// unsupported.
[[nodiscard]] Result<const kernels::KernelTable*> choose_kernels(std::string name, const LoadNotes& notes);
// None: TROUPE_TERNARY, else automatic. Error: invalid_argument.
[[nodiscard]] Result<Ternary> choose_ternary(std::optional<Ternary> ternary);

// Recipe version, variant, KV type, hash of the model, and where states are rounded how often
// ("4-avx512vnni-f16-9f3c...").
[[nodiscard]] std::string make_numerics_id(const kernels::KernelTable& kernels, const CacheSpec& cache,
                                           std::uint64_t hash);

}  // namespace troupe::engine
