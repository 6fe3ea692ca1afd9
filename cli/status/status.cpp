// troupe status: prints the server's status.
#include <unistd.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/client/client_options.h"
#include "cli/status/status_report.h"
#include "cli/subcommands.h"
#include "cli/terminal/exit_code.h"
#include "cli/terminal/output.h"
#include "cli/terminal/profile_report.h"
#include "cli/terminal/text.h"
#include "config/printable.h"
#include "ipc/client/client.h"
#include "ipc/http/prometheus_text.h"

namespace troupe::cli {
namespace {

int exit_code_of(const client::Health& health) {
  if (health.stalled || health.readiness == client::Readiness::failed) return kExitFailure;
  return health.readiness == client::Readiness::ready ? kExitOk : kExitTryLater;
}

// Converts to the engine's type, so that bench and status print profiles with the same code.
engine::ProfileSnapshot to_snapshot(const client::Profile& profile) {
  engine::ProfileSnapshot out{.num_threads = profile.num_threads, .phases = {}};
  for (const client::PhaseTime& phase : profile.phases) {
    engine::PhaseTime& added = out.phases.emplace_back();
    added.name = Printable(phase.phase).text();
    added.steps = phase.steps;
    added.rows = phase.tokens;
    added.seconds = phase.seconds;
    added.measured_steps = phase.measured_steps;
    added.measured_seconds = phase.measured_seconds;
    for (const client::OperationTime& row : phase.operations)
      added.operations.push_back({.name = Printable(row.operation).text(),
                                  .calls = row.calls,
                                  .seconds = row.seconds,
                                  .joins = row.joins,
                                  .join_seconds = row.join_seconds,
                                  .busy_seconds = row.busy_seconds,
                                  .wake_up_seconds = row.wake_up_seconds,
                                  .wait_seconds = row.wait_seconds,
                                  .absent_seconds = row.absent_seconds,
                                  .layer_seconds = row.layer_seconds});
  }
  return out;
}

// As it is shown on stdout.
std::string shown(const client::Health& health) {
  return colored(name_of(health), color_of(health), shows_colors(STDOUT_FILENO));
}

// A server that drains answers nothing but its health: prints that. False: it does not drain, or numbers were asked
// for.
bool print_draining(client::Client& client, const config::StatusOptions& options) {
  const auto health = client.health();
  if (!health || health->readiness != client::Readiness::draining || options.prometheus || options.show_profile)
    return false;
  if (options.json)
    write_json(nlohmann::ordered_json{{"readiness", name_of(*health)}}, std::cout);
  else
    std::cout << "health  " << shown(*health) << ": running requests are finished, and nothing else is answered\n";
  return true;
}

}  // namespace

Result<int> status(const config::StatusOptions& options) {
  const auto client = connect(options, "troupe status");
  if (!client) return client.error();
  const bool profile = options.show_profile;
  if (profile && options.prometheus)
    return Error{ErrorCode::invalid_argument, "--profile and --prometheus: choose one of the two"};
  const auto status = (*client)->status(/*list_requests=*/false, profile);
  if (!status && status.error().code == ErrorCode::busy && print_draining(**client, options)) return kExitTryLater;
  if (!status) return status.error();
  if (profile && !status->profile)
    return Error{ErrorCode::io, "this server does not measure its steps; start it with `troupe serve --profile`"};
  if (options.prometheus) {
    std::cout << ipc::http::prometheus_text(*status);
  } else if (options.json) {
    const auto models = (*client)->models();
    if (!models) return models.error();
    auto report = status_json(*status, *models);
    if (profile) report["profile"] = profile_json(to_snapshot(*status->profile));
    write_json(report, std::cout);
  } else if (profile) {
    const engine::ProfileSnapshot snapshot = to_snapshot(*status->profile);
    if (snapshot.phases.empty()) {
      std::cout << "no step was computed yet\n";
    } else {
      std::cout << profile_text(snapshot) << "\n" << prediction_text(*status);
    }
  } else {
    std::string text = status_text(*status, options.verbose);
    const std::string name = name_of(status->health);  // in the first line
    std::cout << text.replace(text.find(name), name.size(), shown(status->health));
  }
  return exit_code_of(status->health);
}

}  // namespace troupe::cli
