// Reading the configuration again while the program runs.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "config/options/options.h"
#include "tests/support/temp_folder.h"

using namespace troupe;
using namespace troupe::config;

namespace {

struct Reading {
  void write(const std::string& content) const { std::ofstream(file) << content; }
  Parsed first(std::vector<std::string> arguments = {}) const {
    arguments.insert(arguments.end(), {"--config", file});
    auto parsed = parse(Command::serve, arguments, surroundings);
    REQUIRE(parsed);
    return *parsed;
  }
  Reread again(const Parsed& before) const {
    auto reread = read_again(Command::serve, before, surroundings);
    REQUIRE(reread);
    return *reread;
  }

  const test::TempFolder folder;
  const std::string file = folder.path("troupe.toml");
  Surroundings surroundings{};
};

std::vector<std::string> names(const std::vector<const Option*>& options) {
  std::vector<std::string> list;
  for (const Option* option : options) list.emplace_back(option->name);
  return list;
}

}  // namespace

TEST_CASE("a new value of an option that can change is in effect, of another it is named and is not") {
  const Reading reading;
  reading.write("stall-timeout = \"60s\"\nthreads = 2\nallow-uid = [1]\n");
  const Parsed before = reading.first();
  reading.write("stall-timeout = \"5s\"\nthreads = 4\nallow-uid = [1, 2]\ntemp = 0.5\n");
  const Reread reread = reading.again(before);
  CHECK(names(reread.changed) == std::vector<std::string>{"allow-uid", "stall-timeout"});
  CHECK(reread.need_restart == std::vector<std::string>{"threads = 4 (" + reading.file + ":2)"});
  CHECK(reread.in_effect.options.stall_timeout == std::chrono::seconds(5));
  CHECK(reread.in_effect.options.allow_uid == std::vector<std::int64_t>{1, 2});
  CHECK(reread.in_effect.options.threads == 2);
  CHECK(describe(*reread.changed[1], reread.in_effect) == "stall-timeout = \"5s\" (" + reading.file + ":1)");
}

TEST_CASE("what was taken over is not new the next time, what needs a restart still is") {
  const Reading reading;
  reading.write("");
  const Parsed before = reading.first();
  reading.write("log-level = \"warn\"\nthreads = 4\n");
  const Reread once = reading.again(before);
  const Reread twice = reading.again(once.in_effect);
  CHECK(names(once.changed) == std::vector<std::string>{"log-level"});
  CHECK(twice.changed.empty());
  CHECK(twice.need_restart == once.need_restart);
}

TEST_CASE("a line that has gone gives the default back") {
  const Reading reading;
  reading.write("max-connections = 9\nallow-group = ['a', 'b']\n");
  const Parsed before = reading.first();
  reading.write("");
  const Reread reread = reading.again(before);
  CHECK(reread.in_effect.options.max_connections == Options{}.max_connections);
  CHECK(reread.in_effect.options.allow_group.empty());
  CHECK(describe(*reread.changed.back(), reread.in_effect) == "max-connections = 4096 (default)");
}

TEST_CASE("flags still win over the file when it is read again") {
  const Reading reading;
  reading.write("");
  const Parsed before = reading.first({"--log-level", "error"});
  reading.write("log-level = \"debug\"\n");
  const Reread reread = reading.again(before);
  CHECK(reread.changed.empty());
  CHECK(reread.in_effect.options.log_level == "error");
  CHECK(before.hidden.empty());
  CHECK(reread.in_effect.hidden == std::vector<std::string>{"--log-level hides log-level of " + reading.file + ":1"});
}

TEST_CASE("a file that has become wrong, or has gone, is an error with its place") {
  const Reading reading;
  reading.write("");
  const Parsed before = reading.first();
  reading.write("max-connections = 0\n");
  const auto wrong = read_again(Command::serve, before, reading.surroundings);
  REQUIRE_FALSE(wrong);
  CHECK(wrong.error().code == ErrorCode::bad_config);
  CHECK(wrong.error().message.find(reading.file + ":1: max-connections: 0 is out of range") == 0);
  std::filesystem::remove(reading.file);
  CHECK_FALSE(read_again(Command::serve, before, reading.surroundings));
}
