#include "cli/serve/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <limits>
#include <optional>
#include <utility>

#include "actors/models/model_catalog.h"
#include "cli/serve/serve_options.h"
#include "cli/serve/tcp_access.h"
#include "cli/serve/tenant_rules.h"
#include "cli/terminal/text.h"
#include "config/printable.h"
#include "config/system_error.h"
#include "engine/chat/builtin_templates.h"
#include "engine/chat/template.h"
#include "engine/model/file_verdict.h"
#include "engine/model/kernel_choice.h"
#include "engine/model/memory_budget.h"
#include "engine/tokenizers/tokenizer.h"
#include "ipc/sockets/socket_path.h"
#include "ipc/sockets/strict_modes.h"

namespace troupe::cli {
namespace {

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

// Where an option was given, for a message that does not say it.
std::string place_of(const config::Given& given, const std::string& option) {
  const auto found = given.origins.find(option);
  return found == given.origins.end() ? "--" + option : found->second;
}

// The most KV blocks that the model can have; none: that depends on other models, or on what memory is free then.
Result<std::optional<std::uint32_t>> most_blocks(const engine::ModelFile& file, const engine::LoadOptions& load,
                                                 std::uint64_t budget) {
  const auto family = engine::find_family(file);
  if (!family) return std::optional<std::uint32_t>();  // an encoder
  if (load.num_blocks != 0) return std::optional(load.num_blocks);
  if (budget == 0) return std::optional<std::uint32_t>();
  const auto kernels = engine::choose_kernels(file, load, nullptr);
  if (!kernels) return kernels.error();
  const auto outline = (*family)->outline(file, load);
  if (!outline) return outline.error();
  const std::uint64_t weights = engine::packed_weight_bytes(file, **kernels) + outline->table_bytes;
  const auto plan = engine::plan_cache(outline->cache, outline->info.context, load, budget - std::min(budget, weights));
  if (!plan) return plan.error();
  return std::optional(plan->num_blocks[0]);
}

Status check_template_name(const engine::ModelFile& file, const actors::ChatTemplateChoice& choice) {
  if (choice.name.empty() || !choice.source.empty()) return Ok{};
  const auto own = engine::find_chat_templates(file);
  if (!own) return own.error();
  for (const auto& [name, source] : *own)
    if (choice.name == (name.empty() ? "default" : name) || (choice.name == "default" && own->size() == 1)) return Ok{};
  return Error{ErrorCode::bad_config,
               fmt::format("'{}' is no file, none of troupe's templates, and none of the model's file",
                           Printable(choice.name).text())};
}

// Of the templates that conversations would be rendered by, the first one that cannot be used: it is none, or its trial
// takes too long.
Status check_templates(const engine::ModelFile& file, const actors::ChatTemplateChoice& choice,
                       const engine::chat::Limits& limits) {
  std::vector<std::pair<std::string, std::string>> used;
  if (!choice.source.empty()) {
    used.emplace_back(choice.name, choice.source);
  } else if (const auto own = engine::find_chat_templates(file)) {
    const std::string chosen = choice.name == "default" ? "" : choice.name;
    for (const auto& [name, source] : *own)
      if (name == chosen || (chosen.empty() && (name == "default" || name == "tool_use")))
        used.emplace_back(name.empty() ? "default" : name, source);
  }
  for (const auto& [name, source] : used) {
    const auto parsed = engine::chat::ChatTemplate::parse(source, name, limits);
    if (!parsed) return parsed.error();
    engine::chat::TimeBudget time = engine::chat::trial_time();
    if (const Status tried = (*parsed)->try_out(time); !tried) return tried;
  }
  return Ok{};
}

class Checker {
 public:
  Checker(const config::ServeOptions& options, const config::Given& given) : options_(options), given_(given) {}

  ServeCheck run() {
    check_access();
    check_models();
    note("", check_socket());
    note("", check_log_file(options_.log_file, "log-file"));
    if (options_.has_access_file()) note("", check_log_file(options_.access_log, "access-log"));
    found_.summary = fmt::format("{}: nothing to complain of: {} model{} ({}), {} tenant rules",
                                 given_.file.empty() ? "no configuration file" : given_.file, names_.size(),
                                 names_.size() == 1 ? "" : "s", fmt::join(names_, ", "), given_.tenants.size()) +
                     remarks_;
    return std::move(found_);
  }

