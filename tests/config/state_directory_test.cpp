#include "config/state_directory.h"

#include <cstdlib>
#include <map>
#include <optional>
#include <string>

#include <catch2/catch.hpp>

#include "tests/support/temp_folder.h"

namespace troupe {
namespace {

using Values = std::map<std::string, std::string>;

// Sets the variables, those without a value to none; the destructor brings back what they were.
class Variables {
 public:
  explicit Variables(const Values& values) {
    for (const char* name : {"STATE_DIRECTORY", "XDG_STATE_HOME", "HOME"}) {
      const char* const old = std::getenv(name);
      old_[name] = old ? std::optional<std::string>(old) : std::nullopt;
      const auto value = values.find(name);
      set(name, value == values.end() ? std::nullopt : std::optional(value->second));
    }
  }
  ~Variables() {
    for (const auto& [name, value] : old_) set(name, value);
  }
  Variables(const Variables&) = delete;
  Variables& operator=(const Variables&) = delete;

 private:
  static void set(const std::string& name, const std::optional<std::string>& value) {
    value ? ::setenv(name.c_str(), value->c_str(), 1) : ::unsetenv(name.c_str());
  }
  std::map<std::string, std::optional<std::string>> old_;
};

TEST_CASE("what lasts lies in the service's directory, else in the user's for state, else below the home") {
  const test::TempFolder home;
  {
    const Variables all(
        Values{{"STATE_DIRECTORY", "/var/lib/one:/var/lib/two"}, {"XDG_STATE_HOME", "/s"}, {"HOME", "/h"}});
    CHECK(*state_path("usage-db", "usage.db") == "/var/lib/one/usage.db");
    CHECK(user_state_directory() == "/s/troupe");  // of a client's program: it is no service
  }
  {
    const Variables user(Values{{"XDG_STATE_HOME", "/s"}, {"HOME", "/nonexistent"}});
    CHECK(*state_path("usage-db", "usage.db") == "/s/troupe/usage.db");
  }
  const Variables only_home(Values{{"STATE_DIRECTORY", "relative"}, {"XDG_STATE_HOME", ""}, {"HOME", home.path()}});
  CHECK(*state_path("usage-db", "usage.db") == home.path() + "/.local/state/troupe/usage.db");
  CHECK(user_state_directory() == home.path() + "/.local/state/troupe");
}

TEST_CASE("without a place for what lasts the error names the option and the variables, or the home that is none") {
  {
    const Variables none(Values{{"XDG_STATE_HOME", "relative"}});
    const auto path = state_path("keys-file", "keys");
    REQUIRE_FALSE(path);
    CHECK(path.error().code == ErrorCode::bad_config);
    CHECK(path.error().message ==
          "--keys-file auto: none of STATE_DIRECTORY, XDG_STATE_HOME and HOME is an absolute path; name a path");
    CHECK(user_state_directory().empty());
  }
  const Variables homeless(Values{{"HOME", "/nonexistent"}});
  const auto path = state_path("keys-file", "keys");
  REQUIRE_FALSE(path);
  CHECK(path.error().message == "--keys-file auto: HOME is /nonexistent, which is no directory; name a path");
}

}  // namespace
}  // namespace troupe
