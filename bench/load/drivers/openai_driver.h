// Sends a plan of requests to an OpenAI-compatible server (llama-server, vLLM, ...): /v1/completions over HTTP/1.1 with
// server-sent events, on TCP or a Unix socket. Plan and records are the same as for troupe's own socket, so that both
// are measured alike.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "bench/load/drivers/openai_server.h"
#include "bench/load/plan.h"
#include "bench/load/record.h"
#include "config/result.h"

namespace troupe::load {

struct OpenAiOptions {
  std::uint32_t max_retries = 0;  // of a request that is refused with 429 or 503
  std::chrono::milliseconds max_backoff{10'000};
  std::chrono::seconds patience{600};        // a request that gets no byte for this long is lost
  std::size_t max_event_bytes = 1u << 20;    // of one server-sent event
  std::size_t max_answer_bytes = 64u << 20;  // of one answer
  const std::atomic<bool>* stop = nullptr;   // true: send nothing more, break off running requests, and return
};

// The JSON of one request. Prompts of token ids are sent as ids. llama.cpp and vLLM understand `ignore_eos`, `min_p`
// and similar keys, and `timings_per_token` or `continuous_usage_stats`, which add the number of tokens so far to each
// chunk. Seeds are cut to 31 bits, the most that all of these servers take.
[[nodiscard]] std::string completion_body(const PlannedRequest& request, const OpenAiServer& server);

// Runs the plan on this thread and returns when every request has ended. HTTP has no cancel: both a cancel and a
// disconnect close the connection. Error: unsupported, for a plan with garbage among its faults. All other failures are
// in the records.
[[nodiscard]] Result<Run> run_openai(const Plan& plan, const OpenAiServer& server, const OpenAiOptions& options);

}  // namespace troupe::load
