#include "cli/serve/listed_models.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "cli/store/model_source.h"
#include "cli/store/store.h"
#include "config/printable.h"
#include "config/system_error.h"
#include "engine/formats/split_name.h"

namespace troupe::cli {
namespace {

namespace fs = std::filesystem;

std::string printable(const std::string& text) { return Printable(text, 1024).text(); }

bool is_model_file(const std::string& name) {
  constexpr std::string_view kEnding = ".gguf";
  if (name.starts_with('.') || name.size() <= kEnding.size()) return false;
  if (!same_name(name.substr(name.size() - kEnding.size()), std::string(kEnding))) return false;
  std::string lower = name;
  std::ranges::transform(lower, lower.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 32) : c; });
  if (lower.find("mmproj") != std::string::npos) return false;
  const auto part = engine::parse_split_name(name);
  return !part || part->number == 1;
}

// The names in a folder, in order.
Result<std::vector<std::string>> names_in(const fs::path& folder) {
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    names.push_back(entry->path().filename().string());
  if (error)
    return system_error(fmt::format("--models-dir: {} cannot be read", printable(folder.string())), error.value(),
                        ErrorCode::bad_config);
  std::ranges::sort(names);
  return names;
}

class Lister {
 public:
  explicit Lister(const std::vector<config::ModelTable>& named) : named_(named) {
    for (const config::ModelTable& table : named) {
      taken_.insert(table.name);
      taken_.insert(table.aliases.begin(), table.aliases.end());
    }
  }

  Status add_folder(const fs::path& folder) {
    const auto names = names_in(folder);
    if (!names) return names.error();
    for (const std::string& name : *names) {
      const fs::path path = folder / name;
      std::error_code ignored;
      if (fs::is_directory(path, ignored))
        add_subfolder(path, name);
      else if (is_model_file(name))
        add(path.string(), engine::name_after_file(name));
    }
    return Ok{};
  }

  void add_store(const StorePlace& place) {
    const auto store = Store::open(place, false);
    if (!store) {
      if (store.error().code != ErrorCode::model_missing) leave_out(place.path, store.error().message);
      return;
    }
    const auto listing = store->list();
    if (!listing) return leave_out(place.path, listing.error().message);
    for (const std::string& problem : listing->problems) listing_.left_out.push_back(printable(problem));
    for (const StoredModel& model : listing->models) {
      const auto path = store->file_of(model);
      path ? add(*path, model.name) : leave_out(model.name, path.error().message);
    }
  }

  Listing take() { return std::move(listing_); }

 private:
  void leave_out(const std::string& what, const std::string& why) {
    listing_.left_out.push_back(fmt::format("{} is left out: {}", printable(what), why));
  }

  void add_subfolder(const fs::path& folder, const std::string& name) {
    if (name.starts_with('.')) return;
    auto names = names_in(folder);
    if (!names) return leave_out(folder.string(), names.error().message);
    std::erase_if(*names, [](const std::string& each) { return !is_model_file(each); });
    if (names->size() > 1)
      return leave_out(folder.string(),
                       fmt::format("it has {} models, and a folder is one model; put them beside it", names->size()));
    if (!names->empty()) add((folder / names->front()).string(), name);
  }

  void add(const std::string& path, std::string name) {
    const auto is_same_file = [&](const config::ModelTable& table) {
      std::error_code ignored;
      return fs::equivalent(table.path, path, ignored);
    };
    if (std::ranges::any_of(named_, is_same_file)) return;
    if (std::string problem = problem_of_model_name(name); !problem.empty()) return leave_out(path, problem);
    if (!taken_.insert(name).second) return leave_out(path, fmt::format("another model is called {}", printable(name)));
    config::ModelTable& table = listing_.tables.emplace_back();
    table.path = path;
    table.name = std::move(name);
    table.load = config::kLoadTimes[1];
  }

  const std::vector<config::ModelTable>& named_;
  std::set<std::string> taken_;
  Listing listing_;
};

}  // namespace

Result<Listing> list_models(const config::ServeOptions& options, const std::vector<config::ModelTable>& named) {
  Lister lister(named);
  if (!options.models_dir.empty())
    if (Status read = lister.add_folder(options.models_dir); !read) return read.error();
  if (options.models_store)
    for (const StorePlace& place : searched_stores(options.store)) lister.add_store(place);
  return lister.take();
}

}  // namespace troupe::cli
