#include "cli/pull/token.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "config/plain_file.h"
#include "config/state_directory.h"
#include "config/system_error.h"

namespace troupe::cli {
namespace {

constexpr std::size_t kMaxTokenBytes = 4096;

Result<std::string> checked(std::string text, const std::string& from) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) text.pop_back();
  const bool is_token = !text.empty() && text.size() <= kMaxTokenBytes &&
                        std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7f; });
  if (!is_token) return Error{ErrorCode::bad_config, from + ": has no token, which is one word"};
  return text;
}

Result<std::string> read_token(const std::string& path, bool is_kept_by_system) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return system_error(path + ": cannot be read", errno);
  if (!is_kept_by_system && ((info.st_mode & 077) != 0 || (info.st_uid != ::geteuid() && info.st_uid != 0)))
    return Error{ErrorCode::permission,
                 fmt::format("{}: others could read this token (mode {:o}); chmod 600 it", path, info.st_mode & 0777)};
  auto text = read_plain_file(path, kMaxTokenBytes);
  return text ? checked(*std::move(text), path) : text.error();
}

}  // namespace

Result<HubToken> find_token(const std::string& file) {
  const auto named = [](const std::string& path, bool is_kept_by_system) -> Result<HubToken> {
    auto text = read_token(path, is_kept_by_system);
    if (!text) return text.error();
    return HubToken{*std::move(text), path, {}};
  };
  if (!file.empty()) return named(file, false);
  if (const char* const variable = std::getenv("HF_TOKEN"); variable != nullptr && *variable != '\0') {
    auto text = checked(variable, "$HF_TOKEN");
    if (!text) return text.error();
    return HubToken{*std::move(text), "$HF_TOKEN", {}};
  }
  if (const std::string path = absolute_variable("HF_TOKEN_PATH"); !path.empty()) return named(path, false);
  if (const std::string folder = absolute_variable("CREDENTIALS_DIRECTORY"); !folder.empty())
    if (const std::string path = folder + "/hf-token"; ::access(path.c_str(), F_OK) == 0) return named(path, true);
  const std::string hub = absolute_variable("HF_HOME"), home = absolute_variable("HOME");
  const std::string path = !hub.empty() ? hub + "/token" : home.empty() ? "" : home + "/.cache/huggingface/token";
  if (path.empty() || ::access(path.c_str(), F_OK) != 0) return HubToken{};
  auto found = named(path, false);
  if (!found) return HubToken{{}, {}, found.error().message + "; going on without it"};
  return found;
}

}  // namespace troupe::cli
