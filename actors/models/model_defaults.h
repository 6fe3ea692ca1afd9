// What a model's answers are made with where a request says nothing: taken over into requests, and read from files.
#pragma once

#include <string>
#include <vector>

#include "actors/requests/request.h"
#include "config/sampling/model_defaults.h"
#include "engine/formats/model_file.h"

namespace troupe::actors {

// What the file's metadata name (general.sampling.*, as llama.cpp writes and reads them). What is of another type, out
// of its range, or a way of drawing that is not served here (mirostat, XTC) is left out, and said in `notes`.
[[nodiscard]] config::ModelDefaults defaults_of(const engine::ModelFile& file, std::vector<std::string>& notes);

// The numbers that the request does not give, and the budget of reasoning.
void take_numbers(const config::ModelDefaults& defaults, Request& request);
// The system prompt, where the conversation has no message of the role system or developer and does not go on with a
// session's, and how much it reasons, where its variables say nothing of that. Not of one that is given as it is.
void take_conversation(const config::ModelDefaults& defaults, bool goes_on, ChatPrompt& chat);

}  // namespace troupe::actors
