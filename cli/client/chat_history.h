// The conversation of `troupe chat`: its turns, and the file that keeps them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/result.h"
#include "ipc/client/client.h"

namespace troupe::cli {

// Plain state. With a chat template it becomes messages; without one (story mode) the text of all turns, which the
// model continues.
struct ChatHistory {
  std::string system;
  std::uint64_t session_tokens = 0;  // of the server's session after the last turn; 0: it has none
  // User and assistant in turn, and behind an assistant's that calls tools their results; the last may be a user's
  // whose answer was stopped.
  std::vector<client::Message> turns;

  // The prompt that asks for the next answer. variables: of the chat template, JSON.
  client::Conversation conversation(const std::string& variables) const;
  // Likewise behind a session that has the turns before: what was said last, or the results of the last calls, alone.
  client::Conversation next_turn(const std::string& variables) const;
  std::string story() const;
  // Drops the last answer, so that it can be asked for again. False: there is none.
  bool drop_answer();
  // Drops what a user said last, and all after it. False: there is nothing.
  bool drop_turn();
};

// A file of JSON: {"system": ..., "session_tokens": N, "messages": [{"role", "content"}]}, with "tool_calls",
// "tool_call_id" and "is_error" of messages that have them. Written with mode 0600,
// whole or not at all.
[[nodiscard]] Status save_history(const ChatHistory& history, const std::string& path);
// Error: io, permission, or invalid_argument if it is no such file or above kMaxHistoryBytes.
[[nodiscard]] Result<ChatHistory> load_history(const std::string& path);
inline constexpr std::size_t kMaxHistoryBytes = 64u << 20;

// The file of --session NAME: $XDG_STATE_HOME/troupe/chats/NAME.json, else under ~/.local/state. Makes its folder.
// Error: invalid_argument (a name is 1 to 64 letters, digits, ".", "_" and "-", and does not begin with "."), io, or
// bad_config without a home.
[[nodiscard]] Result<std::string> session_file(const std::string& name);

}  // namespace troupe::cli
