// troupe run: one request to the server, its answer to stdout.
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>

#include "cli/connect.h"
#include "cli/events.h"
#include "cli/exit_code.h"
#include "cli/output.h"
#include "cli/sampling.h"
#include "cli/signals.h"
#include "cli/subcommands.h"
#include "cli/text.h"
#include "config/printable.h"
#include "config/values.h"
#include "ipc/client/client.h"
#include "scheduler/outcome.h"

namespace troupe::cli {
namespace {

using nlohmann::ordered_json;

// "15043=-2.5", or in llama.cpp's form "15043+1", "15043-1".
Result<std::pair<TokenId, float>> parse_logit_bias(const std::string& text) {
  const std::size_t split = text.find_first_of("=+-", 1);
  if (split != std::string::npos) {
    const auto id = config::parse_integer(text.substr(0, split));
    // '=' and '+' are not part of the number, '-' is its sign.
    std::size_t begin = text[split] == '-' ? split : split + 1;
    const auto bias = config::parse_number(text.substr(begin));
    if (id && bias && *id >= 0 && *id <= std::numeric_limits<TokenId>::max())
      return std::pair{static_cast<TokenId>(*id), static_cast<float>(*bias)};
  }
  return Error{ErrorCode::invalid_argument,
               "--logit-bias: '" + text + "' is not ID=BIAS, for example 1234=-5 (also 1234+5 and 1234-5)"};
}

Result<client::Request> make_request(const config::Parsed& parsed) {
  const config::Options& options = parsed.options;
  if (options.logprobs >= 0 && !options.json)
    return config::bad_value(parsed, "logprobs", "only --json shows logprobs; add it, or ask for none (--logprobs -1)");
  client::Request request;
  auto text = input_text(parsed);
  if (!text) return text.error();
  if (options.ids) {
    auto ids = parse_ids(*text);
    if (!ids) return ids.error();
    request.prompt = std::move(*ids);
  } else {
    // Editors and echo end a text with a line break that does not belong to the prompt.
    if (parsed.arguments.empty() && text->ends_with('\n')) text->pop_back();
    request.prompt = std::move(*text);
  }
  request.model = options.model_name;
  request.parse_special = options.special;
  request.stop = options.stop;
  request.priority = static_cast<std::int32_t>(options.priority);
  request.cache_scope = options.scope;
  if (options.timeout.count() > 0) request.deadline = options.timeout;
  if (options.logprobs >= 0) request.logprobs = static_cast<std::uint32_t>(options.logprobs);

  request.sampling = sampling_of(options);
  client::Sampling& sampling = request.sampling;
  sampling.ignore_eos = options.ignore_eos;
  sampling.stop_ids.assign(options.stop_id.begin(), options.stop_id.end());
  if (options.predict >= 0) sampling.max_tokens = static_cast<std::uint32_t>(options.predict);
  for (const std::string& bias : options.logit_bias) {
    auto entry = parse_logit_bias(bias);
    if (!entry) return entry.error();
    sampling.logit_bias.push_back(*entry);
  }
  return request;
}

// The answer so far. Used by the client's reader thread until the stream has ended, then by the main thread.
struct Answer {
  std::string text;
  TerminalText shown;  // filters the text for a terminal
  std::vector<TokenId> ids;
  std::vector<client::Logprobs> logprobs;
  std::optional<Result<client::Ended>> end;
};

ordered_json to_json(const client::Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},         {"cached_tokens", usage.cached_tokens},
          {"completion_tokens", usage.completion_tokens}, {"preemptions", usage.preemptions},
          {"queue_seconds", usage.queue_seconds},         {"prefill_seconds", usage.prefill_seconds},
          {"decode_seconds", usage.decode_seconds},       {"ttft_seconds", usage.ttft_seconds}};
}

