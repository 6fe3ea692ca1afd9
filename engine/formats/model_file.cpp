#include "engine/formats/model_file.h"

namespace troupe::engine {

std::uint64_t TensorInfo::rows() const {
  std::uint64_t rows = 1;
  for (std::size_t i = 1; i < shape.size(); ++i) rows *= shape[i];
  return rows;
}

namespace {
template <class T>
const T* find_as(const ModelFile& file, std::string_view key) {
  const MetadataValue* value = file.find(key);
  return value ? std::get_if<T>(value) : nullptr;
}
}  // namespace

const MetadataValue* ModelFile::find(std::string_view key) const {
  const auto it = metadata().find(key);
  return it == metadata().end() ? nullptr : &it->second;
}

std::optional<std::int64_t> ModelFile::integer(std::string_view key) const {
  const auto* value = find_as<std::int64_t>(*this, key);
  return value ? std::optional(*value) : std::nullopt;
}

std::optional<double> ModelFile::number(std::string_view key) const {
  if (const auto* value = find_as<double>(*this, key)) return *value;
  if (const auto* value = find_as<std::int64_t>(*this, key)) return static_cast<double>(*value);
  return std::nullopt;
}

std::optional<bool> ModelFile::boolean(std::string_view key) const {
  const auto* value = find_as<bool>(*this, key);
  return value ? std::optional(*value) : std::nullopt;
}

const std::string* ModelFile::string(std::string_view key) const { return find_as<std::string>(*this, key); }

const std::vector<std::string>* ModelFile::strings(std::string_view key) const {
  return find_as<std::vector<std::string>>(*this, key);
}

const std::vector<std::int64_t>* ModelFile::integers(std::string_view key) const {
  return find_as<std::vector<std::int64_t>>(*this, key);
}

const std::vector<double>* ModelFile::numbers(std::string_view key) const {
  return find_as<std::vector<double>>(*this, key);
}

}  // namespace troupe::engine
