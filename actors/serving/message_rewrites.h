// Conversations in words that a chat template takes: with their tools, for one that knows none, or not all of what a
// conversation has of them; and without messages in a place, or beside another, where the template refuses them.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "actors/requests/request.h"
#include "config/result.h"
#include "engine/chat/message_form.h"
#include "engine/chat/tools/tool_form.h"
#include "engine/chat/values/json.h"

namespace troupe::actors {

struct RewrittenMessages {
  std::vector<ChatMessage> messages;
  std::vector<std::size_t> origins;  // of each message: the index of the first given one that it is made of
};

// Where the template reads them in no other way: the tools in the first message, calls and their results as texts.
// Where it takes them in no other place: the first messages of the system (or the developer) are one; a later one, or
// any, is the user's, and is one with the user's message before it or else behind it; two of the user or the assistant
// in a row are one. Joined texts have an empty line between them. Everything else stays as it is.
//
// It is the template alone that decides, and what follows an answer changes nothing before it: the messages begin like
// those of the conversation's earlier turns, whose prefix is in the cache.
// tools: a list; empty: there are none. Error: invalid_argument, for members that are no JSON.
[[nodiscard]] Result<RewrittenMessages> as_template_reads(std::span<const ChatMessage> messages,
                                                          const engine::chat::Json::List& tools,
                                                          const engine::chat::MessageForm& form,
                                                          const engine::chat::ToolForm& tool_form);

// The calls of a message's members with their arguments as JSON text, for templates that write them as it is.
void write_arguments_as_text(engine::chat::Json& calls);

// The ids of a message's member tool_calls or tool_call_id, with those in their place that a template takes which wants
// ids of nine characters (call_id_for()): the same in a call and in its result. Other members stay as they are.
void write_short_ids(std::pair<std::string, engine::chat::Json>& member);

}  // namespace troupe::actors
