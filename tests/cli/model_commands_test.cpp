// The subcommands that open a model file, on good files and bad ones.
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "tests/cli/process.h"
#include "tests/engine/gguf_writer.h"
#include "tests/support/shared_data.h"

using namespace troupe::test;
using Catch::Matchers::Contains;
using nlohmann::json;

namespace {

const std::string kTales = TROUPE_MODELS "/tales-5m-tq2_0.gguf";

std::string read_file(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  REQUIRE(stream);
  return {std::istreambuf_iterator<char>(stream), {}};
}

std::vector<float> read_floats(const std::string& path) {
  const std::string bytes = read_file(path);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

// The subcommands that open a model, each with what it needs besides.
std::vector<std::vector<std::string>> commands_with_model(const std::string& model, const TempFolder& folder) {
  const std::string ids = folder.write("ids.json", "[1, 2]");
  return {{"serve", "--socket", folder.path("s.sock"), "-m", model},
          {"bench", "-p", "8", "-n", "0", "-m", model},
          {"eval", "--tokens", ids, "--greedy", "1", "-m", model},
          {"eval", "--tokens", ids, "--compare", model},
          {"perplexity", "-f", folder.write("text.txt", "some text"), "-m", model},
          {"tokenize", "-m", model, "text"},
          {"inspect", "-m", model}};
}

}  // namespace

TEST_CASE("a missing model ends every subcommand with 66 and names the file") {
  const TempFolder folder;
  for (const auto& arguments : commands_with_model(folder.path("none.gguf"), folder)) {
    const Finished finished = invoke(arguments);
    INFO(arguments[0] << ": " << finished.err);
    CHECK(finished.code == 66);
    CHECK_THAT(finished.err, Contains(folder.path("none.gguf")));
  }
}

TEST_CASE("a damaged model ends every subcommand with 65 and a reason, never a crash") {
  const TempFolder folder;
  const std::string good = read_file(kTales);
  const std::string bad[] = {folder.write("empty.gguf", ""), folder.write("text.gguf", "this is no model"),
                             folder.write("short.gguf", good.substr(0, 1000)),
                             folder.write("cut.gguf", good.substr(0, good.size() / 2))};
  for (const std::string& model : bad)
    for (const auto& arguments : commands_with_model(model, folder)) {
      const Finished finished = invoke(arguments);
      INFO(arguments[0] << " " << model << ": " << finished.err);
      CHECK(finished.code == 65);
      CHECK_THAT(finished.err, Contains(model));
    }
}

TEST_CASE("why a model could not be loaded is said once") {
  const TempFolder folder;
  const Finished serve = invoke({"serve", "--socket", folder.path("s.sock"), "--memory", "1MiB"});
  INFO(serve.err);
  CHECK(serve.code == 1);
  CHECK_THAT(serve.err, Contains(" could not be loaded: ") && Contains("memory budget"));
  CHECK(serve.err.find("memory budget") == serve.err.rfind("memory budget"));
}

TEST_CASE("a model of a family that is not served ends with 65 and the families that are") {
  const TempFolder folder;
  std::string bytes = read_file(kTales);
  const std::string key = "general.architecture", architecture = "bitnet";
  const std::size_t value = bytes.find(architecture, bytes.find(key) + key.size());
  REQUIRE(value < 1000);
  bytes.replace(value, architecture.size(), "fitnet");
  const std::string model = folder.write("model.gguf", bytes);
  const Finished serve = invoke({"serve", "--socket", folder.path("s.sock"), "-m", model});
  CHECK(serve.code == 65);
  CHECK_THAT(serve.err, Contains("architecture 'fitnet'"));
  CHECK_THAT(serve.err, Contains("llama"));
  CHECK_THAT(serve.err, Contains("bitnet"));
  const Finished inspect = invoke({"inspect", model});
  CHECK(inspect.code == 65);
  CHECK_THAT(inspect.out, Contains("none (there are "));
}

TEST_CASE("a model that may not be read ends with 77") {
  const TempFolder folder;
  const std::string model = folder.write("secret.gguf", "GGUF");
  REQUIRE(::chmod(model.c_str(), 0) == 0);
  REQUIRE(::chmod(folder.path().c_str(), 0755) == 0);
  Spawn spawn{.arguments = {"inspect", "-m", model}};
  spawn.as_nobody = ::geteuid() == 0;
  const Finished finished = run(spawn);
  INFO(finished.err);
  CHECK(finished.code == 77);
  CHECK_THAT(finished.err, Contains(model));
}

TEST_CASE("an unknown kernel variant is refused with those that this CPU can run") {
  const TempFolder folder;
  for (const auto& arguments : commands_with_model(kTales, folder)) {
    if (arguments[0] == "tokenize") continue;
    std::vector<std::string> with = arguments;
    with.insert(with.end(), {"--kernels", "avx9"});
    const Finished finished = invoke(with);
    CHECK(finished.code == 2);
    CHECK_THAT(finished.err, Contains("there is no variant 'avx9'; this CPU can run reference, scalar"));
  }
}

TEST_CASE("snapshots of recurrent state can only be where blocks end, and the message says which option to change") {
  const TempFolder folder;
  const std::string ids = folder.write("ids.json", "[1, 2, 3]");
  const Finished flag = invoke({"eval", "--tokens", ids, "--greedy", "1", "--state-snapshot-every", "100"});
  CHECK(flag.code == 2);
  CHECK_THAT(flag.err, Contains("--state-snapshot-every: 100 is not a multiple of 32"));
  const Finished type = invoke({"eval", "--tokens", ids, "--greedy", "1", "--state-type", "f17"});
  CHECK(type.code == 2);
  CHECK_THAT(type.err, Contains("'f17' is not one of f32|f16"));
}

TEST_CASE("--weights-cache keeps packed weights where it says, and the answers are the same bits") {
  const TempFolder folder;
  const std::string ids = folder.write("ids.json", "[1, 424, 437, 261, 399]");
  const auto eval = [&](const std::string& cache, std::map<std::string, std::string> environment = {}) {
    const Finished finished =
        run({.arguments = {"eval", "--tokens", ids, "-o", folder.path("logits.f32"), "--weights-cache", cache},
             .environment = std::move(environment)});
    INFO(finished.err);
    REQUIRE(finished.code == 0);
    return std::pair(finished.err, read_file(folder.path("logits.f32")));
  };
  const auto [off_says, expected] = eval("off");
  CHECK_THAT(off_says, Contains("packed ") && Contains(" MB of weights in ") && !Contains("weights cache"));
  const std::string cache = folder.path("cache");
  CHECK_THAT(eval(cache).first, Contains("packed ") && Contains("weights cache: " + cache) && Contains(": kept "));
  const auto [again_says, again] = eval(cache);
  CHECK_THAT(again_says, Contains("read ") && Contains("from " + cache) && !Contains("packed "));
  CHECK(again == expected);

  const auto says_auto = [&](std::map<std::string, std::string> environment) {
    return eval("auto", std::move(environment)).first;
  };
  const std::string xdg = folder.path("xdg"), home = folder.path("home"), service = folder.path("service");
  CHECK_THAT(says_auto({{"XDG_CACHE_HOME", xdg}, {"HOME", home}}), Contains(xdg + "/troupe/weights/"));
  CHECK_THAT(says_auto({{"HOME", home}}), Contains(home + "/.cache/troupe/weights/"));
  CHECK_THAT(says_auto({{"CACHE_DIRECTORY", service + ":/other"}, {"HOME", home}}), Contains(service + "/weights/"));
  const Finished homeless =
      run({.arguments = {"eval", "--tokens", ids, "-o", folder.path("x"), "--weights-cache", "auto"},
           .environment = {{"HOME", ""}}});
  CHECK(homeless.code == 2);
  CHECK_THAT(homeless.err, Contains("--weights-cache auto: none of CACHE_DIRECTORY, XDG_CACHE_HOME and HOME is set"));
}

TEST_CASE("TROUPE_KERNELS chooses the kernels as --kernels does") {
  const TempFolder folder;
  const std::string ids = folder.write("ids.json", "[1, 424, 437, 261, 399]");
  const auto eval = [&](const std::string& name, std::vector<std::string> flags, const std::string& variable) {
    flags.insert(flags.begin(), {"eval", "--tokens", ids, "-o", folder.path(name)});
    Spawn spawn{.arguments = std::move(flags)};
    if (!variable.empty()) spawn.environment["TROUPE_KERNELS"] = variable;
    return run(spawn);
  };
  REQUIRE(eval("default.f32", {}, "").code == 0);
  REQUIRE(eval("flag.f32", {"--kernels", "reference"}, "").code == 0);
  const Finished by_variable = eval("variable.f32", {}, "reference");
  REQUIRE(by_variable.code == 0);
  CHECK_THAT(by_variable.err, Contains("-reference-"));
  REQUIRE(eval("both.f32", {"--kernels", "reference"}, "scalar").code == 0);
  CHECK(read_file(folder.path("variable.f32")) == read_file(folder.path("flag.f32")));
  CHECK(read_file(folder.path("both.f32")) == read_file(folder.path("flag.f32")));
  CHECK(read_file(folder.path("variable.f32")) != read_file(folder.path("default.f32")));

  const Finished unknown = eval("unknown.f32", {}, "avx9");
  INFO(unknown.err);
  CHECK(unknown.code == 78);  // a variable, not a flag
  CHECK_THAT(unknown.err, Contains("TROUPE_KERNELS: there is no variant 'avx9'; this CPU can run reference, scalar"));
}

TEST_CASE("the longest context that inspect names is the longest that can be had") {
  // Codes of TQ1_0 are widened when they are packed: the file's size says too little.
  std::vector<std::string> models{kTales, TROUPE_MODELS "/tales-draft-q8_0.gguf"};
  if (const auto widened = shared_file("golden/llama-TQ1_0.gguf")) models.push_back(*widened);
  // Layers with windows hold no more than those.
  for (const char* name : {"golden/gemma2-F32.gguf", "golden/gemma3-F32.gguf"})
    if (const auto windows = shared_file(name)) models.push_back(*windows);
  const TempFolder folder;
  const std::string ids = folder.write("ids.json", "[1, 2]");
  for (const std::string& model : models) {
    for (const char* kernels : {"reference", "scalar"}) {
      const std::vector<std::string> how{"-m", model, "--memory", "9M", "--kernels", kernels};
      std::vector<std::string> inspect{"inspect", "--json"};
      inspect.insert(inspect.end(), how.begin(), how.end());
      const auto object = json::parse(invoke(inspect).out);
      for (const char* type : {"f16", "f32", "int8"}) {
        const int longest = object["longest_context"][type];
        const auto eval = [&](int context) {
          std::vector<std::string> arguments{"eval", "--tokens", ids, "--greedy", "1", "--kv-type", type};
          arguments.insert(arguments.end(), how.begin(), how.end());
          arguments.insert(arguments.end(), {"-c", std::to_string(context)});
          return invoke(arguments);
        };
        INFO(model << ", " << kernels << ", " << type << ", " << longest);
        REQUIRE(longest > 0);
        const Finished fits = eval(longest);
        INFO(fits.err);
        CHECK(fits.code == 0);
        CHECK_THAT(eval(longest + 32).err, Contains("a memory budget of 9 MiB") && Contains("; use -c "));
      }
    }
  }
}

TEST_CASE("inspect shows a summary, and metadata and tensors if they are asked for") {
  const std::string summary = invoke({"inspect"}).out;
  CHECK(std::count(summary.begin(), summary.end(), '\n') < 16);
  CHECK_THAT(summary, Contains("keys (--metadata)\n") && Contains("  68 (--tensors)\n"));
  CHECK_THAT(summary, !Contains("general.architecture") && !Contains("blk.5.ffn_down.weight"));
  const std::string metadata = invoke({"inspect", "--metadata"}).out;
  CHECK_THAT(metadata, Contains("  general.architecture") && Contains("\"bitnet\"") && Contains("... (2048)"));
  CHECK_THAT(metadata, Contains("  68 (--tensors)\n") && !Contains("(--metadata)"));
  const std::string tensors = invoke({"inspect", "--tensors"}).out;
  CHECK_THAT(tensors, Contains("\nTensors (68)\n") && Contains("  blk.5.ffn_down.weight") &&
                          Contains("TQ2_0  256 x 768") && Contains("keys (--metadata)\n"));
  CHECK_THAT(tensors, !Contains("general.architecture"));
  // All of it in JSON, with and without the flags.
  CHECK(invoke({"inspect", "--memory", "50M", "--json", "--metadata", "--tensors"}).out ==
        invoke({"inspect", "--memory", "50M", "--json"}).out);
}

TEST_CASE("inspect shows KV cost and the longest context that fits") {
  const Finished text = invoke({"inspect", "--memory", "50M"});
  CHECK(text.code == 0);
  CHECK_THAT(text.out, Contains("3072 bytes per token (2.93 MiB for 1,000); "));
  CHECK_THAT(text.out, Contains("sequences of 1024"));

  const auto object = json::parse(invoke({"inspect", kTales, "--memory", "50M", "--json"}).out);
  CHECK(object["family"] == "bitnet");
  CHECK(object["kv_bytes_per_token"]["f16"] == 3072);
  CHECK(object["kv_bytes_per_token"]["f32"] == 6144);
  const std::uint64_t left =
      (50u << 20) - object["weight_bytes"].get<std::uint64_t>() - object["vocabulary_bytes"].get<std::uint64_t>();
  CHECK(object["longest_context"]["f16"] == left / ((3072 + 64 * sizeof(float)) * 32) * 32);  // and 64 rotated elements
  CHECK(object["metadata"]["tokenizer.ggml.tokens"]["length"] == 2048);
  CHECK(object["tensors"].size() == 68);
  // What one sequence needs, and half of the rest: the other half stays for a model that is loaded later.
  const std::uint64_t least = 3072 * 1024;
  CHECK(object["num_sequences"]["f16"] == (least + (left - 1024 * 64 * sizeof(float) - least) / 2) / least);
  CHECK_FALSE(object.contains("window"));
  CHECK_FALSE(object.contains("state"));
  const Finished few = invoke({"inspect", "--memory", "50M", "--parallel", "3"});
  CHECK_THAT(few.out, Contains("3 sequences of 1024 (--parallel)\n"));
  const auto tiny = json::parse(invoke({"inspect", "--memory", "1M", "--json"}).out);
  CHECK(tiny["longest_context"]["f16"] == 0);
  CHECK(tiny["num_sequences"]["f16"] == 0);
  CHECK(invoke({"inspect", kTales, kTales}).code == 2);
}

TEST_CASE("inspect counts the parameters as the server does: without the factors of RoPE") {
  const TempFolder folder;
  const auto num_parameters = [&](bool has_factors) {
    GgufWriter writer = TinyLlama{}.writer();
    if (has_factors) writer.add_floats("rope_freqs.weight", {4}, 1);
    const std::string path = folder.write("tiny.gguf", writer.bytes());
    return json::parse(invoke({"inspect", "-m", path, "--json"}).out)["num_parameters"].get<std::uint64_t>();
  };
  CHECK(num_parameters(true) == num_parameters(false));
}

TEST_CASE("inspect says what speed a probed machine allows, and where none is known how to learn it") {
  const TempFolder folder;
  const auto here = [&](std::vector<std::string> arguments) {
    return run({.arguments = std::move(arguments), .environment = {{"XDG_CACHE_HOME", folder.path()}}}).out;
  };
  CHECK_THAT(here({"inspect"}), Contains("`troupe probe`"));
  CHECK(json::parse(here({"inspect", "--json"}))["speed_limit"].is_null());
  CHECK_THAT(here({"probe", "--quick"}), Contains("read"));
  const json speed = json::parse(here({"inspect", "--json"}))["speed_limit"];
  INFO(speed);
  CHECK(speed["bytes_read_per_token"] > 0);
  CHECK(speed["decode_tokens_per_second"].get<double>() > 0);
  const json file = json::parse(read_file(std::filesystem::directory_iterator(folder.path("troupe"))->path()));
  double fastest = 0;
  for (const json& read : file["reads"]) fastest = std::max(fastest, read["bytes_per_second"].get<double>());
  CHECK(speed["decode_tokens_per_second"].get<double>() * speed["bytes_read_per_token"].get<double>() <=
        fastest * (1 + 1e-6));
  CHECK(speed["prefill_tokens_per_second"].get<double>() > speed["decode_tokens_per_second"].get<double>());
  CHECK_THAT(here({"inspect"}), Contains("tokens/s of one stream"));
}

TEST_CASE("inspect says how much of the weights are experts, without routers and what all tokens share") {
  const auto path_of = [](const std::string& name) {
    return std::string(TROUPE_TEST_DATA "/golden/") + name + ".gguf";
  };
  for (const char* name : {"olmoe", "qwen2moe"}) {
    INFO(name);
    const json model = json::parse(invoke({"inspect", "-m", path_of(name), "--kernels", "reference", "--json"}).out);
    std::uint64_t bytes = 0, matrices = 0;
    for (const json& tensor : model["tensors"]) {
      const auto& shape = tensor["shape"];
      if (shape.size() != 3) continue;
      REQUIRE(tensor["type"] == "F32");
      const std::uint64_t count = shape[2].get<std::uint64_t>();
      matrices += count;
      bytes += count * shape[0].get<std::uint64_t>() * shape[1].get<std::uint64_t>() * sizeof(float);
    }
    REQUIRE(matrices > 0);
    CHECK(model["expert_bytes"].get<std::uint64_t>() >= bytes);
    CHECK(model["expert_bytes"].get<std::uint64_t>() <= bytes + 256 * matrices);  // with a header each
    CHECK(model["num_experts_used"] < model["num_experts"]);
    CHECK_THAT(invoke({"inspect", "-m", path_of(name)}).out, Contains(" in a layer, of which a token uses "));
  }
  const json dense = json::parse(invoke({"inspect", "--json"}).out);
  CHECK(dense["expert_bytes"] == 0);
  CHECK(dense["num_experts"] == 0);
  CHECK_THAT(invoke({"inspect"}).out, !Contains("experts"));
}

TEST_CASE("inspect says which layers have K and V, and counts these alone") {
  struct Model {
    const char* name;
    std::uint64_t layers, with_attention, kv_heads;  // of 16 numbers, in all layers
  };
  for (const Model& each :
       {Model{"deci", 6, 3, 4}, {"lfm2", 4, 1, 1}, {"llama", 2, 2, 4}, {"mamba", 2, 0, 0}, {"qwen35", 3, 1, 1}}) {
    INFO(each.name);
    const std::string path = std::string(TROUPE_TEST_DATA "/golden/") + each.name + ".gguf";
    const json model = json::parse(invoke({"inspect", "-m", path, "--json"}).out);
    CHECK(model["num_layers"] == each.layers);
    CHECK(model["num_attention_layers"] == each.with_attention);
    if (each.kv_heads != 0) CHECK(model["kv_bytes_per_token"]["f16"] == each.kv_heads * 16 * 2 * 2);
    const std::string text = invoke({"inspect", "-m", path}).out;
    const std::string said = std::to_string(each.layers) + ", of which " + std::to_string(each.with_attention);
    const bool is_said = each.with_attention != 0 && each.with_attention != each.layers;
    CHECK((text.find(said + " have attention") != std::string::npos) == is_said);
  }
}

TEST_CASE("inspect counts what layers with windows and recurrent layers keep for what it is") {
  // Two layers of 64 numbers in K and V each, the first with a window.
  if (const auto gemma2 = shared_file("golden/gemma2-F32.gguf")) {
    const std::vector<std::string> how{"inspect", "-m", *gemma2, "--memory", "16M", "-c", "8192"};
    CHECK_THAT(
        invoke(how).out,
        Contains("512 bytes per token (500 KiB for 1,000), of which 256 for the last 1088 at most (a window of 16); "));
    auto as_json = how;
    as_json.push_back("--json");
    const auto object = json::parse(invoke(as_json).out);
    CHECK(object["kv_bytes_per_token"]["f16"] == 512);
    CHECK(object["window"] == json{{"positions", 16},
                                   {"cached_tokens", 1088},
                                   {"bytes_per_token", {{"f16", 256}, {"f32", 512}, {"int8", 144}}}});
    // As the loader divides what weights and the rotations of 32 numbers leave.
    const std::uint64_t left = (16u << 20) - object["weight_bytes"].get<std::uint64_t>() - 8192 * 32 * sizeof(float);
    const std::uint64_t least = 8192 * 256 + 1088 * 256;
    CHECK(object["num_sequences"]["f16"] == (least + (left - least) / 2) / least);
  }
  if (const auto rwkv = shared_file("golden/rwkv7-F32.gguf")) {
    CHECK_THAT(invoke({"inspect", *rwkv}).out,
               Contains(" for each running sequence, of any length; 256 snapshots f32 of "));
    const auto object = json::parse(invoke({"inspect", *rwkv, "--state-type", "f16", "--json"}).out);
    CHECK(object["kv_bytes_per_token"].empty());
    // Three layers of 128 x 32 numbers and two rows of 128.
    CHECK(object["state"] == json{{"bytes", 3 * (128 * 64 + 256) * 4},
                                  {"snapshot_type", "f16"},
                                  {"snapshot_bytes", 3 * (128 * 64 * 2 + 256 * 4)},
                                  {"num_snapshots", 256}});
  }
  if (const auto hybrid = shared_file("golden/falcon-h1-F32.gguf")) {
    const auto object = json::parse(invoke({"inspect", *hybrid, "--memory", "4M", "--json"}).out);
    CHECK(object["kv_bytes_per_token"]["f16"] == 256);
    CHECK(object["state"]["num_snapshots"] < 64);  // a quarter of what is left
    CHECK(object["num_sequences"]["f16"] > 0);
  }
  // What cannot be known is said, and the rest is told.
  std::string bytes = read_file(kTales);
  const std::string key = "bitnet.block_count";
  bytes.replace(bytes.find(key), key.size(), "bitnet.block_kount");
  const TempFolder folder;
  const Finished incomplete = invoke({"inspect", "--metadata", folder.write("incomplete.gguf", bytes)});
  CHECK(incomplete.code == 65);
  CHECK_THAT(incomplete.out, Contains("unknown: ") && Contains("'bitnet.block_count' is missing"));
  CHECK_THAT(incomplete.out, Contains("refused ") && Contains("bitnet.embedding_length"));
}

TEST_CASE("tokenize gives ids and pieces, and decodes them back") {
  CHECK(invoke({"tokenize", "--ids", "Once", "upon", "a", "time"}).out == "[1, 424, 437, 261, 399]\n");
  CHECK(invoke({"tokenize", "--ids", "--no-bos", "Once upon a time"}).out == "[424, 437, 261, 399]\n");
  CHECK(invoke({"tokenize", "--ids"}, "Once upon a time").out == "[1, 424, 437, 261, 399]\n");
  CHECK_THAT(invoke({"tokenize", "Once"}).out, Contains("       1  \"<s>\"\n     424  \" Once\"\n"));
  for (const char* ids : {"1 424 437 261 399", "[1,424,437,261,399]"})
    CHECK(invoke({"tokenize", "--decode", ids}).out == "Once upon a time");
  const TempFolder folder;
  const std::string text = "caf\xc3\xa9 \xf0\x9f\x99\x82\tnew\nline";
  const Finished ids = invoke({"tokenize", "--ids", "--no-bos", "-f", folder.write("t.txt", text)});
  CHECK(invoke({"tokenize", "--decode"}, ids.out).out == text);
  // A character that is only bytes to the vocabulary is shown as such.
  CHECK_THAT(invoke({"tokenize", "\xf0\x9f\x99\x82"}).out, Contains("\"\\xf0\""));
}

TEST_CASE("text of control tokens becomes the tokens unless --no-parse-special keeps it text") {
  CHECK(invoke({"tokenize", "--ids", "--no-bos", "</s>"}).out == "[2]\n");
  CHECK(invoke({"tokenize", "--ids", "--no-bos", "--special", "</s>"}).out == "[2]\n");
  CHECK(invoke({"tokenize", "--ids", "<s></s>"}).out == "[1, 2]\n");
  for (const char* also : {"--no-bos", "--special"})
    CHECK(invoke({"tokenize", "--ids", "--no-parse-special", also, "</s>"}).out.find("2]") == std::string::npos);
}

TEST_CASE("tokenize refuses what it cannot use") {
  const Finished beyond = invoke({"tokenize", "--decode", "2048"});
  CHECK(beyond.code == 2);
  CHECK_THAT(beyond.err, Contains("there is no token 2048: the vocabulary has 2048"));
  CHECK(invoke({"tokenize", "--decode", "one"}).code == 2);
  const Finished twice = invoke({"tokenize", "-f", "x.txt", "text"});
  CHECK(twice.code == 2);
  CHECK_THAT(twice.err, Contains("given twice"));
  CHECK(invoke({"tokenize", "-f", "/nonexistent/x.txt"}).code == 1);
  if (const auto model = shared_file("golden/llama-F32.gguf")) {
    const Finished none = invoke({"tokenize", "-m", *model, "text"});
    CHECK(none.code == 65);
    CHECK_THAT(none.err, Contains("has no vocabulary"));
  }
}

TEST_CASE("eval writes logits of every position, the same bits for any chunk, and continues greedily") {
  const TempFolder folder;
  const std::string ids = folder.write("ids.json", "[1, 424, 437, 261, 399]");
  const Finished whole = invoke({"eval", "--tokens", ids, "-o", folder.path("a.f32"), "--greedy", "4"});
  INFO(whole.err);
  REQUIRE(whole.code == 0);
  CHECK(json::parse(whole.out) == json({1995, 401, 285, 261}));
  const Finished chunks = invoke({"eval", "--tokens", ids, "-o", folder.path("b.f32"), "--chunk", "2", "-t", "1"});
  REQUIRE(chunks.code == 0);
  const std::string bytes = read_file(folder.path("a.f32"));
  CHECK(bytes.size() == 5 * 2048 * sizeof(float));
  CHECK(bytes == read_file(folder.path("b.f32")));
  const std::vector<float> logits = read_floats(folder.path("a.f32"));
  const auto last = logits.end() - 2048;
  CHECK(std::max_element(last, logits.end()) - last == 1995);
}

TEST_CASE("eval of a golden model gives the expected logits and greedy tokens") {
  const auto model = shared_file("golden/llama-F32.gguf");
  if (!model) return;
  const auto golden = json::parse(read_file(*shared_file("golden/llama-F32.json")));
  const TempFolder folder;
  const std::string ids = folder.write("ids.json", golden["prompt"].dump());
  const Finished finished = invoke({"eval", "-m", *model, "--tokens", ids, "-o", folder.path("l.f32"), "--kv-type",
                                    "f32", "--kernels", "reference", "--greedy", "24"});
  INFO(finished.err);
  REQUIRE(finished.code == 0);
  const std::vector<float> expected = read_floats(*shared_file("golden/llama-F32.logits.f32"));
  const std::vector<float> actual = read_floats(folder.path("l.f32"));
  REQUIRE(actual.size() == expected.size());
  float worst = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) worst = std::max(worst, std::abs(actual[i] - expected[i]));
  CHECK(worst <= 1e-4f);
  CHECK(json::parse(finished.out) == golden["greedy"]);
}

