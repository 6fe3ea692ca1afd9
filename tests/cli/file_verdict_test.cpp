// One model file, five commands: what one of them refuses all refuse, in the same words.
#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <functional>
#include <optional>

#include "engine/formats/model_file.h"
#include "tests/cli/process.h"
#include "tests/engine/gguf_copy.h"
#include "tests/engine/gguf_writer.h"
#include "tests/engine/metadata_file.h"
#include "tests/support/shared_data.h"

namespace troupe::test {
namespace {

struct Verdict {
  std::string command;
  int code = -1;
  std::string message;  // what is said of the file; empty if it is taken
};

// The rest of the last line that names the file.
std::string said_of(const std::string& path, const std::string& text) {
  const std::size_t at = text.rfind(path);
  if (at == std::string::npos) return "nothing: " + text;
  return text.substr(at + path.size(), text.find('\n', at) - at - path.size());
}

Verdict verdict_of_server(const std::string& path, const TempFolder& folder) {
  Process server({.arguments = {"serve", "--socket", folder.path("s.sock"), "-m", path, "-c", "64"}});
  if (server.wait_for_err("ready")) server.signal(SIGTERM);
  const Finished finished = server.wait();
  return {"serve", finished.code, finished.code == 0 ? "" : said_of(path, finished.err)};
}

std::vector<Verdict> verdicts_on(const std::string& path) {
  const TempFolder folder;
  const std::string ids = folder.write("ids.json", "[1, 2]");
  std::vector<Verdict> all{verdict_of_server(path, folder)};
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"inspect", "-m", path},
                                                    {"eval", "-m", path, "-c", "64", "--tokens", ids, "--greedy", "1"},
                                                    {"tokenize", "-m", path, "--ids", "a text"},
                                                    {"bench", "-m", path, "-c", "64", "-p", "8", "-n", "0"}}) {
    const Finished finished = invoke(arguments);
    all.push_back({arguments[0], finished.code, finished.code == 0 ? "" : said_of(path, finished.err)});
  }
  return all;
}

void require_same(const std::string& path, std::optional<bool> taken) {
  const std::vector<Verdict> all = verdicts_on(path);
  if (taken) CHECK(all[0].message.empty() == *taken);
  for (const Verdict& verdict : all) {
    INFO(all[0].command << all[0].message << "\n" << verdict.command << verdict.message);
    CHECK(verdict.code == (all[0].message.empty() ? 0 : 65));
    CHECK(verdict.message == all[0].message);
  }
}

struct Change {
  std::string what;
  bool is_taken;
  std::function<void(MetadataFile& file, const std::string& family)> make;
};

Change set(const std::string& key, const engine::MetadataValue& value, bool is_taken = false) {
  return {"another " + key, is_taken,
          [=](MetadataFile& file, const std::string& family) { file[key[0] == '.' ? family + key : key] = value; }};
}
Change left_out(const std::string& key) {
  return {"no " + key, false,
          [=](MetadataFile& file, const std::string& family) { file.remove(key[0] == '.' ? family + key : key); }};
}

