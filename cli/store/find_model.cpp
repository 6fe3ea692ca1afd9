#include "cli/store/find_model.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "cli/store/model_source.h"
#include "config/exit_codes.h"
#include "config/printable.h"
#include "config/system_error.h"

namespace troupe::cli {
namespace {

// A process of its own, so that this one never has a network.
Status pull_asking(const std::string& name, const config::StoreDirOptions& options) {
  std::vector<std::string> words{"troupe", "pull", "--ask"};
  if (!options.store.empty()) words.insert(words.end(), {"--store", options.store});
  words.insert(words.end(), {"--", name});
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  // What it says is no output of this subcommand.
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  pid_t child = 0;
  const int failed = ::posix_spawn(&child, "/proc/self/exe", &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return system_error("troupe pull: cannot be started", failed);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == kExitOk) return Ok{};
  return Error{ErrorCode::model_missing, fmt::format("{}: was not pulled", Printable(name, 256).text())};
}

}  // namespace

bool is_path_alone(const std::string& text) {
  return text.empty() || text.front() == '/' || text.front() == '.' || text.front() == '~' ||
         (text.size() > 5 && same_name(text.substr(text.size() - 5), ".gguf") &&
          text.find("://") == std::string::npos && text.find(':') == std::string::npos);
}

Result<FoundModel> find_stored(const std::string& name, const std::vector<StorePlace>& places) {
  std::optional<Error> unusable;
  for (const StorePlace& place : places) {
    const auto store = Store::open(place, false);
    if (!store) {
      if (store.error().code != ErrorCode::model_missing && !unusable) unusable = store.error();
      continue;
    }
    const auto listing = store->list();
    if (!listing) return listing.error();
    NameMatch best = NameMatch::partly;
    std::vector<const StoredModel*> found;
    for (const StoredModel& model : listing->models) {
      const NameMatch match = model.source == name ? NameMatch::in_other_words : match_name(name, model.name);
      if (match < best) continue;
      if (match > best) found.clear();
      best = match;
      found.push_back(&model);
    }
    if (found.size() == 1) return FoundModel{*found.front(), place};
    if (found.size() > 1) {
      std::string all;
      for (const StoredModel* const model : found) all += (all.empty() ? "" : ", ") + model->name;
      return Error{ErrorCode::invalid_argument,
                   fmt::format("'{}' means several models: {}; name one", Printable(name, 256).text(), all)};
    }
    if (!listing->problems.empty() && !unusable)
      unusable = Error{ErrorCode::permission, "a record is not used: " + listing->problems.front()};
  }
  std::string where;
  for (const StorePlace& place : places) where += (where.empty() ? "" : " and ") + place.path;
  return Error{ErrorCode::model_missing,
               fmt::format("'{}' is no file, and no model in {}{}{}", Printable(name, 256).text(), where,
                           unusable ? "; " : "", unusable ? unusable->message : "")};
}

Result<std::string> find_model(const std::string& typed, const config::StoreDirOptions& options, bool may_ask) {
  std::error_code ignored;
  const auto status = std::filesystem::status(typed, ignored);
  const bool is_there = std::filesystem::exists(status);
  if (is_path_alone(typed) || (is_there && !std::filesystem::is_directory(status))) return typed;
  auto found = find_stored_model(typed, options, may_ask && !is_there);
  // A folder that is no model either: whoever opens it says so.
  if (!found && is_there && found.error().code == ErrorCode::model_missing) return typed;
  return found;
}

Result<std::string> find_stored_model(const std::string& name, const config::StoreDirOptions& options, bool may_ask) {
  const std::vector<StorePlace> places = searched_stores(options.store);
  auto found = find_stored(name, places);
  if (!found && found.error().code == ErrorCode::model_missing) {
    // Names that only this machine gave (--name) are no sources.
    const bool is_source = name.find('/') != std::string::npos;
    const bool can_ask = may_ask && ::isatty(STDIN_FILENO) == 1 && ::isatty(STDERR_FILENO) == 1;
    if (!is_source || !can_ask)
      return Error{
          ErrorCode::model_missing,
          fmt::format("{}; {}", found.error().message,
                      is_source ? fmt::format("`troupe pull {}` fetches it", shell_word(Printable(name, 512).text()))
                                : "check the path given with -m; `troupe list` shows what there is, and "
                                  "`troupe pull ORG/NAME` fetches a model")};
    if (Status pulled = pull_asking(name, options); !pulled) return pulled.error();
    found = find_stored(name, places);
  }
  if (!found) return found.error();
  const auto store = Store::open(found->place, false);
  return store ? store->file_of(found->model) : store.error();
}

}  // namespace troupe::cli
