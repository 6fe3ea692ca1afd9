// troupe schema: which schemas are enforced, and what a mask costs.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>
#include <variant>

#include "cli/model/model_options.h"
#include "cli/subcommands.h"
#include "cli/terminal/exit_code.h"
#include "cli/terminal/output.h"
#include "cli/terminal/text.h"
#include "config/printable.h"
#include "engine/chat/values/json.h"
#include "engine/constraints/expressions/value_text.h"
#include "engine/constraints/grammar_tokens.h"
#include "engine/constraints/schema/json_schema.h"
#include "engine/constraints/token_filter.h"
#include "engine/formats/model_file.h"
#include "engine/model/file_verdict.h"
#include "engine/model/memory_budget.h"

namespace troupe::cli {
namespace {

using engine::chat::Json;
using engine::constraints::Grammar;
using engine::constraints::Machine;
using engine::constraints::SchemaRefusal;
using engine::constraints::StateId;
using engine::constraints::TokenFilter;
using engine::constraints::TokenMask;
using engine::constraints::TokenTrie;
using Clock = std::chrono::steady_clock;

double micros_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

// Mean and quantiles, in microseconds.
nlohmann::ordered_json spread_of(std::vector<double> times) {
  std::ranges::sort(times);
  double sum = 0;
  for (const double each : times) sum += each;
  const auto quantile = [&](double share) {
    if (times.empty()) return 0.0;
    return times[std::min(times.size() - 1, static_cast<std::size_t>(share * static_cast<double>(times.size())))];
  };
  const auto rounded = [](double value) { return std::round(value * 10) / 10; };
  return {{"count", times.size()},
          {"mean", rounded(times.empty() ? 0 : sum / static_cast<double>(times.size()))},
          {"p50", rounded(quantile(0.5))},
          {"p99", rounded(quantile(0.99))},
          {"p999", rounded(quantile(0.999))},
          {"max", rounded(times.empty() ? 0 : times.back())}};
}

struct Verdicts {
  std::size_t schemas = 0, compiled = 0, valid = 0, valid_refused = 0, invalid = 0, invalid_accepted = 0;
  std::map<std::string, std::size_t> refusals;  // by keyword
  std::vector<std::string> wrong;               // "NAME, test N: what happened"
  std::vector<std::string> refused;             // "NAME: why"
  std::vector<double> mask_us, compile_us;
};

class CaseChecker {
 public:
  explicit CaseChecker(std::shared_ptr<const TokenTrie> trie) : trie_(std::move(trie)), mask_(trie_->num_tokens()) {}

  // Error: of a line that is no case.
  Status check(const Json& line) {
    const Json *const name = line.find("name"), *const schema = line.find("schema"), *const tests = line.find("tests");
    if (schema == nullptr || (tests != nullptr && tests->list() == nullptr))
      return Error{ErrorCode::invalid_argument, "a case is an object with schema and a list of tests"};
    const std::string called =
        name != nullptr && name->text() != nullptr ? *name->text() : fmt::format("case {}", verdicts_.schemas + 1);
    ++verdicts_.schemas;
    const Clock::time_point start = Clock::now();
    auto grammar = engine::constraints::grammar_of_schema(*schema);
    if (const auto* const refusal = std::get_if<SchemaRefusal>(&grammar)) {
      ++verdicts_.refusals[refusal->keyword.empty() ? "schema" : refusal->keyword];
      verdicts_.refused.push_back(fmt::format("{}: {}", called, refusal->message));
      return Ok{};
    }
    Machine machine(std::move(std::get<Grammar>(grammar)));
    verdicts_.compile_us.push_back(micros_since(start));
    ++verdicts_.compiled;
    TokenFilter filter(machine, trie_);
    if (tests == nullptr) return Ok{};
    for (std::size_t at = 0; at < tests->list()->size(); ++at) {
      const Json& test = (*tests->list())[at];
      const Json *const valid = test.find("valid"), *const data = test.find("data");
      const bool* const is_valid = valid == nullptr ? nullptr : std::get_if<bool>(&valid->value);
      if (is_valid == nullptr || data == nullptr)
        return Error{ErrorCode::invalid_argument, "a test is an object with valid and data"};
      const std::string text = engine::constraints::value_text(engine::constraints::in_schema_order(*schema, *data));
      const std::string stop = walk(machine, filter, text);
      const bool is_accepted = stop.empty();
      ++(*is_valid ? verdicts_.valid : verdicts_.invalid);
      if (is_accepted == *is_valid) continue;
      ++(*is_valid ? verdicts_.valid_refused : verdicts_.invalid_accepted);
      verdicts_.wrong.push_back(
          fmt::format("{}, test {}: {}", called, at + 1,
                      *is_valid ? "valid, but refused " + stop : std::string("invalid, but accepted")));
    }
    return Ok{};
  }

  Verdicts& verdicts() { return verdicts_; }