TEST_CASE("eval refuses what it cannot evaluate, with a reason") {
  const TempFolder folder;
  const auto eval = [&](const std::string& ids, std::vector<std::string> more) {
    more.insert(more.begin(), {"eval", "--tokens", folder.write("ids.json", ids)});
    return invoke(more);
  };
  for (const char* bad : {"{}", "[1, \"a\"]", "[1, 2.5]", "[-1]", "[]", "nonsense", "[99999999999]"}) {
    const Finished finished = eval(bad, {"--greedy", "1"});
    INFO(bad << " " << finished.err);
    CHECK(finished.code == 2);
    CHECK_THAT(finished.err, Contains("ids.json"));
  }
  const Finished beyond = eval("[1, 2048]", {"--greedy", "1"});
  CHECK(beyond.code == 2);
  CHECK_THAT(beyond.err, Contains("2048"));
  CHECK_THAT(eval("[1]", {}).err, Contains("nothing to do"));
  CHECK_THAT(invoke({"eval"}).err, Contains("no tokens"));
  CHECK(eval("[1]", {"-o", "/nonexistent/l.f32"}).code == 1);
  CHECK(invoke({"eval", "--tokens", folder.path("none.json"), "--greedy", "1"}).code == 1);
  json many(std::vector<int>(1025, 5));
  const Finished too_long = eval(many.dump(), {"--greedy", "1"});
  CHECK(too_long.code == 2);
  CHECK_THAT(too_long.err, Contains("1024"));
}

