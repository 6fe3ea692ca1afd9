#include "engine/model.h"

#include <fmt/format.h>

#include <array>
#include <string>

#include "config/printable.h"
#include "engine/weights/model_info.h"

namespace troupe::engine {

// Every family, in the order in which they are asked. Each stands in the file of its name, or of what it shares with
// others (llama_relatives.cpp, layer_normed.cpp, ...).
#define TROUPE_FAMILIES(X) \
  X(llama)                 \
  X(qwen2)                 \
  X(qwen2moe)              \
  X(qwen2vl)               \
  X(qwen3)                 \
  X(qwen3moe)              \
  X(qwen3vl)               \
  X(qwen3next)             \
  X(qwen35)                \
  X(qwen35moe)             \
  X(phi2)                  \
  X(phi3)                  \
  X(gemma)                 \
  X(gemma2)                \
  X(gemma3)                \
  X(olmo2)                 \
  X(olmoe)                 \
  X(exaone4)               \
  X(gpt_oss)               \
  X(granite)               \
  X(minicpm)               \
  X(command_r)             \
  X(cohere2)               \
  X(stablelm)              \
  X(starcoder2)            \
  X(smollm3)               \
  X(internlm2)             \
  X(ernie4_5)              \
  X(seed_oss)              \
  X(mistral3)              \
  X(hunyuan_dense)         \
  X(deci)                  \
  X(lfm2)                  \
  X(lfm2moe)               \
  X(bitnet)                \
  X(bitnet158)             \
  X(bitnet25)              \
  X(falcon_h1)             \
  X(mamba)                 \
  X(mamba2)                \
  X(rwkv6)                 \
  X(rwkv7)

#define TROUPE_DECLARE(name) Family name##_family();
TROUPE_FAMILIES(TROUPE_DECLARE)

std::span<const Family> families() {
#define TROUPE_CALL(name) name##_family(),
  static const std::array all = {TROUPE_FAMILIES(TROUPE_CALL)};
  return all;
}

Result<const Family*> find_family(const ModelFile& file) {
  std::string known;
  for (const Family& family : families()) {
    if (family.accepts(file)) return &family;
    known += (known.empty() ? "" : ", ") + std::string(family.name);
  }
  const auto architecture = read_architecture(file);
  if (!architecture) return architecture.error();
  if (*architecture == "clip")
    return Error{
        ErrorCode::unsupported,
        fmt::format("{}: this is the encoder of pictures (or sounds) of a model, and only texts are supported; "
                    "use the file of the language model",
                    file.path())};
  return Error{ErrorCode::unsupported, fmt::format("{}: architecture '{}' is not supported; supported are {}",
                                                   file.path(), Printable(*architecture).text(), known)};
}

Result<std::unique_ptr<Model>> load_model(const ModelFile& file, const LoadOptions& options) {
  const auto family = find_family(file);
  if (!family) return family.error();
  return (*family)->load(file, options);
}

}  // namespace troupe::engine
