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

// A model as one file and as three, of which the first is to be named.
class WholeAndSplit {
 public:
  explicit WholeAndSplit(const std::string& model) {
    const auto file = engine::open_gguf(model);
    REQUIRE(file);
    MetadataFile metadata((*file)->metadata());
    metadata.remove("general.name");  // so that the file's name is the model's
    GgufWriter w;
    copy_metadata(metadata, w);
    for (const engine::TensorInfo& tensor : (*file)->tensors())
      w.add_tensor(tensor.name, tensor.shape, tensor.file_type().gguf_number, to_string(tensor.bytes));
    whole_ = folder_.write("whole/tales.gguf", w.bytes());
    for (const GgufWriter& part : w.parts({0, w.num_tensors() / 2})) paths_.push_back(write_part(part));
  }

  const std::string& whole() const { return whole_; }
  const std::string& part(std::size_t number) const { return paths_[number - 1]; }
  const std::string& first() const { return part(1); }
  std::uintmax_t bytes() const {
    std::uintmax_t sum = 0;
    for (const std::string& path : paths_) sum += std::filesystem::file_size(path);
    return sum;
  }
  const TempFolder& folder() const { return folder_; }

 private:
  std::string write_part(const GgufWriter& part) {
    return folder_.write("split/tales-0000" + std::to_string(paths_.size() + 1) + "-of-00003.gguf", part.bytes());
  }

  TempFolder folder_;
  std::string whole_;
  std::vector<std::string> paths_;
};

TEST_CASE("a split model is taken by every command that takes a model file, with the answers of the whole one") {
  const WholeAndSplit tales(TROUPE_MODELS "/tales-5m-tq2_0.gguf");
  const std::string ids = tales.folder().write("ids.json", "[1, 200, 3, 44]");
  const std::string text = tales.folder().write("text.txt", "Once upon a time there was a girl. She had a red ball.");
  const std::string tools_answer = tales.folder().write("answer.txt", "Hello");
  const std::string cases = tales.folder().write(
      "cases.jsonl",
      R"({"name": "one", "schema": {"type": "object"}, "tests": [{"description": "", "valid": true, "data": {}}]})"
      "\n");
  // What each prints is the same, but for names of files and times.
  for (std::vector<std::string> arguments :
       {std::vector<std::string>{"eval", "-c", "64", "--tokens", ids, "--greedy", "9"},
        {"tokenize", "--ids", "a text"},
        {"tools", "parse", tools_answer},
        {"perplexity", "-f", text, "-c", "8", "--chunks", "1"}}) {
    INFO(arguments[0]);
    arguments.insert(arguments.end(), {"-m", tales.whole()});
    const Finished of_whole = invoke(arguments);
    arguments.back() = tales.first();
    const Finished of_split = invoke(arguments);
    INFO(of_whole.err << of_split.err);
    CHECK(of_split.code == 0);
    CHECK(of_split.out == of_whole.out);
  }
  for (std::vector<std::string> arguments : {std::vector<std::string>{"bench", "-c", "64", "-p", "8", "-n", "0"},
                                             {"schema", "check", cases},
                                             {"serve", "--check", "--socket", tales.folder().path("s.sock")}}) {
    INFO(arguments[0]);
    arguments.insert(arguments.end(), {"-m", tales.first()});
    const Finished finished = invoke(arguments);
    INFO(finished.err);
    CHECK(finished.code == 0);
  }
  const Finished inspect = invoke({"inspect", "-m", tales.first()});
  CHECK_THAT(inspect.out, Catch::Contains(tales.first() + " and 2 more parts, "));
  const Finished json = invoke({"inspect", "-m", tales.first(), "--json"});
  CHECK_THAT(json.out, Catch::Contains("\"num_files\": 3,") &&
                           Catch::Contains("\"file_bytes\": " + std::to_string(tales.bytes()) + ","));
  CHECK_THAT(invoke({"inspect", "-m", tales.whole(), "--json"}).out, Catch::Contains("\"num_files\": 1,"));
}

TEST_CASE("a served split model has the name without the part's number, and its answers and id are the whole one's") {
  const WholeAndSplit tales(TROUPE_MODELS "/tales-5m-tq2_0.gguf"), draft(TROUPE_MODELS "/tales-draft-q8_0.gguf");
  const std::vector<std::string> story{"run", "--temp", "0", "-n", "30", "Once upon a time"};
  const auto id_in = [](const std::string& info) {
    const std::size_t at = info.find("numerics");
    return info.substr(at, info.find('\n', at) - at);
  };
  ServerProcess whole({"-m", tales.whole(), "-c", "256"});
  const Finished expected = whole.call(story);
  INFO(expected.err);
  REQUIRE(expected.code == 0);
  const std::string info = whole.call({"model", "info", "tales"}).out;
  REQUIRE_THAT(info, Catch::Contains("numerics"));

  ServerProcess split({"-m", tales.first(), "-md", draft.first(), "--spec-type", "draft", "-c", "256"});
  CHECK(split.call(story).out == expected.out);
  CHECK(id_in(split.call({"model", "info", "tales"}).out) == id_in(info));
  const Finished loaded = split.call({"model", "load", "other=" + tales.first(), "memory=16MiB", "ctx-size=64"});
  INFO(loaded.err);
  CHECK(loaded.code == 0);
  CHECK(split.call({"run", "--model-name", "other", "--temp", "0", "-n", "8", "Once"}).code == 0);
  for (const std::size_t number : {2u, 3u}) std::filesystem::resize_file(tales.part(number), 0);
  CHECK(split.call(story).out == expected.out);  // a loaded model does not read its files again
}

TEST_CASE("a split encoder gives the vectors of the whole one") {
  const WholeAndSplit bert(TROUPE_TEST_DATA "/tiny-bert.gguf");
  std::vector<std::string> vectors;
  for (const std::string& path : {bert.whole(), bert.first()}) {
    ServerProcess server({"-m", path});
    const Finished finished = server.call({"embed", "a text"});
    INFO(finished.err);
    CHECK(finished.code == 0);
    vectors.push_back(finished.out);
  }
  CHECK(vectors[0] == vectors[1]);
}

TEST_CASE("another part than the first, a missing and a cut-off part get one verdict from five commands") {
  const WholeAndSplit tales(TROUPE_MODELS "/tales-draft-q8_0.gguf");
  require_same(tales.first(), true);
  for (const std::size_t number : {2u, 3u}) {
    require_same(tales.part(number), false);
    CHECK_THAT(invoke({"inspect", "-m", tales.part(number)}).err,
               Catch::Contains("is part " + std::to_string(number) + " of 3 of a split model; name the first part, " +
                               tales.first()));
  }
  const auto size = std::filesystem::file_size(tales.part(3));
  std::filesystem::resize_file(tales.part(3), size / 2);
  for (const Verdict& verdict : verdicts_on(tales.first())) {
    INFO(verdict.command);
    CHECK(verdict.code == 65);
  }
  CHECK_THAT(invoke({"inspect", "-m", tales.first()}).err,
             Catch::Contains(tales.part(3) + ": tensor ") && Catch::Contains("is the download complete?"));
  std::filesystem::remove(tales.part(3));
  for (const Verdict& verdict : verdicts_on(tales.first())) {
    INFO(verdict.command << verdict.message);
    CHECK(verdict.code == 66);
    CHECK_THAT(verdict.message, Catch::Contains("1 of its 3 parts is missing: tales-00003-of-00003.gguf"));
  }
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
