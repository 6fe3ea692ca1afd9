#include "cli/backup/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "actors/sessions/session_store.h"
#include "cli/backup/state_places.h"
#include "config/printable.h"

namespace troupe::cli {
namespace {

constexpr const char* kFormat = "troupe backup";
constexpr int kVersionOfFormat = 1;

bool is_name_of_state(const std::string& name) {
  if (name == kUsagePart || name == kKeysPart) return true;
  const std::size_t first = name.find('/'), second = name.find('/', first + 1);
  if (first == std::string::npos || second == std::string::npos || name.substr(0, first) != kSessionsPart) return false;
  const auto file = actors::parse_session_file(name.substr(second + 1));
  return actors::tenant_of_folder(name.substr(first + 1, second - first - 1)) && file && !file->is_temporary;
}

bool is_sha256(const std::string& text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

}  // namespace

std::string manifest_text(const Manifest& manifest) {
  auto files = nlohmann::ordered_json::array();
  for (const ManifestFile& each : manifest.files)
    files.push_back({{"name", each.name}, {"size", each.size}, {"sha256", each.sha256}, {"modified", each.modified}});
  const nlohmann::ordered_json all = {{"format", kFormat},
                                      {"version", kVersionOfFormat},
                                      {"program", manifest.program},
                                      {"made", manifest.made},
                                      {"files", std::move(files)}};
  return all.dump(2) + "\n";
}

Result<Manifest> parse_manifest(const std::string& text) {
  const auto damaged = [](const std::string& why) {
    return Error{ErrorCode::io, fmt::format("{}: {}; this is no backup, or a damaged one", kManifestName, why)};
  };
  const auto all = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!all.is_object()) return damaged("it is no JSON object");
  try {
    if (all.at("format") != kFormat) return damaged("it is of another program");
    if (const int version = all.at("version").get<int>(); version != kVersionOfFormat)
      return Error{ErrorCode::unsupported,
                   fmt::format("{}: it has version {}, and this troupe reads version {}; restore it with the troupe "
                               "that made it ({})",
                               kManifestName, version, kVersionOfFormat,
                               Printable(all.at("program").get<std::string>()).text())};
    Manifest manifest{
        .program = all.at("program").get<std::string>(), .made = all.at("made").get<std::int64_t>(), .files = {}};
    std::set<std::string> names;
    for (const auto& each : all.at("files")) {
      ManifestFile file{.name = each.at("name").get<std::string>(),
                        .size = each.at("size").get<std::uint64_t>(),
                        .sha256 = each.at("sha256").get<std::string>(),
                        .modified = each.at("modified").get<std::int64_t>()};
      if (!is_name_of_state(file.name))
        return damaged(fmt::format("'{}' is no file of a server's state", Printable(file.name).text()));
      if (!is_sha256(file.sha256)) return damaged(fmt::format("{} has no SHA-256", file.name));
      if (!names.insert(file.name).second) return damaged(fmt::format("{} is in it twice", file.name));
      manifest.files.push_back(std::move(file));
    }
    return manifest;
  } catch (const nlohmann::json::exception& error) {
    return damaged(Printable(error.what()).text());
  }
}

std::string part_of(const std::string& name) { return name.substr(0, name.find('/')); }

}  // namespace troupe::cli
