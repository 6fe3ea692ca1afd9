// troupe run: one request to the server, its answer to stdout.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "cli/client/answers.h"
#include "cli/client/client_options.h"
#include "cli/client/first_words.h"
#include "cli/client/prompt_progress.h"
#include "cli/client/receipts.h"
#include "cli/subcommands.h"
#include "cli/terminal/exit_code.h"
#include "cli/terminal/output.h"
#include "cli/terminal/signals.h"
#include "cli/terminal/text.h"
#include "config/options/values.h"
#include "config/printable.h"
#include "ipc/client/client.h"
#include "scheduler/outcome.h"

namespace troupe::cli {
namespace {

// "15043=-2.5", or as llama.cpp writes it "15043+1", "15043-1", "15043-inf"; -inf bans the token.
Result<std::pair<TokenId, float>> parse_logit_bias(const std::string& text) {
  const std::size_t split = text.find_first_of("=+-", 1);
  if (split != std::string::npos) {
    const auto id = config::parse_integer(text.substr(0, split));
    // '=' and '+' are not part of the number, '-' is its sign.
    std::size_t begin = text[split] == '-' ? split : split + 1;
    const std::string number = text.substr(begin);
    const auto bias = number == "-inf" ? -std::numeric_limits<double>::infinity() : config::parse_number(number);
    if (id && bias && *id >= 0 && *id <= std::numeric_limits<TokenId>::max())
      return std::pair{static_cast<TokenId>(*id), static_cast<float>(*bias)};
  }
  return Error{
      ErrorCode::invalid_argument,
      fmt::format(
          "--logit-bias: '{}' is not ID=BIAS, for example 1234=-5 (also 1234+5, 1234-5, and 1234=-inf or 1234-inf "
          "for a token that must not come)",
          text)};
}

client::Conversation conversation(const config::RunOptions& options, std::string text) {
  client::Conversation chat;
  if (!options.system.empty()) chat.messages.push_back({.role = "system", .content = options.system});
  chat.messages.push_back({.role = "user", .content = std::move(text)});
  chat.variables = options.chat_template_kwargs;
  return chat;
}

// --tools are told in a conversation.
bool sends_messages(const config::RunOptions& options) { return options.chat || !options.tools.empty(); }

Status check_chat_options(const config::RunOptions& options, const config::Given& given) {
  const bool chat = sends_messages(options);
  if (!chat && !options.system.empty()) return config::bad_value(given, "system", "a system message needs --chat");
  if (!chat && !options.chat_template_kwargs.empty())
    return config::bad_value(given, "chat-template-kwargs", "a chat template is used with --chat alone");
  if (chat && options.ids)
    return config::bad_value(given, "ids",
                             fmt::format("{} takes text, not token ids", options.chat ? "--chat" : "--tools"));
  if (chat && options.special)
    return config::bad_value(given, "special", "with --chat the text of a message never becomes a control token");
  return Ok{};
}

Result<client::Request> make_request(const config::RunOptions& options, const config::Given& given) {
  if (options.recompute && options.session.empty())
    return config::bad_value(given, "recompute", "there is nothing to recompute without --session");
  if (options.logprobs >= 0 && !options.json)
    return config::bad_value(given, "logprobs", "only --json shows logprobs; add it, or ask for none (--logprobs -1)");
  if (const Status usable = check_chat_options(options, given); !usable) return usable.error();
  if (given.arguments.empty() && options.file.empty() && ::isatty(STDIN_FILENO) != 0)
    return Error{ErrorCode::invalid_argument,
                 "there is no prompt: give it as arguments (troupe run Once upon a time), with --file, or on stdin; "
                 "`troupe chat` is a conversation"};
  client::Request request;
  auto text = input_and_piped_text(options, given, "troupe run");
  if (!text) return text.error();
  if (options.ids) {
    auto ids = parse_ids(*text);
    if (!ids) return ids.error();
    request.prompt = std::move(*ids);
  } else {
    // Editors and echo end a text with a line break that does not belong to the prompt.
    if (given.arguments.empty() && text->ends_with('\n')) text->pop_back();
    if (sends_messages(options))
      request.prompt = conversation(options, std::move(*text));
    else
      request.prompt = std::move(*text);
  }
  if (const Status set = set_tools(options, given, request); !set) return set.error();
  if (const Status set = set_form(options, given, request); !set) return set.error();
  request.model = options.model_name;
  request.parse_special = !options.no_parse_special;
  request.stop = options.stop;
  request.priority = static_cast<std::int32_t>(options.priority);
  request.cache_scope = options.scope;
  request.speculation.type = options.spec_type;
  if (options.spec_draft_n_max >= 0) request.speculation.n_max = static_cast<std::uint32_t>(options.spec_draft_n_max);
  if (options.spec_draft_n_min >= 0) request.speculation.n_min = static_cast<std::uint32_t>(options.spec_draft_n_min);
  if (options.spec_draft_p_min >= 0) request.speculation.p_min = static_cast<float>(options.spec_draft_p_min);
  request.session = options.session;
  request.session_recompute = options.recompute;
  if (options.reasoning_budget >= 0) request.reasoning_budget = static_cast<std::uint32_t>(options.reasoning_budget);
  if (options.timeout.count() > 0) request.deadline = options.timeout;
  if (options.logprobs >= 0) request.logprobs = static_cast<std::uint32_t>(options.logprobs);
  request.n = static_cast<std::uint32_t>(options.choices);
  request.proof = !options.receipt.empty();

  request.sampling = given_sampling(options, given);
  request.presets = sampling_of(options);
  client::Sampling& sampling = request.sampling;
  sampling.ignore_eos = options.ignore_eos;
  sampling.stop_ids.assign(options.stop_id.begin(), options.stop_id.end());
  // Left out, it is as the server has it.
  if (given.origins.contains("predict")) sampling.max_tokens = config::answer_length(options.predict);
  for (const std::string& bias : options.logit_bias) {
    auto entry = parse_logit_bias(bias);
    if (!entry) return entry.error();
    sampling.logit_bias.push_back(*entry);
  }
  return request;
}

void print_timings(const std::string& label, const client::Ended& ended) {
  const client::Usage& usage = ended.usage;
  const double later = usage.completion_tokens > 1 ? usage.completion_tokens - 1.0 : 0.0;
  std::cerr << fmt::format(
      "{0}{1} prompt tokens ({2} cached), first token after {3:.1f} ms (queued {4:.1f} ms, prefill {5:.1f} ms)\n"
      "{0}{6} tokens, {7:.1f} tokens/s after the first; ended by {8}, seed {9}\n",
      label, usage.prompt_tokens, usage.cached_tokens, usage.ttft_seconds * 1e3, usage.queue_seconds * 1e3,
      usage.prefill_seconds * 1e3, usage.completion_tokens,
      usage.decode_seconds > 0 ? later / usage.decode_seconds : 0.0, scheduler::info(ended.outcome).name, ended.seed);
}

void print_receipt(const std::string& label, const client::Receipt& receipt) {
  std::cerr << fmt::format(
      "{0}waited: {1:.1f} ms stalled, {2:.1f} ms preempted ({3} times), {4:.1f} ms parked without credit\n"
      "{0}took: {5:.1f} ms of computing ({6:.1f} ms of CPU), {7} tokens computed, {8:.1f} block-seconds, {9:.0f} % of "
      "all computing meanwhile\n",
      label, receipt.stalled_seconds * 1e3, receipt.preempted_seconds * 1e3, receipt.preemptions,
      receipt.parked_seconds * 1e3, receipt.compute_seconds * 1e3, receipt.cpu_seconds * 1e3, receipt.computed_tokens,
      receipt.block_seconds, receipt.share * 100);
  if (receipt.drafted_tokens > 0)
    std::cerr << fmt::format("{}speculation: {} tokens drafted, {} of them accepted\n", label, receipt.drafted_tokens,
                             receipt.accepted_tokens);
  if (!receipt.recomputed_from.empty())
    std::cerr << fmt::format("{}session: recomputed; until now it was of numerics {}\n", label,
                             Printable(receipt.recomputed_from).text());
}

// Says what is meant by `troupe run llama3 "..."`: here the words are all the prompt's.
void explain_first_word(const client::Client& client, const config::RunOptions& options, const config::Given& given) {
  if (given.arguments.size() < 2 || options.ids || !options.model_name.empty()) return;
  std::vector<std::string> served;
  for (const client::Health::Model& model : client.server().health.models) {
    served.push_back(model.name);
    served.insert(served.end(), model.aliases.begin(), model.aliases.end());
  }
  const std::string& word = given.arguments.front();
  if (!looks_like_model(word, served)) return;
  const bool is_served = std::ranges::find(served, word) != served.end();
  complain("troupe run", fmt::format("note: {0} is taken as the first word of the prompt; {1}", Printable(word).text(),
                                     is_served ? fmt::format("a model is named with --model-name {}", word)
                                               : "`troupe model ls` shows the models of the server"));
}

// The line for stderr about an answer that is not complete, was refused or failed; empty: it is complete.
std::string complaint(const client::Ended& ended) {
  const scheduler::OutcomeInfo& outcome = scheduler::info(ended.outcome);
  if (outcome.kind == scheduler::OutcomeKind::done) {
    const std::string message = with_flags(ended.message);
    if (outcome.exit_code == kExitOk) return message.empty() ? "" : "warning: " + message;
    return fmt::format("the answer is not complete ({}){}{}", outcome.name, message.empty() ? "" : ": ", message);
  }
  return fmt::format("{} ({}): {}{}", outcome.kind == scheduler::OutcomeKind::refused ? "refused" : "failed",
                     outcome.name, with_flags(ended.message),
                     ended.retry_after ? "; try again in " + config::format_duration(*ended.retry_after) : "");
}

// The line for stderr about an answer that the context ended and not -n; empty: it did not.
std::string full_context(const client::Ended& ended, std::int64_t predict) {
  const client::Usage& usage = ended.usage;
  if (ended.outcome != scheduler::Outcome::length || predict <= usage.completion_tokens) return "";
  return fmt::format(
      "warning: the answer ended after {} tokens, before the {} of -n: with a prompt of {} it fills the context of {} "
      "(the server's --ctx-size, or max-context of a tenant)",
      usage.completion_tokens, predict, usage.prompt_tokens, usage.prompt_tokens + usage.completion_tokens);
}

// Prints how the answers ended. Returns the exit code: of the first answer that did not succeed.
int report_end(const Answers& answers, const config::RunOptions& options) {
  if (options.json) write_json(answers.json(), std::cout);
  std::cout << std::flush;
  int code = kExitOk;
  bool is_full = false;  // said once, for it is the same for all
  for (std::size_t i = 0; i < answers.all().size(); ++i) {
    const client::Ended& ended = *answers.all()[i].end;
    const scheduler::OutcomeInfo& outcome = scheduler::info(ended.outcome);
    const bool is_refusal = outcome.kind == scheduler::OutcomeKind::refused;  // of the request
    const std::string label = is_refusal ? "" : answers.label(i);
    if (options.verbose) print_timings(label, ended);
    if (options.verbose && ended.receipt) print_receipt(label, *ended.receipt);
    if (const std::string line = complaint(ended); !line.empty())
      complain("troupe run", label + line, outcome.exit_code == kExitOk ? Tone::note : Tone::error);
    if (const std::string line = full_context(ended, options.predict); !line.empty() && !std::exchange(is_full, true))
      complain("troupe run", line);
    // A limit without a time at which to come back is one that this request can never meet.
    const bool is_for_ever = ended.outcome == scheduler::Outcome::quota && ended.limit && !ended.retry_after;
    if (code == kExitOk) code = is_for_ever ? kExitUsage : outcome.exit_code;
    if (is_refusal) break;
  }
  return code;
}

}  // namespace

Result<int> run(const config::RunOptions& options, const config::Given& given) {
  const auto request = make_request(options, given);  // before signals are blocked: it may wait for standard input
  if (!request) return request.error();
  if (request->proof)
    if (const Status writable = check_receipt_file(options.receipt); !writable) return writable.error();
  EventQueue events;
  const SignalThread signals({SIGINT, SIGTERM}, [&](int number) { events.post_signal(number); });
  // Both outlive the client, whose reader thread writes to them until the last event.
  Answers answers({.count = request->n, .as_text = !options.json, .shows_controls = shows_controls(options.raw)},
                  std::cout);
  std::optional<Error> lost;
  const auto client = connect(options, "troupe run");
  if (!client) return client.error();
  explain_first_word(**client, options, given);
  if ((*client)->server().health.readiness == client::Readiness::loading && ::isatty(STDERR_FILENO) != 0)
    complain("troupe run", "the server is loading its model; waiting");

  std::optional<PromptProgress> progress;
  if (!options.json && ::isatty(STDERR_FILENO) != 0) progress.emplace(**client, StatusLine::of_stderr());
  client::Callbacks callbacks;
  callbacks.on_tokens = [&](const client::Tokens& tokens) {
    if (progress) progress->finish();
    answers.take(tokens);
  };
  callbacks.on_end = [&](const Result<client::Ended>& ended) {
    if (progress) progress->finish();
    if (!ended) lost = ended.error();
    if (lost || answers.end(*ended)) events.post(Event::ended);
  };
  const auto stream = (*client)->generate(*request, std::move(callbacks));
  if (!stream) return stream.error();

  bool cancelled = false;
  while (*events.wait() != Event::ended) {
    if (cancelled) {  // a second signal: do not wait for the server's answer
      (*client)->close();
      return kExitSignalBase + events.last_signal();
    }
    cancelled = true;
    stream->cancel();
  }
  if (lost) return *lost;
  const int code = report_end(answers, options);
  if (request->proof)
    if (const Status written = write_receipts(options.receipt, answers); !written) return written.error();
  return cancelled ? kExitSignalBase + events.last_signal() : code;
}

}  // namespace troupe::cli
