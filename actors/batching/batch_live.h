// One request inside a Batch. Included by the source files of Batch only.
#pragma once

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <vector>

#include "actors/batching/batch.h"
#include "actors/serving/encoding.h"
#include "engine/drafting/drafter.h"
#include "engine/tokenizers/reasoning_limit.h"

namespace troupe::actors {

struct Batch::Live final : scheduler::ServingRequest {
  Live(AssignmentPtr assignment, const BatchOptions& options)
      : task(std::move(assignment)),
        answer(options.tokenizer, task->body->stop_strings, shown(*task, options), searched(*task, options),
               task->body->sampling.min_tokens, calls(*task, options)) {}

  // The control tokens whose text belongs to the answer.
  static std::vector<TokenId> shown(const Assignment& task, const BatchOptions& options) {
    std::vector<TokenId> all;
    std::ranges::set_union(options.reasoning.control_ids,
                           shown_ids_of(*task.body, options.tool_format, options.tokenizer.get()),
                           std::back_inserter(all));
    return all;
  }
  // Behind which reasoning stop strings, and calls of tools, are looked for.
  static std::optional<AnswerText::Behind> searched(const Assignment& task, const BatchOptions& options) {
    if (options.tokenizer == nullptr || task.body->stop_scope == StopScope::text) return std::nullopt;
    return AnswerText::Behind{options.reasoning,
                              task.body->stop_scope == StopScope::behind_reasoning ||
                                  engine::ends_with_opening(*options.tokenizer, options.reasoning, *task.prompt)};
  }
  static std::optional<AnswerText::Calls> calls(const Assignment& task, const BatchOptions& options) {
    const auto& tools = task.body->tools;
    if (!tools || options.tool_format == nullptr) return std::nullopt;
    return AnswerText::Calls{options.tool_format, tools->set,
                             tools->may_call_several ? engine::chat::kMaxCallsPerAnswer : 1};
  }

  std::uint64_t generation() const { return task->generation; }
  // What is promised to a request with a deadline: its last token, or without max_tokens its first.
  bool wants_last() const { return task->body->sampling.max_tokens != scheduler::kUnlimitedTokens; }

  AssignmentPtr task;
  const bool wants_logprobs = task->body->sampling.num_logprobs >= 0;
  AnswerText answer;
  std::vector<engine::SampledToken> prompt_scores;  // of the prompt's first tokens, until its answer begins
  std::uint64_t emitted = 0;                        // tokens
  std::uint64_t granted = 0;                        // credit
  bool promised = false;                            // that it meets its deadline
  bool promise_settled = false;                     // kept or missed
  engine::Speculation speculation{};                // its request's choice over the server's
  std::unique_ptr<engine::Drafter> drafter;         // from its first draft on
  engine::EarlierAnswers::Reader earlier{};
  std::uint32_t num_told = 0;      // tokens that the draft worker knows
  std::size_t proposed_at = 0;     // tokens.size() for which the draft worker made `proposal`; 0: it did not
  std::vector<TokenId> proposal;   // what may follow `tokens`; while a step runs, what its draft is a part of
  std::vector<TokenId> forced{};   // what has to follow `tokens` by the answer's form (engine::ItemResult::forced)
  bool keeps_to_proposal = false;  // so far the answer is what its request proposes, of which there is more
  // Set: its stream has ended, and it is there until its blocks are copied for its session's file.
  std::shared_ptr<SessionSaving> saving;
};

}  // namespace troupe::actors
