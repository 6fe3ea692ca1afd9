// The single binary: finds the subcommand, reads its options, runs it, and turns errors into exit codes.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <exception>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "cli/subcommands.h"
#include "cli/terminal/exit_code.h"
#include "cli/terminal/logging.h"
#include "cli/terminal/output.h"
#include "cli/terminal/process.h"
#include "cli/version.h"
#include "config/options/options.h"
#include "config/options/other_programs.h"
#include "config/options/values.h"

namespace troupe::cli {
namespace {

using config::Command;

// Subcommands of later versions: they get their own message instead of a suggestion of a similar name.
constexpr std::array<std::string_view, 2> kPlanned{"quantize", "convert"};

std::vector<std::string> names_of_subcommands() {
  std::vector<std::string> names;
  for (const config::CommandInfo& command : config::commands()) names.emplace_back(command.name);
  return names;
}

void print_overview(std::ostream& out) {
  out << "troupe " << kVersion << ": serves language models to every user of one machine\n\n"
      << "Usage: troupe SUBCOMMAND [FLAGS]\n\nSubcommands:\n";
  for (const config::CommandInfo& command : config::commands())
    out << fmt::format("  {:<12}{}\n", command.name, command.summary);
  out << "\n`troupe SUBCOMMAND --help` shows flags and examples. To begin: `troupe serve` in one terminal,\n"
         "`troupe run Once upon a time` in another.\n";
}

int complain(std::string_view where, const std::string& message, int code) {
  cli::complain(where, message, Tone::error);
  return code;
}

int unknown_subcommand(const std::string& name) {
  std::vector<std::string> known = names_of_subcommands();
  const std::string all = fmt::format("{}", fmt::join(known, ", "));
  if (std::find(kPlanned.begin(), kPlanned.end(), name) != kPlanned.end())
    return complain("troupe", fmt::format("`{}` is not in this version, which has {}", name, all), kExitUsage);
  if (const std::string_view advice = config::advice_on_subcommand(name); !advice.empty())
    return complain("troupe", fmt::format("there is no subcommand `{}`: {}", name, advice), kExitUsage);
  known.insert(known.begin(), "help");
  const auto likely = config::nearest(name, known);
  return complain("troupe",
                  fmt::format("unknown subcommand '{}'{} (there are {})", name,
                              likely ? fmt::format("; did you mean {}?", *likely) : "", all),
                  kExitUsage);
}

Result<int> call(Command command, const config::Parsed& parsed) {
  switch (command) {
    case Command::serve:
      return serve(parsed);
    case Command::run:
      return run(config::RunOptions(parsed.options), parsed);
    case Command::embed:
      return embed(config::EmbedOptions(parsed.options), parsed);
    case Command::model:
      return model(config::ModelCommandOptions(parsed.options), parsed);
    case Command::session:
      return session(config::SessionOptions(parsed.options), parsed);
    case Command::key:
      return key(config::KeyCommandOptions(parsed.options), parsed);
    case Command::chat:
      return chat(config::ChatOptions(parsed.options), parsed);
    case Command::bench:
      return bench(config::BenchOptions(parsed.options), parsed);
    case Command::eval:
      return eval(config::EvalOptions(parsed.options), parsed);
    case Command::tokenize:
      return tokenize(config::TokenizeOptions(parsed.options), parsed);
    case Command::schema:
      return schema(config::SchemaCommandOptions(parsed.options), parsed);
    case Command::grammar:
      return grammar(config::GrammarCommandOptions(parsed.options), parsed);
    case Command::tools:
      return tools(config::ToolsCommandOptions(parsed.options), parsed);
    case Command::inspect:
      return inspect(config::InspectOptions(parsed.options), parsed);
    case Command::status:
      return status(config::StatusOptions(parsed.options));
    case Command::top:
      return top(config::TopOptions(parsed.options));
    case Command::usage:
      return usage(config::UsageOptions(parsed.options), parsed);
    case Command::version:
      return version(config::VersionOptions(parsed.options));
    case Command::load:
      return load(config::LoadOptions(parsed.options), parsed);
    case Command::probe:
      return probe(config::ProbeOptions(parsed.options));
    case Command::verify:
      return verify(config::VerifyOptions(parsed.options), parsed);
    case Command::perplexity:
      return perplexity(config::PerplexityOptions(parsed.options), parsed);
    case Command::backup:
      return backup(config::BackupOptions(parsed.options), parsed);
    case Command::restore:
      return restore(config::RestoreOptions(parsed.options), parsed);
    case Command::doctor:
      return doctor(config::DoctorOptions(parsed.options), parsed);
    case Command::pull:
      return pull(config::PullCommandOptions(parsed.options), parsed);
    case Command::list:
      return list(config::ListOptions(parsed.options), parsed);
    case Command::rm:
      return rm(config::RemoveOptions(parsed.options), parsed);
    case Command::prune:
      return prune(config::PruneOptions(parsed.options), parsed);
    case Command::completion:
      return completion(parsed);
  }
  return kExitFailure;
}

int run_subcommand(const config::CommandInfo& command, const std::vector<std::string>& arguments) {
  const std::string where = fmt::format("troupe {}", command.name);
  const auto parsed = config::parse(command.command, arguments, config::Surroundings::of_this_process());
  if (!parsed) return complain(where, parsed.error().message, exit_code(parsed.error().code));
  if (parsed->options.help) {
    std::cout << config::help(command.command);
    return kExitOk;
  }
  for (const std::string& warning : parsed->warnings) cli::complain(where, "warning: " + warning);
  if (parsed->options.print_config) {
    std::cout << config::print_config(command.command, *parsed);
    return kExitOk;
  }
  const Result<int> result = call(command.command, *parsed);
  std::cout.flush();
  if (!result) {
    const bool is_client = (config::bit(command.command) & config::kClientCommands) != 0;
    const ErrorCode code = result.error().code;
    return complain(where, result.error().message, is_client ? client_exit_code(code) : exit_code(code));
  }
  return *result;
}

int dispatch(std::vector<std::string> arguments) {
  if (arguments.empty()) {
    print_overview(std::cerr);
    return kExitUsage;
  }
  std::string name = arguments.front();
  arguments.erase(arguments.begin());
  if (name == "help" && arguments == std::vector<std::string>{"--man"}) {
    std::cout << config::man_page(kVersion, kExitStatuses);
    return kExitOk;
  }
  if (name == "help" && !arguments.empty()) {  // `troupe help run` is `troupe run --help`
    name = arguments.front();
    arguments = {"--help"};
  }
  if (name == "help" || name == "--help" || name == "-h") {
    print_overview(std::cout);
    return kExitOk;
  }
  if (name == "--version") name = "version";
  const config::CommandInfo* command = config::find_command(name);
  return command ? run_subcommand(*command, arguments) : unknown_subcommand(name);
}

// Runs before the constructors of static objects, which may run out of memory too.
[[gnu::constructor(101)]] void handle_terminate_first() { handle_terminate(); }

}  // namespace
}  // namespace troupe::cli

int main(int argc, char** argv) {
  using namespace troupe;
  using namespace troupe::cli;
  if (!prepare_process()) return kExitOsLimit;
  int code = kExitFailure;
  try {
    StandardOutput output;
    code = dispatch({argv + 1, argv + argc});
    const std::string failure = output.finish();
    if (!failure.empty()) code = complain("troupe", failure, code == kExitOk ? kExitFailure : code);
  } catch (...) {
    const Ending ending = ending_of(std::current_exception());
    code = complain("troupe", ending.why, ending.code);
  }
  if (!flush_log()) ::_exit(code);
  return code;
}
