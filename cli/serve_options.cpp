#include "cli/serve_options.h"

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <sstream>
#include <vector>

#include "cli/accounts.h"
#include "cli/logging.h"
#include "cli/model_options.h"
#include "cli/tenant_rules.h"
#include "cli/text.h"
#include "config/printable.h"
#include "engine/compute/step_profile.h"
#include "engine/formats/model_file.h"
#include "engine/model/memory_budget.h"

namespace troupe::cli {
namespace {

using Finder = Result<std::optional<std::uint32_t>> (*)(const std::string&);

// Adds the ids of an option's names to `ids`.
Status add_named(const config::Given& given, std::string_view option, const std::vector<std::string>& lists,
                 Finder find, std::vector<std::uint32_t>& ids) {
  const auto origin = given.origins.find(option);
  std::string source = origin == given.origins.end() ? fmt::format("--{}", option) : origin->second;
  const bool is_flag = source.starts_with("--");
  if (!given.file.empty() && source.starts_with(given.file + ":")) source += fmt::format(": {}", option);
  for (const std::string& list : lists) {
    std::istringstream names(list);
    for (std::string name; std::getline(names, name, ',');) {
      auto id = find(name);
      if (!id) return Error{id.error().code, source + ": " + id.error().message};
      if (!*id)
        return Error{is_flag ? ErrorCode::invalid_argument : ErrorCode::bad_config,
                     fmt::format("{}: this system knows nobody named '{}'", source, name)};
      ids.push_back(**id);
    }
  }
  return Ok{};
}

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

struct MemoryLimit {
  std::string what;
  std::uint64_t bytes = 0;
  std::string from;  // the options that determine it
};

// The most memory of each kind that a server with these options uses. context: of one sequence, in tokens.
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
      {"sessions read and saved", options.max_session_buffer_bytes.count, "max-session-buffer-bytes"},
      {"the program itself", kProgramBytes, "a constant"},
  };
}

// The directory of the sessions; empty: none are kept.
std::string sessions_directory(const std::string& option) {
  if (option.empty() || option == "off") return "";
  if (option != "auto") return option;
  const auto absolute = [](const char* name) {
    const char* const value = std::getenv(name);
    return value && *value == '/' ? std::string(value) : std::string();
  };
  // systemd's StateDirectory=: the first of several, separated by colons.
  if (const std::string all = absolute("STATE_DIRECTORY"); !all.empty())
    return all.substr(0, all.find(':')) + "/sessions";
  if (const std::string state = absolute("XDG_STATE_HOME"); !state.empty()) return state + "/troupe/sessions";
  const std::string home = absolute("HOME");
  return home.empty() ? "" : home + "/.local/state/troupe/sessions";
}

}  // namespace

Result<ipc::ServerOptions> server_options(const config::ServeOptions& options, const config::Given& given) {
  ipc::ServerOptions server;
  server.socket_path = options.socket;
  server.strict_modes = !options.no_strict_modes;
  server.allow_uids.assign(options.allow_uid.begin(), options.allow_uid.end());
  server.allow_gids.assign(options.allow_gid.begin(), options.allow_gid.end());
  if (Status added = add_named(given, "allow-user", options.allow_user, find_user, server.allow_uids); !added)
    return added.error();
  if (Status added = add_named(given, "allow-group", options.allow_group, find_group, server.allow_gids); !added)
    return added.error();
  auto tenants = tenant_rules(given);
  if (!tenants) return tenants.error();
  server.tenants = std::move(*tenants);
  server.max_connections = static_cast<std::uint32_t>(options.max_connections);
  server.max_connections_per_uid = static_cast<std::uint32_t>(options.max_connections_per_uid);
  server.max_streams = static_cast<std::uint32_t>(options.max_streams);
  server.max_frame_bytes = static_cast<std::uint32_t>(options.max_frame_bytes.count);
  server.max_outbox_bytes = options.max_outbox_bytes.count;
  server.max_buffer_bytes = options.max_buffer_bytes.count;
  server.max_frames_per_second = static_cast<std::uint32_t>(options.max_frames_per_second);
  server.max_questions_per_second = static_cast<std::uint32_t>(options.max_questions_per_second);
  server.max_refusals_per_second = static_cast<std::uint32_t>(options.max_refusals_per_second);
  server.hello_timeout = options.hello_timeout;
  server.stall_timeout = options.stall_timeout;
  server.idle_timeout = options.idle_timeout;
  return server;
}

Result<actors::GatewayOptions> gateway_options(const config::ServeOptions& options, const config::Given& given) {
  auto named = gateway_for_model(options, given);
  if (!named) return named.error();
  actors::GatewayOptions& gateway = *named;
  if (Printable(options.alias, kMaxModelNameBytes) != options.alias)
    return Error{ErrorCode::invalid_argument,
                 fmt::format("--alias: '{}' is not a name of at most {} bytes of UTF-8 without control characters",
                             Printable(options.alias).text(), kMaxModelNameBytes)};
  gateway.load.context = static_cast<std::uint32_t>(options.ctx_size);
  gateway.load.num_blocks = static_cast<std::uint32_t>(options.kv_blocks);
  gateway.model_alias = options.alias;
  gateway.num_threads = static_cast<std::uint32_t>(options.threads);
  gateway.max_step_tokens = static_cast<std::uint32_t>(options.max_step_tokens);
  gateway.max_stall = options.max_stall;
  gateway.max_sequences = static_cast<std::uint32_t>(options.parallel);
  gateway.max_queued_requests = static_cast<std::uint32_t>(options.max_queued_requests);
  gateway.max_parked_requests = static_cast<std::uint32_t>(options.max_parked_requests);
  gateway.max_queued_tokens = static_cast<std::uint64_t>(options.max_queued_tokens);
  gateway.max_queued_texts = static_cast<std::uint32_t>(options.max_queued_texts);
  gateway.max_queued_text_bytes = options.max_queued_text_bytes.count;
  gateway.max_embed_bytes = options.max_embed_bytes.count;
  gateway.max_requests_per_tenant = static_cast<std::uint32_t>(options.max_requests_per_user);
  gateway.tokenizer_threads = static_cast<std::uint32_t>(options.tokenizer_threads);
  gateway.sessions_directory = sessions_directory(options.sessions_dir);
  gateway.max_sessions_per_user = static_cast<std::uint32_t>(options.max_sessions_per_user);
  gateway.max_session_bytes = options.max_session_bytes.count;
  gateway.max_total_session_bytes = options.max_total_session_bytes.count;
  gateway.max_session_buffer_bytes = options.max_session_buffer_bytes.count;
  gateway.drain_timeout = options.drain_timeout;
  gateway.progress_timeout = options.progress_timeout;
  gateway.append_metrics = append_log_metrics;
  if (options.profile) gateway.profiler = std::make_shared<engine::StepProfile>(cli::num_threads(options));
  return named;
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
