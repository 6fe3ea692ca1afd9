#include "cli/load/load_tenants.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <string_view>
#include <utility>

#include "bench/load/report/goals.h"
#include "config/options/values.h"
#include "config/printable.h"

namespace troupe::cli {
namespace {

// Flags below the headings of is_tenants_own() that say what the whole run does.
constexpr std::array<std::string_view, 6> kOfTheRun = {"patience", "warm", "trace", "trace-out", "openai", "api-key"};
constexpr std::array<std::string_view, 6> kOwnKeys = {"uid", "weight", "start", "priority", "embed", "tokenize"};
constexpr double kMaxWeight = 1e6;

Error wrong(const std::string& message) { return {ErrorCode::invalid_argument, message}; }

std::string shown(std::string_view text) { return Printable(text).text(); }

// Whether a tenant can have the flag of its own: it is about requests, their pace or their faults, or counts them.
bool is_tenants_own(const config::Option& option) {
  if (!option.belongs_to(config::Command::load) || std::ranges::find(kOfTheRun, option.name) != kOfTheRun.end())
    return false;
  return option.changes == config::Changes::by_request || option.group == config::kPaceHeading ||
         option.group == config::kRequestsHeading || option.group == config::kFaultsHeading || option.name == "goodput";
}

const config::Option* find_flag(std::string_view name) {
  const auto table = config::option_table();
  const auto found = std::ranges::find(table, name, &config::Option::name);
  return found != table.end() && is_tenants_own(*found) ? &*found : nullptr;
}

struct KeyValue {
  std::string key;
  std::optional<std::string> value;
};

// A part without '=' belongs to the value before it ("prompt-len=normal:64,16"), unless it is the name of a switch.
std::vector<KeyValue> split_pairs(std::string_view text) {
  std::vector<KeyValue> pairs;
  for (std::string& part : config::split(text, ',')) {
    const std::size_t equals = part.find('=');
    if (equals != std::string::npos)
      pairs.push_back({part.substr(0, equals), part.substr(equals + 1)});
    else if (part == "embed" || part == "tokenize" || pairs.empty() || !pairs.back().value)
      pairs.push_back({std::move(part), std::nullopt});
    else
      *pairs.back().value += ',' + part;
  }
  return pairs;
}

// The values of all options with those of one subcommand; what that has not is as by default.
template <class... Groups>
config::Options widened(const config::OptionSet<Groups...>& set) {
  config::Options all;
  ((static_cast<Groups&>(all) = set), ...);
  return all;
}

class TenantReader {
 public:
  TenantReader(const config::LoadOptions& run, const load::Goodput& limits, std::size_t place)
      : options_(widened(run)), run_seed_(run.seed.value_or(0) + place) {
    tenant_.limits = limits;
  }

  Result<TenantOptions> read(std::string_view text) {
    const std::size_t colon = text.find(':');
    tenant_.name = text.substr(0, colon);
    if (Status named = check_name(); !named) return named.error();
    if (colon != std::string_view::npos)
      for (const KeyValue& pair : split_pairs(text.substr(colon + 1)))
        if (Status set = apply(pair); !set)
          return Error{set.error().code, fmt::format("tenant {}: {}", tenant_.name, set.error().message)};
    if (!has_seed_) options_.seed = config::Seed(run_seed_);
    if (tenant_.kind != load::RequestKind::generate) {
      // Nothing is received before the end, so nothing can be cancelled at a token or read slowly.
      options_.output_len = "1";
      options_.fault_cancel = options_.fault_slow_reader = 0;
    }
    tenant_.options = config::LoadOptions(options_);
    return std::move(tenant_);
  }

