#include <algorithm>
#include <catch2/catch.hpp>
#include <set>
#include <sstream>

#include "config/options/options.h"

using namespace troupe::config;

TEST_CASE("within a subcommand no two options share a spelling") {
  for (const CommandInfo& command : commands()) {
    std::set<std::string> seen;
    for (const Option& option : option_table())
      if (option.belongs_to(command.command))
        for (const std::string& spelling : option.spellings()) {
          INFO(command.name << " " << spelling);
          CHECK(seen.insert(spelling).second);
        }
  }
}

TEST_CASE("names, and so keys and variables, are unique in the whole table; each option belongs somewhere") {
  std::set<std::string> variables;
  for (const Option& option : option_table()) {
    INFO(option.name);
    CHECK(variables.insert(option.variable()).second);
    CHECK(option.commands != 0);
    CHECK_FALSE(option.help.empty());
    CHECK(option.value.empty() == std::holds_alternative<bool Options::*>(option.field));
  }
}

TEST_CASE("the subcommands whose options include a group have its rows") {
  const auto commands_of = [](std::string_view name) {
    for (const Option& option : option_table())
      if (option.name == name) return option.commands;
    return 0u;
  };
  CHECK(commands_of("temp") == (bit(Command::run) | bit(Command::chat) | bit(Command::load)));
  CHECK(commands_of("threads") == (bit(Command::serve) | bit(Command::bench) | bit(Command::eval) |
                                   bit(Command::perplexity) | bit(Command::probe) | bit(Command::verify)));
  CHECK(commands_of("socket") ==
        (bit(Command::serve) | bit(Command::run) | bit(Command::chat) | bit(Command::status) | bit(Command::top) |
         bit(Command::load) | bit(Command::embed) | bit(Command::usage) | bit(Command::session) | bit(Command::model) |
         bit(Command::verify) | bit(Command::doctor)));
  CHECK(commands_of("json") ==
        (bit(Command::run) | bit(Command::status) | bit(Command::version) | bit(Command::inspect) | bit(Command::eval) |
         bit(Command::usage) | bit(Command::session) | bit(Command::model) | bit(Command::key) | bit(Command::tools) |
         bit(Command::schema) | bit(Command::grammar) | bit(Command::pull) | bit(Command::list) |
         bit(Command::doctor)));
  CHECK(commands_of("hf-repo") ==
        (bit(Command::serve) | bit(Command::verify) | bit(Command::bench) | bit(Command::eval) |
         bit(Command::perplexity) | bit(Command::tokenize) | bit(Command::inspect) | bit(Command::probe) |
         bit(Command::tools) | bit(Command::schema) | bit(Command::doctor)));
  CHECK(commands_of("decode") == bit(Command::tokenize));
  std::uint32_t all = 0;
  for (const CommandInfo& command : commands()) all |= bit(command.command);
  CHECK(commands_of("help") == all);
  CHECK(commands_of("config") == (all & ~bit(Command::version) & ~bit(Command::completion)));
}

TEST_CASE("a subcommand's options are what was parsed") {
  const std::vector<std::string> arguments{"--temp", "0.5", "--rate", "3", "--socket", "s"};
  const auto parsed = parse(Command::load, arguments, {.variables = {}, .system_file = "/nonexistent"});
  REQUIRE(parsed);
  const LoadOptions options(parsed->options);
  CHECK(options.temperature == 0.5);
  CHECK(options.rate == 3);
  CHECK(options.socket == "s");
  CHECK(options.top_k == 40);
}

TEST_CASE("the variable is the name in capitals") {
  for (const Option& option : option_table())
    if (option.name == "max-step-tokens") CHECK(option.variable() == "TROUPE_MAX_STEP_TOKENS");
}

TEST_CASE("help names every spelling and variable, and no line is too wide") {
  for (const CommandInfo& command : commands()) {
    const std::string text = help(command.command);
    for (const Option& option : option_table()) {
      INFO(command.name << " " << option.name);
      if (!option.belongs_to(command.command)) continue;
      for (const std::string& spelling : option.spellings()) CHECK(text.find(spelling) != std::string::npos);
      if (!option.flag_only) CHECK(text.find(option.variable()) != std::string::npos);
    }
    CHECK(text.find("Examples:\n  troupe " + std::string(command.name)) != std::string::npos);
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) CHECK(line.size() <= 100);
  }
}

TEST_CASE("help shows range, default and variable of an option") {
  const std::string text = help(Command::serve);
  CHECK(text.find("[1 to 65536; default 512;") != std::string::npos);
  CHECK(text.find("-np, --parallel, --max-num-seqs N") != std::string::npos);
  CHECK(help(Command::run).find("[0 to 100; default 0.8;") != std::string::npos);
}

TEST_CASE("the help of top names its keys") {
  std::string text = help(Command::top);
  std::replace(text.begin(), text.end(), '\n', ' ');  // it is wrapped
  for (const char* key : {"space looks", "s sorts by phase, age, tokens or user", "j and k", "c and then y", "q or"})
    CHECK_THAT(text, Catch::Contains(key));
}

TEST_CASE("the examples in the help are accepted by the parser") {
  for (const CommandInfo& command : commands())
    for (const std::string_view example : command.examples) {
      // The shell's quoting as far as the examples use it.
      std::vector<std::string> words;
      bool quoted = false, fresh = true;
      for (const char c : example) {
        if (c == '"') {
          quoted = !quoted;
        } else if (c == ' ' && !quoted) {
          fresh = true;
        } else {
          if (fresh) words.emplace_back();
          fresh = false;
          words.back() += c;
        }
      }
      INFO(example);
      REQUIRE(words.size() >= 2);
      CHECK(words[0] == "troupe");
      CHECK(words[1] == command.name);
      const std::vector<std::string> arguments(words.begin() + 2, words.end());
      const auto parsed = parse(command.command, arguments, {.variables = {}, .system_file = "/nonexistent"});
      CHECK((parsed ? "" : parsed.error().message) == "");
    }
}

TEST_CASE("subcommands are found by name") {
  for (const CommandInfo& command : commands()) {
    CHECK(find_command(command.name)->command == command.command);
    CHECK(info(command.command).name == command.name);
  }
  CHECK(find_command("sevre") == nullptr);
}
