// troupe verify: computes answers again, by a server or in this process, and compares them with their receipts.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <iostream>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "actors/gateway.h"
#include "cli/client/client_options.h"
#include "cli/client/comparison.h"
#include "cli/client/receipts.h"
#include "cli/client/verdict.h"
#include "cli/model/model_options.h"
#include "cli/subcommands.h"
#include "cli/terminal/exit_code.h"
#include "cli/terminal/logging.h"
#include "cli/terminal/output.h"
#include "config/printable.h"
#include "scheduler/outcome.h"

namespace troupe::cli {
namespace {

using actors::Proof;
using Clock = std::chrono::steady_clock;

// A model that can compute an answer again.
struct VerifyingModel {
  std::string name;
  std::string numerics_id;
  std::uint32_t context = 0;
};

// How the computing of an answer ended.
struct AnswerEnd {
  scheduler::Outcome outcome = scheduler::Outcome::internal;
  std::string stop{};
  std::string message{};
};

// Passes an answer on to its comparison, and waits. Its other functions may be called from any thread.
class Watch {
 public:
  explicit Watch(Comparison& same) : same_(same) {}

  void take(std::span<const TokenId> ids, std::string_view text) {
    const std::lock_guard lock(mutex_);
    if (same_.take(ids, text)) return;
    differs_ = true;
    changed_.notify_all();
  }
  void end(Result<AnswerEnd> how) {
    const std::lock_guard lock(mutex_);
    ended_ = std::move(how);
    changed_.notify_all();
  }
  // Calls `cancel` where it differs, so that the rest is not computed. The last of them is its end.
  Result<AnswerEnd> wait(const std::function<void()>& cancel) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return differs_ || ended_; });
    if (!ended_) {
      lock.unlock();
      cancel();
      lock.lock();
      changed_.wait(lock, [&] { return ended_.has_value(); });
    }
    return *ended_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Comparison& same_;
  bool differs_ = false;
  std::optional<Result<AnswerEnd>> ended_;
};

// Computes answers again.
class Verifier {
 public:
  virtual ~Verifier() = default;
  [[nodiscard]] virtual Result<std::vector<VerifyingModel>> models() = 0;
  // Until its end, or until it is not `same`.
  [[nodiscard]] virtual Result<AnswerEnd> compute(const Proof& proof, const VerifyingModel& model,
                                                  Comparison& same) = 0;
  // Empty: the model has no vocabulary.
  [[nodiscard]] virtual std::string text_of(TokenId id, const VerifyingModel& model) = 0;
};

// One token more shows that an answer goes on.
std::uint64_t credit_for(const Proof& proof) { return proof.ids.size() + 1; }

// A running server.
class ServerVerifier final : public Verifier {
 public:
  explicit ServerVerifier(std::unique_ptr<client::Client> client) : client_(std::move(client)) {
    // Nothing that the cache has of the earlier computation is used: the prompt is computed again, too.
    std::random_device random;
    scope_ = fmt::format("verify-{:08x}{:08x}", random(), random());
  }

  Result<std::vector<VerifyingModel>> models() override {
    const auto all = client_->models();
    if (!all) return all.error();
    std::vector<VerifyingModel> found;
    for (const client::ModelDescription& each : *all) found.push_back({each.name, each.numerics_id, each.context});
    return found;
  }

  Result<AnswerEnd> compute(const Proof& proof, const VerifyingModel& model, Comparison& same) override {
    client::Request request = request_of(proof);
    request.sampling.max_tokens = provable_tokens(proof);
    request.model = model.name;
    request.cache_scope = scope_;
    request.credit = credit_for(proof);
    const auto watch = std::make_shared<Watch>(same);
    client::Callbacks callbacks;
    callbacks.on_tokens = [watch](const client::Tokens& tokens) { watch->take(tokens.ids, tokens.text); };
    callbacks.on_end = [watch](const Result<client::Ended>& ended) {
      if (ended)
        watch->end(AnswerEnd{ended->outcome, ended->stop, ended->message});
      else
        watch->end(ended.error());
    };
    const auto stream = client_->generate(request, std::move(callbacks));
    if (!stream) return stream.error();
    return watch->wait([&] { stream->cancel(); });
  }

  std::string text_of(TokenId id, const VerifyingModel& model) override {
    const auto text = client_->detokenize({id}, model.name);
    return text ? *text : std::string();
  }

 private:
  std::unique_ptr<client::Client> client_;
  std::string scope_;
};

// A model in this process.
class OwnVerifier final : public Verifier {
 public:
  explicit OwnVerifier(std::unique_ptr<actors::Gateway> gateway) : gateway_(std::move(gateway)) {}

  Result<std::vector<VerifyingModel>> models() override {
    std::vector<VerifyingModel> found;
    for (const actors::ModelDescription& each : gateway_->models())
      found.push_back({each.name, each.numerics_id, each.max_context});
    return found;
  }

