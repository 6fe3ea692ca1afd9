#include "engine/chat/message_form.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "engine/chat/template.h"

namespace troupe::engine::chat {
namespace {

constexpr std::array<std::string_view, 4> kProbedRoles = {"user", "assistant", "system", "tool"};
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
      const Outcome as_text = try_content(role, kWords);
      if (as_text == Outcome::written) continue;
      const Outcome as_parts = try_content(role, Json::List{text_part(kWords)});
      if (as_parts == Outcome::written)
        form_.parts_roles.emplace_back(role);
      else if (as_text == Outcome::left_out)
        form_.unread_roles.emplace_back(role);
    }
    form_.takes_null_beside_calls = takes_null(true);
    form_.takes_null_alone = takes_null(false);
    return form_;
  }

 private:
  enum class Outcome { written, left_out, refused };

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

  // What becomes of a message of this role with this content.
  Outcome try_content(std::string_view role, Json content) const {
    Json message = Json::Object{{"role", role}, {"content", std::move(content)}};
    Json::List messages;
    std::size_t index = 1;
    if (role == "user" || role == "system") index = 0;
    if (role == "assistant") messages = {said("user"), message, said("user")};
    if (role == "user") messages = {message};
    if (role == "system") messages = {message, said("user")};
    if (role == "tool") {
      std::get<Json::Object>(message.value).emplace_back("tool_call_id", "call00001");
      std::get<Json::Object>(message.value).emplace_back("name", "probe");
      messages = {said("user"), call(Json(empty_answer())), message};
      index = 2;
    }
    const auto prompt = render(std::move(messages));
    if (!prompt) return Outcome::refused;
    const bool is_there = !prompt->writes_whole_parts && std::ranges::count(prompt->left_out, index) == 0;
    return is_there ? Outcome::written : Outcome::left_out;
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

MessageForm find_message_form(const ChatTemplate& chat_template, TimeBudget& time, const std::atomic<bool>* interrupt) {
  return FormProbe(chat_template, time, interrupt).find();
}

Json text_part(std::string_view text) { return Json::Object{{"type", "text"}, {"text", text}}; }

}  // namespace troupe::engine::chat
