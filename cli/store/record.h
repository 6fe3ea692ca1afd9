// What the store notes of a model: names/NAME.json. Plain logic; a file may hold any text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/result.h"

namespace troupe::cli {

inline constexpr std::size_t kMaxRecordBytes = 1 << 20;
inline constexpr std::size_t kMaxModelFiles = 256;  // engine::kMaxSplitParts
inline constexpr std::uint64_t kMaxModelFileBytes = std::uint64_t{4} << 40;

struct StoredFile {
  std::string name;    // "tiny-00001-of-00003.gguf"
  std::string sha256;  // 64 small hexadecimal digits
  std::uint64_t bytes = 0;
  std::string url{};   // where it came from
  std::string etag{};  // the server's mark of what was fetched; empty: none

  friend bool operator==(const StoredFile&, const StoredFile&) = default;
};

struct StoredModel {
  std::string name;
  std::string source{};             // as it was typed, with its server
  std::string revision{};           // a commit, if the server says which; empty: unknown
  std::string quant{};              // as the file's name says; empty: it says none
  std::string family{};             // as the file says
  std::vector<StoredFile> files{};  // parts in order; at least one
  std::int64_t pulled = 0;          // seconds since 1970

  [[nodiscard]] std::uint64_t bytes() const;
  // The name of the folder below files/ in which the files have their names: another one for other files.
  [[nodiscard]] std::string folder() const;
  friend bool operator==(const StoredModel&, const StoredModel&) = default;
};

[[nodiscard]] bool is_sha256(std::string_view text);

[[nodiscard]] std::string record_text(const StoredModel& model);
// Error: io: no JSON, a member is missing or of a wrong type, a name that leads elsewhere, a hash that is none, a size
// above kMaxModelFileBytes, files that are not the parts of one model.
[[nodiscard]] Result<StoredModel> parse_record(std::string_view text);

}  // namespace troupe::cli
