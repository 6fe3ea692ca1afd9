// Drives an OpenAI-compatible server (llama-server, vLLM, ...) through a plan of requests: /v1/completions over
// HTTP/1.1 with server-sent events, on TCP or a Unix socket. The same plan and the same records as for troupe's own
// socket, so that both are measured alike.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "bench/load/record.h"
#include "cache/ids.h"
#include "config/result.h"

namespace troupe::load {

struct OpenAiTarget {
  std::string url{};          // "http://127.0.0.1:8080", without a slash at its end
  std::string unix_socket{};  // path; empty: TCP
};

// "http://HOST:PORT[/BASE]", "https://...", or "http+unix:///PATH/TO.sock". Error: invalid_argument.
[[nodiscard]] Result<OpenAiTarget> parse_openai_target(std::string_view text);

// One request to send.
struct OpenAiRequest {
  double intended_s = 0;                                     // open loop: when; closed loop: ignored
  std::uint32_t client = 0;                                  // closed loop: a client sends its requests in turn
  std::optional<std::uint32_t> prefix{};                     // copied to the record
  std::variant<std::string, std::vector<TokenId>> prompt{};  // exact ids where the server takes them
  std::uint32_t max_tokens = 0;
  double temperature = 0;
  std::optional<std::uint64_t> seed{};
  bool ignore_eos = true;  // understood by llama.cpp and vLLM
};

struct OpenAiOptions {
  OpenAiTarget target{};
  std::string model{};    // empty: the first of /v1/models
  std::string api_key{};  // empty: none
  bool open_loop = false;
  std::uint32_t max_retries = 0;  // after a 429 or 503, when the server says how long to wait or by back-off
  std::chrono::milliseconds max_backoff{10'000};
  std::chrono::seconds idle_timeout{600};      // not one byte for so long: the request is lost
  std::size_t max_event_bytes = 1u << 20;      // of one server-sent event
  std::size_t max_response_bytes = 64u << 20;  // of one answer
  const std::atomic<bool>* stop = nullptr;     // true: send nothing more, break off what runs, and return
};

// Sends `requests` (by index) and returns when all have ended. One thread, this one. Error: io (nobody answers at the
// target), protocol (what answers is not such a server), invalid_argument (the target, or no such model).
[[nodiscard]] Result<Run> run_openai(const std::vector<OpenAiRequest>& requests, const OpenAiOptions& options);

}  // namespace troupe::load
