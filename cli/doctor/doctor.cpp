// troupe doctor: what this machine and this installation have and lack for serving models, each with its remedy.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>

#include "actors/models/model_catalog.h"
#include "cli/backup/state_places.h"
#include "cli/doctor/finding.h"
#include "cli/doctor/machine_facts.h"
#include "cli/doctor/server_facts.h"
#include "cli/serve/check.h"
#include "cli/serve/serve_options.h"
#include "cli/subcommands.h"
#include "cli/terminal/accounts.h"
#include "cli/terminal/color.h"
#include "cli/terminal/output.h"
#include "cli/terminal/text.h"
#include "cli/version.h"
#include "config/printable.h"
#include "config/system_error.h"
#include "engine/model/memory_budget.h"
#include "ipc/sockets/socket_path.h"

namespace troupe::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kLittleDisk = 1ull << 30;

class Doctor {
 public:
  Doctor(const config::DoctorOptions& options, const config::Given& given) : options_(options), given_(given) {}

  std::vector<Finding> examine() {
    add({"program", Grade::fine, fmt::format("troupe {}, {}, {}", kVersionAndCommit, kCompiler, kBuildType)});
    look_at_servers();
    for (Finding& each : judge_machine(machine_facts(), is_serving_)) add(std::move(each));
    look_at_configuration();
    for (Finding& each : servers_) add(std::move(each));
    return std::move(findings_);
  }

 private:
  void add(Finding finding) { findings_.push_back(std::move(finding)); }

  // Whether the command line has it; variables and the file count for a server as they are.
  bool is_flag(const std::string& option) const {
    const auto origin = given_.origins.find(option);
    return origin != given_.origins.end() && origin->second.starts_with('-');
  }

  // Units before sockets: a connection to a unit's socket starts its server.
  void look_at_servers() {
    bool system_waits = false, user_waits = false;
    for (const UnitFacts& unit : unit_facts()) {
      (unit.is_user ? user_waits : system_waits) = waits_for_connections(unit);
      for (Finding& each : judge_units(unit)) servers_.push_back(std::move(each));
    }
    auto paths = options_.socket.empty() ? ipc::client_socket_paths(ipc::SocketEnvironment::current())
                                         : Result<std::vector<std::string>>(std::vector{options_.socket});
    if (!paths) return servers_.push_back({"socket", Grade::broken, paths.error().message});
    // The machine's server is there for everybody, whatever server of their own they have.
    if (options_.socket.empty() && std::ranges::find(*paths, ipc::kSystemSocketPath) == paths->end() &&
        std::getenv("TROUPE_HOST") == nullptr)
      paths->push_back(ipc::kSystemSocketPath);
    const std::size_t before = servers_.size();
    for (const std::string& path : *paths) {
      const bool waits = path == ipc::kSystemSocketPath ? system_waits : user_waits;
      SocketFacts socket = socket_facts(path, !waits);
      socket.is_named = !options_.socket.empty();
      is_serving_ |= socket.state == SocketFacts::State::answers;
      for (Finding& each : judge_socket(socket, user_name(::geteuid()), fmt::format("troupe {}", kVersion)))
        servers_.push_back(std::move(each));
    }
    if (servers_.size() != before) return;
    if (options_.socket.empty())
      servers_.push_back(
          {"socket", Grade::fine, "no server runs here that you may see", "`troupe serve` starts yours"});
    else
      servers_.push_back({"socket", Grade::broken, options_.socket + ": there is no such socket",
                          fmt::format("`troupe serve --socket {}`", options_.socket)});
  }

