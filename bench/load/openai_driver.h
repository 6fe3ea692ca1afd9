// Drives an OpenAI-compatible server (llama-server, vLLM, ...) through a plan of requests: /v1/completions over
// HTTP/1.1 with server-sent events, on TCP or a Unix socket. The same plan and the same records as for troupe's own
// socket, so that both are measured alike.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "bench/load/openai_server.h"
#include "bench/load/plan.h"
#include "bench/load/record.h"
#include "config/result.h"

namespace troupe::load {

struct OpenAiOptions {
  std::uint32_t max_retries = 0;  // of a request that is refused with 429 or 503
  std::chrono::milliseconds max_backoff{10'000};
  std::chrono::seconds patience{600};        // not one byte of an answer for so long: the request is lost
  std::size_t max_event_bytes = 1u << 20;    // of one server-sent event
  std::size_t max_answer_bytes = 64u << 20;  // of one answer
  const std::atomic<bool>* stop = nullptr;   // true: send nothing more, break off what runs, and return
};

// The JSON of one request. Prompts of token ids are sent as such; `ignore_eos`, `min_p` and their like are understood
// by llama.cpp and vLLM, as are `timings_per_token` and `continuous_usage_stats`, which make each chunk say how many
// tokens it ends. Seeds are cut to 31 bits, the most that all of these servers take.
[[nodiscard]] std::string completion_body(const PlannedRequest& request, const std::string& model);

// Runs the plan and returns when every request has ended. One thread, this one. HTTP knows no cancel but hanging up:
// that is what both a cancel and a disconnect do. Error: unsupported, for a plan with garbage among its faults. What
// happens on the way is in the records.
[[nodiscard]] Result<Run> run_openai(const Plan& plan, const OpenAiServer& server, const OpenAiOptions& options);

}  // namespace troupe::load
