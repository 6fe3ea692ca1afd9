#include "config/state_directory.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace troupe {

std::string absolute_variable(const char* name) {
  const char* const value = std::getenv(name);
  return value && *value == '/' ? std::string(value) : std::string();
}

std::string service_directory(const char* name) {
  const std::string all = absolute_variable(name);
  return all.substr(0, all.find(':'));
}

std::string user_state_directory() {
  if (const std::string state = absolute_variable("XDG_STATE_HOME"); !state.empty()) return state + "/troupe";
  const std::string home = absolute_variable("HOME");
  return home.empty() ? "" : home + "/.local/state/troupe";
}

Result<std::string> state_path(std::string_view option, std::string_view name) {
  std::string directory = service_directory("STATE_DIRECTORY");
  if (directory.empty()) {
    directory = user_state_directory();
    if (directory.empty())
      return Error{
          ErrorCode::bad_config,
          fmt::format("--{} auto: none of STATE_DIRECTORY, XDG_STATE_HOME and HOME is an absolute path; name a path",
                      option)};
    std::error_code ignored;
    if (const std::string home = absolute_variable("HOME");
        absolute_variable("XDG_STATE_HOME").empty() && !std::filesystem::is_directory(home, ignored))
      return Error{ErrorCode::bad_config,
                   fmt::format("--{} auto: HOME is {}, which is no directory; name a path", option, home)};
  }
  return fmt::format("{}/{}", directory, name);
}

Result<std::string> chosen_state_path(const std::string& value, std::string_view option, std::string_view name) {
  if (value.empty() || value == "off") return std::string();
  if (value != "auto") return value;
  return state_path(option, name);
}

}  // namespace troupe
