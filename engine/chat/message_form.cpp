#include "engine/chat/message_form.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>
#include <utility>

#include "engine/chat/template.h"

namespace troupe::engine::chat {
namespace {

constexpr std::array<std::string_view, 5> kProbedRoles = {"user", "assistant", "system", "developer", "tool"};
constexpr const char* kWords = "what the probe says";

std::size_t count_of(std::string_view text, std::string_view word) {
  std::size_t count = 0;
  for (std::size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + word.size())) ++count;
  return count;
}

// How often a value of none was written: as Python or as JSON writes it.
std::size_t count_nones(const std::string& prompt) { return count_of(prompt, "None") + count_of(prompt, "null"); }

// Renders conversations in the form that is known so far.
class FormProbe {
 public:
  FormProbe(const ChatTemplate& chat_template, TimeBudget& time, const std::atomic<bool>* interrupt)
      : chat_template_(chat_template), time_(time), interrupt_(interrupt) {}

  MessageForm find() {
    for (const std::string_view role : kProbedRoles) {
      if (role == "developer" && !chat_template_.knows_developer()) continue;
      if (writes_content(role, kWords)) continue;
      if (writes_content(role, Json::List{text_part(kWords)}))
        form_.parts_roles.emplace_back(role);
      else
        form_.unread_roles.emplace_back(role);
    }
    const Json user = said("user"), answer = said("assistant"), system = said("system");
    if (!writes({user, user}, {0, 1})) form_.single_roles.emplace_back("user");
    if (!writes({user, answer, answer, user}, {1, 2})) form_.single_roles.emplace_back("assistant");
    if (form_.reads("system")) {
      form_.takes_second_system = writes({system, system, user}, {0, 1});
      form_.takes_later_system = writes({system, user, system, answer, user, system}, {0, 2, 5});
    }
    form_.takes_null_beside_calls = takes_null(true);
    form_.takes_null_alone = takes_null(false);
    return form_;
  }

 private:
  Json said(std::string_view role) const {
    const Json content = form_.reads_parts(role) ? Json(Json::List{text_part("-")}) : Json("-");
    return Json::Object{{"role", role}, {"content", content}};
  }
  static Json call(Json content) {
    const Json function = Json::Object{{"name", "probe"}, {"arguments", Json::Object{}}};
    const Json one = Json::Object{{"id", "call00001"}, {"type", "function"}, {"function", function}};
    return Json::Object{{"role", "assistant"}, {"content", std::move(content)}, {"tool_calls", Json::List{one}}};
  }
  Json empty_answer() const { return form_.reads_parts("assistant") ? Json(Json::List{text_part("")}) : Json(""); }

  std::optional<RenderedPrompt> render(Json::List messages) const {
    ChatInput input;
    input.messages = std::move(messages);
    input.now = [](std::string_view format) { return format_time(format, {}); };
    auto prompt = chat_template_.render(input, interrupt_, &time_);
    return prompt ? std::optional(*std::move(prompt)) : std::nullopt;
  }

  // Whether the template takes the conversation and writes something of each part of these messages.
  bool writes(Json::List messages, std::initializer_list<std::size_t> indexes) const {
    const auto prompt = render(std::move(messages));
    if (!prompt || prompt->writes_whole_parts) return false;
    return std::ranges::none_of(indexes, [&](std::size_t i) { return std::ranges::count(prompt->left_out, i) > 0; });
  }

  bool writes_content(std::string_view role, Json content) const {
    Json message = Json::Object{{"role", role}, {"content", std::move(content)}};
    Json::List messages;
    std::size_t index = 0;
    if (role == "user") messages = {message};
    if (role == "system" || role == "developer") messages = {message, said("user")};
    if (role == "assistant") {
      messages = {said("user"), message, said("user")};
      index = 1;
    }
    if (role == "tool") {
      std::get<Json::Object>(message.value).emplace_back("tool_call_id", "call00001");
      std::get<Json::Object>(message.value).emplace_back("name", "probe");
      messages = {said("user"), call(Json(empty_answer())), message};
      index = 2;
    }
    return writes(std::move(messages), {index});
  }

  bool takes_null(bool beside_calls) const {
    const auto prompt_with = [&](Json content) {
      if (!beside_calls)
        return render(
            {said("user"), Json::Object{{"role", "assistant"}, {"content", std::move(content)}}, said("user")});
      Json result = said("tool");
      std::get<Json::Object>(result.value).emplace_back("tool_call_id", "call00001");
      return render({said("user"), call(std::move(content)), std::move(result)});
    };
    const auto null = prompt_with(Json()), empty = prompt_with(empty_answer());
    return null && count_nones(null->text()) <= (empty ? count_nones(empty->text()) : 0);
  }

  const ChatTemplate& chat_template_;
  TimeBudget& time_;
  const std::atomic<bool>* interrupt_;
  MessageForm form_;
};

}  // namespace

bool MessageForm::reads_parts(std::string_view role) const {
  return std::ranges::find(parts_roles, role) != parts_roles.end();
}

bool MessageForm::reads(std::string_view role) const {
  return std::ranges::find(unread_roles, role) == unread_roles.end();
}

bool MessageForm::takes_neighbours(std::string_view role) const {
  return std::ranges::find(single_roles, role) == single_roles.end();
}

MessageForm find_message_form(const ChatTemplate& chat_template, TimeBudget& time, const std::atomic<bool>* interrupt) {
  return FormProbe(chat_template, time, interrupt).find();
}

Json text_part(std::string_view text) { return Json::Object{{"type", "text"}, {"text", text}}; }

}  // namespace troupe::engine::chat
