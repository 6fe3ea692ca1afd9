#include "cli/store/record.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/store/limited_json.h"
#include "cli/store/model_source.h"
#include "config/printable.h"
#include "engine/formats/split_name.h"
#include "ipc/keys/sha256.h"

namespace troupe::cli {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kMaxTextBytes = 8192;

Error bad_record(const std::string& why) { return {ErrorCode::io, "no record of a model: " + why}; }

// A member of the type, or the error that says so.
template <class T>
Status take(const ordered_json& object, const char* name, T& value, bool is_required) {
  const auto found = object.find(name);
  if (found == object.end()) return is_required ? Status(bad_record(fmt::format("'{}' is missing", name))) : Ok{};
  if constexpr (std::is_same_v<T, std::string>) {
    if (!found->is_string()) return bad_record(fmt::format("'{}' is no text", name));
    value = found->template get<std::string>();
    if (value.size() > kMaxTextBytes) return bad_record(fmt::format("'{}' is too long", name));
  } else {
    if (!found->is_number_unsigned() && !(found->is_number_integer() && found->template get<std::int64_t>() >= 0))
      return bad_record(fmt::format("'{}' is no number", name));
    const auto number = found->template get<std::uint64_t>();
    if (number > (std::uint64_t{1} << 62)) return bad_record(fmt::format("'{}' is too large", name));
    value = static_cast<T>(number);
  }
  return Ok{};
}

Result<StoredFile> parse_file(const ordered_json& object) {
  if (!object.is_object()) return bad_record("a file is no object");
  StoredFile file;
  for (Status took : {take(object, "name", file.name, true), take(object, "sha256", file.sha256, true),
                      take(object, "bytes", file.bytes, true), take(object, "url", file.url, false),
                      take(object, "etag", file.etag, false)})
    if (!took) return took.error();
  if (const std::string problem = problem_of_file_name(file.name); !problem.empty()) return bad_record(problem);
  if (!is_sha256(file.sha256)) return bad_record("'sha256' has not 64 hexadecimal digits");
  if (file.bytes == 0 || file.bytes > kMaxModelFileBytes) return bad_record("'bytes' is no size of a model");
  return file;
}

// Whether these are one file, or the parts of one model in their order.
bool are_parts(const std::vector<StoredFile>& files) {
  if (files.size() == 1) return true;
  const auto first = engine::parse_split_name(files.front().name);
  if (!first || first->count != files.size()) return false;
  for (std::size_t i = 0; i < files.size(); ++i)
    if (files[i].name != first->path_of(static_cast<std::uint32_t>(i + 1))) return false;
  return true;
}

}  // namespace

bool is_sha256(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::uint64_t StoredModel::bytes() const {
  std::uint64_t sum = 0;
  for (const StoredFile& file : files) sum += file.bytes;
  return sum;
}

std::string StoredModel::folder() const {
  ipc::Sha256 hash;
  for (const StoredFile& file : files) {
    const std::string line = fmt::format("{} {}\n", file.sha256, file.name);
    hash.add(std::as_bytes(std::span(line)));
  }
  return hash.hex().substr(0, 32);
}

std::string record_text(const StoredModel& model) {
  ordered_json files = ordered_json::array();
  for (const StoredFile& file : model.files)
    files.push_back(
        {{"name", file.name}, {"sha256", file.sha256}, {"bytes", file.bytes}, {"url", file.url}, {"etag", file.etag}});
  const ordered_json object{
      {"version", 1},         {"name", model.name},     {"source", model.source}, {"revision", model.revision},
      {"quant", model.quant}, {"family", model.family}, {"pulled", model.pulled}, {"files", std::move(files)}};
  return object.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

Result<StoredModel> parse_record(std::string_view text) {
  if (text.size() > kMaxRecordBytes) return bad_record("it is too long");
  const auto object = parse_limited<ordered_json>(text);
  if (!object.is_object()) return bad_record("it is no JSON object");
  StoredModel model;
  std::uint64_t version = 0;
  for (Status took : {take(object, "version", version, true), take(object, "name", model.name, true),
                      take(object, "source", model.source, false), take(object, "revision", model.revision, false),
                      take(object, "quant", model.quant, false), take(object, "family", model.family, false),
                      take(object, "pulled", model.pulled, false)})
    if (!took) return took.error();
  if (version != 1)
    return Error{ErrorCode::unsupported, fmt::format("its version is {}; a later troupe wrote it", version)};
  if (const std::string problem = problem_of_store_name(model.name); !problem.empty()) return bad_record(problem);
  const auto files = object.find("files");
  if (files == object.end() || !files->is_array() || files->empty() || files->size() > kMaxModelFiles)
    return bad_record(fmt::format("'files' is no list of 1 to {}", kMaxModelFiles));
  for (const ordered_json& each : *files) {
    auto file = parse_file(each);
    if (!file) return file.error();
    model.files.push_back(*std::move(file));
  }
  if (!are_parts(model.files)) return bad_record("its files are not the parts of one model");
  return model;
}

}  // namespace troupe::cli
