// Texts that grow token by token in one vocabulary have, in another one, the tokens that it would give them.
#include "engine/tokenizers/retokenizer.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <string>
#include <vector>

#include "tests/support/shared_data.h"

namespace troupe::engine {
namespace {

constexpr const char* kVocabularies[] = {"llama-spm", "gpt-2", "phi-3", "falcon", "starcoder"};

constexpr const char* kTexts[] = {
    "Once upon a time, there was a little dog named Max.  He liked to run and play, didn't he?\n\nOne day...",
    "  two spaces before, and tabs\t\tin between; 12345 + 67 = 12412.0001\n    indented_code(x, y) { return x; }",
    "Größe über Maß: naïve café, Ελληνικά, русский текст, 中文字符没有空格, 😀🎉 done",
    " x",
    "a",
    "\n\n\n",
    "word"};

std::shared_ptr<const Tokenizer> vocabulary(const std::string& name) {
  const auto path = test::shared_file("thirdparty/vocab/ggml-vocab-" + name + ".gguf");
  if (!path) return nullptr;
  const auto file = open_gguf(*path);
  if (!file) FAIL(file.error().message);
  return *make_tokenizer(**file);
}

std::string text_of(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  std::string text;
  for (const TokenId id : ids) text += tokenizer.piece(id);
  return text;
}

// Without the space that the vocabulary puts before a text.
std::string plain_text(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  std::string text = text_of(tokenizer, ids);
  if (tokenizer.adds_space_prefix() && text.starts_with(' ')) text.erase(0, 1);
  return text;
}

// Tokens of one list that the other has, too, in the same order, as far as a comparison from both ends says.
double share_in_common(const std::vector<TokenId>& one, const std::vector<TokenId>& other) {
  const std::size_t most = std::min(one.size(), other.size());
  std::size_t first = 0, last = 0;
  while (first < most && one[first] == other[first]) ++first;
  while (last < most - first && one[one.size() - 1 - last] == other[other.size() - 1 - last]) ++last;
  return static_cast<double>(first + last) / static_cast<double>(std::max(one.size(), other.size()));
}

}  // namespace

TEST_CASE("a text that comes token by token has the bytes and nearly all tokens of one that comes at once") {
  for (const char* from_name : kVocabularies)
    for (const char* to_name : kVocabularies) {
      const auto from = vocabulary(from_name), to = vocabulary(to_name);
      if (!from || !to) return;
      for (const std::string text : kTexts) {
        INFO(from_name << " to " << to_name << ": " << text);
        const std::vector<TokenId> ids = from->encode(text, {.continues = true});
        const std::vector<TokenId> expected = to->encode(text, {.continues = true});
        std::mt19937 random(7);
        Retokenizer retokenizer(*from, *to);
        std::vector<TokenId> told;  // as a drafter keeps them
        for (std::size_t begin = 0; begin < ids.size();) {
          const std::size_t count = std::min<std::size_t>(1 + random() % 3, ids.size() - begin);
          const std::uint32_t stayed = retokenizer.append(std::span(ids).subspan(begin, count));
          const std::vector<TokenId>& tokens = retokenizer.tokens();
          REQUIRE(stayed <= std::min(told.size(), tokens.size()));
          REQUIRE(std::equal(told.begin(), told.begin() + stayed, tokens.begin()));
          told = tokens;
          begin += count;
        }
        CHECK(plain_text(*to, told) == plain_text(*to, expected));
        CHECK(share_in_common(told, expected) >= 0.8);
      }
    }
}

TEST_CASE("the ids of a continuation have its bytes, with a space before them only where the text has one") {
  for (const char* name : kVocabularies) {
    const auto tokenizer = vocabulary(name);
    if (!tokenizer) return;
    for (const std::string text : {"ing the", " the dog", " ", "  x", "\nNext", "", "!", "ü"}) {
      INFO(name << ": '" << text << "'");
      CHECK(text_of(*tokenizer, encode_continuation(*tokenizer, text)) == text);
    }
  }
}

TEST_CASE("control tokens become those with the same text, or nothing, and words do not go on across them") {
  const auto phi = vocabulary("phi-3"), llama = vocabulary("llama-spm"), gpt = vocabulary("gpt-2");
  if (!phi || !llama || !gpt) return;
  const std::vector<TokenId> end = phi->encode("<|end|>", {.add_special = false, .parse_special = true});
  REQUIRE(end.size() == 1);
  const auto converted = [&](const Tokenizer& to) {
    Retokenizer retokenizer(*phi, to);
    std::vector<TokenId> ids = phi->encode("some wo", {.add_special = true, .continues = true});
    ids.push_back(end[0]);
    const std::vector<TokenId> rest = phi->encode("rd", {.add_special = false});
    ids.insert(ids.end(), rest.begin(), rest.end());
    retokenizer.append(ids);
    return retokenizer.tokens();
  };
  std::vector<TokenId> expected = llama->encode("some wo", {.add_special = true});
  const std::vector<TokenId> rest = llama->encode("rd", {.add_special = false});
  expected.insert(expected.end(), rest.begin(), rest.end());
  CHECK(converted(*llama) == expected);  // with its own BOS
  std::vector<TokenId> same = phi->encode("some wo", {.add_special = true, .continues = true});
  same.push_back(end[0]);
  const std::vector<TokenId> own_rest = phi->encode("rd", {.add_special = false});
  same.insert(same.end(), own_rest.begin(), own_rest.end());
  CHECK(converted(*phi) == same);
  CHECK(text_of(*gpt, converted(*gpt)) == "some word");
}

}  // namespace troupe::engine