  Result<AnswerEnd> compute(const Proof& proof, const VerifyingModel&, Comparison& same) override {
    actors::Request request;
    request.tenant.is_owner = true;
    request.prompt = *proof.prompt;
    request.sampling = proof.sampling;
    request.first_choice = std::exchange(request.sampling.choice, 0);
    request.sampling.max_tokens = provable_tokens(proof);
    request.has_seed = true;
    request.stop_strings = proof.stop_strings;
    request.stop_scope = proof.stop_scope;
    request.begins_with = proof.begins_with;
    request.shown_ids = proof.shown_ids;
    if (proof.form) request.form = std::make_shared<actors::AnswerForm>(proof.form->constraint(), proof.form->field());
    request.proposal = proof.ids;
    request.credit = credit_for(proof);
    const auto sink = std::make_shared<Sink>(same);
    const actors::RequestId id = gateway_->submit(std::move(request), sink);
    return sink->watch.wait([&] { gateway_->cancel(id); });
  }

  std::string text_of(TokenId id, const VerifyingModel&) override {
    const auto tokenizer = gateway_->model()->tokenizer();
    return tokenizer ? tokenizer->piece(id) : std::string();
  }

 private:
  struct Sink final : actors::StreamSink {
    explicit Sink(Comparison& same) : watch(same) {}
    void tokens(actors::TokenRun run) override { watch.take(run.ids, run.text); }
    void end(actors::End end) override { watch.end(AnswerEnd{end.outcome, end.stop, end.message}); }
    Watch watch;
  };

  std::unique_ptr<actors::Gateway> gateway_;
};

Error other_numerics(const std::string& receipts, const std::string& here) {
  const actors::NumericsParts its = actors::parts_of(receipts), ours = actors::parts_of(here);
  std::string what_to_do;
  if (its.recipe != ours.recipe)
    what_to_do = fmt::format("verify it with the version of troupe that has recipe {}", its.recipe);
  else
    what_to_do = fmt::format(
        "verify it with --kernels {} --kv-type {}{}, or by a server that has them", its.kernels, its.kv_type,
        its.states.empty() ? "" : fmt::format(" --state-type f16 --state-snapshot-every {}", its.states.substr(1)));
  return {
      ErrorCode::invalid_argument,
      fmt::format("it was computed under numerics {}, and here they are {}, which round differently: {}, or compare "
                  "all the same with --anyway",
                  receipts, here, what_to_do)};
}

// Which of the models is the receipt's.
Result<VerifyingModel> choose(const Proof& proof, const std::vector<VerifyingModel>& models, bool anyway) {
  if (models.empty()) return Error{ErrorCode::busy, "no model is loaded; try again once one is"};
  const std::string_view hash = actors::parts_of(proof.numerics_id).model_hash;
  const VerifyingModel* of_same_file = nullptr;
  for (const VerifyingModel& each : models) {
    if (each.numerics_id == proof.numerics_id) return each;
    if (!of_same_file && actors::parts_of(each.numerics_id).model_hash == hash) of_same_file = &each;
  }
  if (!of_same_file)
    return Error{ErrorCode::invalid_argument,
                 fmt::format("it was computed by another model, \"{}\" with the hash {}; \"{}\" here has {}. Verify it "
                             "with the same file",
                             Printable(proof.model).text(), hash, Printable(models.front().name).text(),
                             actors::parts_of(models.front().numerics_id).model_hash)};
  if (!anyway) return other_numerics(proof.numerics_id, of_same_file->numerics_id);
  return *of_same_file;
}

Status check_context(const Proof& proof, const VerifyingModel& model) {
  const bool is_full = provable_end(proof) == scheduler::Outcome::length;  // else one token more was drawn
  std::uint64_t needed = proof.prompt->size() + proof.ids.size() + (is_full ? 0 : 1);
  // How an answer is kept whole follows from the tokens that it could have had.
  if (proof.form && proof.sampling.max_tokens != scheduler::kUnlimitedTokens)
    needed = std::max<std::uint64_t>(needed, proof.prompt->size() + proof.sampling.max_tokens);
  if (needed <= model.context) return Ok{};
  return Error{ErrorCode::invalid_argument,
               fmt::format("its {} tokens need a context of {}, and {} are served here (-c of serve)",
                           proof.prompt->size() + proof.ids.size(), needed, model.context)};
}

// The exit code where a receipt could not be judged: never that of one that differs.
int unjudged(int code) { return code == kExitFailure || code == kExitOk ? kExitTryLater : code; }
int unjudged(const Error& error) { return unjudged(client_exit_code(error.code)); }

// What was found about one receipt: lines for people, and the exit code.
struct Finding {
  std::vector<std::string> lines;
  int code = kExitOk;
};

