// In which form a chat template reads what messages say, and in which order of roles it takes them.
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
  std::vector<std::string> unread_roles;  // the template refuses their messages, or writes nothing of them
  std::vector<std::string> single_roles;  // "user", "assistant": of two in a row it refuses one, or leaves one out
  // Whether it takes and writes a second message of the system behind the first, and messages of the system behind
  // those of others.
  bool takes_second_system = false;
  bool takes_later_system = false;
  // Whether a content of null is read as none: that of an assistant's message with tool_calls, and without. Templates
  // that write it as "None", or fail, get an empty text.
  bool takes_null_beside_calls = false;
  bool takes_null_alone = false;

  bool reads_parts(std::string_view role) const;
  bool reads(std::string_view role) const;
  bool takes_neighbours(std::string_view role) const;
};

// Renders conversations of one to six short messages, all within `time`. interrupt: as for ChatTemplate::render().
[[nodiscard]] MessageForm find_message_form(const ChatTemplate& chat_template, TimeBudget& time,
                                            const std::atomic<bool>* interrupt);

// {"type": "text", "text": text}
[[nodiscard]] Json text_part(std::string_view text);

}  // namespace troupe::engine::chat
