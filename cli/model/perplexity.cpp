// troupe perplexity: how well a model predicts a text.
#include "engine/evaluation/perplexity.h"

#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/model/model_options.h"
#include "cli/subcommands.h"
#include "cli/terminal/exit_code.h"
#include "cli/terminal/logging.h"
#include "cli/terminal/output.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/text.h"
#include "cli/version.h"
#include "engine/evaluation/passage_logits.h"

namespace troupe::cli {
namespace {

// A measurement: the model, the text, the options and the result.
struct Run {
  const engine::LoadedModel& model;
  std::uint32_t num_threads;
  std::size_t num_tokens;  // of the text
  engine::PerplexityOptions options;
  engine::PerplexityReport report;

  std::uint32_t length() const { return options.length + options.stride / 2; }
};

// "18.18 ± 1.72"
std::string with_error(const engine::LogLikelihood& tokens) {
  return fmt::format("{:.4f} ± {:.4f}", tokens.perplexity(), tokens.perplexity_error());
}

void print_markdown(const Run& run, std::ostream& out) {
  const engine::LoadedModel& model = run.model;
  out << fmt::format("troupe {}, {}\nnumerics {}, {} threads; a text of {} tokens\n\n", kVersionAndCommit, cpu_name(),
                     model.numerics_id(), run.num_threads, run.num_tokens)
      << "| model | weights | kernels | kv | passages | scored tokens | mean nll | perplexity |\n"
      << "|---|---|---|---|---:|---:|---:|---:|\n"
      << fmt::format("| {} | {} | {} | {} | {} x {} | {} | {:.6f} | {} |\n", model.info().name,
                     model.info().weight_types, model.kernels().name, kernels::name(model.cache_spec().kv_type),
                     run.report.running.size(), run.length(), run.report.scored.count(), run.report.scored.mean(),
                     with_error(run.report.scored));
  if (run.report.by_position.empty()) return;
  out << "\n| positions | tokens | mean nll | perplexity |\n|---:|---:|---:|---:|\n";
  for (const engine::PositionBucket& bucket : run.report.by_position)
    out << fmt::format("| {} - {} | {} | {:.4f} | {} |\n", bucket.first, bucket.last, bucket.tokens.count(),
                       bucket.tokens.mean(), with_error(bucket.tokens));
}

void print_json(const Run& run, std::ostream& out) {
  using nlohmann::ordered_json;
  const engine::LoadedModel& model = run.model;
  ordered_json report{{"version", kVersion},
                      {"commit", kCommit},
                      {"cpu", cpu_name()},
                      {"model", model.info().name},
                      {"family", model.info().family},
                      {"weight_types", model.info().weight_types},
                      {"kernels", model.kernels().name},
                      {"kv_type", kernels::name(model.cache_spec().kv_type)},
                      {"num_threads", run.num_threads},
                      {"numerics_id", model.numerics_id()},
                      {"text_tokens", run.num_tokens},
                      {"passage", run.length()},
                      {"stride", run.options.stride},
                      {"passages", run.report.running.size()},
                      {"scored_tokens", run.report.scored.count()},
                      {"nll", run.report.scored.mean()},
                      {"nll_error", run.report.scored.standard_error()},
                      {"perplexity", run.report.scored.perplexity()},
                      {"perplexity_error", run.report.scored.perplexity_error()},
                      {"running", run.report.running}};
  if (run.options.by_position) {
    ordered_json buckets = ordered_json::array();
    for (const engine::PositionBucket& bucket : run.report.by_position)
      buckets.push_back({{"first", bucket.first},
                         {"last", bucket.last},
                         {"tokens", bucket.tokens.count()},
                         {"nll", bucket.tokens.mean()},
                         {"nll_error", bucket.tokens.standard_error()}});
    report["by_position"] = std::move(buckets);
  }
  write_json(report, out);
}

// "[3/12] 18.1793"; on a terminal each line overwrites the one before.
engine::PerplexityProgress show_on_stderr(bool on_terminal) {
  return [on_terminal](std::size_t done, std::size_t total, const engine::LogLikelihood& scored) {
    std::cerr << fmt::format("{}[{}/{}] {:.4f}{}", on_terminal ? "\r" : "", done, total, scored.perplexity(),
                             on_terminal && done < total ? " " : "\n");
  };
}

}  // namespace

Result<int> perplexity(const config::PerplexityOptions& options, const config::Given& given) {
  engine::PerplexityOptions measured;
  measured.length = static_cast<std::uint32_t>(options.window);
  measured.stride = static_cast<std::uint32_t>(options.stride);
  measured.max_passages = static_cast<std::uint32_t>(options.chunks);
  measured.by_position = options.by_position;
  const std::uint32_t length = measured.length + measured.stride / 2;
  auto text = input_text(options, given);
  if (!text) return text.error();
  if (!text->empty() && text->back() == '\n') text->pop_back();  // as llama-perplexity reads a file
  const auto path = model_path(options);
  if (!path) return path.error();
  auto load = load_options(options, given);
  if (!load) return load.error();
  load->context = length;
  load->max_sequences = engine::passages_at_once(length);
  const std::uint32_t threads = num_threads(options);
  engine::Team team(threads, engine::allowed_cpus());
  load->team = &team;
  if (auto status = start_log({}); !status) return status.error();  // on stderr: stdout is for results
  const bool on_terminal = log_is_on_terminal({});
  const auto model = load_showing(*path, *load, Progress(on_terminal, Progress::Clock::now()));
  if (!model) return model.error();

  const auto& tokenizer = (*model)->tokenizer();
  if (!tokenizer)
    return Error{ErrorCode::unsupported, *path + ": the file has no vocabulary: its perplexity of a text is unknown"};
  const std::vector<TokenId> tokens = tokenizer->encode(*text, {});
  if (tokenizer->adds_bos()) measured.begin_token = tokenizer->bos();
  auto report = engine::measure_perplexity(**model, team, tokens, measured, show_on_stderr(on_terminal));
  if (!report) return report.error();
  const Run run{**model, threads, tokens.size(), measured, std::move(*report)};
  if (options.format == "json")
    print_json(run, std::cout);
  else
    print_markdown(run, std::cout);
  return kExitOk;
}

}  // namespace troupe::cli
