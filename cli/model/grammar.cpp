// troupe grammar: whether a grammar can be enforced, and which texts it lets through.
#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "cli/subcommands.h"
#include "cli/terminal/exit_code.h"
#include "cli/terminal/output.h"
#include "cli/terminal/text.h"
#include "config/printable.h"
#include "engine/constraints/constraint.h"
#include "engine/constraints/grammar/machine.h"

namespace troupe::cli {
namespace {

using engine::constraints::Constraint;
using engine::constraints::Machine;
using engine::constraints::StateId;

struct TextVerdict {
  std::string text;
  std::optional<std::size_t> stops_at;  // the byte with which no text of the grammar goes on; its size: it is not whole
};

TextVerdict verdict_on(Machine& machine, const std::string& text) {
  StateId state = machine.begin();
  for (std::size_t at = 0; at < text.size(); ++at) {
    state = machine.next(state, static_cast<std::uint8_t>(text[at]));
    if (state == engine::constraints::kStuck) return {text, at};
  }
  return {text, machine.may_end(state) ? std::nullopt : std::optional(text.size())};
}

std::string sentence_of(const TextVerdict& verdict) {
  const std::string shown = Printable(verdict.text).text();
  if (!verdict.stops_at) return fmt::format("accepted: {}\n", shown);
  if (*verdict.stops_at == verdict.text.size()) return fmt::format("refused, as it is not whole: {}\n", shown);
  return fmt::format("refused at byte {}: {}\n", *verdict.stops_at + 1, shown);
}

void print(Machine& machine, const std::vector<TextVerdict>& verdicts, bool as_json) {
  const std::string shortest = machine.shortest_text(machine.begin());
  if (!as_json) {
    std::cout << aligned({{"shortest text", fmt::format("{} bytes: {}", shortest.size(), Printable(shortest).text())},
                          {"memory", fmt::format("{} KiB", (machine.bytes_used() + 1023) / 1024)}});
    for (const TextVerdict& each : verdicts) std::cout << sentence_of(each);
    return;
  }
  auto texts = nlohmann::ordered_json::array();
  for (const TextVerdict& each : verdicts) {
    texts.push_back({{"text", each.text}, {"accepted", !each.stops_at}});
    if (each.stops_at) texts.back()["stops_at"] = *each.stops_at;
  }
  write_json({{"shortest_text", shortest}, {"memory_bytes", machine.bytes_used()}, {"texts", std::move(texts)}},
             std::cout);
}

}  // namespace

Result<int> grammar(const config::GrammarCommandOptions& options, const config::Given& given) {
  const std::vector<std::string>& words = given.arguments;
  const auto wrong_use = [](const std::string& what) {
    return Error{ErrorCode::invalid_argument, what + "; it is: check FILE [TEXT...]"};
  };
  if (words.empty()) return wrong_use("what to do is missing");
  if (words.front() != "check") return wrong_use(fmt::format("there is no '{}'", Printable(words.front()).text()));
  if (words.size() < 2) return wrong_use("check takes the file of a grammar");
  auto text = read_text(words[1]);
  if (!text) return text.error();
  auto made = engine::constraints::grammar_of({.kind = Constraint::Kind::grammar, .text = std::move(*text)});
  if (!made)
    return Error{ErrorCode::invalid_argument, fmt::format("{}: {}", Printable(words[1]).text(), made.error().message)};
  try {
    Machine machine(std::move(*made));
    std::vector<TextVerdict> verdicts;
    for (std::size_t at = 2; at < words.size(); ++at) verdicts.push_back(verdict_on(machine, words[at]));
    print(machine, verdicts, options.json);
    for (const TextVerdict& each : verdicts)
      if (each.stops_at) return kExitFailure;
    return kExitOk;
  } catch (const engine::constraints::ConstraintLimit& limit) {
    return Error{ErrorCode::invalid_argument, fmt::format("{}: {}", Printable(words[1]).text(), limit.what())};
  }
}

}  // namespace troupe::cli
