// Pre-tokenizers: how byte-level BPE cuts a text into words before it merges inside each.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "config/result.h"
#include "engine/compute/interrupt.h"

struct pcre2_real_code_8;
struct pcre2_real_match_context_8;

namespace troupe::engine {

// One of the known pre-tokenizers, by its name in tokenizer.ggml.pre. Each is a list of regular
// expressions that were published with the models (HF tokenizer.json); applied one after another, each
// cuts every piece that the ones before it left into its matches and the gaps between them.
// Immutable; any thread may use it.
class TextSplitter {
 public:
  // Error: unsupported, with the list of known names.
  static Result<TextSplitter> create(const std::string& name);
  static std::string known_names();

  // Appends the words of `text`, which must be valid UTF-8; together they are the text. They borrow from it.
  // O(text.size()): no expression scans the same characters from more than one start.
  void split(std::string_view text, std::vector<std::string_view>& words, Interrupt& interrupt) const;

  // Defaults that come with the pre-tokenizer.
  bool adds_bos() const { return adds_bos_; }
  // Whether a word that is a token is not split, even if merges would not produce that token.
  bool takes_whole_words() const { return takes_whole_words_; }

 private:
  struct CodeDeleter {
    void operator()(pcre2_real_code_8* code) const;
  };
  using Code = std::unique_ptr<pcre2_real_code_8, CodeDeleter>;

  TextSplitter() = default;

  std::vector<Code> expressions_;
  bool adds_bos_ = false;
  bool takes_whole_words_ = false;
};

}  // namespace troupe::engine
