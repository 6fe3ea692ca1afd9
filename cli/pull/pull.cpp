// troupe pull: fetches models by their names. The only part of troupe that uses a network.
#include <fmt/format.h>
#include <sys/select.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <optional>
#include <thread>

#include "cli/pull/plan.h"
#include "cli/pull/pull_report.h"
#include "cli/pull/quant.h"
#include "cli/pull/token.h"
#include "cli/pull/transfer.h"
#include "cli/store/model_source.h"
#include "cli/store/store.h"
#include "cli/subcommands.h"
#include "cli/terminal/exit_code.h"
#include "cli/terminal/output.h"
#include "cli/terminal/signals.h"
#include "config/printable.h"
#include "config/state_directory.h"

namespace troupe::cli {
namespace {

constexpr const char* kHub = "https://huggingface.co";
constexpr const char* kRegistry = "https://registry.ollama.ai";

// A server that a variable names, or ours.
Result<Url> server_of(const char* variable, const char* otherwise) {
  const char* const value = std::getenv(variable);
  std::string text = value != nullptr && *value != '\0' ? value : otherwise;
  if (text.find("://") == std::string::npos) text = "https://" + text;
  auto url = parse_url(text);
  if (!url) return Error{ErrorCode::bad_config, fmt::format("${}: {}", variable, url.error().message)};
  if (url->path() != "/")
    return Error{ErrorCode::bad_config,
                 fmt::format("${}: '{}' is more than https://HOST[:PORT]", variable, Printable(text, 256).text())};
  url->target = "/";
  return url;
}

Result<ModelHosts> find_hosts() {
  auto hub = server_of("HF_ENDPOINT", kHub);
  if (!hub) return hub.error();
  auto registry = server_of("OLLAMA_REGISTRY", kRegistry);
  if (!registry) return registry.error();
  return ModelHosts{*std::move(hub), *std::move(registry)};
}

PullReport::Style style_of(const config::PullCommandOptions& options) {
  if (options.json) return PullReport::Style::json;
  if (options.quiet) return PullReport::Style::quiet;
  return ::isatty(STDERR_FILENO) == 1 ? PullReport::Style::line : PullReport::Style::tenths;
}

bool has_same_files(const StoredModel& a, const StoredModel& b) { return a.folder() == b.folder(); }

// What goes on where this pull ended.
std::string command_again(const config::PullCommandOptions& options, const std::string& text) {
  std::string command = "troupe pull";
  if (options.system_store) command += " --system";
  if (!options.store.empty()) command += " --store " + shell_word(options.store);
  if (!options.pull_name.empty()) command += " --name " + shell_word(options.pull_name);
  return command + ' ' + shell_word(text);
}

class Puller {
 public:
  Puller(const config::PullCommandOptions& options, const Store& store, ModelHosts hosts, NetworkOptions network)
      : options_(options), store_(store), hosts_(std::move(hosts)), report_(style_of(options)), network_([&] {
          network.stops = [this] { return signal_ != 0; };
          network.note = [this](const std::string& text) { report_.note(text); };
          return std::move(network);
        }()) {}

  Status pull(const std::string& text);
  int signal() const { return signal_; }

 private:
  struct Outcome {
    Status status;
    std::optional<StoredModel> unneeded{};  // what it has replaced, or what is no model
  };
  Outcome pull_alone(const std::string& text);
  Result<StoreLock> use_store() const;
  Result<std::optional<StoredModel>> find_before(const PullPlan& plan) const;
  Status ask(const PullPlan& plan) const;
  Result<StoredModel> fetch(const PullPlan& plan, std::vector<StoreLock>& held);
  Status take(const PullPlan& plan, StoredModel model, const std::optional<StoredModel>& before);
  void remove_files_of(const StoredModel& model);
  std::string kept(const PullPlan& plan, const std::string& text) const;

