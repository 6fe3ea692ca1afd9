// troupe model: lists, loads and unloads the models of a server.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <future>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/client/client_options.h"
#include "cli/status/model_check.h"
#include "cli/status/status_report.h"
#include "cli/store/find_model.h"
#include "cli/subcommands.h"
#include "cli/terminal/exit_code.h"
#include "cli/terminal/output.h"
#include "cli/terminal/status_line.h"
#include "cli/terminal/text.h"
#include "config/options/model_tables.h"
#include "config/options/values.h"
#include "config/plain_file.h"
#include "config/printable.h"
#include "config/sampling/sampling_numbers.h"
#include "engine/chat/values/limits.h"
#include "ipc/client/client.h"

namespace troupe::cli {
namespace {

using nlohmann::ordered_json;

// How often a load's progress is asked for.
constexpr std::chrono::milliseconds kProgressInterval{250};

Error misused(const std::string& what) {
  return {ErrorCode::invalid_argument,
          what + "; it is one of: ls, load [NAME=]FILE [KEY=VALUE...], unload NAME, info [NAME], check [NAME...]"};
}

std::string listed_names(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& each : names) text += (text.empty() ? "" : ", ") + Printable(each).text();
  return text;
}

std::string list_text(const client::ServerStatus& status) {
  std::size_t width = 4;
  for (const client::Health::Model& each : status.health.models) width = std::max(width, each.name.size());
  std::string text =
      fmt::format("{:<{}}  {:>10}  {:>10}  {:>8}  {}\n", "NAME", width, "WEIGHTS", "KV CACHE", "REQUESTS", "STATE");
  for (std::size_t i = 0; i < status.health.models.size(); ++i) {
    const client::Health::Model& model = status.health.models[i];
    const client::ServerStatus::ModelUse use =
        i < status.models.size() ? status.models[i] : client::ServerStatus::ModelUse{};
    const bool is_loaded = !use.numerics_id.empty();
    text += fmt::format("{:<{}}  {:>10}  {:>10}  {:>8}  {}{}\n", Printable(model.name).text(), width,
                        is_loaded ? human_bytes(use.weight_bytes) : "-", is_loaded ? human_bytes(use.kv_bytes) : "-",
                        use.requests_waiting + use.requests_running + use.requests_parked,
                        Printable(state_of(model), kMaxMessageBytes).text(), i == 0 ? " (default)" : "");
    if (!model.aliases.empty()) text.insert(text.size() - 1, "; also " + listed_names(model.aliases));
  }
  return text;
}

Result<int> list_models(client::Client& client, bool json) {
  const auto status = client.status();
  if (!status) return status.error();
  if (json)
    write_json({{"model_health", health_json(*status)}, {"model_use", use_json(*status)}}, std::cout);
  else
    std::cout << list_text(*status);
  return kExitOk;
}

// "temp 0.6, top-p 0.95, reasoning low, a system prompt of 120 bytes"
std::string defaults_text(const client::ModelDefaults& defaults) {
  std::vector<std::string> parts;
  config::for_each_sampling_number(
      [&](const config::SamplingNumber& number, const auto& value) {
        if (value) parts.push_back(fmt::format("{} {:g}", number.option, static_cast<double>(*value)));
      },
      defaults);
  if (!defaults.reasoning.empty()) parts.push_back("reasoning " + Printable(defaults.reasoning).text());
  if (defaults.reasoning_budget) parts.push_back(fmt::format("reasoning-budget {}", *defaults.reasoning_budget));
  if (!defaults.system.empty()) parts.push_back(fmt::format("a system prompt of {} bytes", defaults.system.size()));
  return parts.empty() ? "none" : fmt::format("{}", fmt::join(parts, ", "));
}

std::string info_text(const client::ModelDescription& model) {
  const auto id = [](const std::optional<TokenId>& token) { return token ? std::to_string(*token) : "none"; };
  return aligned(
      {{"name", Printable(model.name).text()},
       {"aliases", model.aliases.empty() ? "none" : listed_names(model.aliases)},
       {"family", Printable(model.family).text()},
       {"parameters", human_count(model.num_parameters)},
       {"weights", Printable(model.weight_types).text()},
       {"shape", fmt::format("{} layers of {}", model.num_layers, model.dim)},
       {"context", fmt::format("{} tokens, trained for {}", model.context, model.trained_context)},
       {"vocabulary", fmt::format("{} tokens; BOS {}, EOS {}", model.vocab_size, id(model.bos), id(model.eos))},
       {"KV cache", fmt::format("{} bytes a token", model.kv_bytes_per_token)},
       {"chat template", model.chat_template.empty() ? "none" : Printable(model.chat_template).text()},
       {"tool format", model.tool_format.empty() ? "none" : Printable(model.tool_format).text()},
       {"defaults", defaults_text(model.defaults)},
       {"numerics", Printable(model.numerics_id).text()}});
}

Result<int> info(client::Client& client, const std::string& name, bool json) {
  const auto models = client.models();
  if (!models) return models.error();
  const auto found = std::ranges::find_if(*models, [&](const client::ModelDescription& each) {
    return name.empty() || each.name == name || std::ranges::find(each.aliases, name) != each.aliases.end();
  });
  if (found == models->end())
    return Error{ErrorCode::invalid_argument,
                 name.empty()
                     ? "no model is loaded"
                     : fmt::format("no model '{}' is loaded; troupe model ls lists them", Printable(name).text())};
  if (json)
    write_json(description_json(*found), std::cout);
  else
    std::cout << info_text(*found);
  return kExitOk;
}

// A file of a template is read here: the server may not be able to.
Status add_chat_template(const std::string& option, client::ModelRequest& request) {
  request.chat_template = option;
  if (option.find('/') == std::string::npos && !std::filesystem::exists(option)) return Ok{};
  auto source = read_plain_file(option, engine::chat::Limits{}.max_source_bytes);
  if (!source) return source.error();
  request.chat_template_source = std::move(*source);
  return Ok{};
}

client::ModelDefaults to_client(const config::ModelDefaults& from) {
  client::ModelDefaults to;
  config::for_each_sampling_number(
      [](const config::SamplingNumber&, const auto& value, auto& out) {
        using Value = typename std::remove_reference_t<decltype(out)>::value_type;
        if (value) out = static_cast<Value>(*value);
      },
      from, to);
  to.reasoning = from.reasoning;
  to.system = from.system;
  if (from.reasoning_budget) to.reasoning_budget = static_cast<std::uint32_t>(*from.reasoning_budget);
  return to;
}

Result<client::ModelRequest> to_request(std::span<const std::string> words, const config::StoreDirOptions& options) {
  auto table = config::parse_model(words);
  if (!table) return table.error();
  // In the store of who asks: the server looks into none for others.
  for (std::string* const path : {&table->path, &table->draft}) {
    if (path->empty()) continue;
    auto found = find_model(*path, options);
    if (!found) return found.error();
    *path = *std::move(found);
  }
  client::ModelRequest request;
  config::for_each_model_key(*table, request, [](const auto& from, auto& to) {
    if constexpr (requires { from.reasoning_budget; }) {
      to = to_client(from);
    } else if constexpr (requires { from.has_value(); }) {
      if (from) to = static_cast<std::uint32_t>(*from);  // of predict, -1 is all
    } else {
      to = from;
    }
  });
  if (request.kv_type == "q8_0") request.kv_type = "int8";  // as older servers call it
  for (std::string* path : {&request.path, &request.draft})
    if (!path->empty()) *path = std::filesystem::absolute(*path).lexically_normal().string();
  if (!table->chat_template.empty())
    if (Status added = add_chat_template(table->chat_template, request); !added) return added.error();
  return request;
}

// Shows how far the newest model that is loading is, until the answer has come.
void show_progress(client::Client& client, const std::future<Result<client::Health::Model>>& answer) {
  while (answer.wait_for(kProgressInterval) != std::future_status::ready) {
    if (::isatty(STDERR_FILENO) == 0) continue;
    const auto health = client.health();
    if (!health) continue;
    for (const client::Health::Model& each : health->models)
      if (each.readiness == client::Readiness::loading)
        StatusLine::of_stderr().draw(
            fmt::format("loading {}: {:.0f} %", Printable(each.name).text(), 100 * each.load_fraction));
  }
  StatusLine::of_stderr().erase();
}

int told(const client::Health::Model& model, const char* what, bool json) {
  if (json)
    write_json({{what, model.name}}, std::cout);
  else
    std::cout << what << ' ' << Printable(model.name).text() << '\n';
  return kExitOk;
}

Result<int> load_one(client::Client& client, std::span<const std::string> words,
                     const config::ModelCommandOptions& options) {
  const auto request = to_request(words, options);
  if (!request) return request.error();
  std::future<Result<client::Health::Model>> answer =
      std::async(std::launch::async, [&] { return client.load_model(*request); });
  show_progress(client, answer);
  const auto model = answer.get();
  if (!model) return model.error();
  const char* const done = !request->replace.empty()                ? "replaced"
                           : request->load == config::kLoadTimes[1] ? "added"  // it is loaded by a request
                                                                    : "loaded";
  return told(*model, done, options.json);
}

}  // namespace

