#include "ipc/http/endpoints.h"

#include <utility>

#include "actors/visible_models.h"

namespace troupe::ipc::http {
namespace {

bool matches(std::string_view pattern, std::string_view path) {
  if (!pattern.ends_with("/{id}")) return pattern == path;
  pattern.remove_suffix(std::string_view("{id}").size());
  return path.size() > pattern.size() && path.starts_with(pattern);
}

using Read = Act (*)(Request&&, const ReadContext&);

Read function_of(api::Reader reader) {
  switch (reader) {
    case api::Reader::answer:
      return read_answer;
    case api::Reader::count_tokens:
      return read_count_tokens;
    case api::Reader::tokenize:
      return read_tokenize;
    case api::Reader::detokenize:
      return read_detokenize;
    case api::Reader::apply_template:
      return read_apply_template;
    case api::Reader::page:
      return read_page;
    case api::Reader::open:
      return read_open;
    case api::Reader::models:
      return read_models;
    case api::Reader::model:
      return read_model;
    case api::Reader::tokenizer_info:
      return read_tokenizer_info;
    case api::Reader::health:
      return read_health;
    case api::Reader::version:
      return read_version;
    case api::Reader::metrics:
      return read_metrics;
    case api::Reader::openapi:
      return read_openapi;
  }
  return nullptr;
}

}  // namespace

std::vector<const api::EndpointInfo*> endpoints_at(std::string_view path) {
  std::vector<const api::EndpointInfo*> found;
  for (const api::EndpointInfo& endpoint : api::kEndpoints)
    if (matches(endpoint.path, path)) found.push_back(&endpoint);
  return found;
}

Act read_request(Request&& request, const ReadContext& context) {
  return function_of(context.endpoint->read)(std::move(request), context);
}

Act refuse_with(api::ApiError error, api::Dialect dialect) {
  return [error = std::move(error), dialect](Exchange& exchange) {
    exchange.respond(error_response(error, dialect, outcome_of(error)));
  };
}

scheduler::Outcome outcome_of(const api::ApiError& error) {
  for (const scheduler::OutcomeInfo& row : scheduler::outcomes())
    if (row.name == error.code) return row.outcome;
  return scheduler::Outcome::invalid_argument;
}

api::ApiContext api_context(const ReadContext& context) {
  return {.tenant = context.tenant,
          .uid = context.uid,
          .max_prompt_bytes = context.max_prompt_bytes,
          .vector_dim = [gateway = context.gateway,
                         tenant = context.tenant](const std::string& name) -> std::optional<std::uint32_t> {
            const auto model = actors::visible_model(*gateway, tenant, name);
            return model ? std::optional<std::uint32_t>(model->info().dim) : std::nullopt;
          }};
}

}  // namespace troupe::ipc::http