Result<Finding> verify_one(const Proof& proof, Verifier& verifier, const std::vector<VerifyingModel>& models,
                           bool anyway) {
  const auto model = choose(proof, models, anyway);
  if (!model) return model.error();
  if (const Status fits = check_context(proof, *model); !fits) return fits.error();
  if (proof.ids.empty() && provable_end(proof) != proof.outcome)
    return Error{ErrorCode::invalid_argument, "it has no token and was cut before one: there is nothing to prove"};
  Comparison same(proof);
  const auto begin = Clock::now();
  const auto ending = verifier.compute(proof, *model, same);
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  if (!ending) return ending.error();
  const scheduler::OutcomeInfo& how = scheduler::info(ending->outcome);
  if (!same.position()) {
    if (same.is_over()) {
      same.end(provable_end(proof), {});
    } else if (how.kind != scheduler::OutcomeKind::done || ending->outcome == scheduler::Outcome::cancelled) {
      return Finding{{fmt::format("not verified: {} ({})", ending->message, how.name)}, unjudged(how.exit_code)};
    } else {
      same.end(ending->outcome, ending->stop);
    }
  }
  const auto text_of = [&](TokenId id) { return verifier.text_of(id, *model); };
  const std::string where =
      model->numerics_id == proof.numerics_id ? "" : fmt::format(" (here with numerics {})", model->numerics_id);
  if (!same.is_proved()) return Finding{{fmt::format("differs{}: {}", where, same.difference(text_of))}, kExitFailure};
  const bool is_cut = provable_end(proof) != proof.outcome;
  Finding finding{
      {fmt::format("proved{}: {} tokens{}, in {:.2f} s ({:.0f} tokens/s with the prompt's {})", where, proof.ids.size(),
                   is_cut ? fmt::format("; its end, {}, was not the model's", scheduler::info(proof.outcome).name)
                          : fmt::format(" and the end by {}", scheduler::info(proof.outcome).name),
                   seconds, static_cast<double>(proof.prompt->size() + proof.ids.size()) / std::max(seconds, 1e-9),
                   proof.prompt->size()),
       "proved for " + proved_for(proof)}};
  if (const std::string rest = not_proved(proof, model->name); !rest.empty())
    finding.lines.push_back("not proved: " + rest);
  return finding;
}

// A model named on the command line is loaded here; one of a variable or a file is the server's.
bool loads_model(const config::Given& given) {
  const auto origin = given.origins.find("model");
  return origin != given.origins.end() && origin->second.starts_with('-');
}

Result<std::unique_ptr<Verifier>> make_verifier(const config::VerifyOptions& options, const config::Given& given) {
  if (!loads_model(given)) {
    auto client = connect(options, "troupe verify");
    if (!client) return client.error();
    return std::unique_ptr<Verifier>(std::make_unique<ServerVerifier>(std::move(*client)));
  }
  if (given.origins.contains("socket") && given.origins.find("socket")->second.starts_with('-'))
    return Error{ErrorCode::invalid_argument, "-m loads the model here, and --socket asks a server; give one of them"};
  config::LogOptions log;
  log.log_level = "warn";
  if (const Status started = start_log(log); !started) return started.error();
  auto chosen = gateway_for_model(options, given);
  if (!chosen) return chosen.error();
  chosen->num_threads = num_threads(options);
  auto gateway = actors::Gateway::start_loaded(std::move(*chosen));
  if (!gateway) return gateway.error();
  return std::unique_ptr<Verifier>(std::make_unique<OwnVerifier>(std::move(*gateway)));
}

Result<int> verify_all(const config::VerifyOptions& options, const config::Given& given) {
  if (given.arguments.empty())
    return Error{ErrorCode::invalid_argument, "there is no receipt; name the files that `troupe run --receipt` wrote"};
  int code = kExitOk;
  const auto add = [&](int found) {
    // That an answer differs counts more than that another one could not be verified.
    if (code == kExitOk || found == kExitFailure) code = found;
  };
  std::vector<std::pair<std::string, Proof>> proofs;  // with a name for each
  for (const std::string& path : given.arguments) {
    auto receipts = read_receipt_file(path);
    if (!receipts) {
      complain("troupe verify", receipts.error().message);
      add(receipts.error().code == ErrorCode::permission ? kExitPermission : kExitUsage);
      continue;
    }
    for (std::size_t i = 0; i < receipts->size(); ++i)
      proofs.emplace_back(receipts->size() == 1 ? path : fmt::format("{}[{}]", path, i), std::move((*receipts)[i]));
  }
  if (proofs.empty()) return code;
  const auto verifier = make_verifier(options, given);
  if (!verifier) return verifier.error();
  const auto models = (*verifier)->models();
  if (!models) return models.error();
  for (const auto& [name, proof] : proofs) {
    const auto finding = verify_one(proof, **verifier, *models, options.anyway);
    if (finding) {
      for (const std::string& line : finding->lines)
        std::cout << Printable(fmt::format("{}: {}", name, line), kMaxMessageBytes).text() << std::endl;
      add(finding->code);
    } else {
      complain("troupe verify", fmt::format("{}: {}", name, finding.error().message));
      add(unjudged(finding.error()));
    }
  }
  return code;
}

}  // namespace

Result<int> verify(const config::VerifyOptions& options, const config::Given& given) {
  auto code = verify_all(options, given);
  if (code) return code;
  complain("troupe verify", code.error().message, Tone::error);
  return loads_model(given) ? unjudged(exit_code(code.error().code)) : unjudged(code.error());
}

}  // namespace troupe::cli
