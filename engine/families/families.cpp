#include "engine/families/families.h"

#include <array>
#include <string>

#include "config/printable.h"

namespace troupe::engine {

// Each stands in the file of its name.
Family llama_family();
Family qwen2_family();
Family qwen2moe_family();
Family qwen3_family();
Family qwen3moe_family();
Family phi3_family();
Family gemma2_family();
Family gemma3_family();
Family olmoe_family();
Family bitnet_family();
Family bitnet158_family();
Family bitnet25_family();  // both: bitnet158.cpp
Family falcon_h1_family();
Family mamba_family();
Family mamba2_family();
Family rwkv6_family();
Family rwkv7_family();

std::span<const Family> families() {
  static const std::array all = {
      llama_family(),     qwen2_family(),  qwen2moe_family(), qwen3_family(),  qwen3moe_family(),  phi3_family(),
      gemma2_family(),    gemma3_family(), olmoe_family(),    bitnet_family(), bitnet158_family(), bitnet25_family(),
      falcon_h1_family(), mamba_family(),  mamba2_family(),   rwkv6_family(),  rwkv7_family()};
  return all;
}

Result<const Family*> find_family(const ModelFile& file) {
  std::string known;
  for (const Family& family : families()) {
    if (family.accepts(file)) return &family;
    known += (known.empty() ? "" : ", ") + std::string(family.name);
  }
  const std::string* architecture = file.string("general.architecture");
  if (!architecture) {
    return Error{ErrorCode::bad_model, file.path() + ": 'general.architecture' is missing; this is no language model"};
  }
  return Error{ErrorCode::unsupported, file.path() + ": architecture '" + Printable(*architecture) +
                                           "' is not supported; supported are " + known};
}

Result<std::unique_ptr<Model>> load_model(const ModelFile& file, const ModelOptions& options) {
  const auto family = find_family(file);
  if (!family) return family.error();
  return (*family)->load(file, options);
}

}  // namespace troupe::engine
