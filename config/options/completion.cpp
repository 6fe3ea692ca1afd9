#include "config/options/completion.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "config/options/options.h"
#include "config/options/values.h"

namespace troupe::config {
namespace {

// model: of the server. stored: of the store. file_or_stored: what -m takes.
enum class Kind { text, words, file, directory, model, stored, file_or_stored };

// What a value or an argument may be.
struct Value {
  Kind kind = Kind::text;
  std::vector<std::string> words{};  // of Kind::words
};

bool names_file(std::string_view placeholder) {
  if (placeholder == "PATH" || placeholder == "TEMPLATE" || placeholder == "FILE") return true;
  return placeholder.ends_with(".json") || placeholder.ends_with(".html") || placeholder.ends_with(".f32");
}

Value value_of(const Option& option, const ValueNames& names) {
  if (const auto known = names.find(option.name); known != names.end()) return {Kind::words, known->second};
  if (option.value.find('|') != std::string_view::npos) return {Kind::words, split(option.value, '|')};
  if (option.name == "model-name") return {Kind::model};
  if (option.name == "model" || option.name == "draft" || option.name == "compare") return {Kind::file_or_stored};
  if (option.name == "hf-repo") return {Kind::stored};
  if (option.value == "DIR") return {Kind::directory};
  return {names_file(option.value) ? Kind::file : Kind::text};
}

// A first argument that says what to do, and what may be behind it: of "load [NAME=]FILE" a file.
struct Verb {
  std::string name;
  Value arguments;
};

struct Arguments {
  std::vector<Verb> verbs;  // empty: all arguments are `each`
  Value each;

  std::vector<std::string> verb_names() const {
    std::vector<std::string> all;
    for (const Verb& verb : verbs) all.push_back(verb.name);
    return all;
  }
};

Arguments arguments_of(const CommandInfo& command) {
  const auto has = [](std::string_view text, std::string_view word) { return text.find(word) != text.npos; };
  const std::vector<std::string> words = split(command.arguments, ' ');
  Arguments all;
  bool begins = true;  // an alternative
  if (has(command.arguments, " | ")) {
    for (const std::string& word : words) {
      if (begins) all.verbs.push_back({word, {}});
      begins = word == "|";
      Value& behind = all.verbs.back().arguments;
      if (has(word, "FILE")) behind = {command.command == Command::model ? Kind::file_or_stored : Kind::file};
      if (has(word, "NAME") && command.command == Command::model && behind.kind == Kind::text) behind = {Kind::model};
    }
  } else if (command.arguments == "DIR") {
    all.each = {Kind::directory};
  } else if (has(command.arguments, "MODEL") || command.command == Command::inspect) {
    all.each = {Kind::file_or_stored};
  } else if (has(command.arguments, "FILE")) {
    all.each = {Kind::file};
  } else if (has(command.arguments, "NAME")) {
    all.each = {Kind::stored};
  }
  return all;
}

std::vector<std::string> subcommands() {
  std::vector<std::string> names;
  for (const CommandInfo& command : commands()) names.emplace_back(command.name);
  names.emplace_back("help");
  return names;
}

constexpr std::string_view kHelpSummary = "show what a subcommand does";

// The beginning of an option's help, up to the first end of a clause.
std::string description(const Option& option) {
  return std::string(option.help.substr(0, std::min(option.help.find("; "), option.help.find(". "))));
}

// `text` with a backslash before each of `special`.
std::string escaped(std::string_view text, std::string_view special) {
  std::string out;
  for (const char c : text) {
    if (special.find(c) != special.npos) out += '\\';
    out += c;
  }
  return out;
}

// --- bash ---

constexpr std::string_view kBashBegin = R"sh(# Completion of troupe for bash, written by `troupe completion bash`.
_troupe() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} flags= value= kind=text words= name
  local line=${COMP_LINE:0:COMP_POINT} typed
  typed=${line##* }
  COMPREPLY=()
  # Of a name with a colon it makes several, and completes the last.
  if [[ $typed == *:* && $typed != -* ]]; then
    line=${line%"$typed"}
    line=${line%"${line##*[! ]}"}
    prev=${line##* }
    [[ $cur == : ]] && cur=
  fi
  # Of --flag=value and NAME=FILE bash makes three words.
  if [[ $cur == = ]]; then
    cur=
  elif [[ $prev == = ]]; then
    prev=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  if ((COMP_CWORD == 1)); then
    flags='--help --version'
)sh";

// A word of `words` may not be expanded by bash: names of models come from a server.
constexpr std::string_view kBashEnd = R"sh(    esac
  fi
  if [[ -z $value && $cur == -* ]]; then
    kind=words words=$flags
  fi
  case $kind in
    file) compopt -o default ;;
    directory) compopt -o dirnames ;;
    model)
      while IFS= read -r name; do
        [[ $name == "$cur"* ]] && COMPREPLY+=("$(printf %q "$name")")
      done < <("$1" model ls 2>/dev/null | sed '1d; s/  .*//')
      ;;
    stored | file_or_stored)
      [[ $kind == stored ]] || compopt -o default
      while IFS= read -r name; do
        [[ $name == "$typed"* ]] && COMPREPLY+=("$(printf %q "${name#"${typed%"$cur"}"}")")
      done < <("$1" list 2>/dev/null | sed '1d; s/  .*//')
      ;;
    words) mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur") ;;
  esac
}
complete -F _troupe troupe
)sh";

