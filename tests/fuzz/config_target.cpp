// Command line, environment and troupe.toml of any text: an error that says something, or options that, printed as a
// file, read back to the same.
//
// An input is a byte that chooses the subcommand, then lines: arguments up to an empty line, NAME=VALUE variables up to
// an empty line, and the file.
#include <vector>

#include "config/options/options.h"
#include "config/utf8.h"
#include "tests/engine/gguf_writer.h"
#include "tests/fuzz/fuzz_target.h"

namespace troupe::config {
namespace {

Surroundings surroundings_of(fuzz::Input& in) {
  Surroundings surroundings;
  surroundings.system_file = "";
  for (std::string_view line = in.until('\n'); !line.empty(); line = in.until('\n')) {
    const std::size_t equals = line.find('=');
    const std::string name(line.substr(0, equals));
    // These would have it read files of this machine.
    if (name == "TROUPE_CONFIG" || name == "HOME" || name == "XDG_CONFIG_HOME") continue;
    surroundings.variables[name] = equals == std::string_view::npos ? "" : line.substr(equals + 1);
  }
  return surroundings;
}

bool names_a_file(std::string_view argument) { return argument.find("config") != std::string_view::npos; }

// Options that were parsed and printed as a file are read back with the same values.
void check_round_trip(Command command, const Parsed& parsed) {
  const test::TemporaryFile file(print_config(command, parsed));
  const std::vector<std::string> arguments = {"--config", file.path()};
  const auto again = parse(command, arguments, {.variables = {}, .system_file = ""});
  TROUPE_ASSERT(again);
  TROUPE_ASSERT(again->tenants == parsed.tenants);
  for (const Option& option : option_table()) {
    if (option.flag_only || option.name == "config" || !option.belongs_to(command)) continue;
    std::visit([&](auto field) { TROUPE_ASSERT(again->options.*field == parsed.options.*field); }, option.field);
  }
}

}  // namespace
}  // namespace troupe::config

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troupe;
  using namespace troupe::config;
  fuzz::Input in(data, size);
  const Command command = commands()[in.byte() % commands().size()].command;
  std::vector<std::string> arguments;
  for (std::string_view line = in.until('\n'); !line.empty(); line = in.until('\n')) {
    if (!names_a_file(line)) arguments.emplace_back(line);
  }
  const Surroundings surroundings = surroundings_of(in);
  const bool uses_files = std::any_of(option_table().begin(), option_table().end(), [&](const Option& option) {
    return option.name == "config" && option.belongs_to(command);
  });
  const test::TemporaryFile file(in.rest());
  if (uses_files) arguments.insert(arguments.begin(), {"--config", file.path()});
  const auto parsed = parse(command, arguments, surroundings);
  if (!parsed) {
    TROUPE_ASSERT(parsed.error().code == ErrorCode::invalid_argument || parsed.error().code == ErrorCode::bad_config);
    TROUPE_ASSERT(!parsed.error().message.empty());
    return 0;
  }
  // TOML cannot hold other text, so a path of other bytes has no round trip.
  const bool printable = is_utf8({reinterpret_cast<const char*>(data), size});
  if (uses_files && printable && !parsed->options.help) check_round_trip(command, *parsed);
  return 0;
}
