#include <algorithm>
#include <sstream>

#include "config/config_file.h"
#include "config/help.h"
#include "config/options.h"
#include "config/values.h"

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

std::string join(const std::vector<std::string>& texts, std::string_view separator) {
  std::string out;
  for (const std::string& text : texts) out += (out.empty() ? "" : std::string(separator)) + text;
  return out;
}

// "-c, --ctx-size, --max-model-len TOKENS".
std::string synopsis(const Option& option) {
  const std::string out = join(sorted_spellings(option), ", ");
  return option.value.empty() ? out : out + " " + std::string(option.value);
}

void write_option(const Option& option, std::ostream& out) {
  const std::string left = "  " + synopsis(option);
  const std::string right = std::string(option.help) + " " + facts(option);
  // Two columns if the left one is short enough, else the help text begins on the next line.
  if (left.size() + 2 <= kIndent)
    out << left << std::string(kIndent - left.size(), ' ');
  else
    out << left << '\n' << std::string(kIndent, ' ');
  out << wrap(right, kIndent, kIndent) << '\n';
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
  const bool is_list = std::holds_alternative<std::vector<std::int64_t> Options::*>(option.field) ||
                       std::holds_alternative<std::vector<std::string> Options::*>(option.field);
  if (!is_list) return element(texts.front());
  std::string list = "[";
  for (const std::string& text : texts) list += (list.size() == 1 ? "" : ", ") + element(text);
  return list + "]";
}

// The groups of a subcommand's options, in the order of the table.
std::vector<std::string_view> groups(Command command) {
  std::vector<std::string_view> all;
  for (const Option& option : option_table())
    if (option.belongs_to(command) && std::find(all.begin(), all.end(), option.group) == all.end())
      all.push_back(option.group);
  return all;
}

}  // namespace

std::string facts(const Option& option) {
  static const Options kPresets;
  std::string out;
  const auto add = [&](const std::string& text) { out += (out.empty() ? "[" : "; ") + text; };
  if (const std::string range = describe_range(option); !range.empty()) add(range);
  const std::string preset = join(to_texts(option, kPresets), ",");
  if (!option.value.empty() && !preset.empty()) add("default " + preset);
  if (!option.flag_only) add(option.variable());
  if (option.reloads) add("SIGHUP reloads it");
  return out.empty() ? out : out + "]";
}

std::vector<std::string> sorted_spellings(const Option& option) {
  std::vector<std::string> spellings = option.spellings();
  std::stable_partition(spellings.begin(), spellings.end(), [](const std::string& s) { return s[1] != '-'; });
  return spellings;
}

std::string help(Command command) {
  const CommandInfo& about = info(command);
  std::ostringstream out;
  out << "troupe " << about.name << ": " << about.summary << "\n\nUsage: troupe " << about.name << " [FLAGS]"
      << (about.arguments.empty() ? "" : " ") << about.arguments << "\n\n"
      << wrap(about.description, 0, 0) << "\n";
  for (const std::string_view group : groups(command)) {
    out << '\n' << group << ":\n";
    for (const Option& option : option_table())
      if (option.belongs_to(command) && option.group == group) write_option(option, out);
  }
  out << "\nExamples:\n";
  for (const std::string_view example : about.examples) out << "  " << example << '\n';
  return out.str();
}

std::string describe(const Option& option, const Parsed& parsed) {
  const auto origin = parsed.origins.find(option.name);
  return std::string(option.name) + " = " + toml_value(option, parsed.options) + " (" +
         (origin == parsed.origins.end() ? "default" : origin->second) + ")";
}

std::string print_config(Command command, const Parsed& parsed) {
  std::ostringstream out;
  out << "# What `troupe " << info(command).name << "` was told, as a configuration file: save it as\n"
      << "# $XDG_CONFIG_HOME/troupe/troupe.toml (or name it with --config) to make these values permanent.\n";
  for (const std::string_view group : groups(command)) {
    bool any = false;
    for (const Option& option : option_table()) {
      if (!option.belongs_to(command) || option.group != group || option.flag_only || option.name == "config") continue;
      if (!any) out << "\n# " << group << '\n';
      any = true;
      const auto origin = parsed.origins.find(option.name);
      out << option.name << " = " << toml_value(option, parsed.options) << "  # "
          << (origin == parsed.origins.end() ? "default" : "from " + origin->second) << '\n';
    }
  }
  return out.str();
}

}  // namespace troupe::config
