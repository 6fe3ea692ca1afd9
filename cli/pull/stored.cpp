// troupe list, rm and prune: the models of the store.
#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/pull/quant.h"
#include "cli/store/model_source.h"
#include "cli/store/store.h"
#include "cli/subcommands.h"
#include "cli/terminal/exit_code.h"
#include "cli/terminal/output.h"
#include "cli/terminal/text.h"
#include "config/printable.h"

namespace troupe::cli {
namespace {

using nlohmann::ordered_json;

struct Places : config::StoreDirOptions, config::MachineStoreOptions {
  template <class Options>
  explicit Places(const Options& options) : StoreDirOptions(options), MachineStoreOptions(options) {}

  [[nodiscard]] Result<StorePlace> one() const {
    if (system_store) return StorePlace{kMachineStore, true};
    return own_store(store);
  }
  [[nodiscard]] std::vector<StorePlace> all() const {
    if (system_store) return {{kMachineStore, true}};
    return searched_stores(store);
  }
};

struct Row {
  StoredModel model;
  std::string store, path;
  std::string problem;  // empty: it can be used
};

ordered_json row_json(const Row& row) {
  ordered_json files = ordered_json::array();
  for (const StoredFile& file : row.model.files)
    files.push_back({{"name", file.name}, {"sha256", file.sha256}, {"bytes", file.bytes}});
  ordered_json object{{"name", row.model.name},         {"bytes", row.model.bytes()}, {"quant", row.model.quant},
                      {"family", row.model.family},     {"pulled", row.model.pulled}, {"source", row.model.source},
                      {"revision", row.model.revision}, {"store", row.store},         {"path", row.path},
                      {"files", std::move(files)}};
  if (!row.problem.empty()) object["problem"] = row.problem;
  return object;
}

std::string table_of(const std::vector<Row>& rows) {
  std::size_t width = 4, quant = 5, family = 6;
  const auto shown = [](const std::string& text) {
    return text.empty() ? std::string("-") : Printable(text, 200).text();
  };
  for (const Row& row : rows) {
    width = std::max(width, row.model.name.size());
    quant = std::max(quant, row.model.quant.size());
    family = std::max(family, row.model.family.size());
  }
  std::string text = fmt::format("{:<{}}  {:>8}  {:<{}}  {:<{}}  {}\n", "NAME", width, "SIZE", "QUANT", quant, "FAMILY",
                                 family, "PULLED");
  for (const Row& row : rows)
    text +=
        fmt::format("{:<{}}  {:>8}  {:<{}}  {:<{}}  {}{}\n", shown(row.model.name), width, size_text(row.model.bytes()),
                    shown(row.model.quant), quant, shown(row.model.family), family,
                    local_time(row.model.pulled, "%Y-%m-%d %H:%M"), row.problem.empty() ? "" : "  (cannot be used)");
  return text;
}

// Whether a pull runs, so that nothing is removed; else the right to.
Result<std::optional<StoreLock>> alone_in(const Store& store) {
  for (int attempt = 1;; ++attempt) {
    auto alone = store.in_use(true);
    if (!alone || *alone || attempt == 20) return alone;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // another rm has it for a moment
  }
}

}  // namespace

Result<int> list(const config::ListOptions& options, const config::Given& given) {
  if (!given.arguments.empty()) return Error{ErrorCode::invalid_argument, "it takes no arguments"};
  std::vector<Row> rows;
  for (const StorePlace& place : Places(options).all()) {
    const auto store = Store::open(place, false);
    if (!store && store.error().code == ErrorCode::model_missing) continue;
    if (!store) {
      complain("troupe list", store.error().message);
      continue;
    }
    const auto listing = store->list();
    if (!listing) return listing.error();
    for (const std::string& problem : listing->problems) complain("troupe list", problem);
    for (const StoredModel& model : listing->models) {
      Row row{model, place.path, {}, {}};
      const auto path = store->file_of(model);
      (path ? row.path : row.problem) = path ? *path : path.error().message;
      if (!row.problem.empty()) complain("troupe list", row.problem);
      rows.push_back(std::move(row));
    }
  }
  if (options.json) {
    ordered_json all = ordered_json::array();
    for (const Row& row : rows) all.push_back(row_json(row));
    write_json(all, std::cout);
  } else if (rows.empty()) {
    complain("troupe list", "there are no models yet; `troupe pull ORG/NAME` fetches one");
  } else {
    std::cout << table_of(rows);
  }
  return kExitOk;
}

Result<int> rm(const config::RemoveOptions& options, const config::Given& given) {
  if (given.arguments.empty())
    return Error{ErrorCode::invalid_argument, "names of models are missing; `troupe list` shows them"};
  const auto place = Places(options).one();
  if (!place) return place.error();
  const auto store = Store::open(*place, false);
  if (!store) return store.error();
  for (const std::string& name : given.arguments) {
    const auto listing = store->list();
    if (!listing) return listing.error();
    const auto model = std::ranges::find(listing->models, name, &StoredModel::name);
    if (Status removed = store->unlist(name); !removed) return removed.error();
    if (model == listing->models.end()) {
      std::cout << fmt::format("removed {}, whose record could not be read; `troupe prune` removes its files\n",
                               Printable(name, 256).text());
      continue;
    }
    const auto alone = alone_in(*store);
    const bool can_remove = alone && *alone;
    const auto freed = can_remove ? store->unused(true, &*model) : Result<Store::Unused>(Store::Unused{});
    if (!freed) return freed.error();
    std::cout << fmt::format(
        "removed {}{}\n", model->name,
        freed->bytes == 0 ? "" : fmt::format(": {}, free when no server has it open", size_text(freed->bytes)));
    if (!can_remove)
      complain("troupe rm",
               "a `troupe pull` runs, so that its files are still there; `troupe prune` removes them later");
  }
  return kExitOk;
}

Result<int> prune(const config::PruneOptions& options, const config::Given& given) {
  if (!given.arguments.empty()) return Error{ErrorCode::invalid_argument, "it takes no arguments"};
  const auto place = Places(options).one();
  if (!place) return place.error();
  const auto store = Store::open(*place, false);
  if (!store) return store.error();
  const auto alone = alone_in(*store);
  if (!alone) return alone.error();
  if (!*alone) {
    complain("troupe prune", "a `troupe pull` runs; try again when it has ended");
    return kExitTryLater;
  }
  const auto unused = store->unused(!options.dry_run);
  if (!unused) return unused.error();
  for (const std::string& path : unused->paths) std::cout << Printable(path, 300).text() << '\n';
  for (const std::string& problem : unused->kept) complain("troupe prune", problem);
  std::cout << fmt::format("{} {} files, {}\n", options.dry_run ? "would remove" : "removed", unused->paths.size(),
                           size_text(unused->bytes));
  return unused->kept.empty() ? kExitOk : kExitFailure;
}

}  // namespace troupe::cli
