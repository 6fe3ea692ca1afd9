#include "config/options/completion.h"

#include <catch2/catch.hpp>
#include <sstream>

#include "config/options/options.h"

using namespace troupe::config;

namespace {

const ValueNames kValueNames{{"spec-type", {"off", "auto"}}};

// The part of a script between two texts, the first one included.
std::string part(const std::string& script, const std::string& from, const std::string& to) {
  const std::size_t begin = script.find(from);
  REQUIRE(begin != std::string::npos);
  return script.substr(begin, script.find(to, begin + 1) - begin);
}

}  // namespace

TEST_CASE("the bash script has every flag of every subcommand, below its name") {
  const std::string script = completion("bash", kValueNames);
  for (const CommandInfo& command : commands()) {
    const std::string own = part(script, "      " + std::string(command.name) + ")\n", "        ;;\n");
    const std::string flags = part(own, "flags='", "'\n") + ' ';
    for (const Option& option : option_table())
      for (const std::string& spelling : option.spellings()) {
        INFO(command.name << ' ' << spelling);
        const bool has = flags.find(' ' + spelling + ' ') != std::string::npos ||
                         flags.find('\'' + spelling + ' ') != std::string::npos;
        if (option.belongs_to(command.command)) CHECK(has);
      }
  }
}

TEST_CASE("the zsh script has every flag of every subcommand, below its name") {
  const std::string script = completion("zsh", kValueNames);
  for (const CommandInfo& command : commands()) {
    CHECK_THAT(script, Catch::Contains("    '" + std::string(command.name) + ':'));
    const std::string own = part(script, "    " + std::string(command.name) + ")\n", "      ;;\n");
    for (const Option& option : option_table())
      for (const std::string& spelling : option.spellings()) {
        INFO(command.name << ' ' << spelling);
        const std::string spec = spelling + (!option.value.empty() && spelling[1] == '-' ? "=[" : "[");
        if (option.belongs_to(command.command)) CHECK(own.find(spec) != std::string::npos);
      }
  }
}

TEST_CASE("the fish script has every flag, for the subcommands that have it") {
  const std::string script = completion("fish", kValueNames);
  for (const CommandInfo& command : commands()) {
    CHECK_THAT(script, Catch::Contains("__fish_use_subcommand -a " + std::string(command.name) + " -d '"));
    for (const Option& option : option_table()) {
      if (!option.belongs_to(command.command)) continue;
      INFO(command.name << ' ' << option.name);
      bool found = false;
      std::istringstream lines(script);
      for (std::string line; std::getline(lines, line) && !found;) {
        if (line.find(" -l " + std::string(option.name) + ' ') == std::string::npos) continue;
        const std::string users = part(line, "__troupe_in ", "'").substr(11) + ' ';
        found = users.find(' ' + std::string(command.name) + ' ') != std::string::npos;
        for (const std::string& spelling : option.spellings())
          if (spelling.starts_with("--")) found &= line.find(" -l " + spelling.substr(2) + ' ') != std::string::npos;
      }
      CHECK(found);
    }
  }
}

TEST_CASE("values are completed by what the table says of them") {
  const std::string script = completion("bash", kValueNames);
  const std::string serve = part(script, "      serve)\n", "        ;;\n");
  for (const char* line : {"--log-level) value=1 kind=words words='trace debug info warn error off' ;;",
                           "--spec-type) value=1 kind=words words='off auto' ;;",
                           "--model | -m) value=1 kind=file_or_stored ;;", "--sessions-dir) value=1 kind=directory ;;",
                           "--threads | -t) value=1 kind=text ;;", "*) kind=file_or_stored ;;"})
    CHECK_THAT(serve, Catch::Contains(line));
  CHECK_THAT(part(script, "      run)\n", "        ;;\n"),
             Catch::Contains("--served-model-name) value=1 kind=model ;;"));
  CHECK_THAT(script, Catch::Contains("--report | -o | --save-result) value=1 kind=file ;;"));
  CHECK_THAT(part(script, "      rm)\n", "        ;;\n"), Catch::Contains("*) kind=stored ;;"));
  CHECK_THAT(script, Catch::Contains("words='list save fork delete inspect repair'"));
}

TEST_CASE("there is no script for other shells") { CHECK(completion("tcsh", kValueNames).empty()); }
