#include "cli/model/bench_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "actors/serving/model_cache.h"
#include "cli/model/probe_report.h"
#include "cli/terminal/output.h"
#include "cli/terminal/profile_report.h"
#include "cli/terminal/text.h"
#include "cli/version.h"
#include "engine/machine/probe_file.h"
#include "engine/memory/process_memory.h"

namespace troupe::cli {
namespace {

// Half the distance from the smallest to the largest round, in percent of the median.
double spread_percent(const std::vector<double>& values) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return 50.0 * (*high - *low) / median(values);
}

// What is said of a model that continues texts and of an encoder alike.
struct Subject {
  const engine::ModelInfo& info;
  const kernels::KernelTable& kernels;
  kernels::KvType kv_type;
  std::string numerics_id;
  std::uint64_t weight_bytes, kv_bytes, vocabulary_bytes;
};
Subject subject_of(const BenchContext& context) {
  if (const engine::Encoder* const encoder = context.encoder)
    return {encoder->info(),
            encoder->kernels(),
            encoder->kv_type(),
            encoder->numerics_id(),
            encoder->weight_bytes(),
            0,
            encoder->vocabulary_bytes()};
  const engine::LoadedModel& model = *context.model;
  return {model.info(),
          model.kernels(),
          model.cache_spec().kv_type,
          model.numerics_id(),
          model.model().weight_bytes(),
          actors::resident_kv_bytes(model),
          model.vocabulary_bytes()};
}

// The end of a line of the head: the machine's limits, or how to measure them.
std::string share_note(const BenchContext& context) {
  if (!context.probe) return "no limits to compare with: run `troupe probe`\n";
  std::set<kernels::Unit> units;
  const Subject subject = subject_of(context);
  for (const engine::MatrixWork& matrix : subject.info.matrices)
    units.insert(subject.kernels.unit(matrix.type, matrix.layout));
  std::string note = fmt::format("limits of {}: {}; shares count weights alone\n", context.probe->measured_at,
                                 limits_line(*context.probe, context.num_threads, units));
  if (context.probe->disturbed())
    note += "they were measured on a busy machine: on a quiet one `troupe probe --refresh` may find higher ones\n";
  return note;
}

// Peak memory of each kind; none of them shrinks before the end.
std::vector<std::pair<std::string, std::uint64_t>> memory_peaks(const BenchContext& context,
                                                                const std::vector<BenchResult>& results) {
  std::uint64_t step_buffers = 0;
  for (const BenchResult& result : results) step_buffers = std::max(step_buffers, result.step_buffer_bytes);
  const Subject subject = subject_of(context);
  return {{"weights", subject.weight_bytes},
          {"kv_cache", subject.kv_bytes},
          {"step_buffers", step_buffers},
          {"vocabulary", subject.vocabulary_bytes},
          {"process", engine::process_memory().peak_resident}};
}

}  // namespace

double BenchResult::seconds() const { return test.num_tokens() / median(tokens_per_second); }

engine::RunLimits limits_of(const BenchContext& context, const BenchCase& test) {
  engine::RunLimits limits(context.probe, context.num_threads);
  const Subject subject = subject_of(context);
  const auto add = [&](std::uint32_t rows, std::uint32_t outputs) {
    limits.add(engine::step_work(subject.info.matrices, subject.kernels, rows, outputs));
  };
  if (context.encoder) {
    const auto most = static_cast<std::uint32_t>(engine::Encoder::kTokensPerPass) / test.num_prompt;
    const std::uint32_t at_once = std::max(most, 1u);
    for (std::uint32_t done = 0; done < test.batch; done += at_once)
      add(std::min(at_once, test.batch - done) * test.num_prompt, 0);
    return limits;
  }
  for (std::uint32_t done = 0; done < test.num_prompt; done += test.step_tokens)
    add(std::min(test.step_tokens, test.num_prompt - done), done + test.step_tokens >= test.num_prompt ? 1 : 0);
  for (std::uint32_t i = 0; i < test.num_gen; ++i) add(test.batch, test.batch);
  return limits;
}

std::string BenchCase::name() const {
  std::string text = num_prompt > 0 ? fmt::format("pp{}", num_prompt) : fmt::format("tg{} x{}", num_gen, batch);
  if (num_prompt > 0 && num_gen > 0) text += fmt::format("+tg{}", num_gen);
  if (num_prompt > 0 && batch > 1) text += fmt::format(" x{}", batch);
  return depth > 0 ? fmt::format("{} @ d{}", text, depth) : text;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
}

