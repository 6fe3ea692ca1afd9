#include "engine/tokenizers/pre_tokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "config/assert.h"
#include "config/printable.h"

namespace troupe::engine {
namespace {

// The expressions, with \s for Unicode white space (see with_unicode_spaces). Where the published form
// says (?i:'s|...), the letters are spelled out: ignoring case would also match U+017F for s.
constexpr const char* kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))";
#define TROUPE_CONTRACTIONS R"('[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|)"
#define TROUPE_AFTER_NUMBERS R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"
constexpr const char* kLlama3 = TROUPE_CONTRACTIONS R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})" TROUPE_AFTER_NUMBERS;
constexpr const char* kQwen2 = TROUPE_CONTRACTIONS R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N})" TROUPE_AFTER_NUMBERS;
constexpr const char* kQwen35 = TROUPE_CONTRACTIONS
    R"([^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kSeedCoder =
    TROUPE_CONTRACTIONS R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kMiniCpm5 = TROUPE_CONTRACTIONS R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+)" TROUPE_AFTER_NUMBERS;
constexpr const char* kBailing =
    R"('[sSdDmMtT]|'[lL][lL]|'[vV][eE]|'[rR][eE]|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|)"
    R"(\s*[\r\n]|\s+(?!\S)|\s+)";
// Words with at most one change from upper to lower case, and an optional ending; caseless letters count as both.
#define TROUPE_CASED_WORDS(ending)                                                         \
  R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)" ending \
  R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)" ending
#define TROUPE_ENDING R"((?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?)"
#define TROUPE_AFTER_CASED_NUMBERS R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"
constexpr const char* kTekken = TROUPE_CASED_WORDS("") R"(|\p{N})" TROUPE_AFTER_CASED_NUMBERS;
constexpr const char* kGpt4o = TROUPE_CASED_WORDS(TROUPE_ENDING) R"(|\p{N}{1,3})" TROUPE_AFTER_CASED_NUMBERS;
constexpr const char* kYoutu = TROUPE_CASED_WORDS(TROUPE_ENDING) R"(|\p{N})" TROUPE_AFTER_CASED_NUMBERS;
#undef TROUPE_AFTER_CASED_NUMBERS
#undef TROUPE_ENDING
#undef TROUPE_CASED_WORDS
#undef TROUPE_CONTRACTIONS
#undef TROUPE_AFTER_NUMBERS

// Words end at white space and at the punctuation of the languages that BLOOM was trained on.
constexpr const char* kBloom = R"( ?[^(\s|.,!?\x{2026}\x{3002}\x{ff0c}\x{3001}\x{964}\x{6d4}\x{60c})]+)";
constexpr const char* kYoutuScripts =
    R"([\x{ac00}-\x{d7a3}\x{3131}-\x{318e}]+|)"
    R"([\x{ff01}\x{2026}\x{201c}\x{201d}\x{2018}\x{2019}\x{2014}\x{ff1a}\x{ff1b}\x{ff0c}\x{3001}-\x{303f})"
    R"(\x{fe30}-\x{fe4f}]+|[\x{3105}-\x{312f}]+|[\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+)";

constexpr const char* kNewline = R"([\r\n])";
constexpr const char* kDigit = R"(\p{N})";
constexpr const char* kNumber = R"(\p{N}+)";
constexpr const char* kThreeDigits = R"([0-9][0-9][0-9])";
constexpr const char* kPunctuation = R"([\p{P}\$\+<=>\^~\|]+)";
constexpr const char* kPunctuationFalcon = R"([\p{P}\$\+<=>\^~\|`]+)";

// DeepSeek LLM lists its letters one by one: cased letters, without some alphabets.
constexpr const char* kDeepSeekLetters =
    R"(\s?[^\P{L&}\x{560}-\x{588}\x{10c7}-\x{10ff}\x{1c80}-\x{1c88}\x{2d00}-\x{2d2d}\x{a790}-\x{ab68})"
    R"(\x{10570}-\x{105bc}\x{16e40}-\x{1df1e}]+)";