  const config::PullCommandOptions& options_;
  const Store& store_;
  const ModelHosts hosts_;
  std::atomic<int> signal_{0};
  // Before the network, which may start threads.
  SignalThread signals_{{SIGINT, SIGTERM, SIGHUP}, [this](int number) { signal_ = number; }};
  PullReport report_;
  Network network_;
};

Status Puller::ask(const PullPlan& plan) const {
  if (::isatty(STDIN_FILENO) != 1 || ::isatty(STDERR_FILENO) != 1)
    return Error{ErrorCode::invalid_argument, "--ask: there is nobody to ask: stdin and stderr are no terminal"};
  std::cerr << fmt::format("Pull {}{}? [Y/n] ", plan.model.name,
                           plan.bytes() == 0 ? "" : fmt::format(" ({})", size_text(plan.bytes())));
  std::string answer;
  // A read that Ctrl-C cannot end would hide it: the signals are this program's own.
  for (char c = 0; signal_ == 0;) {
    fd_set ready;
    FD_ZERO(&ready);
    FD_SET(STDIN_FILENO, &ready);
    timeval wait{.tv_sec = 0, .tv_usec = 100'000};
    if (::select(STDIN_FILENO + 1, &ready, nullptr, nullptr, &wait) <= 0) continue;
    if (::read(STDIN_FILENO, &c, 1) != 1) return Error{ErrorCode::io, "not pulled"};
    if (c == '\n') break;
    answer += c;
  }
  if (signal_ != 0) return interrupted();
  const bool is_yes = answer.empty() || answer == "y" || answer == "Y" || answer == "yes";
  return is_yes ? Status(Ok{}) : Error{ErrorCode::io, "not pulled"};
}

std::string Puller::kept(const PullPlan& plan, const std::string& text) const {
  std::uint64_t arrived = 0;
  for (const WantedFile& file : plan.files) {
    const auto whole = file.sha256.empty() ? Result<bool>(false) : store_.has_blob(file.sha256, file.bytes);
    arrived += whole && *whole ? file.bytes : arrived_bytes(store_, file);
  }
  if (arrived == 0) return {};
  return fmt::format("{}{} are kept: `{}` goes on from there", size_text(arrived),
                     plan.bytes() == 0 ? "" : " of " + size_text(plan.bytes()), command_again(options_, text));
}

Result<StoredModel> Puller::fetch(const PullPlan& plan, std::vector<StoreLock>& held) {
  StoredModel model = plan.model;
  const std::uint64_t total = plan.bytes();
  std::uint64_t done_before = 0;
  TransferOptions transfer{.connections = static_cast<int>(options_.pull_connections),
                           .max_store_bytes = options_.store_quota.count};
  transfer.progress = [&](std::uint64_t done, std::uint64_t size) {
    report_.update(done_before + done, total != 0 ? total : size);
  };
  // All of it has to fit before its first part is fetched; each file is held against the disk again.
  std::uint64_t missing = 0;
  for (const WantedFile& file : plan.files) {
    const auto has = file.sha256.empty() ? Result<bool>(false) : store_.has_blob(file.sha256, file.bytes);
    if (!has) return has.error();
    if (!*has) missing += file.bytes - std::min(file.bytes, arrived_bytes(store_, file));
  }
  if (const auto free = store_.free_bytes(); free && missing > *free)
    return Error{ErrorCode::io, fmt::format("{} needs {} more, and {} has {} free; remove models (`troupe rm`, `troupe "
                                            "prune`), or name another folder (--store)",
                                            plan.model.name, size_text(missing), store_.path(), size_text(*free))};
  if (options_.store_quota.count != 0 && store_.used_bytes() + missing > options_.store_quota.count)
    return Error{
        ErrorCode::io,
        fmt::format("{} needs {} more, and --store-quota {} leaves {}; remove models (`troupe rm`, `troupe prune`)",
                    plan.model.name, size_text(missing), size_text(options_.store_quota.count),
                    size_text(options_.store_quota.count - std::min(store_.used_bytes(), options_.store_quota.count)))};
  for (const WantedFile& file : plan.files) {
    auto stored = fetch_file(store_, network_, file, transfer, held);
    if (!stored) return stored.error();
    done_before += stored->bytes;
    model.files.push_back(*std::move(stored));
  }
  return model;
}

// What is replaced goes when no pull runs; else `troupe prune` takes it.
void Puller::remove_files_of(const StoredModel& model) {
  if (const auto alone = store_.in_use(true); alone && *alone) (void)store_.unused(true, &model);
}

Status Puller::take(const PullPlan& plan, StoredModel model, const std::optional<StoredModel>& before) {
  const auto path = store_.link_files(model);
  if (!path) return path.error();
  auto family = judge_model(*path);
  if (!family)
    return Error{family.error().code,
                 fmt::format("{}: no server would take it: {}", plan.model.name, family.error().message)};
  model.family = *std::move(family);
  model.pulled = static_cast<std::int64_t>(std::time(nullptr));
  const bool is_new = !before || !has_same_files(*before, model);
  if (Status published = store_.publish(model); !published) return published;
  report_.pulled(model, *path, is_new);
  return Ok{};
}

// Who removes files holds the store for a moment.
Result<StoreLock> Puller::use_store() const {
  for (int attempt = 0; attempt < 100 && signal_ == 0; ++attempt) {
    auto use = store_.in_use(false);
    if (!use) return use.error();
    if (*use) return *std::move(*use);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  if (signal_ != 0) return interrupted();
  return Error{ErrorCode::busy, store_.path_of("partial/in-use") + ": another program holds this lock; try again"};
}

Puller::Outcome Puller::pull_alone(const std::string& text) {
  const auto source = parse_source(text, hosts_);
  if (!source) return {source.error()};
  const auto use = use_store();
  if (!use) return {use.error()};
  auto plan = make_plan(store_, network_, *source, hosts_,
                        {.memory = options_.memory.count,
                         .context = static_cast<std::uint32_t>(options_.ctx_size),
                         .max_store_bytes = options_.store_quota.count});
  if (!plan) return {plan.error()};
  if (!options_.pull_name.empty()) plan->model.name = options_.pull_name;
  if (const std::string problem = problem_of_store_name(plan->model.name); !problem.empty())
    return {Error{ErrorCode::invalid_argument, problem + "; give it one with --name"}};
  const auto before = find_before(*plan);
  if (!before) return {before.error()};
  if (*before) plan->model.name = (*before)->name;  // as a hub writes it, whatever was typed
  if (options_.ask)
    if (Status agreed = ask(*plan); !agreed) return {agreed.error()};
  report_.begin(*plan);
  std::vector<StoreLock> held;
  const auto model = fetch(*plan, held);
  report_.erase();
  if (!model) {
    const std::string how = kept(*plan, text);
    return {Error{model.error().code, fmt::format("{}{}{}", model.error().message, how.empty() ? "" : "; ", how)}};
  }
  if (Status taken = take(*plan, *model, *before); !taken) {
    const ErrorCode code = taken.error().code;
    if (code == ErrorCode::bad_model || code == ErrorCode::unsupported) return {taken, *model};
    return {Error{code, taken.error().message + "; its files are kept: pull it again"}};
  }
  if (*before && !has_same_files(**before, *model)) return {Ok{}, *before};
  return {Ok{}};
}

// The model that has the name already, if it comes from the same place.
Result<std::optional<StoredModel>> Puller::find_before(const PullPlan& plan) const {
  const auto listing = store_.list();
  if (!listing) return listing.error();
  const auto found = std::find_if(listing->models.begin(), listing->models.end(),
                                  [&](const StoredModel& each) { return same_name(each.name, plan.model.name); });
  if (found == listing->models.end()) return std::optional<StoredModel>();
  if (found->source == plan.model.source) return std::optional(*found);
  return Error{
      ErrorCode::invalid_argument,
      fmt::format("{} is in the store already, from {}; give this one another name (--name), or remove that one "
                  "(`troupe rm`)",
                  found->name, Printable(found->source, 256).text())};
}

Status Puller::pull(const std::string& text) {
  const Outcome outcome = pull_alone(text);
  if (outcome.unneeded) remove_files_of(*outcome.unneeded);
  return outcome.status;
}

}  // namespace

Result<int> pull(const config::PullCommandOptions& options, const config::Given& given) {
  if (given.arguments.empty())
    return Error{ErrorCode::invalid_argument,
                 "what to pull is missing: ORG/NAME[:QUANT] of a hub, https://HOST/FILE.gguf, or ollama://NAME[:TAG]"};
  if (given.arguments.size() > 1 && !options.pull_name.empty())
    return Error{ErrorCode::invalid_argument, "--name is that of one model; pull the others without it"};
  auto hosts = find_hosts();
  if (!hosts) return hosts.error();
  auto token = find_token(options.token_file);
  if (!token) return token.error();
  if (!token->note.empty()) complain("troupe pull", token->note);
  const auto place =
      options.system_store ? Result<StorePlace>(StorePlace{kMachineStore, true}) : own_store(options.store);
  if (!place) return place.error();
  const auto store = Store::open(*place, true);
  if (!store) return store.error();
  NetworkOptions network{.token = token->text,
                         .token_for = hosts->hub,
                         .token_from = token->from,
                         .ca_file = options.ca_file.empty() ? absolute_variable("SSL_CERT_FILE") : options.ca_file,
                         .allow_http = options.allow_http,
                         .timeout = options.pull_timeout,
                         .retries = static_cast<int>(options.pull_retries)};
  Puller puller(options, *store, *std::move(hosts), std::move(network));
  for (const std::string& text : given.arguments) {
    const Status pulled = puller.pull(text);
    if (puller.signal() != 0 && !pulled) {
      complain("troupe pull", pulled.error().message);
      return kExitSignalBase + puller.signal();
    }
    if (!pulled)
      return Error{pulled.error().code, given.arguments.size() == 1 ? pulled.error().message
                                                                    : fmt::format("{}: {}", Printable(text, 256).text(),
                                                                                  pulled.error().message)};
  }
  return kExitOk;
}

}  // namespace troupe::cli
