// The metadata keys that are read, as docs/models.md lists them, and small models of metadata alone in which each has
// an effect. For the test that walks them and the fuzz target.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/model.h"
#include "engine/model/encoder.h"
#include "engine/model/file_verdict.h"
#include "engine/model/load_choices.h"
#include "engine/tokenizers/tokenizer.h"
#include "tests/engine/metadata_file.h"

namespace troupe::test {

inline constexpr std::string_view kArchitecturePrefix = "ARCH.";

// The table's rows: a key, with ARCH for the architecture, and what it takes.
inline std::map<std::string, std::string> read_metadata_table(const std::string& path) {
  std::map<std::string, std::string> takes;
  std::ifstream in(path);
  bool inside = false;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("| key | takes |")) inside = true;
    if (line.empty()) inside = false;
    if (!inside || !line.starts_with("| `")) continue;
    const std::size_t end = line.find('`', 3), begin = line.find("| ", end) + 2;
    takes[line.substr(3, end - 3)] = line.substr(begin, line.find(" |", begin) - begin);
  }
  return takes;
}

// A key's value in one of the models below; what it takes is in the table.
struct MetadataCase {
  std::string key, model;
  engine::MetadataValue value;                          // that the model takes
  std::map<std::string, engine::MetadataValue> with{};  // what the key needs beside it
};

inline MetadataFile metadata_alone(const std::string& name) {
  const auto put = [](MetadataFile& file, const std::string& family,
                      const std::map<std::string, engine::MetadataValue>& values) {
    file["general.architecture"] = family;
    file["general.name"] = std::string("small");
    for (const auto& [key, value] : values) file[family + "." + key] = value;
  };
  const auto whole = [](std::int64_t value) { return engine::MetadataValue(value); };
  using Values = std::map<std::string, engine::MetadataValue>;
  const Values sizes{{"block_count", whole(6)},
                     {"context_length", whole(64)},
                     {"embedding_length", whole(32)},
                     {"feed_forward_length", whole(24)}};
  const auto joined = [&](const Values& more) {
    Values all = sizes;
    all.insert(more.begin(), more.end());
    return all;
  };
  const Values attention{{"attention.head_count", whole(2)},
                         {"attention.head_count_kv", whole(1)},
                         {"attention.layer_norm_rms_epsilon", 1e-5}};
  const Values decoder = [&] {
    Values all = joined(attention);
    return all;
  }();
  const auto decoder_with = [&](const Values& more) {
    Values all = decoder;
    all.insert(more.begin(), more.end());
    return all;
  };
  const Values mixer{{"ssm.conv_kernel", whole(4)},
                     {"ssm.inner_size", whole(32)},
                     {"ssm.state_size", whole(16)},
                     {"ssm.time_step_rank", whole(2)},
                     {"attention.layer_norm_rms_epsilon", 1e-5}};
  const Values rwkv{{"wkv.head_size", whole(16)}, {"attention.layer_norm_epsilon", 1e-5}};
  if (name == "gpt2") {
    MetadataFile file = byte_pair_file({"a b"});
    put(file, "llama", decoder);
    return file;
  }
  if (name == "nomic-bert") {
    MetadataFile file = wordpiece_file({"a"});
    Values encoder = joined({{"attention.head_count", whole(2)}, {"attention.layer_norm_epsilon", 1e-5}});
    put(file, name, encoder);
    return file;
  }
  if (name == "no vocabulary") {
    MetadataFile file({{"tokenizer.ggml.model", std::string("no_vocab")}});
    put(file, "llama", decoder);
    return file;
  }
  MetadataFile file = sentencepiece_file({"a", "b", "ab", "\xE2\x96\x81"});
  if (name == "mamba" || name == "mamba2")
    put(file, name, joined(mixer));
  else if (name == "falcon-h1")
    put(file, name, [&] {
      Values all = decoder;
      all.insert(mixer.begin(), mixer.end());
      return all;
    }());
  else if (name == "rwkv6")
    put(file, name, joined([&] {
          Values all = rwkv;
          all.insert({{"time_mix_extra_dim", whole(8)}, {"time_decay_extra_dim", whole(8)}});
          return all;
        }()));
  else if (name == "rwkv7")
    put(file, name, joined([&] {
          Values all = rwkv;
          for (const char* rank : {"decay", "iclr", "value_residual_mix", "gate"})
            all.insert({fmt::format("attention.{}_lora_rank", rank), whole(8)});
          return all;
        }()));
  else if (name == "qwen2moe" || name == "qwen3moe")
    put(file, name, decoder_with({{"expert_count", whole(4)}, {"expert_used_count", whole(2)}}));
  else if (name == "qwen2vl")
    put(file, name, decoder_with({{"rope.dimension_sections", std::vector<std::int64_t>{3, 3, 2, 0}}}));
  else if (name == "qwen35") {
    Values all = decoder_with(mixer);
    all.insert({{"ssm.group_count", whole(1)},
                {"full_attention_interval", whole(3)},
                {"rope.dimension_sections", std::vector<std::int64_t>{3, 3, 2, 0}}});
    put(file, name, all);
  } else if (name == "lfm2moe")
    put(file, name, [&] {
      Values all = decoder_with({{"expert_count", whole(4)},
                                 {"expert_used_count", whole(2)},
                                 {"leading_dense_block_count", whole(2)},
                                 {"shortconv.l_cache", whole(3)}});
      all["attention.head_count_kv"] = std::vector<std::int64_t>{0, 0, 1, 0, 1, 1};
      return all;
    }());
  else if (name == "gemma3" || name == "gemma2")
    put(file, name, decoder_with({{"attention.sliding_window", whole(16)}}));
  else
    put(file, name, decoder);
  return file;
}

