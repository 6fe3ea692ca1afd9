#include "engine/tokenizers/wordpiece.h"

#include <utf8proc.h>

#include <array>
#include <utility>

#include "config/assert.h"
#include "engine/tokenizers/unicode.h"

namespace troupe::engine {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581
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

// Of what is no space: also formats, surrogates, private and unassigned characters.
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

}  // namespace

Result<std::shared_ptr<const Tokenizer>> WordPieceTokenizer::create(const ModelFile& file) {
  Result<Vocabulary> vocabulary = Vocabulary::load(file);
  if (!vocabulary) return vocabulary.error();
  const auto missing = [&](const char* name) {
    return Error{ErrorCode::bad_model, file.path() + ": the vocabulary of model \"bert\" has no " + name +
                                           " token; the file's vocabulary is damaged, convert it again"};
  };
  if (!vocabulary->bos()) return missing("[CLS]");
  if (!vocabulary->eos()) return missing("[SEP]");
  if (!vocabulary->unknown()) return missing("[UNK]");
  std::vector<std::pair<std::string, TokenId>> tokens;
  for (std::uint32_t i = 0; i < vocabulary->size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    if (vocabulary->is_text(id)) tokens.emplace_back(vocabulary->text(id), id);
  }
  return std::shared_ptr<const Tokenizer>(
      new WordPieceTokenizer(file, std::move(*vocabulary), LongestMatch(std::move(tokens))));
}

// add_bos and add_eos differ between files, because converters search for token names of other vocabularies; BERT
// models always read [CLS] text [SEP].
WordPieceTokenizer::WordPieceTokenizer(const ModelFile& file, Vocabulary vocabulary, LongestMatch tokens)
    : BaseTokenizer(file, std::move(vocabulary), {.add_bos = true, .add_eos = true, .add_space_prefix = true}),
      tokens_(std::move(tokens)),
      lowercase_(file.boolean("tokenizer.ggml.normalizer.lowercase").value_or(true)),
      strip_accents_(file.boolean("tokenizer.ggml.normalizer.strip_accents").value_or(lowercase_)) {
  std::vector<std::string> pieces(size());
  for (std::uint32_t i = 0; i < size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    std::string_view text = this->vocabulary().text(id);
    if (kind(id) == TokenKind::control || kind(id) == TokenKind::unknown) continue;  // no text
    if (text.substr(0, kSpaceMark.size()) == kSpaceMark) {
      text.remove_prefix(kSpaceMark.size());
      pieces[i] = ' ';
    }
    pieces[i] += text;
  }
  set_pieces(pieces);
}

void WordPieceTokenizer::encode_text(std::string_view text, bool, std::vector<TokenId>& ids,
                                     Interrupt& interrupt) const {
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
      if (strip_accents_) {
        decompose(c, add_char);
      } else {
        add_char(c);
      }
      if (chinese) end_word();
    }
  }
  end_word();
}

void WordPieceTokenizer::append_word(std::u32string_view word, std::vector<TokenId>& ids) const {
  if (word.empty()) return;
  const std::size_t begin = ids.size();
  bool whole = word.size() <= kMaxWordChars;
  if (whole) {
    std::string spelled(kSpaceMark);
    for (const char32_t c : word) append_utf8(spelled, c);
    for (std::string_view rest = spelled; whole && !rest.empty();) {
      const auto match = tokens_.find(rest);
      whole = match.has_value();
      if (!whole) break;
      ids.push_back(match->id);
      rest.remove_prefix(match->length);
    }
  }
  if (whole) return;
  ids.resize(begin);
  ids.push_back(*unknown());
}

}  // namespace troupe::engine