std::string bash_kind(const Value& value) {
  switch (value.kind) {
    case Kind::text:
      return "kind=text";
    case Kind::words:
      return fmt::format("kind=words words='{}'", fmt::join(value.words, " "));
    case Kind::file:
      return "kind=file";
    case Kind::directory:
      return "kind=directory";
    case Kind::model:
      return "kind=model";
    case Kind::stored:
      return "kind=stored";
    case Kind::file_or_stored:
      return "kind=file_or_stored";
  }
  return {};
}

std::string bash_arguments(const Arguments& arguments) {
  if (arguments.verbs.empty()) return bash_kind(arguments.each);
  std::string out = fmt::format("if ((COMP_CWORD == 2)); then {}; else case ${{COMP_WORDS[2]}} in",
                                bash_kind({Kind::words, arguments.verb_names()}));
  for (const Verb& verb : arguments.verbs) out += fmt::format(" {}) {} ;;", verb.name, bash_kind(verb.arguments));
  return out + " esac; fi";
}

std::string bash(const ValueNames& names) {
  const std::string all = bash_kind({Kind::words, subcommands()});
  std::string out(kBashBegin);
  out += fmt::format("    {}\n  else\n    case ${{COMP_WORDS[1]}} in\n      help) {} ;;\n", all, all);
  for (const CommandInfo& command : commands()) {
    std::vector<std::string> flags;
    std::string values;
    for (const Option& option : option_table()) {
      if (!option.belongs_to(command.command)) continue;
      const std::vector<std::string> spellings = option.spellings();
      flags.insert(flags.end(), spellings.begin(), spellings.end());
      if (!option.value.empty())
        values += fmt::format("          {}) value=1 {} ;;\n", fmt::join(spellings, " | "),
                              bash_kind(value_of(option, names)));
    }
    out += fmt::format(
        "      {})\n        flags='{}'\n        case $prev in\n{}          *) {} ;;\n        esac\n"
        "        ;;\n",
        command.name, fmt::join(flags, " "), values, bash_arguments(arguments_of(command)));
  }
  return out += kBashEnd;
}

// --- zsh ---

