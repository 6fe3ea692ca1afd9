// Describes the options: --help, --print-config and the manual page.
#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "config/options/config_file.h"
#include "config/options/options.h"
#include "config/options/values.h"

namespace troupe::config {
namespace {

constexpr std::size_t kWidth = 100;
constexpr std::size_t kIndent = 30;  // where the help text of an option begins

// Wraps `text` between words to lines of at most kWidth columns, indented by `indent` spaces except for the first,
// which begins at `column`.
std::string wrap(std::string_view text, std::size_t column, std::size_t indent) {
  std::string out;
  std::istringstream words{std::string(text)};
  bool first = true;
  for (std::string word; words >> word; first = false) {
    if (!first && column + 1 + word.size() > kWidth) {
      out += '\n' + std::string(indent, ' ');
      column = indent;
    } else if (!first) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
  }
  return out;
}

// All spellings, short ones first: "-c", "--ctx-size", "--max-model-len".
std::vector<std::string> sorted_spellings(const Option& option) {
  std::vector<std::string> spellings = option.spellings();
  std::stable_partition(spellings.begin(), spellings.end(), [](const std::string& s) { return s[1] != '-'; });
  return spellings;
}

// "[0 to 100; default 0.8; TROUPE_TEMP]"; empty if an option has none of these.
std::string facts(const Option& option) {
  static const Options kPresets;
  std::vector<std::string> all;
  if (const std::string range = describe_range(option); !range.empty()) all.push_back(range);
  const std::string preset = fmt::format("{}", fmt::join(to_texts(option, kPresets), ","));
  if (!option.value.empty() && !preset.empty()) all.push_back("default " + preset);
  if (!option.flag_only) all.push_back(option.variable());
  if (option.changes == Changes::by_reload) all.emplace_back("SIGHUP reloads it");
  return all.empty() ? "" : fmt::format("[{}]", fmt::join(all, "; "));
}

// "  -c, --ctx-size, --max-model-len TOKENS", and the help text beside it, or below if the first column is too wide.
void write_help(const Option& option, std::ostream& out) {
  const std::string left =
      fmt::format("  {}{}{}", fmt::join(sorted_spellings(option), ", "), option.value.empty() ? "" : " ", option.value);
  const bool fits = left.size() + 2 <= kIndent;
  out << left << (fits ? "" : "\n") << std::string(fits ? kIndent - left.size() : kIndent, ' ')
      << wrap(fmt::format("{} {}", option.help, facts(option)), kIndent, kIndent) << '\n';
}

// A value as it stands in troupe.toml.
std::string toml_value(const Option& option, const Options& options) {
  const std::vector<std::string> texts = to_texts(option, options);
  const bool quoted = std::holds_alternative<std::string Options::*>(option.field) ||
                      std::holds_alternative<std::vector<std::string> Options::*>(option.field) ||
                      std::holds_alternative<Bytes Options::*>(option.field) ||
                      std::holds_alternative<std::chrono::milliseconds Options::*>(option.field) ||
                      (std::holds_alternative<Seed Options::*>(option.field) && !parse_integer(texts.front()));
  const auto element = [&](const std::string& text) { return quoted ? toml_string(text) : text; };
  if (!option.is_list()) return element(texts.front());
  std::vector<std::string> elements(texts.size());
  std::transform(texts.begin(), texts.end(), elements.begin(), element);
  return fmt::format("[{}]", fmt::join(elements, ", "));
}

// The headings of a subcommand's options, or of all options, in the order of the table.
std::vector<std::string_view> groups(std::optional<Command> command = std::nullopt) {
  std::vector<std::string_view> all;
  for (const Option& option : option_table())
    if ((!command || option.belongs_to(*command)) && std::find(all.begin(), all.end(), option.group) == all.end())
      all.push_back(option.group);
  return all;
}

std::string origin_of(const Option& option, const Parsed& parsed, std::string_view prefix) {
  const auto origin = parsed.origins.find(option.name);
  return origin == parsed.origins.end() ? "default" : fmt::format("{}{}", prefix, origin->second);
}

// Escapes text for a line of roff: dashes stay ASCII so that they can be copied, and nothing is read as an escape or a
// request.
std::string plain(std::string_view text) {
  std::string out;
  if (text.starts_with('.') || text.starts_with('\'')) out += "\\&";
  for (const char c : text) {
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
  }
  return out;
}

std::string bold(std::string_view text) { return "\\fB" + plain(text) + "\\fR"; }

void write_commands(std::ostream& out) {
  out << ".SH SUBCOMMANDS\n";
  for (const CommandInfo& command : commands()) {
    out << ".SS " << bold("troupe " + std::string(command.name)) << " [FLAGS]" << (command.arguments.empty() ? "" : " ")
        << plain(command.arguments) << '\n'
        << plain(command.description) << "\n.PP\n.nf\n";
    for (const std::string_view example : command.examples) out << plain(example) << '\n';
    out << ".fi\n";
  }
}

void write_option(const Option& option, std::ostream& out) {
  std::vector<std::string> spellings = sorted_spellings(option);
  for (std::string& spelling : spellings) spelling = bold(spelling);
  std::vector<std::string_view> users;
  for (const CommandInfo& command : commands())
    if (option.belongs_to(command.command)) users.push_back(command.name);
  out << fmt::format(".TP\n{}", fmt::join(spellings, ", "));
  if (!option.value.empty()) out << " \\fI" << plain(option.value) << "\\fR";
  out << fmt::format("\n{} {} \\(em {}\n", plain(option.help), plain(facts(option)), fmt::join(users, ", "));
}

void write_options(std::ostream& out) {
  out << ".SH OPTIONS\nEvery option is a flag, a variable and a key of the configuration file; which subcommands have "
         "it\nstands at its end.\n";
  for (const std::string_view group : groups()) {
    out << ".SS " << plain(group) << '\n';
    for (const Option& option : option_table())
      if (option.group == group) write_option(option, out);
  }
}

void write_item(std::ostream& out, std::string_view label, std::string_view text) {
  out << ".TP\n" << bold(label) << '\n' << plain(text) << '\n';
}

}  // namespace

std::string help(Command command) {
  const CommandInfo& about = info(command);
  std::ostringstream out;
  out << fmt::format("troupe {0}: {1}\n\nUsage: troupe {0} [FLAGS]{2}{3}\n\n{4}\n", about.name, about.summary,
                     about.arguments.empty() ? "" : " ", about.arguments, wrap(about.description, 0, 0));
  for (const std::string_view group : groups(command)) {
    out << '\n' << group << ":\n";
    for (const Option& option : option_table())
      if (option.belongs_to(command) && option.group == group) write_help(option, out);
  }
  out << "\nExamples:\n";
  for (const std::string_view example : about.examples) out << "  " << example << '\n';
  return out.str();
}

std::string describe(const Option& option, const Parsed& parsed) {
  return fmt::format("{} = {} ({})", option.name, toml_value(option, parsed.options), origin_of(option, parsed, ""));
}

std::string print_config(Command command, const Parsed& parsed) {
  std::ostringstream out;
  out << "# What `troupe " << info(command).name << "` was told, as a configuration file: save it as\n"
      << "# $XDG_CONFIG_HOME/troupe/troupe.toml (or name it with --config) to make these values permanent.\n";
  for (const std::string_view group : groups(command)) {
    bool any = false;
    for (const Option& option : option_table()) {
      if (!option.belongs_to(command) || option.group != group || option.flag_only || option.name == "config") continue;
      if (option.name == "model" && !parsed.models.empty()) continue;  // its tables stand below
      if (!any) out << "\n# " << group << '\n';
      any = true;
      out << fmt::format("{} = {}  # {}\n", option.name, toml_value(option, parsed.options),
                         origin_of(option, parsed, "from "));
    }
  }
  for (const ModelTable& model : parsed.models)
    out << fmt::format("\n[[model]]  # from {}:{}\n{}", parsed.file, model.line, to_toml(model));
  for (const TenantRule& rule : parsed.tenants)
    out << fmt::format("\n[[tenant]]  # from {}:{}\n{}", parsed.file, rule.line, to_toml(rule));
  return out.str();
}

std::string man_page(std::string_view version, std::span<const ExitStatus> statuses) {
  std::ostringstream out;
  out << ".TH TROUPE 1 \"\" \"troupe " << plain(version) << "\" \"troupe\"\n"
      << ".SH NAME\ntroupe \\- serves language models to every user of one machine\n"
      << ".SH SYNOPSIS\n"
      << bold("troupe") << " \\fISUBCOMMAND\\fR [\\fIFLAGS\\fR]\n.br\n"
      << bold("troupe help") << " [\\fISUBCOMMAND\\fR]\n"
      << ".SH DESCRIPTION\n"
      << plain(
             "One server computes for all users of a machine, on its CPUs, and is reached through a Unix socket. The "
             "kernel says who is calling; requests are batched across all callers, and what their prompts have in "
             "common is computed once.")
      << '\n';
  write_commands(out);
  write_options(out);
  out << ".SH ENVIRONMENT\n";
  write_item(out, "TROUPE_HOST", "the server that clients talk to: unix:///absolute/path");
  write_item(out, "TROUPE_...", "every option: its name in capitals, with underscores (TROUPE_CTX_SIZE)");
  write_item(out, "NO_COLOR", "set and not empty: no colours, which else are shown on terminals");
  out << ".SH FILES\n";
  write_item(out, "$XDG_CONFIG_HOME/troupe/troupe.toml, /etc/troupe/troupe.toml",
             "the configuration, one key for each option, [[model]] tables and [[tenant]] rules (operations.md); the "
             "first that exists "
             "is read");
  write_item(out, "$XDG_RUNTIME_DIR/troupe/troupe.sock, ~/.troupe/HOST.sock, /run/troupe/troupe.sock",
             "the socket of a user's own server, with and without a runtime directory, and of the system's");
  out << ".SH EXIT STATUS\n";
  for (const ExitStatus& status : statuses) write_item(out, std::to_string(status.code), status.meaning);
  out << ".SH SIGNALS\n";
  write_item(out, "SIGTERM, SIGINT", "serve: finish what runs, then end; a second one ends at once");
  write_item(out, "SIGHUP",
             "serve: read the configuration again and open the log file anew; on a terminal, as SIGTERM");
  out << ".SH SEE ALSO\n"
      << plain("operations.md, security.md and protocol.md in the documentation; systemd.service(5)") << '\n';
  return out.str();
}

}  // namespace troupe::config
