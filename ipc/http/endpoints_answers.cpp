// Endpoints whose answer comes from the gateway's stream table: continued texts, conversations and vectors.
#include <fmt/format.h>

#include <chrono>
#include <utility>
#include <vector>

#include "actors/visible_models.h"
#include "ipc/http/api/call.h"
#include "ipc/http/endpoints.h"
#include "ipc/http/request_id.h"

namespace troupe::ipc::http {
namespace {

using api::ApiCall;
using api::ApiError;

std::int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// The name that was asked for, or for now that of the tenant's default model. What else is known of the model, and its
// name where the request has none, comes with the admission: what serves the name may be another one by then.
api::AnswerFacts facts_of(const ApiCall& call, const Exchange& exchange) {
  std::string name = call.request.model;
  if (name.empty())
    if (const auto models = actors::visible_health(exchange.gateway(), exchange.tenant()); !models.empty())
      name = models.front().name;
  return {
      .id = new_id(), .created = unix_seconds(), .model = std::move(name), .takes_name = call.request.model.empty()};
}

// Refuses vectors whose answer would not fit into an outbox, rather than compute them first.
std::optional<ApiError> check_vectors(const ApiCall& call, const Exchange& exchange) {
  if (!call.request.embed) return std::nullopt;
  const auto model = actors::visible_model(exchange.gateway(), exchange.tenant(), call.request.model);
  const std::uint64_t bytes_per_number = call.base64 ? 6 : 14;
  const std::uint64_t bytes = model ? call.request.embed->count() * (model->info().dim * bytes_per_number + 64) : 0;
  const std::uint64_t most = exchange.options().limits.max_outbox_bytes;
  if (bytes <= most) return std::nullopt;
  return too_large_an_answer(bytes, most, "ask for fewer vectors at once, or for base64");
}

// The answer keeps what it says of the request; the prompt only if it is echoed.
void submit_call(ApiCall& call, api::AnswerFacts facts, Exchange& exchange) {
  std::vector<actors::Request> requests;
  for (auto& prompt : call.more_prompts) {
    requests.push_back(call.request);
    requests.back().prompt = call.echo ? prompt : std::exchange(prompt, std::string());
  }
  requests.insert(requests.begin(), call.echo ? call.request : std::move(call.request));
  for (actors::Request& request : requests) request.tenant = exchange.tenant();
  call.request.sampling = requests.front().sampling;
  call.request.num_choices = requests.front().num_choices;
  call.request.tools = requests.front().tools;
  if (requests.front().embed) call.request.embed.emplace();  // that it was one
  exchange.submit(std::move(requests), api::make_answer(std::move(call), std::move(facts)));
}

void begin_answer(const std::shared_ptr<ApiCall>& call, Exchange& exchange) {
  if (auto error = check_vectors(*call, exchange))
    return refuse_with(std::move(*error), api::Dialect::openai)(exchange);
  submit_call(*call, facts_of(*call, exchange), exchange);
}

Asked asked_by(const ApiCall& call, std::size_t body_bytes) {
  Asked asked{.model = call.request.model,
              .streams = call.stream,
              .ignored = fmt::format("{}", fmt::join(call.ignored, ", ")),
              .num_choices = call.num_choices()};
  if (call.request.embed) asked.num_vectors = static_cast<std::uint32_t>(call.request.embed->count());
  if (std::holds_alternative<actors::ChatPrompt>(call.request.prompt) || body_bytes > actors::kMaxTextInActor)
    asked.num_texts = static_cast<std::uint32_t>(1 + call.more_prompts.size());
  return asked;
}

}  // namespace

Act read_answer(Request&& request, const ReadContext& context) {
  auto parsed = api::parse_call(*context.endpoint->body, request.body, api_context(context));
  if (auto* error = std::get_if<ApiError>(&parsed)) return refuse_with(std::move(*error), context.endpoint->dialect);
  if (context.asked != nullptr) *context.asked = asked_by(std::get<ApiCall>(parsed), request.body.size());
  return [call = std::make_shared<ApiCall>(std::get<ApiCall>(std::move(parsed)))](Exchange& exchange) {
    begin_answer(call, exchange);
  };
}

}  // namespace troupe::ipc::http
