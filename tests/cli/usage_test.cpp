#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "tests/cli/process.h"

using namespace troupe::test;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

namespace {

const std::vector<std::string> kSubcommands{"serve",    "run",   "bench",      "eval",   "perplexity",
                                            "tokenize", "embed", "inspect",    "status", "probe",
                                            "version",  "usage", "completion", "doctor"};

}  // namespace

TEST_CASE("without a subcommand the overview is printed and the exit code says usage") {
  const Finished finished = invoke({});
  CHECK(finished.code == 2);
  CHECK(finished.out.empty());
  for (const std::string& name : kSubcommands) CHECK_THAT(finished.err, Contains("\n  " + name));
  for (const char* flag : {"--help", "-h", "help"}) {
    const Finished help = invoke({flag});
    CHECK(help.code == 0);
    CHECK(help.out == finished.err);
  }
}

TEST_CASE("every subcommand has --help with examples, in every spelling of help") {
  for (const std::string& name : kSubcommands) {
    const Finished help = invoke({name, "--help"});
    INFO(name);
    CHECK(help.code == 0);
    CHECK(help.err.empty());
    CHECK_THAT(help.out, StartsWith("troupe " + name + ": "));
    CHECK_THAT(help.out, Contains("\nExamples:\n  troupe " + name));
    CHECK(invoke({name, "-h"}).out == help.out);
    CHECK(invoke({"help", name}).out == help.out);
  }
}

TEST_CASE("an unknown subcommand is refused with the nearest, a planned one with those there are") {
  const Finished slip = invoke({"sevre"});
  CHECK(slip.code == 2);
  CHECK_THAT(slip.err, Contains("did you mean serve?"));
  for (const char* name : {"quantize", "convert"}) {
    const Finished planned = invoke({name, "-m", "x"});
    CHECK(planned.code == 2);
    CHECK_THAT(planned.err, Contains("is not in this version, which has serve, run, "));
  }
}

TEST_CASE("words of Ollama are refused with what to do instead") {
  const std::pair<const char*, const char*> words[] = {{"ls", "troupe list"},   {"ls", "troupe model ls"},
                                                       {"cp", "troupe pull"},   {"show", "troupe model info NAME"},
                                                       {"create", "troupe rm"}, {"stop", "troupe model unload NAME"},
                                                       {"ps", "troupe top"},    {"stop", "systemctl --user stop"}};
  for (const auto& [word, advice] : words) {
    const Finished finished = invoke({word, "llama3"});
    CHECK(finished.code == 2);
    CHECK_THAT(finished.err, StartsWith("troupe: there is no subcommand `" + std::string(word) + "`: "));
    CHECK_THAT(finished.err, Contains(advice));
  }
}

TEST_CASE("a flag of llama.cpp that means nothing here ends with 2 and what to do instead") {
  const Finished conversation = invoke({"run", "-cnv", "hello"});
  CHECK(conversation.code == 2);
  CHECK_THAT(conversation.err, Contains("-cnv") && Contains("`troupe chat` is a conversation"));
}

TEST_CASE("a bad flag, value or argument ends with 2 and says what would be right") {
  const Finished flag = invoke({"serve", "--max-num-sqs", "3"});
  CHECK(flag.code == 2);
  CHECK_THAT(flag.err, Contains("did you mean --max-num-seqs?"));
  const Finished value = invoke({"serve", "--parallel", "0"});
  CHECK(value.code == 2);
  CHECK_THAT(value.err, Contains("--parallel: 0 is out of range: it must be 1 to 4096"));
  const Finished argument = invoke({"bench", "model.gguf"});
  CHECK(argument.code == 2);
  CHECK_THAT(argument.err, Contains("a model is named with -m"));
  const Finished draft = invoke({"serve", "--spec-draft-n-max", "17"});
  CHECK(draft.code == 2);
  CHECK_THAT(draft.err, Contains("--spec-draft-n-max: 17 is out of range: it must be -1 to 16"));
  const Finished kernels = invoke({"eval", "--tokens", "x", "--greedy", "1", "--kernels", "avx9"});
  CHECK(kernels.code != 0);
}

