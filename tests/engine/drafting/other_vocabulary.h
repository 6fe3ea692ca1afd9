// The shipped draft model with another vocabulary.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <variant>
#include <vector>

#include "tests/engine/gguf_copy.h"

namespace troupe::test {

inline constexpr std::size_t kFirstOrdinary = 259;  // after control and byte tokens

// A draft model's file with the ids of its ordinary tokens in the opposite order, and without pieces of more than
// `longest` bytes, whose words take several tokens then.
inline std::string with_other_vocabulary(const engine::ModelFile& file, std::size_t longest) {
  const auto& metadata = file.metadata();
  auto pieces = std::get<std::vector<std::string>>(metadata.at("tokenizer.ggml.tokens"));
  auto scores = std::get<std::vector<double>>(metadata.at("tokenizer.ggml.scores"));
  const std::size_t size = pieces.size();
  for (std::size_t i = kFirstOrdinary; i < size; ++i)
    if (pieces[i].size() > longest) pieces[i] = "<none " + std::to_string(i) + ">";
  std::reverse(pieces.begin() + kFirstOrdinary, pieces.end());
  std::reverse(scores.begin() + kFirstOrdinary, scores.end());
  GgufWriter w;
  for (const auto& [key, value] : metadata) {
    if (key == "tokenizer.ggml.tokens")
      MetadataCopy(w, key)(pieces);
    else if (key == "tokenizer.ggml.scores")
      MetadataCopy(w, key)(scores);
    else
      std::visit(MetadataCopy(w, key), value);
  }
  for (const engine::TensorInfo& tensor : file.tensors()) {
    std::string bytes = to_string(tensor.bytes);
    if (tensor.name == "token_embd.weight" || tensor.name == "output.weight") {
      const std::size_t row = bytes.size() / size;
      std::string reversed = bytes.substr(0, kFirstOrdinary * row);
      for (std::size_t i = size; i-- > kFirstOrdinary;) reversed += bytes.substr(i * row, row);
      bytes = std::move(reversed);
    }
    w.add_tensor(tensor.name, tensor.shape, tensor.file_type().gguf_number, bytes);
  }
  return w.bytes();
}

}  // namespace troupe::test
