// One GGUF file as it lies on disk: a whole model, or a part of one that was split (split_gguf.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "config/result.h"
#include "engine/formats/model_file.h"
#include "kernels/formats/converted_type.h"

namespace troupe::engine {

// Limits on a model's entries: far above every real model, small enough to be harmless.
inline constexpr std::uint64_t kMaxMetadata = 1u << 16;
inline constexpr std::uint64_t kMaxTensors = 1u << 16;

// What a header has besides metadata and tensors. Offsets count from the beginning of the file.
struct GgufHeader {
  struct Range {
    std::uint64_t begin = 0, end = 0;
  };
  std::uint64_t num_metadata = 0, num_tensors = 0;
  std::uint64_t alignment = 0;
  std::uint64_t metadata_begin = 0, metadata_end = 0;
  std::vector<Range> split_keys;  // entries of the metadata whose keys begin with "split.", in order
  // Filled when the directory of tensors is read: where each entry ends, with its offset as the last 8 bytes; the
  // types of those that are converted, in order; where the tensors' bytes begin.
  std::vector<std::uint64_t> entry_ends;
  std::vector<const kernels::ConvertedType*> converted_types;
  std::uint64_t data_begin = 0;
};

class GgufPart : public ModelFile {
 public:
  // Reads the directory and finds the tensors' bytes; until then there are none, and content_hash() is 0. To be called
  // once. `num_layers`: of the model, for may_be_computed().
  [[nodiscard]] virtual Status read_tensors(std::uint64_t num_layers) = 0;
  virtual const GgufHeader& header() const = 0;
  virtual std::span<const std::byte> bytes() const = 0;  // of the file
  // Frees the metadata, so that many parts do not hold as many times what one may.
  virtual void forget_metadata() = 0;
};

// Opens a file and reads its metadata; errors as open_gguf().
[[nodiscard]] Result<std::shared_ptr<GgufPart>> open_gguf_part(const std::string& path);

// Joins names and versions of converted types to a hash, because the meaning of their bytes is not in the file.
[[nodiscard]] std::uint64_t join_types(std::uint64_t hash, std::span<const kernels::ConvertedType* const> types);

}  // namespace troupe::engine
