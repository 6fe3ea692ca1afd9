// Copies metadata and tensors of an opened model file into a writer, so that a test can write its tensors in another
// way.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/formats/model_file.h"
#include "tests/engine/gguf_writer.h"

namespace troupe::test {

inline std::string to_string(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Adds one metadata value, with the widest type that holds it.
class MetadataCopy {
 public:
  MetadataCopy(GgufWriter& out, std::string_view key) : out_(out), key_(key) {}

  void operator()(std::int64_t value) const { out_.add_raw(key_, 11, bits(value)); }
  void operator()(double value) const { out_.add_raw(key_, 12, bits(value)); }
  void operator()(bool value) const { out_.add_raw(key_, 7, GgufWriter::number(value ? 1 : 0, 1)); }
  void operator()(const std::string& value) const { out_.add_raw(key_, 8, GgufWriter::text(value)); }
  void operator()(const engine::SkippedValue&) const {}  // its bytes are not known
  void operator()(const std::vector<std::int64_t>& values) const { array(11, values, bits<std::int64_t>); }
  void operator()(const std::vector<double>& values) const { array(12, values, bits<double>); }
  void operator()(const std::vector<std::string>& values) const {
    array(8, values, [](const std::string& value) { return GgufWriter::text(value); });
  }

 private:
  template <class T>
  static std::string bits(T value) {
    return to_string(std::as_bytes(std::span(&value, 1)));
  }
  template <class T, class Payload>
  void array(std::uint32_t type, const std::vector<T>& values, Payload payload) const {
    std::string bytes = GgufWriter::number(type, 4) + GgufWriter::number(values.size(), 8);
    for (const T& value : values) bytes += payload(value);
    out_.add_raw(key_, 9, bytes);
  }

  GgufWriter& out_;
  std::string_view key_;
};

inline void copy_metadata(const engine::ModelFile& file, GgufWriter& out) {
  for (const auto& [key, value] : file.metadata()) std::visit(MetadataCopy(out, key), value);
}

// A file with these tensors, and this metadata instead of their file's.
inline std::string model_with(const engine::ModelFile& tensors, const engine::ModelFile& metadata) {
  GgufWriter w;
  copy_metadata(metadata, w);
  for (const engine::TensorInfo& tensor : tensors.tensors())
    w.add_tensor(tensor.name, tensor.shape, tensor.file_type().gguf_number, to_string(tensor.bytes));
  return w.bytes();
}

}  // namespace troupe::test
