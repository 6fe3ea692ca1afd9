#include "cli/print_limits.h"

#include <fmt/format.h>

#include "cli/model_options.h"
#include "cli/text.h"
#include "engine/formats/model_file.h"
#include "engine/model/memory_budget.h"
#include "ipc/server.h"

namespace troupe::cli {
namespace {

// Resident code and libraries, stacks, the vocabulary and the actors' own memory: 60 MiB with the embedded model,
// 110 MiB with a vocabulary of 256,000 tokens.
constexpr std::uint64_t kProgramBytes = 128u << 20;
// A frame of many tiny entries takes this many times its bytes when decoded; one frame is decoded at a time.
constexpr std::uint64_t kDecodedFactor = 30;
// A text takes this many times its bytes while it is encoded: the worst case, one long word, with ids and answer.
constexpr std::uint64_t kEncodedFactor = 64;
// A connection without its large frames and its answers: two buffers of a small frame, its session, the kernel's part.
constexpr std::uint64_t kConnectionBytes = 2 * ipc::kSmallFrameBytes + (16u << 10);
// A request without its prompt and answer: its record, its parameters, its entries in the actors' queues.
constexpr std::uint64_t kRequestBytes = 8u << 10;
// Each token of a live sequence is stored in its record, in the batch, and in the executor.
constexpr std::uint64_t kTokenBytes = 24;

std::uint64_t count(std::int64_t value) { return static_cast<std::uint64_t>(value); }

}  // namespace

std::vector<MemoryLimit> memory_limits(const config::ServeOptions& options, std::uint64_t context) {
  const std::uint64_t budget = options.memory.count > 0 ? options.memory.count : engine::default_memory_budget();
  const std::uint64_t requests =
      count(options.max_queued_requests) + count(options.max_parked_requests) + count(options.parallel);
  return {
      {"weights, KV cache, snapshots", budget, "memory"},
      {"frames half read, answers unread", options.max_buffer_bytes.count, "max-buffer-bytes"},
      {"a large frame, decoded", kDecodedFactor * options.max_frame_bytes.count, "max-frame-bytes"},
      {"connections", kConnectionBytes * count(options.max_connections), "max-connections"},
      {"requests", kRequestBytes * requests, "max-queued-requests, max-parked-requests, parallel"},
      {"prompts that wait", sizeof(std::int32_t) * count(options.max_queued_tokens), "max-queued-tokens"},
      {"sequences", kTokenBytes * context * count(options.parallel), "parallel, ctx-size"},
      {"texts that wait", options.max_queued_text_bytes.count, "max-queued-text-bytes"},
      {"texts being encoded", kEncodedFactor * options.max_frame_bytes.count * count(options.tokenizer_threads),
       "max-frame-bytes, tokenizer-threads"},
      {"requests for vectors", options.max_embed_bytes.count, "max-embed-bytes"},
      {"the program itself", kProgramBytes, "a constant"},
  };
}

Result<std::string> limits_text(const config::ServeOptions& options) {
  const auto path = model_path(options);
  if (!path) return path.error();
  const auto file = engine::open_gguf(*path);
  if (!file) return file.error();
  std::uint64_t context = count(options.ctx_size);
  if (context == 0)
    if (const std::string* architecture = (*file)->string("general.architecture"))
      context = count((*file)->integer(*architecture + ".context_length").value_or(0));
  std::string text;
  std::uint64_t total = 0;
  const auto add = [&](std::uint64_t bytes, const std::string& what) {
    text += fmt::format("{:>20}  {:<10}  {}\n", bytes, human_bytes(bytes), what);
  };
  for (const MemoryLimit& limit : memory_limits(options, context)) {
    add(limit.bytes, fmt::format("{} ({})", limit.what, limit.from));
    total += limit.bytes;
  }
  add(total, "total");
  return text;
}

}  // namespace troupe::cli
