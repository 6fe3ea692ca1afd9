#include "ipc/http/json/receipt.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <optional>
#include <utility>

#include "actors/requests/request.h"
#include "config/printable.h"
#include "config/sampling/sampling_numbers.h"
#include "ipc/http/json/json_value.h"
#include "scheduler/shares/admission.h"

namespace troupe::ipc::api {
namespace {

using actors::Proof;
using engine::constraints::Constraint;
using engine::constraints::kConstraintKinds;
using scheduler::kUnlimitedTokens;

constexpr std::string_view kBanned = "-inf";  // a bias, which JSON has no number for

void write_ids(JsonWriter& json, std::string_view name, std::span<const TokenId> ids) {
  json.key(name).begin_array();
  for (const TokenId id : ids) json.integer(id);
  json.end_array();
}

void write_strings(JsonWriter& json, std::string_view name, std::span<const std::string> texts) {
  json.key(name).begin_array();
  for (const std::string& text : texts) json.string(text);
  json.end_array();
}

using actors::StopScope;
constexpr std::array<std::string_view, 3> kScopes = {"text", "answer", "behind_reasoning"};

bool has_choices(const Constraint& form) { return form.kind == Constraint::Kind::choice; }
bool has_text(const Constraint& form) { return form.kind != Constraint::Kind::json_object && !has_choices(form); }
bool is_json(const Constraint& form) {
  return form.kind == Constraint::Kind::json_object || form.kind == Constraint::Kind::json_schema;
}

void write_form(JsonWriter& json, const Constraint& form) {
  json.key("form").begin_object().field("kind", kConstraintKinds[static_cast<std::size_t>(form.kind)]);
  if (has_text(form)) json.field("text", form.text);
  if (has_choices(form)) write_strings(json, "choices", form.choices);
  if (is_json(form)) json.field("compact_json", !form.spaces);
  if (form.kind == Constraint::Kind::calls) {
    const engine::constraints::CallWish& calls = form.calls;
    json.key("calls").begin_object().field("format", calls.format).field("must_call", calls.must_call);
    json.field("name", calls.name).field("single", !calls.may_call_several);
    write_strings(json, "strict", calls.strict);
    json.end_object();
  }
  json.end_object();
}

void write_sampling(JsonWriter& json, const Proof& proof) {
  const engine::SamplingParams& sampling = proof.sampling;
  json.key("sampling").begin_object();
  config::for_each_sampling_number(
      [&](const config::SamplingNumber& number, const auto& value) { json.field(number.name, value); }, sampling);
  // As text: numbers above 2^53 are not exact in every program.
  json.field("seed", std::to_string(sampling.seed)).field("choice", sampling.choice).key("max_tokens");
  sampling.max_tokens == kUnlimitedTokens ? json.null() : json.natural(sampling.max_tokens);
  if (sampling.min_tokens > 0) json.field("min_tokens", sampling.min_tokens);
  json.field("ignore_eos", sampling.ignore_eos).key("logit_bias").begin_array();
  for (const auto& [id, bias] : sampling.logit_bias) {
    json.begin_object().field("id", id).key("bias");
    (std::isinf(bias) ? json.string(kBanned) : json.number(bias)).end_object();
  }
  json.end_array();
  write_ids(json, "stop_ids", sampling.stop_ids);
  write_strings(json, "stop", proof.stop_strings);
  if (proof.stop_scope != StopScope::text)
    json.field("stop_scope", kScopes[static_cast<std::size_t>(proof.stop_scope)]);
  if (!proof.begins_with.empty()) json.field("begins_with", proof.begins_with);
  if (!proof.shown_ids.empty()) write_ids(json, "shown_ids", proof.shown_ids);
  if (proof.form) write_form(json, proof.form->constraint());
  json.key("reasoning_budget");
  sampling.reasoning_budget ? json.natural(sampling.reasoning_budget->num_tokens) : json.null();
  json.end_object();
}

// Reads the members of one object, each of which must be there, and keeps the first problem.
class Members {
 public:
  // path: of the object, with a point behind it; empty: the document.
  Members(JsonObject& object, std::string path, std::optional<std::string>& problem)
      : object_(object), path_(std::move(path)), problem_(problem) {}

