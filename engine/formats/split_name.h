// Names of a model's files where it was split into several: "gemma-00002-of-00003.gguf", as llama.cpp writes them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace troupe::engine {

struct SplitName {
  std::string beginning;     // with the folder: "models/gemma"
  std::uint32_t number = 1;  // of the part, from 1
  std::uint32_t count = 1;

  // The path of another part: in the same folder, because nothing but the number differs.
  [[nodiscard]] std::string path_of(std::uint32_t part_number) const;
};

// Nothing if the path is not of this form: five digits each, and a number from 1 to the count.
[[nodiscard]] std::optional<SplitName> parse_split_name(std::string_view path);

// What a model is called after its file: the name without folder, ending and "-00001-of-00003".
[[nodiscard]] std::string name_after_file(const std::string& path);

// The size of a file; of one that is named as a first part with those of the parts beside it, as far as they are there.
// `error`: of the file itself.
[[nodiscard]] std::uint64_t bytes_with_parts(const std::string& path, std::error_code& error);

}  // namespace troupe::engine