constexpr const char* kDeepSeekMarks =
    R"(\s?[!-/:-~\x{ff01}-\x{ff0f}\x{ff1a}-\x{ff5e}\x{2018}-\x{201f}\x{3000}-\x{3002}]+)";
// Published as \s+$. The look-behind and the possessive + find the same, in one pass over each run.
constexpr const char* kTrailingSpace = R"((?<!\s)\s++$)";
constexpr const char* kEastAsian = R"([\x{800}-\x{9fa5}\x{ac00}-\x{d7ff}]+)";

constexpr const char* kDeepSeek3Numbers = R"(\p{N}{1,3})";
constexpr const char* kDeepSeek3EastAsian = R"([\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+)";
constexpr const char* kDeepSeek3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
    R"( ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

struct Entry {
  std::vector<const char*> names;
  std::vector<const char*> expressions;
  bool adds_bos = false;
  bool takes_whole_words = false;
};

const std::vector<Entry>& entries() {
  static const std::vector<Entry> table = {
      {{"default"}, {kPunctuation, kGpt2, kNumber, kThreeDigits}},
      {{"gpt-2", "phi-2", "mpt", "olmo", "jais", "exaone4", "gigachat", "a.x-4.0", "mellum", "trillion",
        "granite-docling", "modern-bert", "roberta-bpe", "jina-es", "jina-de", "jina-v1-en", "jina-v2-es", "jina-v2-de",
        "jina-v2-code"},
       {kGpt2}},
      {{"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "lfm2", "midm-2.0", "jina-v5-nano"},
       {kLlama3},
       true,
       true},
      {{"dbrx", "smaug-bpe", "chatglm-bpe", "glm4"}, {kLlama3}},
      {{"qwen2", "deepseek-r1-qwen", "stablelm2", "megrez", "kormo", "f2llmv2", "hunyuan", "solar-open", "grok-2"},
       {kQwen2}},
      {{"qwen35"}, {kQwen35}},
      {{"starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2"}, {kDigit, kGpt2}},
      {{"tekken"}, {kTekken}, true, true},
      {{"gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"}, {kGpt4o}},
      {{"bloom", "gpt3-finnish", "poro-chat"}, {kBloom}},
      {{"viking"}, {kBloom, kDigit}},
      {{"bailingmoe", "bailingmoe2", "llada-moe"}, {kBailing}},
      {{"seed-coder"}, {kSeedCoder}},
      {{"minicpm5"}, {R"(\p{N}{1,3})", kMiniCpm5}, false, true},
      {{"youtu"}, {kYoutuScripts, kYoutu}, false, true},
      {{"falcon"}, {kPunctuationFalcon, kGpt2, kThreeDigits}},
      {{"deepseek-llm"}, {kNewline, kDeepSeekLetters, kDeepSeekMarks, kTrailingSpace, kEastAsian, kNumber}},
      {{"deepseek-coder"}, {kNewline, R"(\s?\p{L}+)", R"(\s?\p{P}+)", kEastAsian, kDigit}},
      {{"deepseek-v3", "hunyuan-dense", "joyai-llm"}, {kDeepSeek3Numbers, kDeepSeek3EastAsian, kDeepSeek3}},
  };
  return table;
}

// Writes \s and \S out as Unicode's White_Space property, which is what the published expressions
// mean; PCRE2's own \s also has U+180E, a letter's part in Mongolian.
std::string with_unicode_spaces(std::string_view pattern) {
  constexpr std::string_view kSpaces =
      R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
  std::string out;
  bool in_class = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '\\') {
      const char escaped = pattern[++i];
      TROUPE_ASSERT(escaped != 'S' || !in_class);
      if (escaped == 's' || escaped == 'S') {
        if (!in_class) out += escaped == 's' ? "[" : "[^";
        out += kSpaces;
        if (!in_class) out += ']';
      } else {
        out += '\\';
        out += escaped;
      }
      continue;
    }
    if (pattern[i] == '[') in_class = true;
    if (pattern[i] == ']') in_class = false;
    out += pattern[i];
  }
  return out;
}

