#include "bench/load/trace.h"

#include <fmt/format.h>

#include <array>
#include <functional>
#include <istream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <type_traits>

#include "config/sampling/sampling_numbers.h"

namespace troupe::load {
namespace {

using nlohmann::ordered_json;

constexpr std::uint32_t kTokensPerHash = 512;  // of a Mooncake trace
constexpr std::uint32_t kMaxTokens = 1 << 24;  // of a prompt or an answer
constexpr std::array<std::string_view, 5> kFaults{"none", "cancel", "disconnect", "slow_reader", "garbage"};

// The contents of a line, before its prompt is generated.
struct Line {
  PlannedRequest request;
  std::optional<std::uint32_t> prompt_tokens{};
  std::vector<std::uint64_t> hashes{};
  int num_prompts = 0;
};

// Readers throw nlohmann's exceptions for a wrong type and std::string for a wrong value; read_line catches both.
template <class T>
T within(const ordered_json& value, double low, double high) {
  const double number = value.get<double>();
  if (!(number >= low && number <= high)) throw "is " + value.dump() + ", which is out of range";
  return value.get<T>();
}

template <class Number>
void put(ordered_json& out, std::string_view key, const std::optional<Number>& value) {
  if (value) out[std::string(key)] = *value;
}

// Writes a float so that get<float>() reads back the same bits.
void put(ordered_json& out, std::string_view key, const std::optional<float>& value) {
  if (value) out[std::string(key)] = static_cast<double>(*value);
}

Fault parse_fault(const std::string& name) {
  for (std::size_t i = 0; i < kFaults.size(); ++i)
    if (kFaults[i] == name) return static_cast<Fault>(i);
  throw "is '" + name + "'; there are cancel, disconnect, slow_reader and garbage";
}

using Reader = std::function<void(const ordered_json&, Line&)>;

// Reads the sampling number of this name.
Reader sampling(std::string_view name) {
  return [name](const ordered_json& value, Line& line) {
    config::for_each_sampling_number(
        [&](const config::SamplingNumber& number, auto& member) {
          if (number.name == name) member = value.get<typename std::remove_reference_t<decltype(member)>::value_type>();
        },
        line.request.sampling);
  };
}

std::map<std::string, Reader, std::less<>> make_readers() {
  const Reader prompt_tokens = [](const ordered_json& value, Line& line) {
    line.prompt_tokens = within<std::uint32_t>(value, 1, kMaxTokens);
    ++line.num_prompts;
  };
  const Reader max_tokens = [](const ordered_json& value, Line& line) {
    line.request.sampling.max_tokens = within<std::uint32_t>(value, 1, kMaxTokens);
  };
  std::map<std::string, Reader, std::less<>> readers = {
      {"at_s", [](const auto& value, Line& line) { line.request.arrival_s = within<double>(value, 0, 1e9); }},
      {"timestamp",
       [](const auto& value, Line& line) { line.request.arrival_s = within<double>(value, 0, 1e12) / 1000; }},
      {"prompt",
       [](const auto& value, Line& line) {
         line.request.prompt = value.template get<std::string>();
         ++line.num_prompts;
       }},
      {"prompt_ids",
       [](const auto& value, Line& line) {
         line.request.prompt = value.template get<std::vector<TokenId>>();
         ++line.num_prompts;
       }},
      {"prompt_tokens", prompt_tokens},
      {"input_length", prompt_tokens},
      {"hash_ids",
       [](const auto& value, Line& line) { line.hashes = value.template get<std::vector<std::uint64_t>>(); }},
      {"max_tokens", max_tokens},
      {"output_length", max_tokens},
      {"prefix",
       [](const auto& value, Line& line) { line.request.prefix = within<std::uint32_t>(value, 0, 4294967295.0); }},
      {"seed", [](const auto& value, Line& line) { line.request.sampling.seed = value.template get<std::uint64_t>(); }},
      {"ignore_eos",
       [](const auto& value, Line& line) { line.request.sampling.ignore_eos = value.template get<bool>(); }},
      {"fault",
       [](const auto& value, Line& line) { line.request.fault = parse_fault(value.template get<std::string>()); }},
      {"fault_after_tokens",
       [](const auto& value, Line& line) {
         line.request.fault_point.after_tokens = within<std::uint32_t>(value, 0, kMaxTokens);
       }},
      {"fault_delay_s",
       [](const auto& value, Line& line) { line.request.fault_point.delay_s = within<double>(value, 0, 1e9); }},
      {"fault_choice",
       [](const auto& value, Line& line) {
         line.request.fault_point.choice = within<std::uint32_t>(value, 0, 4294967295.0);
       }},
  };
  const client::Sampling names;
  config::for_each_sampling_number(
      [&](const config::SamplingNumber& number, const auto&) { readers.emplace(number.name, sampling(number.name)); },
      names);
  return readers;
}

void draw_prompt(Line& line, const PlanSpec& spec, std::uint64_t index) {
  std::vector<TokenId> ids;
  const auto append = [&](std::uint64_t count, Random random) {
    for (std::uint64_t i = 0; i < count; ++i) ids.push_back(static_cast<TokenId>(random.below(spec.vocabulary.size)));
  };
  for (const std::uint64_t hash : line.hashes)
    append(std::min<std::uint64_t>(kTokensPerHash, *line.prompt_tokens - ids.size()),
           {spec.seed, Purpose::trace_block, hash});
  append(*line.prompt_tokens - ids.size(), {spec.seed, Purpose::prompt_tokens, index});
  line.request.prompt = std::move(ids);
}

// Parses a line. Returns an error message; empty: none.
std::string read_line(const std::string& text, const PlanSpec& spec, Line& line) {
  static const auto readers = make_readers();
  const ordered_json object = ordered_json::parse(text, nullptr, false);
  if (!object.is_object()) return "is no JSON object";
  line.request.sampling = spec.shape.sampling;
  line.request.sampling.max_tokens.reset();
  line.request.sampling.seed.reset();
  for (const auto& [key, value] : object.items()) {
    const auto reader = readers.find(key);
    if (reader == readers.end()) return "has the unknown key '" + key + "'";
    try {
      reader->second(value, line);
    } catch (const std::string& reason) {
      return std::string("'").append(key).append("' ").append(reason);
    } catch (const ordered_json::exception&) {
      return "'" + key + "' has a value of the wrong type: " + value.dump();
    }
  }
  if (line.num_prompts != 1) return "needs one of prompt, prompt_ids, prompt_tokens and input_length";
  if (!line.request.sampling.max_tokens) return "needs max_tokens or output_length";
  return {};
}

}  // namespace

std::string to_trace_line(const PlannedRequest& request) {
  const client::Sampling& sampling = request.sampling;
  ordered_json out;
  out["at_s"] = request.arrival_s;
  if (const auto* text = std::get_if<std::string>(&request.prompt))
    out["prompt"] = *text;
  else
    out["prompt_ids"] = std::get<std::vector<TokenId>>(request.prompt);
  put(out, "prefix", request.prefix);
  put(out, "max_tokens", sampling.max_tokens);
  put(out, "seed", sampling.seed);
  config::for_each_sampling_number(
      [&](const config::SamplingNumber& number, const auto& value) { put(out, number.name, value); }, sampling);
  out["ignore_eos"] = sampling.ignore_eos;
  if (request.fault != Fault::none) {
    out["fault"] = kFaults[static_cast<std::size_t>(request.fault)];
    out["fault_after_tokens"] = request.fault_point.after_tokens;
    out["fault_delay_s"] = request.fault_point.delay_s;
    out["fault_choice"] = request.fault_point.choice;
  }
  return out.dump();
}

Result<std::vector<PlannedRequest>> read_trace(std::istream& in, const PlanSpec& spec) {
  std::vector<PlannedRequest> requests;
  std::uint64_t number = 0;
  for (std::string text; std::getline(in, text);) {
    ++number;
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    Line line;
    std::string wrong = read_line(text, spec, line);
    if (wrong.empty() && !requests.empty() && line.request.arrival_s < requests.back().arrival_s)
      wrong = "arrives before the line above; sort the trace by arrival";
    if (!wrong.empty())
      return Error{ErrorCode::invalid_argument, fmt::format("line {} of the trace {}", number, wrong)};
    line.request.index = requests.size();
    if (line.prompt_tokens) draw_prompt(line, spec, line.request.index);
    if (!line.request.sampling.seed) line.request.sampling.seed = spec.seed + line.request.index;
    requests.push_back(std::move(line.request));
  }
  return requests;
}

}  // namespace troupe::load
