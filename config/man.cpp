#include <algorithm>
#include <sstream>

#include "config/help.h"
#include "config/options.h"

namespace troupe::config {
namespace {

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

std::string users_of(const Option& option) {
  std::string names;
  for (const CommandInfo& command : commands())
    if (option.belongs_to(command.command)) names += (names.empty() ? "" : ", ") + std::string(command.name);
  return names;
}

void write_option(const Option& option, std::ostream& out) {
  out << ".TP\n";
  std::string separator;
  for (const std::string& spelling : sorted_spellings(option)) {
    out << separator << bold(spelling);
    separator = ", ";
  }
  if (!option.value.empty()) out << " \\fI" << plain(option.value) << "\\fR";
  out << '\n' << plain(option.help) << ' ' << plain(facts(option)) << " \\(em " << plain(users_of(option)) << '\n';
}

void write_options(std::ostream& out) {
  out << ".SH OPTIONS\nEvery option is a flag, a variable and a key of the configuration file; which subcommands have "
         "it\n"
         "stands at its end.\n";
  std::vector<std::string_view> groups;
  for (const Option& option : option_table())
    if (std::find(groups.begin(), groups.end(), option.group) == groups.end()) groups.push_back(option.group);
  for (const std::string_view group : groups) {
    out << ".SS " << plain(group) << '\n';
    for (const Option& option : option_table())
      if (option.group == group) write_option(option, out);
  }
}

void write_item(std::ostream& out, std::string_view label, std::string_view text) {
  out << ".TP\n" << bold(label) << '\n' << plain(text) << '\n';
}

}  // namespace

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
  write_item(out, "NO_COLOR", "no colours in the log");
  out << ".SH FILES\n";
  write_item(out, "$XDG_CONFIG_HOME/troupe/troupe.toml, /etc/troupe/troupe.toml",
             "the configuration, one key for each option; the first that exists is read");
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
