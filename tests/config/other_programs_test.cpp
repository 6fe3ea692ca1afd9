// docs/coming_from.md has the tables of flags, word for word: what becomes of the flags and subcommands of other
// programs, and the further spellings that options have.
#include "config/options/other_programs.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "config/options/options.h"
#include "config/options/values.h"

using namespace troupe::config;

namespace {

const std::string kComingFromPage = TROUPE_SOURCE_DIR "/docs/coming_from.md";
constexpr const char* kWritesTables = "build/release/tests/config/test_config '[write_coming_from]'";

// "`a`, `b`"
std::string listed(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "`" : ", `") + name + '`';
  return out;
}

std::string cell_text(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '|' ? std::string("\\|") : std::string(1, c);
  return out;
}

bool names_it(const AdviceRow& row, const std::string& name) {
  return std::ranges::count(split(row.names, ' '), name) != 0;
}

// The subcommands with these bits, the shorter way: those that are meant, or those that are not.
std::string subcommands_text(std::uint32_t commands_with_it) {
  std::vector<std::string> with, without;
  for (const CommandInfo& command : commands())
    ((commands_with_it & bit(command.command)) != 0 ? with : without).emplace_back(command.name);
  if (without.empty()) return "all";
  return without.size() <= 4 ? std::string("all but ") + listed(without) : listed(with);
}

std::string flags_of_others_table() {
  std::string out = "| there | here | of which subcommands |\n|---|---|---|\n";
  const auto rows = flags_of_others();
  for (auto row = rows.begin(); row != rows.end(); ++row) {
    const std::vector<std::string> names = split(row->names, ' ');
    const bool is_second = std::any_of(rows.begin(), row, [&](const auto& other) { return names_it(other, names[0]); });
    std::uint32_t own = 0;
    for (const Option& option : option_table())
      if (std::ranges::count(option.spellings(), names[0]) != 0) own |= option.commands;
    out += "| " + listed(names) + " | " + cell_text(row->advice) + " | " +
           (is_second ? std::string("all others") : subcommands_text(row->commands & ~own)) + " |\n";
  }
  return out;
}

std::string subcommands_of_others_table() {
  std::string out = "| there | here |\n|---|---|\n";
  for (const AdviceRow& row : subcommands_of_others())
    out += "| " + listed(split(row.names, ' ')) + " | " + cell_text(row.advice) + " |\n";
  return out;
}

std::string spellings_table() {
  std::string out = "| also spelled | the flag | of which subcommands |\n|---|---|---|\n";
  for (const Option& option : option_table()) {
    if (option.also.empty()) continue;
    out += "| " + listed(split(option.also, ' ')) + " | `--" + std::string(option.name) + "` | " +
           subcommands_text(option.commands) + " |\n";
  }
  return out;
}

const std::map<std::string, std::string>& tables() {
  static const std::map<std::string, std::string> all{{"flags", flags_of_others_table()},
                                                      {"subcommands", subcommands_of_others_table()},
                                                      {"spellings", spellings_table()}};
  return all;
}

std::string read_page() {
  std::ifstream in(kComingFromPage);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Where the table of this name is on the page: behind its mark and an empty line, up to the next one.
struct TablePlace {
  std::size_t begin, size;
};
TablePlace place_of(const std::string& page, const std::string& name) {
  const std::string mark = "<!-- table: " + name + " -->\n\n";
  const std::size_t found = page.find(mark);
  INFO("docs/coming_from.md needs the line " << mark);
  REQUIRE(found != std::string::npos);
  const std::size_t begin = found + mark.size();
  const std::size_t end = page.find("\n\n", begin);
  return {begin, (end == std::string::npos ? page.size() : end + 1) - begin};
}

std::vector<std::string> lines_of(const std::string& text) { return split(text, '\n'); }

}  // namespace

TEST_CASE("docs/coming_from.md has the tables of flags, subcommands and spellings that the code has") {
  const std::string page = read_page();
  for (const auto& [name, table] : tables()) {
    const auto [begin, size] = place_of(page, name);
    const std::vector<std::string> written = lines_of(page.substr(begin, size)), made = lines_of(table);
    INFO("table " << name << "; to write all of them: " << kWritesTables);
    for (const std::string& line : made) {
      INFO("the page lacks this line: " << line);
      CHECK(std::ranges::count(written, line) == std::ranges::count(made, line));
    }
    for (const std::string& line : written) {
      INFO("the code does not have this line of the page: " << line);
      CHECK(std::ranges::count(made, line) == std::ranges::count(written, line));
    }
    CHECK((page.substr(begin, size) == table));  // in parentheses: not printed
  }
}

TEST_CASE("each flag of another program looks like one, and its advice is the end of a sentence") {
  for (const AdviceRow& row : flags_of_others()) {
    INFO(row.names);
    for (const std::string& name : split(row.names, ' ')) CHECK(name.starts_with("-"));
    CHECK(row.commands != 0);
    CHECK_FALSE(row.advice.empty());
    CHECK_FALSE(row.advice.ends_with('.'));
  }
  for (const AdviceRow& row : subcommands_of_others())
    for (const std::string& name : split(row.names, ' ')) CHECK(advice_on_subcommand(name) == row.advice);
}

// Hidden: writes the tables into the page.
TEST_CASE("the tables of docs/coming_from.md are written", "[.][write_coming_from]") {
  std::string page = read_page();
  for (const auto& [name, table] : tables()) {
    const auto [begin, size] = place_of(page, name);
    page.replace(begin, size, table);
  }
  std::ofstream(kComingFromPage) << page;
}
