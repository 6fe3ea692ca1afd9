#include "config/options/config_file.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "config/options/values.h"
#include "tests/support/temp_folder.h"

using namespace troupe;
using namespace troupe::config;

namespace {

using test::TempFolder;

Result<Parsed> parse_with(const std::string& file, std::vector<std::string> arguments = {},
                          Command command = Command::serve) {
  arguments.insert(arguments.end(), {"--config", file});
  return parse(command, arguments, {.variables = {}, .system_file = "/nonexistent"});
}

std::string error_of(const std::string& content) {
  const TempFolder folder;
  const auto parsed = parse_with(folder.write("t.toml", content));
  REQUIRE_FALSE(parsed);
  CHECK(parsed.error().code == ErrorCode::bad_config);
  const std::string& message = parsed.error().message;
  const std::size_t at = message.find("t.toml:");
  return at == std::string::npos ? message : message.substr(at);
}

}  // namespace

TEST_CASE(
    "the allow-... of the machine's file do not hold for a user's own server, unless it is named or root starts it") {
  const TempFolder folder;
  const std::string system = folder.write("system.toml", "parallel = 5\nallow-group = ['games']\nallow-uid = [7]\n");
  const auto start = [&](bool is_root, std::vector<std::string> arguments) {
    const Surroundings surroundings{.variables = {}, .system_file = system, .is_root = is_root};
    auto parsed = parse(Command::serve, arguments, surroundings);
    REQUIRE(parsed);
    CHECK(parsed->options.max_sequences == 5);
    return *parsed;
  };
  const Parsed own = start(false, {});
  CHECK(own.options.allow_group.empty());
  CHECK(own.options.allow_uid.empty());
  REQUIRE(own.warnings.size() == 2);
  CHECK(own.warnings[0] ==
        system + ":2: allow-group is for the machine's server and not for this one; --config " + system + " takes it");
  for (const Parsed& parsed : {start(true, {}), start(false, {"--config", system})}) {
    CHECK(parsed.options.allow_group == std::vector<std::string>{"games"});
    CHECK(parsed.options.allow_uid.size() == 1);
    CHECK(parsed.warnings.empty());
  }
}

TEST_CASE("a file sets options of every type") {
  const TempFolder folder;
  const auto parsed = parse_with(folder.write("t.toml",
                                              "model = 'a.gguf'\nctx-size = 128 # tokens\nmemory = \"2GiB\"\n"
                                              "max-frame-bytes = 8192\ndrain-timeout = 1.5\nstall-timeout = '2m'\n"
                                              "allow-uid = [1, 2]\nallow-gid = 3\n"));
  REQUIRE(parsed);
  CHECK(parsed->options.model == std::vector<std::string>{"a.gguf"});
  CHECK(parsed->options.ctx_size == 128);
  CHECK(parsed->options.memory.count == std::uint64_t{2} << 30);
  CHECK(parsed->options.max_frame_bytes.count == 8192);
  CHECK(parsed->options.drain_timeout == std::chrono::milliseconds(1500));
  CHECK(parsed->options.stall_timeout == std::chrono::minutes(2));
  CHECK(parsed->options.allow_uid == std::vector<std::int64_t>{1, 2});
  CHECK(parsed->options.allow_gid == std::vector<std::int64_t>{3});
  CHECK(parsed->origins.at("ctx-size") == folder.path("t.toml:2"));
  CHECK(parsed->file == folder.path("t.toml"));
}

TEST_CASE("an empty list in a file empties the list, and an empty file sets nothing") {
  const TempFolder folder;
  const auto parsed =
      parse_with(folder.write("t.toml", "batch-sizes = [4]\nn-depth = []\nstop = ['a', 'b']\n"), {}, Command::bench);
  REQUIRE(parsed);
  CHECK(parsed->options.batch_sizes == std::vector<std::int64_t>{4});
  CHECK(parsed->options.n_depth.empty());
  const auto empty = parse_with(folder.write("e.toml", ""));
  REQUIRE(empty);
  CHECK(empty->origins.size() == 1);  // --config itself
}

