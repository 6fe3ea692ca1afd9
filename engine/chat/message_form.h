// In which form a chat template reads what messages say.
#pragma once

#include <atomic>
#include <string>
#include <string_view>
#include <vector>

#include "engine/chat/values/json.h"
#include "engine/chat/values/time_budget.h"

namespace troupe::engine::chat {

class ChatTemplate;

// Templates read the content of a message as a text, or as a list of parts, and in some of them this differs by role.
// One that reads parts and gets a text writes nothing of it, without an error.
struct MessageForm {
  std::vector<std::string> parts_roles;   // roles whose content is read as a list of parts; that of others as a text
  std::vector<std::string> unread_roles;  // what they say is in no prompt, though the template does not refuse it
  // Whether a content of null is read as none: that of an assistant's message with tool_calls, and without. Templates
  // that write it as "None", or fail, get an empty text.
  bool takes_null_beside_calls = false;
  bool takes_null_alone = false;

  bool reads_parts(std::string_view role) const;
  bool reads(std::string_view role) const;
};

// Renders conversations of two or three short messages, all within `time`. interrupt: as for ChatTemplate::render().
[[nodiscard]] MessageForm find_message_form(const ChatTemplate& chat_template, TimeBudget& time,
                                            const std::atomic<bool>* interrupt);

// {"type": "text", "text": text}
[[nodiscard]] Json text_part(std::string_view text);

}  // namespace troupe::engine::chat
