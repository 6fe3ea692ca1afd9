// The WordPiece type of vocabulary ("bert"): words are cut into pieces, longest match first.
#include <fmt/format.h>
#include <utf8proc.h>

#include <array>
#include <utility>

#include "config/assert.h"
#include "config/utf8.h"
#include "engine/formats/metadata.h"
#include "engine/tokenizers/tokenizer_base.h"
#include "engine/tokenizers/unicode.h"

namespace troupe::engine {
namespace {

constexpr std::size_t kMaxWordChars = 100;

// BERT's definition of a Chinese character; the sixth range begins at 0x2B920, as in its published tokenizers.
bool is_chinese(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

bool is_space(char32_t c) {
  if (c == '\t' || c == '\n' || c == '\r') return true;
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category >= UTF8PROC_CATEGORY_ZS && category <= UTF8PROC_CATEGORY_ZP;
}

// For characters that are not spaces. Also formats, surrogates, private and unassigned characters.
bool is_control(char32_t c) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category == UTF8PROC_CATEGORY_CN || category >= UTF8PROC_CATEGORY_CC;
}

// Drawn over or under the letter before.
bool is_mark(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)) == UTF8PROC_CATEGORY_MN; }

bool is_punctuation(char32_t c) {
  if (c < 128)
    return c > ' ' && c != 127 && !(c >= '0' && c <= '9') && !(c >= 'A' && c <= 'Z') && !(c >= 'a' && c <= 'z');
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

// Unchanged: U+0130, whose small letter is two characters (utf8proc returns the first).
char32_t to_lower(char32_t c) {
  return c == 0x130 ? c : static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}

// Calls use(char32_t) for each character of `c`'s full canonical decomposition.
template <class Use>
void decompose(char32_t c, Use use) {
  std::array<utf8proc_int32_t, 8> parts;  // 4 at most in Unicode 15
  int break_class = 0;
  const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts.data(), parts.size(),
                                             UTF8PROC_DECOMPOSE, &break_class);
  TROUPE_ASSERT(count >= 1 && count <= static_cast<utf8proc_ssize_t>(parts.size()));
  for (utf8proc_ssize_t i = 0; i < count; ++i) use(static_cast<char32_t>(parts[static_cast<std::size_t>(i)]));
}

// Encodes as BERT does (Devlin et al., NAACL 2019; WordPiece: Schuster and Nakajima, ICASSP 2012): control characters
// are dropped, letters become lower-case and lose their accents unless the metadata say otherwise, the text is cut at
// white space, around punctuation and around Chinese characters, and each word is cut from the left into the longest
// tokens. A word that cannot be cut like this, or of more than 100 characters, is one unknown token. The file spells
// the first piece of a word with U+2581 before it. [CLS] and [SEP] are added around the ids. Not byte-exact: decoding
// gives the words back, with single spaces.
class WordPieceTokenizer final : public BaseTokenizer {
 public:
  // add_bos and add_eos differ between files, because converters search for token names of other vocabularies; BERT
  // models always read [CLS] text [SEP].
  WordPieceTokenizer(const ModelFile& file, Vocabulary vocabulary, bool lowercase, bool strip_accents)
      : BaseTokenizer(file, std::move(vocabulary), {.add_bos = true, .add_eos = true, .add_space_prefix = true}),
        lowercase_(lowercase),
        strip_accents_(strip_accents) {
    std::vector<LongestMatch::Text> tokens;
    for (TokenId id = 0; id < this->vocabulary().end_id(); ++id)
      if (this->vocabulary().is_text(id)) tokens.emplace_back(this->vocabulary().text(id), id);
    tokens_ = LongestMatch(std::move(tokens));
    set_pieces([](TokenId, std::string_view text) {
      return text.starts_with(kSpaceMark) ? std::string(" ").append(text.substr(kSpaceMark.size())) : std::string(text);
    });
  }

  std::string_view name() const override { return "bert"; }

 protected:
  void encode_text(std::string_view text, std::vector<TokenId>& ids, Interrupt& interrupt) const override {
    std::u32string word;
    const auto end_word = [&] {
      append_word(word, ids);
      word.clear();
    };
    const auto add_char = [&](char32_t c) {
      if (strip_accents_ && is_mark(c)) return;
      if (lowercase_) c = to_lower(c);
      if (is_punctuation(c)) {
        end_word();
        word = c;
        end_word();
      } else {
        word += c;
      }
    };
    while (!text.empty()) {
      interrupt.poll();
      const Utf8Char next = next_utf8(text);
      text.remove_prefix(next.length);
      const char32_t c = next.code_point;
      if (next.status != Utf8Status::valid || c == 0xFFFD) continue;  // invalid characters are dropped
      if (is_space(c)) {
        end_word();
      } else if (!is_control(c)) {
        const bool chinese = is_chinese(c);
        if (chinese) end_word();
        if (strip_accents_)
          decompose(c, add_char);
        else
          add_char(c);
        if (chinese) end_word();
      }
    }
    end_word();
  }

 private:
  void append_word(std::u32string_view word, std::vector<TokenId>& ids) const {
    if (word.empty()) return;
    const std::size_t begin = ids.size();
    std::string spelled(kSpaceMark);
    for (const char32_t c : word.substr(0, kMaxWordChars)) append_utf8(spelled, c);
    bool whole = word.size() <= kMaxWordChars;
    for (std::string_view rest = spelled; whole && !rest.empty();) {
      const auto match = tokens_.find(rest);
      whole = match.has_value();
      if (!match) break;
      ids.push_back(match->id);
      rest.remove_prefix(match->length);
    }
    if (whole) return;
    ids.resize(begin);
    ids.push_back(*unknown());
  }

  LongestMatch tokens_;
  bool lowercase_;
  bool strip_accents_;
};

}  // namespace

Result<std::shared_ptr<const Tokenizer>> make_wordpiece(const ModelFile& file) {
  Result<Vocabulary> vocabulary = Vocabulary::load(file);
  if (!vocabulary) return vocabulary.error();
  for (const auto& [id, name] : {std::pair(vocabulary->bos(), "[CLS]"), std::pair(vocabulary->eos(), "[SEP]"),
                                 std::pair(vocabulary->unknown(), "[UNK]")})
    if (!id) return bad_vocabulary(file, fmt::format("the vocabulary of model \"bert\" has no {} token", name));
  Metadata keys(file, "tokenizer.ggml.normalizer");
  const bool lowercase = keys.boolean("lowercase", true);
  const bool strip_accents = keys.boolean("strip_accents", lowercase);
  if (keys.failed()) return keys.error();
  return {std::make_shared<const WordPieceTokenizer>(file, std::move(*vocabulary), lowercase, strip_accents)};
}

}  // namespace troupe::engine
