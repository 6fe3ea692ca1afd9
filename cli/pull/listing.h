// What hubs and registries say of a model: the files of a repository, the layers of a manifest. Plain logic; servers
// may send any text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/pull/quant.h"
#include "config/result.h"

namespace troupe::cli {

inline constexpr std::size_t kMaxListingBytes = 4 << 20;
inline constexpr std::size_t kMaxListingPages = 64;
inline constexpr std::size_t kMaxListedFiles = 50'000;
inline constexpr std::size_t kMaxRegistryBytes = 1 << 20;

// Adds the files of a page of GET /api/models/ORG/NAME/tree/REVISION?recursive=true. Names that lead out of the
// repository are passed over. Error: protocol: it is no such list, or too long.
[[nodiscard]] Status add_listing(std::string_view text, std::vector<RemoteFile>& files);

// Why a repository without a GGUF model has none, with what to look for: kinds of files that it has instead.
[[nodiscard]] Error no_gguf(const std::string& repo, const std::vector<RemoteFile>& files);

// The one layer of an image's manifest that is a model in GGUF; its path is the digest, "sha256:...". Error: protocol:
// no manifest; unsupported: no such layer, or several.
[[nodiscard]] Result<RemoteFile> parse_image_manifest(std::string_view text);

}  // namespace troupe::cli
