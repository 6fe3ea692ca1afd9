// The OpenAI-compatible server of a load run: its address, and the properties of its model that a plan needs.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "bench/load/plan.h"
#include "config/result.h"

namespace troupe::load {

struct OpenAiTarget {
  std::string url{};          // "http://127.0.0.1:8080", without a slash at its end
  std::string unix_socket{};  // path; empty: TCP
  std::string api_key{};      // sent as a bearer token; empty: none
};

// "http://HOST:PORT[/BASE]", "https://...", or "http+unix:///PATH/TO.sock". Error: invalid_argument.
[[nodiscard]] Result<OpenAiTarget> parse_openai_target(std::string_view text);

struct OpenAiServer {
  OpenAiTarget target{};
  std::string endpoint{};  // as the target was given
  std::string model{};     // its id
  std::string server{};    // its Server header; may be empty
  // Size and context from /v1/models (llama.cpp: meta.n_vocab, meta.n_ctx; vLLM: max_model_len; troupe: its object
  // of this name). A server that does not
  // report the size gets ids below kAssumedVocabulary.
  Vocabulary vocabulary{};
};

inline constexpr std::uint32_t kAssumedVocabulary = 30'000;

// Gets /v1/models, and repeats that while the server is loading, for at most `patience`. `model`: empty for the first
// one. `api_key`: for this and all later requests; empty: none. Errors: invalid_argument (the target); io (no server
// answers); protocol (not such a server); permission (it needs another key); model_missing.
[[nodiscard]] Result<OpenAiServer> reach_openai(std::string_view target, const std::string& model,
                                                std::chrono::milliseconds patience, const std::string& api_key = {});

}  // namespace troupe::load