// That of a file with tensors.
inline MetadataFile metadata_model(const std::string& name) {
  MetadataFile file = metadata_alone(name);
  file.add_tensor();
  return file;
}

inline std::vector<std::string> metadata_model_names() {
  return {"llama",   "gpt2",     "no vocabulary", "nomic-bert", "mamba",    "mamba2", "falcon-h1",
          "rwkv6",   "rwkv7",    "qwen2",         "qwen2moe",   "qwen3moe", "gemma2", "gemma3",
          "granite", "mistral3", "qwen2vl",       "lfm2moe",    "qwen35"};
}

inline std::vector<MetadataCase> metadata_cases() {
  const auto whole = [](std::int64_t value) { return engine::MetadataValue(value); };
  const auto text = [](const char* value) { return engine::MetadataValue(std::string(value)); };
  std::vector<MetadataCase> all = {
      {"general.alignment", "llama", whole(32)},
      {"tokenizer.chat_template", "llama", text("{{ messages }}")},
      {"tokenizer.ggml.add_bos_token", "llama", true},
      {"tokenizer.ggml.add_eos_token", "llama", true},
      {"tokenizer.ggml.add_space_prefix", "llama", true},
      {"tokenizer.ggml.bos_token_id", "llama", whole(1)},
      {"tokenizer.ggml.unknown_token_id", "llama", whole(0)},
      {"tokenizer.ggml.padding_token_id", "llama", whole(5)},
      {"tokenizer.ggml.mask_token_id", "llama", whole(5)},
      {"tokenizer.ggml.normalizer.lowercase", "nomic-bert", true},
      {"tokenizer.ggml.normalizer.strip_accents", "nomic-bert", true},
      {"ARCH.attention.causal", "llama", true},
      {"ARCH.attention.key_length", "llama", whole(16)},
      {"ARCH.attention.value_length", "llama", whole(16)},
      {"ARCH.attention.key_length_swa", "gemma3", whole(16)},
      {"ARCH.attention.value_length_swa", "gemma3", whole(16)},
      {"ARCH.attention.shared_kv_layers", "llama", whole(2)},
      {"ARCH.attention.sliding_window", "llama", whole(16)},
      {"ARCH.attention.sliding_window_pattern", "gemma3", whole(3)},
      {"ARCH.attn_logit_softcapping", "gemma2", 50.0},
      {"ARCH.final_logit_softcapping", "gemma2", 30.0},
      {"ARCH.expert_feed_forward_length", "qwen3moe", whole(8)},
      {"ARCH.expert_shared_feed_forward_length", "qwen2moe", whole(8)},
      {"ARCH.expert_group_count", "qwen3moe", whole(1)},
      {"ARCH.expert_gating_func", "qwen3moe", whole(1)},
      {"ARCH.expert_weights_scale", "qwen3moe", 1.0},
      {"ARCH.pooling_type", "llama", whole(3)},
      {"ARCH.rope.dimension_count", "llama", whole(8)},
      {"ARCH.rope.dimension_count_swa", "gemma3", whole(16)},
      {"ARCH.rope.freq_base", "llama", 500.0},
      {"ARCH.rope.freq_base_swa", "gemma3", 500.0},
      {"ARCH.rope.scale_linear", "llama", 2.0},
      {"ARCH.rope.scaling.type", "llama", text("linear")},
      {"ARCH.rope.scaling.factor", "llama", 2.0},
      {"ARCH.rope.scaling.attn_factor", "llama", 2.0},
      {"ARCH.rope.scaling.original_context_length", "llama", whole(32)},
      {"ARCH.rope.scaling.alpha", "llama", 0.0},
      {"ARCH.rope.scaling.finetuned", "granite", true},
      {"ARCH.rope.dimension_sections", "qwen2vl", std::vector<std::int64_t>{3, 3, 2, 0}},
      {"ARCH.embedding_scale", "granite", 6.0},
      {"ARCH.residual_scale", "granite", 0.25},
      {"ARCH.logit_scale", "granite", 2.0},
      {"ARCH.attention.scale", "granite", 0.25},
      {"ARCH.attention.temperature_scale", "mistral3", 0.25},
      {"ARCH.nextn_predict_layers", "llama", whole(0)},
      {"ARCH.attention.recurrent_layers", "qwen35", std::vector<std::int64_t>{1, 0, 1, 1, 0, 1}},
      {"ARCH.rescale_every_n_layers", "rwkv6", whole(6)},
      {"ARCH.token_shift_count", "rwkv7", whole(2)},
      {"ARCH.ssm.group_count", "mamba2", whole(1)},
      {"ARCH.ssm.dt_b_c_rms", "mamba", true},
  };
  const auto of_model = [&](const std::string& model, std::initializer_list<const char*> keys) {
    const MetadataFile file = metadata_model(model);
    const auto& family = std::get<std::string>(*file.find("general.architecture"));
    for (const std::string key : keys)
      all.push_back(
          {key, model,
           *file.find(key.starts_with(kArchitecturePrefix) ? family + "." + key.substr(kArchitecturePrefix.size())
                                                           : key)});
  };
  of_model("llama", {"general.architecture", "general.name", "tokenizer.ggml.model", "tokenizer.ggml.tokens",
                     "tokenizer.ggml.token_type", "tokenizer.ggml.scores", "ARCH.block_count", "ARCH.context_length",
                     "ARCH.embedding_length", "ARCH.feed_forward_length", "ARCH.attention.head_count",
                     "ARCH.attention.head_count_kv", "ARCH.attention.layer_norm_rms_epsilon"});
  of_model("gpt2", {"tokenizer.ggml.merges", "tokenizer.ggml.pre"});
  of_model("nomic-bert", {"tokenizer.ggml.cls_token_id", "tokenizer.ggml.seperator_token_id"});
  of_model("qwen3moe", {"ARCH.expert_count", "ARCH.expert_used_count"});
  of_model("lfm2moe", {"ARCH.leading_dense_block_count", "ARCH.shortconv.l_cache"});
  of_model("qwen35", {"ARCH.full_attention_interval"});
  of_model("mamba", {"ARCH.ssm.conv_kernel", "ARCH.ssm.inner_size", "ARCH.ssm.state_size", "ARCH.ssm.time_step_rank"});
  of_model("rwkv6", {"ARCH.attention.layer_norm_epsilon", "ARCH.wkv.head_size", "ARCH.time_mix_extra_dim",
                     "ARCH.time_decay_extra_dim"});
  of_model("rwkv7", {"ARCH.attention.decay_lora_rank", "ARCH.attention.iclr_lora_rank",
                     "ARCH.attention.value_residual_mix_lora_rank", "ARCH.attention.gate_lora_rank"});
  for (const char* key : {"eos_token_id", "eos_token_ids", "eot_token_id", "eom_token_id"})
    all.push_back({std::string("tokenizer.ggml.") + key, "llama", whole(4)});
  for (const char* key : {"yarn_beta_fast", "yarn_beta_slow", "yarn_ext_factor", "yarn_log_multiplier"})
    all.push_back({std::string("ARCH.rope.scaling.") + key, "llama", 2.0, {{"ARCH.rope.scaling.type", text("yarn")}}});
  return all;
}

