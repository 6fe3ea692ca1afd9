// A model file for families and tokenizers: metadata and tensors, independent of the file format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "config/result.h"
#include "engine/formats/mapped_file.h"
#include "kernels/formats/converted_type.h"

namespace troupe::engine {

// One metadata value. Integers of every width are int64, a uint64 above its range (and a list with one) is float;
// arrays of numbers are vectors.
struct SkippedValue {  // of a kind or size that is not kept, because nothing needs it; asked for, it is no value of any
                       // type
  std::string what;    // "an array of 3 arrays"
  friend bool operator==(const SkippedValue&, const SkippedValue&) = default;
};
using MetadataValue = std::variant<std::int64_t, double, bool, std::string, std::vector<std::int64_t>,
                                   std::vector<double>, std::vector<std::string>, SkippedValue>;

// A tensor in the mapped file. `shape` is in GGUF order: shape[0] is the number of adjacent elements (k, the columns),
// shape[1] the rows; unused dimensions are absent.
struct TensorInfo {
  std::string name;
  kernels::WeightType type;                                // of the loaded matrix
  const kernels::ConvertedType* converted_from = nullptr;  // the type of `bytes`; null: it is `type`
  std::vector<std::uint64_t> shape;
  std::span<const std::byte> bytes;  // of all rows, borrowed from the ModelFile
  float scale = 1.0f;                // of all its weights, if the type has one per tensor; finite

  std::uint64_t columns() const { return shape.empty() ? 1 : shape[0]; }
  std::uint64_t rows() const {  // product of all dimensions but the first
    std::uint64_t rows = 1;
    for (std::size_t i = 1; i < shape.size(); ++i) rows *= shape[i];
    return rows;
  }
  // The type of `bytes`.
  const kernels::WeightTypeInfo& file_type() const {
    return converted_from ? converted_from->info : kernels::info(type);
  }
};

// Whether a tensor of this name may be a part of what is computed: of a layer below num_layers (blk.N.), or one that
// families read beside their layers. Others (of projectors, of further heads, of layers beyond those that count) are
// read by none, whatever their type and size.
[[nodiscard]] bool may_be_computed(std::string_view name, std::uint64_t num_layers);

// An opened, fully checked model file. Immutable; any thread may read it. Its spans and views live as long as it does.
class ModelFile {
 public:
  virtual ~ModelFile() = default;

  virtual const std::string& path() const = 0;
  virtual std::uint64_t file_bytes() const = 0;
  // How many files it is in: more than one, if it was split. path() is the first, and file_bytes() are those of all.
  virtual std::size_t num_files() const { return 1; }
  // The file that holds these bytes of a tensor.
  virtual const std::string& path_of(std::span<const std::byte> /*bytes*/) const { return path(); }
  // A hash of the metadata and the tensor directory with the file size, without the tensors' bytes: those join it while
  // they are packed (Model::content_hash), and numerics_id uses that complete hash.
  virtual std::uint64_t content_hash() const = 0;
  // The file's stamp when it was opened.
  virtual FileStamp stamp() const = 0;
  // For readers of tensors, before they use them: a file that was cut off or written to meanwhile gave zeros or a
  // mixture. Error: bad_model, with the path.
  [[nodiscard]] virtual Status check_unchanged() const = 0;

  virtual const std::map<std::string, MetadataValue, std::less<>>& metadata() const = 0;
  virtual const std::vector<TensorInfo>& tensors() const = 0;  // in file order

  // The names of tensors that are not among these, as they are of a type or a size that cannot be read, and are not
  // computed with: may_be_computed().
  virtual const std::vector<std::string>& unread_tensors() const {
    static const std::vector<std::string> none;
    return none;
  }

  // nullptr if there is none.
  virtual const TensorInfo* find_tensor(std::string_view name) const = 0;
  // A value as it is in the file, or null. What the engine uses of it goes through Metadata.
  virtual const MetadataValue* find(std::string_view key) const {
    const auto it = metadata().find(key);
    return it == metadata().end() ? nullptr : &it->second;
  }

  // Tells the operating system that these bytes are not needed again (drops their pages from this process).
  virtual void drop_pages(std::span<const std::byte> bytes) const = 0;
};

// The layers of the file's architecture, by its block_count; without such a number more than any file has.
[[nodiscard]] std::uint64_t num_layers_of(const ModelFile& file);

// Opens a GGUF v2/v3 file by mapping it. Every count, offset, length, type and dimension is checked; the error names
// the file, the offset and the expected value (ErrorCode model_missing, permission, bad_model or unsupported). Of a
// model that was split into several files `path` is the first; the others are opened with it
// (engine/formats/split_gguf.h).
[[nodiscard]] Result<std::shared_ptr<const ModelFile>> open_gguf(const std::string& path);

}  // namespace troupe::engine
