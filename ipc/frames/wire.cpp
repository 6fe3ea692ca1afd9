#include "ipc/frames/wire.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <climits>
#include <limits>
#include <utility>

#include "actors/requests/answer_form.h"
#include "config/assert.h"
#include "config/folders.h"
#include "config/normal_float.h"
#include "config/options/model_keys.h"
#include "config/printable.h"
#include "config/utf8.h"
#include "engine/chat/builtin_templates.h"
#include "ipc/frames/framing.h"
#include "ipc/frames/model_keys.h"
#include "ipc/frames/sampling_message.h"
#include "ipc/request_rules.h"
#include "ipc/tools/request_tools.h"

namespace troupe::ipc {
namespace {

using engine::constraints::Constraint;
using engine::constraints::kConstraintKinds;
using scheduler::Outcome;

// What a message has of tools, as members that templates read. `message` has the rest of it.
std::optional<Refusal> add_calls(const v1::Messages::Message& from, std::size_t index, CalledNames& names,
                                 actors::ChatMessage& message) {
  const auto refuse = [&](std::string_view what) {
    return scheduler::invalid("messages", fmt::format("messages[{}].{}", index, what));
  };
  const bool is_result = !from.tool_call_id().empty();
  if (from.is_error() && !is_result) return refuse("is_error is for results of tools; it names no tool_call_id");
  if (from.tool_calls_size() == 0 && !is_result) return std::nullopt;
  if (!message.members.empty())
    return refuse("members and its tool_calls or tool_call_id are two ways to say the same; send one of them");
  if (is_result) {
    if (message.role != "tool") return refuse("tool_call_id is a part of a tool's messages only");
    if (from.tool_calls_size() > 0) return refuse("tool_calls are a part of the assistant's messages only");
    actors::ChatMessage result = tool_result(names, from.tool_call_id(), std::move(message.content), from.is_error());
    if (!message.name.empty()) result.name = std::move(message.name);
    message = std::move(result);
    return std::nullopt;
  }
  if (message.role != "assistant") return refuse("tool_calls are a part of the assistant's messages only");
  std::vector<EarlierCall> calls;
  for (const v1::ToolCall& call : from.tool_calls()) {
    if (call.name().empty()) return refuse("tool_calls has a call without a name");
    names[call.id()] = call.name();
    calls.push_back({.id = call.id(), .name = call.name(), .arguments = arguments_object(call.arguments())});
  }
  message.members = called_tools(calls);
  message.has_content = !message.content.empty();
  return std::nullopt;
}

std::variant<actors::ChatPrompt, Refusal> to_chat(v1::Messages& messages) {
  actors::ChatPrompt chat;
  chat.messages.reserve(static_cast<std::size_t>(messages.messages_size()));
  CalledNames names;
  for (v1::Messages::Message& each : *messages.mutable_messages()) {
    const std::size_t index = chat.messages.size();
    actors::ChatMessage& message =
        chat.messages.emplace_back(actors::ChatMessage{.role = std::move(*each.mutable_role()),
                                                       .content = std::move(*each.mutable_content()),
                                                       .name = std::move(*each.mutable_name()),
                                                       .reasoning = std::move(*each.mutable_reasoning()),
                                                       .members = std::move(*each.mutable_members())});
    if (auto refusal = add_calls(each, index, names, message)) return *std::move(refusal);
  }
  chat.add_generation_prompt = !messages.has_add_generation_prompt() || messages.add_generation_prompt();
  chat.variables = std::move(*messages.mutable_variables());
  chat.continue_final_message = messages.continue_final_message();
  return chat;
}

// The tools of a request, whose prompt is set.
std::optional<Refusal> add_tools(const v1::Generate& generate, actors::Request& request) {
  ToolChoice choice;
  choice.use.may_call_several = !generate.has_parallel_tool_calls() || generate.parallel_tool_calls();
  choice.none = generate.tool_choice() == v1::TOOL_CHOICE_NONE;
  choice.use.must_call = generate.tool_choice() == v1::TOOL_CHOICE_REQUIRED;
  choice.use.name = generate.called_tool();
  if (!v1::ToolChoice_IsValid(generate.tool_choice()))
    return scheduler::invalid("tool_choice", fmt::format("there is no tool_choice {}; 0 is auto, 1 none, 2 required",
                                                         static_cast<int>(generate.tool_choice())));
  if (!choice.use.name.empty() && !choice.use.must_call)
    return scheduler::invalid("called_tool", "called_tool says of which tool a call is required; set tool_choice to 2");
  if (generate.tools_size() > 0 && !std::holds_alternative<actors::ChatPrompt>(request.prompt))
    return scheduler::invalid("tools", "tools are for conversations; send messages");
  std::vector<OfferedTool> tools;
  for (const v1::Tool& each : generate.tools()) {
    tools.push_back({each.name(), each.description(), each.parameters()});
    if (each.strict()) choice.strict.push_back(each.name());
  }
  auto list = tool_list(tools);
  if (!list) return scheduler::invalid("tools", list.error().message);
  auto refused = take_tools(request, *std::move(list), std::move(choice));
  constexpr std::string_view kFunction = ".function";  // a tool is no object with a function here
  if (const std::size_t place = refused ? refused->message.find(kFunction) : std::string::npos;
      place != std::string::npos)
    refused->message.erase(place, kFunction.size());
  return refused;
}

// What a Request cannot express.
std::optional<Refusal> check(const v1::Generate& generate) {
  if (const std::string& type = generate.speculation().type(); !type.empty() && !engine::draft_source(type))
    return scheduler::invalid("speculation.type",
                              fmt::format("there is no type of speculation of this name; send one of {}",
                                          fmt::join(engine::kDraftSourceNames, ", ")));
  if (generate.prompt_case() == v1::Generate::PROMPT_NOT_SET)
    return scheduler::invalid("prompt", "there is no prompt; give text, token_ids or messages");
  return std::nullopt;
}

// The largest number of a signed type where the value is larger: it is above every limit, too.
template <class Signed>
Signed clamped(std::uint64_t value) {
  return static_cast<Signed>(std::min(value, static_cast<std::uint64_t>(std::numeric_limits<Signed>::max())));
}

engine::SamplingParams to_params(const v1::Sampling& sampling, const v1::Sampling& presets) {
  engine::SamplingParams params;  // its defaults are the protocol's
  config::for_each_sampling_number(
      [&](const config::SamplingNumber& number, auto& value) {
        read(presets, number, value);
        read(sampling, number, value);
      },
      params);
  if (sampling.has_seed()) params.seed = sampling.seed();
  if (sampling.has_max_tokens()) params.max_tokens = sampling.max_tokens();
  params.ignore_eos = sampling.ignore_eos();
  params.min_tokens = sampling.min_tokens();
  for (const v1::LogitBias& bias : sampling.logit_bias()) params.logit_bias.emplace_back(bias.id(), bias.bias());
  params.stop_ids.assign(sampling.stop_ids().begin(), sampling.stop_ids().end());
  return params;
}

config::SamplingNumbers numbers_in(const v1::Sampling& sampling) {
  config::SamplingNumbers numbers;
  config::for_each_sampling_number([&](const config::SamplingNumber& number) {
    if (has(sampling, number)) numbers.add(number);
  });
  return numbers;
}

engine::SpeculationChoice to_choice(const v1::Speculation& in) {
  engine::SpeculationChoice choice;
  choice.source = engine::draft_source(in.type());
  if (in.has_n_max()) choice.n_max = in.n_max();
  if (in.has_n_min()) choice.n_min = in.n_min();
  if (in.has_p_min()) choice.p_min = in.p_min();
  return choice;
}

void fill(v1::Usage& out, const actors::Usage& usage) {
  out.set_prompt_tokens(usage.prompt_tokens);
  out.set_cached_tokens(usage.cached_tokens);
  out.set_completion_tokens(usage.completion_tokens);
  out.set_preemptions(usage.preemptions);
  out.set_tool_calls(usage.tool_calls);
  out.set_tool_call_tokens(usage.tool_call_tokens);
}

void fill(v1::Timings& out, const actors::Usage& usage) {
  out.set_queue_seconds(usage.queue_seconds);
  out.set_prefill_seconds(usage.prefill_seconds);
  out.set_decode_seconds(usage.decode_seconds);
  out.set_ttft_seconds(usage.ttft_seconds);
}

void fill(v1::Receipt& out, const actors::Usage& usage) {
  out.set_queue_seconds(usage.queue_seconds);
  out.set_prefill_seconds(usage.prefill_seconds);
  out.set_decode_seconds(usage.decode_seconds);
  out.set_stalled_seconds(usage.stalled_seconds);
  out.set_preempted_seconds(usage.preempted_seconds);
  out.set_parked_seconds(usage.parked_seconds);
  out.set_compute_seconds(usage.compute_seconds);
  out.set_cpu_seconds(usage.cpu_seconds);
  out.set_prompt_tokens(usage.prompt_tokens);
  out.set_cached_tokens(usage.cached_tokens);
  out.set_computed_tokens(usage.computed_tokens);
  out.set_block_seconds(usage.block_seconds);
  out.set_preemptions(usage.preemptions);
  out.set_share(usage.tenant_share);
  out.set_drafted_tokens(usage.drafted_tokens);
  out.set_accepted_tokens(usage.accepted_tokens);
}

void fill(v1::Sampling& out, const engine::SamplingParams& params) {
  config::for_each_sampling_number(
      [&](const config::SamplingNumber& number, const auto& value) { write(out, number, value); }, params);
  out.set_seed(params.seed);
  if (params.max_tokens != scheduler::kUnlimitedTokens) out.set_max_tokens(params.max_tokens);
  out.set_ignore_eos(params.ignore_eos);
  out.set_min_tokens(params.min_tokens);
  for (const auto& [id, value] : params.logit_bias) {
    v1::LogitBias& bias = *out.add_logit_bias();
    bias.set_id(id);
    bias.set_bias(value);
  }
  out.mutable_stop_ids()->Add(params.stop_ids.begin(), params.stop_ids.end());
}

static_assert(kConstraintKinds.size() == v1::FormKind_ARRAYSIZE);

void fill(v1::Form& out, const Constraint& form) {
  out.set_kind(static_cast<v1::FormKind>(form.kind));
  out.set_text(form.text);
  for (const std::string& choice : form.choices) out.add_choices(choice);
  out.set_compact_json(!form.spaces);
  if (form.kind != Constraint::Kind::calls) return;
  v1::FormCalls& calls = *out.mutable_calls();
  calls.set_format(form.calls.format);
  calls.set_must_call(form.calls.must_call);
  calls.set_name(form.calls.name);
  calls.set_single(!form.calls.may_call_several);
  for (const std::string& each : form.calls.strict) calls.add_strict(each);
}

void fill(v1::Proof& out, const actors::Proof& proof) {
  out.set_numerics_id(valid_utf8(proof.numerics_id));
  out.set_model(valid_utf8(proof.model));
  out.mutable_prompt_ids()->Add(proof.prompt->begin(), proof.prompt->end());
  fill(*out.mutable_sampling(), proof.sampling);
  for (const std::string& stop : proof.stop_strings) out.add_stop(stop);
  out.set_choice(proof.sampling.choice);
  if (const auto& budget = proof.sampling.reasoning_budget) out.set_reasoning_budget(budget->num_tokens);
  out.mutable_ids()->Add(proof.ids.begin(), proof.ids.end());
  out.set_text(proof.text);
  out.set_reason(static_cast<v1::Outcome>(proof.outcome));
  out.set_matched_stop(proof.stop);
  out.set_stop_scope(static_cast<v1::StopScope>(proof.stop_scope));
  out.set_begins_with(proof.begins_with);
  out.mutable_shown_ids()->Add(proof.shown_ids.begin(), proof.shown_ids.end());
  if (proof.form) fill(*out.mutable_form(), proof.form->constraint());
  out.set_recomputed_from(valid_utf8(proof.recomputed_from));
}

// Sets the fields that Done and Failed have in common.
template <class Message>
void fill_end(Message& out, std::uint64_t stream, const actors::End& end) {
  out.set_stream(stream);
  out.set_choice(end.choice);
  out.set_message(valid_utf8(end.message));
  out.set_seed(end.seed);
  fill(*out.mutable_usage(), end.usage);
  fill(*out.mutable_receipt(), end.usage);
  out.mutable_receipt()->set_recomputed_from(valid_utf8(end.recomputed_from));
  if (end.proof) fill(*out.mutable_receipt()->mutable_proof(), *end.proof);
}

v1::Outcome to_wire(Outcome outcome) { return static_cast<v1::Outcome>(outcome); }
std::uint64_t to_ms(std::chrono::milliseconds time) { return static_cast<std::uint64_t>(time.count()); }

// `why`: a Refusal, or the End of a refused request.
template <class Why>
void fill_refused(v1::Refused& out, std::uint64_t stream, const Why& why) {
  out.set_stream(stream);
  out.set_code(to_wire(why.outcome));
  out.set_message(valid_utf8(why.message));
  out.set_field(valid_utf8(why.field));
  if (why.limit) out.set_limit(*why.limit);
}

// The wire has our enumerators in the same order, after one for "unspecified".
template <class Wire, class Ours>
constexpr Wire to_wire(Ours value) {
  return static_cast<Wire>(static_cast<int>(value) + 1);
}
using actors::Readiness;
using engine::Pooling;
static_assert(to_wire<v1::Readiness>(Readiness::loading) == v1::READINESS_LOADING &&
              to_wire<v1::Readiness>(Readiness::ready) == v1::READINESS_READY &&
              to_wire<v1::Readiness>(Readiness::draining) == v1::READINESS_DRAINING &&
              to_wire<v1::Readiness>(Readiness::failed) == v1::READINESS_FAILED &&
              to_wire<v1::Readiness>(Readiness::on_request) == v1::READINESS_ON_REQUEST);
static_assert(to_wire<v1::Pooling>(Pooling::mean) == v1::POOLING_MEAN &&
              to_wire<v1::Pooling>(Pooling::cls) == v1::POOLING_CLS &&
              to_wire<v1::Pooling>(Pooling::last) == v1::POOLING_LAST);

v1::ServerFrame embeddings_frame(std::uint64_t stream, const actors::Embeddings& embeddings,
                                 const actors::Usage& usage) {
  v1::ServerFrame frame;
  v1::Embeddings& out = *frame.mutable_embeddings();
  out.set_stream(stream);
  for (std::size_t begin = 0; begin < embeddings.values.size(); begin += embeddings.dim) {
    const float* const row = embeddings.values.data() + begin;
    out.add_vectors()->mutable_values()->Add(row, row + embeddings.dim);
  }
  out.set_pooling(to_wire<v1::Pooling>(embeddings.pooling));
  out.mutable_usage()->set_prompt_tokens(usage.prompt_tokens);
  out.mutable_usage()->set_truncated_tokens(usage.truncated_tokens);
  fill(*out.mutable_receipt(), usage);
  return frame;
}

}  // namespace

std::string server_name() { return "troupe " TROUPE_VERSION; }

std::optional<Refusal> check_counts(const v1::ClientFrame& frame) {
  const v1::Generate& generate = frame.generate();
  const v1::Sampling& sampling = generate.sampling();
  const v1::Embed& embed = frame.embed();
  const struct {
    const char* field;
    const char* what;
    int count;
    std::size_t limit;
  } repeated[] = {
      {"stop", "the number of stop strings", generate.stop_size(), actors::kMaxStopStrings},
      {"messages", "the number of messages", generate.messages().messages_size(), actors::kMaxChatMessages},
      {"tools", "the number of tools", generate.tools_size(), engine::chat::kMaxTools},
      {"sampling.stop_ids", "the number of stop ids", sampling.stop_ids_size(), engine::kMaxStopIds},
      {"shown_ids", "the number of shown ids", generate.shown_ids_size(), actors::kMaxShownIds},
      {"sampling.logit_bias", "the number of biased tokens", sampling.logit_bias_size(), engine::kMaxLogitBias},
      {embed.texts_size() > 0 ? "texts" : "token_ids", "the number of inputs",
       embed.texts_size() + embed.token_ids_size(), actors::kMaxEmbedInputs},
  };
  for (const auto& [field, what, count, limit] : repeated)
    if (static_cast<std::size_t>(count) > limit)
      return scheduler::above(Outcome::invalid_argument, field, what, static_cast<std::uint64_t>(count), limit);
  std::uint64_t calls = 0;
  for (const v1::Messages::Message& each : generate.messages().messages())
    calls += static_cast<std::uint64_t>(each.tool_calls_size());
  if (calls > actors::kMaxChatCalls)
    return scheduler::above(Outcome::invalid_argument, "messages", "the number of tool_calls of all messages", calls,
                            actors::kMaxChatCalls);
  return std::nullopt;
}

RequestOrRefusal to_request(v1::Embed& embed, const scheduler::Tenant& tenant, std::uint64_t max_prompt_bytes) {
  if (embed.texts_size() > 0 && embed.token_ids_size() > 0)
    return scheduler::invalid("token_ids", "texts and token_ids are two ways to say the same; send one of them");
  if (embed.texts_size() == 0 && embed.token_ids_size() == 0)
    return scheduler::invalid("texts", "there is nothing to embed; send texts or token_ids");
  actors::Request request;
  request.tenant = tenant;
  request.model = std::move(*embed.mutable_model());
  actors::EmbedInputs& asked = request.embed.emplace();
  if (embed.texts_size() > 0) {
    auto& texts = asked.texts.emplace<std::vector<std::string>>();
    for (std::string& text : *embed.mutable_texts()) texts.push_back(std::move(text));
  } else {
    auto& inputs = asked.texts.emplace<actors::EmbedIds>();
    for (const v1::TokenIds& ids : embed.token_ids()) inputs.emplace_back(ids.ids().begin(), ids.ids().end());
  }
  if (embed.pooling() != v1::POOLING_UNSPECIFIED) {
    if (!v1::Pooling_IsValid(embed.pooling()))
      return scheduler::invalid("pooling", fmt::format("there is no pooling {}; 1 is mean, 2 cls, 3 last",
                                                       static_cast<int>(embed.pooling())));
    asked.pooling = static_cast<Pooling>(embed.pooling() - 1);
  }
  asked.normalise = !embed.has_normalise() || embed.normalise();
  if (embed.has_truncate()) asked.truncate = embed.truncate();
  if (embed.truncate_to() > 0) {
    if (asked.truncate == false)
      return scheduler::invalid("truncate_to",
                                "truncate_to says how inputs are cut, and truncate that none is; leave one out");
    asked.truncate = true;
    asked.most_tokens = embed.truncate_to();
  }
  request.add_special = !embed.has_add_special() || embed.add_special();
  request.parse_special = embed.parse_special();
  if (auto refusal = apply_rules(request, max_prompt_bytes)) return *std::move(refusal);
  return request;
}

struct NamedForm {
  Constraint constraint;
  std::string field;
};

// What is asked for is checked where it becomes a grammar.
std::optional<NamedForm> form_of(v1::Form& form) {
  if (!v1::FormKind_IsValid(form.kind())) return std::nullopt;
  return NamedForm{{.kind = static_cast<Constraint::Kind>(form.kind()),
                    .text = std::move(*form.mutable_text()),
                    .choices = {form.choices().begin(), form.choices().end()},
                    .calls = {.must_call = form.calls().must_call(),
                              .name = form.calls().name(),
                              .may_call_several = !form.calls().single(),
                              .strict = {form.calls().strict().begin(), form.calls().strict().end()},
                              .format = form.calls().format()},
                    .spaces = !form.compact_json()},
                   "form"};
}

// One of which is set.
NamedForm form_of(v1::Generate& generate) {
  using enum Constraint::Kind;
  const bool spaces = !generate.compact_json();
  if (!generate.json_schema().empty())
    return {{.kind = json_schema, .text = std::move(*generate.mutable_json_schema()), .spaces = spaces}, "json_schema"};
  if (!generate.regex().empty()) return {{.kind = regex, .text = std::move(*generate.mutable_regex())}, "regex"};
  if (generate.choices_size() > 0)
    return {{.kind = choice, .choices = {generate.choices().begin(), generate.choices().end()}}, "choices"};
  if (!generate.grammar().empty())
    return {{.kind = grammar, .text = std::move(*generate.mutable_grammar())}, "grammar"};
  return {{.kind = json_object, .spaces = spaces}, "json_object"};
}

// Presets are numbers in their range, and nothing else.
std::optional<Refusal> check_presets(const v1::Sampling& presets) {
  std::vector<const google::protobuf::FieldDescriptor*> others;
  v1::Sampling::GetReflection()->ListFields(presets, &others);
  std::optional<Refusal> refusal;
  const engine::SamplingParams absent;
  config::for_each_sampling_number(
      [&](const config::SamplingNumber& number, auto value) {
        std::erase(others, &field_of<v1::Sampling>(number));
        read(presets, number, value);
        if (!refusal && !config::is_in_range(number, static_cast<double>(value)))
          refusal = scheduler::invalid(fmt::format("presets.{}", number.name),
                                       fmt::format("{} is {}; it must be {}", number.name, value, number.range));
      },
      absent);
  if (!refusal && !others.empty())
    refusal = scheduler::invalid(
        "presets." + others.front()->name(),
        fmt::format("presets have numbers of sampling alone; {} goes into sampling", others.front()->name()));
  return refusal;
}

// The form that it asks of its answer.
std::optional<Refusal> add_form(v1::Generate& generate, actors::Request& request) {
  const int num_forms = !generate.json_schema().empty() + !generate.regex().empty() + (generate.choices_size() > 0) +
                        generate.json_object() + !generate.grammar().empty() + generate.has_form();
  if (num_forms == 0) return std::nullopt;
  if (num_forms > 1)
    return scheduler::invalid("json_schema",
                              "json_schema, regex, choices, grammar, json_object and form each say what form the "
                              "answer has; send one of them");
  std::optional<NamedForm> form = generate.has_form() ? form_of(*generate.mutable_form()) : form_of(generate);
  if (!form)
    return scheduler::invalid("form.kind", fmt::format("{} is no kind of a form that this server knows",
                                                       static_cast<int>(generate.form().kind())));
  const Constraint& constraint = form->constraint;
  if (constraint.choices.size() > engine::constraints::kMaxChoiceTexts)
    return scheduler::above(scheduler::Outcome::invalid_argument, form->field, "the number of choices",
                            constraint.choices.size(), engine::constraints::kMaxChoiceTexts);
  if (const std::size_t bytes = bytes_of(constraint); bytes > engine::constraints::kMaxConstraintBytes)
    return scheduler::above(scheduler::Outcome::invalid_argument, form->field, "the size of the answer's form in bytes",
                            bytes, engine::constraints::kMaxConstraintBytes);
  request.form = std::make_shared<actors::AnswerForm>(std::move(form->constraint), std::move(form->field));
  return std::nullopt;
}

RequestOrRefusal to_request(v1::Generate& generate, const scheduler::Tenant& tenant, std::uint64_t max_prompt_bytes) {
  if (auto refusal = check(generate)) return *std::move(refusal);
  actors::Request request;
  request.tenant = tenant;
  request.model = generate.model();
  if (generate.prompt_case() == v1::Generate::kText) {
    request.prompt = std::move(*generate.mutable_text());
  } else if (generate.prompt_case() == v1::Generate::kMessages) {
    auto chat = to_chat(*generate.mutable_messages());
    if (auto* const refusal = std::get_if<Refusal>(&chat)) return std::move(*refusal);
    request.prompt = std::get<actors::ChatPrompt>(std::move(chat));
  } else {
    const auto& ids = generate.token_ids().ids();
    request.prompt = std::vector<TokenId>(ids.begin(), ids.end());
  }
  if (auto refusal = add_tools(generate, request)) return *std::move(refusal);
  if (auto refusal = add_form(generate, request)) return *std::move(refusal);
  if (auto refusal = check_presets(generate.presets())) return *std::move(refusal);
  request.add_special = !generate.has_add_special() || generate.add_special();
  request.parse_special = !generate.has_parse_special() || generate.parse_special();
  request.sampling = to_params(generate.sampling(), generate.presets());
  request.given_numbers = numbers_in(generate.sampling());
  request.sampling.num_logprobs = generate.has_logprobs() ? clamped<std::int32_t>(generate.logprobs()) : -1;
  request.has_seed = generate.sampling().has_seed();
  request.has_max_tokens = generate.sampling().has_max_tokens();
  request.stop_strings.assign(generate.stop().begin(), generate.stop().end());
  if (!v1::StopScope_IsValid(generate.stop_scope()))
    return scheduler::invalid("stop_scope",
                              fmt::format("there is no stop_scope {}; 0 is the text, 1 the answer, 2 what "
                                          "is behind reasoning that the prompt has begun",
                                          static_cast<int>(generate.stop_scope())));
  request.stop_scope = static_cast<actors::StopScope>(generate.stop_scope());
  if (generate.has_deadline_ms())
    request.deadline = std::chrono::milliseconds(clamped<std::int64_t>(generate.deadline_ms()));
  request.priority = generate.priority();
  request.cache_scope = generate.cache_scope();
  request.credit = generate.has_credit() ? generate.credit() : kImplicitCredit;
  request.num_choices = generate.has_n() ? generate.n() : 1;
  if (generate.has_reasoning_budget())
    request.sampling.reasoning_budget = engine::ReasoningBudget{.num_tokens = generate.reasoning_budget()};
  if (generate.has_speculation()) request.speculation = to_choice(generate.speculation());
  request.proposal.assign(generate.proposal().begin(), generate.proposal().end());
  request.first_choice = generate.first_choice();
  request.begins_with = std::move(*generate.mutable_begins_with());
  request.shown_ids.assign(generate.shown_ids().begin(), generate.shown_ids().end());
  request.wants_proof = generate.proof();
  request.session = generate.session();
  request.session_recompute = generate.session_recompute();
  if (auto refusal = apply_rules(request, max_prompt_bytes)) return *std::move(refusal);
  return request;
}

v1::ServerFrame to_frame(std::uint64_t stream, const Refusal& refusal, bool closing) {
  v1::ServerFrame frame;
  v1::Refused& out = *frame.mutable_refused();
  fill_refused(out, stream, refusal);
  if (const auto ms = scheduler::retry_ms(refusal)) out.set_retry_after_ms(*ms);
  out.set_closing(closing);
  return frame;
}

v1::ServerFrame to_frame(std::uint64_t stream, actors::TokenRun&& run) {
  v1::ServerFrame frame;
  v1::Tokens& out = *frame.mutable_tokens();
  out.set_stream(stream);
  out.set_choice(run.choice);
  out.set_first_index(run.first_index);
  out.mutable_ids()->Add(run.ids.begin(), run.ids.end());
  out.set_text(std::move(run.text));
  for (const engine::SampledToken& token : run.logprobs) {
    v1::TokenLogprobs& logprobs = *out.add_logprobs();
    logprobs.set_logprob(token.logprob);
    for (const engine::TokenLogprob& top : token.top) {
      logprobs.add_top_ids(top.id);
      logprobs.add_top_logprobs(top.logprob);
    }
  }
  return frame;
}

std::vector<v1::ServerFrame> to_frames(std::uint64_t stream, actors::TokenRun&& run, std::vector<AnswerPiece> pieces) {
  const std::uint32_t choice = run.choice;
  const std::uint64_t next = run.first_index + run.ids.size();
  run.text.clear();
  std::vector<v1::ServerFrame> frames;
  if (!run.ids.empty()) frames.push_back(to_frame(stream, std::move(run)));
  for (AnswerPiece& piece : pieces) {
    // Text comes before the calls of its frame.
    if (frames.empty() || (!piece.call && frames.back().tokens().calls_size() > 0)) {
      v1::Tokens& more = *frames.emplace_back().mutable_tokens();
      more.set_stream(stream);
      more.set_choice(choice);
      more.set_first_index(next);
    }
    v1::Tokens& tokens = *frames.back().mutable_tokens();
    if (!piece.call) {
      tokens.mutable_text()->append(piece.content);
      continue;
    }
    v1::CallPart& part = *tokens.add_calls();
    part.set_index(piece.call->index);
    part.set_id(std::move(piece.call->id));
    part.set_name(std::move(piece.call->name));
    part.set_arguments(std::move(piece.call->arguments));
    part.set_ends(piece.call->ends);
  }
  return frames;
}

v1::ServerFrame to_frame(std::uint64_t stream, actors::End&& end) {
  if (end.embeddings) return embeddings_frame(stream, *end.embeddings, end.usage);
  v1::ServerFrame frame;
  switch (scheduler::info(end.outcome).kind) {
    case scheduler::OutcomeKind::done: {
      v1::Done& out = *frame.mutable_done();
      fill_end(out, stream, end);
      out.set_reason(to_wire(end.outcome));
      out.set_stop(std::move(end.stop));
      fill(*out.mutable_timings(), end.usage);
      break;
    }
    case scheduler::OutcomeKind::refused:
      fill_refused(*frame.mutable_refused(), stream, end);
      if (end.retry_after) frame.mutable_refused()->set_retry_after_ms(to_ms(*end.retry_after));
      if (end.predicted_first) frame.mutable_refused()->set_predicted_first_ms(to_ms(*end.predicted_first));
      if (end.predicted_last) frame.mutable_refused()->set_predicted_last_ms(to_ms(*end.predicted_last));
      break;
    case scheduler::OutcomeKind::failed:
      fill_end(*frame.mutable_failed(), stream, end);
      frame.mutable_failed()->set_code(to_wire(end.outcome));
      break;
  }
  return frame;
}

v1::Health to_health(actors::Readiness readiness, double load_fraction, bool stalled) {
  v1::Health health;
  health.set_readiness(to_wire<v1::Readiness>(readiness));
  health.set_load_fraction(load_fraction);
  health.set_stalled(stalled);
  return health;
}

v1::Health::Model to_model_health(const actors::ModelHealth& health, bool for_owner) {
  v1::Health::Model model;
  model.set_name(valid_utf8(health.name));
  for (const std::string& each : health.aliases) model.add_aliases(valid_utf8(each));
  model.set_readiness(to_wire<v1::Readiness>(health.readiness));
  model.set_load_fraction(health.load_fraction);
  model.set_stalled(health.stalled);
  model.set_problem(valid_utf8(for_owner ? health.problem : without_folders(health.problem)));
  model.set_replacing(health.replacing);
  model.set_retiring(health.retiring);
  model.set_on_request(health.on_request);
  return model;
}

v1::ServerFrame to_frame(std::uint64_t stream, const std::vector<actors::ModelDescription>& models, bool for_owner) {
  v1::ServerFrame frame;
  frame.mutable_models()->set_stream(stream);
  for (const actors::ModelDescription& model : models) {
    v1::Models::Model& out = *frame.mutable_models()->add_models();
    out.set_name(valid_utf8(model.name));
    for (const std::string& each : model.aliases) out.add_aliases(valid_utf8(each));
    out.set_family(valid_utf8(model.info.family));
    out.set_num_parameters(model.info.num_parameters);
    out.set_weight_types(model.info.weight_types);
    out.set_context(model.max_context);
    out.set_trained_context(model.info.trained_context);
    out.set_vocab_size(model.info.vocab_size);
    if (model.bos) out.set_bos(*model.bos);
    if (model.eos) out.set_eos(*model.eos);
    out.mutable_end_ids()->Add(model.end_ids.begin(), model.end_ids.end());
    if (model.chat_template) {
      out.set_chat_template(
          valid_utf8(for_owner ? model.chat_template->name() : without_folders(model.chat_template->name())));
      out.set_reasoning_open(model.reasoning.open);
      out.set_tool_format(std::string(model.tool_format));
      out.set_reasoning_close(model.reasoning.close);
      out.set_begins_reasoning(model.begins_reasoning);
    }
    out.set_kv_bytes_per_token(model.kv_bytes_per_token);
    if (!model.defaults.empty()) {
      put_defaults(model.defaults, *out.mutable_defaults());
      if (!for_owner) out.mutable_defaults()->clear_system();
    }
    out.set_numerics_id(model.numerics_id);
    out.set_num_layers(model.info.num_layers);
    out.set_dim(model.info.dim);
  }
  return frame;
}

v1::ServerFrame to_frame(std::uint64_t stream, const std::vector<actors::ModelCheck>& checks) {
  v1::ServerFrame frame;
  v1::ModelsChecked& all = *frame.mutable_models_checked();
  all.set_stream(stream);
  for (const actors::ModelCheck& check : checks) {
    v1::ModelsChecked::Check& added = *all.add_checks();
    added.set_model(valid_utf8(check.name));
    added.set_canary_ok(check.canary_ok);
    added.set_weights_ok(check.weights_ok);
    added.set_bytes(check.bytes);
    added.set_seconds(check.seconds);
    added.set_file_change(valid_utf8(check.file_change));
    added.set_problem(valid_utf8(check.problem));
  }
  return frame;
}

std::variant<actors::ModelRequest, Refusal> to_model_request(const v1::LoadModel& asked) {
  actors::ModelRequest request{.keys = {}, .chat_template_source = asked.chat_template_source()};
  config::ModelKeys& keys = request.keys;
  take_model_keys(asked, keys);
  if (keys.predict == scheduler::kUnlimitedTokens) keys.predict = -1;
  for (const auto& [field, path] : {std::pair("path", &keys.path), std::pair("draft", &keys.draft)}) {
    if (path->empty() && std::string_view(field) == "draft") continue;
    if (path->starts_with('/') && path->size() < PATH_MAX && path->find('\0') == std::string::npos) continue;
    return scheduler::invalid(field, fmt::format("'{}' is no absolute path of a file", Printable(*path).text()));
  }
  if (auto problem = config::problem_of(keys)) {
    std::string field(problem->key);
    std::ranges::replace(field, '-', '_');
    return scheduler::invalid(field, std::move(problem->why));
  }
  if (!keys.tool_format.empty() && engine::chat::find_tool_format(keys.tool_format) == nullptr)
    return scheduler::invalid("tool_format", fmt::format("there is no format '{}'; `troupe tools formats` lists them",
                                                         Printable(keys.tool_format).text()));
  return request;
}

std::variant<actors::SessionQuestion, Refusal> to_question(const v1::SessionRequest& asked,
                                                           const scheduler::Tenant& tenant) {
  using Kind = actors::SessionQuestion::Kind;
  switch (asked.body_case()) {
    case v1::SessionRequest::kList:
      return actors::SessionQuestion{.kind = Kind::list, .tenant = tenant, .name = {}, .to = {}};
    case v1::SessionRequest::kSave:
      return actors::SessionQuestion{.kind = Kind::save, .tenant = tenant, .name = asked.save().name(), .to = {}};
    case v1::SessionRequest::kFork:
      return actors::SessionQuestion{
          .kind = Kind::fork, .tenant = tenant, .name = asked.fork().from(), .to = asked.fork().to()};
    case v1::SessionRequest::kDelete:
      return actors::SessionQuestion{.kind = Kind::remove, .tenant = tenant, .name = asked.delete_().name(), .to = {}};
    case v1::SessionRequest::kInspect:
      return actors::SessionQuestion{.kind = Kind::inspect, .tenant = tenant, .name = asked.inspect().name(), .to = {}};
    case v1::SessionRequest::BODY_NOT_SET:
      break;
  }
  return scheduler::invalid("session_request", "there is no question; ask for list, save, fork, delete or inspect");
}

v1::ServerFrame to_frame(std::uint64_t stream, const actors::SessionAnswer& answer) {
  if (const auto* refusal = std::get_if<Refusal>(&answer)) return to_frame(stream, *refusal);
  v1::ServerFrame frame;
  frame.mutable_sessions()->set_stream(stream);
  for (const actors::SessionInfo& info : std::get<std::vector<actors::SessionInfo>>(answer)) {
    v1::Sessions::Session& out = *frame.mutable_sessions()->add_sessions();
    out.set_name(info.name);
    out.set_created(info.created);
    out.set_last_used(info.last_used);
    out.set_tokens(info.num_tokens);
    out.set_computed(info.num_computed);
    out.set_blocks(info.num_blocks);
    out.set_answers(info.num_answers);
    out.set_bytes(info.bytes);
    out.set_file_version(info.file_version);
    out.set_numerics_id(valid_utf8(info.numerics_id));
    out.set_in_use(info.in_use);
    out.set_problem(valid_utf8(info.problem));
    out.set_cache_known(info.cache_known);
    for (const actors::SessionAnchor& each : info.anchors) {
      v1::Sessions::Anchor& anchor = *out.add_anchors();
      anchor.set_position(each.anchor.position);
      anchor.set_hash(each.anchor.hash);
      anchor.set_cached(each.cached);
    }
  }
  return frame;
}

void append_frame(std::string& out, const google::protobuf::MessageLite& message) {
  const std::size_t bytes = message.ByteSizeLong();
  TROUPE_ASSERT(bytes < (1ull << 31));
  out.reserve(out.size() + kFrameHeaderBytes + bytes);
  append_frame_header(out, static_cast<std::uint32_t>(bytes));
  TROUPE_ASSERT(message.AppendToString(&out));
}

std::string to_bytes(const google::protobuf::MessageLite& message) {
  std::string bytes;
  append_frame(bytes, message);
  return bytes;
}

}  // namespace troupe::ipc
