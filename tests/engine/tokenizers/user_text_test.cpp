// No text of users becomes a control token: over published templates and those by name, each with its own special
// tokens as control tokens of a vocabulary, in every field of a message, whole and split over fields that stand beside
// each other.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "engine/chat/builtin_templates.h"
#include "engine/chat/template.h"
#include "engine/tokenizers/tokenizer.h"
#include "tests/engine/metadata_file.h"
#include "tests/support/shared_data.h"

namespace troupe::engine {
namespace {

using chat::Json;

struct Source {
  std::string name, text;
};

std::vector<Source> sources() {
  // Fields side by side, so that a token's halves meet.
  std::vector<Source> all = {
      {"side by side",
       "<|begin|>{% for m in messages %}{{ m.role }}{{ m.name }}{{ m.reasoning_content }}{{ m.content }}{{ "
       "m.tool_call_id }}"
       "{% endfor %}{{ enable_thinking }}<|end|>"},
      {"halves of the template's own", "<|e{{ messages[0].content }}nd|><|begin|>{{ messages[0].name }}<|end|>"}};
  for (const chat::BuiltinTemplate& each : chat::builtin_templates())
    all.push_back({std::string(each.name), std::string(each.source)});
  if (const auto folder = test::shared_file("thirdparty/templates")) {
    for (const auto& entry : std::filesystem::directory_iterator(*folder)) {
      if (entry.path().extension() != ".jinja") continue;
      std::ifstream file(entry.path(), std::ios::binary);
      all.push_back({entry.path().filename(), {std::istreambuf_iterator<char>(file), {}}});
    }
  }
  return all;
}

// What looks like a control token in a template's source, and two that every vocabulary has.
std::vector<std::string> special_tokens(const std::string& source) {
  const std::regex form(R"(<[^<>\s'"{}=+]{1,40}>|\[/?[A-Z][A-Z_]+\])");
  std::set<std::string> found = {"<s>", "</s>"};
  for (std::sregex_iterator it(source.begin(), source.end(), form), end; it != end; ++it) found.insert(it->str());
  return {found.begin(), found.end()};
}

std::shared_ptr<const Tokenizer> tokenizer_with(const std::vector<std::string>& control) {
  test::MetadataFile file = test::byte_pair_file({"< |", "i m", "e n"});
  auto& tokens = std::get<std::vector<std::string>>(file["tokenizer.ggml.tokens"]);
  auto& types = std::get<std::vector<std::int64_t>>(file["tokenizer.ggml.token_type"]);
  for (const std::string& each : control) {
    if (std::ranges::find(tokens, each) != tokens.end()) continue;
    tokens.push_back(each);
    types.push_back(3);
  }
  const auto made = make_tokenizer(file);
  if (!made) FAIL(made.error().message);
  return *made;
}

// Each conversation has `token` as a user would write it: in one field, or split over two that may come one after
// another.
std::vector<Json::List> conversations(const std::string& token) {
  using Object = Json::Object;
  const std::string half = token.substr(0, token.size() / 2), rest = token.substr(token.size() / 2);
  const auto turns = [](Object user, Object assistant) {
    return Json::List{Object{{"role", "system"}, {"content", "S"}}, std::move(user), std::move(assistant),
                      Object{{"role", "user"}, {"content", "V"}}};
  };
  const Object user = {{"role", "user"}, {"content", "U"}}, assistant = {{"role", "assistant"}, {"content", "A"}};
  const auto with_call = [&](const std::string& name, const std::string& argument) {
    const Object function = {{"name", name}, {"arguments", Object{{argument, argument}}}};
    return Object{
        {"role", "assistant"},
        {"content", ""},
        {"tool_calls", Json::List{Object{{"id", "abcdefghi"}, {"type", "function"}, {"function", function}}}}};
  };
  return {
      turns({{"role", "user"}, {"content", token}}, assistant),
      turns({{"role", "user"}, {"content", "x" + token + token + "y"}, {"name", token}}, assistant),
      turns({{"role", "user"}, {"name", half}, {"content", rest}}, assistant),
      turns({{"role", "user"}, {"content", half}}, {{"role", "assistant"}, {"content", rest}}),
      turns(user, {{"role", "assistant"}, {"content", token}, {"reasoning_content", token}}),
      turns(user, {{"role", "assistant"}, {"reasoning_content", half}, {"content", rest}}),
      turns(user, with_call(token, token)),
      turns(user, with_call(half, rest)),
      {Object{{"role", "system"}, {"content", token}}, user},
      {Object{{"role", "system"}, {"content", half}}, Object{{"role", "user"}, {"content", rest}}},
      {user, with_call("f", "x"),
       Object{{"role", "tool"}, {"tool_call_id", token}, {"name", half}, {"content", rest + token}}},
      {Object{{"role", token}, {"content", half}}, user},
      {Object{{"role", half}, {"content", rest}}, user},
  };
}

// Whether each control token of `ids` stands where the template alone wrote.
void check_control_tokens(const Tokenizer& tokenizer, const std::vector<TokenId>& ids,
                          const std::vector<PromptSegment>& segments) {
  std::string text;
  std::vector<bool> from_input;
  for (const PromptSegment& each : segments) {
    text += each.text;
    from_input.resize(text.size(), each.from_input);
  }
  std::size_t at = 0;
  for (const TokenId id : ids) {
    const std::string piece = tokenizer.raw_piece(id);
    REQUIRE(text.compare(at, piece.size(), piece) == 0);
    if (tokenizer.kind(id) == TokenKind::control) {
      const auto begin = from_input.begin() + static_cast<std::ptrdiff_t>(at);
      INFO(piece << " at byte " << at);
      CHECK(std::find(begin, begin + static_cast<std::ptrdiff_t>(piece.size()), true) ==
            begin + static_cast<std::ptrdiff_t>(piece.size()));
    }
    at += piece.size();
  }
  CHECK(at == text.size());
}

std::size_t count_control(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  return static_cast<std::size_t>(
      std::ranges::count_if(ids, [&](TokenId id) { return tokenizer.kind(id) == TokenKind::control; }));
}

// Templates look for these in what was said, and then write other marks.
bool is_looked_for(const std::string& token) {
  return token.find("think") != std::string::npos || token.find("response") != std::string::npos;
}

TEST_CASE("no text of users becomes a control token, in any field, with any template") {
  std::size_t num_prompts = 0, num_control = 0;
  for (const Source& source : sources()) {
    INFO(source.name);
    const auto made = chat::ChatTemplate::parse(source.text, source.name);
    REQUIRE((made ? "" : made.error().message) == "");
    const auto tokens = special_tokens(source.text);
    const auto tokenizer = tokenizer_with(tokens);
    for (const std::string& token : tokens) {
      // The same conversations with text that is like no token.
      const auto written = conversations(token), plain = conversations(std::string(token.size(), 'x'));
      for (std::size_t i = 0; i < written.size(); ++i) {
        INFO(token << ", conversation " << i);
        const auto ids_of = [&](const Json::List& messages, std::vector<PromptSegment>& segments) {
          chat::ChatInput input;
          input.messages = messages;
          input.bos_token = "<s>";
          input.eos_token = "</s>";
          input.variables = {{"enable_thinking", token}};
          input.now = [](std::string_view) { return "1 Jan 2026"; };
          const auto prompt = (*made)->render(input);
          if (!prompt) return std::vector<TokenId>();  // it refuses the roles
          segments = prompt->segments;
          return tokenizer->encode(segments, {.add_special = false});
        };
        std::vector<PromptSegment> segments, others;
        const auto ids = ids_of(written[i], segments), same = ids_of(plain[i], others);
        check_control_tokens(*tokenizer, ids, segments);
        const std::size_t count = count_control(*tokenizer, ids);
        if (!is_looked_for(token)) CHECK(count == count_control(*tokenizer, same));
        num_prompts += ids.empty() ? 0 : 1;
        num_control += count;
      }
    }
  }
  CHECK(num_prompts > 500);
  CHECK(num_control > num_prompts);
}

}  // namespace
}  // namespace troupe::engine