 private:
  Status check_name() const {
    const auto allowed = [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_' || c == '.'; };
    if (!tenant_.name.empty() && tenant_.name.size() <= kMaxTenantName && tenant_.name != "all" &&
        std::all_of(tenant_.name.begin(), tenant_.name.end(), allowed))
      return Ok{};
    return wrong(
        fmt::format("--tenant: '{}' is no name: 1 to {} letters, digits, dashes, dots and underscores, not 'all'; "
                    "write NAME or NAME:KEY=VALUE,...",
                    shown(tenant_.name), kMaxTenantName));
  }

  Status apply(const KeyValue& pair) {
    const auto& [key, value] = pair;
    if (key == "embed" || key == "tokenize") return set_kind(pair);
    const config::Option* flag = find_flag(key);
    if (!flag && std::ranges::find(kOwnKeys, key) == kOwnKeys.end()) return unknown(key);
    if (!value) return wrong(fmt::format("{0} needs a value: {0}=VALUE", key));
    if (key == "uid") return set_user(*value);
    if (key == "weight") return set_weight(*value);
    if (key == "start") return set_start(*value);
    if (key == "priority") return set_priority(*value);
    return set_flag(*flag, *value);
  }

  Status set_kind(const KeyValue& pair) {
    if (pair.value) return wrong(pair.key + " takes no value");
    if (tenant_.kind != load::RequestKind::generate) return wrong("embed and tokenize contradict each other");
    tenant_.kind = pair.key == "embed" ? load::RequestKind::embed : load::RequestKind::tokenize;
    return Ok{};
  }

  Status set_user(const std::string& value) {
    auto user = load::find_user(value);
    if (!user) return Error{user.error().code, "uid: " + user.error().message};
    tenant_.user = std::move(*user);
    return load::check_can_act_as(*tenant_.user);
  }

  Status set_weight(const std::string& value) {
    const auto weight = config::parse_number(value);
    if (!weight || *weight <= 0 || *weight > kMaxWeight)
      return wrong(fmt::format("weight: '{}' is no weight: a number above 0, at most 1000000", shown(value)));
    tenant_.weight = *weight;
    return Ok{};
  }

  Status set_start(const std::string& value) {
    const auto start = config::parse_duration(value);
    if (!start) return wrong(fmt::format("start: '{}' is not a duration such as 500ms or 30s", shown(value)));
    tenant_.start_s = std::chrono::duration<double>(*start).count();
    return Ok{};
  }

  Status set_priority(const std::string& value) {
    const auto priority = config::parse_integer(value);
    if (!priority || *priority < -1000 || *priority > 1000)
      return wrong(fmt::format("priority: '{}' is no priority: -1000 to 1000, lower is served earlier", shown(value)));
    tenant_.priority = static_cast<std::int32_t>(*priority);
    return Ok{};
  }

  Status set_flag(const config::Option& flag, const std::string& value) {
    const std::array texts{value};
    if (const auto problem = config::assign(flag, texts, options_))
      return wrong(fmt::format("{}: {}", flag.name, *problem));
    has_seed_ |= flag.name == "seed";
    if (flag.name != "goodput") return Ok{};
    const auto limits = load::parse_goodput(options_.goodput);
    if (!limits) return limits.error();
    tenant_.limits = *limits;
    return Ok{};
  }

  static Status unknown(const std::string& key) {
    std::vector<std::string> names(kOwnKeys.begin(), kOwnKeys.end());
    for (const config::Option& option : config::option_table())
      if (is_tenants_own(option)) names.emplace_back(option.name);
    const auto likely = config::nearest(key, names);
    return wrong(fmt::format("'{}' is not a key of a tenant{}; they are {}", shown(key),
                             likely ? fmt::format(" (did you mean {}?)", *likely) : "", fmt::join(names, ", ")));
  }

  TenantOptions tenant_;
  config::Options options_;
  std::uint64_t run_seed_;
  bool has_seed_ = false;
};

// The lines of --tenants, with their places for messages.
Result<std::vector<std::pair<std::string, std::string>>> read_lines(const std::string& path) {
  std::ifstream file(path);
  std::string bytes(kMaxTenantsFile + 1, '\0');
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (file.bad() || (file.gcount() == 0 && !file.eof()))
    return Error{ErrorCode::io, "cannot read the tenants of " + path};
  bytes.resize(static_cast<std::size_t>(file.gcount()));
  if (bytes.size() > kMaxTenantsFile)
    return wrong(fmt::format("{}: a file of tenants has at most {} bytes", path, kMaxTenantsFile));
  std::vector<std::pair<std::string, std::string>> lines;
  std::size_t number = 0;
  for (const std::string& line : config::split(bytes, '\n')) {
    ++number;
    const std::size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string::npos || line[begin] == '#') continue;
    lines.emplace_back(fmt::format("{}:{}: ", path, number),
                       line.substr(begin, line.find_last_not_of(" \t\r") + 1 - begin));
  }
  return lines;
}

Status mark_compared(const std::vector<std::string>& texts, std::vector<TenantOptions>& tenants) {
  for (const std::string& text : texts)
    for (const std::string& name : config::split(text, ',')) {
      bool found = false;
      for (TenantOptions& tenant : tenants)
        if (name == "all" || name == tenant.name) found = tenant.compare_alone = true;
      if (!found)
        return wrong(
            fmt::format("--compare-alone: there is no tenant '{}'; name some of --tenant, or all", shown(name)));
    }
  return Ok{};
}

Status check_run(const config::LoadOptions& options) {
  for (const auto& [flag, value] : {std::pair{"--trace", &options.trace}, std::pair{"--trace-out", &options.trace_out},
                                    std::pair{"--openai", &options.openai}})
    if (!value->empty())
      return wrong(fmt::format("{0} and --tenant contradict each other: {0} knows no tenants", flag));
  return Ok{};
}

}  // namespace

Result<std::vector<TenantOptions>> make_tenants(const config::LoadOptions& options, const load::Goodput& limits) {
  std::vector<std::pair<std::string, std::string>> texts;
  for (const std::string& text : options.load_tenants) texts.emplace_back("", text);
  if (!options.load_tenants_file.empty()) {
    auto lines = read_lines(options.load_tenants_file);
    if (!lines) return lines.error();
    if (lines->empty()) return wrong(options.load_tenants_file + ": there is no tenant in it; write one on each line");
    texts.insert(texts.end(), lines->begin(), lines->end());
  }
  if (texts.size() > kMaxTenants)
    return wrong(fmt::format("a run has at most {} tenants, not {}", kMaxTenants, texts.size()));
  std::vector<TenantOptions> tenants;
  for (const auto& [place, text] : texts) {
    auto tenant = TenantReader(options, limits, tenants.size()).read(text);
    if (!tenant) return Error{tenant.error().code, place + tenant.error().message};
    for (const TenantOptions& other : tenants)
      if (other.name == tenant->name) return wrong(fmt::format("{}there are two tenants {}", place, tenant->name));
    tenants.push_back(std::move(*tenant));
  }
  if (!tenants.empty())
    if (Status checked = check_run(options); !checked) return checked.error();
  if (Status marked = mark_compared(options.compare_alone, tenants); !marked) return marked.error();
  return tenants;
}

}  // namespace troupe::cli
