#include "cli/backup/state_places.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

#include "cli/terminal/accounts.h"
#include "config/state_directory.h"
#include "ipc/keys/key_file.h"

namespace troupe::cli {
namespace {

// The path for an option: `state` is the directory that auto means, if it is given.
Result<std::string> place_of(const std::string& value, std::string_view option, std::string_view name,
                             const std::string& state) {
  auto path = value == "auto" && !state.empty() ? Result<std::string>(fmt::format("{}/{}", state, name))
                                                : chosen_state_path(value, option, name);
  if (path)
    while (path->size() > 1 && path->ends_with('/')) path->pop_back();
  return path;
}

}  // namespace

Result<StatePlaces> state_places(const config::BackupOptions& options) {
  const auto usage = place_of(options.usage_db, "usage-db", kUsagePart, options.state);
  if (!usage) return usage.error();
  const auto sessions = place_of(options.sessions_dir, "sessions-dir", kSessionsPart, options.state);
  if (!sessions) return sessions.error();
  StatePlaces places{.usage_db = *usage, .sessions = *sessions, .keys = {}};
  if (!options.keys) return places;
  const auto keys = options.keys_file == "auto" && options.state.empty()
                        ? ipc::keys_path(options.keys_file)
                        : place_of(options.keys_file, "keys-file", kKeysPart, options.state);
  if (!keys) return keys.error();
  places.keys = *keys;
  return places;
}

Error not_the_owner(const std::string& path, const Owner& owner) {
  const auto account = find_account(owner.uid);
  const std::string name = account ? account->name : fmt::format("#{}", owner.uid);
  return {ErrorCode::permission,
          fmt::format("{}: belongs to {} (uid {}), and this is uid {}; run this as that user (sudo -u {} troupe ...) "
                      "or as root",
                      path, name, owner.uid, ::geteuid(), name)};
}

}  // namespace troupe::cli