TEST_CASE("bench measures prefill and decoding at every batch size, as a table or as JSON") {
  const Finished finished = invoke(
      {"bench", "-p", "16", "-n", "4", "-b", "1,3", "-d", "0,40", "-pg", "16,3", "-r", "2", "-t", "1", "-o", "json"});
  INFO(finished.err);
  REQUIRE(finished.code == 0);
  const auto report = json::parse(finished.out);
  CHECK(report["num_threads"] == 1);
  CHECK(report["kv_type"] == "f16");
  std::vector<std::string> tests;
  for (const json& row : report["results"]) {
    tests.push_back(row["test"]);
    CHECK(row["samples_ts"].size() == 2);
    CHECK(row["median_ts"].get<double>() > 0);
  }
  CHECK(tests == std::vector<std::string>{"pp16", "pp16+tg3", "tg4 x1", "tg4 x3", "pp16 @ d40", "pp16+tg3 @ d40",
                                          "tg4 x1 @ d40", "tg4 x3 @ d40"});
  const Finished table = invoke({"bench", "-p", "16", "-n", "0", "-r", "1"});
  CHECK(table.code == 0);
  CHECK_THAT(table.out, Contains("| pp16 | "));
  CHECK_THAT(table.out, !Contains("| tg"));
  CHECK(invoke({"bench", "-p", "0", "-n", "0"}).code == 2);
  for (const char* pair : {"16", "16,", "0,4", "16,4,2", "a,b"}) {
    const Finished wrong = invoke({"bench", "-pg", pair});
    CHECK(wrong.code == 2);
    CHECK_THAT(wrong.err, Contains("512,128"));
  }
}

