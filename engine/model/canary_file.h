// The values of canaries of earlier loads, by numerics_id: so that a server of tomorrow compares with yesterday's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "config/result.h"

namespace troupe::engine {

struct KeptCanary {
  std::uint64_t value = 0;
  std::int64_t since = 0;  // when it was recorded, in seconds of the Unix epoch
};

// More are not kept: those that were recorded first go.
inline constexpr std::size_t kMaxKeptCanaries = 256;
inline constexpr std::size_t kMaxCanaryFileBytes = 64u << 10;

// A JSON file, which is read and written by these two alone. Of two processes that write at once one may lose what it
// wrote: it is recorded again then.
//
// Nothing: there is no value for this id, or no such file. Error: bad_model, if the file is damaged; io, if it cannot
// be read, or is larger than any that was written.
[[nodiscard]] Result<std::optional<KeptCanary>> find_canary(const std::filesystem::path& path,
                                                            const std::string& numerics_id);
// Replaces the file, and one that is damaged by a new one; one that cannot be read stays, as it has other values.
// Error: io.
[[nodiscard]] Status keep_canary(const std::filesystem::path& path, const std::string& numerics_id,
                                 const KeptCanary& canary);

}  // namespace troupe::engine