  bool has_problem() const { return problem_.has_value(); }
  void wrong(std::string_view name, std::string_view must) {
    if (!problem_) problem_ = fmt::format("{}{} must be {}", path_, name, must);
  }
  void allow_only(std::initializer_list<std::string_view> names) {
    for (const JsonMember& each : object_) {
      const bool is_number = is_sampling_number(each.key);
      if (problem_ || std::ranges::find(names, each.key) != names.end() || (path_ == "sampling." && is_number))
        continue;
      problem_ = fmt::format("{}{} is no field of version {}", path_, Printable(each.key).text(), kReceiptVersion);
    }
  }
  bool has(std::string_view name) const {
    return std::ranges::any_of(object_, [&](const JsonMember& each) { return each.key == name; });
  }
  // Null: it is missing, or there was a problem before.
  JsonValue* find(std::string_view name) {
    if (problem_) return nullptr;
    for (JsonMember& each : object_)
      if (each.key == name) return &each.value;
    problem_ = fmt::format("{}{} is missing", path_, name);
    return nullptr;
  }
  std::optional<Members> object(std::string_view name) {
    JsonValue* const value = find(name);
    if (!value) return std::nullopt;
    if (auto* const members = value->as<JsonObject>())
      return Members(*members, fmt::format("{}{}.", path_, name), problem_);
    wrong(name, "an object");
    return std::nullopt;
  }
  void text(std::string_view name, std::string& out, std::size_t most) {
    JsonValue* const value = find(name);
    if (!value) return;
    auto* const text = value->as<std::string>();
    if (!text || text->size() > most) return wrong(name, fmt::format("a text of at most {} bytes", most));
    out = std::move(*text);
  }
  void boolean(std::string_view name, bool& out) {
    const JsonValue* const value = find(name);
    if (!value) return;
    if (const bool* const yes = value->as<bool>()) return void(out = *yes);
    wrong(name, "true or false");
  }
  void natural(std::string_view name, std::uint32_t& out) {
    if (const JsonValue* const value = find(name)) to_natural(name, *value, out);
  }
  // Leaves `out` as it is where it is null.
  void natural_or_null(std::string_view name, std::optional<std::uint32_t>& out) {
    const JsonValue* const value = find(name);
    if (value && !value->is_null()) to_natural(name, *value, out.emplace());
  }
  void number(std::string_view name, float& out) {
    const JsonValue* const value = find(name);
    if (value) to_float(name, *value, out);
  }
  void number(std::string_view name, std::int32_t& out) {
    const JsonValue* const value = find(name);
    if (!value) return;
    const auto number = value->integer();
    if (!number || *number < std::numeric_limits<std::int32_t>::min() ||
        *number > std::numeric_limits<std::int32_t>::max())
      return wrong(name, "an integer of 32 bits");
    out = static_cast<std::int32_t>(*number);
  }
  void seed(std::string_view name, std::uint64_t& out) {
    const JsonValue* const value = find(name);
    if (!value) return;
    const auto* const text = value->as<std::string>();
    const char* const end = text ? text->data() + text->size() : nullptr;
    const auto read = text ? std::from_chars(text->data(), end, out) : std::from_chars_result{};
    // One way to write each: what is proved is the receipt as it is written.
    if (!text || read.ec != std::errc() || read.ptr != end || *text != std::to_string(out))
      wrong(name, "the digits of a number of 64 bits, as text, without zeros before them");
  }
  JsonArray* array(std::string_view name, std::size_t most) {
    JsonValue* const value = find(name);
    if (!value) return nullptr;
    auto* const array = value->as<JsonArray>();
    if (array && array->size() <= most) return array;
    wrong(name, fmt::format("an array of at most {} entries", most));
    return nullptr;
  }
  void ids(std::string_view name, std::vector<TokenId>& out, std::size_t most) {
    const JsonArray* const values = array(name, most);
    if (!values) return;
    for (const JsonValue& each : *values) {
      const auto id = each.integer();
      if (!id || *id < 0 || *id > std::numeric_limits<TokenId>::max())
        return wrong(name, "an array of token ids, integers from 0 to 2147483647");
      out.push_back(static_cast<TokenId>(*id));
    }
  }
  void texts(std::string_view name, std::vector<std::string>& out, std::size_t most, std::size_t most_bytes) {
    JsonArray* const values = array(name, most);
    if (!values) return;
    for (JsonValue& each : *values) {
      auto* const text = each.as<std::string>();
      if (!text || text->empty() || text->size() > most_bytes)
        return wrong(name, fmt::format("an array of texts of 1 to {} bytes", most_bytes));
      out.push_back(std::move(*text));
    }
  }
  void biases(std::string_view name, std::vector<std::pair<TokenId, float>>& out) {
    JsonArray* const values = array(name, engine::kMaxLogitBias);
    if (!values) return;
    for (JsonValue& each : *values) {
      auto* const object = each.as<JsonObject>();
      if (!object) return wrong(name, R"(an array of objects with "id" and "bias")");
      Members members(*object, fmt::format("{}{}[].", path_, name), problem_);
      members.allow_only({"id", "bias"});
      std::int32_t id = 0;
      float bias = 0;
      members.number("id", id);
      if (id < 0) members.wrong("id", "a token id");
      const JsonValue* const value = members.find("bias");
      if (!value) return;
      const auto* const text = value->as<std::string>();
      if (text && *text == kBanned)
        bias = -std::numeric_limits<float>::infinity();
      else
        members.to_float("bias", *value, bias);
      out.emplace_back(id, bias);
    }
  }

