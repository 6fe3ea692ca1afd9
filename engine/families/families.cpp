#include "engine/model.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "config/printable.h"

namespace troupe::engine {

std::vector<Family> transformer_families();  // transformers.cpp
Family mamba_family();                       // mamba.cpp
Family mamba2_family();
Family rwkv6_family();  // in the file of its name, as the next
Family rwkv7_family();

std::span<const Family> families() {
  static const std::vector<Family> all = [] {
    std::vector<Family> list = transformer_families();
    for (const Family& family : {mamba_family(), mamba2_family(), rwkv6_family(), rwkv7_family()})
      list.push_back(family);
    return list;
  }();
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
  return Error{ErrorCode::unsupported, fmt::format("{}: architecture '{}' is not supported; supported are {}",
                                                   file.path(), Printable(*architecture).text(), known)};
}

Result<std::unique_ptr<Model>> load_model(const ModelFile& file, const ModelOptions& options) {
  const auto family = find_family(file);
  if (!family) return family.error();
  return (*family)->load(file, options);
}

}  // namespace troupe::engine
