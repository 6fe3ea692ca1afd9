// troupe serve: socket first, then the model, then answers until a signal.
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <mutex>

#include "actors/gateway.h"
#include "cli/events.h"
#include "cli/exit_code.h"
#include "cli/logging.h"
#include "cli/model_options.h"
#include "cli/progress.h"
#include "cli/subcommands.h"
#include "cli/text.h"
#include "cli/version.h"
#include "ipc/server.h"

namespace troupe::cli {
namespace {

constexpr std::chrono::milliseconds kProgressInterval{100};
// timeout(1) and sudo(8) deliver one signal twice, to the process and to its group: within this time it counts once.
constexpr std::chrono::milliseconds kSameSignal{200};

std::vector<std::uint32_t> to_ids(const std::vector<std::int64_t>& values) { return {values.begin(), values.end()}; }

ipc::ServerOptions server_options(const config::Options& options) {
  ipc::ServerOptions server;
  server.socket_path = options.socket;
  server.allow_uids = to_ids(options.allow_uid);
  server.allow_gids = to_ids(options.allow_gid);
  server.max_connections = static_cast<std::uint32_t>(options.max_connections);
  server.max_connections_per_uid = static_cast<std::uint32_t>(options.max_connections_per_uid);
  server.max_streams = static_cast<std::uint32_t>(options.max_streams);
  server.max_frame_bytes = static_cast<std::uint32_t>(options.max_frame_bytes.count);
  server.max_outbox_bytes = options.max_outbox_bytes.count;
  server.hello_timeout = options.hello_timeout;
  server.stall_timeout = options.stall_timeout;
  server.idle_timeout = options.idle_timeout;
  return server;
}

Result<actors::GatewayOptions> gateway_options(const config::Parsed& parsed) {
  const config::Options& options = parsed.options;
  actors::GatewayOptions gateway;
  auto path = model_path(options);
  if (!path) return path.error();
  auto load = load_options(parsed);
  if (!load) return load.error();
  gateway.model_path = std::move(*path);
  gateway.model_alias = options.alias;
  gateway.load = std::move(*load);
  gateway.num_threads = static_cast<std::uint32_t>(options.threads);
  gateway.max_step_tokens = static_cast<std::uint32_t>(options.max_step_tokens);
  gateway.max_sequences = static_cast<std::uint32_t>(options.parallel);
  gateway.max_queued_requests = static_cast<std::uint32_t>(options.max_queued_requests);
  gateway.max_parked_requests = static_cast<std::uint32_t>(options.max_parked_requests);
  gateway.max_queued_tokens = static_cast<std::uint64_t>(options.max_queued_tokens);
  gateway.max_queued_texts = static_cast<std::uint32_t>(options.max_queued_texts);
  gateway.max_requests_per_uid = static_cast<std::uint32_t>(options.max_requests_per_user);
  gateway.tokenizer_threads = static_cast<std::uint32_t>(options.tokenizer_threads);
  gateway.drain_timeout = options.drain_timeout;
  gateway.progress_timeout = options.progress_timeout;
  return gateway;
}

// Exit codes that depend on what was being done: an I/O error while binding is about the socket.
Result<int> end_with(const Error& error, int code) {
  spdlog::error("{}", error.message);
  return code;
}

void log_model(const actors::Gateway& gateway, const config::Options& options) {
  const std::shared_ptr<const engine::LoadedModel> model = gateway.model();
  const engine::ModelInfo& info = model->info();
  const engine::KvArena& arena = *model->arena();
  const std::uint64_t kv_bytes = arena.num_blocks() * arena.bytes_per_block();
  spdlog::info("model {}: {}, {} parameters, {}, weights {}", info.name, info.family, human_count(info.num_parameters),
               info.weight_types, human_bytes(model->model().weight_bytes()));
  spdlog::info("kernels {}, {} threads, KV cache {} ({}, {} blocks of {} tokens), context {} tokens, numerics {}",
               model->kernels().name, num_threads(options), human_bytes(kv_bytes),
               kernels::name(model->cache_spec().kv_type), arena.num_blocks(), kBlockSize, info.context,
               model->numerics_id());
  if (info.context > info.trained_context)
    spdlog::warn(
        "the context of {} tokens is longer than the {} that the model was trained for: answers beyond that "
        "may be nonsense (-c {} avoids it)",
        info.context, info.trained_context, info.trained_context);
}

// Serves until it is told to stop, and stops.
class Service {
 public:
  Service(const config::Parsed& parsed, EventQueue& events)
      : parsed_(parsed), options_(parsed.options), events_(events) {}

