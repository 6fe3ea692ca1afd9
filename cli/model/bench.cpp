// troupe bench: measures the engine's speed through the executor, without server or actors.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <numeric>
#include <random>

#include "cli/model/bench_report.h"
#include "cli/model/model_options.h"
#include "cli/subcommands.h"
#include "cli/terminal/exit_code.h"
#include "cli/terminal/logging.h"
#include "cli/terminal/progress.h"
#include "engine/compute/step_profile.h"
#include "engine/engine.h"
#include "engine/formats/model_file.h"
#include "engine/formats/split_name.h"
#include "engine/machine/probe_file.h"

namespace troupe::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kMaxLength = 1u << 24;
constexpr std::uint64_t kTokenSeed = 42;  // of the random prompts

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

engine::StepItem item(SequenceId sequence, std::uint32_t num_tokens, engine::Output output) {
  return {.sequence = sequence, .num_tokens = num_tokens, .output = output, .new_blocks = {}};
}

// The rounds of one test.
class Rounds {
 public:
  virtual ~Rounds() = default;
  virtual double measure() = 0;  // seconds of one
  virtual std::uint64_t workspace_bytes() const = 0;
};

// Of a model that continues texts. Sequence i has the i-th range of the arena's blocks.
class BenchRun final : public Rounds {
 public:
  BenchRun(const engine::LoadedModel& model, engine::Team& team, BenchCase test)
      : executor_(model, team), test_(test), length_(test.depth + std::max(test.num_prompt, 1u)) {
    std::mt19937_64 random(kTokenSeed);
    tokens_.resize(test.batch);
    for (std::vector<TokenId>& tokens : tokens_) {
      tokens.resize(length_);
      for (TokenId& token : tokens) token = static_cast<TokenId>(random() % model.info().vocab_size);
    }
    if (test.depth > 0) fill_depth();
  }

  double measure() override {
    const std::vector<SequenceId> ids = open(test_.depth);
    const Clock::time_point start = Clock::now();
    for (std::uint32_t done = 0; done < test_.num_prompt; done += test_.step_tokens) {
      const std::uint32_t count = std::min(test_.step_tokens, test_.num_prompt - done);
      const bool last = done + count == test_.num_prompt;
      step({item(ids[0], count, last ? engine::Output::sample : engine::Output::none)});
    }
    std::vector<engine::StepItem> items;
    items.reserve(ids.size());
    for (const SequenceId id : ids) items.push_back(item(id, 1, engine::Output::sample));
    for (std::uint32_t i = 0; i < test_.num_gen; ++i) step(items);
    const double seconds = seconds_since(start);
    for (const SequenceId id : ids) executor_.close(id);
    return seconds;
  }

  std::uint64_t workspace_bytes() const override { return executor_.workspace_bytes(); }

 private:
  void step(std::vector<engine::StepItem> items) {
    batch_.items = std::move(items);
    executor_.step(batch_, result_);
  }

  // Opens one sequence per entry of the batch, of which `num_cached` tokens are in its blocks.
  std::vector<SequenceId> open(std::uint32_t num_cached) {
    const std::uint32_t blocks = blocks_for(length_ + test_.num_gen);
    std::vector<SequenceId> ids;
    for (std::uint32_t i = 0; i < test_.batch; ++i) {
      engine::SequenceSpec spec;
      spec.id = ++last_id_;
      spec.tokens = tokens_[i];
      spec.num_cached = num_cached;
      BlockTable table(blocks);
      std::iota(table.begin(), table.end(), i * blocks);
      spec.tables.assign(executor_.model().arenas().size(), table);  // all groups have as many blocks
      // An all-zero recurrent state instead of one computed from text; it takes the same time.
      if (num_cached) spec.state.resize(executor_.model().cache_spec().state.num_floats());
      spec.sampling.temperature = 0;
      spec.sampling.ignore_eos = true;
      executor_.open(std::move(spec));
      ids.push_back(last_id_);
    }
    return ids;
  }

  // Computes the first `depth` tokens once; the rounds find them in the blocks.
  void fill_depth() {
    for (const SequenceId id : open(0)) {
      for (std::uint32_t done = 0; done < test_.depth; done += test_.step_tokens)
        step({item(id, std::min(test_.step_tokens, test_.depth - done), engine::Output::none)});
      executor_.close(id);
    }
  }

  engine::Executor executor_;
  BenchCase test_;
  std::uint32_t length_;  // known tokens when a round begins
  std::vector<std::vector<TokenId>> tokens_;
  SequenceId last_id_ = 0;
  engine::StepBatch batch_;
  engine::StepResult result_;
};

