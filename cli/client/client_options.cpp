#include "cli/client/client_options.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "cli/terminal/output.h"
#include "cli/terminal/text.h"
#include "config/normal_float.h"
#include "config/printable.h"
#include "config/sampling/sampling_numbers.h"

namespace troupe::cli {

Result<std::unique_ptr<client::Client>> connect_quietly(const config::SocketOptions& options, const std::string& name) {
  return client::Client::connect({.socket = options.socket, .strict_modes = !options.no_strict_modes, .name = name});
}

Result<std::unique_ptr<client::Client>> connect(const config::SocketOptions& options, const std::string& name) {
  auto client = connect_quietly(options, name);
  if (client && !(*client)->server().distrust.empty()) complain(name, "warning: " + (*client)->server().distrust);
  return client;
}

client::Sampling sampling_of(const config::SamplingOptions& options) {
  client::Sampling sampling;
  config::for_each_sampling_number(
      [](const config::SamplingNumber&, auto& to, const auto& from) {
        if constexpr (std::is_floating_point_v<std::remove_cvref_t<decltype(from)>>)
          to = config::to_normal_float(from);
        else
          to = static_cast<std::int32_t>(from);
      },
      sampling, options);
  sampling.seed = options.seed;
  return sampling;
}

client::Sampling given_sampling(const config::SamplingOptions& options, const config::Given& given) {
  client::Sampling sampling = sampling_of(options);
  config::for_each_sampling_number(
      [&](const config::SamplingNumber& number, auto& value) {
        if (!given.origins.contains(number.option)) value.reset();
      },
      sampling);
  return sampling;
}

Result<std::vector<client::Tool>> read_tools(const std::string& path) {
  const auto text = read_text(path);
  if (!text) return text.error();
  const auto wrong = [&](const std::string& what) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("--tools: {}: {}", Printable(path, kMaxMessageBytes).text(), what)};
  };
  const auto list = nlohmann::ordered_json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!list.is_array())
    return wrong(
        R"(it is no JSON list of tools: [{"type": "function", "function": {"name": ..., "parameters": ...}}])");
  std::vector<client::Tool> tools;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const nlohmann::ordered_json& entry = list[i];
    const nlohmann::ordered_json& function =
        entry.is_object() && entry.contains("function") ? entry["function"] : entry;
    if (!function.is_object() || !function.contains("name") || !function["name"].is_string())
      return wrong(
          fmt::format("[{}] has no name: a tool is {{\"type\": \"function\", \"function\": {{\"name\": ...}}}}", i));
    client::Tool& tool = tools.emplace_back(client::Tool{.name = function["name"].get<std::string>()});
    if (function.contains("description") && !function["description"].is_null()) {
      if (!function["description"].is_string()) return wrong(fmt::format("[{}].description is no text", i));
      tool.description = function["description"].get<std::string>();
    }
    if (function.contains("parameters") && !function["parameters"].is_null())
      tool.parameters = function["parameters"].dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
    tool.strict = function.contains("strict") && function["strict"] == true;
  }
  return tools;
}

Status set_tools(const config::ToolChoiceOptions& options, const config::Given& given, client::Request& request) {
  const std::string& choice = options.tool_choice;
  if (options.tools.empty())
    return choice.empty() ? Status(Ok{})
                          : config::bad_value(given, "tool-choice", "there are no tools without --tools");
  auto tools = read_tools(options.tools);
  if (!tools) return tools.error();
  request.tools = *std::move(tools);
  if (choice.empty() || choice == "auto") return Ok{};
  request.tool_choice = choice == "none" ? client::ToolChoice::none : client::ToolChoice::required;
  if (choice != "none" && choice != "required") request.called_tool = choice;
  return Ok{};
}

Status set_form(const config::FormOptions& options, const config::Given& given, client::Request& request) {
  const std::pair<const char*, bool> given_forms[] = {{"json-schema", !options.json_schema.empty()},
                                                      {"json-schema-file", !options.json_schema_file.empty()},
                                                      {"json-object", options.json_object},
                                                      {"regex", !options.regex.empty()},
                                                      {"choice", !options.choice.empty()},
                                                      {"grammar", !options.grammar.empty()},
                                                      {"grammar-file", !options.grammar_file.empty()}};
  const char* first = nullptr;
  for (const auto& [name, is_given] : given_forms) {
    if (!is_given) continue;
    if (first != nullptr)
      return config::bad_value(given, name, fmt::format("--{} says already what form the answer has", first));
    first = name;
  }
  request.json_schema = options.json_schema;
  if (!options.json_schema_file.empty()) {
    auto text = read_text(options.json_schema_file);
    if (!text) return text.error();
    request.json_schema = std::move(*text);
  }
  request.json_object = options.json_object;
  request.regex = options.regex;
  request.choices = options.choice;
  request.grammar = options.grammar;
  if (!options.grammar_file.empty()) {
    auto text = read_text(options.grammar_file);
    if (!text) return text.error();
    if (text->empty()) return Error{ErrorCode::invalid_argument, options.grammar_file + " is empty"};
    request.grammar = std::move(*text);
  }
  return Ok{};
}

}  // namespace troupe::cli
