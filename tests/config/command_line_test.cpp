#include <catch2/catch.hpp>

#include "config/options/options.h"
#include "config/options/other_programs.h"

using namespace troupe;
using namespace troupe::config;

namespace {

Result<Parsed> parse_line(Command command, std::vector<std::string> arguments,
                          std::map<std::string, std::string, std::less<>> variables = {}) {
  return parse(command, arguments, {.variables = std::move(variables), .system_file = "/nonexistent"});
}

Parsed must_parse(Command command, std::vector<std::string> arguments,
                  std::map<std::string, std::string, std::less<>> variables = {}) {
  auto parsed = parse_line(command, std::move(arguments), std::move(variables));
  INFO((parsed ? "" : parsed.error().message));
  REQUIRE(parsed);
  return *parsed;
}

std::string error_of(Command command, std::vector<std::string> arguments) {
  const auto parsed = parse_line(command, std::move(arguments));
  REQUIRE_FALSE(parsed);
  CHECK(parsed.error().code == ErrorCode::invalid_argument);
  return parsed.error().message;
}

}  // namespace

TEST_CASE("without arguments every option has its default") {
  const Parsed parsed = must_parse(Command::serve, {});
  CHECK(parsed.options.max_step_tokens == 512);
  CHECK(parsed.options.kv_type == "f16");
  CHECK(parsed.origins.empty());
  CHECK(parsed.file.empty());
  CHECK(parsed.warnings.empty());
}

TEST_CASE("flags are read in llama.cpp's, vLLM's and our spelling, with a space or an equals sign") {
  for (const char* flag : {"-np", "--parallel", "--max-num-seqs"})
    CHECK(must_parse(Command::serve, {flag, "7"}).options.max_sequences == 7);
  for (const char* flag : {"-b", "--batch-size", "--max-num-batched-tokens", "--max-step-tokens"})
    CHECK(must_parse(Command::serve, {flag, "99"}).options.max_step_tokens == 99);
  for (const char* flag : {"-c", "--ctx-size", "--max-model-len"})
    CHECK(must_parse(Command::serve, {flag, "64"}).options.ctx_size == 64);
  CHECK(must_parse(Command::serve, {"--ctx-size=64"}).options.ctx_size == 64);
  CHECK(must_parse(Command::serve, {"-c64"}).options.ctx_size == 64);
  CHECK(must_parse(Command::bench, {"-b", "1,4", "-b", "9"}).options.batch_sizes == std::vector<std::int64_t>{1, 4, 9});
  CHECK(must_parse(Command::run, {"--frequency-penalty", "-0.5", "x"}).options.frequency_penalty == -0.5);
}

TEST_CASE("the last of a repeated flag counts, and lists collect") {
  CHECK(must_parse(Command::serve, {"-t", "1", "-t", "2"}).options.threads == 2);
  const Parsed parsed = must_parse(Command::run, {"--stop", "a", "b", "--stop", "[c,d]", "e"});
  CHECK(parsed.options.stop == std::vector<std::string>{"a", "[c,d]"});
  CHECK(parsed.arguments == std::vector<std::string>{"b", "e"});
}

TEST_CASE("switches need no value but take one") {
  CHECK(must_parse(Command::run, {"--json"}).options.json);
  CHECK_FALSE(must_parse(Command::run, {"--json=false"}).options.json);
  CHECK(must_parse(Command::run, {"-v", "hello"}).options.verbose);
  CHECK(error_of(Command::run, {"--json=perhaps"}).find("--json") != std::string::npos);
}

TEST_CASE("what follows -- is never a flag, and a lone dash is an argument") {
  const Parsed parsed = must_parse(Command::run, {"-n", "3", "-", "--", "--temp", "-np"});
  CHECK(parsed.arguments == std::vector<std::string>{"-", "--temp", "-np"});
  CHECK(parsed.options.predict == 3);
}

TEST_CASE("an unknown flag is refused with the nearest name") {
  CHECK(error_of(Command::serve, {"--max-num-sqs", "3"}) ==
        "unknown flag --max-num-sqs of `troupe serve`; did you mean --max-num-seqs? (--help lists the flags)");
  CHECK(error_of(Command::run, {"--tmep=0.5", "x"}).find("did you mean --temp?") != std::string::npos);
  CHECK(error_of(Command::serve, {"--temp", "0"}) ==
        "unknown flag --temp of `troupe serve`; only other subcommands have it (--help lists the flags)");
  // Two options of others have this spelling.
  CHECK(error_of(Command::run, {"-b"}) ==
        "unknown flag -b of `troupe run`; only other subcommands have it (--help lists the flags)");
  CHECK(error_of(Command::serve, {"-z"}) == "unknown flag -z of `troupe serve` (--help lists the flags)");
}

