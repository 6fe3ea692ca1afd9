#include "config/options/model_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>

#include "config/options/table_keys.h"
#include "config/printable.h"

namespace troupe::config {
namespace {

constexpr std::string_view kKind = "model";
constexpr double kMaxBlocks = 1u << 30;
constexpr double kMaxContext = 1u << 24;
constexpr double kMaxBytes = 1ull << 60;
constexpr double kMinWeight = 0.001, kMaxWeight = 1000;
constexpr double kMost = std::numeric_limits<double>::max();  // of a number whose range problem_of() knows
constexpr std::string_view kKvTypes[] = {"f16", "f32", "int8", "q8_0"};

const TableKey<ModelKeys> kModelKeys[] = {
    {"path", &ModelKeys::path},
    {"name", &ModelKeys::name},
    {"aliases", &ModelKeys::aliases},
    {"ctx-size", &ModelKeys::ctx_size, 0, kMaxContext},
    {"kv-type", &ModelKeys::kv_type},
    {"kv-blocks", &ModelKeys::kv_blocks, 0, kMaxBlocks},
    {"predict", &ModelKeys::predict, -1, kMaxContext},
    {"chat-template", &ModelKeys::chat_template},
    {"tool-format", &ModelKeys::tool_format},
    {"draft", &ModelKeys::draft},
    {"memory", &ModelKeys::memory, 0, kMaxBytes},
    {"weight", &ModelKeys::weight, kMinWeight, kMaxWeight},
    {"pinned", &ModelKeys::pinned},
    {"replace", &ModelKeys::replace},
    {"load", &ModelKeys::load},
    {"keep-alive", &ModelKeys::keep_alive},
};

constexpr std::string_view kDefaults = "defaults";
constexpr std::string_view kDefaultsKind = "model.defaults";

std::vector<TableKey<ModelDefaults>> make_default_keys() {
  std::vector<TableKey<ModelDefaults>> keys;
  constexpr SamplingMembers kMembers;
  for_each_sampling_number(
      [&](const SamplingNumber& number, const auto& member) {
        keys.push_back({number.option, member, -kMost, kMost});
      },
      kMembers);
  keys.push_back({"reasoning", &ModelDefaults::reasoning});
  keys.push_back({"reasoning-budget", &ModelDefaults::reasoning_budget, -kMost, kMost});
  keys.push_back({"system", &ModelDefaults::system});
  return keys;
}

std::span<const TableKey<ModelDefaults>> default_keys() {
  static const std::vector<TableKey<ModelDefaults>> keys = make_default_keys();
  return keys;
}

// A time is a text, and a plain number of it is seconds.
Table with_texts_of_times(Table table) {
  for (TableEntry& entry : table.entries) {
    if (entry.key != "keep-alive" || entry.is_list || entry.values.size() != 1) continue;
    TableEntry::Scalar& value = entry.values.front();
    if (const auto* whole = std::get_if<std::int64_t>(&value))
      value = std::to_string(*whole);
    else if (const auto* number = std::get_if<double>(&value))
      value = format_number(*number);
  }
  return table;
}

// Sets what a [[model]] table and the one below it say.
Status read_model(const Table& table, ModelKeys& model) {
  if (Status read = read_row<ModelKeys>(kModelKeys, kKind, with_texts_of_times(table), model, kDefaults); !read)
    return read;
  for (const auto& [name, below] : table.tables) {
    if (Status read = read_row<ModelDefaults>(default_keys(), kDefaultsKind, below, model.defaults); !read) return read;
    if (const std::string problem = problem_of(model.defaults); !problem.empty())
      return error_in_line(below.line, problem);
  }
  return Ok{};
}

// A table with one entry; of a key "defaults.temp" that stands in the table below.
Table table_of(const std::string& key, const TableEntry::Scalar& value) {
  const std::string prefix = std::string(kDefaults) + '.';
  if (!key.starts_with(prefix)) return {0, {{key, 0, false, {value}}}};
  return {0, {}, {{std::string(kDefaults), {0, {{key.substr(prefix.size()), 0, false, {value}}}}}}};
}

// All that clients may call this model.
std::vector<std::string> names_of(const ModelKeys& model) {
  std::vector<std::string> names = model.aliases;
  if (!model.name.empty()) names.insert(names.begin(), model.name);
  return names;
}

// What is wrong with the names of one model; empty: nothing.
std::string problem_of_names(const std::vector<std::string>& names) {
  for (auto name = names.begin(); name != names.end(); ++name) {
    if (name->empty()) return "a name is empty";
    if (std::string problem = problem_of_model_name(*name); !problem.empty()) return problem;
    if (std::find(names.begin(), name, *name) != name) return fmt::format("'{}' is there twice", *name);
  }
  return {};
}

std::string too_many_aliases(std::size_t number) {
  return number <= kMaxModelAliases ? std::string()
                                    : fmt::format("{} aliases; a model has at most {}", number, kMaxModelAliases);
}

// Which number is out of its range.
std::optional<ModelProblem> problem_of_numbers(const ModelKeys& model) {
  for (const TableKey<ModelKeys>& key : kModelKeys) {
    const auto number = std::visit(
        [&](auto member) -> std::optional<double> {
          using Member = std::remove_cvref_t<decltype(model.*member)>;
          if constexpr (std::is_same_v<Member, std::optional<std::int64_t>>)
            return model.*member ? std::optional(static_cast<double>(*(model.*member))) : std::nullopt;
          else if constexpr (std::is_same_v<Member, double>)
            return model.*member;
          else if constexpr (std::is_same_v<Member, Bytes>)
            return static_cast<double>((model.*member).count);
          else
            return std::nullopt;
        },
        key.field);
    if (number && !(*number >= key.min && *number <= key.max))
      return ModelProblem{key.name, out_of_range(key, format_number(*number))};
  }
  return std::nullopt;
}

// Of a key that has one of these values, or none.
template <std::size_t kCount>
std::optional<ModelProblem> problem_of_choice(std::string_view key, const std::string& value,
                                              const std::string_view (&choices)[kCount]) {
  if (value.empty() || std::ranges::find(choices, value) != std::end(choices)) return std::nullopt;
  return ModelProblem{key,
                      fmt::format("{} is '{}'; it may be {}", key, Printable(value).text(), fmt::join(choices, ", "))};
}

std::optional<ModelProblem> problem_of_keep_alive(const ModelKeys& model) {
  constexpr std::string_view kKey = "keep-alive";
  if (model.keep_alive.empty()) return std::nullopt;
  if (!parse_keep_alive(model.keep_alive))
    return ModelProblem{kKey,
                        fmt::format("keep-alive is '{}'; it may be a time such as 10m or 90s, 0 (it goes with its "
                                    "last request) or forever",
                                    Printable(model.keep_alive).text())};
  if (!is_on_request(model))
    return ModelProblem{
        kKey,
        "keep-alive is of a model that is loaded when a request asks for it: add load = \"on-request\", "
        "or leave keep-alive out"};
  if (model.pinned) return ModelProblem{kKey, "a pinned model is never put out: leave keep-alive out, or pinned"};
  return std::nullopt;
}

// What is wrong with the last table beside those before it; empty: nothing.
std::string problem_of(std::span<const ModelTable> tables) {
  const ModelTable& last = tables.back();
  if (auto problem = problem_of(last)) return std::move(problem->why);
  const std::vector<std::string> names = names_of(last);
  for (const ModelTable& other : tables.first(tables.size() - 1))
    for (const std::string& taken : names_of(other))
      if (std::ranges::find(names, taken) != names.end())
        return fmt::format("the model in line {} has the name {}, too; choose another name", other.line, taken);
  return {};
}

}  // namespace

std::vector<std::string> model_keys() {
  std::vector<std::string> names;
  for (const TableKey<ModelKeys>& key : kModelKeys)
    if (key.name != "path" && key.name != "name") names.emplace_back(key.name);
  for (const TableKey<ModelDefaults>& key : default_keys()) names.push_back(fmt::format("{}.{}", kDefaults, key.name));
  return names;
}

std::optional<double> parse_keep_alive(std::string_view text) {
  if (text == "forever") return std::numeric_limits<double>::infinity();
  const auto time = parse_duration(text);
  return time ? std::optional(std::chrono::duration<double>(*time).count()) : std::nullopt;
}

std::optional<ModelProblem> problem_of(const ModelKeys& model) {
  if (model.path.empty()) return ModelProblem{"path", "this model has no path: path = \"FILE.gguf\""};
  if (auto problem = problem_of_choice("kv-type", model.kv_type, kKvTypes)) return problem;
  if (auto problem = problem_of_choice("replace", model.replace, kReplaceWays)) return problem;
  if (auto problem = problem_of_choice("load", model.load, kLoadTimes)) return problem;
  if (auto problem = problem_of_keep_alive(model)) return problem;
  if (model.predict == 0)
    return ModelProblem{"predict", "predict is 0; an answer has at least one token, and -1 is no limit"};
  if (std::string problem = problem_of_model_name(model.name); !problem.empty())
    return ModelProblem{"name", "name: " + problem};
  if (std::string problem = too_many_aliases(model.aliases.size()); !problem.empty())
    return ModelProblem{"aliases", std::move(problem)};
  if (std::string problem = problem_of_names(names_of(model)); !problem.empty())
    return ModelProblem{"aliases", "aliases: " + problem};
  if (std::string problem = problem_of(model.defaults); !problem.empty())
    return ModelProblem{kDefaults, fmt::format("{}.{}", kDefaults, problem)};
  return problem_of_numbers(model);
}

Result<std::vector<ModelTable>> to_model_tables(std::span<const Table> tables) {
  std::vector<ModelTable> models;
  for (const Table& table : tables) {
    if (models.size() == kMaxModelTables)
      return error_in_line(table.line, fmt::format("there may be at most {} tables [[model]]", kMaxModelTables));
    ModelTable& model = models.emplace_back();
    model.line = table.line;
    if (Status read = read_model(table, model); !read) return read.error();
    if (const std::string problem = problem_of(models); !problem.empty()) return error_in_line(table.line, problem);
  }
  return models;
}

Result<std::vector<std::string>> parse_names(std::string_view list) {
  std::vector<std::string> names;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    names.emplace_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  std::string problem = problem_of_names(names);
  if (problem.empty()) problem = too_many_aliases(names.size() - 1);
  if (!problem.empty()) return Error{ErrorCode::invalid_argument, problem};
  return names;
}

Result<ModelTable> parse_model(const std::string& text) {
  ModelTable model;
  model.path = text;
  const std::size_t equals = text.find('=');
  if (equals != std::string::npos && text.find('/') > equals) {
    model.name = text.substr(0, equals);
    model.path = text.substr(equals + 1);
    if (model.name.empty())
      return Error{ErrorCode::invalid_argument, fmt::format("'{}' has no name before the =", Printable(text).text())};
    if (std::string problem = problem_of_model_name(model.name); !problem.empty())
      return Error{ErrorCode::invalid_argument, problem};
  }
  if (model.path.empty())
    return Error{ErrorCode::invalid_argument, fmt::format("'{}' has no path", Printable(text).text())};
  return model;
}

Result<ModelTable> parse_model(std::span<const std::string> words) {
  auto model = parse_model(words.front());
  if (!model) return model;
  const auto wrong = [](const std::string& why) { return Error{ErrorCode::invalid_argument, why}; };
  for (const std::string& word : words.subspan(1)) {
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos)
      return wrong(
          fmt::format("'{}' is no KEY=VALUE; the keys are those of a [[model]] table", Printable(word).text()));
    const std::string text = word.substr(equals + 1);
    // A word has no type: the first one that the key takes.
    std::vector<TableEntry::Scalar> values{text};
    if (const auto number = parse_integer(text)) values.emplace_back(*number);
    if (const auto number = parse_number(text)) values.emplace_back(*number);
    if (const auto value = parse_switch(text)) values.emplace_back(*value);
    if (word.substr(0, equals) == "aliases") {
      auto names = parse_names(text);
      if (!names) return wrong("aliases: " + names.error().message);
      model->aliases = *std::move(names);
      continue;
    }
    Status read = Ok{};
    for (const TableEntry::Scalar& value : values) {
      if (read = read_model(table_of(word.substr(0, equals), value), *model); read) break;
    }
    if (!read) {
      const std::string_view place = word.starts_with(kDefaults) ? std::string_view("defaults.") : std::string_view();
      return wrong(fmt::format("{}{}", place, read.error().message.substr(std::string_view("0: ").size())));
    }
  }
  if (const std::string problem = problem_of({&*model, 1}); !problem.empty()) return wrong(problem);
  return model;
}

std::string to_toml(const ModelTable& model) {
  const std::string defaults = row_to_toml<ModelDefaults>(default_keys(), model.defaults);
  return row_to_toml<ModelKeys>(kModelKeys, model) +
         (defaults.empty() ? "" : fmt::format("[{}]\n{}", kDefaultsKind, defaults));
}

}  // namespace troupe::config
