// A model file that is only metadata, written by hand in a test.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/formats/model_file.h"

namespace troupe::test {

class MetadataFile final : public engine::ModelFile {
 public:
  using Metadata = std::map<std::string, engine::MetadataValue, std::less<>>;
  explicit MetadataFile(Metadata metadata) : metadata_(std::move(metadata)) {}

  const std::string& path() const override { return path_; }
  std::uint64_t file_bytes() const override { return 0; }
  std::uint64_t content_hash() const override { return 0; }
  engine::FileStamp stamp() const override { return {}; }
  Status check_unchanged() const override { return Ok{}; }
  const Metadata& metadata() const override { return metadata_; }
  const std::vector<engine::TensorInfo>& tensors() const override { return tensors_; }
  const engine::TensorInfo* find_tensor(std::string_view) const override { return nullptr; }
  void drop_pages(std::span<const std::byte>) const override {}

  engine::MetadataValue& operator[](const std::string& key) { return metadata_[key]; }
  void remove(const std::string& key) { metadata_.erase(key); }
  // A tensor that no model reads: without any the file would be a vocabulary, and no model.
  void add_tensor() {
    tensors_.push_back({.name = "other", .type = kernels::WeightType::f32, .shape = {1}, .bytes = {}});
  }

 private:
  std::string path_ = "by-hand.gguf";
  Metadata metadata_;
  std::vector<engine::TensorInfo> tensors_;
};

// A SentencePiece-type vocabulary: <unk> <s> </s>, the 256 bytes (from id 3 on), then `pieces` with
// falling scores.
inline MetadataFile sentencepiece_file(const std::vector<std::string>& pieces) {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  std::vector<std::int64_t> types = {2, 3, 3};
  std::vector<double> scores = {0, 0, 0};
  for (int byte = 0; byte < 256; ++byte) {
    const char* const digits = "0123456789ABCDEF";
    tokens.push_back(std::string("<0x") + digits[byte / 16] + digits[byte % 16] + ">");
    types.push_back(6);
    scores.push_back(0);
  }
  for (const std::string& piece : pieces) {
    scores.push_back(-static_cast<double>(tokens.size()));
    tokens.push_back(piece);
    types.push_back(1);
  }
  return MetadataFile({{"tokenizer.ggml.model", std::string("llama")},
                       {"tokenizer.ggml.tokens", tokens},
                       {"tokenizer.ggml.token_type", types},
                       {"tokenizer.ggml.scores", scores}});
}

// A byte-level BPE vocabulary: the 256 bytes in GPT-2's spelling (ids 0 to 255 in order of the byte),
// the results of the merges, then <|end|> as a control token.
inline MetadataFile byte_pair_file(const std::vector<std::string>& merges, const std::string& pre = "gpt-2") {
  std::vector<std::string> tokens;
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
    const int c = printable ? byte : next++;
    tokens.push_back(c < 128 ? std::string(1, static_cast<char>(c))
                             : std::string{static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 63))});
  }
  for (const std::string& merge : merges) {
    std::string token = merge;
    token.erase(token.find(' '), 1);
    tokens.push_back(token);
  }
  std::vector<std::int64_t> types(tokens.size(), 1);
  tokens.push_back("<|end|>");
  types.push_back(3);
  return MetadataFile({{"tokenizer.ggml.model", std::string("gpt2")},
                       {"tokenizer.ggml.pre", pre},
                       {"tokenizer.ggml.tokens", tokens},
                       {"tokenizer.ggml.token_type", types},
                       {"tokenizer.ggml.merges", merges}});
}

// An RWKV vocabulary: <s>, the 256 bytes (ids 1 to 256 in order of the byte), then `tokens`, spelled as in a file.
inline MetadataFile rwkv_file(const std::vector<std::string>& tokens) {
  std::vector<std::string> all = {"<s>"};
  for (int byte = 0; byte < 256; ++byte) {
    const char* const digits = "0123456789abcdef";
    all.push_back(std::string("\\x") + digits[byte / 16] + digits[byte % 16]);
  }
  all.insert(all.end(), tokens.begin(), tokens.end());
  std::vector<std::int64_t> types(all.size(), 1);
  types[0] = 3;
  return MetadataFile({{"tokenizer.ggml.model", std::string("rwkv")},
                       {"tokenizer.ggml.tokens", all},
                       {"tokenizer.ggml.token_type", types}});
}

// A WordPiece vocabulary: [PAD] [UNK] [CLS] [SEP], then `pieces` from id 4 on: "##x" continues a word.
inline MetadataFile wordpiece_file(const std::vector<std::string>& pieces) {
  std::vector<std::string> all = {"[PAD]", "[UNK]", "[CLS]", "[SEP]"};
  for (const std::string& piece : pieces) {
    all.push_back(piece.substr(0, 2) == "##" ? piece.substr(2) : "\xE2\x96\x81" + piece);
  }
  std::vector<std::int64_t> types(all.size(), 1);
  for (int i = 0; i < 4; ++i) types[static_cast<std::size_t>(i)] = 3;
  return MetadataFile({{"tokenizer.ggml.model", std::string("bert")},
                       {"tokenizer.ggml.tokens", all},
                       {"tokenizer.ggml.token_type", types},
                       {"tokenizer.ggml.unknown_token_id", std::int64_t{1}},
                       {"tokenizer.ggml.cls_token_id", std::int64_t{2}},
                       {"tokenizer.ggml.seperator_token_id", std::int64_t{3}}});
}

}  // namespace troupe::test
