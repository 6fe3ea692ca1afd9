// troupe load: runs the load generator against a server and reports the results.
#include <fmt/chrono.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <optional>
#include <thread>

#include "bench/load/goals.h"
#include "bench/load/openai_driver.h"
#include "bench/load/report.h"
#include "bench/load/trace.h"
#include "bench/load/troupe_driver.h"
#include "bench/load/verify.h"
#include "cli/exit_code.h"
#include "cli/load_options.h"
#include "cli/output.h"
#include "cli/process.h"
#include "cli/signals.h"
#include "cli/status_line.h"
#include "cli/subcommands.h"
#include "cli/text.h"
#include "cli/version.h"

namespace troupe::cli {
namespace {

constexpr double kLineInterval_s = 5;  // between two lines of progress, if stderr is no terminal

// Shows the progress on stderr: one line that changes on a terminal, a line every few seconds elsewhere.
class Meter {
 public:
  explicit Meter(bool on_terminal) : on_terminal_(on_terminal) {}
  ~Meter() {
    if (on_terminal_) StatusLine::of_stderr().erase();
  }

  void show(const load::Progress& progress) {
    const double seconds = progress.at_s - last_.at_s;
    if (!on_terminal_ && (progress.at_s == 0 || seconds < kLineInterval_s)) return;
    const double tokens = static_cast<double>(progress.tokens - last_.tokens);
    const std::string total = progress.total ? fmt::format("/{}", *progress.total) : "";
    print(fmt::format("{:.0f} s: {}{} ended, {} under way, {:.0f} tokens/s, {} refused, {} failed", progress.at_s,
                      progress.ended, total, progress.sent - progress.ended, seconds > 0 ? tokens / seconds : 0,
                      progress.refused, progress.failed));
    last_ = progress;
  }

  void show_verified(std::uint64_t done, std::size_t total) {
    const auto now = std::chrono::steady_clock::now();
    if (!on_terminal_ && std::chrono::duration<double>(now - last_line_).count() < kLineInterval_s) return;
    last_line_ = now;
    print(fmt::format("verifying: {} of at most {}", done, total));
  }

 private:
  void print(const std::string& text) const {
    if (on_terminal_)
      StatusLine::of_stderr().draw(text);
    else
      complain("troupe load", text);
  }

