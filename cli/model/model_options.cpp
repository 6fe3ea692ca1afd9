#include "cli/model/model_options.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/store/find_model.h"
#include "config/state_directory.h"
#include "engine/machine/probe_file.h"
#include "engine/model/kernel_choice.h"

namespace troupe::cli {
namespace {

constexpr const char* kEmbeddedModel = "tales-5m-tq2_0.gguf";

// The directory of the weights cache; empty: no cache.
Result<std::string> weights_cache_directory(const std::string& option) {
  if (option.empty() || option == "off") return std::string();
  if (option != "auto") return option;
  if (const std::string cache = service_directory("CACHE_DIRECTORY"); !cache.empty()) return cache + "/weights";
  if (const auto folder = engine::probe_folder()) return (*folder / "weights").string();
  return Error{ErrorCode::invalid_argument,
               "--weights-cache auto: none of CACHE_DIRECTORY, XDG_CACHE_HOME and HOME is set; name a directory"};
}

}  // namespace

kernels::KvType kv_type_of(std::string_view option) {
  if (option == "f32") return kernels::KvType::f32;
  return option == "f16" ? kernels::KvType::f16 : kernels::KvType::i8;
}

bool has_model(const config::ModelOptions& options) { return !options.model.empty() || !options.hf_repo.empty(); }

Result<std::string> model_path(const config::ModelOptions& options) {
  if (options.model.size() > 1)
    return Error{ErrorCode::invalid_argument,
                 fmt::format("--model: {} models; only `troupe serve` takes several", options.model.size())};
  // An empty one is most likely a variable of a script.
  const bool has_path = !options.model.empty() && !options.model.front().empty();
  if (has_path && !options.hf_repo.empty())
    return Error{ErrorCode::invalid_argument, "-m and -hf name two models; only `troupe serve` takes several"};
  if (has_path) return find_model(options.model.front(), options);
  if (!options.hf_repo.empty()) return find_stored_model(options.hf_repo, options);
  std::error_code ignored;
  const std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  // In the tree of the source only for a binary that lies in the folder of a build: what lies there for an installed
  // one is no file of troupe.
  std::vector<const char*> places{TROUPE_INSTALLED_MODELS};
  if (std::filesystem::exists(folder / "CMakeCache.txt", ignored)) places.push_back(TROUPE_SOURCE_MODELS);
  std::vector<std::string> looked_at;
  for (const char* place : places) {
    looked_at.push_back((folder / place / kEmbeddedModel).lexically_normal().string());
    if (std::filesystem::exists(looked_at.back(), ignored)) return looked_at.back();
  }
  return Error{ErrorCode::model_missing,
               fmt::format("the embedded model is not where it belongs ({}); install troupe again, or "
                           "name a model file with -m",
                           fmt::join(looked_at, ", "))};
}

Result<engine::LoadOptions> load_options(const config::EngineOptions& options, const config::Given& given) {
  engine::LoadOptions load;
  if (const auto kernels = engine::choose_kernels(options.kernels); !kernels)
    return config::bad_value(given, "kernels", kernels.error().message);
  load.kernels = options.kernels;
  load.optimize = *engine::find_optimize(options.optimize);  // found: the option table allows only known names
  load.ternary = engine::find_ternary(options.ternary);      // likewise
  load.kv_type = kv_type_of(options.kv_type);
  load.state_type = *engine::find_state_type(options.state_type);  // likewise
  load.snapshot_every = static_cast<std::uint32_t>(options.state_snapshot_every);
  if (load.snapshot_every % kBlockSize != 0)
    return config::bad_value(given, "state-snapshot-every",
                             fmt::format("{} is not a multiple of {}", load.snapshot_every, kBlockSize));
  load.memory = options.memory.count;
  auto directory = weights_cache_directory(options.weights_cache);
  if (!directory) return directory.error();
  load.weights_cache = {.directory = std::move(*directory), .max_bytes = options.weights_cache_size.count};
  load.notes = [](const engine::LoadNote& note) {
    spdlog::log(note.warning ? spdlog::level::warn : spdlog::level::info, "{}", note.text);
  };
  return load;
}

Result<actors::GatewayOptions> gateway_for_model(const config::EngineOptions& options, const config::Given& given) {
  auto path = model_path(options);
  if (!path) return path.error();
  auto load = load_options(options, given);
  if (!load) return load.error();
  actors::GatewayOptions gateway;
  gateway.memory = std::exchange(load->memory, 0);
  gateway.models.push_back({.path = std::move(*path), .load = std::move(*load)});
  return gateway;
}

std::uint32_t num_threads(const config::ThreadOptions& options) {
  return options.threads > 0 ? static_cast<std::uint32_t>(options.threads) : engine::default_num_threads();
}

}  // namespace troupe::cli