// Of an encoder: texts of one length.
class EncoderRun final : public Rounds {
 public:
  EncoderRun(const engine::Encoder& encoder, engine::Team& team, const BenchCase& test)
      : encoder_(encoder),
        team_(team),
        tokens_(test.num_prompt * test.batch),
        rows_(std::size_t{encoder.info().dim} * test.batch) {
    std::mt19937_64 random(kTokenSeed);
    for (TokenId& token : tokens_) token = static_cast<TokenId>(random() % encoder.info().vocab_size);
    for (std::size_t begin = 0; begin < tokens_.size(); begin += test.num_prompt)
      texts_.push_back(std::span<const TokenId>(tokens_).subspan(begin, test.num_prompt));
  }

  double measure() override {
    const Clock::time_point start = Clock::now();
    encoder_.encode(team_, texts_, {}, workspace_, rows_.data());
    return seconds_since(start);
  }

  std::uint64_t workspace_bytes() const override { return workspace_.total_bytes(); }

 private:
  const engine::Encoder& encoder_;
  engine::Team& team_;
  engine::Workspace workspace_;
  std::vector<TokenId> tokens_;
  std::vector<std::span<const TokenId>> texts_;
  std::vector<float> rows_;
};

// "512,128": a prompt and an answer.
Result<BenchCase> parse_pair(const std::string& text) {
  BenchCase test;
  const std::size_t comma = text.find(',');
  const auto read = [&](std::size_t from, std::size_t to, std::uint32_t& value) {
    const char* end = text.data() + to;
    const auto [stop, error] = std::from_chars(text.data() + from, end, value);
    return error == std::errc() && stop == end && value >= 1 && value <= kMaxLength;
  };
  if (comma != std::string::npos && read(0, comma, test.num_prompt) && read(comma + 1, text.size(), test.num_gen))
    return test;
  return Error{ErrorCode::invalid_argument,
               fmt::format("--prompt-gen '{}': expected two lengths from 1 to {}, as in 512,128", text, kMaxLength)};
}

// The tests of an encoder, which has neither answers nor a cache between texts: each length of -p in each number of -b.
Result<std::vector<BenchCase>> make_encoder_cases(const config::CaseOptions& options, std::uint32_t max_tokens) {
  const auto wrong = [](const char* option) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("{}: this model is an encoder, which continues no text; give -p and -b", option)};
  };
  if (!options.prompt_gen.empty()) return wrong("-pg");
  std::vector<BenchCase> cases;
  for (const std::int64_t depth : options.n_depth)
    if (depth > 0) return wrong("-d");
  for (const std::int64_t tokens : options.n_prompt) {
    if (tokens > max_tokens)
      return Error{ErrorCode::invalid_argument,
                   fmt::format("-p {}: this model reads at most {} tokens of a text", tokens, max_tokens)};
    for (const std::int64_t texts : options.batch_sizes)
      if (tokens > 0)
        cases.push_back({.num_prompt = static_cast<std::uint32_t>(tokens), .batch = static_cast<std::uint32_t>(texts)});
  }
  if (cases.empty()) return Error{ErrorCode::invalid_argument, "there is nothing to measure: give -p a length above 0"};
  return cases;
}

// The tests at each depth: prefill of each length, prefill and decode of each pair, decode of each length and batch
// size.
Result<std::vector<BenchCase>> make_cases(const config::CaseOptions& options) {
  std::vector<BenchCase> cases;
  for (const std::int64_t depth : options.n_depth) {
    const auto at = static_cast<std::uint32_t>(depth);
    for (const std::int64_t tokens : options.n_prompt)
      if (tokens > 0) cases.push_back({.depth = at, .num_prompt = static_cast<std::uint32_t>(tokens)});
    for (const std::string& pair : options.prompt_gen) {
      auto test = parse_pair(pair);
      if (!test) return test.error();
      test->depth = at;
      cases.push_back(*test);
    }
    for (const std::int64_t tokens : options.n_gen)
      for (const std::int64_t batch : options.batch_sizes)
        if (tokens > 0)
          cases.push_back(
              {.depth = at, .num_gen = static_cast<std::uint32_t>(tokens), .batch = static_cast<std::uint32_t>(batch)});
  }
  for (BenchCase& test : cases) test.step_tokens = static_cast<std::uint32_t>(options.step_tokens);
  if (cases.empty())
    return Error{ErrorCode::invalid_argument, "there is nothing to measure: give -p or -n a length above 0"};
  return cases;
}

