// Text of any bytes through every kind of tokenizer: the embedded model's vocabulary, byte-level BPE with each
// pre-tokenizer, RWKV's, WordPiece. The first byte of an input chooses one, the second the options, the rest is the
// text.
#include <memory>
#include <vector>

#include "config/utf8.h"
#include "engine/tokenizers/tokenizer.h"
#include "tests/engine/metadata_file.h"
#include "tests/fuzz/fuzz_target.h"

namespace troupe::engine {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // SentencePiece spells a space so, and cannot tell them apart

using Tokenizers = std::vector<std::shared_ptr<const Tokenizer>>;

Tokenizers make_all() {
  Tokenizers all;
  const auto embedded = open_gguf(TROUPE_MODELS "/tales-5m-tq2_0.gguf");
  TROUPE_ASSERT(embedded);
  all.push_back(*make_tokenizer(**embedded));
  for (const char* pre : {"default", "gpt-2", "llama-bpe", "smaug-bpe", "qwen2", "starcoder", "falcon", "deepseek-llm",
                          "deepseek-coder", "deepseek-v3", "qwen35", "tekken", "gpt-4o", "bloom", "viking",
                          "bailingmoe", "seed-coder", "minicpm5", "youtu"}) {
    const auto file = test::byte_pair_file({"a a", "aa aa", "aaaa aaaa", "\xC4\xA0 \xC4\xA0", "\xC4\xA0 a", "< |",
                                            "7 7", "\xC4\x8A \xC4\x8A", "t h", "th e", "\xC3\xA4 \xC2\xB8"},
                                           pre);
    all.push_back(*make_tokenizer(file));
  }
  all.push_back(*make_tokenizer(test::rwkv_file({"aa", "aaaa", "  ", "th", "the", "\\n\\n", "77", "\\xe4\\xb8\\xad"})));
  all.push_back(*make_tokenizer(test::wordpiece_file(
      {"a", "##a", "##aa", "the", "##re", "7", "##7", "<", "|", ",", "!", "\xE4\xB8\xAD", "##s", "once", "e"})));
  return all;
}

// The text of a stream of these ids: the pieces with U+FFFD for bytes that are no UTF-8, nothing held back at the end.
void check_stream(const std::shared_ptr<const Tokenizer>& tokenizer, const std::vector<TokenId>& ids) {
  Detokenizer detokenizer(tokenizer);
  std::string pieces, streamed;
  for (const TokenId id : ids) {
    pieces += tokenizer->piece(id);
    const std::string shown = detokenizer.push(id);
    for (std::string_view rest = shown; !rest.empty();) {
      const Utf8Char next = next_utf8(rest);
      TROUPE_ASSERT(next.status == Utf8Status::valid);
      rest.remove_prefix(next.length);
    }
    streamed += shown;
  }
  streamed += detokenizer.flush();
  std::string expected;
  for (std::string_view rest = pieces; !rest.empty();) {
    const Utf8Char next = next_utf8(rest);
    expected += next.status == Utf8Status::valid ? rest.substr(0, next.length) : kReplacementCharacter;
    rest.remove_prefix(next.length);
  }
  TROUPE_ASSERT(streamed == expected);
}

}  // namespace
}  // namespace troupe::engine

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troupe;
  using namespace troupe::engine;
  static const Tokenizers all = make_all();
  fuzz::Input in(data, size);
  const auto& tokenizer = all[in.byte() % all.size()];
  const std::uint8_t bits = in.byte();
  const EncodeOptions options{.add_special = (bits & 1) != 0, .parse_special = (bits & 2) != 0};
  const std::string_view text = in.rest();
  const std::vector<TokenId> ids = tokenizer->encode(text, options);
  TROUPE_ASSERT(ids.size() <= 3 * text.size() + 4);  // at most a byte each, spaces as three, BOS and EOS
  for (std::size_t i = 0; i < ids.size(); ++i) {
    TROUPE_ASSERT(ids[i] >= 0 && static_cast<std::uint32_t>(ids[i]) < tokenizer->size());
    // Text gives control tokens only with parse_special.
    const bool may_be_control = options.parse_special || (options.add_special && (i == 0 || i + 1 == ids.size()));
    TROUPE_ASSERT(may_be_control || tokenizer->kind(ids[i]) != TokenKind::control || ids[i] == tokenizer->unknown());
  }
  const bool exact = tokenizer->name() == "gpt2" || tokenizer->name() == "rwkv" ||
                     (tokenizer->name() == "llama" && text.find(kSpaceMark) == std::string_view::npos);
  if (!options.parse_special && exact) TROUPE_ASSERT(tokenizer->decode(ids) == text);
  TROUPE_ASSERT(tokenizer->encode(text, options) == ids);
  check_stream(tokenizer, ids);
  return 0;
}