// `key` with the file's architecture in the place of ARCH.
inline std::string key_in(const std::string& key, const std::string& family) {
  return key.starts_with(kArchitecturePrefix) ? family + "." + key.substr(kArchitecturePrefix.size()) : key;
}

// What becomes of a model's metadata: "refused: WHY", or what was read of them and the notes about them.
inline std::string metadata_verdict(const engine::ModelFile& file) {
  const auto refused = [&](const Error& error) {
    std::string why = error.message;
    if (why.starts_with(file.path())) why.erase(0, file.path().size());
    return "refused" + why;
  };
  engine::LoadOptions options;
  const auto tokenizer = engine::judge_metadata(file, options, std::uint64_t{1} << 30);
  if (!tokenizer) return refused(tokenizer.error());
  std::string text = "taken:";
  if (!engine::is_encoder(file)) {
    const auto outline = (*engine::find_family(file))->outline(file, options);
    const engine::ModelInfo& info = outline->info;
    text += fmt::format(" {} {} {} {} {} {} {} {} {} {} {} {} {} {} {}", info.family, info.num_layers, info.dim,
                        info.ffn_dim, info.num_heads, info.num_kv_heads, info.head_dim, info.trained_context,
                        info.num_experts, info.num_experts_used, info.window, info.pooling.has_value(),
                        info.rms_epsilon, info.rope_base, outline->cache.state.num_floats());
    for (const engine::CacheGroup& group : outline->cache.groups)
      text += fmt::format(" ({} {} {})", group.layers.size(), group.window, group.bytes_per_block);
  }
  const auto ends = engine::find_end_ids(file, tokenizer->get(), 1000);
  if (!ends) return refused(ends.error());
  const auto templates = engine::find_chat_templates(file);
  if (!templates) return refused(templates.error());
  for (const TokenId id : *ends) text += fmt::format(" end {}", id);
  for (const auto& [name, source] : *templates) text += " template " + source;
  if (*tokenizer) {
    const engine::Tokenizer& made = **tokenizer;
    text += fmt::format(" {} {} {} {} {}", made.bos().value_or(-1), made.eos().value_or(-1),
                        made.unknown().value_or(-1), made.adds_bos(), made.adds_space_prefix());
    for (const TokenId id : made.encode("ab A\xC3\xA9", {})) text += fmt::format(" {}", id);
  }
  for (const std::string& note : engine::metadata_notes(file, tokenizer->get())) text += "\nnote: " + note;
  return text;
}

// Keeps which keys are asked for.
class RecordedFile final : public engine::ModelFile {
 public:
  explicit RecordedFile(const engine::ModelFile& file) : file_(file) {}

  const std::string& path() const override { return file_.path(); }
  std::uint64_t file_bytes() const override { return file_.file_bytes(); }
  std::uint64_t content_hash() const override { return file_.content_hash(); }
  engine::FileStamp stamp() const override { return file_.stamp(); }
  Status check_unchanged() const override { return file_.check_unchanged(); }
  const std::map<std::string, engine::MetadataValue, std::less<>>& metadata() const override {
    return file_.metadata();
  }
  const std::vector<engine::TensorInfo>& tensors() const override { return file_.tensors(); }
  const engine::TensorInfo* find_tensor(std::string_view name) const override { return file_.find_tensor(name); }
  void drop_pages(std::span<const std::byte> bytes) const override { file_.drop_pages(bytes); }
  const engine::MetadataValue* find(std::string_view key) const override {
    asked_.insert(std::string(key));
    return file_.find(key);
  }

  const std::set<std::string>& asked() const { return asked_; }

 private:
  const engine::ModelFile& file_;
  mutable std::set<std::string> asked_;
};

}  // namespace troupe::test
