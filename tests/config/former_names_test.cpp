#include <algorithm>
#include <array>
#include <catch2/catch.hpp>

#include "config/options/options.h"
#include "tests/support/temp_folder.h"

using namespace troupe;
using namespace troupe::config;

namespace {

constexpr std::array kNames{FormerName{"most-streams", "max-streams"}};

Result<Parsed> parse_renamed(std::vector<std::string> arguments,
                             std::map<std::string, std::string, std::less<>> variables = {}) {
  return parse(Command::serve, arguments,
               {.variables = std::move(variables), .system_file = "/nonexistent", .former_names = kNames});
}

}  // namespace

TEST_CASE("a former name sets its option as a flag, a variable and a key, and a warning says the new one") {
  const test::TempFolder folder;
  const std::string file = folder.write("troupe.toml", "# old\nmost-streams = 7\n");
  const std::vector<std::pair<Result<Parsed>, std::string>> all = {
      {parse_renamed({"--most-streams", "7"}),
       "--most-streams is called --max-streams now; the old name is still understood"},
      {parse_renamed({"--most-streams=7"}),
       "--most-streams is called --max-streams now; the old name is still understood"},
      {parse_renamed({}, {{"TROUPE_MOST_STREAMS", "7"}}),
       "TROUPE_MOST_STREAMS is called TROUPE_MAX_STREAMS now; the old name is still understood"},
      {parse_renamed({"--config", file}),
       file + ":2: most-streams is called max-streams now; the old name is still understood"},
  };
  for (const auto& [parsed, warning] : all) {
    INFO(warning);
    REQUIRE(parsed);
    CHECK(parsed->options.max_streams == 7);
    CHECK(parsed->warnings == std::vector<std::string>{warning});
  }
}

TEST_CASE("beside the new variable the old one does not count; a file with both keys is refused") {
  const auto both = parse_renamed({}, {{"TROUPE_MOST_STREAMS", "7"}, {"TROUPE_MAX_STREAMS", "8"}});
  REQUIRE(both);
  CHECK(both->options.max_streams == 8);
  const test::TempFolder folder;
  const auto file = parse_renamed({"--config", folder.write("troupe.toml", "max-streams = 8\nmost-streams = 7\n")});
  REQUIRE_FALSE(file);
  CHECK_THAT(file.error().message, Catch::Contains(":2: most-streams is a former name of max-streams"));
}

TEST_CASE("a bad value is reported under the name that was given") {
  CHECK_THAT(parse_renamed({}, {{"TROUPE_MOST_STREAMS", "0"}}).error().message,
             Catch::StartsWith("TROUPE_MOST_STREAMS: "));
}

TEST_CASE("former names are no names of today, and stand for one") {
  for (const FormerName& each : former_names()) {
    INFO(each.was);
    const auto has = [](std::string_view name) {
      return std::any_of(option_table().begin(), option_table().end(),
                         [&](const Option& option) { return option.name == name; });
    };
    CHECK_FALSE(has(each.was));
    CHECK(has(each.is));
  }
}
