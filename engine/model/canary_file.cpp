#include "engine/model/canary_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "engine/machine/probe_file.h"

namespace troupe::engine {
namespace {

namespace fs = std::filesystem;
using CanaryJson = nlohmann::json;

constexpr int kVersion = 1;
constexpr std::int64_t kLatest = std::int64_t{1} << 40;  // of `since`

struct Entry {
  std::string id;
  KeptCanary canary;
};

std::optional<std::uint64_t> parse_hash(const std::string& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (text.size() != 16 || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<std::vector<Entry>> parse_canaries(const std::string& text) {
  const CanaryJson all = CanaryJson::parse(text, nullptr, false);
  if (!all.is_object() || all.value("version", CanaryJson()) != kVersion || !all.contains("canaries") ||
      !all["canaries"].is_array())
    return std::nullopt;
  std::vector<Entry> entries;
  for (const CanaryJson& each : all["canaries"]) {
    if (!each.is_object()) return std::nullopt;
    const CanaryJson id = each.value("numerics_id", CanaryJson()), value = each.value("value", CanaryJson()),
                     since = each.value("since", CanaryJson());
    const auto hash = value.is_string() ? parse_hash(value.get<std::string>()) : std::nullopt;
    if (!id.is_string() || !hash || !since.is_number_integer()) return std::nullopt;
    if (since.get<std::int64_t>() < 0 || since.get<std::int64_t>() > kLatest) return std::nullopt;
    entries.push_back({id.get<std::string>(), {*hash, since.get<std::int64_t>()}});
  }
  return entries;
}

// bad_model: what is there is no file of canaries; io: it cannot be read.
Result<std::vector<Entry>> read_canaries(const fs::path& path) {
  std::error_code error;
  const fs::file_status there = fs::symlink_status(path, error);
  if (there.type() == fs::file_type::not_found) return std::vector<Entry>();
  if (error) return Error{ErrorCode::io, fmt::format("{}: cannot be looked for: {}", path.string(), error.message())};
  if (!fs::is_regular_file(there))
    return Error{ErrorCode::io, path.string() + ": is no plain file; name another one, or remove it"};
  const auto size = fs::file_size(path, error);
  if (error) return Error{ErrorCode::io, fmt::format("{}: cannot be read: {}", path.string(), error.message())};
  if (size > kMaxCanaryFileBytes)
    return Error{ErrorCode::io, fmt::format("{}: is larger than any file of canaries", path.string())};
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in || text.size() != size) return Error{ErrorCode::io, path.string() + ": cannot be read"};
  auto entries = parse_canaries(text);
  if (!entries) return Error{ErrorCode::bad_model, path.string() + ": is damaged"};
  return *std::move(entries);
}

}  // namespace

Result<std::optional<KeptCanary>> find_canary(const fs::path& path, const std::string& numerics_id) {
  const auto entries = read_canaries(path);
  if (!entries) return entries.error();
  const auto found = std::ranges::find(*entries, numerics_id, &Entry::id);
  return found == entries->end() ? std::nullopt : std::optional(found->canary);
}

Status keep_canary(const fs::path& path, const std::string& numerics_id, const KeptCanary& canary) {
  auto read = read_canaries(path);
  if (!read && read.error().code != ErrorCode::bad_model) return read.error();  // it may have others' values
  std::vector<Entry> entries = read ? *std::move(read) : std::vector<Entry>();
  std::erase_if(entries, [&](const Entry& entry) { return entry.id == numerics_id; });
  if (entries.size() >= kMaxKeptCanaries)
    entries.erase(entries.begin(), entries.end() - static_cast<std::ptrdiff_t>(kMaxKeptCanaries - 1));
  entries.push_back({numerics_id, canary});
  CanaryJson list = CanaryJson::array();
  for (const Entry& entry : entries)
    list.push_back({{"numerics_id", entry.id},
                    {"value", fmt::format("{:016x}", entry.canary.value)},
                    {"since", entry.canary.since}});
  return replace_file(path, CanaryJson{{"version", kVersion}, {"canaries", std::move(list)}}.dump(1) + "\n");
}

}  // namespace troupe::engine