TEST_CASE("bench measures how fast an encoder reads texts, and refuses what it has not") {
  const std::string model = TROUPE_TEST_DATA "/tiny-bert.gguf";
  const Finished finished = invoke({"bench", "--profile", "-m", model, "-p", "40,7", "-b", "1,60", "-r", "2", "-t", "2",
                                    "-o", "json", "--kv-type", "f32"});
  INFO(finished.err);
  REQUIRE(finished.code == 0);
  const auto report = json::parse(finished.out);
  CHECK(report["kv_type"] == "f32");
  std::vector<std::string> tests;
  std::vector<int> passes;
  for (const json& row : report["results"]) {
    tests.push_back(row["test"]);
    CHECK(row["median_ts"].get<double>() > 0);
    const json& phase = row["profile"]["phases"][0];
    passes.push_back(phase["steps"]);
    CHECK(phase["tokens"] == 2 * row["n_prompt"].get<int>() * row["batch_size"].get<int>());
    std::vector<std::string> operations;
    for (const json& operation : phase["operations"]) operations.push_back(operation["operation"]);
    CHECK(operations == std::vector<std::string>{"prepare", "embed", "attn_norm", "attn_qkv", "rope_store", "attention",
                                                 "attn_round", "attn_output", "ffn_norm", "ffn_gate_up", "ffn_round",
                                                 "ffn_down", "output_norm"});
  }
  CHECK(tests == std::vector<std::string>{"pp40", "pp40 x60", "pp7", "pp7 x60"});
  CHECK(passes == std::vector<int>{2, 6, 2, 2});  // of up to 1,024 tokens, in two rounds
  CHECK_THAT(invoke({"bench", "-m", model, "-p", "8", "-b", "3", "-r", "1"}).out, Contains("| pp8 x3 | "));
  for (const std::vector<std::string>& options :
       std::vector<std::vector<std::string>>{{"-p", "321"}, {"-pg", "16,4"}, {"-d", "8"}, {"-p", "0", "-n", "4"}}) {
    std::vector<std::string> command{"bench", "-m", model};
    command.insert(command.end(), options.begin(), options.end());
    INFO(options[0]);
    CHECK(invoke(command).code == 2);
  }
}

