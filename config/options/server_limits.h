// Limits of a server: groups of options that its parts keep as they are. The rows of their members, with range and
// meaning, are in option_table.cpp; option_groups.h checks a group against them.
#pragma once

#include <chrono>
#include <cstdint>

#include "config/options/bytes.h"

namespace troupe::config {

// What is computed at once.
struct ParallelOptions {
  std::uint32_t max_sequences = 64;
};

struct StepLimits {
  std::uint32_t max_step_tokens = 512;
  std::chrono::milliseconds max_stall{100};
};

// Limits of all requests together, and of one user's.
struct StreamLimits {
  std::uint32_t max_requests_per_user = 512;
  std::uint32_t max_queued_requests = 1024;
  std::uint64_t max_queued_tokens = 1u << 22;
  std::uint32_t max_parked_requests = 1024;
  Bytes max_embed_bytes = 64u << 20;  // while there is no such request, any one is taken
};

// Texts that wait for a text thread or are being worked on.
struct TextLimits {
  std::uint32_t max_queued_texts = 64;
  Bytes max_queued_text_bytes = 64u << 20;
  std::uint32_t tokenizer_threads = 2;
  Bytes max_rendering_bytes = 64u << 20;
  bool embed_truncate = false;
};

struct SessionLimits {
  std::uint32_t max_sessions_per_user = 64;
  std::uint32_t max_session_questions_per_user = 8;
  Bytes max_session_bytes = 4ull << 30;
  Bytes max_total_session_bytes = 64ull << 30;
  Bytes max_session_buffer_bytes = 512ull << 20;
  Bytes max_session_write_rate = 32ull << 20;  // per second and user
};

struct DrainOptions {
  std::chrono::milliseconds drain_timeout{30'000};
  std::chrono::milliseconds progress_timeout{60'000};
};

// How models that are served are checked.
struct IntegrityOptions {
  std::chrono::milliseconds canary_interval{3'600'000};  // 0: only once they are loaded
  Bytes scrub_rate = 64u << 20;                          // of weights, a second; 0: not at all
};

// Models that are loaded when a request asks for them. Those of a start are not counted.
struct OnRequestLimits {
  std::uint32_t models_max = 0;                // in memory at a time; 0: as many as it holds
  std::uint32_t max_waiting_for_models = 512;  // requests
  std::chrono::milliseconds max_model_wait{600'000};
};

// What the gateway keeps.
struct GatewayLimits : ParallelOptions,
                       StepLimits,
                       StreamLimits,
                       TextLimits,
                       SessionLimits,
                       DrainOptions,
                       IntegrityOptions,
                       OnRequestLimits {};

// What the sockets' side keeps.
struct ConnectionLimits {
  std::uint32_t max_connections = 4096;
  std::uint32_t max_connections_per_uid = 1024;
  std::uint32_t max_streams = 64;
  Bytes max_frame_bytes = 4u << 20;
  Bytes max_outbox_bytes = 16u << 20;
  Bytes max_buffer_bytes = 512u << 20;  // at least four times max_frame_bytes
  std::uint32_t max_frames_per_second = 20'000;
  std::uint32_t max_questions_per_second = 1'000;
  std::uint32_t max_refusals_per_second = 100;
  std::chrono::milliseconds hello_timeout{5'000};
  std::chrono::milliseconds stall_timeout{60'000};
  std::chrono::milliseconds body_timeout{300'000};
  std::chrono::milliseconds idle_timeout{0};
  std::chrono::milliseconds keep_alive_timeout{75'000};
};

}  // namespace troupe::config
