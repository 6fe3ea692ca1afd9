#include "engine/chat/tools/tool_form.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/chat/message_form.h"
#include "engine/chat/tools/tool_call_parser.h"

namespace troupe::engine::chat {
namespace {

constexpr const char *kProbeTool = "troupe_probe", *kProbeOther = "troupe_other", *kProbeWord = "blue marble";

Json tool_of(const char* name) {
  const Json word = Json::Object{{"type", "string"}, {"description", "A word."}};
  const Json schema =
      Json::Object{{"type", "object"}, {"properties", Json::Object{{"word", word}}}, {"required", Json::List{"word"}}};
  const Json function = Json::Object{{"name", name}, {"description", "Keeps a word."}, {"parameters", schema}};
  return Json::Object{{"type", "function"}, {"function", function}};
}

// Renders conversations in the form that is known so far.
class ToolProbe {
 public:
  ToolProbe(const ChatTemplate& chat_template, TimeBudget& time, const std::atomic<bool>* interrupt)
      : chat_template_(chat_template), time_(time), interrupt_(interrupt) {}

  void find(ToolForm& form) {
    form.reads_tools = form.reads_calls = form.reads_several_calls = false;
    for (const char* const variable : {"tools", "xml_tools"}) {  // the latter: SmolLM3
      tools_variable_ = variable;
      const auto asked = render({user()}, true);
      form.reads_tools = asked && asked->find(kProbeTool) != std::string::npos;
      if (form.reads_tools) form.tools_variable = variable;
      if (form.reads_tools) break;
    }
    tools_variable_ = form.tools_variable;
    const auto asked = render({user()}, true);
    if (!asked) return;
    // A template that wants the one form may write the other, but as Python has it, or with the quotes of a text.
    bool has_one = false;
    for (const bool as_text : {false, true}) {
      const auto called = render({user(), answer({kProbeTool}, as_text), result(0)}, false);
      if (!called || called->find(kProbeWord) == std::string::npos) continue;
      has_one = has_calls(form, *called, *asked, 1);
      if (has_one || !form.reads_calls) form.arguments_are_text = as_text;
      form.reads_calls = true;
      if (has_one) break;
    }
    if (!form.reads_calls) return;
    const auto both =
        render({user(), answer({kProbeTool, kProbeOther}, form.arguments_are_text), result(0), result(1)}, false);
    form.reads_several_calls = both && has_calls(form, *both, *asked, 2);
    form.text_beside_calls = find_text_beside_calls(form.arguments_are_text);
    form.wants_short_ids = !takes_other_ids(form.arguments_are_text);
    if (!has_one)
      form.warning = fmt::format(
          "chat template '{}' writes calls of tools otherwise than tool format '{}'; choose another by --tool-format",
          chat_template_.name(), form.format->name);
  }

 private:
  bool takes_other_ids(bool as_text) {
    id_beginning_ = "call_of_another_length_";
    const bool is_taken = render({user(), answer({kProbeTool}, as_text), result(0)}, false).has_value();
    id_beginning_ = kIdBeginning;
    return is_taken;
  }
  ToolForm::TextBesideCalls find_text_beside_calls(bool as_text) const {
    constexpr const char* kSaid = "green lantern";
    const auto writes = [&](Json::List messages) {
      const auto prompt = render(std::move(messages), false);
      return prompt && prompt->find(kSaid) != std::string::npos && prompt->find(kProbeWord) != std::string::npos;
    };
    const Json called = answer({kProbeTool}, as_text);
    const Json spoken = Json::Object{{"role", "assistant"}, {"content", kSaid}};
    using enum ToolForm::TextBesideCalls;
    if (writes({user(), with_content(called, kSaid), result(0)})) return written;
    return writes({user(), spoken, called, result(0)}) ? message_before : left_out;
  }
  static Json with_content(Json message, const char* content) {
    auto& members = std::get<Json::Object>(message.value);
    std::ranges::find(members, "content", [](const auto& member) { return member.first; })->second = Json(content);
    return message;
  }
  static Json user() { return Json::Object{{"role", "user"}, {"content", "Keep it."}}; }
  Json answer(std::vector<const char*> names, bool as_text) const {
    Json::List calls;
    for (std::size_t i = 0; i < names.size(); ++i) {
      const Json arguments =
          as_text ? Json(fmt::format(R"({{"word": "{}"}})", kProbeWord)) : Json(Json::Object{{"word", kProbeWord}});
      const Json function = Json::Object{{"name", names[i]}, {"arguments", arguments}};
      calls.push_back(Json::Object{{"id", id_of(i)}, {"type", "function"}, {"function", function}});
    }
    return Json::Object{{"role", "assistant"}, {"content", ""}, {"tool_calls", calls}};
  }
  Json result(std::size_t index) const {
    return Json::Object{{"role", "tool"},
                        {"tool_call_id", id_of(index)},
                        {"name", index == 0 ? kProbeTool : kProbeOther},
                        {"content", "kept"}};
  }
  std::string id_of(std::size_t index) const { return fmt::format("{}{}", id_beginning_, index + 1); }