TEST_CASE("flag, environment, file, default: in this order") {
  const TempFolder folder;
  const std::string file = folder.write("t.toml", "threads = 11\nparallel = 12\nmax-connections = 13\n");
  const std::vector<std::string> arguments{"--config", file, "-t", "31"};
  const auto parsed =
      parse(Command::serve, arguments,
            {.variables = {{"TROUPE_THREADS", "21"}, {"TROUPE_PARALLEL", "22"}}, .system_file = "/nonexistent"});
  REQUIRE(parsed);
  CHECK(parsed->options.threads == 31);
  CHECK(parsed->options.max_sequences == 22);
  CHECK(parsed->options.max_connections == 13);
  CHECK(parsed->options.max_streams == Options{}.max_streams);
  CHECK(parsed->hidden == std::vector<std::string>{"TROUPE_PARALLEL hides parallel of " + file + ":2",
                                                   "--threads hides threads of " + file + ":1"});
}

TEST_CASE("a flag hides a key once, though a variable does too, and the [[model]] tables") {
  const TempFolder folder;
  const std::string file = folder.write("t.toml", "threads = 11\npredict = 5\n[[model]]\npath = 'a.gguf'\n");
  const std::vector<std::string> arguments{"--config", file, "-t", "31", "-m", "b.gguf"};
  const Surroundings surroundings{.variables = {{"TROUPE_THREADS", "21"}}, .system_file = "/nonexistent"};
  const auto parsed = parse(Command::serve, arguments, surroundings);
  REQUIRE(parsed);
  CHECK(parsed->hidden == std::vector<std::string>{"--threads hides threads of " + file + ":1",
                                                   "--model hides the [[model]] tables of " + file});
  CHECK(parsed->models.empty());
  const auto plain = parse(Command::serve, std::vector<std::string>{"--config", file},
                           {.variables = {}, .system_file = "/nonexistent"});
  REQUIRE(plain);
  CHECK(plain->hidden.empty());
}

TEST_CASE("the file is the one asked for, else the user's, else the system's") {
  const TempFolder folder;
  const std::string flag = folder.write("flag.toml", "threads = 1\n");
  const std::string variable = folder.write("variable.toml", "threads = 2\n");
  const std::string system = folder.write("system.toml", "threads = 5\n");
  std::vector<std::string> arguments;
  Surroundings surroundings{.variables = {}, .system_file = system};
  const auto threads = [&] {
    const auto parsed = parse(Command::serve, arguments, surroundings);
    REQUIRE(parsed);
    return parsed->options.threads;
  };
  CHECK(threads() == 5);
  surroundings.variables["HOME"] = folder.path("home");
  CHECK(threads() == 5);
  folder.write("home/.config/troupe/troupe.toml", "threads = 4\n");
  CHECK(threads() == 4);
  surroundings.variables["XDG_CONFIG_HOME"] = folder.path("xdg");
  CHECK(threads() == 5);
  folder.write("xdg/troupe/troupe.toml", "threads = 3\n");
  CHECK(threads() == 3);
  surroundings.variables["TROUPE_CONFIG"] = variable;
  CHECK(threads() == 2);
  arguments = {"--config", flag};
  CHECK(threads() == 1);
}

TEST_CASE("options of other subcommands in the file are checked and not used") {
  const TempFolder folder;
  const auto parsed = parse_with(folder.write("t.toml", "temp = 0.1\nthreads = 2\n"));
  REQUIRE(parsed);
  CHECK(parsed->options.temperature == Options{}.temperature);
  CHECK(parsed->origins.count("temp") == 0);
  CHECK(parsed->options.threads == 2);
}