constexpr std::string_view kZshBegin = R"sh(#compdef troupe
# Completion of troupe for zsh, written by `troupe completion zsh`.
_troupe_models() {
  local -a names=("${(@f)$(_call_program models troupe model ls 2>/dev/null | sed '1d; s/  .*//')}")
  compadd -a names
}
_troupe_stored() {
  local -a names=("${(@f)$(_call_program models troupe list 2>/dev/null | sed '1d; s/  .*//')}")
  compadd -a names
}
_troupe_models_or_files() {
  _troupe_stored
  _troupe_files
}
_troupe_files() {
  [[ $PREFIX == [^/]##=* ]] && compset -P '*='
  _files
}
_troupe() {
  local curcontext=$curcontext state line
  local -a commands
  commands=(
)sh";

constexpr std::string_view kZshEnd = R"sh(  esac
}
if [[ $funcstack[1] == _troupe ]]; then
  _troupe "$@"
else
  compdef _troupe troupe
fi
)sh";

std::string zsh_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + '\'';
}

std::string zsh_action(const Value& value) {
  switch (value.kind) {
    case Kind::text:
      return " ";
    case Kind::words:
      return fmt::format("({})", fmt::join(value.words, " "));
    case Kind::file:
      return "_troupe_files";
    case Kind::directory:
      return "_files -/";
    case Kind::model:
      return "_troupe_models";
    case Kind::stored:
      return "_troupe_stored";
    case Kind::file_or_stored:
      return "_troupe_models_or_files";
  }
  return {};
}

// One argument of _arguments for each spelling; after one of them, the others are not offered again, unless the option
// is a list.
std::string zsh_flags(const Option& option, const ValueNames& names) {
  const std::vector<std::string> spellings = option.spellings();
  std::string out;
  for (const std::string& spelling : spellings) {
    const bool takes_value = !option.value.empty();
    const std::string repeats = option.is_list() ? "*" : fmt::format("({})", fmt::join(spellings, " "));
    std::string spec = fmt::format("{}{}{}[{}]", repeats, spelling, takes_value && spelling[1] == '-' ? "=" : "",
                                   escaped(description(option), "[]\\"));
    if (takes_value) spec += fmt::format(":{}:{}", escaped(option.value, ":\\"), zsh_action(value_of(option, names)));
    out += fmt::format("        {} \\\n", zsh_quoted(spec));
  }
  return out;
}

std::string zsh_arguments(const CommandInfo& command) {
  const Arguments arguments = arguments_of(command);
  if (arguments.verbs.empty()) {
    const std::string spec = command.arguments.empty() ? "*: : " : "*:argument:" + zsh_action(arguments.each);
    return fmt::format("        {}\n", zsh_quoted(spec));
  }
  const std::string verbs = zsh_action({Kind::words, arguments.verb_names()});
  std::string out = fmt::format("        {} '*:argument:->behind'\n      [[ $state == behind ]] && case $line[1] in\n",
                                zsh_quoted("1:what to do:" + verbs));
  for (const Verb& verb : arguments.verbs)
    if (verb.arguments.kind != Kind::text)
      out += fmt::format("        {}) {} ;;\n", verb.name, zsh_action(verb.arguments));
  return out + "      esac\n";
}

std::string zsh(const ValueNames& names) {
  std::string out(kZshBegin);
  const auto described = [](std::string_view name, std::string_view what) {
    return fmt::format("    {}\n", zsh_quoted(fmt::format("{}:{}", name, escaped(what, ":\\"))));
  };
  for (const CommandInfo& command : commands()) out += described(command.name, command.summary);
  out += described("help", kHelpSummary);
  out +=
      "  )\n  _arguments -C '1: :->command' '*:: :->arguments'\n"
      "  if [[ $state == command ]]; then\n    _describe subcommand commands\n    return\n  fi\n"
      "  case $words[1] in\n    help) ((CURRENT == 2)) && _describe subcommand commands ;;\n";
  for (const CommandInfo& command : commands()) {
    out += fmt::format("    {})\n      _arguments \\\n", command.name);
    for (const Option& option : option_table())
      if (option.belongs_to(command.command)) out += zsh_flags(option, names);
    out += zsh_arguments(command) + "      ;;\n";
  }
  return out += kZshEnd;
}

// --- fish ---

