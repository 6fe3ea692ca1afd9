#include "cli/pull/listing.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/store/limited_json.h"
#include "cli/store/model_source.h"
#include "cli/store/record.h"
#include "config/printable.h"

namespace troupe::cli {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxPathBytes = 1024;
constexpr std::string_view kModelLayer = "application/vnd.ollama.image.model";

std::string text_of(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::uint64_t number_of(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_number_unsigned() ? found->get<std::uint64_t>() : 0;
}

// Below the repository's folder, whichever program reads it.
bool is_safe_path(std::string_view path) {
  if (path.empty() || path.size() > kMaxPathBytes || path.front() == '/') return false;
  if (Printable(path, kMaxPathBytes).text() != path || path.find('\\') != path.npos) return false;
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") return false;
    begin = end + 1;
  }
  return true;
}

}  // namespace

Status add_listing(std::string_view text, std::vector<RemoteFile>& files) {
  const json list = parse_limited(text);
  if (!list.is_array()) return Error{ErrorCode::protocol, "the hub's list of files is no JSON list"};
  for (const json& each : list) {
    if (!each.is_object() || text_of(each, "type") != "file") continue;
    RemoteFile file{.path = text_of(each, "path"), .bytes = number_of(each, "size"), .sha256 = {}};
    if (!is_safe_path(file.path)) continue;
    if (const auto lfs = each.find("lfs"); lfs != each.end() && lfs->is_object()) {
      file.sha256 = text_of(*lfs, "oid");
      if (!is_sha256(file.sha256)) file.sha256.clear();
      if (const std::uint64_t size = number_of(*lfs, "size"); size != 0) file.bytes = size;
    }
    if (file.bytes > kMaxModelFileBytes)
      return Error{ErrorCode::protocol, fmt::format("the hub says that {} has {} bytes; at most {} are fetched",
                                                    Printable(file.path, 128).text(), file.bytes, kMaxModelFileBytes)};
    if (files.size() == kMaxListedFiles)
      return Error{ErrorCode::protocol, fmt::format("the hub lists more than {} files", kMaxListedFiles)};
    files.push_back(std::move(file));
  }
  return Ok{};
}

Error no_gguf(const std::string& repo, const std::vector<RemoteFile>& files) {
  const auto has = [&](std::string_view ending) {
    return std::any_of(files.begin(), files.end(), [&](const RemoteFile& file) { return file.path.ends_with(ending); });
  };
  const char* const instead = has(".safetensors") ? "safetensors" : has(".bin") ? "PyTorch's files" : "";
  return {ErrorCode::unsupported,
          fmt::format("{}: has no GGUF model{}{}; look for a repository of the same model whose name ends with -GGUF",
                      repo, *instead != 0 ? ", but " : "", instead)};
}

Result<RemoteFile> parse_image_manifest(std::string_view text) {
  const json manifest = parse_limited(text);
  const auto layers = manifest.is_object() ? manifest.find("layers") : manifest.end();
  if (!manifest.is_object() || layers == manifest.end() || !layers->is_array())
    return Error{ErrorCode::protocol, "the registry's manifest is none: it has no list of layers"};
  std::vector<RemoteFile> models;
  for (const json& layer : *layers) {
    if (!layer.is_object() || text_of(layer, "mediaType") != kModelLayer) continue;
    RemoteFile file{.path = text_of(layer, "digest"), .bytes = number_of(layer, "size"), .sha256 = {}};
    if (!file.path.starts_with("sha256:") || !is_sha256(std::string_view(file.path).substr(7)))
      return Error{ErrorCode::protocol, fmt::format("the registry's manifest names no SHA-256 of its model, but '{}'",
                                                    Printable(file.path).text())};
    if (file.bytes == 0 || file.bytes > kMaxModelFileBytes)
      return Error{ErrorCode::protocol,
                   fmt::format("the registry says that the model has {} bytes; 1 to {} are fetched", file.bytes,
                               kMaxModelFileBytes)};
    file.sha256 = file.path.substr(7);
    models.push_back(std::move(file));
  }
  if (models.empty()) return Error{ErrorCode::unsupported, "the registry's manifest has no model in GGUF"};
  if (models.size() > 1)
    return Error{ErrorCode::unsupported,
                 fmt::format("the registry's manifest has {} models; troupe takes one of one file", models.size())};
  return models.front();
}

}  // namespace troupe::cli
