// Where a model comes from, as one types it after `troupe pull`, and the name under which the store keeps it.
//
//   https://example.org/tiny.gguf           a file
//   org/name, org/name:Q4_K_M               of a hub (Hugging Face), of the quantization that is named, or that fits
//   org/name@REVISION, org/name:file.gguf   of another branch, tag or commit; one file of it
//   ollama://name:tag, ollama://host/user/name:tag   of a registry as Ollama's
#pragma once

#include <string>
#include <string_view>

#include "cli/store/url.h"
#include "config/result.h"

namespace troupe::cli {

inline constexpr std::size_t kMaxStoreNameBytes = 200;  // as a file's name, escaped and with its ending, below 255
inline constexpr std::size_t kMaxFileNameBytes = 200;

// The servers that names without one mean.
struct ModelHosts {
  Url hub;       // $HF_ENDPOINT
  Url registry;  // $OLLAMA_REGISTRY
};

struct ModelSource {
  enum class Kind { url, hub, registry };
  Kind kind = Kind::url;
  Url url{};               // of a file; else the server, whose target is "/"
  std::string repo{};      // "org/name", "library/llama3.2"
  std::string revision{};  // of a hub: "main" unless another is named; of a registry: the tag
  std::string quant{};     // of a hub, as typed: a quantization, or a file's name; empty: which fits
};

// Error: invalid_argument: what is no source, with what to type.
[[nodiscard]] Result<ModelSource> parse_source(std::string_view text, const ModelHosts& hosts);

// The name under which the store keeps it. quant: of a hub, that of the files that were chosen.
[[nodiscard]] std::string store_name(const ModelSource& source, const ModelHosts& hosts, std::string_view quant);

// What is wrong with the name of a model of the store, for a message; empty: nothing. Names are of letters, digits and
// "._-+:/@", so that they stand in a command as they are.
[[nodiscard]] std::string problem_of_store_name(std::string_view name);

// What is wrong with a file's name that a server sent, so that it names a file of this very folder and a GGUF file;
// empty: nothing.
[[nodiscard]] std::string problem_of_file_name(std::string_view name);

// A word as a shell reads it: in quotes where it needs them.
[[nodiscard]] std::string shell_word(std::string_view text);

// Whether two texts are the same but for the case of ASCII letters, as hubs compare names.
[[nodiscard]] bool same_name(std::string_view a, std::string_view b);

// How `name`, of a model in the store, is meant by what one typed, the closest last: without its quantization; with or
// without "hf.co/", "ollama://" or ":latest"; in another case; as it is.
enum class NameMatch { none, partly, in_other_words, in_other_case, same };
[[nodiscard]] NameMatch match_name(std::string_view typed, std::string_view name);

}  // namespace troupe::cli
