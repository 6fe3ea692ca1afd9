// A small vocabulary with control tokens: every byte, some words, and marks.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/tokenizers/tokenizer.h"

namespace troupe::engine::constraints::test {

class MarkedVocabulary final : public Tokenizer {
 public:
  static constexpr TokenId kEnd = 0;  // ends an answer

  // words: longest first among those that begin alike. ends: marks that end an answer, too.
  MarkedVocabulary(std::vector<std::string> words, std::vector<std::string> marks, std::vector<std::string> ends = {}) {
    add("<end>", TokenKind::control);
    for (unsigned byte = 0; byte < 256; ++byte) add(std::string(1, static_cast<char>(byte)), TokenKind::byte);
    for (std::string& each : words) add(std::move(each), TokenKind::normal);
    for (std::string& each : marks) add(std::move(each), TokenKind::control);
    num_plain_ends_ = texts_.size();
    for (std::string& each : ends) add(std::move(each), TokenKind::control);
  }

  std::vector<TokenId> encode(std::string_view text, EncodeOptions options) const override {
    std::vector<TokenId> ids;
    while (!text.empty()) {
      TokenId best = static_cast<TokenId>(static_cast<unsigned char>(text.front())) + 1;
      std::size_t length = 1;
      for (std::size_t id = 257; id < texts_.size(); ++id) {
        if (kinds_[id] == TokenKind::control && !options.parse_special) continue;
        if (texts_[id].size() <= length || !text.starts_with(texts_[id])) continue;
        best = static_cast<TokenId>(id);
        length = texts_[id].size();
      }
      ids.push_back(best);
      text.remove_prefix(length);
    }
    return ids;
  }
  std::vector<TokenId> encode(std::span<const PromptSegment> segments, EncodeOptions options) const override {
    std::string text;
    for (const PromptSegment& each : segments) text += each.text;
    return encode(text, options);
  }
  std::string piece(TokenId id) const override { return kind(id) == TokenKind::control ? "" : raw_piece(id); }
  std::string raw_piece(TokenId id) const override { return texts_[static_cast<std::size_t>(id)]; }
  std::string_view name() const override { return "marked"; }
  std::uint32_t size() const override { return static_cast<std::uint32_t>(texts_.size()); }
  TokenKind kind(TokenId id) const override { return kinds_[static_cast<std::size_t>(id)]; }
  std::optional<TokenId> bos() const override { return std::nullopt; }
  std::optional<TokenId> eos() const override { return kEnd; }
  std::optional<TokenId> unknown() const override { return std::nullopt; }
  bool adds_bos() const override { return false; }
  bool adds_space_prefix() const override { return false; }
  bool is_end_of_generation(TokenId id) const override {
    return id == kEnd || static_cast<std::size_t>(id) >= num_plain_ends_;
  }
  const std::vector<std::string>& notes() const override { return notes_; }

 private:
  void add(std::string text, TokenKind kind) {
    texts_.push_back(std::move(text));
    kinds_.push_back(kind);
  }

  std::vector<std::string> texts_;
  std::vector<TokenKind> kinds_;
  std::size_t num_plain_ends_ = 0;
  std::vector<std::string> notes_;
};

}  // namespace troupe::engine::constraints::test