ordered_json to_json(const Answer& answer, const client::Ended& ended) {
  const scheduler::OutcomeInfo& outcome = scheduler::info(ended.outcome);
  ordered_json object{{"outcome", outcome.name},
                      {"text", answer.text},
                      {"ids", answer.ids},
                      {"seed", ended.seed},
                      {"usage", to_json(ended.usage)}};
  if (!ended.message.empty()) object["message"] = ended.message;
  if (!ended.field.empty()) object["field"] = ended.field;
  if (!ended.stop.empty()) object["stop"] = ended.stop;
  if (ended.limit) object["limit"] = *ended.limit;
  if (ended.retry_after) object["retry_after_ms"] = ended.retry_after->count();
  if (!answer.logprobs.empty()) {
    object["logprobs"] = ordered_json::array();
    for (const client::Logprobs& entry : answer.logprobs) {
      ordered_json top = ordered_json::array();
      for (const client::TokenLogprob& other : entry.top) top.push_back({{"id", other.id}, {"logprob", other.logprob}});
      object["logprobs"].push_back({{"logprob", entry.logprob}, {"top", std::move(top)}});
    }
  }
  return object;
}

void print_timings(const client::Ended& ended) {
  const client::Usage& usage = ended.usage;
  const double later = usage.completion_tokens > 1 ? usage.completion_tokens - 1.0 : 0.0;
  std::fprintf(stderr,
               "%u prompt tokens (%u cached), first token after %.1f ms (queued %.1f ms, prefill %.1f ms)\n"
               "%u tokens, %.1f tokens/s after the first; ended by %s, seed %llu\n",
               usage.prompt_tokens, usage.cached_tokens, usage.ttft_seconds * 1e3, usage.queue_seconds * 1e3,
               usage.prefill_seconds * 1e3, usage.completion_tokens,
               usage.decode_seconds > 0 ? later / usage.decode_seconds : 0.0,
               std::string(scheduler::info(ended.outcome).name).c_str(), static_cast<unsigned long long>(ended.seed));
}

// Prints how the answer ended; returns the exit code.
int report_end(Answer& answer, const client::Ended& ended, const config::Options& options) {
  const scheduler::OutcomeInfo& outcome = scheduler::info(ended.outcome);
  if (options.json)
    write_json(to_json(answer, ended), std::cout);
  else if (!answer.text.empty() && answer.text.back() != '\n')
    std::cout << answer.shown.end() << std::endl;
  if (options.verbose) print_timings(ended);
  if (outcome.kind == scheduler::OutcomeKind::done) {
    if (ended.outcome == scheduler::Outcome::cancelled || ended.outcome == scheduler::Outcome::deadline)
      complain("troupe run", "the answer is not complete (" + std::string(outcome.name) + ")" +
                                 (ended.message.empty() ? "" : ": " + ended.message));
    return outcome.exit_code;
  }
  std::string line = outcome.kind == scheduler::OutcomeKind::refused ? "refused" : "failed";
  line += " (" + std::string(outcome.name) + "): " + ended.message;
  if (ended.retry_after) line += "; try again in " + config::format_duration(*ended.retry_after);
  complain("troupe run", line);
  return outcome.exit_code;
}

}  // namespace

Result<int> run(const config::Parsed& parsed) {
  const config::Options& options = parsed.options;
  EventQueue events;
  const SignalThread signals({SIGINT, SIGTERM}, [&](int number) { events.post_signal(number); });
  const auto request = make_request(parsed);
  if (!request) return request.error();
  Answer answer;  // outlives the client, whose reader thread writes to it
  const auto client = connect(options, "troupe run");
  if (!client) return client.error();
  if ((*client)->server().health.readiness == client::Readiness::loading && ::isatty(STDERR_FILENO) != 0)
    complain("troupe run", "the server is loading its model; waiting");

  const bool shows = shows_controls(options.raw);
  client::Callbacks callbacks;
  callbacks.on_tokens = [&](const client::Tokens& tokens) {
    answer.text += tokens.text;
    answer.ids.insert(answer.ids.end(), tokens.ids.begin(), tokens.ids.end());
    answer.logprobs.insert(answer.logprobs.end(), tokens.logprobs.begin(), tokens.logprobs.end());
    if (!options.json) std::cout << (shows ? answer.shown.show(tokens.text) : tokens.text) << std::flush;
  };
  callbacks.on_end = [&](const Result<client::Ended>& ended) {
    answer.end = ended;
    events.post(Event::ended);
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
  if (!*answer.end) return answer.end->error();
  const int code = report_end(answer, **answer.end, options);
  return cancelled ? kExitSignalBase + events.last_signal() : code;
}

}  // namespace troupe::cli
