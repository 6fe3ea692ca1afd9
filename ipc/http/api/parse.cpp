#include "ipc/http/api/parse.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <type_traits>
#include <utility>

#include "actors/requests/request_shape.h"
#include "config/sampling/sampling_numbers.h"
#include "ipc/http/api/fields.h"
#include "ipc/http/json/json_writer.h"
#include "ipc/request_rules.h"

namespace troupe::ipc::api {
namespace {

// OpenAI's completions have 16 tokens where a request does not say.
constexpr std::uint32_t kDefaultCompletionTokens = 16;

void parse_logit_bias(Parsing& at) {
  JsonValue* const value = at.fields.find("logit_bias");
  if (!value) return;
  const JsonObject& biases = *value->as<JsonObject>();
  if (biases.size() > engine::kMaxLogitBias)
    return at.fields.refuse("logit_bias", fmt::format("logit_bias has {} entries; at most {} are taken", biases.size(),
                                                      engine::kMaxLogitBias));
  for (const JsonMember& each : biases) {
    TokenId id = 0;
    const char* const end = each.key.data() + each.key.size();
    const auto [read_to, problem] = std::from_chars(each.key.data(), end, id);
    const auto bias = each.value.number();
    if (problem != std::errc() || read_to != end || id < 0 || !bias || std::abs(*bias) > engine::kMaxLogitBiasValue)
      return at.fields.refuse("logit_bias",
                              "logit_bias must map token ids, as strings of digits, to numbers from -1e6 to 1e6");
    at.call.request.sampling.logit_bias.emplace_back(id, static_cast<float>(*bias));
  }
}

void parse_seed(Parsing& at) {
  const JsonValue* const value = at.fields.find("seed");
  if (!value) return;
  engine::SamplingParams& sampling = at.call.request.sampling;
  const auto* const written = value->as<std::string>();
  if (value->integer() == -1 || (written && *written == "-1")) return;  // a new one, as llama.cpp and vLLM mean it
  at.call.request.has_seed = true;
  if (const auto* large = value->as<std::uint64_t>()) {
    sampling.seed = *large;
  } else if (const auto seed = value->integer()) {
    sampling.seed = static_cast<std::uint64_t>(*seed);
  } else {
    const char* const end = written ? written->data() + written->size() : nullptr;
    const auto [read_to, problem] = written ? std::from_chars(written->data(), end, sampling.seed)
                                            : std::from_chars_result{nullptr, std::errc::invalid_argument};
    if (problem != std::errc() || read_to != end) at.fields.refuse("seed", "seed must be an integer of 64 bits");
  }
}

// -1 is no limit, as for llama.cpp.
void read_max_tokens(Parsing& at, std::string_view name, std::uint32_t& out) {
  constexpr std::uint32_t kMost = std::numeric_limits<std::uint32_t>::max();
  const bool may_be_none = at.call.echo;
  const JsonValue* const value = at.fields.find(name);
  if (value && value->integer() == 0 && !may_be_none)
    return at.fields.refuse(name, at.call.endpoint == Endpoint::completions
                                      ? "max_tokens is 0, which is for a prompt that is echoed; set echo, or ask for "
                                        "at least 1 (-1: no limit)"
                                      : fmt::format("{} is 0; it must be at least 1, or -1 for no limit", name));
  const auto number =
      at.fields.integer(name, -1, kMost, fmt::format("from {} to {}, or -1 for no limit", may_be_none ? 0 : 1, kMost));
  if (number) out = *number < 0 ? kMost : static_cast<std::uint32_t>(*number);
}

void refuse_two_names(Parsing& at, std::string_view one, std::string_view other) {
  at.fields.refuse(other, fmt::format("{} and {} are two names of one thing and differ; send one", one, other));
}

// min_tokens has been read.
void parse_max_tokens(Parsing& at) {
  std::uint32_t& max_tokens = at.call.request.sampling.max_tokens;
  at.fields.read("echo", at.call.echo);
  std::string_view said_by;
  for (const std::string_view name :
       {"max_tokens", "max_output_tokens", "max_completion_tokens", "n_predict", "num_predict", "max_new_tokens"}) {
    if (!at.fields.has(name)) continue;
    std::uint32_t number = max_tokens;
    read_max_tokens(at, name, number);
    if (!said_by.empty() && number != max_tokens) return refuse_two_names(at, said_by, name);
    max_tokens = number;
    said_by = name;
  }
  at.call.request.has_max_tokens = !said_by.empty();
  if (said_by.empty() && at.call.endpoint == Endpoint::completions)
    max_tokens = std::max(kDefaultCompletionTokens, at.call.request.sampling.min_tokens);
  if (max_tokens != 0) return;
  // A prompt is computed with the token behind it, which the answer leaves out.
  at.call.only_prompt = true;
  max_tokens = 1;
}

// These fields stand alone or in the object `troupe`.
void parse_serving(Parsing& at) {
  JsonObject none;
  JsonValue* const own = at.fields.find("troupe");
  FieldReader within(own ? *own->as<JsonObject>() : none, at.refusal, "troupe.");
  const auto reader_of = [&](std::string_view name) -> FieldReader& {
    if (!within.has(name)) return at.fields;
    if (at.fields.has(name))
      within.refuse(name, fmt::format("{} is sent twice, also as {}; send one", within.path(name), name));
    return within;
  };
  actors::Request& request = at.call.request;
  reader_of("priority").read("priority", request.priority);
  if (FieldReader& reader = reader_of("deadline_ms"); reader.has("deadline_ms")) {
    std::uint32_t ms = 0;
    reader.read("deadline_ms", ms, 1);
    request.deadline = std::chrono::milliseconds(ms);
  }
  reader_of("cache_scope").read_short("cache_scope", request.cache_scope, actors::kMaxScopeBytes);
  reader_of("session").read_short("session", request.session, kMaxNameBytes);
  reader_of("session_recompute").read("session_recompute", request.session_recompute);
  within.read("receipt", at.call.receipt);
  std::string how;  // listed values only
  within.read("receipt", how);
  request.wants_proof = how == "full";
}

void parse_speculation(Parsing& at) {
  JsonValue* const value = at.fields.find("speculation");
  if (!value) return;
  FieldReader fields(*value->as<JsonObject>(), at.refusal, "speculation.");
  engine::SpeculationChoice& choice = at.call.request.speculation;
  std::string type;
  fields.read("type", type);
  choice.source = engine::draft_source(type);
  for (const auto& [name, number] : {std::pair("n_max", &choice.n_max), std::pair("n_min", &choice.n_min)})
    if (fields.has(name)) fields.read(name, number->emplace(), 0, kMaxDraftTokens);
  if (fields.has("p_min")) fields.read("p_min", choice.p_min.emplace());
}

// vLLM's name for it.
void read_add_special(Parsing& at) {
  bool& add_special = at.call.request.add_special;
  at.fields.read("add_special", add_special);
  bool other = add_special;
  at.fields.read("add_special_tokens", other);
  if (at.fields.has("add_special") && other != add_special)
    return refuse_two_names(at, "add_special", "add_special_tokens");
  add_special = other;
}

// Keeps a member as JSON text, for the answer.
void keep(Parsing& at, std::string_view name, std::string& out) {
  if (const JsonValue* const value = at.fields.find(name)) out = to_json(*value);
}

void parse_metadata(Parsing& at) {
  const JsonValue* const value = at.fields.find("metadata");
  if (!value) return;
  const JsonObject& entries = *value->as<JsonObject>();
  if (entries.size() > kMaxMetadataEntries)
    return at.fields.refuse(
        "metadata", fmt::format("metadata has {} entries; at most {} are taken", entries.size(), kMaxMetadataEntries));
  for (const JsonMember& each : entries) {
    const auto* const text = each.value.as<std::string>();
    if (!text || each.key.size() > kMaxMetadataKeyBytes || text->size() > kMaxMetadataValueBytes)
      return at.fields.refuse("metadata", fmt::format("metadata must map names of up to {} bytes to texts of up to {}",
                                                      kMaxMetadataKeyBytes, kMaxMetadataValueBytes));
  }
  at.call.echoed.metadata = to_json(*value);
}

// Fields that the answer repeats. Their values were checked where the table lists them.
void parse_echoed(Parsing& at) {
  for (const char* name : {"user", "safety_identifier", "prompt_cache_key"}) {
    const JsonValue* const value = at.fields.find(name);
    const auto* const text = value ? value->as<std::string>() : nullptr;
    if (text && text->size() > kMaxNameBytes)
      at.fields.refuse(name, fmt::format("{} has {} bytes; at most {} are taken", name, text->size(), kMaxNameBytes));
  }
  keep(at, "user", at.call.echoed.user);
  keep(at, "safety_identifier", at.call.echoed.safety_identifier);
  keep(at, "prompt_cache_key", at.call.echoed.prompt_cache_key);
  parse_metadata(at);
}

void parse_endpoint(Parsing& at) {
  switch (at.call.endpoint) {
    case Endpoint::chat_completions:
    case Endpoint::apply_template:
      return parse_chat(at);
    case Endpoint::completions:
      return parse_completion(at);
    case Endpoint::embeddings:
      return parse_embedding(at);
    case Endpoint::responses:
      return parse_response(at);
    case Endpoint::messages:
    case Endpoint::count_tokens:
      return parse_messages(at);
    case Endpoint::tokenize:
      return parse_tokenize(at);
    case Endpoint::detokenize:
      return parse_detokenize(at);
  }
}

bool generates(Endpoint endpoint) {
  return endpoint == Endpoint::chat_completions || endpoint == Endpoint::completions ||
         endpoint == Endpoint::responses || endpoint == Endpoint::messages;
}

// Where the client has written what apply_rules() calls `field`.
std::string place_of(std::string_view field, Parsing& at) {
  if (field == "logprobs" && at.fields.has("top_logprobs")) return "top_logprobs";
  const std::string name = field_here(field, at.call.endpoint);
  JsonValue* const own = at.fields.find("troupe");
  return own && find_member(*own->as<JsonObject>(), name) ? "troupe." + name : name;
}

constexpr std::string_view kOtherPenaltyName = "repetition_penalty";

// vLLM's name of a number, whose value has been read.
void read_other_name(Parsing& at, std::string_view name, const config::SamplingNumber& number, float& value) {
  if (!at.fields.has(name)) return;
  float other = value;
  at.fields.read(name, other);
  if (!config::is_in_range(number, other))
    return at.fields.refuse(name, fmt::format("{} is {:g}; it must be {}", name, other, number.range));
  if (at.fields.has(number.name) && other != value) return refuse_two_names(at, number.name, name);
  value = other;
}

// All prompts of a request together have the bytes that one may have.
std::optional<scheduler::Refusal> check_prompts(const ApiCall& call, std::uint64_t max_prompt_bytes) {
  std::uint64_t bytes = actors::input_bytes(call.request);
  for (const auto& each : call.more_prompts) bytes += actors::prompt_bytes(each);
  return actors::check_input_bytes(call.request, bytes, max_prompt_bytes);
}

// The rules of requests, and what the sampler can check without a vocabulary. Ids are checked by the model.
void check_call(Parsing& at) {
  if (at.refusal) return;
  auto refused = check_prompts(at.call, at.context.max_prompt_bytes);
  if (!refused) refused = apply_rules(at.call.request, at.context.max_prompt_bytes);
  if (refused) {
    refused->field = place_of(refused->field, at);
    at.refusal = api_error(*std::move(refused));
    return;
  }
  if (!generates(at.call.endpoint)) return;
  const auto wrong = engine::validate(at.call.request.sampling, std::numeric_limits<std::int32_t>::max());
  if (!wrong) return;
  const std::size_t dot = wrong->field.find('.');
  at.fields.refuse(wrong->field.substr(dot == std::string::npos ? 0 : dot + 1), wrong->message);
}

}  // namespace

void parse_generation(Parsing& at) {
  engine::SamplingParams& sampling = at.call.request.sampling;
  FieldReader& fields = at.fields;
  config::for_each_sampling_number(
      [&](const config::SamplingNumber& number, auto& value) {
        const bool is_penalty = number.name == config::kRepeatPenalty.name;
        if (fields.has(number.name) || (is_penalty && fields.has(kOtherPenaltyName)))
          at.call.request.given_numbers.add(number);
        if constexpr (std::is_integral_v<std::remove_reference_t<decltype(value)>>) {
          const auto read = fields.integer(number.name, static_cast<std::int64_t>(number.min),
                                           static_cast<std::int64_t>(number.max), number.range);
          if (read) value = static_cast<std::int32_t>(*read);
        } else {
          fields.read(number.name, value);
          if (is_penalty) read_other_name(at, kOtherPenaltyName, number, value);
        }
      },
      sampling);
  fields.read("ignore_eos", sampling.ignore_eos);
  fields.read("min_tokens", sampling.min_tokens);
  fields.read_ids("stop_token_ids", sampling.stop_ids, engine::kMaxStopIds);
  fields.read_strings("stop", at.call.request.stop_strings, actors::kMaxStopStrings, true);
  fields.read_strings("stop_sequences", at.call.request.stop_strings, actors::kMaxStopStrings, false);
  parse_logit_bias(at);
  parse_seed(at);
  parse_max_tokens(at);
  parse_speculation(at);
  parse_serving(at);
  fields.read("n", at.call.request.num_choices, 1, actors::kMaxChoices);
}

void parse_stream(Parsing& at) {
  at.fields.read("stream", at.call.stream);
  JsonValue* const options = at.fields.find("stream_options");
  if (!options) return;
  if (!at.call.stream)
    return at.fields.refuse("stream_options",
                            "stream_options are for answers that stream; set stream or leave them out");
  FieldReader reader(*options->as<JsonObject>(), at.refusal, "stream_options.");
  reader.read("include_usage", at.call.include_usage);
  reader.read("continuous_usage_stats", at.call.continuous_usage);
}

std::variant<ApiCall, ApiError> parse_call(Endpoint endpoint, std::string_view body, const ApiContext& context) {
  auto document = read_json(body);
  if (!document) return api_error(scheduler::invalid({}, document.error().message));
  auto* const object = document->as<JsonObject>();
  if (!object) return api_error(scheduler::invalid({}, "the body must be a JSON object"));
  ApiCall call;
  if (auto refusal = check_fields(endpoint, *object, call.ignored)) return *std::move(refusal);
  call.endpoint = endpoint;
  call.request.tenant = context.tenant;
  call.request.uid = context.uid;
  Parsing at{.context = context, .call = call, .body = *object};
  at.fields.read_short("model", call.request.model, kMaxNameBytes);
  parse_echoed(at);
  if (generates(endpoint)) {
    parse_generation(at);
    parse_stream(at);
    parse_form(at);
  }
  if (endpoint == Endpoint::tokenize) call.request.add_special = at.fields.has("prompt");
  read_add_special(at);
  parse_endpoint(at);
  check_call(at);
  if (at.refusal) return *std::move(at.refusal);
  return call;
}

}  // namespace troupe::ipc::api
