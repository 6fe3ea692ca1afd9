#include "cli/serve/serve_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <sstream>
#include <vector>

#include "actors/models/model_catalog.h"
#include "cli/model/model_options.h"
#include "cli/serve/tenant_rules.h"
#include "cli/store/find_model.h"
#include "cli/terminal/accounts.h"
#include "cli/terminal/logging.h"
#include "cli/terminal/text.h"
#include "config/options/values.h"
#include "config/plain_file.h"
#include "config/printable.h"
#include "config/state_directory.h"
#include "engine/chat/builtin_templates.h"
#include "engine/chat/template.h"
#include "engine/chat/tools/tool_format.h"
#include "engine/chat/values/limits.h"
#include "engine/compute/step_profile.h"
#include "engine/formats/model_file.h"
#include "engine/formats/split_name.h"
#include "engine/model/memory_budget.h"
#include "engine/weights/model_info.h"
#include "engine/weights/tensor_reader.h"
#include "ipc/http/tls_front.h"

namespace troupe::cli {
namespace {

using Finder = Result<std::optional<std::uint32_t>> (*)(const std::string&);

// The error of a value of this option, with where it was given.
Error named_error(const config::Given& given, std::string_view option, const std::string& message) {
  const auto origin = given.origins.find(option);
  std::string source = origin == given.origins.end() ? fmt::format("--{}", option) : origin->second;
  const bool is_flag = source.starts_with("--");
  if (!given.file.empty() && source.starts_with(given.file + ":")) source += fmt::format(": {}", option);
  return {is_flag ? ErrorCode::invalid_argument : ErrorCode::bad_config, fmt::format("{}: {}", source, message)};
}

// Calls `f` with each of the values that were given, one by one or separated by commas.
template <class F>
Status for_each_value(const std::vector<std::string>& lists, F f) {
  for (const std::string& list : lists) {
    std::istringstream items(list);
    for (std::string item; std::getline(items, item, ',');)
      if (Status done = f(item); !done) return done;
  }
  return Ok{};
}

// Adds the ids of an option's names to `ids`.
Status add_named(const config::Given& given, std::string_view option, const std::vector<std::string>& lists,
                 Finder find, std::vector<std::uint32_t>& ids) {
  return for_each_value(lists, [&](const std::string& name) -> Status {
    auto id = find(name);
    if (!id) return Error{id.error().code, named_error(given, option, id.error().message).message};
    if (!*id) return named_error(given, option, fmt::format("this system knows nobody named '{}'", name));
    ids.push_back(**id);
    return Ok{};
  });
}

// Resident code and libraries, stacks, the vocabulary and the actors' own memory: 60 MiB with the embedded model,
// 110 MiB with a vocabulary of 256,000 tokens.
constexpr std::uint64_t kProgramBytes = 128u << 20;
// A frame of many tiny entries takes this many times its bytes when decoded; one frame is decoded at a time.
constexpr std::uint64_t kDecodedFactor = 30;
// A text takes this many times its bytes while it is encoded: the worst case, one long word, with ids and answer.
constexpr std::uint64_t kEncodedFactor = 64;
// A connection without its large messages and its answers: four buffers of a small frame (what an HTTP client sends
// ahead, a head and a body), its session, the kernel's part.
constexpr std::uint64_t kConnectionBytes = 4 * ipc::kSmallFrameBytes + (16u << 10);
// scrypt's table, of the one key that is checked at a time.
constexpr std::uint64_t kScryptBytes = 8u << 20;
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
  // One on each text thread (one more than those for large texts), and the trial of the model that is being loaded. Any
  // of the prompts may be long.
  const engine::chat::Limits rendering;
  const std::uint64_t requests = options.max_queued_requests + options.max_parked_requests + options.max_sequences;
  return {
      {"weights, KV cache, snapshots", budget, "memory"},
      {"frames half read, answers unread", options.max_buffer_bytes, "max-buffer-bytes"},
      {"a large frame, decoded", kDecodedFactor * options.max_frame_bytes, "max-frame-bytes"},
      {"connections", kConnectionBytes * options.max_connections, "max-connections"},
      {"TLS connections", options.tls_cert.empty() ? 0 : 2 * ipc::http::kTlsConnectionBytes * options.max_connections,
       "max-connections, tls-cert"},
      {"a key being checked", options.listen.empty() ? 0 : kScryptBytes, "listen"},
      {"requests", kRequestBytes * requests, "max-queued-requests, max-parked-requests, parallel"},
      {"prompts that wait", sizeof(std::int32_t) * options.max_queued_tokens, "max-queued-tokens"},
      {"sequences", kTokenBytes * context * options.max_sequences, "parallel, ctx-size"},
      {"texts that wait", options.max_queued_text_bytes, "max-queued-text-bytes"},
      {"conversations being rendered", options.max_rendering_bytes * (options.tokenizer_threads + 2),
       "max-rendering-bytes, tokenizer-threads"},
      {"texts being encoded",
       kEncodedFactor * std::max<std::uint64_t>(options.max_frame_bytes, rendering.max_output_bytes) *
           (options.tokenizer_threads + 1),
       "max-frame-bytes, tokenizer-threads"},
      {"requests for vectors", options.max_embed_bytes, "max-embed-bytes"},
      {"sessions read and saved", options.max_session_buffer_bytes, "max-session-buffer-bytes"},
      {"the program itself", kProgramBytes, "a constant"},
  };
}

Status add_http(const config::Given& given, const config::ServeOptions& options, ipc::HttpOptions& http) {
  http.no_auth = options.no_auth;
  Status added = for_each_value(options.listen, [&](const std::string& text) -> Status {
    const auto address = ipc::parse_tcp_address(text);
    if (!address) return named_error(given, "listen", address.error().message);
    http.listen.push_back(*address);
    return Ok{};
  });
  if (!added) return added;
  added = for_each_value(options.allow_host, [&](const std::string& text) -> Status {
    auto host = ipc::http::host_name(text);
    if (!host)
      return named_error(given, "allow-host",
                         fmt::format("'{}' is no host name; write it without a port", Printable(text).text()));
    http.border.allow_hosts.push_back(std::move(*host));
    return Ok{};
  });
  if (!added) return added;
  return for_each_value(options.cors_origin, [&](const std::string& text) -> Status {
    if (!ipc::http::is_origin(text))
      return named_error(
          given, "cors-origin",
          fmt::format("'{}' is no origin; write https://example.org, without a path, or *", Printable(text).text()));
    http.border.cors_origins.push_back(text);
    return Ok{};
  });
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
  server.limits = options;
  if (Status added = add_http(given, options, server.http); !added) return added.error();
  return server;
}

namespace {

// The source of a template's file; empty for a name of ours, and for one that may be in the model's file, which is not
// open yet.
Result<std::string> read_chat_template(const std::string& option) {
  const bool is_path = option.find('/') != std::string::npos || std::filesystem::exists(option);
  if (option.empty() || engine::chat::find_builtin_template(option) || !is_path) return std::string();
  auto source = read_plain_file(option, engine::chat::Limits{}.max_source_bytes);
  if (!source) return Error{ErrorCode::bad_config, "--chat-template: " + source.error().message};
  // Read now, so that a mistake in it is found before the model is loaded.
  const auto parsed = engine::chat::ChatTemplate::parse(*source, option);
  if (!parsed) return Error{ErrorCode::bad_config, "--chat-template: " + parsed.error().message};
  if (source->empty()) return Error{ErrorCode::bad_config, "--chat-template: " + option + " is empty"};
  return source;
}

Result<engine::Speculation> read_speculation(const config::SpeculationOptions& options, bool has_draft) {
  engine::Speculation speculation;
  speculation.source = engine::DraftSource::automatic;
  if (!options.spec_type.empty()) {
    const auto source = engine::draft_source(options.spec_type);
    if (!source)
      return Error{ErrorCode::invalid_argument,
                   fmt::format("--spec-type: '{}' is none of {}", Printable(options.spec_type).text(),
                               fmt::join(engine::kDraftSourceNames, ", "))};
    if (*source == engine::DraftSource::draft && !has_draft)
      return Error{ErrorCode::invalid_argument, "--spec-type draft needs a draft model: --draft FILE"};
    speculation.source = *source;
  }
  if (options.spec_draft_n_max >= 0) speculation.n_max = static_cast<std::uint32_t>(options.spec_draft_n_max);
  if (options.spec_draft_n_min >= 0) speculation.n_min = static_cast<std::uint32_t>(options.spec_draft_n_min);
  if (options.spec_draft_p_min >= 0) speculation.p_min = static_cast<float>(options.spec_draft_p_min);
  return speculation;
}

}  // namespace

namespace {

// Whether a flag or a variable sets the option: those beat what a table of the file says.
bool beats_file(const config::Given& given, std::string_view option) {
  const auto origin = given.origins.find(option);
  return origin != given.origins.end() && (origin->second.starts_with("--") || origin->second.starts_with("TROUPE_"));
}

// A name of the store becomes a path.
Status find_file(config::ModelTable& table, const config::StoreDirOptions& options, const config::Given& given) {
  auto found = find_model(table.path, options);
  if (!found)
    return Error{found.error().code, table.line > 0
                                         ? fmt::format("{}:{}: {}", given.file, table.line, found.error().message)
                                         : found.error().message};
  table.path = *std::move(found);
  return Ok{};
}

// The models that are named, by [[model]] tables or by -m; if none is, and none listed, the embedded one.
Result<std::vector<config::ModelTable>> model_tables(const config::ServeOptions& options, const config::Given& given) {
  std::vector<config::ModelTable> tables = given.models;
  for (const std::string& text : options.model) {
    if (!given.models.empty() || text.empty()) continue;
    auto model = config::parse_model(text);
    if (!model) return config::bad_value(given, "model", model.error().message);
    tables.push_back(std::move(*model));
  }
  for (config::ModelTable& table : tables)
    if (Status found = find_file(table, options, given); !found) return found.error();
  if (!options.hf_repo.empty()) {
    auto found = find_stored_model(options.hf_repo, options);
    if (!found) return found.error();
    tables.emplace_back().path = *std::move(found);
  }
  if (tables.empty() && !has_listing(options)) {
    auto embedded = model_path(config::ModelOptions{});
    if (!embedded) return embedded.error();
    tables.emplace_back().path = std::move(*embedded);
  }
  if (tables.size() > actors::kMaxModels)
    return config::bad_value(given, "model",
                             fmt::format("{} models; at most {} are served", tables.size(), actors::kMaxModels));
  return tables;
}

// A format of calls by its name, which a flag, a variable or a table gives.
Status check_tool_format(const std::string& name) {
  if (name.empty() || engine::chat::find_tool_format(name) != nullptr) return Ok{};
  return Error{
      ErrorCode::bad_config,
      fmt::format("tool-format: there is no format '{}'; `troupe tools formats` lists them", Printable(name).text())};
}

// The names that --alias gives; empty: it is not set.
Result<std::vector<std::string>> alias_names(const config::ServeOptions& options) {
  if (options.alias.empty()) return std::vector<std::string>();
  auto names = config::parse_names(options.alias);
  if (!names) return Error{ErrorCode::invalid_argument, "--alias: " + names.error().message};
  return names;
}

// The keys of a model with what flags and variables say of it: they beat the file. Options that belong to one model are
// the first one's: --alias (of which `names` are), --draft and --chat-template.
config::ModelKeys keys_of(const config::ModelTable& table, bool is_first, const config::ServeOptions& options,
                          const std::vector<std::string>& names, const config::Given& given) {
  config::ModelKeys keys = table;
  // Without a value of its own a model has that of the option.
  if (beats_file(given, "kv-type")) keys.kv_type.clear();
  if (beats_file(given, "predict")) keys.predict.reset();
  if (beats_file(given, "ctx-size")) keys.ctx_size.reset();
  if (beats_file(given, "kv-blocks")) keys.kv_blocks.reset();
  if (beats_file(given, "keep-alive")) keys.keep_alive.clear();
  if (keys.tool_format.empty() || beats_file(given, "tool-format")) keys.tool_format = options.tool_format;
  if (!is_first) return keys;
  const auto take = [&](std::string& value, const std::string& option, std::string_view name) {
    if (!option.empty() && (value.empty() || beats_file(given, name))) value = option;
  };
  if (!names.empty() && (keys.name.empty() || beats_file(given, "alias"))) {
    keys.name = names.front();
    if (names.size() > 1) keys.aliases.assign(names.begin() + 1, names.end());
  }
  take(keys.draft, options.draft, "draft");
  take(keys.chat_template, options.chat_template, "chat-template");
  return keys;
}

// problem: is set where the chat template or the format of calls cannot be used.
actors::ModelSource model_source(const config::ModelTable& table, config::ModelKeys keys, const config::Given& given,
                                 const actors::GatewayOptions& gateway, std::optional<Error>& problem) {
  const auto in_table = [&](const Error& error) {
    return Error{error.code, fmt::format("{}:{}: {}", given.file, table.line, error.message)};
  };
  auto chat_template = read_chat_template(keys.chat_template);
  if (!chat_template)
    problem = keys.chat_template == table.chat_template && table.line > 0 ? in_table(chat_template.error())
                                                                          : chat_template.error();
  if (const Status known = check_tool_format(keys.tool_format); !known)
    problem = keys.tool_format == table.tool_format
                  ? in_table(known.error())
                  : config::bad_value(given, "tool-format", known.error().message.substr(13));
  // Without the template that cannot be read.
  if (!chat_template) keys.chat_template.clear();
  return actors::source_of(
      {.keys = std::move(keys), .chat_template_source = chat_template ? *std::move(chat_template) : ""}, gateway.load,
      gateway.predict, gateway.keep_alive);
}

// Adds what is listed beside these models and can be served; nothing is loaded.
Result<Listing> add_listed(const config::ServeOptions& options, const config::Given& given,
                           actors::GatewayOptions& gateway) {
  std::vector<config::ModelTable> named;
  for (const actors::ModelSource& source : gateway.models) {
    config::ModelTable& table = named.emplace_back();
    table.path = source.path;
    table.name = actors::describe(source).name;
    table.aliases = source.aliases;
  }
  auto listing = list_models(options, named);
  if (!listing) return listing;
  std::size_t num_more = 0;
  std::erase_if(listing->tables, [&](const config::ModelTable& table) {
    if (gateway.models.size() >= actors::kMaxModels) return ++num_more > 0;
    actors::ModelSource source =
        actors::source_of({.keys = keys_of(table, false, options, {}, given), .chat_template_source = ""}, gateway.load,
                          gateway.predict, gateway.keep_alive);
    actors::CatalogEntry entry = actors::describe(source);
    std::string why = entry.problem ? entry.problem->message : "";
    if (why.empty() && gateway.memory != 0 && entry.demand.least() > gateway.memory)
      why =
          fmt::format("{}: it needs {} with its whole context, and --memory is {}; less with a smaller --ctx-size (-c)",
                      table.path, human_bytes(entry.demand.least()), human_bytes(gateway.memory));
    if (!why.empty()) {
      listing->left_out.push_back(fmt::format("{} is left out: {}", Printable(table.name).text(), why));
      listing->troubled.push_back(table.name);
      return true;
    }
    entry.file = nullptr;
    source.described = std::make_shared<const actors::CatalogEntry>(std::move(entry));
    gateway.models.push_back(std::move(source));
    return false;
  });
  if (num_more > 0)
    listing->left_out.push_back(
        fmt::format("{} more models are left out: a server has at most {}", num_more, actors::kMaxModels));
  if (gateway.models.empty())
    return Error{ErrorCode::model_missing,
                 fmt::format("there is no model to serve: {}{}; put GGUF files there, or name a model with -m",
                             options.models_dir.empty() ? "`troupe list` shows none that can be served"
                                                        : fmt::format("{} has none", options.models_dir),
                             listing->left_out.empty() ? "" : fmt::format(" ({})", listing->left_out.front()))};
  return listing;
}

}  // namespace

Result<actors::GatewayOptions> gateway_options(const config::ServeOptions& options, const config::Given& given,
                                               std::vector<std::string>* problems, Listing* listing) {
  const auto names = alias_names(options);
  if (!names) return names.error();
  const auto load = load_options(options, given);
  if (!load) return load.error();
  const auto tables = model_tables(options, given);
  if (!tables) return tables.error();
  actors::GatewayOptions gateway;
  gateway.memory = load->memory;
  gateway.load = *load;
  gateway.load.context = static_cast<std::uint32_t>(options.ctx_size);
  gateway.load.num_blocks = static_cast<std::uint32_t>(options.kv_blocks);
  if (options.predict == 0)
    return config::bad_value(given, "predict", "an answer has at least one token; -1 is no limit");
  gateway.predict = config::answer_length(options.predict);
  const auto keep_alive = config::parse_keep_alive(options.keep_alive);
  if (!keep_alive)
    return config::bad_value(
        given, "keep-alive",
        fmt::format("'{}' is no time: 10m, 90s, 0 or forever", Printable(options.keep_alive).text()));
  gateway.keep_alive = *keep_alive;
  for (const config::ModelTable& table : *tables) {
    std::optional<Error> problem;
    config::ModelKeys keys = keys_of(table, gateway.models.empty(), options, *names, given);
    gateway.models.push_back(model_source(table, std::move(keys), given, gateway, problem));
    if (problem && problems == nullptr) return *problem;
    if (problem) problems->push_back(problem->message);
    std::string& draft = gateway.models.back().draft_path;
    if (draft.empty()) continue;
    auto found = find_model(draft, options);
    if (!found) return Error{found.error().code, "the draft model: " + found.error().message};
    draft = *std::move(found);
  }
  if (has_listing(options)) {
    auto listed = add_listed(options, given, gateway);
    if (!listed) return listed.error();
    if (listing != nullptr) *listing = *std::move(listed);
  }
  auto speculation = read_speculation(
      options, std::ranges::any_of(gateway.models, [](const auto& model) { return !model.draft_path.empty(); }));
  if (!speculation) return speculation.error();
  gateway.speculation = *speculation;
  gateway.num_threads = static_cast<std::uint32_t>(options.threads);
  static_cast<config::GatewayLimits&>(gateway) = options;
  const auto canaries = chosen_state_path(options.canary_file, "canary-file", "canaries.json");
  if (canaries)
    gateway.canary_file = canaries->empty() ? *canaries : std::filesystem::absolute(*canaries).string();
  else
    gateway.no_canary_file_because = canaries.error().message;
  const auto sessions = chosen_state_path(options.sessions_dir, "sessions-dir", "sessions");
  if (sessions)
    gateway.sessions_directory = *sessions;
  else
    gateway.no_sessions_because = sessions.error().message;
  if (options.profile) gateway.profiler = std::make_shared<engine::StepProfile>(cli::num_threads(options));
  return gateway;
}

Result<actors::ModelRequest> model_request(const config::ModelTable& table, const config::StoreDirOptions& options) {
  auto path = find_model(table.path, options, false);
  if (!path) return path.error();
  auto draft = table.draft.empty() ? Result<std::string>(std::string()) : find_model(table.draft, options, false);
  if (!draft) return draft.error();
  auto chat_template = read_chat_template(table.chat_template);
  if (!chat_template) return chat_template.error();
  if (const Status known = check_tool_format(table.tool_format); !known) return known.error();
  actors::ModelRequest request{.keys = table, .chat_template_source = *std::move(chat_template)};
  request.keys.path = *std::move(path);
  request.keys.draft = *std::move(draft);
  return request;
}

std::string served_name(const config::ModelTable& table, const config::StoreDirOptions& options) {
  if (!table.name.empty()) return table.name;
  const auto found = find_model(table.path, options, false);
  const std::string& path = found ? *found : table.path;
  const auto file = engine::open_gguf(path);
  return file ? engine::model_name(**file) : engine::name_after_file(path);
}

Result<std::string> limits_text(const config::ServeOptions& options, const config::Given& given) {
  auto tables = model_tables(options, given);
  if (!tables) return tables.error();
  const std::size_t num_named = tables->size();
  if (has_listing(options)) {
    auto listing = list_models(options, *tables);
    if (!listing) return listing.error();
    std::ranges::move(listing->tables, std::back_inserter(*tables));
  }
  std::uint64_t context = 0;  // the longest of any model
  for (std::size_t i = 0; i < tables->size(); ++i) {
    const config::ModelTable& table = (*tables)[i];
    const auto file = engine::open_gguf(table.path);
    if (!file && i >= num_named) continue;  // it is left out
    if (!file) return file.error();
    const std::uint64_t chosen = count(table.ctx_size.value_or(options.ctx_size));
    context = std::max(context, chosen != 0 ? chosen : engine::trained_context(**file));
  }
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