std::vector<Change> changes() {
  const auto whole = [](std::int64_t value) { return engine::MetadataValue(value); };
  const auto text = [](const char* value) { return engine::MetadataValue(std::string(value)); };
  using Wholes = std::vector<std::int64_t>;
  return {
      set("troupe.unread", std::vector<std::string>{"a", "b"}, true),
      left_out(".block_count"),
      set(".block_count", text("two")),
      set(".block_count", 2.5),
      set(".context_length", whole(0)),
      set(".embedding_length", whole(1 << 30)),
      set(".feed_forward_length", Wholes{100, 200}),
      left_out(".attention.head_count"),
      set(".attention.head_count_kv", Wholes{4, 2, 4, 4, 4}),
      set(".attention.head_count_kv", whole(3)),
      set(".attention.causal", false),
      set(".attention.layer_norm_rms_epsilon", text("small")),
      set(".rope.dimension_count", whole(5)),
      set(".rope.freq_base", whole(16'777'217)),
      set(".rope.freq_base", whole(16'777'216), true),
      set(".attention.layer_norm_rms_epsilon", whole(2'000'000'001)),
      set(".rope.scaling.type", text("spiral")),
      set(".pooling_type", whole(4)),
      set("general.architecture", text("other")),
      set("general.architecture", whole(1)),
      left_out("general.architecture"),
      set("general.name", whole(1), true),
      set("split.count", whole(2)),
      set("tokenizer.ggml.model", text("other")),
      set("tokenizer.ggml.scores", text("high")),
      set("tokenizer.ggml.token_type", Wholes{1, 2}),
      set("tokenizer.ggml.eos_token_id", text("</s>")),
      set("tokenizer.ggml.bos_token_id", whole(1 << 30)),
      set("tokenizer.ggml.add_bos_token", whole(2)),
      set("tokenizer.chat_template", whole(1)),
      {"one token more", false,
       [](MetadataFile& file, const std::string&) {
         std::get<std::vector<std::string>>(file["tokenizer.ggml.tokens"]).push_back("more");
         std::get<std::vector<double>>(file["tokenizer.ggml.scores"]).push_back(0);
         std::get<std::vector<std::int64_t>>(file["tokenizer.ggml.token_type"]).push_back(1);
       }},
  };
}

}  // namespace

TEST_CASE("a model with other metadata gets one verdict from serve, inspect, eval, tokenize and bench") {
  const TempFolder folder;
  const auto original = engine::open_gguf(TROUPE_MODELS "/tales-draft-q8_0.gguf");
  REQUIRE(original);
  for (const Change& change : changes()) {
    MetadataFile metadata((*original)->metadata());
    change.make(metadata, std::get<std::string>(*(*original)->find("general.architecture")));
    INFO(change.what);
    require_same(folder.write("model.gguf", model_with(**original, metadata)), change.is_taken);
  }
}

TEST_CASE("tensors get one verdict from five commands: those of layers must be known, others are not read") {
  const TempFolder folder;
  const auto original = engine::open_gguf(TROUPE_MODELS "/tales-draft-q8_0.gguf");
  REQUIRE(original);
  struct Tensor {
    std::string name;
    std::vector<std::uint64_t> shape;
    std::uint32_t type;
    bool is_taken;
  };
  for (const Tensor& each :
       {Tensor{"mm.0.weight", {7, 3}, 16, true}, Tensor{"output_scale", {7}, 99, true},
        Tensor{"blk.900.attn_q.weight", {8, 8}, 19, true}, Tensor{"blk.0.attn_q.extra", {8, 8}, 0, false},
        Tensor{"blk.0.attn_q.extra", {8, 8}, 99, false}, Tensor{"token_embd.extra", {8}, 0, true},
        Tensor{"blk.x.y", {8}, 0, true}}) {
    INFO(each.name << " of type " << each.type);
    GgufWriter w;
    copy_metadata(**original, w);
    for (const engine::TensorInfo& tensor : (*original)->tensors())
      w.add_tensor(tensor.name, tensor.shape, tensor.file_type().gguf_number, to_string(tensor.bytes));
    w.add_tensor(each.name, each.shape, each.type, std::string(256, '\0'));
    require_same(folder.write("model.gguf", w.bytes()), each.is_taken);
  }
  GgufWriter without;
  copy_metadata(**original, without);
  for (const engine::TensorInfo& tensor : (*original)->tensors())
    if (!tensor.name.starts_with("blk.0.ffn_down"))
      without.add_tensor(tensor.name, tensor.shape, tensor.file_type().gguf_number, to_string(tensor.bytes));
  require_same(folder.write("model.gguf", without.bytes()), false);
}

TEST_CASE("files as their publishers write them get one verdict from five commands") {
  const auto cases = shared_file("cases");
  if (!cases) return;
  for (const auto& entry : std::filesystem::directory_iterator(*cases)) {
    if (entry.path().extension() != ".gguf") continue;
    const std::string path = entry.path().string();
    INFO(path);
    const auto file = engine::open_gguf(path);
    REQUIRE(file);
    if (!(*file)->tensors().empty()) require_same(path, true);
  }
}

TEST_CASE("a vocabulary without a model is shown and can be used to tokenize, and nothing else") {
  const TempFolder folder;
  const auto original = engine::open_gguf(TROUPE_MODELS "/tales-draft-q8_0.gguf");
  REQUIRE(original);
  const auto check = [](const std::string& path) {
    INFO(path);
    for (const Verdict& verdict : verdicts_on(path)) {
      INFO(verdict.command << verdict.message);
      const bool is_taken = verdict.command == "tokenize" || verdict.command == "inspect";
      CHECK(verdict.code == (is_taken ? 0 : 65));
    }
  };
  for (const Change& change : {left_out(".block_count"), set("general.architecture", std::string("other"))}) {
    MetadataFile metadata((*original)->metadata());
    change.make(metadata, std::get<std::string>(*(*original)->find("general.architecture")));
    GgufWriter w;
    copy_metadata(metadata, w);
    check(folder.write("vocabulary.gguf", w.bytes()));
  }
  const auto vocabularies = shared_file("thirdparty/vocab");
  if (!vocabularies) return;
  for (const auto& entry : std::filesystem::directory_iterator(*vocabularies))
    if (entry.path().extension() == ".gguf") check(entry.path().string());
}

TEST_CASE("inspect lists and prints a file's chat templates, and serve takes one by its name") {
  const TempFolder folder;
  const auto original = engine::open_gguf(TROUPE_MODELS "/tales-draft-q8_0.gguf");
  REQUIRE(original);
  MetadataFile metadata((*original)->metadata());
  metadata["tokenizer.chat_template"] = std::string("{{ messages[0].content }}");
  metadata["tokenizer.chat_template.tool_use"] = std::string("tools: {{ messages[0].content }}\n");
  metadata["tokenizer.chat_template.broken"] = std::string("{% if %}");
  const std::string path = folder.write("model.gguf", model_with(**original, metadata));

  const Finished lists = invoke({"inspect", "-m", path});
  CHECK(lists.code == 0);
  CHECK_THAT(lists.out, Catch::Contains("default, 25 bytes") && Catch::Contains("tool_use, 33 bytes") &&
                            Catch::Contains("broken, 8 bytes; it cannot be used: "));
  const Finished prints = invoke({"inspect", "-m", path, "--chat-template"});
  CHECK(prints.code == 0);
  CHECK_THAT(prints.out, Catch::Contains("{#- default #}\n{{ messages[0].content }}\n") &&
                             Catch::Contains("{#- tool_use #}\ntools: {{ messages[0].content }}\n"));
  CHECK(invoke({"inspect", "-m", TROUPE_MODELS "/tales-draft-q8_0.gguf", "--chat-template"}).code == 2);

  for (const std::string name : {"default", "tool_use", "nowhere"}) {
    INFO(name);
    Process server(
        {.arguments = {"serve", "--socket", folder.path("s.sock"), "-m", path, "-c", "64", "--chat-template", name}});
    const bool is_ready = server.wait_for_err("ready");
    if (is_ready) server.signal(SIGTERM);
    const Finished ended = server.wait();
    CHECK(is_ready == (name != "nowhere"));
    CHECK_THAT(ended.err, Catch::Contains(is_ready ? "chat template \"" + name + "\"" : "none of troupe's templates"));
  }
}

}  // namespace troupe::test