  Result<int> run() {
    auto server = ipc::Server::bind(server_options(options_));
    if (!server)
      return end_with(server.error(),
                      server.error().code == ErrorCode::io ? kExitSocketFailure : exit_code(server.error().code));
    server_ = std::move(*server);
    spdlog::info("troupe {} listens on {}", kVersion, server_->socket_path());

    auto gateway_options = cli::gateway_options(parsed_);
    if (!gateway_options) return end_with(gateway_options.error(), exit_code(gateway_options.error().code));
    spdlog::info("loading {}", gateway_options->model_path);
    auto gateway = actors::Gateway::start(std::move(*gateway_options));
    if (!gateway) return end_with(gateway.error(), exit_code(gateway.error().code));
    gateway_ = std::move(*gateway);
    gateway_->on_loaded([this](Status status) {
      {
        const std::lock_guard lock(mutex_);
        load_status_ = std::move(status);
      }
      events_.post(Event::loaded);
    });
    server_->start(*gateway_);
    const int code = wait_for_end();
    server_->stop();
    return code;
  }

 private:
  // The exit code. The first signal drains, the second ends the process at once.
  int wait_for_end() {
    LoadProgress progress(log_is_on_terminal(options_), std::chrono::steady_clock::now());
    bool loading = true;
    bool draining = false;
    int first_signal = 0;
    std::chrono::steady_clock::time_point first_signal_at;
    while (true) {
      const auto event = events_.wait(loading ? std::optional(kProgressInterval) : std::nullopt);
      if (!event) {
        progress.update(gateway_->load_fraction(), std::chrono::steady_clock::now());
        continue;
      }
      if (*event == Event::loaded) {
        loading = false;
        progress.finish();
        const std::lock_guard lock(mutex_);
        if (!load_status_) {
          spdlog::error("{}", load_status_.error().message);
          return exit_code(load_status_.error().code);
        }
        log_model(*gateway_, options_);
        spdlog::info("ready");
      } else if (*event == Event::signal && !draining) {
        draining = true;
        first_signal = events_.last_signal();
        first_signal_at = std::chrono::steady_clock::now();
        progress.finish();
        spdlog::info("signal {}: finishing what runs, for at most {} ms; a second signal stops at once",
                     events_.last_signal(), options_.drain_timeout.count());
        server_->drain([this] { events_.post(Event::ended); });
      } else if (*event == Event::signal) {
        if (events_.last_signal() == first_signal && std::chrono::steady_clock::now() - first_signal_at < kSameSignal)
          continue;
        spdlog::warn("signal {}: stopping at once", events_.last_signal());
        leave_now(kExitSignalBase + events_.last_signal());
      } else if (*event == Event::ended) {
        spdlog::info("stopped");
        if (loading) leave_now(kExitOk);
        return kExitOk;
      }
    }
  }

  // Ends the process without waiting for a step or a load that is under way: the socket file is removed, everything
  // else goes with the process.
  [[noreturn]] void leave_now(int code) {
    server_->stop();
    spdlog::default_logger()->flush();
    std::_Exit(code);
  }

  const config::Parsed& parsed_;
  const config::Options& options_;
  EventQueue& events_;
  std::mutex mutex_;
  Status load_status_{Ok{}};  // written by on_loaded's thread
  std::unique_ptr<actors::Gateway> gateway_;
  std::unique_ptr<ipc::Server> server_;  // declared last: its streams must end before the gateway goes
};

}  // namespace

Result<int> serve(const config::Parsed& parsed) {
  const config::Options& options = parsed.options;
  if (!options.draft.empty())
    return Error{ErrorCode::invalid_argument, "--draft: this version does not serve draft models; leave it out"};
  if (auto status = start_log(options); !status) return status.error();
  EventQueue events;  // before any thread starts
  Service service(parsed, events);
  return service.run();
}

}  // namespace troupe::cli