TEST_CASE("a flag of several letters with one dash is never a short flag and its value") {
  for (const char* flag : {"-sysx", "-fa", "-stop", "-mfile", "-rtext", "-lx", "-vh"}) {
    INFO(flag);
    CHECK(error_of(Command::run, {flag, "x"}).starts_with("unknown flag " + std::string(flag) + " of `troupe run`"));
  }
  CHECK(error_of(Command::serve, {"-mmodel.gguf"}) ==
        "unknown flag -mmodel.gguf of `troupe serve`; a value of -m goes behind a space (--help lists the flags)");
  CHECK(must_parse(Command::run, {"-n-1", "-s42", "x"}).options.seed == 42);
  CHECK(must_parse(Command::run, {"-n=7", "x"}).options.predict == 7);
  CHECK(error_of(Command::run, {"-v5", "x"}).starts_with("unknown flag -v5"));
  CHECK(error_of(Command::run, {"- an item of a list"}).find("goes behind --") != std::string::npos);
}

TEST_CASE("the value of a flag is its own, whatever it looks like") {
  CHECK(must_parse(Command::run, {"--stop", "-ngl", "-r", "--temp", "x"}).options.stop ==
        std::vector<std::string>{"-ngl", "--temp"});
  CHECK(must_parse(Command::serve, {"--alias", "-np"}).options.alias == "-np");
  const Parsed empty = must_parse(Command::run, {"--scope=", "hello"});
  CHECK(empty.options.scope.empty());
  CHECK(empty.arguments == std::vector<std::string>{"hello"});
}

TEST_CASE("flags of llama.cpp and vLLM that mean nothing here are refused with what to do instead") {
  const std::pair<const char*, const char*> flags[] = {
      {"-ngl", "CPUs only"},
      {"--n-gpu-layers", "CPUs only"},
      {"-fa", "block by block"},
      {"--mlock", "MemorySwapMax"},
      {"--numa", "numactl"},
      {"--host", "Unix socket"},
      {"--port", "Unix socket"},
      {"--api-key", "--allow-user NAME"},
      {"-sysf", "--system takes the text itself"},
      {"--embeddings", "troupe embed"},
      {"--mmproj", "text only"},
      {"--dtype", "as the file has them"},
      {"--override-kv", "-c sets the context"},
  };
  for (const auto& [flag, advice] : flags)
    for (const Command command : {Command::serve, Command::run}) {
      const std::string message = error_of(command, {flag, "x"});
      INFO(message);
      CHECK(message.starts_with("unknown flag " + std::string(flag) + " of `troupe "));
      CHECK(message.find(advice) != std::string::npos);
    }
  CHECK(error_of(Command::run, {"--port=80"}).find("TROUPE_HOST=unix:///PATH") != std::string::npos);
  CHECK(error_of(Command::run, {"-m", "x.gguf"}).find("`troupe serve -m FILE`") != std::string::npos);
  CHECK(must_parse(Command::load, {"--api-key", "k"}).options.api_key == "k");
  CHECK(error_of(Command::serve, {"--slots"}).find("`troupe top`") != std::string::npos);
  CHECK(error_of(Command::serve, {"--system", "x"}).find("`troupe chat --system TEXT`") != std::string::npos);
}

TEST_CASE("no flag and no subcommand of troupe is taken for one of another program") {
  for (const CommandInfo& command : commands())
    for (const Option& option : option_table())
      for (const std::string& spelling : option.spellings()) {
        INFO(command.name << " " << spelling);
        if (option.belongs_to(command.command)) CHECK(advice_on_flag(command.command, spelling).empty());
      }
  for (const CommandInfo& command : commands()) CHECK(advice_on_subcommand(command.name).empty());
}

TEST_CASE(
    "K and V have one type, which llama.cpp's flags for either may name, and a wrong one is told which there are") {
  CHECK(must_parse(Command::serve, {"-ctk", "q8_0", "-ctv", "q8_0"}).options.kv_type == "q8_0");
  CHECK(must_parse(Command::serve, {"--cache-type-v", "int8", "-ctk", "q8_0"}).options.kv_type == "q8_0");
  CHECK(must_parse(Command::bench, {"-ctv=f32"}).options.kv_type == "f32");
  CHECK(error_of(Command::serve, {"-ctk", "f16", "-ctv", "q8_0"}) ==
        "-ctk f16 and -ctv int8: K and V have one type here; give both the same, or --kv-type");
  for (const char* flag : {"-ctk", "-ctv"})
    CHECK(error_of(Command::serve, {flag, "q4_0"}).starts_with("--kv-type: 'q4_0' is not one of f16|f32|int8|q8_0"));
}

TEST_CASE("bad values and missing ones name the flag and what it wants") {
  CHECK(error_of(Command::serve, {"-c", "7m"}) ==
        "--ctx-size: '7m' is not a whole number, such as 8192 or 8k (0 to 16777216)");
  CHECK(error_of(Command::serve, {"-c", "99999k"}) == "--ctx-size: 99999k is out of range: it must be 0 to 16777216");
  CHECK(error_of(Command::serve, {"-c", "-8k"}).starts_with("--ctx-size: '-8k' is not a whole number"));
  CHECK(error_of(Command::serve, {"-t", "8k"}) == "--threads: '8k' is not a whole number (0 to 1024)");
  CHECK(error_of(Command::serve, {"-c"}) == "--ctx-size needs a value: --ctx-size TOKENS");
  CHECK(error_of(Command::serve, {"--allow-uid"}) == "--allow-uid needs a value: --allow-uid UID,...");
  CHECK(error_of(Command::serve, {"--parallel", "0"}) == "--parallel: 0 is out of range: it must be 1 to 4096");
}