  bool on_terminal_;
  load::Progress last_;
  std::chrono::steady_clock::time_point last_line_ = std::chrono::steady_clock::now();
};

// The result of a run, for the reports.
struct LoadResult {
  load::ReportHead head;
  load::Run run;
  std::vector<load::Mismatch> mismatches;
};

// A cache scope that only this run uses, so that none of its prefixes is cached before it begins.
std::string fresh_scope() {
  return fmt::format("load-{}-{}", ::getpid(), std::chrono::system_clock::now().time_since_epoch().count());
}

load::ReportHead make_head(const config::LoadOptions& options, const load::Plan& plan, const load::Goals& goals) {
  load::ReportHead head;
  head.date = fmt::format("{:%Y%m%d-%H%M%S}", fmt::localtime(std::time(nullptr)));
  if (options.rate > 0) head.request_rate = options.rate;
  head.burstiness = options.burstiness;
  if (plan.spec().pace.clients > 0) head.concurrency = plan.spec().pace.clients;
  head.seed = plan.spec().seed;
  head.goodput = goals.limits;
  return head;
}

void describe_tool(load::Run& run) {
  run.description.emplace_back("tool", fmt::format("troupe load {}", kVersionAndCommit));
  run.description.emplace_back("machine", fmt::format("{}, {} CPUs", cpu_name(), std::thread::hardware_concurrency()));
}

void describe_server(const load::TroupeServer& server, load::Run& run) {
  const client::ServerStatus& status = server.status;
  run.description.emplace_back("server", status.server);
  run.description.emplace_back("model", fmt::format("{} ({})", server.model.name, server.model.weight_types));
  run.description.emplace_back("numerics", server.model.numerics_id);
  run.description.emplace_back("compute", fmt::format("{}, {} threads", status.kernels, status.num_threads));
}

Status write_trace(const std::string& path, const load::Plan& plan, const load::Run& run) {
  std::ofstream file(path);
  double last_s = 0;
  for (const load::RequestRecord& record : run.records) {
    load::PlannedRequest request = plan.request(record.index);
    request.arrival_s = last_s = std::max(last_s, record.intended_s);
    file << load::to_trace_line(request) << '\n';
  }
  file.close();
  return file ? Status(Ok{}) : Error{ErrorCode::io, "cannot write the trace " + path};
}

// Does everything but the reports; called on a separate thread, so that the main thread can wait for signals.
Result<LoadResult> drive_troupe(const config::LoadOptions& options, const load::Goals& goals,
                                const std::atomic<bool>& stop) {
  auto server = load::reach_troupe(options.socket, !options.no_strict_modes, options.model_name);
  if (!server) return server.error();
  if (const std::string& distrust = server->control->server().distrust; !distrust.empty())
    complain("troupe load", "warning: " + distrust);
  const auto plan = make_load_plan(options, load::vocabulary_of(server->model));
  if (!plan) return plan.error();
  Meter meter(::isatty(STDERR_FILENO) != 0);

  load::TroupeOptions drive;
  drive.model = options.model_name;
  drive.cache_scope = options.scope.empty() ? fresh_scope() : options.scope;
  drive.connections = num_connections(options, *plan);
  drive.max_retries = static_cast<std::uint32_t>(options.max_retries);
  drive.patience = options.patience;
  drive.stop = &stop;
  drive.on_progress = [&](const load::Progress& progress) { meter.show(progress); };
  if (options.warm)
    if (Status warmed = load::warm_prefixes(*plan, *server->control, drive.model, drive.cache_scope); !warmed)
      return warmed.error();
  const auto plan_lines = describe(options, *plan);
  complain("troupe load", plan_lines.front().second + ", at " + server->socket);
  auto run = load::run_troupe(*plan, *server, drive);
  if (!run) return run.error();

  LoadResult result{.head = make_head(options, *plan, goals), .run = {}, .mismatches = {}};
  result.head.endpoint = server->socket;
  result.head.model = server->model.name;
  if (options.verify) {
    const auto show = [&](std::uint64_t done) { meter.show_verified(done, run->run.records.size()); };
    auto verified = load::verify_alone(
        *plan, *server, {.model = drive.model, .cache_scope = fresh_scope(), .stop = &stop, .on_progress = show}, *run);
    if (!verified) return verified.error();
    result.mismatches = std::move(verified->mismatches);
  }
  if (!options.trace_out.empty())
    if (Status written = write_trace(options.trace_out, *plan, run->run); !written) return written.error();
  result.run = std::move(run->run);
  describe_tool(result.run);
  describe_server(*server, result.run);
  result.run.description.insert(result.run.description.end(), plan_lines.begin(), plan_lines.end());
  result.run.description.emplace_back("cache", options.warm            ? "warm: every prefix was run once before"
                                               : options.scope.empty() ? "cold: nothing was cached"
                                                                       : "as it was in scope " + options.scope);
  result.run.description.emplace_back("connections", std::to_string(drive.connections));
  return result;
}

// The same for an OpenAI-compatible server.
Result<LoadResult> drive_openai(const config::LoadOptions& options, const load::Goals& goals,
                                const std::atomic<bool>& stop) {
  if (options.verify || options.warm)
    return Error{ErrorCode::invalid_argument, "--verify and --warm need a troupe server; --openai has neither"};
  auto server = load::reach_openai(options.openai, options.model_name, options.patience, options.api_key);
  if (!server) return server.error();
  const auto plan = make_load_plan(options, server->vocabulary);
  if (!plan) return plan.error();
  const auto plan_lines = describe(options, *plan);
  complain("troupe load", plan_lines.front().second + ", at " + server->endpoint);

  load::OpenAiOptions drive;
  drive.max_retries = static_cast<std::uint32_t>(options.max_retries);
  drive.patience = std::chrono::duration_cast<std::chrono::seconds>(options.patience);
  drive.stop = &stop;
  auto run = load::run_openai(*plan, *server, drive);
  if (!run) return run.error();
  if (!options.trace_out.empty())
    if (Status written = write_trace(options.trace_out, *plan, *run); !written) return written.error();

  LoadResult result{.head = make_head(options, *plan, goals), .run = std::move(*run), .mismatches = {}};
  result.head.backend = "openai";
  result.head.endpoint = server->endpoint;
  result.head.model = server->model;
  describe_tool(result.run);
  result.run.description.emplace_back("server", server->server.empty() ? "does not say" : server->server);
  result.run.description.emplace_back("model", server->model);
  result.run.description.insert(result.run.description.end(), plan_lines.begin(), plan_lines.end());
  return result;
}

using Writer = void (*)(const load::ReportHead&, const load::Run&, const load::Summary&, std::ostream&);

Status write_report(const std::string& path, Writer write, const LoadResult& result, const load::Summary& summary) {
  if (path.empty()) return Ok{};
  std::ofstream file(path);
  write(result.head, result.run, summary, file);
  file.close();
  return file ? Status(Ok{}) : Error{ErrorCode::io, "cannot write the report " + path};
}

// Checks before the run that its files can be written after it. Writes nothing: a report of an earlier run stays until
// there is a new one.
Status check_can_write(const config::LoadOptions& options) {
  for (const std::string& path : {options.report, options.html, options.trace_out}) {
    if (path.empty()) continue;
    std::error_code error;
    const std::filesystem::file_status file = std::filesystem::status(path, error);
    if (std::filesystem::is_directory(file))
      return Error{ErrorCode::io, "cannot write " + path + ": it is a directory"};
    const std::string folder = std::filesystem::path(path).parent_path().string();
    const bool there = std::filesystem::exists(file);
    const std::string asked = there ? path : folder.empty() ? "." : folder;
    if (::access(asked.c_str(), there ? W_OK : W_OK | X_OK) == 0) continue;
    return os_error(fmt::format("cannot write {}{}", path, there ? "" : ": folder " + asked), errno);
  }
  return Ok{};
}

Result<int> report(const config::LoadOptions& options, const LoadResult& result, const load::Goals& goals) {
  constexpr std::size_t kMismatchesShown = 20;
  const load::Summary summary = load::summarize(result.run, goals.limits);
  load::write_text(result.head, result.run, summary, std::cout);
  std::cout.flush();
  if (Status done = write_report(options.report, load::write_json, result, summary); !done) return done.error();
  if (Status done = write_report(options.html, load::write_html, result, summary); !done) return done.error();
  for (std::size_t i = 0; i < std::min(result.mismatches.size(), kMismatchesShown); ++i)
    complain("troupe load",
             fmt::format("request {} differs: {}", result.mismatches[i].index, result.mismatches[i].what));
  const std::vector<std::string> missed = load::missed_goals(result.run, summary, goals);
  for (const std::string& goal : missed) complain("troupe load", "goal missed: " + goal);
  return missed.empty() ? kExitOk : kExitFailure;
}

}  // namespace

Result<int> load(const config::LoadOptions& options, const config::Given& given) {
  EventQueue events;
  const SignalThread signals({SIGINT, SIGTERM}, [&](int number) { events.post_signal(number); });
  const auto goals = make_goals(options, given);
  if (!goals) return goals.error();
  if (Status writable = check_can_write(options); !writable) return writable.error();
  std::atomic<bool> stop{false};
  std::optional<Result<LoadResult>> result;
  std::thread driver([&] {
    result = (options.openai.empty() ? drive_troupe : drive_openai)(options, *goals, stop);
    events.post(Event::ended);
  });
  while (*events.wait() != Event::ended) {
    if (stop.exchange(true)) ::_exit(kExitSignalBase + events.last_signal());  // a second signal: at once
    complain("troupe load", "ending early; a second signal ends at once");
  }
  driver.join();
  if (!*result) return result->error();
  const auto code = report(options, **result, *goals);
  return code && *code == kExitOk && stop ? kExitSignalBase + events.last_signal() : code;
}

}  // namespace troupe::cli