TEST_CASE("a bad configuration ends with 78 and names file and line") {
  const TempFolder folder;
  const Finished key = invoke({"serve", "--config", folder.write("t.toml", "threads = 1\nparalel = 2\n")});
  CHECK(key.code == 78);
  CHECK_THAT(key.err, Contains("t.toml:2: unknown key paralel; did you mean parallel?"));
  const Finished syntax = invoke({"serve", "--config", folder.write("s.toml", "threads = \n")});
  CHECK(syntax.code == 78);
  CHECK_THAT(syntax.err, Contains("s.toml:1: "));
  const Finished missing = invoke({"serve", "--config", folder.path("none.toml")});
  CHECK(missing.code == 78);
  CHECK_THAT(missing.err, Contains("there is no such configuration file"));
  const Finished variable =
      run({.arguments = {"serve"}, .environment = {{"TROUPE_PARALLEL", "lots"}, {"HOME", folder.path()}}});
  CHECK(variable.code == 78);
  CHECK_THAT(variable.err, Contains("TROUPE_PARALLEL: 'lots' is not a whole number"));
}

TEST_CASE("flag, environment, file, default: in this order, and --print-config shows it") {
  const TempFolder folder;
  folder.write("xdg/troupe/troupe.toml", "threads = 2\nparallel = 3\nmax-connections = 4\n");
  const Finished printed = run(
      {.arguments = {"serve", "-t", "8", "--print-config"},
       .environment = {{"XDG_CONFIG_HOME", folder.path("xdg")}, {"TROUPE_THREADS", "7"}, {"TROUPE_PARALLEL", "6"}}});
  CHECK(printed.code == 0);
  CHECK_THAT(printed.out, Contains("\nthreads = 8  # from --threads\n"));
  CHECK_THAT(printed.out, Contains("\nparallel = 6  # from TROUPE_PARALLEL\n"));
  CHECK_THAT(printed.out, Contains("\nmax-connections = 4  # from " + folder.path("xdg/troupe/troupe.toml:3") + "\n"));
  CHECK_THAT(printed.out, Contains("\nmax-step-tokens = 512  # default\n"));
}

TEST_CASE("what --print-config prints is a configuration with the same values") {
  const TempFolder folder;
  for (const std::string& name : kSubcommands) {
    if (name == "version" || name == "completion") continue;
    const Finished first = invoke({name, "--print-config"});
    REQUIRE(first.code == 0);
    const Finished second = invoke({name, "--config", folder.write("t.toml", first.out), "--print-config"});
    INFO(name << ": " << second.err);
    REQUIRE(second.code == 0);
    // Equal but for the comments, which say where values came from.
    const auto values = [](const std::string& text) {
      std::string kept;
      for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = text.find('\n', begin);
        const std::string line = text.substr(begin, end - begin);
        kept += line.substr(0, line.find("  # ")) + "\n";
        begin = end + 1;
      }
      return kept;
    };
    CHECK(values(second.out) == values(first.out));
  }
}

TEST_CASE("an unknown TROUPE_ variable is warned of once and does no harm, whatever is asked for") {
  const std::string warning = "TROUPE_TEMPP is not one of troupe's and has no effect (did you mean TROUPE_TEMP?)";
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"version"}, {"run", "--print-config"}, {"serve", "--print-limits"}}) {
    const Finished finished =
        run({.arguments = arguments, .environment = {{"TROUPE_TEMPP", "1"}, {"TROUPE_MUTATIONS", "5"}}});
    INFO(arguments[0] << ": " << finished.err);
    CHECK(finished.code == 0);
    const std::size_t at = finished.err.find(warning);
    CHECK(at != std::string::npos);
    CHECK(finished.err.find("TROUPE_", at + warning.size()) == std::string::npos);
  }
}

TEST_CASE("logprobs that the output cannot show are refused, with where they were asked for") {
  const Finished flag = invoke({"run", "--logprobs", "2", "hello"});
  CHECK(flag.code == 2);
  CHECK_THAT(flag.err, Contains("--logprobs: only --json shows logprobs"));
  const TempFolder folder;
  const Finished file = invoke({"run", "--config", folder.write("t.toml", "\nlogprobs = 2\n"), "hello"});
  CHECK(file.code == 78);
  CHECK_THAT(file.err, Contains("t.toml:2: only --json shows logprobs"));
}

TEST_CASE("version tells version, compiler and the kernels of this CPU") {
  const Finished text = invoke({"version"});
  CHECK(text.code == 0);
  CHECK_THAT(text.out, StartsWith("troupe 0."));
  CHECK_THAT(text.out, Contains("reference, scalar"));
  CHECK(invoke({"--version"}).out == text.out);
  const auto json = nlohmann::json::parse(invoke({"version", "--json"}).out);
  CHECK(json["kernels"][0] == "reference");
  CHECK(json["compiler"].get<std::string>().find(' ') != std::string::npos);
}