TEST_CASE("a file that was asked for must exist and be readable") {
  const TempFolder folder;
  const auto missing = parse_with(folder.path("none.toml"));
  REQUIRE_FALSE(missing);
  CHECK(missing.error().code == ErrorCode::bad_config);
  CHECK(missing.error().message == folder.path("none.toml") + ": there is no such configuration file");
  const auto directory = parse_with(folder.path());
  REQUIRE_FALSE(directory);
  CHECK(directory.error().message.find("cannot be read") != std::string::npos);
  const std::vector<std::string> none;
  folder.write("home/.config/troupe/troupe.toml", "thread = 4\n");
  const auto bad = parse(Command::serve, none, {.variables = {{"HOME", folder.path("home")}}, .system_file = ""});
  REQUIRE_FALSE(bad);
  CHECK(bad.error().code == ErrorCode::bad_config);
}

TEST_CASE("a file that is no configuration file by its size is not read to its end") {
  const TempFolder folder;
  const auto parsed = parse_with(folder.write("t.toml", std::string((1u << 20) + 1, '#')));
  REQUIRE_FALSE(parsed);
  CHECK(parsed.error().code == ErrorCode::bad_config);
  CHECK(parsed.error().message.find("more than 1048576 bytes") != std::string::npos);
  REQUIRE_FALSE(parse_with("/dev/zero"));
}

TEST_CASE("a file with a mistake is refused with its line") {
  CHECK(error_of("threads = 1\nparalel = 2\n") == "t.toml:2: unknown key paralel; did you mean parallel?");
  CHECK(error_of("max_step_tokens = 2\n").find("did you mean max-step-tokens?") != std::string::npos);
  CHECK(error_of("[serve]\nthreads = 1\n") ==
        "t.toml:1: unknown key serve; keys are not grouped in tables, but for [[model]] and [[tenant]]");
  CHECK(error_of("zzz = 1\n").find("unknown key zzz (`troupe serve --print-config`") != std::string::npos);
  CHECK(error_of("help = true\n").find("unknown key help") != std::string::npos);
  CHECK(error_of("config = 'x'\n").find("unknown key config") != std::string::npos);
  CHECK(error_of("\nthreads = = 1\n").find("t.toml:2: ") == 0);
  CHECK(error_of("threads = 1\nthreads = 2\n").find("t.toml:2: ") == 0);
  CHECK(error_of("threads = 99999\n") == "t.toml:1: threads: 99999 is out of range: it must be 0 to 1024");
  CHECK(error_of("\n\ntemp = 1000\n") == "t.toml:3: temp: 1000 is out of range: it must be 0 to 100");
}

TEST_CASE("characters beyond ASCII stand in strings and comments only") {
  const TempFolder folder;
  for (const char* content : {
           "# é\nmodel = \"é\" # é\n",
           "\xEF\xBB\xBFmodel = 'é'",
           "model = \"\"\"\né\\té\"\"\"\"\"",
           "model = \"\\\"é\\\\\" #é",
           "model = '''\n\\é'''",
           "model = \"\"\"a\\\n b é\"\"\"",
       }) {
    CAPTURE(content);
    const auto parsed = parse_with(folder.write("t.toml", content));
    CHECK((parsed ? "" : parsed.error().message) == "");
  }
  for (const char* content : {
           "model = 'a'\né = 1",
           "model = 'a'\nctx-size = é",
           "# é\nctx-size =é1",
           "#\nmodel = 'a' é",
           "\nmodel = a\xB5",
           "\nctx-size = 1\xE3\x82\x9A",
           "\nmodel = \"\"\"a\"\"\"\" é",
           "\nmodel = \"\"\"\\é\"\"\"",
           "model = \"\"\"\\\né\"\"\"",
           "model = \"\"\"\\\n\\t\\u0020é\"\"\"",
       }) {
    CAPTURE(content);
    CHECK(error_of(content).starts_with("t.toml:2: a character beyond ASCII outside quotes"));
  }
}

