#include "cli/client/receipts.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <utility>

#include "config/printable.h"
#include "config/sampling/sampling_numbers.h"
#include "config/system_error.h"
#include "ipc/http/json/receipt.h"
#include "scheduler/shares/admission.h"

namespace troupe::cli {
namespace {

namespace api = ipc::api;
using engine::constraints::Constraint;

std::shared_ptr<const actors::AnswerForm> form_of(const client::Form& from) {
  return std::make_shared<const actors::AnswerForm>(Constraint{.kind = static_cast<Constraint::Kind>(from.kind),
                                                               .text = from.text,
                                                               .choices = from.choices,
                                                               .calls = {.must_call = from.calls.must_call,
                                                                         .name = from.calls.name,
                                                                         .may_call_several = !from.calls.single,
                                                                         .strict = from.calls.strict,
                                                                         .format = from.calls.format},
                                                               .spaces = !from.compact_json},
                                                    "form");
}

client::Form form_of(const Constraint& from) {
  return {.kind = static_cast<client::FormKind>(from.kind),
          .text = from.text,
          .choices = from.choices,
          .compact_json = !from.spaces,
          .calls = {.format = from.calls.format,
                    .must_call = from.calls.must_call,
                    .name = from.calls.name,
                    .single = !from.calls.may_call_several,
                    .strict = from.calls.strict}};
}

actors::Proof proof_of(const client::Proof& from) {
  actors::Proof proof{.numerics_id = from.numerics_id,
                      .model = from.model,
                      .prompt = std::make_shared<const std::vector<TokenId>>(from.prompt),
                      .stop_strings = from.stop,
                      .stop_scope = static_cast<actors::StopScope>(from.stop_scope),
                      .begins_with = from.begins_with,
                      .shown_ids = from.shown_ids,
                      .form = from.form ? form_of(*from.form) : nullptr,
                      .ids = from.ids,
                      .text = from.text,
                      .outcome = from.outcome,
                      .stop = from.matched_stop,
                      .recomputed_from = from.recomputed_from};
  engine::SamplingParams& sampling = proof.sampling;
  config::for_each_sampling_number(
      [](const config::SamplingNumber&, auto& to, const auto& value) {
        if (value) to = *value;
      },
      sampling, from.sampling);
  sampling.seed = from.sampling.seed.value_or(0);
  sampling.choice = from.choice;
  sampling.max_tokens = from.sampling.max_tokens.value_or(scheduler::kUnlimitedTokens);
  sampling.ignore_eos = from.sampling.ignore_eos;
  sampling.min_tokens = from.sampling.min_tokens;
  sampling.logit_bias = from.sampling.logit_bias;
  sampling.stop_ids = from.sampling.stop_ids;
  if (from.reasoning_budget) sampling.reasoning_budget = engine::ReasoningBudget{.num_tokens = *from.reasoning_budget};
  return proof;
}

}  // namespace

Status check_receipt_file(const std::string& path) {
  if (std::ofstream(path, std::ios::app)) return Ok{};
  return system_error("--receipt: " + path, errno);
}

Status write_receipts(const std::string& path, const Answers& answers) {
  std::vector<actors::Proof> proofs;
  for (const Answer& answer : answers.all()) {
    const client::Ended& ended = *answer.end;
    if (ended.receipt && ended.receipt->proof)
      proofs.push_back(proof_of(*ended.receipt->proof));
    else if (ended.done())
      return Error{ErrorCode::io, fmt::format("the server gave no receipt to prove this answer with{}{}",
                                              ended.message.empty() ? "" : ": ", ended.message)};
  }
  if (proofs.empty()) return Ok{};
  std::ofstream file(path, std::ios::trunc | std::ios::binary);
  file << api::receipt_file(proofs) << std::flush;
  return file ? Status(Ok{}) : Error{ErrorCode::io, "cannot write the receipt " + path};
}

Result<std::vector<actors::Proof>> read_receipt_file(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) return system_error(path, errno);
  std::string text;
  std::array<char, 1 << 16> part;
  // One byte more than is taken: that is refused as too long.
  while (text.size() <= api::kMaxReceiptBytes && (file.read(part.data(), part.size()), file.gcount() > 0))
    text.append(part.data(), static_cast<std::size_t>(file.gcount()));
  if (file.bad()) return system_error(path, errno != 0 ? errno : EIO);
  auto proofs = api::read_receipts(text);
  if (!proofs)
    return Error{proofs.error().code,
                 fmt::format("{} is no receipt: {}", Printable(path, kMaxMessageBytes).text(), proofs.error().message)};
  return proofs;
}

client::Request request_of(const actors::Proof& proof) {
  client::Request request;
  request.prompt = *proof.prompt;
  const engine::SamplingParams& from = proof.sampling;
  client::Sampling& sampling = request.sampling;
  config::for_each_sampling_number([](const config::SamplingNumber&, auto& to, const auto& value) { to = value; },
                                   sampling, from);
  sampling.seed = from.seed;
  sampling.max_tokens = from.max_tokens;  // also without a limit: the server may have one where nothing is said
  sampling.ignore_eos = from.ignore_eos;
  sampling.min_tokens = from.min_tokens;
  sampling.logit_bias = from.logit_bias;
  sampling.stop_ids = from.stop_ids;
  if (from.reasoning_budget) request.reasoning_budget = from.reasoning_budget->num_tokens;
  request.stop = proof.stop_strings;
  request.stop_scope = static_cast<client::StopScope>(proof.stop_scope);
  request.begins_with = proof.begins_with;
  request.shown_ids = proof.shown_ids;
  if (proof.form) request.form = form_of(proof.form->constraint());
  request.first_choice = from.choice;
  request.proposal = proof.ids;
  return request;
}

}  // namespace troupe::cli