constexpr std::string_view kFishBegin = R"sh(# Completion of troupe for fish, written by `troupe completion fish`.
# Whether the subcommand is one of these; `__troupe_verb load` whether the word behind it is.
function __troupe_in
    set -l words (commandline -opc)
    set -q words[2]; and contains -- $words[2] $argv
end
function __troupe_verb
    set -l words (commandline -opc)
    set -q words[3]; and contains -- $words[3] $argv
end
function __troupe_models
    set -l words (commandline -opc)
    $words[1] model ls 2>/dev/null | sed '1d; s/  .*//'
end
function __troupe_stored
    set -l words (commandline -opc)
    $words[1] list 2>/dev/null | sed '1d; s/  .*//'
end
complete -c troupe -f
)sh";

std::string fish_quoted(std::string_view text) { return fmt::format("'{}'", escaped(text, "'\\")); }

std::string fish_value(const Value& value) {
  switch (value.kind) {
    case Kind::text:
      return " -x";
    case Kind::words:
      return fmt::format(" -x -a {}", fish_quoted(fmt::format("{}", fmt::join(value.words, " "))));
    case Kind::file:
      return " -r -F";
    case Kind::directory:
      return " -x -a '(__fish_complete_directories)'";
    case Kind::model:
      return " -x -a '(__troupe_models)'";
    case Kind::stored:
      return " -x -a '(__troupe_stored)'";
    case Kind::file_or_stored:
      return " -r -F -a '(__troupe_stored)'";
  }
  return {};
}

std::string fish_flags(const Option& option, const ValueNames& names) {
  std::vector<std::string_view> users;
  for (const CommandInfo& command : commands())
    if (option.belongs_to(command.command)) users.push_back(command.name);
  std::string out = fmt::format("complete -c troupe -n '__troupe_in {}'", fmt::join(users, " "));
  for (const std::string& spelling : option.spellings()) {
    const bool is_long = spelling[1] == '-';
    out += fmt::format(" -{} {}", is_long ? 'l' : spelling.size() == 2 ? 's' : 'o', spelling.substr(is_long ? 2 : 1));
  }
  if (!option.value.empty()) out += fish_value(value_of(option, names));
  return out + fmt::format(" -d {}\n", fish_quoted(description(option)));
}

std::string fish_arguments(const CommandInfo& command) {
  const Arguments arguments = arguments_of(command);
  const auto line = [&](std::string_view condition, const Value& value) {
    if (value.kind == Kind::text) return std::string();
    return fmt::format("complete -c troupe -n '__troupe_in {}{}'{}\n", command.name, condition, fish_value(value));
  };
  if (arguments.verbs.empty()) return line("", arguments.each);
  const std::vector<std::string> verbs = arguments.verb_names();
  std::string out = line(fmt::format("; and not __troupe_verb {}", fmt::join(verbs, " ")), {Kind::words, verbs});
  for (const Verb& verb : arguments.verbs) out += line("; and __troupe_verb " + verb.name, verb.arguments);
  return out;
}

std::string fish(const ValueNames& names) {
  std::string out(kFishBegin);
  const auto subcommand = [](std::string_view name, std::string_view what) {
    return fmt::format("complete -c troupe -n __fish_use_subcommand -a {} -d {}\n", name, fish_quoted(what));
  };
  for (const CommandInfo& command : commands()) out += subcommand(command.name, command.summary);
  out += subcommand("help", kHelpSummary);
  out += fmt::format("complete -c troupe -n '__troupe_in help'{}\n", fish_value({Kind::words, subcommands()}));
  for (const Option& option : option_table()) out += fish_flags(option, names);
  for (const CommandInfo& command : commands()) out += fish_arguments(command);
  return out;
}

}  // namespace

std::string completion(std::string_view shell, const ValueNames& names) {
  if (shell == "bash") return bash(names);
  if (shell == "zsh") return zsh(names);
  return shell == "fish" ? fish(names) : std::string();
}

}  // namespace troupe::config
