// troupe eval: logits, or a greedy continuation, of given tokens; and the difference between two such runs.
#include "engine/evaluation/eval.h"

#include <fmt/format.h>

#include <cerrno>
#include <fstream>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>

#include "cli/model/model_options.h"
#include "cli/subcommands.h"
#include "cli/terminal/exit_code.h"
#include "cli/terminal/logging.h"
#include "cli/terminal/output.h"
#include "cli/terminal/process.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/text.h"
#include "config/system_error.h"
#include "engine/evaluation/model_comparison.h"

namespace troupe::cli {
namespace {

Result<std::vector<TokenId>> read_ids(const std::string& path) {
  const auto text = read_text(path);
  if (!text) return Error{text.error().code, "--tokens: " + text.error().message};
  const nlohmann::json json = nlohmann::json::parse(*text, nullptr, false);
  const Error wrong{ErrorCode::invalid_argument,
                    "--tokens: " + path + " is not a JSON array of token ids such as [1, 424, 437]"};
  if (!json.is_array()) return wrong;
  std::vector<TokenId> ids;
  for (const nlohmann::json& element : json) {
    if (!element.is_number_integer()) return wrong;
    const auto id = element.get<std::int64_t>();
    if (id < 0 || id > std::numeric_limits<TokenId>::max()) return wrong;
    ids.push_back(static_cast<TokenId>(id));
  }
  if (ids.empty()) return Error{ErrorCode::invalid_argument, "--tokens: " + path + " is an empty array"};
  return ids;
}

Status write_floats(const std::string& path, const std::vector<float>& values) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(float)));
  file.close();
  if (!file) return system_error("--output: " + path, errno);
  return Ok{};
}

bool is_comparison(const config::LogitsOptions& options) {
  return !options.compare.empty() || options.compare_kv_type != "same" || options.compare_kernels != "same" ||
         options.compare_ternary != "same";
}

// A run: the options that it is loaded with, and where they come from.
struct RunSetup {
  config::EvalOptions options;
  config::Given given;
};

// The second run, as if its options had been given for the first.
RunSetup second_run(const config::EvalOptions& first, const config::Given& given) {
  RunSetup second{first, given};
  if (!first.compare.empty()) {
    second.options.model = {first.compare};
    second.options.hf_repo.clear();
  }
  if (first.compare_kv_type != "same") second.options.kv_type = first.compare_kv_type;
  if (first.compare_ternary != "same") second.options.ternary = first.compare_ternary;
  if (first.compare_kernels != "same") {
    second.options.kernels = first.compare_kernels;
    const auto origin = given.origins.find("compare-kernels");
    second.given.origins["kernels"] = origin == given.origins.end() ? "--compare-kernels" : origin->second;
  }
  return second;
}

Result<std::shared_ptr<engine::LoadedModel>> load_model(const RunSetup& run, engine::Team& team) {
  const auto path = model_path(run.options);
  if (!path) return path.error();
  auto load = load_options(run.options, run.given);
  if (!load) return load.error();
  load->context = static_cast<std::uint32_t>(run.options.ctx_size);
  load->max_sequences = 1;
  load->team = &team;
  return load_showing(*path, *load, Progress(log_is_on_terminal({}), Progress::Clock::now()));
}

// The tokens of --tokens, or of the text of -f in the model's vocabulary.
Result<std::vector<TokenId>> read_tokens(const config::EvalOptions& options, const engine::LoadedModel& model) {
  if (!options.tokens.empty()) return read_ids(options.tokens);
  const auto text = read_text(options.file);
  if (!text) return Error{text.error().code, "--file: " + text.error().message};
  if (!model.tokenizer())
    return Error{ErrorCode::unsupported, "the model has no vocabulary: give it token ids with --tokens"};
  return model.tokenizer()->encode(*text, {});
}

// Splits a text into passages as long as the context; --tokens is always one passage.
std::vector<std::vector<TokenId>> passages_of(const std::vector<TokenId>& ids, const config::LogitsOptions& options,
                                              const engine::LoadedModel& model) {
  if (!options.tokens.empty()) return {ids};
  const auto& tokenizer = model.tokenizer();
  std::vector<std::vector<TokenId>> passages;
  for (std::size_t done = 0; done < ids.size(); done += passages.back().size()) {
    const std::size_t count = std::min<std::size_t>(model.info().context, ids.size() - done);
    const auto begin = ids.begin() + static_cast<std::ptrdiff_t>(done);
    passages.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(count));
    // Every passage begins with BOS, as a text does.
    if (done > 0 && tokenizer->adds_bos() && tokenizer->bos()) passages.back()[0] = *tokenizer->bos();
  }
  return passages;
}