pcre2_code* compile(const char* expression) {
  const std::string pattern = with_unicode_spaces(expression);
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* const code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                         PCRE2_UTF | PCRE2_UCP | PCRE2_DOLLAR_ENDONLY, &error, &offset, nullptr);
  TROUPE_ASSERT(code != nullptr);  // the expressions are constants of this file
  // Without JIT (the system may refuse executable memory) the interpreter gives the same result, more slowly.
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  return code;
}

// PCRE2's working memory for one split; unlike the compiled expressions it is not shared.
struct MatchState {
  MatchState() : data(pcre2_match_data_create(1, nullptr)), context(pcre2_match_context_create(nullptr)) {
    TROUPE_ASSERT(data != nullptr && context != nullptr);
  }
  ~MatchState() {
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
  MatchState(const MatchState&) = delete;
  MatchState& operator=(const MatchState&) = delete;

  pcre2_match_data* data;
  pcre2_match_context* context;
};

// Cuts one piece into matches and gaps. If PCRE2 fails (a limit, no memory), the rest is one word: that only gives
// other ids than in training.
void split_piece(const pcre2_code* code, MatchState& state, std::string_view piece,
                 std::vector<std::string_view>& words, Interrupt& interrupt) {
  const auto* const subject = reinterpret_cast<PCRE2_SPTR>(piece.data());
  const PCRE2_SIZE* const bounds = pcre2_get_ovector_pointer(state.data);
  std::size_t begin = 0;
  while (begin < piece.size()) {
    interrupt.poll();
    const int found = pcre2_match(code, subject, piece.size(), begin, PCRE2_NO_UTF_CHECK, state.data, state.context);
    if (found < 0 || bounds[1] <= bounds[0]) break;
    if (bounds[0] > begin) words.push_back(piece.substr(begin, bounds[0] - begin));
    words.push_back(piece.substr(bounds[0], bounds[1] - bounds[0]));
    begin = bounds[1];
  }
  if (begin < piece.size()) words.push_back(piece.substr(begin));
}

}  // namespace

void TextSplitter::CodeDeleter::operator()(pcre2_real_code_8* code) const { pcre2_code_free(code); }

Result<TextSplitter> TextSplitter::create(const std::string& name) {
  for (const Entry& entry : entries()) {
    if (std::find(entry.names.begin(), entry.names.end(), name) == entry.names.end()) continue;
    TextSplitter splitter;
    for (const char* const expression : entry.expressions) splitter.expressions_.emplace_back(compile(expression));
    splitter.adds_bos_ = entry.adds_bos;
    splitter.takes_whole_words_ = entry.takes_whole_words;
    return splitter;
  }
  return Error{ErrorCode::unsupported, "the pre-tokenizer \"" + Printable(name) + "\" is not known, only these are: " +
                                           known_names() + "; use a model with one of these"};
}

std::string TextSplitter::known_names() {
  std::string names;
  for (const Entry& entry : entries())
    for (const char* const name : entry.names) names += (names.empty() ? "" : ", ") + std::string(name);
  return names;
}

void TextSplitter::split(std::string_view text, std::vector<std::string_view>& words, Interrupt& interrupt) const {
  MatchState state;
  // A bound on backtracking that only a super-linear expression could reach.
  constexpr std::size_t kMaxLimit = std::numeric_limits<std::uint32_t>::max();
  pcre2_set_match_limit(state.context, static_cast<std::uint32_t>(std::min(kMaxLimit, 1000 + 32 * text.size())));
  std::vector<std::string_view> pieces{text}, next;
  for (const Code& code : expressions_) {
    next.clear();
    for (const std::string_view piece : pieces) split_piece(code.get(), state, piece, next, interrupt);
    pieces.swap(next);
  }
  words.insert(words.end(), pieces.begin(), pieces.end());
}

}  // namespace troupe::engine
