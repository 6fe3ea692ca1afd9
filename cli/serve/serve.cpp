// troupe serve: binds the socket, loads the models, and serves until a signal.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "actors/gateway.h"
#include "actors/serving/model_cache.h"
#include "cli/model/model_options.h"
#include "cli/serve/access_log.h"
#include "cli/serve/check.h"
#include "cli/serve/serve_options.h"
#include "cli/serve/service_manager.h"
#include "cli/serve/tcp_access.h"
#include "cli/serve/tenant_rules.h"
#include "cli/subcommands.h"
#include "cli/terminal/exit_code.h"
#include "cli/terminal/logging.h"
#include "cli/terminal/output.h"
#include "cli/terminal/process.h"
#include "cli/terminal/profile_report.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/signals.h"
#include "cli/terminal/text.h"
#include "cli/usage/usage_store.h"
#include "cli/version.h"
#include "config/printable.h"
#include "ipc/server.h"

namespace troupe::cli {
namespace {

constexpr std::chrono::milliseconds kProgressInterval{100};
// How often the service manager gets the server's status; more often if its watchdog's period requires it.
constexpr std::chrono::milliseconds kHealthInterval{10'000};
// A service manager considers a load failed that makes no progress for this long.
constexpr std::chrono::milliseconds kLoadStall{60'000};
// The longest time that a stop takes in addition to the drain.
constexpr std::chrono::milliseconds kStopMargin{15'000};
static_assert(kStopMargin > kStopLimit);
// Threads of a server beside those that compute and those that encode texts: the I/O thread and the one that watches
// it, the decoder of large frames, two for actors and one for their clock, two for sessions, one that measures memory,
// one that writes the log, one that writes the account of usage, and one for logging why the process ends by force.
constexpr std::uint32_t kOtherThreads = 12;
// With --listen: one that checks keys or asks for the groups of users, and one for TLS.
constexpr std::uint32_t kTcpThreads = 2;
// With a file as --access-log: one that writes it, and during a reload the one before.
constexpr std::uint32_t kAccessThreads = 2;

using Clock = std::chrono::steady_clock;

// Logs the reason; returns the exit code.
int end_with(const Ending& ending) {
  spdlog::error("{}", ending.why);
  return ending.code;
}
int end_with(const Error& error) { return end_with(ending_of(error)); }

// Warnings about keys of the configuration file that a flag or a variable hides.
void log_hidden(const config::Parsed& parsed, const char* before = "") {
  for (const std::string& hidden : parsed.hidden)
    spdlog::warn("{}{}; leave one of them out", before, Printable(hidden, kMaxMessageBytes).text());
}

// Logs the model's properties.
void log_model(const std::string& name, const actors::ServedModel& served, const config::ServeOptions& options) {
  const engine::ModelInfo& info = served.info();
  const auto& model = served.language_model();
  if (!model) {
    spdlog::info("encoder {}: {}, {} parameters, {}, weights {}", name, info.family, human_count(info.num_parameters),
                 info.weight_types, human_bytes(served.weight_bytes()));
    spdlog::info("kernels {}, {} threads, vectors of {} numbers for texts of up to {} tokens, pooling {}, numerics {}",
                 served.kernels().name, num_threads(options), info.dim, info.context,
                 engine::name(served.vectors().pooling()), served.numerics_id());
    return;
  }
  const engine::KvArena& arena = *model->arena();
  spdlog::info("model {}: {}, {} parameters, {}, weights {}", name, info.family, human_count(info.num_parameters),
               info.weight_types, human_bytes(model->model().weight_bytes()));
  spdlog::info("kernels {}, {} threads, KV cache {} ({}, {} blocks of {} tokens), context {} tokens, numerics {}",
               model->kernels().name, num_threads(options), human_bytes(actors::kv_bytes(*model)),
               kernels::name(model->cache_spec().kv_type), arena.num_blocks(), kBlockSize, info.context,
               model->numerics_id());
  if (info.context > info.trained_context)
    spdlog::warn(
        "the context of {} tokens is longer than the {} that the model was trained for: answers beyond that "
        "may be nonsense (-c {} avoids it)",
        info.context, info.trained_context, info.trained_context);
}

// The names of models, for a person.
std::string listed(const std::vector<std::string>& names) { return fmt::format("{}", fmt::join(names, ", ")); }

// The account of usage; null with --usage-db off.
std::unique_ptr<UsageStore> open_usage(const config::ServeOptions& options) {
  if (options.usage_db == "off") return nullptr;
  UsageStoreOptions store;
  store.keep_days = options.usage_days;
  if (auto path = usage_path(options.usage_db)) {
    store.path = std::move(*path);
  } else {
    store.note = path.error().message;
    spdlog::info("usage is kept in memory only: {}", store.note);
  }
  return std::make_unique<UsageStore>(std::move(store));
}

// Which models are served because they are listed, and which are not.
void log_listing(const Listing& listing, const char* before = "") {
  const std::size_t num_told = std::min(listing.left_out.size(), kMaxToldLeftOut);
  for (std::size_t i = 0; i < num_told; ++i)
    spdlog::warn("{}{}", before, Printable(listing.left_out[i], kMaxMessageBytes).text());
  if (num_told < listing.left_out.size())
    spdlog::warn("{}{} more are left out", before, listing.left_out.size() - num_told);
  std::vector<std::string> names;
  for (const config::ModelTable& table : listing.tables) names.push_back(table.name);
  if (!names.empty()) spdlog::info("{}on request: {}", before, Printable(listed(names), kMaxMessageBytes).text());
}

using Tables = std::map<std::string, config::ModelTable>;

// Serves until it has to stop, then stops.
class Service {
 public:
  Service(const config::Parsed& parsed, ServiceManager& manager, EventQueue& events, bool on_terminal)
      : parsed_(parsed), options_(parsed.options), manager_(manager), events_(events), on_terminal_(on_terminal) {}

  // Returns the exit code. The destructor ends everything that was started.
  int run() {
    if (Status opened = access_.open(options_); !opened) return end_with(opened.error());
    if (auto code = bind_socket(); code) return *code;
    usage_ = open_usage(options_);
    Listing listing;
    auto gateway_options = cli::gateway_options(options_, parsed_, nullptr, &listing);
    if (!gateway_options) return end_with(gateway_options.error());
    log_listing(listing);
    std::vector<std::string> paths;
    for (const actors::ModelSource& model : gateway_options->models)
      if (!model.on_request) paths.push_back(model.path);
    if (!paths.empty()) {
      spdlog::info("loading {}", listed(paths));
      manager_.status("loading " + listed(paths));
    }
    const std::shared_ptr<const engine::Profiler> profiler = gateway_options->profiler;
    gateway_options->check_model = [this](const actors::ServedModel& model) {
      const std::lock_guard lock(mutex_);
      return check_kept(parsed_, tenants_, model);
    };
    gateway_options->on_usage = [this](const actors::UsageEntry& entry) {
      if (usage_) usage_->add(entry);
      if (const auto ended = actors::ended_request(entry)) access_.add(*ended);
    };
    gateway_options->append_metrics = [this](MetricList& metrics) { access_.append_metrics(metrics); };
    auto gateway = actors::Gateway::start(std::move(*gateway_options));
    if (!gateway) return end_with(gateway.error());
    profiler_ = profiler;
    gateway_ = std::move(*gateway);
    const std::vector<std::string> names = gateway_->model_names();
    for (std::size_t i = 0; i < parsed_.models.size(); ++i) tables_.emplace(names[i], parsed_.models[i]);
    for (const config::ModelTable& table : listing.tables) tables_.emplace(table.name, table);
    gateway_->on_loaded([this](Status status) {
      {
        const std::lock_guard lock(mutex_);
        load_status_ = std::move(status);
      }
      events_.post(Event::loaded);
    });
    server_->start(*gateway_);
    return wait_for_end();
  }

 private:
  // Returns the exit code if no socket can be served.
  std::optional<int> bind_socket() {
    auto options = server_options(options_, parsed_);
    if (!options) return end_with(options.error());
    tenants_ = options->tenants;
    if (Status open = tcp_.open(options_, parsed_, *options); !open) return end_with(open.error());
    const auto inherited = manager_.socket();
    if (!inherited) return end_with(inherited.error());
    options->inherited_socket = *inherited;
    if (options_.usage_db != "off")
      options->ask_usage = [this](actors::UsageQuery query, actors::OnUsageReport answer) {
        usage_->ask(std::move(query), std::move(answer));
      };
    options->on_ended = [this](const actors::EndedRequest& request) { access_.add(request); };
    // The service manager starts it again (Restart=on-failure).
    options->turn_patience = options_.progress_timeout;
    options->on_stuck = [](const std::string& why) { end_by_force(kExitFailure, ("ended by force: " + why).c_str()); };
    auto server = ipc::Server::bind(std::move(*options));
    if (!server)
      return end_with(server.error().code == ErrorCode::io ? Ending{kExitSocketFailure, server.error().message}
                                                           : ending_of(server.error()));
    server_ = std::move(*server);
    remove_at_forced_end(server_->socket_file());
    spdlog::info("troupe {} listens on {}", kVersion, server_->socket_path());
    for (const ipc::TcpAddress& address : server_->tcp_addresses())
      spdlog::info("HTTP on {}{}, {}", address.text(), options_.tls_cert.empty() ? "" : ", with TLS",
                   tcp_.clients_text());
    if (options_.open) std::cout << tcp_.page_address(server_->tcp_addresses().at(0)) << std::endl;
    if (const std::string& asked_for = options_.socket;
        *inherited && !asked_for.empty() && asked_for != server_->socket_path())
      spdlog::warn("socket = {} is not used: the service manager has chosen another one", asked_for);
    return std::nullopt;
  }

  int wait_for_end() {
    while (!code_) {
      const auto event = events_.wait(time_to_next_look());
      if (!event)
        look();
      else if (*event == Event::loaded)
        on_loaded();
      else if (*event == Event::health)
        on_health();
      else if (*event == Event::signal && events_.last_signal() == SIGHUP && !on_terminal_)
        reload();
      else if (*event == Event::signal)
        on_stop_signal();
      else if (*event == Event::ended)
        on_ended();
    }
    return *code_;
  }

  // How often look() must run without an event: for the progress of loading, then for the service manager's health
  // reports and --idle-exit. nullopt: never; an idle process uses no CPU.
  std::optional<std::chrono::milliseconds> look_interval() const {
    if (loading_) return kProgressInterval;
    std::optional<std::chrono::milliseconds> interval;
    if (manager_.listens()) interval = kHealthInterval;
    // Three reports per watchdog period, so that one may be late.
    if (manager_.watchdog()) interval = std::min(kHealthInterval, *manager_.watchdog() / 3);
    if (const auto idle = options_.idle_exit; idle.count() > 0)
      interval = std::min(interval.value_or(idle / 4), std::max(idle / 4, std::chrono::milliseconds(10)));
    return interval;
  }

  std::optional<std::chrono::milliseconds> time_to_next_look() const {
    const auto interval = look_interval();
    if (!interval) return std::nullopt;
    const auto due = std::chrono::ceil<std::chrono::milliseconds>(last_look_ + *interval - Clock::now());
    return std::clamp(due, std::chrono::milliseconds(0), *interval);
  }

  void look() {
    last_look_ = Clock::now();
    if (loading_) return watch_loading();
    // One status query at a time: while it is unanswered no keep_alive() is sent, so the watchdog restarts a server
    // that hangs.
    if (manager_.listens() && !std::exchange(asking_, true))
      server_->status([this](actors::StatusSnapshot snapshot) {
        {
          const std::lock_guard lock(mutex_);
          health_ = std::move(snapshot);
        }
        events_.post(Event::health);
      });
    if (const auto idle = options_.idle_exit; idle.count() > 0 && !draining_ && last_look_ - ready_at_ >= idle)
      server_->end_if_idle(idle, [this] { events_.post(Event::ended); });
  }

  void watch_loading() {
    const double fraction = loaded_fraction();
    progress_.update(fraction, last_look_);
    if (fraction <= told_fraction_ || last_look_ - told_at_ < std::chrono::seconds(1)) return;
    told_fraction_ = fraction;
    told_at_ = last_look_;
    manager_.extend(kLoadStall);
    manager_.status(fmt::format("loading: {} %", static_cast<int>(fraction * 100)));
  }

  // Of all models together.
  double loaded_fraction() const {
    const std::vector<actors::ModelHealth> models = gateway_->health();
    double sum = 0;
    for (const actors::ModelHealth& each : models)
      sum += each.readiness == actors::Readiness::failed || each.on_request ? 1 : each.load_fraction;
    return sum / static_cast<double>(models.size());
  }

  void on_loaded() {
    loading_ = false;
    progress_.finish();
    {
      const std::lock_guard lock(mutex_);
      if (!load_status_) {  // the log has it from the gateway
        code_ = ending_of(load_status_.error()).code;
        return;
      }
    }
    std::vector<std::string> serving, failed;
    for (const actors::ModelHealth& each : gateway_->health()) {
      const auto served = gateway_->model(each.name);
      if (served) log_model(each.name, *served, options_);
      (each.readiness == actors::Readiness::failed ? failed : serving).push_back(each.name);
    }
    if (!failed.empty()) spdlog::error("not served, for what is said above: {}", listed(failed));
    spdlog::info("ready");
    ready_at_ = Clock::now();
    if (draining_) return;
    manager_.status("serving " + listed(serving));
    manager_.ready();
  }

  void on_health() {
    asking_ = false;
    actors::StatusSnapshot health;
    {
      const std::lock_guard lock(mutex_);
      health = std::move(health_);
    }
    manager_.status(fmt::format("{}{} running, {} waiting",
                                draining_ ? "finishing what runs: " : "serving " + names_of(health) + ": ",
                                health.count("requests_running"), health.count("requests_waiting")));
    // The answer shows that the io thread and the actors work; this check, that steps end or no work waits
    // (progress-timeout).
    if (gateway_->is_making_progress()) manager_.keep_alive();
  }

  static std::string names_of(const actors::StatusSnapshot& status) {
    std::vector<std::string> names;
    for (const actors::ModelReport& report : status.models) names.push_back(report.health.name);
    return listed(names);
  }

  // SIGHUP: applies the options that can change at run time, and logs those that need a restart.
  void reload() {
    manager_.reloading();
    auto reread = config::read_again(config::Command::serve, parsed_, config::Surroundings::of_this_process());
    Status done = reread ? take_over(*reread) : reread.error();
    if (!done) spdlog::error("reload: {}; everything stays as it was", done.error().message);
    flush_log();
    if (!loading_) manager_.ready();
  }

  Status take_over(config::Reread& reread) {
    config::ServeOptions in_effect(reread.in_effect.options);
    auto options = server_options(in_effect, reread.in_effect);  // looks names up again, too
    if (!options) return options.error();
    if (Status right = judge_models(in_effect, reread.in_effect); !right) return right;
    Listing listing;
    if (has_listing(in_effect)) {
      std::vector<std::string> of_tables;  // were judged
      if (auto gateway = gateway_options(in_effect, reread.in_effect, &of_tables, &listing); !gateway)
        return gateway.error();
    }
    if (!loading_)
      if (Status kept = check_tenants(reread.in_effect, options->tenants); !kept) return kept;
    if (Status read = tcp_.reload(in_effect, reread.in_effect, options->tenants); !read) return read;
    if (Status changed = server_->reconfigure(*options); !changed) return changed.error();
    {
      const std::lock_guard lock(mutex_);
      tenants_ = std::move(options->tenants);
      parsed_ = std::move(reread.in_effect);
    }
    options_ = std::move(in_effect);
    if (Status log = reload_log(options_); !log) spdlog::error("reload: {}", log.error().message);
    if (Status lines = access_.open(options_); !lines) spdlog::error("reload: {}", lines.error().message);
    log_listing(listing, "reload: ");
    const bool models_change = change_models(listing);
    for (const config::Option* option : reread.changed) spdlog::info("reload: {}", config::describe(*option, parsed_));
    if (reread.tenants_changed) spdlog::info("reload: {} tenant rules ({})", parsed_.tenants.size(), parsed_.file);
    for (const std::string& option : reread.need_restart) spdlog::warn("reload: {} needs a restart", option);
    log_hidden(parsed_, "reload: ");
    if (reread.changed.empty() && reread.need_restart.empty() && !reread.tenants_changed && !models_change)
      spdlog::info("reload: no option has changed");
    return Ok{};
  }

  // Of all [[model]] tables that are not served as they stand there: what is wrong with one of them changes none. The
  // last problem is the error, those before it are logged.
  Status judge_models(const config::ServeOptions& options, const config::Given& given) {
    if (given.models.empty()) return Ok{};  // then a reload changes no model
    std::set<int> served;
    const std::vector<actors::ModelHealth> health = gateway_->health();
    for (const config::ModelTable& table : given.models)
      if (const auto name = name_of_served(table, health); !name.empty()) served.insert(table.line);
    std::vector<std::string> problems = check_reload(options, given, served);
    if (problems.empty()) return Ok{};
    Error last{ErrorCode::bad_config, std::move(problems.back())};
    problems.pop_back();
    for (const std::string& problem : problems) spdlog::error("reload: {}", problem);
    return last;
  }

  // The name of the model that is served, or loads, as this table says; empty: none.
  std::string name_of_served(const config::ModelTable& table, const std::vector<actors::ModelHealth>& health) {
    const std::lock_guard lock(mutex_);
    for (const auto& [name, of_it] : tables_)
      for (const actors::ModelHealth& each : health)
        if (each.name == name && of_it == table && is_there(each) && each.readiness != actors::Readiness::failed)
          return name;
    return {};
  }
  // What serves its name, whatever became of it: not what retires, replaces or is being unloaded.
  static bool is_there(const actors::ModelHealth& each) {
    return !each.retiring && !each.replacing && each.readiness != actors::Readiness::draining;
  }

  // A [[model]] table that is to be served.
  struct WantedModel {
    std::string name;
    config::ModelTable table;
    actors::ModelRequest request;
  };
  using WantedModels = std::vector<WantedModel>;

  struct ModelChanges {
    std::vector<std::string> unload;
    WantedModels load;
    bool leaves_one = false;  // that is served, whatever becomes of the loads
  };

  // Makes the models that are served those of the [[model]] tables, and those that are listed: unloads those whose
  // tables are gone, replaces those whose tables have other values, or whose load failed, and loads all that are not
  // served. What `troupe model load` has loaded stays, unless a table has its name. Each is logged when it is done.
  // Returns whether there is something to do.
  bool change_models(const Listing& listing) {
    ModelChanges changes = model_changes(listing);
    if (changes.unload.empty() && changes.load.empty()) return false;
    // Loads begin when the memory is given back, so that they divide it as those of a start do. The last model that is
    // served goes behind those that come.
    if (changes.leaves_one)
      unload_models(std::move(changes.unload), [this, load = std::move(changes.load)] { load_models(load, [] {}); });
    else
      load_models(changes.load, [this, unload = changes.unload] { unload_models(unload, [] {}); });
    return true;
  }

  ModelChanges model_changes(const Listing& listing) {
    std::vector<actors::ModelHealth> health = gateway_->health();
    std::erase_if(health, [](const actors::ModelHealth& each) { return !is_there(each); });
    const auto find = [&](const std::string& name) {
      return std::ranges::find(health, name, &actors::ModelHealth::name);
    };
    const auto has = [&](const std::string& name) { return find(name) != health.end(); };
    Tables served;
    {
      const std::lock_guard lock(mutex_);
      std::erase_if(tables_, [&](const auto& each) { return !has(each.first); });
      served = tables_;
    }
    ModelChanges changes;
    std::set<std::string> wanted;
    std::vector<config::ModelTable> tables = parsed_.models;
    tables.insert(tables.end(), listing.tables.begin(), listing.tables.end());
    for (const config::ModelTable& table : tables) {
      const auto known = std::ranges::find(served, table, &Tables::value_type::second);
      if (known != served.end() && find(known->first)->readiness != actors::Readiness::failed &&
          wanted.insert(known->first).second)
        continue;
      std::string name = served_name(table, parsed_.options);
      auto request = model_request(table, parsed_.options);
      if (!request || !wanted.insert(name).second) {  // it was judged: a file has changed since
        spdlog::error("reload: {}: {}", table.line > 0 ? fmt::format("{}:{}", parsed_.file, table.line) : table.path,
                      request ? fmt::format("a model before it is called \"{}\", too; give one another name",
                                            Printable(name).text())
                              : request.error().message);
        continue;
      }
      std::string& replace = request->keys.replace;
      if (!has(name))
        replace.clear();
      else if (replace.empty())
        replace = config::kReplaceWays[0];
      changes.load.push_back({.name = std::move(name), .table = table, .request = *std::move(request)});
    }
    // A file that is being written, say: what was listed under its name stays.
    for (const std::string& name : listing.troubled)
      if (const auto known = served.find(name); known != served.end() && known->second.line == 0) wanted.insert(name);
    for (const auto& [name, table] : served)
      if (!wanted.contains(name)) changes.unload.push_back(name);
    changes.leaves_one = std::ranges::any_of(health, [&](const actors::ModelHealth& each) {
      return (each.readiness == actors::Readiness::ready || each.on_request) &&
             std::ranges::find(changes.unload, each.name) == changes.unload.end();
    });
    return changes;
  }

  // `then` is called once all of them have ended.
  void unload_models(std::vector<std::string> names, std::function<void()> then) {
    if (names.empty()) return then();
    const auto num_left = std::make_shared<std::atomic<std::size_t>>(names.size());
    for (const std::string& name : names)
      gateway_->remove_model(name, [this, name, num_left, then](const actors::ModelChange& change) {
        log_change(change, name, "unloaded");
        if (std::holds_alternative<actors::ModelHealth>(change)) {
          const std::lock_guard lock(mutex_);
          tables_.erase(name);
        }
        if (--*num_left == 0) then();
      });
  }

  // Likewise.
  void load_models(const WantedModels& models, std::function<void()> then) {
    if (models.empty()) return then();
    const auto num_left = std::make_shared<std::atomic<std::size_t>>(models.size());
    std::vector<std::pair<actors::ModelRequest, actors::OnModelChange>> requests;
    for (const WantedModel& model : models) {
      const bool replaces = !model.request.keys.replace.empty();
      if (!replaces) {
        const std::lock_guard lock(mutex_);
        tables_.insert_or_assign(model.name, model.table);
      }
      const char* const what = replaces                             ? "replaced"
                               : config::is_on_request(model.table) ? "served on request"
                                                                    : "loaded";
      requests.emplace_back(model.request, [this, name = model.name, table = model.table, what, num_left,
                                            then](const actors::ModelChange& change) {
        log_change(change, name, what);
        if (std::holds_alternative<actors::ModelHealth>(change)) {
          const std::lock_guard lock(mutex_);
          tables_.insert_or_assign(name, table);
        }
        if (--*num_left == 0) then();
      });
    }
    gateway_->load_models(std::move(requests));
  }

  static void log_change(const actors::ModelChange& change, const std::string& name, const char* what) {
    if (const auto* end = std::get_if<actors::End>(&change))
      return spdlog::error("reload: {} (model {} is not {})", end->message, Printable(name).text(), what);
    spdlog::info("reload: model {} is {}", Printable(name).text(), what);
  }

  // Whether each loaded model has the blocks that the rules keep. Encoders have no blocks, and nothing is kept there.
  Status check_tenants(const config::Given& given, const ipc::TenantRules& rules) const {
    for (const actors::ModelHealth& each : gateway_->health())
      if (const auto served = gateway_->model(each.name))
        if (Status kept = check_kept(given, rules, *served); !kept) return kept;
    return Ok{};
  }
  static Status check_kept(const config::Given& given, const ipc::TenantRules& rules,
                           const actors::ServedModel& served) {
    const auto& model = served.language_model();
    return model ? check_kept_blocks(given, rules, model->arena()->num_blocks()) : Ok{};
  }

  // The first stop signal; a second one is handled by the stop thread (cli/terminal/signals.h).
  void on_stop_signal() {
    const int number = events_.last_signal();
    draining_ = true;
    progress_.finish();
    const auto drain_timeout = options_.drain_timeout;
    spdlog::info("signal {}: finishing what runs, for at most {} ms; a second signal stops at once", number,
                 drain_timeout.count());
    manager_.stopping();
    manager_.extend(drain_timeout + kStopMargin);
    server_->drain([this] { events_.post(Event::ended); });
  }

  void on_ended() {
    if (!draining_) {
      spdlog::info("nobody was connected for {} ms (idle-exit)", options_.idle_exit.count());
      manager_.stopping();
    }
    log_profile();
    code_ = kExitOk;
  }

  // Logs the profile at the end of the server.
  void log_profile() const {
    const auto profile = profiler_ ? profiler_->snapshot() : std::nullopt;
    if (!profile) return;
    std::istringstream lines(profile_text(*profile));
    for (std::string line; std::getline(lines, line);)
      if (!line.empty()) spdlog::info("profile: {}", line);
  }

  config::Parsed parsed_;         // in effect; written with the lock held, as tenants_
  config::ServeOptions options_;  // of parsed_
  ipc::TenantRules tenants_;      // of parsed_
  Tables tables_;                 // of models, by the names that they have in the server; with the lock held
  ServiceManager& manager_;
  EventQueue& events_;
  std::mutex mutex_;
  Status load_status_{Ok{}};       // written by on_loaded's thread
  actors::StatusSnapshot health_;  // written by the io thread
  Progress progress_{log_is_on_terminal(options_), Clock::now()};
  // On a terminal SIGHUP means that it was closed, and stops the server as SIGTERM does.
  const bool on_terminal_;
  bool loading_ = true;
  double told_fraction_ = 0;
  Clock::time_point told_at_;
  Clock::time_point ready_at_;
  Clock::time_point last_look_ = Clock::now();
  bool asking_ = false;
  bool draining_ = false;
  std::optional<int> code_;
  std::shared_ptr<const engine::Profiler> profiler_;  // null without --profile
  AccessLog access_;                                  // outlives what reports to it, as the next
  std::unique_ptr<UsageStore> usage_;                 // null: no account is kept; outlives what reports to it
  std::unique_ptr<actors::Gateway> gateway_;
  std::unique_ptr<ipc::Server> server_;  // declared behind it: its streams must end before the gateway is destroyed
  TcpAccess tcp_;  // declared last: the server is the last that holds the threads that check keys and speak TLS
};

// Runs a Service; returns its exit code. By then all threads but the stop thread have ended.
int run_service(const config::Parsed& parsed, ServiceManager& manager, const std::shared_ptr<EventQueue>& events) {
  try {
    const bool on_terminal = ::isatty(STDERR_FILENO) != 0;
    start_stop_thread(events, {.drain_timeout = parsed.options.drain_timeout, .hangup_stops = on_terminal});
    const auto& options = parsed.options;
    const auto num_threads = cli::num_threads(options) + kOtherThreads + (options.listen.empty() ? 0 : kTcpThreads) +
                             (options.has_access_file() ? kAccessThreads : 0) + options.tokenizer_threads;
    if (const auto lack = lack_of_threads(num_threads)) return end_with(*lack);
    return Service(parsed, manager, *events, on_terminal).run();
  } catch (...) {
    return end_with(ending_of(std::current_exception()));
  }
}

int report_check(const config::ServeOptions& options, const config::Parsed& parsed) {
  spdlog::set_level(spdlog::level::off);  // there is no log yet
  const ServeCheck check = check_serve(options, parsed);
  for (const std::string& hidden : parsed.hidden) complain("troupe serve", "warning: " + hidden);
  for (const std::string& problem : check.problems) complain("troupe serve", problem);
  if (!check.problems.empty()) return kExitBadConfig;
  std::cout << Printable(check.summary, kMaxMessageBytes).text() << '\n';
  return kExitOk;
}

}  // namespace

Result<int> serve(const config::Parsed& parsed) {
  const config::ServeOptions options(parsed.options);
  if (options.print_limits) {
    const auto text = limits_text(options, parsed);
    if (!text) return text.error();
    std::cout << *text;
    return kExitOk;
  }
  if (options.check) return report_check(options, parsed);
  ignore_closed_pipes();
  give_back_large_buffers();
  keep_memory_reserve();
  ServiceManager manager;  // before a log file takes descriptor 3
  if (auto status = start_log(options); !status) return status.error();
  log_hidden(parsed);
  const int code = run_service(parsed, manager, std::make_shared<EventQueue>());
  if (code == kExitOk) spdlog::info("stopped");
  return code;
}

}  // namespace troupe::cli