TEST_CASE("tokens may be counted in k") {
  CHECK(must_parse(Command::serve, {"-c", "8k"}).options.ctx_size == 8192);
  CHECK(must_parse(Command::serve, {"-c32K"}).options.ctx_size == 32768);
  CHECK(must_parse(Command::run, {"-n", "2k", "x"}).options.predict == 2048);
  CHECK(must_parse(Command::run, {"-n", "-1", "x"}).options.predict == -1);
}

TEST_CASE("a subcommand without positional arguments refuses them") {
  CHECK(error_of(Command::bench, {"model.gguf"}) ==
        "unexpected argument 'model.gguf': `troupe bench` takes flags only (a model is named with -m)");
  CHECK(must_parse(Command::inspect, {"model.gguf"}).arguments.size() == 1);
}

TEST_CASE("the arguments of serve are models, as values of -m") {
  const Parsed parsed = must_parse(Command::serve, {"a.gguf", "-t", "3", "b=c.gguf"});
  CHECK(parsed.options.model == std::vector<std::string>{"a.gguf", "b=c.gguf"});
  CHECK(parsed.origins.at("model") == "--model");
  CHECK(parsed.arguments.empty());
  CHECK(must_parse(Command::serve, {"a.gguf"}, {{"TROUPE_MODEL", "b.gguf"}}).options.model ==
        std::vector<std::string>{"a.gguf"});
  CHECK(error_of(Command::serve, {"a.gguf", "-m", "b.gguf"}) ==
        "'a.gguf' and --model: models are arguments or values of -m, not both");
  CHECK(error_of(Command::serve, {""}) == "the path of a model is empty");
}

TEST_CASE("--help wins over everything else") {
  for (const char* flag : {"-h", "--help"}) {
    const Parsed parsed = must_parse(Command::serve, {"stray", "--parallel", "0", flag}, {{"TROUPE_THREADS", "x"}});
    CHECK(parsed.options.help);
  }
}

TEST_CASE("flags win over the environment, and the environment over defaults") {
  const Parsed parsed = must_parse(Command::serve, {"-t", "3"},
                                   {{"TROUPE_THREADS", "5"}, {"TROUPE_PARALLEL", "6"}, {"HOME", "/nonexistent"}});
  CHECK(parsed.options.threads == 3);
  CHECK(parsed.options.max_sequences == 6);
  CHECK(parsed.origins.at("threads") == "--threads");
  CHECK(parsed.origins.at("parallel") == "TROUPE_PARALLEL");
}

TEST_CASE("a bad variable is a bad configuration, but only where it is used") {
  const auto parsed = parse_line(Command::serve, {}, {{"TROUPE_PARALLEL", "none"}});
  REQUIRE_FALSE(parsed);
  CHECK(parsed.error().code == ErrorCode::bad_config);
  CHECK(parsed.error().message == "TROUPE_PARALLEL: 'none' is not a whole number (1 to 4096)");
  CHECK(parse_line(Command::run, {}, {{"TROUPE_PARALLEL", "none"}}));
}

TEST_CASE("unknown TROUPE_ variables are warned of, others and our own are not") {
  const Parsed parsed = must_parse(Command::serve, {},
                                   {{"TROUPE_PARALEL", "1"},
                                    {"TROUPE_ZZZ", "1"},
                                    {"TROUPE_TEMP", "hot"},
                                    {"TROUPE_HOST", "unix:///x"},
                                    {"TROUPE_SHARED_DIR", "/x"},
                                    {"TROUPE_TEST_KILL", "period=1s"},
                                    {"TROUPE_MUTATIONS", "5"},
                                    {"TROUPE_CHURN", "5"},
                                    {"TROUPES", "1"}});
  REQUIRE(parsed.warnings.size() == 2);
  CHECK(parsed.warnings[0] ==
        "the environment variable TROUPE_PARALEL is not one of troupe's and has no effect (did you mean "
        "TROUPE_PARALLEL?)");
  CHECK(parsed.warnings[1] == "the environment variable TROUPE_ZZZ is not one of troupe's and has no effect");
}

TEST_CASE("the surroundings of this process have its environment") {
  ::setenv("TROUPE_TEST_CONFIG_VARIABLE", "a=b", 1);
  CHECK(Surroundings::of_this_process().variables.at("TROUPE_TEST_CONFIG_VARIABLE") == "a=b");
  ::unsetenv("TROUPE_TEST_CONFIG_VARIABLE");
}
