#include "bench/load/drivers/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "bench/load/trace.h"
#include "scheduler/outcome.h"

namespace troupe::load {
namespace {

struct Alone {
  Answer answer;
  std::string outcome;
};

Result<Alone> run_alone(client::Client& client, const client::Request& request) {
  auto completion = client.complete(request);
  if (!completion) return completion.error();
  const scheduler::OutcomeInfo& outcome = scheduler::info(completion->ended.outcome);
  if (outcome.kind != scheduler::OutcomeKind::done)
    return Error{ErrorCode::io, fmt::format("alone it was answered {}: {}", outcome.name, completion->ended.message)};
  return Alone{{std::move(completion->ids), std::move(completion->text)}, std::string(outcome.name)};
}

// Whether the answer is complete: not cancelled, not ended by its deadline, not failed.
bool is_whole(const RequestRecord& record) {
  return record.kind == EndKind::done && record.outcome != scheduler::info(scheduler::Outcome::cancelled).name &&
         record.outcome != scheduler::info(scheduler::Outcome::deadline).name;
}

}  // namespace

std::string difference(const RequestRecord& record, const Answer& answer, const Answer& alone,
                       const std::string& alone_outcome) {
  const auto [here, there] = std::mismatch(answer.ids.begin(), answer.ids.end(), alone.ids.begin(), alone.ids.end());
  const auto lengths = [&] { return fmt::format("it has {} tokens, alone {}", answer.ids.size(), alone.ids.size()); };
  if (here != answer.ids.end() && there != alone.ids.end())
    return fmt::format("token {} is {}, alone it is {}", here - answer.ids.begin(), *here, *there);
  if (here != answer.ids.end()) return lengths();
  if (!alone.text.starts_with(answer.text)) return "its tokens are equal, its text is not";
  if (!is_whole(record)) return {};
  if (there != alone.ids.end()) return lengths();
  if (answer.text != alone.text) return "its tokens are equal, its text is not";
  if (record.outcome != alone_outcome) return "it ended with " + record.outcome + ", alone with " + alone_outcome;
  return {};
}

Result<Verification> verify_alone(const Plan& plan, TroupeServer& server, const VerifyOptions& options,
                                  TroupeRun& run) {
  Verification result;
  std::unordered_map<std::string, Alone> known;  // by the request as a line of a trace
  for (std::size_t i = 0; i < run.run.records.size() && !(options.stop && *options.stop); ++i) {
    RequestRecord& record = run.run.records[i];
    if (record.completion_tokens == 0 && record.kind != EndKind::done) continue;
    PlannedRequest request = plan.request(record.index);
    request.arrival_s = 0;
    request.fault = Fault::none;
    const std::string key = to_trace_line(request);
    auto found = known.find(key);
    if (found == known.end()) {
      const std::string scope = fmt::format("{}-alone-{}", options.cache_scope, result.runs++);
      auto alone = run_alone(*server.control, to_client_request(request, options.model, scope));
      if (!alone)
        return Error{alone.error().code,
                     fmt::format("request {} cannot be verified: {}", record.index, alone.error().message)};
      found = known.emplace(key, std::move(*alone)).first;
    }
    std::string what = difference(record, run.answers[i], found->second.answer, found->second.outcome);
    record.verified = what.empty();
    ++result.compared;
    if (!what.empty()) result.mismatches.push_back({record.index, std::move(what)});
    if (options.on_progress) options.on_progress(result.compared);
  }
  return result;
}

}  // namespace troupe::load
