#include "engine/model/load_choices.h"

#include <cinttypes>
#include <cstdio>
#include <cstdlib>

#include "kernels/cpu/amx_permission.h"

namespace troupe::engine {
namespace {

// The best variant that can run. Logs a warning if the CPU has AMX but it cannot be used, because the only symptom
// would be lower speed.
const kernels::KernelTable* best_kernels(const LoadNotes& notes) {
  const kernels::KernelTable& best = kernels::best_table();
  const std::string refusal = kernels::amx_refusal();
  if (notes && !refusal.empty())
    notes({.warning = true, .text = "kernels " + std::string(best.name) + " in place of amx: " + refusal});
  return &best;
}

// Why a variant cannot be chosen. `table`: the one that this CPU cannot run; null if no variant is called `name`.
std::string why_not(const std::string& name, const kernels::KernelTable* table) {
  std::string supported;
  for (const kernels::KernelTable* each : kernels::supported_tables())
    supported += (supported.empty() ? "" : ", ") + std::string(each->name);
  if (!table) return "there is no variant '" + name + "'; this CPU can run " + supported;
  const std::string refusal = name == "amx" ? kernels::amx_refusal() : "";
  if (!refusal.empty()) return "'amx' cannot run here: " + refusal + "; what can run is " + supported;
  return "this CPU cannot run '" + name + "'; it can run " + supported;
}

}  // namespace

std::string mebibytes(std::uint64_t bytes) { return std::to_string((bytes + (1u << 20) - 1) >> 20) + " MiB"; }

Result<const kernels::KernelTable*> choose_kernels(std::string name, const LoadNotes& notes) {
  if (name.empty()) {
    const char* wanted = std::getenv("TROUPE_KERNELS");
    if (!wanted || *wanted == '\0') return best_kernels(notes);
    name = wanted;
  }
  const kernels::KernelTable* table = kernels::find_table(name);
  if (table && kernels::is_supported(*table)) return table;
  return Error{table ? ErrorCode::unsupported : ErrorCode::invalid_argument, why_not(name, table)};
}

Result<Ternary> choose_ternary(std::optional<Ternary> ternary) {
  if (ternary) return *ternary;
  const char* wanted = std::getenv("TROUPE_TERNARY");
  if (!wanted || *wanted == '\0') return Ternary::automatic;
  if (const auto found = find_ternary(wanted)) return *found;
  return Error{ErrorCode::invalid_argument,
               "TROUPE_TERNARY: '" + std::string(wanted) + "' is none of auto, multiply, lookup and trits"};
}

std::string make_numerics_id(const kernels::KernelTable& kernels, const CacheSpec& cache, std::uint64_t hash) {
  char hex[17];
  std::snprintf(hex, sizeof hex, "%016" PRIx64, hash);
  const bool rounds_state = cache.has_state() && cache.state_type == StateType::f16;
  return std::to_string(kernels::kRecipeVersion) + "-" + std::string(kernels.name) + "-" +
         std::string(kernels::name(cache.kv_type)) + "-" + hex +
         (rounds_state ? "-s" + std::to_string(cache.snapshot_every) : "");
}

}  // namespace troupe::engine