Result<int> model(const config::ModelCommandOptions& options, const config::Given& given) {
  const std::span<const std::string> words = given.arguments;
  if (words.empty()) return misused("what to do is missing");
  const std::string& verb = words.front();
  struct Verb {
    std::string_view name;
    std::size_t least, most;  // words behind it
  };
  constexpr Verb kVerbs[] = {{"ls", 0, 0},     {"list", 0, 0}, {"load", 1, 16},
                             {"unload", 1, 1}, {"info", 0, 1}, {"check", 0, 64}};
  const auto* const known = std::ranges::find(kVerbs, verb, &Verb::name);
  if (known == std::end(kVerbs)) return misused(fmt::format("there is no '{}'", Printable(verb).text()));
  if (words.size() - 1 < known->least) return misused(fmt::format("{} needs a model", verb));
  if (words.size() - 1 > known->most) return misused(fmt::format("{} takes fewer words", verb));

  const auto client = connect(options, "troupe model");
  if (!client) return client.error();
  if (verb == "load") return load_one(**client, words.subspan(1), options);
  if (verb == "check") return check_models(**client, words.subspan(1), options.json);
  if (verb == "info") return info(**client, words.size() > 1 ? words[1] : std::string(), options.json);
  if (verb != "unload") return list_models(**client, options.json);
  const auto unloaded = (*client)->unload_model(words[1]);
  if (!unloaded) return unloaded.error();
  return told(*unloaded, "unloaded", options.json);
}

}  // namespace troupe::cli
