#include "cli/client/chat_history.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/terminal/text.h"
#include "config/state_directory.h"
#include "config/system_error.h"

namespace troupe::cli {
namespace {

using nlohmann::ordered_json;

Error no_history(const std::string& path) {
  return {ErrorCode::invalid_argument, path + " is not a conversation that /save has written"};
}

bool is_name(const std::string& name) {
  return !name.empty() && name.size() <= 64 && name[0] != '.' && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
  });
}

// All of `text` to a new file. The number of the error; 0: none.
int write_new_file(const std::string& path, const std::string& text) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) return errno;
  int error = 0;
  for (std::size_t done = 0; done < text.size() && error == 0;) {
    const ssize_t count = ::write(file, text.data() + done, text.size() - done);
    if (count > 0)
      done += static_cast<std::size_t>(count);
    else if (count < 0 && errno != EINTR)
      error = errno;
  }
  if (error == 0 && ::fsync(file) != 0) error = errno;
  if (::close(file) != 0 && error == 0) error = errno;
  return error;
}

// What a message in a file has of tools. False: it cannot be.
bool read_calls(const ordered_json& from, client::Message& message) {
  const auto read = [](const ordered_json& object, const char* name, std::string& out) {
    if (!object.is_object() || !object.contains(name) || !object[name].is_string()) return false;
    out = object[name].get<std::string>();
    return true;
  };
  if (from.contains("tool_call_id") && !read(from, "tool_call_id", message.tool_call_id)) return false;
  message.is_error = from.contains("is_error") && from["is_error"] == true;
  if (!from.contains("tool_calls")) return true;
  if (!from["tool_calls"].is_array()) return false;
  for (const ordered_json& each : from["tool_calls"]) {
    client::ToolCall& call = message.tool_calls.emplace_back(client::ToolCall{.is_complete = true});
    if (!read(each, "id", call.id) || !read(each, "name", call.name) || !read(each, "arguments", call.arguments))
      return false;
  }
  return true;
}

}  // namespace

client::Conversation ChatHistory::conversation(const std::string& variables) const {
  client::Conversation made;
  if (!system.empty()) made.messages.push_back({.role = "system", .content = system});
  made.messages.insert(made.messages.end(), turns.begin(), turns.end());
  made.variables = variables;
  return made;
}

client::Conversation ChatHistory::next_turn(const std::string& variables) const {
  client::Conversation made{.variables = variables};
  auto first = turns.end() - (turns.empty() ? 0 : 1);
  // The results of all calls of the last answer.
  while (first != turns.begin() && first != turns.end() && first->role == "tool" && (first - 1)->role == "tool")
    --first;
  made.messages.assign(first, turns.end());
  return made;
}

std::string ChatHistory::story() const {
  std::string text = system;
  for (const client::Message& each : turns) text += each.content;
  return text;
}

bool ChatHistory::drop_answer() {
  if (turns.empty() || turns.back().role != "assistant") return false;
  turns.pop_back();
  return true;
}

bool ChatHistory::drop_turn() {
  const auto last = std::find_if(turns.rbegin(), turns.rend(), [](const auto& each) { return each.role == "user"; });
  if (last == turns.rend()) return false;
  turns.erase(last.base() - 1, turns.end());
  return true;
}

Status save_history(const ChatHistory& history, const std::string& path) {
  ordered_json messages = ordered_json::array();
  for (const client::Message& each : history.turns) {
    ordered_json& message = messages.emplace_back(ordered_json{{"role", each.role}, {"content", each.content}});
    for (const client::ToolCall& call : each.tool_calls)
      message["tool_calls"].push_back({{"id", call.id}, {"name", call.name}, {"arguments", call.arguments}});
    if (!each.tool_call_id.empty()) message["tool_call_id"] = each.tool_call_id;
    if (each.is_error) message["is_error"] = true;
  }
  const ordered_json all = {
      {"system", history.system}, {"session_tokens", history.session_tokens}, {"messages", messages}};
  const std::string text = all.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
  const std::string next = fmt::format("{}.{}.new", path, ::getpid());
  int error = write_new_file(next, text);
  if (error == 0 && ::rename(next.c_str(), path.c_str()) != 0) error = errno;
  if (error == 0) return Ok{};
  ::unlink(next.c_str());
  return system_error(path, error);
}

Result<ChatHistory> load_history(const std::string& path) {
  std::error_code unknown;
  const auto bytes = std::filesystem::file_size(path, unknown);
  if (!unknown && bytes > kMaxHistoryBytes)
    return Error{ErrorCode::invalid_argument,
                 fmt::format("{} has {} bytes; a conversation may have {}", path, bytes, kMaxHistoryBytes)};
  const auto text = read_text(path);
  if (!text) return text.error();
  const auto all = ordered_json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!all.is_object() || !all.contains("messages") || !all["messages"].is_array()) return no_history(path);
  ChatHistory history;
  if (all.contains("system") && all["system"].is_string()) history.system = all["system"].get<std::string>();
  if (all.contains("session_tokens") && all["session_tokens"].is_number_unsigned())
    history.session_tokens = all["session_tokens"].get<std::uint64_t>();
  for (const auto& each : all["messages"]) {
    if (!each.is_object() || !each.contains("role") || !each["role"].is_string() || !each.contains("content") ||
        !each["content"].is_string())
      return no_history(path);
    client::Message& message = history.turns.emplace_back(
        client::Message{.role = each["role"].get<std::string>(), .content = each["content"].get<std::string>()});
    if (!read_calls(each, message)) return no_history(path);
  }
  return history;
}

Result<std::string> session_file(const std::string& name) {
  if (!is_name(name))
    return Error{ErrorCode::invalid_argument,
                 "--session: a name is 1 to 64 letters, digits, \".\", \"_\" and \"-\", and does not begin with \".\""};
  const std::string state = user_state_directory();
  if (state.empty())
    return Error{ErrorCode::bad_config, "--session: neither XDG_STATE_HOME nor HOME says where to keep it"};
  const std::string folder = state + "/chats";
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return system_error(folder, error.value());
  return folder + "/" + name + ".json";
}

}  // namespace troupe::cli
