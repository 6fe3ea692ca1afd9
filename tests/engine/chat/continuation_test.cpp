// Prompts that end with the text of the last message, which the answer goes on with.
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "engine/chat/builtin_templates.h"
#include "engine/chat/template.h"

namespace troupe::engine::chat {
namespace {

std::string continued(std::string_view source, Json::List messages) {
  const auto made = ChatTemplate::parse(source, "t");
  if (!made) return made.error().message;
  ChatInput input;
  input.messages = std::move(messages);
  input.eos_token = "</s>";
  input.add_generation_prompt = false;
  input.continue_final_message = true;
  const auto prompt = (*made)->render(input);
  return prompt ? prompt->text() : prompt.error().message;
}

Json::List ending_with(const std::string& content) {
  return {Json::Object{{"role", "user"}, {"content", "Hi"}}, Json::Object{{"role", "assistant"}, {"content", content}}};
}

TEST_CASE("a prompt that continues the last message ends with its text") {
  const std::string_view chatml = *find_builtin_template("chatml");
  const std::string before = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";
  CHECK(continued(chatml, ending_with("Sure")) == before + "Sure");
  CHECK(continued(chatml, ending_with("Sure, ")) == before + "Sure, ");
  CHECK(continued(chatml, ending_with("Hi")) == before + "Hi");  // as an earlier message has it, too
  CHECK(continued(chatml, ending_with("<|im_end|>\n")) == before + "<|im_end|>\n");
  CHECK(continued(chatml, ending_with("\n a b\n\n")) == before + "\n a b\n\n");
}

TEST_CASE("white space that the template trims is not there to be continued") {
  const std::string_view llama3 = *find_builtin_template("llama3");
  const std::string before =
      "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n";
  CHECK(continued(llama3, ending_with(" Sure, ")) == before + "Sure,");
}

TEST_CASE("every template by name can continue the assistant's text") {
  for (const BuiltinTemplate& each : builtin_templates()) {
    INFO(each.name);
    const std::string prompt = continued(each.source, ending_with("It is a"));
    CHECK(prompt.ends_with("It is a"));
    CHECK(prompt.find("Hi") < prompt.find("It is a"));
  }
}

TEST_CASE("what a prompt does not end with cannot be continued") {
  const auto refuses = [](std::string_view source, const std::string& content, const char* why) {
    CHECK_THAT(continued(source, ending_with(content)), Catch::Contains(why));
  };
  refuses("{{ messages[0].content }}<a>", "Sure", "does not end with the text of the last message");
  refuses("{{ messages[1].content | upper }}", "Sure", "does not end with the text of the last message");
  refuses("no input at all", "Sure", "does not end with the text of the last message");
  refuses("{{ messages[1].content }}", " \n", "no text that could be continued");
}

}  // namespace
}  // namespace troupe::engine::chat