void print_markdown_head(const BenchContext& context, std::ostream& out) {
  const Subject subject = subject_of(context);
  out << fmt::format("troupe {}, {}\nkernels {}, {} threads, KV {}, medians of the rounds and half their range\n",
                     kVersionAndCommit, cpu_name(), subject.kernels.name, context.num_threads,
                     kernels::name(subject.kv_type))
      << share_note(context) << "\n| model | size | parameters | kernels | kv | threads | test | tokens/s |"
      << (context.probe ? " of the limit |" : "") << "\n|---|---:|---:|---|---|---:|---|---:|"
      << (context.probe ? "---:|" : "") << std::endl;
}

void print_markdown_row(const BenchContext& context, const BenchResult& result, std::ostream& out) {
  const Subject subject = subject_of(context);
  out << fmt::format("| {} | {} | {} | {} | {} | {} | {} | {:.2f} ± {:.1f} % |", subject.info.name,
                     human_bytes(context.file_bytes), human_count(subject.info.num_parameters), subject.kernels.name,
                     kernels::name(subject.kv_type), context.num_threads, result.test.name(),
                     median(result.tokens_per_second), spread_percent(result.tokens_per_second));
  if (context.probe) {
    const auto share = limits_of(context, result.test).share(result.seconds());
    out << " " << (share ? share_text(share->value, share->limit) : "unknown") << " |";
  }
  out << std::endl;
}

void print_profiles(const BenchContext& context, const std::vector<BenchResult>& results, std::ostream& out) {
  for (const BenchResult& result : results)
    if (result.profile) out << fmt::format("\n## {}\n\n{}", result.test.name(), profile_text(*result.profile));
  out << "\nmemory, at most: ";
  const auto peaks = memory_peaks(context, results);
  for (const auto& [kind, bytes] : peaks)
    out << kind << " " << human_bytes(bytes) << (kind == peaks.back().first ? "\n" : ", ");
}

void print_json(const BenchContext& context, const std::vector<BenchResult>& results, std::ostream& out) {
  using nlohmann::ordered_json;
  const Subject subject = subject_of(context);
  ordered_json rows = ordered_json::array();
  for (const BenchResult& result : results) {
    const engine::RunLimits limits = limits_of(context, result.test);
    const double seconds = result.seconds();
    ordered_json row({{"test", result.test.name()},
                      {"n_prompt", result.test.num_prompt},
                      {"n_gen", result.test.num_gen},
                      {"batch_size", result.test.batch},
                      {"n_depth", result.test.depth},
                      {"n_ubatch", result.test.step_tokens},
                      {"median_ts", median(result.tokens_per_second)},
                      {"spread_percent", spread_percent(result.tokens_per_second)},
                      {"samples_ts", result.tokens_per_second},
                      {"weight_bytes_per_second", limits.bytes() / seconds},
                      {"ops_per_second", limits.ops() / seconds}});
    if (limits.read_seconds()) row["read_share"] = *limits.read_seconds() / seconds;
    if (limits.compute_seconds()) {
      row["compute_share"] = *limits.compute_seconds() / seconds;
      row["compute_unit"] = kernels::name(limits.unit());
    }
    if (const auto share = limits.share(seconds)) {
      row["share"] = share->value;
      row["limit"] = share->limit;
    }
    if (result.profile) row["profile"] = profile_json(*result.profile);
    rows.push_back(std::move(row));
  }
  ordered_json memory = ordered_json::object();
  for (const auto& [kind, bytes] : memory_peaks(context, results)) memory[kind] = bytes;
  ordered_json report{{"version", kVersion},
                      {"commit", kCommit},
                      {"compiler", kCompiler},
                      {"cpu", cpu_name()},
                      {"model", subject.info.name},
                      {"family", subject.info.family},
                      {"weight_types", subject.info.weight_types},
                      {"file_bytes", context.file_bytes},
                      {"weight_bytes", subject.weight_bytes},
                      {"num_parameters", subject.info.num_parameters},
                      {"kernels", subject.kernels.name},
                      {"kv_type", kernels::name(subject.kv_type)},
                      {"num_threads", context.num_threads},
                      {"numerics_id", subject.numerics_id},
                      {"memory_peak_bytes", std::move(memory)},
                      {"results", std::move(rows)}};
  // Null: no probe is stored; run `troupe probe`.
  report["probe"] = context.probe ? ordered_json::parse(engine::to_json(*context.probe)) : ordered_json(nullptr);
  write_json(report, out);
}

}  // namespace troupe::cli
