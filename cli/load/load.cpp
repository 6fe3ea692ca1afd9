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
#include <iterator>
#include <optional>
#include <span>
#include <thread>

#include "bench/load/drivers/openai_driver.h"
#include "bench/load/drivers/troupe_driver.h"
#include "bench/load/drivers/verify.h"
#include "bench/load/report/goals.h"
#include "bench/load/report/report.h"
#include "bench/load/trace.h"
#include "cli/load/load_meter.h"
#include "cli/load/load_options.h"
#include "cli/load/load_tenants.h"
#include "cli/subcommands.h"
#include "cli/terminal/exit_code.h"
#include "cli/terminal/output.h"
#include "cli/terminal/process.h"
#include "cli/terminal/signals.h"
#include "cli/terminal/text.h"
#include "cli/version.h"
#include "config/system_error.h"

namespace troupe::cli {
namespace {

// What is to be done.
struct LoadTask {
  const config::LoadOptions& options;
  const load::Goals& goals;
  const std::vector<TenantOptions>& tenants;  // empty: a run without tenants
  const std::atomic<bool>& stop;
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

load::ReportHead make_head(const LoadTask& task) {
  load::ReportHead head;
  head.date = fmt::format("{:%Y%m%d-%H%M%S}", fmt::localtime(std::time(nullptr)));
  head.burstiness = task.options.burstiness;
  head.seed = task.options.seed.value_or(0);
  head.goodput = task.goals.limits;
  return head;
}

// The pace of a run without tenants.
void add_pace(const config::LoadOptions& options, const load::Plan& plan, load::ReportHead& head) {
  if (options.rate > 0) head.request_rate = options.rate;
  if (plan.spec().pace.clients > 0) head.concurrency = plan.spec().pace.clients;
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

// A tenant, or the only load of a run without tenants.
struct Player {
  TenantOptions as;
  load::Plan plan;
  load::TroupeOptions drive;
  bool is_warm = false;
};

Result<std::vector<Player>> make_players(const LoadTask& task, const load::TroupeServer& server) {
  std::vector<TenantOptions> all = task.tenants;
  if (all.empty()) all.push_back({.options = task.options});
  std::vector<Player> players;
  for (TenantOptions& tenant : all) {
    const config::LoadOptions& options = tenant.options;
    const std::string prefix = tenant.name.empty() ? "" : fmt::format("tenant {}: ", tenant.name);
    load::Vocabulary vocabulary = load::vocabulary_of(server.model);
    if (tenant.kind == load::RequestKind::tokenize) vocabulary.context.reset();
    auto plan = make_load_plan(options, vocabulary, tenant.start_s);
    if (!plan) return Error{plan.error().code, prefix + plan.error().message};
    load::TroupeOptions drive;
    drive.model = options.model_name;
    drive.kind = tenant.kind;
    drive.priority = tenant.priority;
    drive.user = tenant.user;
    drive.connections = num_connections(options, *plan);
    drive.max_retries = static_cast<std::uint32_t>(options.max_retries);
    drive.patience = options.patience;
    drive.deadline = options.deadline;
    drive.stop = &task.stop;
    players.push_back({std::move(tenant), std::move(*plan), std::move(drive), task.options.warm});
  }
  return players;
}

// Runs the players beside each other, each with nothing cached but what --scope or --warm says.
Result<load::TroupeRuns> play(std::span<Player> players, load::TroupeServer& server) {
  LoadMeter meter(::isatty(STDERR_FILENO) != 0);
  std::vector<load::Lane> lanes;
  for (Player& player : players) {
    const std::string& scope = player.as.options.scope;
    player.drive.cache_scope = scope.empty() ? fresh_scope() + player.as.name : scope;
    player.drive.on_progress = [&](const load::Progress& progress) { meter.show(progress); };
    lanes.push_back({&player.plan, player.drive});
    if (!player.is_warm || player.plan.prefixes().empty()) continue;
    auto client = load::connect_as(server, player.drive.user);
    if (!client) return client.error();
    if (Status warmed = load::warm_prefixes(player.plan, **client, player.drive.model, player.drive.cache_scope);
        !warmed)
      return warmed.error();
  }
  return load::run_lanes(lanes, server);
}

// Runs a tenant alone, from the start of a run of its own.
Result<load::Summary> play_alone(const Player& player, load::TroupeServer& server) {
  load::PlanSpec spec = player.plan.spec();
  if (spec.pace.duration_s) *spec.pace.duration_s -= spec.pace.start_s;
  spec.pace.start_s = 0;
  auto plan = load::Plan::make(std::move(spec));
  if (!plan) return plan.error();
  complain("troupe load", fmt::format("tenant {} alone", player.as.name));
  Player alone{player.as, std::move(*plan), player.drive, player.is_warm};
  auto runs = play({&alone, 1}, server);
  if (!runs) return runs.error();
  load::Run& run = runs->lanes.front().run;
  run.tenants = {{.name = player.as.name, .limits = player.as.limits, .first = 0, .count = run.records.size()}};
  return load::summarize_tenant(run, run.tenants.front());
}

// Runs every answer of a player again, alone.
Status verify(const LoadTask& task, Player& player, load::TroupeServer& server, load::TroupeRun& run,
              std::vector<load::Mismatch>& mismatches) {
  if (player.as.kind != load::RequestKind::generate || run.run.shut_out) return Ok{};
  LoadMeter meter(::isatty(STDERR_FILENO) != 0);
  const auto show = [&](std::uint64_t done) { meter.show_verified(done, run.run.records.size()); };
  auto verified = load::verify_alone(
      player.plan, server,
      {.model = player.drive.model, .cache_scope = fresh_scope(), .stop = &task.stop, .on_progress = show}, run);
  if (!verified) return verified.error();
  for (load::Mismatch& mismatch : verified->mismatches) {
    if (!player.as.name.empty()) mismatch.what = fmt::format("(of tenant {}) {}", player.as.name, mismatch.what);
    mismatches.push_back(std::move(mismatch));
  }
  return Ok{};
}

std::vector<std::pair<std::string, std::string>> describe_player(const Player& player) {
  auto lines = describe(player.as.options, player.plan);
  if (player.as.kind != load::RequestKind::generate)
    lines.emplace_back("asks for", player.as.kind == load::RequestKind::embed ? "vectors" : "token ids");
  if (player.as.priority != 0) lines.emplace_back("priority", std::to_string(player.as.priority));
  if (const auto deadline = player.drive.deadline; deadline.count() > 0)
    lines.emplace_back("deadline", fmt::format("{} ms", deadline.count()));
  lines.emplace_back("cache", player.is_warm                    ? "warm: every prefix was run once before"
                              : player.as.options.scope.empty() ? "cold: nothing was cached"
                                                                : "as it was in scope " + player.as.options.scope);
  lines.emplace_back("connections", std::to_string(player.drive.connections));
  return lines;
}

// Moves what came of one player to the end of the run.
void append(const Player& player, load::Run&& from, load::Run& to) {
  if (!player.as.name.empty())
    to.tenants.push_back({.name = player.as.name,
                          .weight = player.as.weight,
                          .uid = player.as.user ? std::optional(player.as.user->uid) : std::nullopt,
                          .limits = player.as.limits,
                          .shares = player.as.kind != load::RequestKind::tokenize,
                          .description = describe_player(player),
                          .first = to.records.size(),
                          .count = from.records.size()});
  std::move(from.records.begin(), from.records.end(), std::back_inserter(to.records));
  to.interrupted |= from.interrupted;
  if (from.shut_out && !player.as.name.empty())
    from.shut_out->why = fmt::format("tenant {}: {}", player.as.name, from.shut_out->why);
  if (!to.shut_out) to.shut_out = std::move(from.shut_out);
  to.stray_frames += from.stray_frames;
  to.garbage.sent += from.garbage.sent;
  to.garbage.closed += from.garbage.closed;
  to.garbage.refused += from.garbage.refused;
  to.garbage.ignored += from.garbage.ignored;
}

// All that there is to say of a run without tenants, and a line for each tenant.
void describe_players(const std::vector<Player>& players, load::Run& run) {
  if (run.tenants.empty()) {
    const auto lines = describe_player(players.front());
    run.description.insert(run.description.end(), lines.begin(), lines.end());
  }
  for (const load::Tenant& tenant : run.tenants) {
    std::string text;
    for (const auto& [label, value] : tenant.description)
      if (label == "load" || label == "prompts" || label == "asks for")
        text += fmt::format("{}{}", text.empty() ? "" : "; ", label == "load" ? value : label + " " + value);
    run.description.emplace_back("tenant " + tenant.name, std::move(text));
  }
}

// Does everything but the reports; called on a separate thread, so that the main thread can wait for signals.
Result<LoadResult> drive_troupe(const LoadTask& task) {
  const config::LoadOptions& options = task.options;
  auto server = load::reach_troupe(options.socket, !options.no_strict_modes, options.model_name);
  if (!server) return server.error();
  if (const std::string& distrust = server->control->server().distrust; !distrust.empty())
    complain("troupe load", "warning: " + distrust);
  auto players = make_players(task, *server);
  if (!players) return players.error();

  LoadResult result{.head = make_head(task), .run = {}, .mismatches = {}};
  if (task.tenants.empty()) add_pace(options, players->front().plan, result.head);
  result.head.endpoint = server->socket;
  result.head.model = server->model.name;
  for (const Player& player : *players) {
    if (player.as.name.empty()) continue;
    result.head.alone.emplace_back();
    if (!player.as.compare_alone || task.stop) continue;
    auto alone = play_alone(player, *server);
    if (!alone) return alone.error();
    if (!task.stop) result.head.alone.back() = std::move(*alone);
  }
  for (const Player& player : *players)
    complain("troupe load", fmt::format("{}{}, at {}", player.as.name.empty() ? "" : "tenant " + player.as.name + ": ",
                                        describe(player.as.options, player.plan).front().second, server->socket));
  auto runs = play(*players, *server);
  if (!runs) return runs.error();
  for (std::size_t i = 0; i < players->size(); ++i) {
    load::TroupeRun& lane = runs->lanes[i];
    if (options.verify)
      if (Status done = verify(task, (*players)[i], *server, lane, result.mismatches); !done) return done.error();
    if (!options.trace_out.empty())
      if (Status done = write_trace(options.trace_out, (*players)[i].plan, lane.run); !done) return done.error();
    append((*players)[i], std::move(lane.run), result.run);
  }
  load::measure_span(result.run);
  result.run.samples = std::move(runs->samples);
  result.run.own_cpu_seconds = runs->own_cpu_seconds;
  result.run.account = runs->account;
  describe_tool(result.run);
  describe_server(*server, result.run);
  describe_players(*players, result.run);
  return result;
}

// The same for an OpenAI-compatible server.
Result<LoadResult> drive_openai(const LoadTask& task) {
  const config::LoadOptions& options = task.options;
  if (options.verify || options.warm)
    return Error{ErrorCode::invalid_argument, "--verify and --warm need a troupe server; --openai has neither"};
  if (options.deadline.count() > 0)
    return Error{ErrorCode::invalid_argument, "--deadline needs a troupe server; OpenAI's requests have none"};
  auto server = load::reach_openai(options.openai, options.model_name, options.patience, options.api_key);
  if (!server) return server.error();
  const auto plan = make_load_plan(options, server->vocabulary);
  if (!plan) return plan.error();
  const auto plan_lines = describe(options, *plan);
  complain("troupe load", plan_lines.front().second + ", at " + server->endpoint);

  load::OpenAiOptions drive;
  drive.max_retries = static_cast<std::uint32_t>(options.max_retries);
  drive.patience = std::chrono::duration_cast<std::chrono::seconds>(options.patience);
  drive.stop = &task.stop;
  auto run = load::run_openai(*plan, *server, drive);
  if (!run) return run.error();
  if (!options.trace_out.empty())
    if (Status written = write_trace(options.trace_out, *plan, *run); !written) return written.error();

  LoadResult result{.head = make_head(task), .run = std::move(*run), .mismatches = {}};
  add_pace(options, *plan, result.head);
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
    return system_error(fmt::format("cannot write {}{}", path, there ? "" : ": folder " + asked), errno);
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
  if (const auto& by = result.run.shut_out) {
    complain("troupe load",
             fmt::format("stopped: the server {}: {}",
                         by->denied ? "refuses this client" : "cannot be reached any more", by->why),
             Tone::error);
    return by->denied ? kExitPermission : kExitTryLater;
  }
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
  const auto tenants = make_tenants(options, goals->limits);
  if (!tenants) return tenants.error();
  if (Status writable = check_can_write(options); !writable) return writable.error();
  std::atomic<bool> stop{false};
  std::optional<Result<LoadResult>> result;
  std::thread driver([&] {
    result = (options.openai.empty() ? drive_troupe : drive_openai)({options, *goals, *tenants, stop});
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
