#include <catch2/catch.hpp>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>

#include "config/options/option_groups.h"
#include "config/options/options.h"

using namespace troupe;
using namespace troupe::config;
namespace fs = std::filesystem;

namespace {

const fs::path kRoot = TROUPE_SOURCE_DIR;

// The code of the source files without comments, by place. What belongs to one thing is one place: a header and its
// source, and the sampler's files.
std::map<std::string, std::string> read_places() {
  std::map<std::string, std::string> places;
  for (const std::string folder :
       {"config", "kernels", "cache", "scheduler", "engine", "actors", "ipc", "bench", "cli"})
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder)) {
      const std::string extension = entry.path().extension().string();
      if (extension != ".h" && extension != ".cpp" && extension != ".proto") continue;
      const std::string place = fs::relative(entry.path(), kRoot).replace_extension().string();
      std::string& code = places[place.starts_with("engine/sampling/") ? "engine/sampling" : place];
      std::ifstream in(entry.path());
      for (std::string line; std::getline(in, line);) code += line.substr(0, line.find("//")) + "\n";
    }
  return places;
}

bool has_word(const std::string& code, const std::string& word) {
  const auto is_part = [&](std::size_t i) {
    return i < code.size() && (std::isalnum(static_cast<unsigned char>(code[i])) || code[i] == '_');
  };
  for (std::size_t at = code.find(word); at != std::string::npos; at = code.find(word, at + 1))
    if (!is_part(at - 1) && !is_part(at + word.size())) return true;
  return false;
}

std::set<std::string> places_of(const std::string& name) {
  static const std::map<std::string, std::string> code = read_places();
  std::set<std::string> places;
  for (const auto& [place, text] : code)
    if (has_word(text, name)) places.insert(place);
  return places;
}

std::string listed(const std::set<std::string>& places) {
  std::string text;
  for (const std::string& each : places) text += " " + each;
  return text;
}

}  // namespace

TEST_CASE("a group is checked against the ranges of its rows") {
  CHECK(check_ranges(ConnectionLimits{}));
  CHECK(check_ranges(GatewayLimits{}));
  GatewayLimits none;
  none.max_sequences = 0;
  const Status wrong = check_ranges(none);
  REQUIRE_FALSE(wrong);
  CHECK(wrong.error().code == ErrorCode::invalid_argument);
  CHECK(wrong.error().message == "parallel is 0; it must be 1 to 4096");
  CHECK(check_ranges(ConnectionLimits{.max_frame_bytes = 1}).error().message ==
        "max_frame_bytes is 1; it must be 4KiB to 16MiB");
  CHECK_FALSE(check_ranges(ConnectionLimits{.hello_timeout = std::chrono::milliseconds(0)}));
}

TEST_CASE("a reload takes the members whose rows say so, and no others") {
  ConnectionLimits running, fresh{.max_connections = 3, .max_streams = 5};
  fresh.stall_timeout = std::chrono::milliseconds(9);
  take_reloadable(running, fresh);
  CHECK(running.max_connections == 3);
  CHECK(running.stall_timeout == std::chrono::milliseconds(9));
  CHECK(running.max_streams == ConnectionLimits{}.max_streams);
}

TEST_CASE("numbers without a sign have no negative values in their range") {
  for (const Option& option : option_table())
    if (std::holds_alternative<std::uint32_t Options::*>(option.field) ||
        std::holds_alternative<std::uint64_t Options::*>(option.field)) {
      INFO(option.name);
      CHECK(option.range.min >= 0);
    }
}

TEST_CASE("an option of the server is its member and row, and the place that uses it") {
  for (const std::string name :
       {"max_refusals_per_second", "max_frames_per_second", "idle_timeout", "keep_alive_timeout", "progress_timeout",
        "max_sessions_per_user", "max_embed_bytes", "max_queued_texts"}) {
    const auto places = places_of(name);
    INFO(name << ":" << listed(places));
    CHECK(places.size() <= 4);  // the member, the row, a use, and where a second part of the server uses it
    CHECK(places.contains("config/options/server_limits"));
    CHECK(places.contains("config/options/option_table"));
  }
}

TEST_CASE("a number of the sampler is in seven places at most") {
  for (const std::string name : {"min_p", "presence_penalty", "frequency_penalty", "repeat_penalty"}) {
    const auto places = places_of(name);
    INFO(name << ":" << listed(places));
    CHECK(places.size() <= 7);
  }
}
