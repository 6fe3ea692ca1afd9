// troupe inspect: the contents of a model file, and the memory needed to serve it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "actors/models/memory_budget.h"
#include "cache/ids.h"
#include "cli/model/model_options.h"
#include "cli/subcommands.h"
#include "cli/terminal/exit_code.h"
#include "cli/terminal/output.h"
#include "cli/terminal/text.h"
#include "config/printable.h"
#include "engine/chat/builtin_templates.h"
#include "engine/chat/template.h"
#include "engine/chat/tools/tool_format.h"
#include "engine/compute/team.h"
#include "engine/evaluation/limits.h"
#include "engine/formats/model_file.h"
#include "engine/machine/probe_file.h"
#include "engine/model.h"
#include "engine/model/encoder.h"
#include "engine/model/file_verdict.h"
#include "engine/model/kernel_choice.h"
#include "engine/model/load_choices.h"
#include "engine/model/memory_budget.h"
#include "engine/tokenizers/tokenizer.h"
#include "engine/weights/model_info.h"
#include "engine/weights/tensor_reader.h"
#include "kernels/formats/weight_type.h"

namespace troupe::cli {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kShownElements = 6;  // of an array
constexpr std::size_t kShownBytes = 200;   // of a string

// A value of the metadata, to be shown in one line: long strings and arrays are cut.
struct Shown {
  ordered_json value;
  std::size_t count = 0;  // elements of an array; 0: no array
};

struct Abbreviate {
  Shown operator()(const std::string& text) const {
    return {text.size() <= kShownBytes ? text : text.substr(0, kShownBytes) + "..."};
  }
  Shown operator()(const engine::SkippedValue& skipped) const { return {"(" + skipped.what + ")"}; }
  template <class T>
  Shown operator()(const std::vector<T>& values) const {
    const auto end = values.begin() + static_cast<std::ptrdiff_t>(std::min(values.size(), kShownElements));
    return {std::vector<T>(values.begin(), end), values.size()};
  }
  template <class T>
  Shown operator()(const T& scalar) const {
    return {scalar};
  }
};

std::string dump(const ordered_json& value) {
  return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

std::string shape_text(const std::vector<std::uint64_t>& shape) {
  return shape.empty() ? "1" : fmt::format("{}", fmt::join(shape, " x "));
}

std::string served_by(const engine::ModelFile& file) {
  std::vector<std::string_view> names;
  for (const engine::Family& family : engine::families()) {
    if (family.accepts(file)) return std::string(family.name);
    names.push_back(family.name);
  }
  if (engine::is_encoder(file)) return *engine::read_architecture(file) + " (encoder)";
  return fmt::format("none (there are {}, and the encoders bert and nomic-bert)", fmt::join(names, ", "));
}

// Memory of K and V of one type.
struct KvCost {
  std::string type;
  std::uint64_t bytes_per_token = 0;  // of all layers
  std::uint64_t window_bytes = 0;     // the part of it for layers with a window
  std::uint64_t longest_context = 0;  // the largest serve -c, in whole blocks
  std::uint64_t num_sequences = 0;    // sequences of Cost::context tokens that the blocks suffice for
};

struct StateCost {
  std::string type;               // of snapshots
  std::uint64_t bytes = 0;        // of a running sequence; 0: the model keeps none
  std::uint64_t of_snapshot = 0;  // bytes
  std::uint64_t num_snapshots = 0;
};

// The most tokens per second that this machine allows, by its probe.
struct SpeedLimit {
  double decode = 0;  // of one stream
  double prefill = 0;
  double read_bytes = 0;  // of weights, for each token of one stream
};
constexpr std::uint64_t kPromptRows = 512;  // in a step

struct Cost {
  std::uint64_t memory = 0;   // the budget, in bytes
  std::uint64_t weights = 0;  // in memory, packed
  std::uint32_t num_layers = 0;
  std::uint32_t num_attention_layers = 0;
  std::uint64_t experts = 0;           // the part of them for experts; 0: it has none
  std::uint32_t num_experts = 0;       // in a layer
  std::uint32_t num_experts_used = 0;  // by a token
  std::uint64_t vocabulary = 0;        // in memory, at most
  std::uint64_t trained = 0;           // context in tokens
  std::uint64_t context = 0;           // --ctx-size, else the trained one
  std::uint64_t window = 0;            // positions that layers with a window attend to; 0: no such layers
  std::uint64_t window_tokens = 0;     // the most tokens of a sequence with blocks in those layers
  std::vector<KvCost> kv;              // empty if no layer has attention
  StateCost state;
  std::uint64_t max_sequences = 0;  // --parallel
  std::string unknown;              // why the memory of sequences is not known
  std::optional<SpeedLimit> speed;  // nothing: this machine was not probed, or the file is of no family
};

// Of the products with weights: what bench compares its results with.
std::optional<SpeedLimit> speed_limit(std::span<const engine::MatrixWork> matrices,
                                      const kernels::KernelTable& kernels) {
  const auto probe = engine::kept_probe();
  if (!probe) return std::nullopt;
  const auto seconds = [&](const engine::StepWork& step) {
    engine::RunLimits limits(&*probe, engine::default_num_threads());
    limits.add(step);
    return std::max(limits.read_seconds().value_or(0), limits.compute_seconds().value_or(0));
  };
  const engine::StepWork decode = engine::step_work(matrices, kernels, 1, 1);
  const double of_token = seconds(decode), of_prompt = seconds(engine::step_work(matrices, kernels, kPromptRows, 1));
  if (of_token <= 0 || of_prompt <= 0) return std::nullopt;
  return SpeedLimit{.decode = 1 / of_token, .prefill = kPromptRows / of_prompt, .read_bytes = decode.bytes};
}

// Plans the cache from the metadata as the loader does, so that the figures are those of serve with this model alone.
class Planner {
 public:
  Planner(const engine::ModelFile& file, const engine::Family& family, const engine::LoadOptions& options,
          std::uint64_t left)
      : file_(file), family_(family), options_(options), left_(left) {}

  // The model as it would be served with this KV type and context.
  Result<engine::ModelOutline> outline(kernels::KvType type, std::uint32_t context) const {
    engine::LoadOptions options;
    options.kv_type = type;
    options.state_type = options_.state_type;
    options.snapshot_every = options_.snapshot_every;
    options.context = context;
    return family_.outline(file_, options);
  }
  Result<engine::CachePlan> plan(const engine::ModelOutline& outline) const {
    const std::uint64_t least = engine::least_cache_bytes(outline.cache, outline.info.context, options_);
    return engine::plan_cache(outline.cache, outline.info.context, options_,
                              actors::part_of_only_model(least, left_ - std::min(left_, outline.table_bytes)));
  }
  // The longest context that fits, by binary search, since the memory needed grows with the context.
  std::uint64_t longest_context(kernels::KvType type) const {
    std::uint32_t fits = 0, too_long = std::numeric_limits<std::uint32_t>::max() / kBlockSize;  // in blocks
    while (too_long - fits > 1) {
      const std::uint32_t middle = fits + (too_long - fits) / 2;
      const auto model = outline(type, middle * kBlockSize);
      (model && model->table_bytes <= left_ && plan(*model) ? fits : too_long) = middle;
    }
    return std::uint64_t{fits} * kBlockSize;
  }

 private:
  const engine::ModelFile& file_;
  const engine::Family& family_;
  const engine::LoadOptions& options_;
  const std::uint64_t left_;
};

KvCost kv_cost(const Planner& planner, const engine::ModelOutline& outline, kernels::KvType type) {
  KvCost kv{.type = std::string(kernels::name(type)),
            .bytes_per_token = outline.cache.bytes_per_token(),
            .longest_context = planner.longest_context(type)};
  for (const engine::CacheGroup& group : outline.cache.groups)
    if (group.window != 0) kv.window_bytes += group.bytes_per_block / kBlockSize;
  if (const auto plan = planner.plan(outline))
    kv.num_sequences = plan->num_blocks[0] / blocks_for(outline.info.context);
  return kv;
}

Cost cost_of(const engine::ModelFile& file, const engine::LoadOptions& options, const kernels::KernelTable& kernels) {
  Cost cost;
  cost.memory = options.memory ? options.memory : engine::default_memory_budget();
  cost.weights = engine::packed_weight_bytes(file, kernels);
  cost.experts = engine::packed_expert_bytes(file, kernels);
  cost.vocabulary = engine::expected_vocabulary_bytes(file);
  cost.trained = engine::trained_context(file);
  cost.context = options.context ? options.context : cost.trained;
  cost.max_sequences = options.max_sequences;
  const auto family = engine::find_family(file);
  if (!family) return cost;  // an encoder keeps nothing between texts
  if (const auto outline = (*family)->outline(file, options))
    cost.speed = speed_limit(
        engine::packed_matrices(file, kernels, outline->info.num_experts, outline->info.num_experts_used), kernels);
  const Planner planner(file, **family, options, cost.memory - std::min(cost.memory, cost.weights + cost.vocabulary));
  for (const kernels::KvType type : {kernels::KvType::f16, kernels::KvType::f32, kernels::KvType::i8}) {
    const auto outline = planner.outline(type, options.context);
    if (!outline) {
      cost.unknown = outline.error().message;
      return cost;
    }
    cost.num_layers = outline->info.num_layers;
    cost.num_attention_layers = 0;
    for (const engine::CacheGroup& group : outline->cache.groups)
      cost.num_attention_layers += static_cast<std::uint32_t>(group.layers.size());
    cost.num_experts = outline->info.num_experts;
    cost.num_experts_used = outline->info.num_experts_used;
    if (outline->cache.bytes_per_token() != 0) cost.kv.push_back(kv_cost(planner, *outline, type));
    for (const engine::CacheGroup& group : outline->cache.groups) {
      if (group.window <= cost.window) continue;
      cost.window = group.window;
      cost.window_tokens = kBlockSize * engine::blocks_needed(group, outline->info.context);
    }
    if (outline->cache.has_state()) {
      const auto plan = planner.plan(*outline);
      cost.state = {.type = std::string(engine::name(options.state_type)),
                    .bytes = outline->cache.state.bytes(),
                    .of_snapshot = outline->cache.state.snapshot_bytes(options.state_type),
                    .num_snapshots = plan ? plan->num_snapshots : 0};
    }
  }
  return cost;
}

struct Verdict {
  std::optional<Error> refusal;    // why no command serves, evaluates or tokenizes with the file
  std::vector<TokenId> end_ids;    // the tokens that end an answer
  std::vector<std::string> notes;  // metadata_notes()
  std::string_view tool_format{};  // of its calls; empty: it has no chat template
};

// What the budget has no room for is a note, not a refusal: this command is asked for how much a model needs.
Verdict verdict_on(const engine::ModelFile& file, const Cost& cost, std::uint32_t context) {
  Verdict verdict;
  engine::LoadOptions options;
  options.context = context;
  auto tokenizer = engine::judge_file(file, options, cost.memory);
  if (!tokenizer) {
    if (tokenizer.error().code != ErrorCode::out_of_memory) verdict.refusal = tokenizer.error();
    tokenizer = engine::make_tokenizer_within(file, cost.memory);  // shown as far as it can be
  }
  if (!tokenizer) {
    if (!verdict.refusal) verdict.notes.push_back(tokenizer.error().message);
    return verdict;
  }
  if (auto end_ids = engine::find_end_ids(file, tokenizer->get(), std::numeric_limits<std::int32_t>::max()))
    verdict.end_ids = std::move(*end_ids);
  verdict.notes = engine::metadata_notes(file, tokenizer->get());
  const std::string_view likely = engine::chat::likely_template(file, tokenizer->get());
  const auto own = engine::find_chat_templates(file);
  if (own && !own->empty())
    verdict.tool_format = engine::chat::choose_tool_format(engine::chat::tool_template(*own), tokenizer->get()).name;
  if (own && own->empty() && !likely.empty())
    verdict.notes.push_back(
        fmt::format("it has no chat template; models of its kind were trained with {0} (serve "
                    "--chat-template {0})",
                    likely));
  return verdict;
}

struct NamedTemplate {
  std::string name;  // "default" for that without one
  std::string source;
  std::string problem;  // why it cannot be used; empty: it can
};

std::vector<NamedTemplate> chat_templates(const engine::ModelFile& file) {
  std::vector<NamedTemplate> all;
  const auto found = engine::find_chat_templates(file);
  if (!found) return all;  // the verdict says so
  for (const auto& [key, source] : *found) {
    const std::string name = key.empty() ? "default" : key;
    const auto parsed = engine::chat::ChatTemplate::parse(source, name);
    all.push_back({name, source, parsed ? "" : parsed.error().message});
  }
  return all;
}

std::string summary_of(const NamedTemplate& chat_template) {
  return fmt::format("{}, {} bytes{}", Printable(chat_template.name).text(), chat_template.source.size(),
                     chat_template.problem.empty() ? "" : "; it cannot be used: " + chat_template.problem);
}

// The source alone, so that it can be a file for serve --chat-template; of several each after a comment with its name.
Result<int> print_chat_templates(const engine::ModelFile& file, bool as_json) {
  const auto templates = chat_templates(file);
  if (templates.empty() && !as_json)
    return Error{ErrorCode::invalid_argument,
                 file.path() + " has no chat template; serve takes one with --chat-template"};
  if (as_json) {
    ordered_json object = ordered_json::object();
    for (const NamedTemplate& each : templates) object[each.name] = each.source;
    write_json(object, std::cout);
    return kExitOk;
  }
  for (const NamedTemplate& each : templates) {
    if (templates.size() > 1) std::cout << "{#- " << Printable(each.name).text() << " #}\n";
    std::cout << each.source << (each.source.ends_with('\n') ? "" : "\n");
  }
  return kExitOk;
}

void print_json(const engine::ModelFile& file, const Cost& cost, const Verdict& verdict) {
  ordered_json object{{"path", file.path()},
                      {"num_files", file.num_files()},
                      {"file_bytes", file.file_bytes()},
                      {"num_parameters", engine::count_parameters(file)},
                      {"weight_types", engine::describe_types(file)},
                      {"family", served_by(file)},
                      {"refused", verdict.refusal ? ordered_json(verdict.refusal->message) : ordered_json()},
                      {"end_ids", verdict.end_ids},
                      {"chat_templates", ordered_json::array()},
                      {"notes", verdict.notes},
                      {"memory_budget", cost.memory},
                      {"weight_bytes", cost.weights},
                      {"num_layers", cost.num_layers},
                      {"num_attention_layers", cost.num_attention_layers},
                      {"expert_bytes", cost.experts},
                      {"num_experts", cost.num_experts},
                      {"num_experts_used", cost.num_experts_used},
                      {"tool_format", verdict.tool_format.empty() ? ordered_json() : ordered_json(verdict.tool_format)},
                      {"vocabulary_bytes", cost.vocabulary},
                      {"speed_limit", ordered_json()},
                      {"kv_bytes_per_token", ordered_json::object()},
                      {"longest_context", ordered_json::object()},
                      {"num_sequences", ordered_json::object()},
                      {"metadata", ordered_json::object()},
                      {"tensors", ordered_json::array()}};
  if (cost.speed)
    object["speed_limit"] = {{"decode_tokens_per_second", cost.speed->decode},
                             {"prefill_tokens_per_second", cost.speed->prefill},
                             {"bytes_read_per_token", std::llround(cost.speed->read_bytes)}};
  for (const NamedTemplate& each : chat_templates(file))
    object["chat_templates"].push_back(
        {{"name", each.name},
         {"bytes", each.source.size()},
         {"problem", each.problem.empty() ? ordered_json() : ordered_json(each.problem)}});
  for (const KvCost& kv : cost.kv) {
    object["kv_bytes_per_token"][kv.type] = kv.bytes_per_token;
    object["longest_context"][kv.type] = kv.longest_context;
    object["num_sequences"][kv.type] = kv.num_sequences;
    if (cost.window != 0) object["window"]["bytes_per_token"][kv.type] = kv.window_bytes;
  }
  if (cost.window != 0) {
    object["window"]["positions"] = cost.window;
    object["window"]["cached_tokens"] = cost.window_tokens;
  }
  if (cost.state.bytes != 0) {
    object["state"] = {{"bytes", cost.state.bytes},
                       {"snapshot_type", cost.state.type},
                       {"snapshot_bytes", cost.state.of_snapshot},
                       {"num_snapshots", cost.state.num_snapshots}};
  }
  for (const auto& [key, value] : file.metadata()) {
    const auto [cut, count] = std::visit(Abbreviate{}, value);
    object["metadata"][key] = count > kShownElements ? ordered_json{{"length", count}, {"first", cut}} : cut;
  }
  for (const engine::TensorInfo& tensor : file.tensors())
    object["tensors"].push_back({{"name", tensor.name}, {"type", tensor.file_type().name}, {"shape", tensor.shape}});
  write_json(object, std::cout);
}

void print_summary(const engine::ModelFile& file, const Cost& cost, const Verdict& verdict,
                   const config::ShownOptions& shown) {
  const std::string ends = fmt::format("{}", fmt::join(verdict.end_ids, ", "));
  const std::size_t num_more = file.num_files() - 1;
  const std::string more_files =
      num_more == 0 ? "" : fmt::format(" and {} more part{}", num_more, num_more == 1 ? "" : "s");
  std::vector<std::pair<std::string, std::string>> lines{
      {"file", fmt::format("{}{}, {}", file.path(), more_files, human_bytes(file.file_bytes()))},
      {"family", served_by(file)},
      {"weights", fmt::format("{} parameters, {}; {} in memory", human_count(engine::count_parameters(file)),
                              engine::describe_types(file), human_bytes(cost.weights))},
      {"trained context", fmt::format("{} tokens", cost.trained)},
      {"answers end at", ends.empty() ? "no token that is known" : "token " + ends},
  };
  if (cost.num_attention_layers != 0 && cost.num_attention_layers != cost.num_layers)
    lines.emplace_back("layers", fmt::format("{}, of which {} have attention, and so K and V", cost.num_layers,
                                             cost.num_attention_layers));
  if (cost.experts != 0)
    lines.emplace_back("experts",
                       fmt::format("{} in a layer, of which a token uses {}; {} of the weights in memory ({:.0f} %)",
                                   cost.num_experts, cost.num_experts_used, human_bytes(cost.experts),
                                   100 * static_cast<double>(cost.experts) / static_cast<double>(cost.weights)));
  if (cost.speed)
    lines.emplace_back("speed",
                       fmt::format("at most {:.4g} tokens/s of one stream, each of which reads {} of weights, "
                                   "and {:.4g} of a prompt on this machine (`troupe bench` measures it)",
                                   cost.speed->decode, human_bytes(static_cast<std::uint64_t>(cost.speed->read_bytes)),
                                   cost.speed->prefill));
  else if (!verdict.refusal)
    lines.emplace_back("speed", "not known here; `troupe probe` measures what this machine allows");
  for (const NamedTemplate& each : chat_templates(file)) lines.emplace_back("chat template", summary_of(each));
  if (!verdict.tool_format.empty()) lines.emplace_back("tool format", std::string(verdict.tool_format));
  lines.emplace_back("memory budget", human_bytes(cost.memory));
  if (verdict.refusal) lines.emplace_back("refused", verdict.refusal->message);
  for (const std::string& note : verdict.notes) lines.emplace_back("note", note);
  for (const KvCost& kv : cost.kv) {
    std::string text =
        fmt::format("{} bytes per token ({} for 1,000)", kv.bytes_per_token, human_bytes(1000 * kv.bytes_per_token));
    if (kv.window_bytes != 0)
      text += fmt::format(", of which {} for the last {} at most (a window of {})", kv.window_bytes, cost.window_tokens,
                          cost.window);
    text += fmt::format("; the longest context that fits is {} tokens; {} sequences of {}", kv.longest_context,
                        kv.num_sequences, cost.context);
    if (kv.num_sequences == cost.max_sequences) text += " (--parallel)";
    lines.emplace_back("KV cache " + kv.type, text);
  }
  if (cost.state.bytes != 0)
    lines.emplace_back("state", fmt::format("{} for each running sequence, of any length; {} snapshots {} of {}",
                                            human_bytes(cost.state.bytes), cost.state.num_snapshots, cost.state.type,
                                            human_bytes(cost.state.of_snapshot)));
  if (!cost.unknown.empty()) lines.emplace_back("cache", "unknown: " + cost.unknown);
  if (!shown.metadata) lines.emplace_back("metadata", fmt::format("{} keys (--metadata)", file.metadata().size()));
  if (!shown.tensors) lines.emplace_back("tensors", fmt::format("{} (--tensors)", file.tensors().size()));
  std::cout << aligned(lines);
}

void print_metadata(const engine::ModelFile& file) {
  std::vector<std::pair<std::string, std::string>> lines;
  for (const auto& [key, value] : file.metadata()) {
    const auto [cut, count] = std::visit(Abbreviate{}, value);
    lines.emplace_back("  " + key, dump(cut) + (count > kShownElements ? fmt::format(" ... ({})", count) : ""));
  }
  std::cout << "\nMetadata (" << file.metadata().size() << ")\n" << aligned(lines);
}

void print_tensors(const engine::ModelFile& file) {
  std::vector<std::pair<std::string, std::string>> lines;
  for (const engine::TensorInfo& tensor : file.tensors())
    lines.emplace_back("  " + tensor.name, fmt::format("{}  {}  {}", tensor.file_type().name, shape_text(tensor.shape),
                                                       human_bytes(tensor.bytes.size())));
  std::cout << "\nTensors (" << file.tensors().size() << ")\n" << aligned(lines);
}

}  // namespace

Result<int> inspect(const config::InspectOptions& options, const config::Given& given) {
  if (given.arguments.size() > 1)
    return Error{ErrorCode::invalid_argument, "one file at a time; '" + given.arguments[1] + "' is a second one"};
  config::EngineOptions engine;
  static_cast<config::ModelOptions&>(engine) = options;
  if (!given.arguments.empty()) engine.model = given.arguments;
  static_cast<config::FitOptions&>(engine) = options;
  auto load = load_options(engine, given);
  if (!load) return load.error();
  load->context = static_cast<std::uint32_t>(options.ctx_size);
  load->max_sequences = options.max_sequences;
  const auto path = model_path(engine);
  if (!path) return path.error();
  const auto file = engine::open_gguf(*path);
  if (!file) return file.error();
  const auto kernels = engine::choose_kernels(**file, *load, nullptr);
  if (!kernels) return kernels.error();
  if (options.show_chat_template) return print_chat_templates(**file, options.json);
  const Cost cost = cost_of(**file, *load, **kernels);
  const Verdict verdict = verdict_on(**file, cost, load->context);
  if (options.json) {
    print_json(**file, cost, verdict);
  } else {
    print_summary(**file, cost, verdict, options);
    if (options.metadata) print_metadata(**file);
    if (options.tensors) print_tensors(**file);
  }
  if (verdict.refusal) return *verdict.refusal;
  return kExitOk;
}

}  // namespace troupe::cli
