#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "engine/engine.h"
#include "engine/families.h"
#include "engine/memory_budget.h"
#include "engine/process_memory.h"
#include "kernels/amx_permission.h"

namespace troupe::engine {
namespace {

// A number of bytes as people say it.
std::string mebibytes(std::uint64_t bytes) { return std::to_string((bytes + (1u << 20) - 1) >> 20) + " MiB"; }

// The best variant that can run. Says so where that is not the one this CPU is made for: it would only be slow.
const kernels::KernelTable* best_kernels(const LoadNotes& notes) {
  const kernels::KernelTable& best = kernels::best_table();
  const std::string refusal = kernels::amx_refusal();
  if (notes && !refusal.empty())
    notes({.warning = true, .text = "kernels " + std::string(best.name) + " in place of amx: " + refusal});
  return &best;
}

Result<const kernels::KernelTable*> choose_kernels(std::string name, const LoadNotes& notes) {
  if (name.empty()) {
    const char* wanted = std::getenv("TROUPE_KERNELS");
    if (!wanted || *wanted == '\0') return best_kernels(notes);
    name = wanted;
  }
  std::string supported;
  for (const kernels::KernelTable* table : kernels::supported_tables()) {
    supported += (supported.empty() ? "" : ", ") + std::string(table->name);
  }
  const kernels::KernelTable* table = kernels::find_table(name);
  if (!table) {
    return Error{ErrorCode::invalid_argument,
                 "there are no kernels named '" + name + "'; this machine has " + supported};
  }
  if (!kernels::is_supported(*table)) {
    return Error{ErrorCode::unsupported, "this CPU cannot run the kernels '" + name + "'; it can run " + supported};
  }
  return table;
}

Result<Ternary> choose_ternary(std::optional<Ternary> ternary) {
  if (ternary) return *ternary;
  const char* wanted = std::getenv("TROUPE_TERNARY");
  if (!wanted || *wanted == '\0') return Ternary::automatic;
  if (const auto found = find_ternary(wanted)) return *found;
  return Error{ErrorCode::invalid_argument,
               "TROUPE_TERNARY: '" + std::string(wanted) + "' is none of auto, multiply, lookup and trits"};
}

// How many KV blocks fit beside the weights.
Result<std::uint32_t> plan_blocks(const Model& model, const LoadOptions& options, std::uint64_t budget) {
  const std::uint64_t per_block = model.cache_spec().groups[0].bytes_per_block;
  const std::uint32_t per_context = blocks_for(model.info().context);
  const std::uint64_t fit = blocks_that_fit(budget, model.weight_bytes(), per_block);
  const std::uint64_t needed = options.num_blocks ? options.num_blocks : per_context;
  if (fit < needed) {
    const std::uint64_t longest = fit * kBlockSize;
    return Error{ErrorCode::out_of_memory,
                 "a memory budget of " + mebibytes(budget) + " is too small: weights take " +
                     mebibytes(model.weight_bytes()) + " and the KV cache of " + std::to_string(needed * kBlockSize) +
                     " tokens takes " + mebibytes(needed * per_block) +
                     (longest > 0 ? "; use -c " + std::to_string(longest) + " or less, or a larger --memory"
                                  : "; use a larger --memory or a smaller model")};
  }
  if (options.num_blocks) return options.num_blocks;
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>({fit, std::uint64_t{per_context} * std::max(1u, options.max_sequences), kNoBlock - 1}));
}

// Other threads give memory back meanwhile: never below nothing.
std::uint64_t grown(std::uint64_t before, std::uint64_t after) { return after - std::min(before, after); }

std::string make_numerics_id(const kernels::KernelTable& kernels, kernels::KvType kv_type, std::uint64_t hash) {
  char hex[17];
  std::snprintf(hex, sizeof hex, "%016" PRIx64, hash);
  return std::to_string(kernels::kRecipeVersion) + "-" + std::string(kernels.name) + "-" +
         std::string(kernels::name(kv_type)) + "-" + hex;
}

}  // namespace

Result<std::shared_ptr<LoadedModel>> LoadedModel::load(const std::string& path, const LoadOptions& options) {
  const auto table = choose_kernels(options.kernels, options.notes);
  if (!table) return table.error();
  const auto ternary = choose_ternary(options.ternary);
  if (!ternary) return ternary.error();
  const auto file = open_gguf(path);
  if (!file) return file.error();
  const std::uint64_t heap_before = process_memory().heap_used;
  auto tokenizer = make_tokenizer(**file);
  if (!tokenizer) return tokenizer.error();
  const std::uint64_t heap_with_vocabulary = process_memory().heap_used;

  const std::uint64_t budget = options.memory ? options.memory : default_memory_budget();
  // Before any is packed: a model that cannot fit is refused at once.
  const std::uint64_t estimate = packed_weight_bytes(**file, **table);
  if (estimate > budget) {
    return Error{ErrorCode::out_of_memory, path + ": a memory budget of " + mebibytes(budget) +
                                               " is too small: weights take " + mebibytes(estimate) +
                                               "; use a larger --memory or a smaller model"};
  }

  std::unique_ptr<Team> own_team;
  if (!options.team) own_team = std::make_unique<Team>(default_num_threads());
  auto model = load_model(**file, {.kernels = *table,
                                   .ternary = *ternary,
                                   .kv_type = options.kv_type,
                                   .context = options.context,
                                   .memory = std::max<std::uint64_t>(budget - estimate, 1),
                                   .team = options.team ? options.team : own_team.get(),
                                   .weights_cache = options.weights_cache,
                                   .memory_policy = options.memory_policy,
                                   .progress = options.progress,
                                   .notes = options.notes});
  if (!model) return model.error();
  const std::uint64_t heap_with_weights = process_memory().heap_used;
  const ModelInfo& info = (*model)->info();
  if (*tokenizer && (*tokenizer)->size() != info.vocab_size) {
    return Error{ErrorCode::bad_model, path + ": the vocabulary has " + std::to_string((*tokenizer)->size()) +
                                           " tokens, but the embedding has " + std::to_string(info.vocab_size) +
                                           " rows"};
  }
  const auto num_blocks = plan_blocks(**model, options, budget);
  if (!num_blocks) return Error{num_blocks.error().code, path + ": " + num_blocks.error().message};
  auto arena = KvArena::create(*num_blocks, (*model)->cache_spec().groups[0].bytes_per_block, options.memory_policy);
  if (!arena) return arena.error();

  auto loaded = std::shared_ptr<LoadedModel>(new LoadedModel());
  loaded->end_ids_ = find_end_ids(**file, tokenizer->get(), info.vocab_size);
  loaded->numerics_id_ = make_numerics_id(**table, options.kv_type, (*model)->content_hash());
  loaded->kernels_ = *table;
  loaded->tokenizer_ = std::move(*tokenizer);
  loaded->arena_ = std::move(*arena);
  loaded->model_ = std::move(*model);
  loaded->memory_policy_ = options.memory_policy;
  loaded->vocabulary_bytes_ = grown(heap_before, heap_with_vocabulary);
  loaded->weight_heap_bytes_ = grown(heap_with_vocabulary, heap_with_weights);
  return loaded;
}

}  // namespace troupe::engine
