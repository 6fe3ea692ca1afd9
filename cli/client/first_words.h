// What newcomers mean by the words of a command, and what the server's words are called on the command line.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::cli {

// Whether a word looks like the name of a model, as `ollama run` takes it before the prompt: one of `served`, a GGUF
// file, or the name of a well-known family with a number ("llama3", "qwen2.5:7b").
[[nodiscard]] bool looks_like_model(std::string_view word, std::span<const std::string> served);

// The server's message with the flags of `troupe run` and `troupe chat` in place of the fields of a request:
// "deadline_ms must be ..." is "--timeout must be ...".
[[nodiscard]] std::string with_flags(std::string_view message);

}  // namespace troupe::cli
