// Renders what differential_test.py sends, so that it can compare with Jinja2: each line of stdin is a JSON object with
// `template`, `messages`, `bos_token`, `eos_token`, `add_generation_prompt` and `variables`, each line of the output
// "text" or "error" and what it is, in hexadecimal digits.
#include <cstdio>
#include <iostream>
#include <map>
#include <memory>
#include <string>

#include "engine/chat/template.h"

namespace {

using namespace troupe::engine::chat;

std::map<std::string, std::shared_ptr<const ChatTemplate>> parsed_templates;

troupe::Result<RenderedPrompt> rendered(const Json& line) {
  const std::string& source = *line.find("template")->text();
  auto& parsed = parsed_templates[source];
  if (!parsed) {
    const auto made = ChatTemplate::parse(source, "t");
    if (!made) return made.error();
    parsed = *made;
  }
  ChatInput input;
  input.messages = *line.find("messages");
  input.bos_token = *line.find("bos_token")->text();
  input.eos_token = *line.find("eos_token")->text();
  input.add_generation_prompt = std::get<bool>(line.find("add_generation_prompt")->value);
  input.variables = *line.find("variables")->object();
  input.now = [](std::string_view) { return "26 Jul 2025"; };
  return parsed->render(input);
}

void print(const char* what, const std::string& text) {
  std::cout << what << ' ';
  for (const char c : text) {
    constexpr const char* kDigits = "0123456789abcdef";
    const auto byte = static_cast<unsigned char>(c);
    std::cout << kDigits[byte / 16] << kDigits[byte % 16];
  }
  std::cout << std::endl;
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const auto read = parse_json(line);
    if (!read) {
      std::cerr << line << ": " << read.error().message << '\n';
      return 1;
    }
    const auto prompt = rendered(*read);
    print(prompt ? "text" : "error", prompt ? prompt->text() : prompt.error().message);
  }
}