  std::vector<std::string> run_for_reload(const std::set<int>& served) {
    served_ = served;
    auto server = server_options(options_, given_);
    if (server)
      rules_ = std::move(server->tenants);
    else
      note("", server.error());
    check_models();
    return std::move(found_.problems);
  }

 private:
  void note(const std::string& place, const Status& done) {
    if (!done) found_.problems.push_back(place + done.error().message);
  }

  // Users, groups, rules, addresses, keys and the certificate.
  void check_access() {
    auto server = server_options(options_, given_);
    if (!server) return note("", server.error());
    rules_ = server->tenants;
    TcpAccess tcp;
    note("", tcp.open(options_, given_, *server));
  }

  void check_models() {
    Listing listing;
    auto gateway = gateway_options(options_, given_, &found_.problems, &listing);
    if (!gateway) return note("", gateway.error());
    if (gateway->models.size() > 1 && gateway->memory != 0) left_ = gateway->memory;
    for (std::size_t i = 0; i < std::min(listing.left_out.size(), kMaxToldLeftOut); ++i)
      remarks_ += "; " + listing.left_out[i];
    if (listing.left_out.size() > kMaxToldLeftOut)
      remarks_ += fmt::format("; {} more are left out", listing.left_out.size() - kMaxToldLeftOut);
    const std::size_t num_named = gateway->models.size() - listing.tables.size();
    for (std::size_t i = 0; i < num_named; ++i) {
      actors::ModelSource& source = gateway->models[i];
      source.load.max_sequences = options_.max_sequences;
      // With tables the line of the model's; else where -m stands, or nothing of the model that is served by itself.
      const std::string place = i < given_.models.size() ? fmt::format("{}:{}: ", given_.file, given_.models[i].line)
                                : options_.model.empty() ? ""
                                                         : place_of(given_, "model") + ": ";
      if (i < given_.models.size() && served_.contains(given_.models[i].line))
        count_served(source);
      else
        note(place, check_model(source, gateway->models.size() == 1 || source.on_request ? gateway->memory : 0));
    }
    for (const config::ModelTable& listed : listing.tables) names_.push_back(listed.name);
  }

  void count_served(const actors::ModelSource& source) {
    const actors::CatalogEntry entry = actors::describe(source);
    for (const std::string& name : actors::names_of(entry)) taken_.push_back(name);
    if (left_ && !entry.problem && !source.on_request) *left_ -= std::min(*left_, entry.demand.least());
  }