TEST_CASE("bench measures models with windows and recurrent states behind a long text, too") {
  for (const char* name : {"mamba-F32", "rwkv7-F32", "falcon-h1-F32", "gemma3-F32"}) {
    const auto model = shared_file(std::string("golden/") + name + ".gguf");
    if (!model) return;
    INFO(name);
    const Finished finished = invoke(
        {"bench", "-m", *model, "-p", "16", "-n", "4", "-b", "2", "-d", "0,70", "-r", "1", "-t", "2", "-o", "json"});
    CHECK(finished.code == 0);
    CHECK(json::parse(finished.out)["results"].size() == 4);
  }
}

TEST_CASE("bench --profile says where the time of each test went, and what memory there was") {
  const std::vector<std::string> command{"bench", "--profile", "-p", "64", "-n", "40",
                                         "-b",    "1,2",       "-r", "2",  "-t", "2"};
  std::vector<std::string> as_json = command;
  as_json.insert(as_json.end(), {"-o", "json"});
  const Finished finished = invoke(as_json);
  INFO(finished.err);
  REQUIRE(finished.code == 0);
  const auto report = json::parse(finished.out);
  for (const char* kind : {"weights", "kv_cache", "step_buffers", "vocabulary"})
    CHECK(report["memory_peak_bytes"]["process"] > report["memory_peak_bytes"][kind]);
  REQUIRE(report["results"].size() == 3);
  std::vector<std::pair<std::string, int>> phases;  // with their steps: two rounds, and not the one that warms up
  double best_share = 0;
  for (const json& row : report["results"]) {
    CHECK(row["profile"]["num_threads"] == 2);
    REQUIRE(row["profile"]["phases"].size() == 1);
    const json& phase = row["profile"]["phases"][0];
    phases.emplace_back(phase["phase"], phase["steps"]);
    double sum = 0;
    for (const json& operation : phase["operations"]) sum += operation["seconds"].get<double>();
    CHECK(sum <= phase["measured_seconds"].get<double>());
    best_share = std::max(best_share, sum / phase["measured_seconds"].get<double>());
  }
  // Of the best, since two short steps may lose their core between operations; engine_profiler_test holds the 5 %.
  CHECK(best_share > 0.5);
  CHECK(phases == std::vector<std::pair<std::string, int>>{{"prefill", 2}, {"decode", 80}, {"decode", 80}});
  const Finished text = invoke(command);
  CHECK(text.code == 0);
  for (const char* part :
       {"## pp64\n\nprefill: 2 steps of 64.0 tokens, ", "## tg40 x2\n\ndecode: 80 steps of 2.0 tokens, ",
        "| ffn_gate_up | ", "| head | ", "| all | ", "memory, at most: weights "})
    CHECK_THAT(text.out, Contains(part));
  const Finished in_steps = invoke({"bench", "--profile", "-p", "64", "-n", "0", "-r", "2", "--step-tokens", "24"});
  CHECK_THAT(in_steps.out, Contains("\nprefill: 6 steps of 21.3 tokens, "));
  CHECK(json::parse(invoke({"bench", "-p", "8", "-n", "0", "-r", "1", "-o", "json"}).out)["results"][0].count(
            "profile") == 0);
}