// Sets context and blocks to what the longest and the widest test need.
void reserve(const std::vector<BenchCase>& cases, engine::LoadOptions& load) {
  std::uint32_t context = 0, blocks = 0, sequences = 1;
  for (const BenchCase& test : cases) {
    const std::uint32_t length = test.depth + std::max(test.num_prompt, 1u) + test.num_gen;
    context = std::max(context, length + 1);
    blocks = std::max(blocks, test.batch * blocks_for(length));
    sequences = std::max(sequences, test.batch);
  }
  load.context = std::max(load.context, context);
  load.num_blocks = std::max(blocks, blocks_for(load.context));
  load.max_sequences = sequences;
}

BenchResult run_case(Rounds& run, engine::Team& team, const BenchCase& test, const config::BenchOptions& options) {
  BenchResult result{.test = test, .tokens_per_second = {}, .profile = {}, .step_buffer_bytes = 0};
  run.measure();  // warms caches, page tables and clocks
  engine::StepProfile profile(team.num_threads());
  if (options.profile) team.set_profiler(&profile);
  for (std::int64_t i = 0; i < options.repetitions; ++i)
    result.tokens_per_second.push_back(test.num_tokens() / run.measure());
  team.set_profiler(nullptr);
  if (options.profile) result.profile = profile.snapshot();
  result.step_buffer_bytes = run.workspace_bytes();
  return result;
}

// Runs the tests and prints each when it is there; make_rounds(test) gives its rounds.
template <class MakeRounds>
void run_cases(const BenchContext& context, engine::Team& team, const std::vector<BenchCase>& cases,
               const config::BenchOptions& options, MakeRounds&& make_rounds) {
  std::vector<BenchResult> results;
  if (options.format == "md") print_markdown_head(context, std::cout);
  for (const BenchCase& test : cases) {
    auto rounds = make_rounds(test);
    results.push_back(run_case(rounds, team, test, options));
    if (options.format == "md") print_markdown_row(context, results.back(), std::cout);
  }
  if (options.profile && options.format == "md") print_profiles(context, results, std::cout);
  if (options.format == "json") print_json(context, results, std::cout);
}

Result<int> bench_encoder(const std::shared_ptr<const engine::ModelFile>& file, const engine::LoadOptions& load,
                          BenchContext context, engine::Team& team, const config::BenchOptions& options) {
  const auto encoder = engine::Encoder::load(file, load);
  if (!encoder) return encoder.error();
  context.encoder = encoder->get();
  const auto cases = make_encoder_cases(options, context.encoder->max_tokens());
  if (!cases) return cases.error();
  run_cases(context, team, *cases, options,
            [&](const BenchCase& test) { return EncoderRun(*context.encoder, team, test); });
  return kExitOk;
}

// The file at `path` if it is an encoder's; null: another's, or none.
std::shared_ptr<const engine::ModelFile> encoder_file(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return nullptr;
  const auto file = engine::open_gguf(path);
  return file && engine::is_encoder(**file) ? *file : nullptr;
}

}  // namespace

Result<int> bench(const config::BenchOptions& options, const config::Given& given) {
  if (options.overhead) return bench_overhead(options, given);
  const auto made = make_cases(options);
  if (!made) return made.error();
  const std::vector<BenchCase>& cases = *made;
  const auto path = model_path(options);
  if (!path) return path.error();
  auto load = load_options(options, given);
  if (!load) return load.error();
  load->context = static_cast<std::uint32_t>(options.ctx_size);
  const std::uint32_t threads = num_threads(options);
  engine::Team team(threads, engine::allowed_cpus());
  load->team = &team;
  if (auto status = start_log({}); !status) return status.error();  // on stderr: stdout is for results
  std::error_code ignored;
  const auto probe = engine::kept_probe();
  BenchContext context{nullptr, engine::bytes_with_parts(*path, ignored), threads, probe ? &*probe : nullptr};
  if (const auto encoder = encoder_file(*path)) return bench_encoder(encoder, *load, context, team, options);
  reserve(cases, *load);
  const auto model = load_showing(*path, *load, Progress(log_is_on_terminal({}), Progress::Clock::now()));
  if (!model) return model.error();
  if (const std::uint32_t states = (*model)->num_states(); states > 0 && states < load->max_sequences)
    return Error{
        ErrorCode::out_of_memory,
        fmt::format("there is memory for the states of {} sequences, and the tests have up to {}; use a larger "
                    "--memory",
                    states, load->max_sequences)};
  context.model = model->get();
  run_cases(context, team, cases, options, [&](const BenchCase& test) { return BenchRun(**model, team, test); });
  return kExitOk;
}

}  // namespace troupe::cli
