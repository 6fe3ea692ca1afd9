// Mutated templates over mutated conversations: each is an error of one line or a prompt, in bounded steps and memory.
//
//   TROUPE_MUTATIONS=200000 build/asan/tests/fuzz/chat_mutation_test
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "engine/chat/builtin_templates.h"
#include "engine/chat/template.h"
#include "tests/engine/chat/worst_cases.h"
#include "tests/fuzz/chat_bounds.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/mutation_count.h"
#include "tests/support/sanitized.h"
#include "tests/support/shared_data.h"

namespace troupe::engine::chat {
namespace {

using Random = std::mt19937_64;

std::size_t below(Random& random, std::size_t end) { return static_cast<std::size_t>(random() % end); }

template <class List>
const auto& any_of(Random& random, const List& list) {
  return list[below(random, list.size())];
}

std::string read_source(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Published templates, where the reference data are; those by name; the worst ones; and the small ones of the
// language's test.
std::vector<std::string> sources() {
  std::vector<std::string> all;
  for (const BuiltinTemplate& each : builtin_templates()) all.emplace_back(each.source);
  if (const auto folder = troupe::test::shared_file("thirdparty/templates")) {
    std::vector<std::filesystem::path> paths;
    for (const auto& entry : std::filesystem::directory_iterator(*folder))
      if (entry.path().extension() == ".jinja") paths.push_back(entry.path());
    std::sort(paths.begin(), paths.end());
    for (const auto& path : paths) all.push_back(read_source(path));
  }
  for (const test::WorstCase& each : test::kWorstCases) all.emplace_back(each.source);
  std::ifstream lines(TROUPE_TEST_DATA "/chat/language.jsonl");
  for (std::string line; std::getline(lines, line);) {
    const auto made = parse_json(line);
    if (made && made->find("template") != nullptr) all.push_back(*made->find("template")->text());
  }
  return all;
}

std::vector<std::string> words() {
  std::vector<std::string> all;
  std::ifstream lines(TROUPE_FUZZ_CORPUS "/../dictionaries/chat_template");
  for (std::string line; std::getline(lines, line);)
    if (line.size() > 2) all.push_back(line.substr(1, line.size() - 2));
  return all;
}

std::string mutated(Random& random, std::string source, const std::vector<std::string>& others,
                    const std::vector<std::string>& words) {
  const std::size_t count = 1 + below(random, 4);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = below(random, source.size() + 1);
    const std::size_t length = std::min(below(random, 40), source.size() - at);
    switch (below(random, 6)) {
      case 0:
        source.erase(at, length);
        break;
      case 1:
        source.insert(at, any_of(random, words));
        break;
      case 2:
        source.replace(at, length, any_of(random, words));
        break;
      case 3:
        if (at < source.size()) source[at] = static_cast<char>(random());
        break;
      case 4:
        source.insert(below(random, source.size() + 1), source.substr(at, length));
        break;
      default: {
        const std::string& other = any_of(random, others);
        const std::size_t from = below(random, other.size() + 1);
        source.insert(at, other.substr(from, below(random, 80)));
        break;
      }
    }
  }
  return source;
}

Json random_json(Random& random, int depth) {
  switch (below(random, depth > 3 ? 5 : 7)) {
    case 0:
      return {};
    case 1:
      return random() % 2 == 0;
    case 2:
      return static_cast<std::int64_t>(random()) >> below(random, 64);
    case 3:
      return static_cast<double>(static_cast<std::int64_t>(random())) / 1e9;
    case 4:
      return std::vector<const char*>{"", "user", " <|im_end|>\n", "\xE4\xB8\xAD\xFF", "</think>x"}[below(random, 5)];
    case 5: {
      Json::List list;
      for (std::size_t i = below(random, 4); i > 0; --i) list.push_back(random_json(random, depth + 1));
      return list;
    }
    default: {
      Json::Object object;
      for (const char* name : {"role", "content", "tool_calls", "function", "name", "arguments", "parameters"})
        if (random() % 3 == 0) object.emplace_back(name, random_json(random, depth + 1));
      return object;
    }
  }
}

ChatInput conversation(Random& random) {
  ChatInput input;
  Json::List messages;
  for (std::size_t i = below(random, 5); i > 0; --i) {
    Json::Object message = {
        {"role", std::vector<const char*>{"system", "user", "assistant", "tool", "x"}[below(random, 5)]},
        {"content", random() % 3 == 0 ? random_json(random, 0) : Json(" Hi <s>\n")}};
    if (random() % 4 == 0) message.emplace_back("tool_calls", random_json(random, 0));
    messages.emplace_back(std::move(message));
  }
  input.messages = std::move(messages);
  if (random() % 2 == 0) input.tools = random_json(random, 0);
  input.add_generation_prompt = random() % 2 == 0;
  input.bos_token = "<s>";
  input.eos_token = "</s>";
  for (const char* name : {"n", "s", "l", "d", "rows", "names", "enable_thinking", "documents"})
    if (random() % 2 == 0) input.variables.emplace_back(name, random_json(random, 0));
  input.now = [](std::string_view format) { return format_time(format, {}); };
  return input;
}

}  // namespace

TEST_CASE("mutated templates over mutated conversations are errors of one line, or prompts") {
  const std::vector<std::string> all = sources(), dictionary = words();
  REQUIRE(all.size() > 200);
  REQUIRE(dictionary.size() > 50);
  constexpr Limits kLimits = {
      .max_output_bytes = std::size_t{1} << 20, .max_value_bytes = std::size_t{16} << 20, .max_steps = 100'000};
  const int count = fuzz::num_mutations(troupe::test::kSanitized ? 2000 : 10'000);
  int num_parsed = 0, num_rendered = 0;
  for (int i = 0; i < count; ++i) {
    Random random(static_cast<std::uint64_t>(i));  // so that one of them can be looked at alone
    // Where an assertion or a sanitizer ends the process, the last line says which mutation it was.
    if (i % 10'000 == 0) std::fprintf(stderr, "mutations from %d on\n", i);
    const std::string source = mutated(random, any_of(random, all), all, dictionary);
    const auto made = ChatTemplate::parse(source, "mutated", kLimits);
    if (!made) {
      fuzz::check_message(made.error().message);
      continue;
    }
    ++num_parsed;
    if (i % 4 == 0) check_bounds(source, kLimits);
    const auto prompt = (*made)->render(conversation(random));
    if (!prompt) fuzz::check_message(prompt.error().message);
    num_rendered += prompt ? 1 : 0;
  }
  WARN(count << " mutations: " << num_parsed << " are templates, " << num_rendered << " render");
  CHECK(num_parsed > count / 10);
  CHECK(num_rendered > count / 50);
}

}  // namespace troupe::engine::chat