TEST_CASE("bench --overhead measures the time between steps through the actors") {
  const Finished finished = invoke({"bench", "--overhead", "-b", "1,3", "-n", "8", "-r", "2", "-t", "1", "-o", "json"});
  INFO(finished.err);
  REQUIRE(finished.code == 0);
  const auto report = json::parse(finished.out);
  CHECK(report["num_threads"] == 1);
  CHECK(report["own_cores"].is_boolean());
  REQUIRE(report["overhead"].size() == 2);
  for (const json& row : report["overhead"]) {
    CHECK(row["steps"].get<int>() > 0);
    CHECK(row["steps"].get<int>() <= 2 * 7);  // between the 8 steps of a round
    CHECK(row["p50_us"].get<double>() > 0);
    CHECK(row["p99_us"].get<double>() >= row["p50_us"].get<double>());
  }
  CHECK(report["overhead"][1]["target_p50_us"] == 46);
  const Finished table = invoke({"bench", "--overhead", "-b", "2", "-n", "6", "-r", "1", "-t", "1"});
  CHECK(table.code == 0);
  CHECK_THAT(table.out, Contains("| 2 | "));
  CHECK(invoke({"bench", "--overhead", "-n", "2"}).code == 2);
}

TEST_CASE("the embedded model is found by an installed binary") {
  if (::access(TROUPE_BUILD_DIR, W_OK) != 0) {
    WARN("skipped: cmake --install writes a list into " TROUPE_BUILD_DIR ", which is read-only");
    return;
  }
  const TempFolder prefix;
  const Finished install =
      run({.arguments = {"--install", TROUPE_BUILD_DIR, "--prefix", prefix.path()}, .program = TROUPE_CMAKE});
  INFO(install.err);
  REQUIRE(install.code == 0);
  const std::string installed = prefix.path("share/troupe/models/tales-5m-tq2_0.gguf");
  CHECK(read_file(installed) == read_file(kTales));
  const Finished inspect = run({.arguments = {"inspect"}, .program = prefix.path("bin/troupe")});
  CHECK(inspect.code == 0);
  CHECK_THAT(inspect.out, Contains(installed));
  CHECK_THAT(invoke({"inspect"}).out, Contains(kTales));
}