  // memory: of the server, if the model is the only one, or may have all that others leave.
  Status check_model(const actors::ModelSource& source, std::uint64_t memory) {
    const actors::CatalogEntry entry = actors::describe(source);
    if (entry.problem) return *entry.problem;
    for (const std::string& name : actors::names_of(entry)) {
      if (std::ranges::find(taken_, name) != taken_.end())
        return Error{ErrorCode::bad_config,
                     fmt::format("two models are called \"{}\", or one twice; give {} another name",
                                 Printable(name).text(), source.path)};
      taken_.push_back(name);
    }
    names_.push_back(entry.name);
    // What is free now says nothing of the start: a server that runs may hold it.
    const std::uint64_t known = source.load.memory != 0 ? source.load.memory : memory;
    const std::uint64_t budget = known != 0 ? known : std::numeric_limits<std::uint64_t>::max();
    const auto judged = engine::judge_file(*entry.file, source.load, budget);
    if (!judged) return judged.error();
    const bool takes_memory = left_ && !source.on_request;
    if (takes_memory && entry.demand.least() > *left_)
      return Error{ErrorCode::out_of_memory,
                   fmt::format("model {} needs {}, and the models before it leave {} of --memory {}; give the models "
                               "more memory, or a smaller context",
                               entry.name, human_bytes(entry.demand.least()), human_bytes(*left_),
                               human_bytes(options_.memory.count))};
    if (takes_memory) *left_ -= entry.demand.least();
    if (entry.draft_file)
      if (const auto draft = engine::judge_file(*entry.draft_file, {}, budget); !draft)
        return Error{draft.error().code, "the draft model: " + draft.error().message};
    if (Status found = check_template_name(*entry.file, source.chat_template); !found)
      return Error{found.error().code, fmt::format("{}: {}",
                                                   given_.origins.contains("chat-template")
                                                       ? place_of(given_, "chat-template") + ": chat-template"
                                                       : "chat-template",
                                                   found.error().message)};
    note_missing_template(*entry.file, source.chat_template, judged->get());
    if (!engine::is_encoder(*entry.file))
      if (Status usable =
              check_templates(*entry.file, source.chat_template, {.max_value_bytes = options_.max_rendering_bytes});
          !usable)
        return usable;
    if (!rules_) return Ok{};
    const bool shares = source.load.memory == 0 && memory != 0;
    const auto blocks = most_blocks(*entry.file, source.load,
                                    shares ? actors::part_of_only_model(entry.demand.least(), memory) : known);
    if (!blocks) return blocks.error();
    if (*blocks) note("", check_kept_blocks(given_, *rules_, **blocks));  // has file and line of the rule
    return Ok{};
  }

  // No problem: texts are served.
  void note_missing_template(const engine::ModelFile& file, const actors::ChatTemplateChoice& choice,
                             const engine::Tokenizer* vocabulary) {
    const auto own = engine::find_chat_templates(file);
    if (!choice.name.empty() || !own || !own->empty() || engine::is_encoder(file)) return;
    const std::string_view likely = engine::chat::likely_template(file, vocabulary);
    remarks_ += fmt::format("; {} has no chat template, so that conversations are refused{}", names_.back(),
                            likely.empty() ? "" : fmt::format("; --chat-template {} is that of its kind", likely));
  }

  Status check_socket() const {
    if (options_.socket.empty()) {
      const auto chosen = ipc::server_socket_path(ipc::SocketEnvironment::current());
      return chosen ? ipc::check_no_other_file(*chosen) : Status(chosen.error());
    }
    Status found = ipc::check_socket_path(options_.socket);
    if (found) found = ipc::check_no_other_file(options_.socket);
    if (found && !options_.no_strict_modes) found = ipc::check_way_to(folder_of(options_.socket));
    if (found) return found;
    return Error{found.error().code, fmt::format("{}: {}", place_of(given_, "socket"), found.error().message)};
  }

  Status check_log_file(const std::string& path, const char* option) const {
    if (path.empty()) return Ok{};
    std::error_code ignored;
    if (std::filesystem::is_directory(path, ignored))
      return system_error(fmt::format("{}: {} cannot be written", place_of(given_, option), path), EISDIR,
                          ErrorCode::bad_config);
    if (::access(path.c_str(), W_OK) == 0) return Ok{};
    const bool is_new = errno == ENOENT;
    if (is_new && ::access(folder_of(path).c_str(), W_OK | X_OK) == 0) return Ok{};
    return system_error(fmt::format("{}: {} cannot be written", place_of(given_, option), path), errno,
                        ErrorCode::bad_config);
  }

  const config::ServeOptions& options_;
  const config::Given& given_;
  std::optional<ipc::TenantRules> rules_;
  std::vector<std::string> names_;     // of models
  std::vector<std::string> taken_;     // those, and their aliases
  std::optional<std::uint64_t> left_;  // of the memory that several models share, after those that were judged
  std::string remarks_;                // lines below the summary
  std::set<int> served_;               // lines of tables that are served as they are
  ServeCheck found_;
};

}  // namespace

ServeCheck check_serve(const config::ServeOptions& options, const config::Given& given) {
  return Checker(options, given).run();
}

std::vector<std::string> check_reload(const config::ServeOptions& options, const config::Given& given,
                                      const std::set<int>& served) {
  return Checker(options, given).run_for_reload(served);
}

}  // namespace troupe::cli
