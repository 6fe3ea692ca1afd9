// A model whose tensors are in several GGUF files, as llama.cpp's gguf-split and gguf-py write large ones.
//
// Each file is a GGUF of its own, called NAME-00001-of-00003.gguf and so on, with 'split.no' (from 0), 'split.count'
// and 'split.tensors.count' (of all files). The metadata are in the first, which may have no tensors; the others repeat
// none of them, or the same values.
#pragma once

#include <cstdint>
#include <memory>

#include "config/result.h"
#include "engine/formats/gguf_part.h"
#include "engine/formats/model_file.h"

namespace troupe::engine {

inline constexpr std::uint32_t kMaxSplitParts = 256;  // the largest models come in some 50

// Where a file stands in its model.
struct SplitPlace {
  std::uint32_t index = 0;  // from 0
  std::uint32_t count = 1;  // 1: the file is the whole model
};

// From the file's metadata. A 'split.count' of 0 or 1 is a whole model's, as files have that were merged again. Error:
// bad_model.
[[nodiscard]] Result<SplitPlace> split_place(const ModelFile& file);

// The model of which `first` is the first part of place.count, from the files beside it whose names differ in the
// number alone. Its metadata are the first part's, its tensors those of the parts in order, its size and stamp those of
// all. content_hash() is the hash of one file with the metadata without 'split.', and the tensor data of all parts one
// after another: that of the file that was split, if its tensors lay in order, each padded to the alignment. Errors:
// bad_model, model_missing, and as open_gguf(); they name the part.
[[nodiscard]] Result<std::shared_ptr<const ModelFile>> open_split(std::shared_ptr<GgufPart> first,
                                                                  const SplitPlace& place);

}  // namespace troupe::engine