void print_comparison(const engine::ModelComparison& result, const engine::LoadedModel& first,
                      const engine::LoadedModel& second, bool as_json) {
  if (as_json) {
    const nlohmann::ordered_json report{{"model", first.info().name},
                                        {"numerics_id", first.numerics_id()},
                                        {"compared_model", second.info().name},
                                        {"compared_numerics_id", second.numerics_id()},
                                        {"positions", result.num_positions},
                                        {"mean_kl_divergence", result.mean_kl_divergence},
                                        {"median_kl_divergence", result.median_kl_divergence},
                                        {"p99_kl_divergence", result.p99_kl_divergence},
                                        {"max_kl_divergence", result.max_kl_divergence},
                                        {"same_top", result.same_top},
                                        {"rms", result.rms},
                                        {"relative_rms", result.relative_rms},
                                        {"max_abs", result.max_abs},
                                        {"perplexity", result.first.perplexity()},
                                        {"compared_perplexity", result.second.perplexity()}};
    write_json(report, std::cout);
    return;
  }
  std::cout << aligned(
      {{"first", first.info().name + ", numerics " + first.numerics_id()},
       {"second", second.info().name + ", numerics " + second.numerics_id()},
       {"positions", std::to_string(result.num_positions)},
       {"KL divergence, mean", fmt::format("{:.3e}", result.mean_kl_divergence)},
       {"median", fmt::format("{:.3e}", result.median_kl_divergence)},
       {"99 %", fmt::format("{:.3e}", result.p99_kl_divergence)},
       {"max", fmt::format("{:.3e}", result.max_kl_divergence)},
       {"same likeliest token", fmt::format("{:.2f} %", 100 * result.same_top)},
       {"logits, RMS of differences", fmt::format("{:.3e}, {:.2f} % of their spread; at most {:.3e}", result.rms,
                                                  100 * result.relative_rms, result.max_abs)},
       {"perplexity", fmt::format("{:.4f}, {:.4f}", result.first.perplexity(), result.second.perplexity())}});
}

Status compare(const RunSetup& run, const engine::LoadedModel& first, engine::Team& team,
               const std::vector<TokenId>& ids) {
  const config::EvalOptions& options = run.options;
  const auto second = load_model(second_run(options, run.given), team);
  if (!second) return second.error();
  if (options.tokens.empty()) {
    const auto theirs = read_tokens(options, **second);
    if (!theirs) return theirs.error();
    if (*theirs != ids)
      return Error{ErrorCode::invalid_argument,
                   "the two vocabularies make different tokens of the text; give token ids with --tokens"};
  }
  const auto result = engine::compare_models(first, **second, team, passages_of(ids, options, first));
  if (!result) return result.error();
  print_comparison(*result, first, **second, options.json);
  return Ok{};
}

}  // namespace

Result<int> eval(const config::EvalOptions& options, const config::Given& given) {
  if (options.tokens.empty() && options.file.empty())
    return Error{ErrorCode::invalid_argument,
                 "no tokens: name a JSON array of token ids with --tokens IDS.json, or a text with -f FILE"};
  if (!options.tokens.empty() && !options.file.empty())
    return Error{ErrorCode::invalid_argument,
                 "the tokens are given twice: with --tokens and with -f; give one of them"};
  if (options.output.empty() && options.greedy == 0 && !is_comparison(options))
    return Error{ErrorCode::invalid_argument,
                 "nothing to do: write logits with -o LOGITS.f32, continue with --greedy N, or compare with --compare "
                 "MODEL, --compare-kv-type, --compare-kernels or --compare-ternary"};
  // Checks the ids before a large model is loaded.
  if (!options.tokens.empty())
    if (const auto ids = read_ids(options.tokens); !ids) return ids.error();
  const RunSetup run{options, given};
  engine::Team team(num_threads(options), engine::allowed_cpus());
  if (auto status = start_log({}); !status) return status.error();  // on stderr: stdout is for results
  const auto model = load_model(run, team);
  if (!model) return model.error();
  const auto ids = read_tokens(options, **model);
  if (!ids) return ids.error();

  if (!options.output.empty()) {
    const auto logits = engine::evaluate(**model, team, *ids, static_cast<std::uint32_t>(options.chunk));
    if (!logits) return logits.error();
    if (auto status = write_floats(options.output, *logits); !status) return status.error();
    complain("troupe eval", fmt::format("wrote logits of {} positions x {} tokens (numerics {}) to {}", ids->size(),
                                        (*model)->info().vocab_size, (*model)->numerics_id(), options.output));
  }
  if (options.greedy > 0) {
    const auto tokens = engine::greedy(**model, team, *ids, static_cast<std::uint32_t>(options.greedy));
    if (!tokens) return tokens.error();
    std::cout << format_ids(*tokens) << '\n';
  }
  if (is_comparison(options))
    if (auto status = compare(run, **model, team, *ids); !status) return status.error();
  return kExitOk;
}

}  // namespace troupe::cli