 private:
  static bool is_sampling_number(std::string_view name) {
    bool found = false;
    config::for_each_sampling_number([&](const config::SamplingNumber& number) { found |= number.name == name; });
    return found;
  }
  void to_natural(std::string_view name, const JsonValue& value, std::uint32_t& out) {
    const auto number = value.integer();
    if (!number || *number < 0 || *number >= kUnlimitedTokens)
      return wrong(name, fmt::format("an integer from 0 to {}", kUnlimitedTokens - 1));
    out = static_cast<std::uint32_t>(*number);
  }
  void to_float(std::string_view name, const JsonValue& value, float& out) {
    const auto number = value.number();
    if (!number || !(std::abs(*number) <= static_cast<double>(std::numeric_limits<float>::max())))
      return wrong(name, "a number");
    out = static_cast<float>(*number);
  }

  JsonObject& object_;
  const std::string path_;
  std::optional<std::string>& problem_;
};

void read_calls(Members& members, engine::constraints::CallWish& calls) {
  members.allow_only({"format", "must_call", "name", "single", "strict"});
  members.text("format", calls.format, kMaxReceiptNameBytes);
  members.boolean("must_call", calls.must_call);
  members.text("name", calls.name, engine::chat::kMaxToolNameBytes);
  bool single = false;
  members.boolean("single", single);
  calls.may_call_several = !single;
  members.texts("strict", calls.strict, engine::chat::kMaxTools, engine::constraints::kMaxConstraintBytes);
}

void read_form(Members& members, Proof& proof) {
  members.allow_only({"kind", "text", "choices", "compact_json", "calls"});
  std::string kind;
  members.text("kind", kind, kMaxReceiptNameBytes);
  const auto found = std::ranges::find(kConstraintKinds, kind);
  if (found == kConstraintKinds.end())
    return members.wrong("kind", fmt::format("one of {}", fmt::join(kConstraintKinds, ", ")));
  Constraint form{.kind = static_cast<Constraint::Kind>(found - kConstraintKinds.begin())};
  if (has_text(form)) members.text("text", form.text, engine::constraints::kMaxConstraintBytes);
  if (has_choices(form))
    members.texts("choices", form.choices, engine::constraints::kMaxChoiceTexts,
                  engine::constraints::kMaxConstraintBytes);
  bool compact = false;
  if (is_json(form)) members.boolean("compact_json", compact);
  form.spaces = is_json(form) && !compact;
  if (form.kind == Constraint::Kind::calls)
    if (auto calls = members.object("calls")) read_calls(*calls, form.calls);
  proof.form = std::make_shared<const actors::AnswerForm>(std::move(form), "form");
}

void read_sampling(Members& members, Proof& proof) {
  members.allow_only({"seed", "choice", "max_tokens", "min_tokens", "ignore_eos", "logit_bias", "stop_ids", "stop",
                      "stop_scope", "begins_with", "shown_ids", "form", "reasoning_budget"});
  engine::SamplingParams& sampling = proof.sampling;
  config::for_each_sampling_number(
      [&](const config::SamplingNumber& number, auto& value) { members.number(number.name, value); }, sampling);
  members.seed("seed", sampling.seed);
  members.natural("choice", sampling.choice);
  if (sampling.choice >= actors::kMaxChoices)
    members.wrong("choice", fmt::format("an integer from 0 to {}", actors::kMaxChoices - 1));
  std::optional<std::uint32_t> max_tokens, budget;
  members.natural_or_null("max_tokens", max_tokens);
  sampling.max_tokens = max_tokens.value_or(kUnlimitedTokens);
  if (members.has("min_tokens")) members.natural("min_tokens", sampling.min_tokens);
  members.boolean("ignore_eos", sampling.ignore_eos);
  members.biases("logit_bias", sampling.logit_bias);
  members.ids("stop_ids", sampling.stop_ids, engine::kMaxStopIds);
  members.texts("stop", proof.stop_strings, actors::kMaxStopStrings, actors::kMaxStopStringBytes);
  if (members.has("stop_scope")) {
    std::string scope;
    members.text("stop_scope", scope, kMaxReceiptNameBytes);
    const auto found = std::ranges::find(kScopes, scope);
    if (found == kScopes.end()) return members.wrong("stop_scope", "text, answer or behind_reasoning");
    proof.stop_scope = static_cast<StopScope>(found - kScopes.begin());
  }
  if (members.has("begins_with")) members.text("begins_with", proof.begins_with, actors::kMaxBeginningBytes);
  if (members.has("shown_ids")) members.ids("shown_ids", proof.shown_ids, actors::kMaxShownIds);
  if (members.has("form"))
    if (auto form = members.object("form")) read_form(*form, proof);
  members.natural_or_null("reasoning_budget", budget);
  if (budget) sampling.reasoning_budget = engine::ReasoningBudget{.num_tokens = *budget};
}

void read_answer(Members& members, Proof& proof) {
  members.allow_only({"ids", "text", "end", "matched_stop"});
  members.ids("ids", proof.ids, kMaxJsonValues);
  members.text("text", proof.text, kMaxReceiptBytes);
  std::string end;
  members.text("end", end, kMaxReceiptNameBytes);
  members.text("matched_stop", proof.stop, actors::kMaxStopStringBytes);
  for (std::uint32_t number = 0; number < 100; ++number)  // those of kind done
    if (const auto outcome = scheduler::outcome_from_number(number); outcome && scheduler::info(*outcome).name == end)
      return void(proof.outcome = *outcome);
  members.wrong("end", "how an answer ends: eos, stop_id, stop_string, length, cancelled, deadline or tool_call");
}

void read_receipt(Members& members, Proof& proof) {
  std::uint32_t version = 0;
  members.natural("receipt_version", version);
  if (version != kReceiptVersion)
    return members.wrong("receipt_version", fmt::format("{}, the version that this program reads", kReceiptVersion));
  members.allow_only(
      {"receipt_version", "numerics_id", "model", "prompt_ids", "recomputed_from", "sampling", "answer"});
  const auto read_numerics = [&](const char* name, std::string& id) {
    members.text(name, id, kMaxNumericsIdBytes);
    const auto is_plain = [](char c) { return c > ' ' && c <= '~'; };
    if (id.empty() || !std::ranges::all_of(id, is_plain)) members.wrong(name, "a text of visible ASCII characters");
  };
  read_numerics("numerics_id", proof.numerics_id);
  if (members.has("recomputed_from")) read_numerics("recomputed_from", proof.recomputed_from);
  if (auto model = members.object("model")) {
    std::string hash;
    model->allow_only({"name", "hash"});
    model->text("name", proof.model, kMaxReceiptNameBytes);
    model->text("hash", hash, kMaxNumericsIdBytes);
    if (hash != actors::parts_of(proof.numerics_id).model_hash) model->wrong("hash", "the hash in numerics_id");
  }
  std::vector<TokenId> prompt;
  members.ids("prompt_ids", prompt, kMaxJsonValues);
  if (prompt.empty()) members.wrong("prompt_ids", "an array of at least one token id");
  proof.prompt = std::make_shared<const std::vector<TokenId>>(std::move(prompt));
  if (auto sampling = members.object("sampling")) read_sampling(*sampling, proof);
  if (auto answer = members.object("answer")) read_answer(*answer, proof);
  if (proof.ids.size() > proof.sampling.max_tokens)
    members.wrong("answer.ids",
                  fmt::format("an array of at most sampling.max_tokens, {}, ids", proof.sampling.max_tokens));
}

Error bad_receipt(std::string why) { return {ErrorCode::invalid_argument, std::move(why)}; }

Result<Proof> read_receipt(JsonValue& document) {
  auto* const object = document.as<JsonObject>();
  if (!object) return bad_receipt("a receipt must be a JSON object");
  Proof proof;
  std::optional<std::string> problem;
  Members members(*object, "", problem);
  read_receipt(members, proof);
  if (problem) return bad_receipt(*std::move(problem));
  if (const auto wrong = engine::validate(proof.sampling, std::numeric_limits<TokenId>::max()))
    return bad_receipt(fmt::format("{}: {}", wrong->field, wrong->message));
  return proof;
}

}  // namespace

void write_receipt(JsonWriter& json, const Proof& proof) {
  json.begin_object().field("receipt_version", kReceiptVersion).field("numerics_id", proof.numerics_id);
  json.key("model").begin_object().field("name", proof.model);
  json.field("hash", actors::parts_of(proof.numerics_id).model_hash).end_object();
  write_ids(json, "prompt_ids", *proof.prompt);
  if (!proof.recomputed_from.empty()) json.field("recomputed_from", proof.recomputed_from);
  write_sampling(json, proof);
  json.key("answer").begin_object();
  write_ids(json, "ids", proof.ids);
  json.field("text", proof.text).field("end", scheduler::info(proof.outcome).name);
  json.field("matched_stop", proof.stop).end_object().end_object();
}

std::string receipt_file(std::span<const Proof> proofs) {
  std::string text;
  JsonWriter json(text);
  if (proofs.size() != 1) json.begin_array();
  for (const Proof& proof : proofs) write_receipt(json, proof);
  if (proofs.size() != 1) json.end_array();
  return text + "\n";
}

Result<std::vector<Proof>> read_receipts(std::string_view text) {
  if (text.size() > kMaxReceiptBytes)
    return bad_receipt(fmt::format("it has {} bytes; receipts have at most {}", text.size(), kMaxReceiptBytes));
  auto document = read_json(text);
  if (!document) return document.error();
  std::vector<Proof> proofs;
  auto* const several = document->as<JsonArray>();
  if (!several) {
    auto proof = read_receipt(*document);
    if (!proof) return proof.error();
    proofs.push_back(*std::move(proof));
    return proofs;
  }
  if (several->empty() || several->size() > kMaxReceipts)
    return bad_receipt(fmt::format("it has {} receipts; a file has 1 to {}", several->size(), kMaxReceipts));
  for (std::size_t i = 0; i < several->size(); ++i) {
    auto proof = read_receipt((*several)[i]);
    if (!proof) return bad_receipt(fmt::format("receipt {}: {}", i + 1, proof.error().message));
    proofs.push_back(*std::move(proof));
  }
  return proofs;
}

}  // namespace troupe::ipc::api
