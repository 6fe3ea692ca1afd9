#include "ipc/client/conversions.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "config/printable.h"
#include "config/utf8.h"
#include "ipc/frames/model_keys.h"
#include "ipc/frames/sampling_message.h"

namespace troupe::client {
namespace {

void fill_numbers(v1::Sampling& out, const Sampling& sampling) {
  config::for_each_sampling_number(
      [&](const config::SamplingNumber& number, const auto& value) { ipc::write(out, number, value); }, sampling);
}

bool has_numbers(const Sampling& sampling) {
  bool any = false;
  config::for_each_sampling_number(
      [&](const config::SamplingNumber&, const auto& value) { any = any || value.has_value(); }, sampling);
  return any;
}

void fill(v1::Sampling& out, const Sampling& sampling) {
  fill_numbers(out, sampling);
  if (sampling.seed) out.set_seed(*sampling.seed);
  if (sampling.max_tokens) out.set_max_tokens(*sampling.max_tokens);
  out.set_ignore_eos(sampling.ignore_eos);
  out.set_min_tokens(sampling.min_tokens);
  for (const auto& [id, value] : sampling.logit_bias) {
    v1::LogitBias& bias = *out.add_logit_bias();
    bias.set_id(id);
    bias.set_bias(value);
  }
  out.mutable_stop_ids()->Add(sampling.stop_ids.begin(), sampling.stop_ids.end());
}

Usage to_usage(const v1::Usage& in, const v1::Timings& timings) {
  return {.prompt_tokens = in.prompt_tokens(),
          .cached_tokens = in.cached_tokens(),
          .completion_tokens = in.completion_tokens(),
          .preemptions = in.preemptions(),
          .queue_seconds = timings.queue_seconds(),
          .prefill_seconds = timings.prefill_seconds(),
          .decode_seconds = timings.decode_seconds(),
          .ttft_seconds = timings.ttft_seconds(),
          .tool_calls = in.tool_calls(),
          .tool_call_tokens = in.tool_call_tokens()};
}

Sampling to_sampling(const v1::Sampling& in) {
  Sampling sampling;
  config::for_each_sampling_number(
      [&](const config::SamplingNumber& number, auto& value) { ipc::read(in, number, value.emplace()); }, sampling);
  sampling.seed = in.seed();
  if (in.has_max_tokens()) sampling.max_tokens = in.max_tokens();
  sampling.ignore_eos = in.ignore_eos();
  sampling.min_tokens = in.min_tokens();
  for (const v1::LogitBias& bias : in.logit_bias()) sampling.logit_bias.emplace_back(bias.id(), bias.bias());
  sampling.stop_ids.assign(in.stop_ids().begin(), in.stop_ids().end());
  return sampling;
}

// An outcome of a newer server that this library does not know counts as `internal`.
Outcome to_outcome(v1::Outcome number) {
  return scheduler::outcome_from_number(static_cast<std::uint32_t>(number)).value_or(Outcome::internal);
}

// Of a kind of a newer server that this library does not know: nothing.
std::optional<Form> to_form(const v1::Form& in) {
  if (!v1::FormKind_IsValid(in.kind())) return std::nullopt;
  return Form{.kind = static_cast<FormKind>(in.kind()),
              .text = in.text(),
              .choices = {in.choices().begin(), in.choices().end()},
              .compact_json = in.compact_json(),
              .calls = {.format = in.calls().format(),
                        .must_call = in.calls().must_call(),
                        .name = in.calls().name(),
                        .single = in.calls().single(),
                        .strict = {in.calls().strict().begin(), in.calls().strict().end()}}};
}

Proof to_proof(const v1::Proof& in) {
  Proof proof{
      .numerics_id = in.numerics_id(),
      .model = in.model(),
      .prompt = {in.prompt_ids().begin(), in.prompt_ids().end()},
      .sampling = to_sampling(in.sampling()),
      .stop = {in.stop().begin(), in.stop().end()},
      .choice = in.choice(),
      .reasoning_budget = std::nullopt,
      .ids = {in.ids().begin(), in.ids().end()},
      .text = in.text(),
      .outcome = to_outcome(in.reason()),
      .stop_scope = v1::StopScope_IsValid(in.stop_scope()) ? static_cast<StopScope>(in.stop_scope()) : StopScope::text,
      .matched_stop = in.matched_stop(),
      .begins_with = in.begins_with(),
      .shown_ids = {in.shown_ids().begin(), in.shown_ids().end()},
      .form = in.has_form() ? to_form(in.form()) : std::nullopt,
      .recomputed_from = in.recomputed_from()};
  if (in.has_reasoning_budget()) proof.reasoning_budget = in.reasoning_budget();
  return proof;
}

template <class Message>
std::optional<Receipt> receipt_of(const Message& message) {
  if (!message.has_receipt()) return std::nullopt;
  const v1::Receipt& in = message.receipt();
  return Receipt{.queue_seconds = in.queue_seconds(),
                 .prefill_seconds = in.prefill_seconds(),
                 .decode_seconds = in.decode_seconds(),
                 .stalled_seconds = in.stalled_seconds(),
                 .preempted_seconds = in.preempted_seconds(),
                 .parked_seconds = in.parked_seconds(),
                 .compute_seconds = in.compute_seconds(),
                 .cpu_seconds = in.cpu_seconds(),
                 .prompt_tokens = in.prompt_tokens(),
                 .cached_tokens = in.cached_tokens(),
                 .computed_tokens = in.computed_tokens(),
                 .block_seconds = in.block_seconds(),
                 .preemptions = in.preemptions(),
                 .drafted_tokens = in.drafted_tokens(),
                 .accepted_tokens = in.accepted_tokens(),
                 .share = in.share(),
                 .proof = in.has_proof() ? std::optional(to_proof(in.proof())) : std::nullopt,
                 .recomputed_from = in.recomputed_from()};
}

Profile to_profile(const v1::Status::Profile& in) {
  Profile out{.num_threads = in.num_threads(), .phases = {}};
  for (const v1::Status::Profile::Phase& phase : in.phases()) {
    PhaseTime& added = out.phases.emplace_back(PhaseTime{.phase = phase.phase(),
                                                         .steps = phase.steps(),
                                                         .tokens = phase.tokens(),
                                                         .seconds = phase.seconds(),
                                                         .measured_steps = phase.measured_steps(),
                                                         .measured_seconds = phase.measured_seconds(),
                                                         .operations = {}});
    for (const v1::Status::Profile::Operation& row : phase.operations())
      added.operations.push_back({.operation = row.operation(),
                                  .calls = row.calls(),
                                  .seconds = row.seconds(),
                                  .joins = row.joins(),
                                  .join_seconds = row.join_seconds(),
                                  .busy_seconds = row.busy_seconds(),
                                  .wake_up_seconds = row.wake_up_seconds(),
                                  .wait_seconds = row.wait_seconds(),
                                  .absent_seconds = row.absent_seconds(),
                                  .layer_seconds = {row.layer_seconds().begin(), row.layer_seconds().end()}});
  }
  return out;
}

MetricKind to_kind(v1::Metric::Kind kind) {
  if (kind == v1::Metric::KIND_COUNTER) return MetricKind::counter;
  return kind == v1::Metric::KIND_HISTOGRAM ? MetricKind::histogram : MetricKind::gauge;
}

void add_lists(const v1::Status& in, ServerStatus& out) {
  std::vector<Metric> metrics;
  for (const v1::Metric& metric : in.metrics()) {
    Metric added{.name = metric.name(),
                 .help = metric.help(),
                 .kind = to_kind(metric.kind()),
                 .value = metric.value(),
                 .counts = {metric.counts().begin(), metric.counts().end()},
                 .key = metric.key()};
    for (const v1::Metric::Label& label : metric.labels()) added.labels.emplace_back(label.name(), label.value());
    metrics.push_back(std::move(added));
  }
  out.metrics = MetricList(std::move(metrics));
  for (const v1::Status::Memory& use : in.memory())
    out.memory.push_back({.kind = use.kind(), .bytes = use.bytes(), .peak_bytes = use.peak_bytes()});
  for (const v1::Status::LiveRequest& live : in.live_requests())
    out.live_requests.push_back({.request = live.request(),
                                 .stream = live.stream(),
                                 .uid = live.uid(),
                                 .tenant = live.tenant(),
                                 .client_id = live.client_id(),
                                 .state = live.state(),
                                 .priority = live.priority(),
                                 .prompt_tokens = live.prompt_tokens(),
                                 .cached_tokens = live.cached_tokens(),
                                 .computed_tokens = live.computed_tokens(),
                                 .generated_tokens = live.generated_tokens(),
                                 .preemptions = live.preemptions(),
                                 .age_seconds = live.age_seconds()});
}

Readiness to_readiness(v1::Readiness readiness) {
  const bool known = readiness >= v1::READINESS_LOADING && readiness <= v1::READINESS_ON_REQUEST;
  return known ? static_cast<Readiness>(readiness - 1) : Readiness::loading;
}

}  // namespace

std::string printable(const std::string& text) { return Printable(text, kMaxMessageBytes).text(); }

Error not_utf8(const std::string& what) {
  return {ErrorCode::invalid_argument, what + " is not valid UTF-8; send exact bytes as token ids"};
}

Status check_text(const Request& request) {
  const auto* text = std::get_if<std::string>(&request.prompt);
  if (text && !is_utf8(*text)) return not_utf8("the prompt");
  if (const auto* const chat = std::get_if<Conversation>(&request.prompt)) {
    if (!is_utf8(chat->variables)) return not_utf8("the template's variables");
    for (const Message& each : chat->messages) {
      if (!is_utf8(each.role) || !is_utf8(each.content) || !is_utf8(each.name) || !is_utf8(each.reasoning) ||
          !is_utf8(each.members) || !is_utf8(each.tool_call_id))
        return not_utf8("a message");
      for (const ToolCall& call : each.tool_calls)
        if (!is_utf8(call.id) || !is_utf8(call.name) || !is_utf8(call.arguments)) return not_utf8("a call of a tool");
    }
  }
  if (!is_utf8(request.model)) return not_utf8("the model's name");
  if (!is_utf8(request.cache_scope)) return not_utf8("cache_scope");
  if (!is_utf8(request.session)) return not_utf8("the session's name");
  if (!is_utf8(request.begins_with)) return not_utf8("begins_with");
  if (!is_utf8(request.json_schema)) return not_utf8("json_schema");
  if (!is_utf8(request.regex)) return not_utf8("regex");
  if (!is_utf8(request.grammar)) return not_utf8("grammar");
  for (const std::string& choice : request.choices)
    if (!is_utf8(choice)) return not_utf8("a choice");
  if (request.form) {
    if (!is_utf8(request.form->text)) return not_utf8("the form's text");
    for (const std::string& choice : request.form->choices)
      if (!is_utf8(choice)) return not_utf8("a choice");
    const FormCalls& calls = request.form->calls;
    if (!is_utf8(calls.format) || !is_utf8(calls.name) || !std::ranges::all_of(calls.strict, is_utf8))
      return not_utf8("a name in the form");
  }
  for (const Tool& each : request.tools)
    if (!is_utf8(each.name) || !is_utf8(each.description) || !is_utf8(each.parameters)) return not_utf8("a tool");
  if (!is_utf8(request.called_tool)) return not_utf8("called_tool");
  for (const std::string& stop : request.stop)
    if (!is_utf8(stop)) return not_utf8("a stop string");
  return Ok{};
}

Status check_text(const EmbedRequest& request) {
  if (!is_utf8(request.model)) return not_utf8("the model's name");
  if (const auto* texts = std::get_if<std::vector<std::string>>(&request.inputs))
    for (const std::string& text : *texts)
      if (!is_utf8(text)) return not_utf8("a text");
  return Ok{};
}

void fill(v1::Form& out, const Form& form) {
  out.set_kind(static_cast<v1::FormKind>(form.kind));
  out.set_text(form.text);
  for (const std::string& choice : form.choices) out.add_choices(choice);
  out.set_compact_json(form.compact_json);
  if (form.kind != FormKind::calls) return;
  v1::FormCalls& calls = *out.mutable_calls();
  calls.set_format(form.calls.format);
  calls.set_must_call(form.calls.must_call);
  calls.set_name(form.calls.name);
  calls.set_single(form.calls.single);
  for (const std::string& each : form.calls.strict) calls.add_strict(each);
}

v1::ClientFrame to_frame(std::uint64_t stream, const Request& request, bool takes_presets) {
  v1::ClientFrame frame;
  v1::Generate& out = *frame.mutable_generate();
  out.set_stream(stream);
  out.set_model(request.model);
  if (const auto* text = std::get_if<std::string>(&request.prompt)) {
    out.set_text(*text);
  } else if (const auto* const chat = std::get_if<Conversation>(&request.prompt)) {
    v1::Messages& messages = *out.mutable_messages();
    for (const Message& each : chat->messages) {
      v1::Messages::Message& message = *messages.add_messages();
      message.set_role(each.role);
      message.set_content(each.content);
      message.set_name(each.name);
      message.set_reasoning(each.reasoning);
      message.set_members(each.members);
      message.set_tool_call_id(each.tool_call_id);
      message.set_is_error(each.is_error);
      for (const ToolCall& call : each.tool_calls) {
        v1::ToolCall& added = *message.add_tool_calls();
        added.set_id(call.id);
        added.set_name(call.name);
        added.set_arguments(call.arguments);
      }
    }
    messages.set_add_generation_prompt(chat->add_generation_prompt);
    messages.set_variables(chat->variables);
    messages.set_continue_final_message(chat->continue_final_message);
  } else {
    const auto& ids = std::get<std::vector<TokenId>>(request.prompt);
    out.mutable_token_ids()->mutable_ids()->Add(ids.begin(), ids.end());
  }
  out.set_add_special(request.add_special);
  out.set_parse_special(request.parse_special);
  if (!takes_presets) fill_numbers(*out.mutable_sampling(), request.presets);
  fill(*out.mutable_sampling(), request.sampling);  // goes before them
  if (takes_presets && has_numbers(request.presets)) fill_numbers(*out.mutable_presets(), request.presets);
  for (const std::string& stop : request.stop) out.add_stop(stop);
  if (request.deadline)
    out.set_deadline_ms(static_cast<std::uint64_t>(std::max<std::int64_t>(0, request.deadline->count())));
  if (request.priority != 0) out.set_priority(request.priority);
  out.set_cache_scope(request.cache_scope);
  out.set_session(request.session);
  out.set_session_recompute(request.session_recompute);
  if (request.reasoning_budget) out.set_reasoning_budget(*request.reasoning_budget);
  const Speculation& speculation = request.speculation;
  if (!speculation.type.empty()) out.mutable_speculation()->set_type(speculation.type);
  if (speculation.n_max) out.mutable_speculation()->set_n_max(*speculation.n_max);
  if (speculation.n_min) out.mutable_speculation()->set_n_min(*speculation.n_min);
  if (speculation.p_min) out.mutable_speculation()->set_p_min(*speculation.p_min);
  out.mutable_proposal()->Add(request.proposal.begin(), request.proposal.end());
  out.set_begins_with(request.begins_with);
  out.set_json_schema(request.json_schema);
  out.set_regex(request.regex);
  out.set_grammar(request.grammar);
  for (const std::string& choice : request.choices) out.add_choices(choice);
  out.set_json_object(request.json_object);
  out.set_compact_json(request.compact_json);
  if (request.form) fill(*out.mutable_form(), *request.form);
  out.mutable_shown_ids()->Add(request.shown_ids.begin(), request.shown_ids.end());
  out.set_first_choice(request.first_choice);
  out.set_proof(request.proof);
  out.set_stop_scope(static_cast<v1::StopScope>(request.stop_scope));
  for (const Tool& each : request.tools) {
    v1::Tool& tool = *out.add_tools();
    tool.set_name(each.name);
    tool.set_description(each.description);
    tool.set_parameters(each.parameters);
    tool.set_strict(each.strict);
  }
  out.set_tool_choice(static_cast<v1::ToolChoice>(request.tool_choice));
  out.set_called_tool(request.called_tool);
  if (!request.parallel_tool_calls) out.set_parallel_tool_calls(false);
  if (request.logprobs) out.set_logprobs(*request.logprobs);
  if (request.n != 1) out.set_n(request.n);
  out.set_credit(request.credit.value_or(kCreditWindow));
  return frame;
}

Tokens to_tokens(v1::Tokens& in) {
  Tokens tokens;
  tokens.choice = in.choice();
  tokens.first_index = in.first_index();
  tokens.ids.assign(in.ids().begin(), in.ids().end());
  tokens.text = std::move(*in.mutable_text());
  for (const v1::TokenLogprobs& entry : in.logprobs()) {
    Logprobs& logprobs = tokens.logprobs.emplace_back();
    logprobs.logprob = entry.logprob();
    for (int i = 0; i < std::min(entry.top_ids_size(), entry.top_logprobs_size()); ++i)
      logprobs.top.push_back({.id = entry.top_ids(i), .logprob = entry.top_logprobs(i)});
  }
  for (v1::CallPart& part : *in.mutable_calls())
    tokens.calls.push_back({.index = part.index(),
                            .id = std::move(*part.mutable_id()),
                            .name = std::move(*part.mutable_name()),
                            .arguments = std::move(*part.mutable_arguments()),
                            .ends = part.ends()});
  return tokens;
}

Ended to_ended(const v1::ServerFrame& frame) {
  Ended ended;
  if (frame.has_done()) {
    const v1::Done& done = frame.done();
    ended.choice = done.choice();
    ended.outcome = to_outcome(done.reason());
    ended.message = printable(done.message());
    ended.stop = done.stop();
    ended.seed = done.seed();
    ended.usage = to_usage(done.usage(), done.timings());
    ended.receipt = receipt_of(done);
  } else if (frame.has_refused()) {
    const v1::Refused& refused = frame.refused();
    ended.outcome = to_outcome(refused.code());
    ended.message = printable(refused.message());
    ended.field = printable(refused.field());
    if (refused.has_limit()) ended.limit = refused.limit();
    if (refused.has_retry_after_ms()) ended.retry_after = to_ms(refused.retry_after_ms());
    if (refused.has_predicted_first_ms()) ended.predicted_first = to_ms(refused.predicted_first_ms());
    if (refused.has_predicted_last_ms()) ended.predicted_last = to_ms(refused.predicted_last_ms());
  } else {
    const v1::Failed& failed = frame.failed();
    ended.choice = failed.choice();
    ended.outcome = to_outcome(failed.code());
    ended.message = printable(failed.message());
    ended.seed = failed.seed();
    ended.usage = to_usage(failed.usage(), {});
    ended.receipt = receipt_of(failed);
  }
  return ended;
}

Error to_error(const v1::Refused& refused) {
  std::string message = printable(refused.message());
  switch (to_outcome(refused.code())) {
    case Outcome::invalid_argument:
    case Outcome::too_long:
    case Outcome::never_fits:
      return {ErrorCode::invalid_argument, std::move(message)};
    case Outcome::unknown_model:
      return {ErrorCode::model_missing, std::move(message)};
    case Outcome::permission:
      return {ErrorCode::permission, std::move(message)};
    case Outcome::unsupported:
      return {ErrorCode::unsupported, std::move(message)};
    case Outcome::loading:
    case Outcome::draining:
    case Outcome::queue_full:
    case Outcome::quota:
    case Outcome::deadline_unmeetable:
      return {ErrorCode::busy, std::move(message)};
    default:
      return {ErrorCode::io, std::move(message)};
  }
}

Health to_health(const v1::Health& health) {
  Health out{.readiness = to_readiness(health.readiness()),
             .load_fraction = health.load_fraction(),
             .stalled = health.stalled()};
  for (const v1::Health::Model& model : health.models()) out.models.push_back(to_model_health(model));
  return out;
}

Health::Model to_model_health(const v1::Health::Model& model) {
  return {.name = model.name(),
          .readiness = to_readiness(model.readiness()),
          .load_fraction = model.load_fraction(),
          .stalled = model.stalled(),
          .problem = model.problem(),
          .aliases = {model.aliases().begin(), model.aliases().end()},
          .replacing = model.replacing(),
          .retiring = model.retiring(),
          .on_request = model.on_request()};
}

ServerInfo to_info(const v1::Welcome& welcome) {
  const v1::Limits& limits = welcome.limits();
  return {.protocol = welcome.protocol(),
          .server = welcome.server(),
          .numerics_id = welcome.numerics_id(),
          .health = to_health(welcome.health()),
          .max_frame_bytes = limits.max_frame_bytes(),
          .max_streams = limits.max_streams(),
          .max_choices = limits.max_choices(),
          .max_embed_inputs = limits.max_embed_inputs(),
          .max_outbox_bytes = limits.max_outbox_bytes(),
          .stall_timeout = to_ms(limits.stall_timeout_ms()),
          .tenant = welcome.tenant(),
          .takes_presets = welcome.takes_presets()};
}

v1::ClientFrame to_frame(std::uint64_t stream, const EmbedRequest& request) {
  v1::ClientFrame frame;
  v1::Embed& embed = *frame.mutable_embed();
  embed.set_stream(stream);
  embed.set_model(request.model);
  if (const auto* texts = std::get_if<std::vector<std::string>>(&request.inputs)) {
    embed.mutable_texts()->Add(texts->begin(), texts->end());
  } else {
    for (const std::vector<TokenId>& ids : std::get<std::vector<std::vector<TokenId>>>(request.inputs))
      embed.add_token_ids()->mutable_ids()->Add(ids.begin(), ids.end());
  }
  if (request.pooling) embed.set_pooling(static_cast<v1::Pooling>(static_cast<int>(*request.pooling) + 1));
  embed.set_normalise(request.normalise);
  embed.set_add_special(request.add_special);
  embed.set_parse_special(request.parse_special);
  if (request.truncate) embed.set_truncate(*request.truncate);
  embed.set_truncate_to(request.truncate_to);
  return frame;
}

UsageReport to_usage_report(const v1::UsageReport& in) {
  UsageReport report{.own_only = in.own_only(), .note = in.note()};
  for (const v1::UsageReport::Row& row : in.rows())
    report.rows.push_back({.begin = static_cast<std::int64_t>(row.begin()),
                           .uid = row.has_uid() ? std::optional(row.uid()) : std::nullopt,
                           .tenant = row.tenant(),
                           .done = row.done(),
                           .cancelled = row.cancelled(),
                           .refused = row.refused(),
                           .failed = row.failed(),
                           .prompt_tokens = row.prompt_tokens(),
                           .cached_tokens = row.cached_tokens(),
                           .answer_tokens = row.answer_tokens(),
                           .embed_tokens = row.embed_tokens(),
                           .cpu_seconds = row.cpu_seconds(),
                           .block_seconds = row.block_seconds()});
  return report;
}

Embeddings to_embeddings(const v1::Embeddings& in) {
  Embeddings out{.pooling = in.pooling() == v1::POOLING_CLS    ? Pooling::cls
                            : in.pooling() == v1::POOLING_LAST ? Pooling::last
                                                               : Pooling::mean,
                 .prompt_tokens = in.usage().prompt_tokens(),
                 .truncated_tokens = in.usage().truncated_tokens(),
                 .receipt = receipt_of(in)};
  for (const v1::Embeddings::Vector& vector : in.vectors())
    out.vectors.emplace_back(vector.values().begin(), vector.values().end());
  return out;
}

std::vector<ModelDescription> to_models(const v1::Models& in) {
  std::vector<ModelDescription> models;
  for (const v1::Models::Model& model : in.models()) {
    ModelDescription& out = models.emplace_back();
    out.name = model.name();
    out.family = model.family();
    out.weight_types = model.weight_types();
    out.num_parameters = model.num_parameters();
    out.context = model.context();
    out.trained_context = model.trained_context();
    out.vocab_size = model.vocab_size();
    out.num_layers = model.num_layers();
    out.dim = model.dim();
    if (model.has_bos()) out.bos = model.bos();
    if (model.has_eos()) out.eos = model.eos();
    out.end_ids.assign(model.end_ids().begin(), model.end_ids().end());
    out.chat_template = model.chat_template();
    out.reasoning_open = model.reasoning_open();
    out.tool_format = model.tool_format();
    out.reasoning_close = model.reasoning_close();
    out.begins_reasoning = model.begins_reasoning();
    out.kv_bytes_per_token = model.kv_bytes_per_token();
    ipc::take_defaults(model.defaults(), out.defaults);
    out.numerics_id = model.numerics_id();
    out.aliases.assign(model.aliases().begin(), model.aliases().end());
  }
  return models;
}

std::vector<SessionInfo> to_sessions(const v1::Sessions& in) {
  std::vector<SessionInfo> all;
  for (const v1::Sessions::Session& session : in.sessions()) {
    SessionInfo& out = all.emplace_back();
    out.name = session.name();
    out.created = session.created();
    out.last_used = session.last_used();
    out.tokens = session.tokens();
    out.computed = session.computed();
    out.blocks = session.blocks();
    out.answers = session.answers();
    out.bytes = session.bytes();
    out.file_version = session.file_version();
    out.numerics_id = session.numerics_id();
    out.in_use = session.in_use();
    out.problem = session.problem();
    out.cache_known = session.cache_known();
    for (const v1::Sessions::Anchor& anchor : session.anchors())
      out.anchors.push_back({.position = anchor.position(), .hash = anchor.hash(), .cached = anchor.cached()});
  }
  return all;
}

ServerStatus to_status(const v1::Status& in) {
  ServerStatus out{.health = to_health(in.health()),
                   .server = in.server(),
                   .first_model = in.first_model(),
                   .model = in.model(),
                   .numerics_id = in.numerics_id(),
                   .kernels = in.kernels(),
                   .own_only = in.own_only(),
                   .weight_bytes = in.weight_bytes(),
                   .kv_bytes = in.kv_bytes(),
                   .num_threads = in.num_threads(),
                   .histogram_bounds = {in.histogram_bounds().begin(), in.histogram_bounds().end()}};
  add_lists(in, out);
  for (const v1::Status::ModelUse& use : in.models()) {
    ServerStatus::ModelUse& added = out.models.emplace_back();
    added.name = use.name();
    added.numerics_id = use.numerics_id();
    added.kernels = use.kernels();
    added.weight_bytes = use.weight_bytes();
    added.kv_bytes = use.kv_bytes();
    added.requests_waiting = use.requests_waiting();
    added.requests_running = use.requests_running();
    added.requests_parked = use.requests_parked();
    added.prompt_tokens = use.prompt_tokens();
    added.cached_tokens = use.cached_tokens();
    added.generated_tokens = use.generated_tokens();
    for (const v1::Status::Memory& memory : use.memory())
      added.memory.push_back({.kind = memory.kind(), .bytes = memory.bytes()});
  }
  if (in.has_profile()) out.profile = to_profile(in.profile());
  for (const v1::Status::Ended& ended : in.requests_ended())
    out.requests_ended.emplace_back(ended.outcome(), ended.count());
  for (const v1::Status::Kind& kind : in.kinds()) {
    ServerStatus::Kind& added = out.kinds.emplace_back();
    added.kind = kind.kind();
    added.received = kind.received();
    for (const v1::Status::Ended& ended : kind.ended()) added.ended.emplace_back(ended.outcome(), ended.count());
  }
  return out;
}

}  // namespace troupe::client
