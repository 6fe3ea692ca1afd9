// Which parts of an unfinished file are whole: partial/KEY.json beside partial/KEY.data. Plain logic.
//
// It is written after the data that it names are on the disk, so that it never promises what is not there; what
// arrived later is fetched again.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "cli/store/byte_ranges.h"
#include "config/result.h"

namespace troupe::cli {

inline constexpr std::size_t kMaxStateBytes = 1 << 20;
inline constexpr std::size_t kMaxStateRanges = 4096;

struct TransferState {
  std::string url;     // where it is fetched from
  std::string sha256;  // of the whole file; empty: not known before its end
  std::string etag;    // the server's mark of this version; empty: none
  std::uint64_t size = 0;
  ByteRanges done;
};

[[nodiscard]] std::string state_text(const TransferState& state);
// Error: io: no JSON of this form, ranges beyond the size, too many of them.
[[nodiscard]] Result<TransferState> parse_state(std::string_view text);

}  // namespace troupe::cli