  // The configuration that a server started now would have: what it would refuse, what its models need, and where it
  // would keep what is to last.
  void look_at_configuration() {
    std::vector<std::string> arguments;
    if (!options_.config.empty()) arguments.insert(arguments.end(), {"--config", options_.config});
    if (is_flag("model"))
      for (const std::string& model : options_.model) arguments.insert(arguments.end(), {"--model", model});
    for (const auto& [option, value] : {std::pair("hf-repo", &options_.hf_repo), std::pair("store", &options_.store)})
      if (is_flag(option)) arguments.insert(arguments.end(), {std::string("--").append(option), *value});
    if (is_flag("ctx-size")) arguments.insert(arguments.end(), {"--ctx-size", std::to_string(options_.ctx_size)});
    const auto parsed = config::parse(config::Command::serve, arguments, config::Surroundings::of_this_process());
    constexpr std::string_view kTopic = "configuration";
    if (!parsed)
      return add({kTopic, Grade::broken, parsed.error().message, "`troupe serve --help` has what is allowed"});
    const config::ServeOptions serve(parsed->options);
    const ServeCheck check = check_serve(serve, *parsed);
    for (const std::string& problem : check.problems)
      add({kTopic, Grade::broken, problem, "a start would be refused: mend it, and `troupe serve --check`"});
    for (const std::string& warning : parsed->warnings) add({kTopic, Grade::advice, warning});
    if (check.problems.empty()) add({kTopic, Grade::fine, check.summary});
    look_at_models(serve, *parsed);
    look_at_state(*parsed);
  }

  void look_at_models(const config::ServeOptions& serve, const config::Parsed& parsed) {
    std::vector<std::string> problems;  // which the check has told
    auto gateway = gateway_options(serve, parsed, &problems);
    if (!gateway) return;
    const std::uint64_t budget = gateway->memory != 0 ? gateway->memory : engine::default_memory_budget();
    std::uint64_t all = 0;
    for (actors::ModelSource& source : gateway->models) {
      const actors::CatalogEntry entry = actors::describe(source);
      if (entry.problem) continue;
      // One on request has what others leave when it comes.
      const std::uint64_t needed = entry.demand.least() + (source.on_request ? 0 : all);
      if (!source.on_request) all = needed;
      Finding finding{.topic = "model",
                      .found = fmt::format("{} needs at least {} (weights {}), of {} that a server would take",
                                           entry.name, human_bytes(entry.demand.least()),
                                           human_bytes(entry.demand.weights), human_bytes(budget))};
      if (needed > budget) {
        finding.grade = is_serving_ ? Grade::advice : Grade::broken;
        finding.found += is_serving_                     ? ", beside the server that runs"
                         : needed > entry.demand.least() ? ", with those before it"
                                                         : "";
        finding.remedy =
            "a smaller context (-c), a smaller quantisation, or more memory (--memory; by default a server "
            "takes 60 % of what is available)";
      }
      add(std::move(finding));
    }
  }

  void look_at_state(const config::Parsed& parsed) {
    const auto places = state_places(config::BackupOptions(parsed.options));
    if (!places) return add({"state", Grade::broken, places.error().message});
    std::string before;
    for (const std::string& place : {places->sessions, places->usage_db}) {
      if (place.empty()) continue;
      // What is not there yet is made: by the nearest folder that is.
      fs::path folder = fs::path(place).parent_path();
      std::error_code error;
      while (folder.has_relative_path() && !fs::exists(folder, error)) folder = folder.parent_path();
      if (folder == before) continue;
      before = folder;
      const fs::space_info space = fs::space(folder, error);
      Finding finding{.topic = "state",
                      .found = fmt::format("{}: {} free", place, human_bytes(error ? 0 : space.available))};
      if (::access(folder.c_str(), W_OK | X_OK) != 0) {
        finding.grade = Grade::broken;
        finding.found = system_error(folder.string() + " cannot be written", errno).message;
        finding.remedy =
            "sessions and usage are kept there: `--sessions-dir`, `--usage-db` or XDG_STATE_HOME name "
            "another place";
      } else if (error || space.available < kLittleDisk) {
        finding.grade = Grade::advice;
        finding.remedy =
            "sessions are kept there, and a full disk has them refused: make room, or `--sessions-dir` "
            "elsewhere";
      }
      add(std::move(finding));
    }
  }

  const config::DoctorOptions& options_;
  const config::Given& given_;
  bool is_serving_ = false;
  std::vector<Finding> servers_;  // told last, and known first
  std::vector<Finding> findings_;
};

}  // namespace

Result<int> doctor(const config::DoctorOptions& options, const config::Given& given) {
  const std::vector<Finding> findings = Doctor(options, given).examine();
  if (options.json)
    write_json(findings_json(findings), std::cout);
  else
    std::cout << findings_text(findings, shows_colors(STDOUT_FILENO));
  return exit_code(findings);
}

}  // namespace troupe::cli