  std::optional<std::string> render(Json::List messages, bool begins_answer) const {
    ChatInput input;
    for (Json& each : messages) {
      auto& members = std::get<Json::Object>(each.value);
      const std::string role = *each.find("role")->text();
      if (!chat_template_.form().reads_parts(role)) continue;
      const auto content = std::ranges::find(members, "content", [](const auto& member) { return member.first; });
      content->second = Json::List{text_part(*content->second.text())};
    }
    input.messages = std::move(messages);
    give_tools(input, Json::List{tool_of(kProbeTool), tool_of(kProbeOther)}, tools_variable_);
    input.add_generation_prompt = begins_answer;
    input.now = [](std::string_view format) { return format_time(format, {}); };
    auto prompt = chat_template_.render(input, interrupt_, &time_);
    return prompt ? std::optional(prompt->text()) : std::nullopt;
  }

  static bool has_calls(const ToolForm& form, std::string_view whole, std::string_view prompt, std::size_t count) {
    ToolCallParser parser(*form.format, nullptr);
    std::vector<AnswerPart> parts = parser.push(answer_in(whole, prompt));
    const std::vector<AnswerPart> rest = parser.finish();
    parts.insert(parts.end(), rest.begin(), rest.end());
    std::size_t num_found = 0;
    std::string name, arguments;
    for (const AnswerPart& each : parts) {
      if (each.kind == AnswerPart::Kind::call) {
        name = each.text;
        arguments.clear();
      } else if (each.kind == AnswerPart::Kind::arguments) {
        arguments += each.text;
      } else if (each.kind == AnswerPart::Kind::call_end) {
        const auto json = parse_json(arguments);
        const Json* const word = json ? json->find("word") : nullptr;
        const bool is_same = word != nullptr && word->text() != nullptr && *word->text() == kProbeWord;
        num_found += is_same && name == (num_found == 0 ? kProbeTool : kProbeOther) ? 1 : 0;
      }
    }
    return num_found == count;
  }

  const ChatTemplate& chat_template_;
  TimeBudget& time_;
  const std::atomic<bool>* interrupt_;
  std::string_view tools_variable_ = "tools";
  static constexpr const char* kIdBeginning = "call0000";  // with a digit behind it it has kCallIdBytes
  const char* id_beginning_ = kIdBeginning;
};

}  // namespace

void give_tools(ChatInput& input, Json tools, std::string_view variable) {
  if (variable != "tools") input.variables.emplace_back(variable, tools);
  input.tools = std::move(tools);
}

std::string_view answer_in(std::string_view whole, std::string_view prompt) {
  const auto differs = std::ranges::mismatch(whole, prompt);
  auto at = static_cast<std::size_t>(differs.in1 - whole.begin());
  // Not within a mark that both begin with.
  if (at < prompt.size()) at = whole.substr(0, at).find_last_of(">]\n ") + 1;
  return whole.substr(at);
}

ToolForm find_tool_form(const ChatTemplate& chat_template, const Tokenizer* vocabulary, const ToolFormat* given,
                        TimeBudget& time, const std::atomic<bool>* interrupt) {
  ToolForm form;
  form.format = given != nullptr ? given : &choose_tool_format(chat_template.source(), vocabulary);
  ToolForm found = form;
  ToolProbe(chat_template, time, interrupt).find(found);
  if (!time.was_used_up()) return found;
  const bool reads_xml_tools = chat_template.mentions("xml_tools") && !chat_template.mentions("tools");
  if (reads_xml_tools) form.tools_variable = "xml_tools";
  form.reads_tools = chat_template.mentions("tools") || reads_xml_tools;
  form.reads_calls = form.reads_several_calls = chat_template.source().find("tool_calls") != std::string::npos;
  form.warning = fmt::format(
      "chat template '{}': its trial with tools takes longer than {} ms, so how it reads and writes them was not found "
      "out; it gets them as they are",
      chat_template.name(), time.bound().count());
  return form;
}

}  // namespace troupe::engine::chat