 private:
  // Walks the masks along a text. Empty if it was let through to its end, else where it was stopped.
  std::string walk(Machine& machine, TokenFilter& filter, std::string_view text) {
    try {
      return walk_masks(machine, filter, text);
    } catch (const engine::constraints::ConstraintLimit& limit) {
      return limit.what();
    }
  }

  std::string walk_masks(Machine& machine, TokenFilter& filter, std::string_view text) {
    StateId state = machine.begin();
    for (std::size_t at = 0; at < text.size();) {
      const auto [token, length] = trie_->longest_of(text.substr(at));
      if (length == 0) return "since the vocabulary cannot write it";
      const Clock::time_point start = Clock::now();
      machine.pool().limit_work(engine::constraints::kMaxMaskWork);
      filter.fill(state, mask_);
      verdicts_.mask_us.push_back(micros_since(start));
      if (!mask_.allows(token)) return fmt::format("at byte {}: {}", at, Printable(text.substr(at, 40)).text());
      state = machine.after(state, text.substr(at, length));
      at += length;
    }
    return machine.may_end(state) ? std::string() : std::string("at its end");
  }

  std::shared_ptr<const TokenTrie> trie_;
  TokenMask mask_;
  Verdicts verdicts_;
};

Result<std::shared_ptr<const TokenTrie>> trie_of_model(const config::ModelOptions& options) {
  const auto path = model_path(options);
  if (!path) return path.error();
  const auto file = engine::open_gguf(*path);
  if (!file) return file.error();
  const auto tokenizer = engine::make_tokenizer(**file);
  if (!tokenizer) return tokenizer.error();
  if (*tokenizer == nullptr) return Error{ErrorCode::unsupported, *path + " has no vocabulary"};
  return std::make_shared<const TokenTrie>(TokenTrie::of(**tokenizer));
}

void print(const Verdicts& verdicts, bool as_json) {
  if (as_json) {
    write_json({{"schemas", verdicts.schemas},
                {"schemas_compiled", verdicts.compiled},
                {"valid", verdicts.valid},
                {"valid_refused", verdicts.valid_refused},
                {"invalid", verdicts.invalid},
                {"invalid_accepted", verdicts.invalid_accepted},
                {"mask_us", spread_of(verdicts.mask_us)},
                {"compile_us", spread_of(verdicts.compile_us)},
                {"refusals", verdicts.refusals},
                {"refused", verdicts.refused},
                {"wrong", verdicts.wrong}},
               std::cout);
    return;
  }
  const auto times = [](const nlohmann::ordered_json& spread) {
    return fmt::format("mean {}, p50 {}, p99 {}, p99.9 {}, longest {} us ({} times)", spread["mean"].get<double>(),
                       spread["p50"].get<double>(), spread["p99"].get<double>(), spread["p999"].get<double>(),
                       spread["max"].get<double>(), spread["count"].get<std::size_t>());
  };
  std::cout << aligned({{"schemas", std::to_string(verdicts.schemas)},
                        {"compiled", std::to_string(verdicts.compiled)},
                        {"valid", fmt::format("{}, {} refused", verdicts.valid, verdicts.valid_refused)},
                        {"invalid", fmt::format("{}, {} accepted", verdicts.invalid, verdicts.invalid_accepted)},
                        {"mask", times(spread_of(verdicts.mask_us))},
                        {"compiling", times(spread_of(verdicts.compile_us))}});
  for (const auto& [keyword, count] : verdicts.refusals)
    std::cout << fmt::format("refused for {}: {}\n", keyword, count);
  for (const std::string& each : verdicts.refused) std::cout << "refused: " << each << '\n';
  for (const std::string& each : verdicts.wrong) std::cout << "wrong: " << each << '\n';
}

}  // namespace

Result<int> schema(const config::SchemaCommandOptions& options, const config::Given& given) {
  const std::vector<std::string>& words = given.arguments;
  const auto wrong_use = [](const std::string& what) {
    return Error{ErrorCode::invalid_argument, what + "; it is: check CASES.jsonl"};
  };
  if (words.empty()) return wrong_use("what to do is missing");
  if (words.front() != "check") return wrong_use(fmt::format("there is no '{}'", Printable(words.front()).text()));
  if (words.size() != 2) return wrong_use("check takes one file");
  const auto trie = trie_of_model(options);
  if (!trie) return trie.error();
  const auto text = read_text(words[1]);
  if (!text) return text.error();
  CaseChecker checker(*trie);
  std::istringstream lines(*text);
  std::string line;
  for (std::size_t number = 1; std::getline(lines, line); ++number) {
    if (line.empty()) continue;
    const auto json = engine::chat::parse_json(line);
    const Status checked = json ? checker.check(*json) : Status(json.error());
    if (!checked)
      return Error{checked.error().code, fmt::format("{}, line {}: {}", words[1], number, checked.error().message)};
  }
  print(checker.verdicts(), options.json);
  return checker.verdicts().wrong.empty() ? kExitOk : kExitFailure;
}

}  // namespace troupe::cli