TEST_CASE("a value of the wrong type is refused with the right one") {
  CHECK(error_of("threads = '2'\n") == "t.toml:1: 2 is of the wrong type: threads takes a whole number");
  CHECK(error_of("threads = [1]\n") == "t.toml:1: the value is of the wrong type: threads takes a whole number");
  CHECK(error_of("threads = 1979-05-27\n").find("threads takes a whole number") != std::string::npos);
  CHECK(error_of("json = 1\n").find("json takes true or false") != std::string::npos);
  CHECK(error_of("temp = 'x'\n").find("temp takes a number") != std::string::npos);
  CHECK(error_of("model = 1\n").find("model takes strings in quotes") != std::string::npos);
  CHECK(error_of("stop = [1]\n").find("stop takes strings in quotes") != std::string::npos);
  CHECK(error_of("allow-uid = ['root']\n").find("allow-uid takes whole numbers") != std::string::npos);
  CHECK(error_of("memory = true\n").find("memory takes a number of bytes or a string") != std::string::npos);
  CHECK(error_of("timeout = true\n").find("timeout takes a number of seconds or a string") != std::string::npos);
  CHECK(error_of("seed = 1.5\n").find("seed takes a whole number") != std::string::npos);
}

TEST_CASE("--print-config reads back to the same values, for every subcommand") {
  const TempFolder folder;
  for (const CommandInfo& command : commands()) {
    if (command.command == Command::version || command.command == Command::completion) continue;
    Parsed odd;  // every option away from its default
    for (const Option& option : option_table()) {
      if (!option.belongs_to(command.command) || option.flag_only || option.name == "config") continue;
      std::vector<std::string> texts{"1"};
      if (option.value.find('|') != std::string_view::npos)
        texts = {std::string(option.value.substr(option.value.rfind('|') + 1))};
      if (std::holds_alternative<std::string Options::*>(option.field) && texts[0] == "1")
        texts = {"a \"b\"\\ \t\n\xc3\xa9 # = 'c'"};
      if (std::holds_alternative<std::vector<std::string> Options::*>(option.field)) texts = {"]", "", "\n"};
      if (std::holds_alternative<std::vector<std::int64_t> Options::*>(option.field)) texts = {"1", "2"};
      if (option.name == "seed") texts = {"18446744073709551615"};
      if (option.name == "max-frame-bytes" || option.name == "max-outbox-bytes") texts = {"5000"};
      if (option.name == "max-buffer-bytes" || option.name == "max-rendering-bytes") texts = {"33554433"};
      if (option.name == "stall-timeout") texts = {"1001ms"};
      if (option.name == "state-snapshot-every") texts = {"64"};
      INFO(option.name);
      REQUIRE(assign(option, texts, odd.options).value_or("") == "");
    }
    for (const Parsed& parsed : {odd, Parsed{}}) {
      const std::string printed = print_config(command.command, parsed);
      const auto read = parse_with(folder.write("t.toml", printed), {}, command.command);
      INFO(printed << (read ? "" : read.error().message));
      REQUIRE(read);
      for (const Option& option : option_table())
        if (option.name != "config") {
          INFO(option.name);
          CHECK(to_texts(option, read->options) == to_texts(option, parsed.options));
        }
    }
  }
}

TEST_CASE("--print-config says where each value came from") {
  const TempFolder folder;
  const auto parsed = parse_with(folder.write("t.toml", "threads = 2\n"), {"--parallel", "3"});
  REQUIRE(parsed);
  const std::string printed = print_config(Command::serve, *parsed);
  CHECK(printed.find("threads = 2  # from " + folder.path("t.toml:1") + "\n") != std::string::npos);
  CHECK(printed.find("parallel = 3  # from --parallel\n") != std::string::npos);
  CHECK(printed.find("ctx-size = 0  # default\n") != std::string::npos);
  CHECK(printed.find("print-config =") == std::string::npos);
}
