#include "actors/models/model_catalog.h"

#include <algorithm>
#include <utility>

#include "actors/models/model_defaults.h"
#include "engine/formats/split_name.h"
#include "engine/model/encoder.h"
#include "engine/model/kernel_choice.h"
#include "engine/model/memory_budget.h"
#include "engine/weights/tensor_reader.h"

namespace troupe::actors {
namespace {

// Adds what a file's model needs with these options. Error: why it cannot be loaded.
Status add_demand(const engine::ModelFile& file, const engine::LoadOptions& options, MemoryDemand& demand) {
  const auto kernels = engine::choose_kernels(file, options, nullptr);
  if (!kernels) return kernels.error();
  demand.weights += engine::packed_weight_bytes(file, **kernels);
  demand.vocabulary += engine::expected_vocabulary_bytes(file);
  if (engine::is_encoder(file)) return Ok{};  // keeps nothing between texts
  const auto family = engine::find_family(file);
  if (!family) return family.error();
  engine::LoadOptions of_cache = options;
  of_cache.memory = 0;  // the tables are counted below
  const auto outline = (*family)->outline(file, of_cache);
  if (!outline) return outline.error();
  demand.weights += outline->table_bytes;
  demand.cache += engine::least_cache_bytes(outline->cache, outline->info.context, options);
  return Ok{};
}

Status open_files(CatalogEntry& entry) {
  auto file = engine::open_gguf(entry.source.path);
  if (!file) return file.error();
  entry.file = *std::move(file);
  entry.defaults = config::with_fallback(entry.source.defaults, defaults_of(*entry.file, entry.notes));
  if (entry.source.name.empty()) entry.name = entry.demand.model = engine::model_name(*entry.file);
  if (Status known = add_demand(*entry.file, entry.source.load, entry.demand); !known) return known;
  if (entry.source.draft_path.empty()) return Ok{};
  auto draft = engine::open_gguf(entry.source.draft_path);
  if (!draft) return Error{draft.error().code, "the draft model: " + draft.error().message};
  entry.draft_file = *std::move(draft);
  engine::LoadOptions options = entry.source.load;
  options.num_blocks = 0;
  if (Status known = add_demand(*entry.draft_file, options, entry.demand); !known)
    return Error{known.error().code, "the draft model: " + known.error().message};
  return Ok{};
}

}  // namespace

CatalogEntry describe(ModelSource source) {
  if (const auto described = std::exchange(source.described, nullptr)) {
    CatalogEntry entry = *described;
    entry.source = std::move(source);
    return entry;
  }
  CatalogEntry entry{.source = std::move(source)};
  const ModelSource& from = entry.source;
  entry.name = from.name.empty() ? engine::name_after_file(from.path) : from.name;
  entry.demand = {.model = entry.name, .limit = from.load.memory};
  entry.defaults = from.defaults;
  if (from.path.empty()) return entry;
  if (Status opened = open_files(entry); !opened) entry.problem = opened.error();
  return entry;
}

std::vector<std::string> names_of(const CatalogEntry& entry) {
  std::vector<std::string> names = entry.source.aliases;
  names.insert(names.begin(), entry.name);
  return names;
}

std::string twice_in(const std::vector<std::string>& names) {
  for (auto name = names.begin(); name != names.end(); ++name)
    if (std::find(names.begin(), name, *name) != name) return *name;
  return {};
}

}  // namespace troupe::actors
