// Which files of a repository are models, and which of these to take. Plain logic.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/result.h"

namespace troupe::cli {

// A file that a server lists.
struct RemoteFile {
  std::string path;  // in the repository: "Q8_0/tiny-00001-of-00002.gguf"
  std::uint64_t bytes = 0;
  std::string sha256;  // empty: not known
};

// A model of a repository: one file, or the parts of one.
struct RemoteModel {
  std::string quant;              // "Q4_K_M", as the file's name says; empty: it says none
  std::vector<RemoteFile> files;  // parts in order

  [[nodiscard]] std::uint64_t bytes() const;
};

// "Q4_K_M" of "tiny.Q4_K_M.gguf", "UD-Q2_K_XL", "BF16"; empty: the name has none.
[[nodiscard]] std::string quant_of(std::string_view file_name);

// The models among these files, the largest first; without projectors, importance matrices, and split models of which a
// part is not there.
[[nodiscard]] std::vector<RemoteModel> models_of(std::vector<RemoteFile> files);

// What has to fit, for a choice.
struct FitLimit {
  std::uint64_t budget = 0;   // bytes
  std::uint64_t beside = 0;   // bytes of K, V and vocabulary, beside the weights
  std::uint32_t context = 0;  // tokens that those are for; 0: they are not known
};

// "4.9 GB", in powers of ten as hubs write sizes.
[[nodiscard]] std::string size_text(std::uint64_t bytes);

// "Q4_K_M (4.9 GB), Q8_0 (8.5 GB)", the smallest first; at most 24 of them.
[[nodiscard]] std::string list_of(const std::vector<RemoteModel>& models);

struct Choice {
  RemoteModel model;
  std::string why;  // in a line; empty: there was no choice
};
// The model that `quant` names: a quantization, in any case, or a file (its name, or its path). Error:
// invalid_argument, with the list: none is, or several are.
[[nodiscard]] Result<Choice> choose_named(const std::vector<RemoteModel>& models, std::string_view quant);
// The largest that fits. models: the largest first. Error: out_of_memory, with the numbers: none does;
// invalid_argument, with the list: two of the same quantization are different models.
[[nodiscard]] Result<Choice> choose_fitting(const std::vector<RemoteModel>& models, const FitLimit& limit);

}  // namespace troupe::cli
