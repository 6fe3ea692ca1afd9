// /health, /version, /metrics, /v1/models, /openapi.json.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "actors/visible_models.h"
#include "config/printable.h"
#include "config/utf8.h"
#include "ipc/client/conversions.h"
#include "ipc/frames/wire.h"
#include "ipc/http/endpoints.h"
#include "ipc/http/prometheus_text.h"

namespace troupe::ipc::http {
namespace {

using scheduler::Outcome;

constexpr const char* kPrometheusType = "text/plain; version=0.0.4; charset=utf-8";

// When this server began to serve its models: OpenAI's models have such a time.
std::int64_t start_time() {
  static const std::int64_t time =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  return time;
}

std::string_view readiness_name(actors::Readiness readiness) {
  switch (readiness) {
    case actors::Readiness::loading:
      return "loading";
    case actors::Readiness::ready:
      return "ready";
    case actors::Readiness::draining:
      return "draining";
    case actors::Readiness::failed:
      return "failed";
    case actors::Readiness::on_request:
      return "on-request";
  }
  return "";
}

// Behind the last row one for each alias of its model: clients look for the name that they were given.
void add_aliases(const std::vector<std::string>& aliases, std::vector<api::ListedModel>& all) {
  api::ListedModel row = all.back();
  row.alias_of = row.name;
  row.defaults = {};  // its own row has them
  for (const std::string& each : aliases) all.back().aliases.push_back(valid_utf8(each));
  for (const std::string& each : aliases) {
    row.name = valid_utf8(each);
    all.push_back(row);
  }
}

// All models that the tenant may use: first those that are loaded.
std::vector<api::ListedModel> listed_models(const actors::Gateway& gateway, const scheduler::Tenant& tenant) {
  std::vector<actors::ModelHealth> health = actors::visible_health(gateway, tenant);
  std::vector<api::ListedModel> all;
  for (const actors::ModelDescription& model : actors::visible_models(gateway, tenant)) {
    const auto served = gateway.model(model.name);
    api::ListedModel& row = all.emplace_back();
    row.name = valid_utf8(model.name);
    row.max_context = model.max_context;
    row.vocab_size = model.info.vocab_size;
    row.num_parameters = model.info.num_parameters;
    row.numerics_id = valid_utf8(model.numerics_id);
    row.defaults = model.defaults;
    row.has_chat_template = served && served->chat_template();
    if (row.has_chat_template) row.tool_format = served->tool_form().format->name;
    if (served) row.likely_template = served->likely_chat_template();
    const auto own = std::ranges::find(health, model.name, &actors::ModelHealth::name);
    if (own != health.end()) {
      row.readiness = readiness_name(own->readiness);
      health.erase(own);
    }
    add_aliases(model.aliases, all);
  }
  for (const actors::ModelHealth& each : health) {
    if (each.replacing || each.retiring) continue;  // no request goes there
    api::ListedModel& row = all.emplace_back();
    row.name = valid_utf8(each.name);
    row.readiness = readiness_name(each.readiness);
    row.load_fraction = each.load_fraction;
    row.is_loaded = false;
    add_aliases(each.aliases, all);
  }
  return all;
}

// Text in which %XX stands for a byte; what is no such thing stays as it is.
std::string percent_decoded(std::string_view text) {
  const auto digit = [](char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
  };
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool is_escape = text[i] == '%' && i + 2 < text.size() && digit(text[i + 1]) >= 0 && digit(text[i + 2]) >= 0;
    out += is_escape ? static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2])) : text[i];
    if (is_escape) i += 2;
  }
  return out;
}

// llama-server's: {"status":"ok"} or an error with status 503.
void answer_health(Exchange& exchange) {
  const actors::Gateway& gateway = exchange.gateway();
  const actors::Readiness readiness = gateway.readiness();
  const auto unavailable = [&](scheduler::Refusal why) {
    api::ApiError error = api::api_error(std::move(why));
    error.type = "unavailable_error";
    error.status = 503;
    exchange.respond(error_response(error, api::Dialect::openai));
  };
  if (exchange.is_draining() || readiness == actors::Readiness::draining)
    return unavailable(scheduler::server_drains());
  if (readiness == actors::Readiness::loading)
    return unavailable(
        {.outcome = Outcome::loading,
         .message = fmt::format("Loading model: {} %", static_cast<int>(gateway.load_fraction() * 100))});
  if (readiness == actors::Readiness::failed)
    return unavailable(
        {.outcome = Outcome::internal, .message = "the model could not be loaded; the server's log says why"});
  if (!gateway.is_making_progress())
    return unavailable({.outcome = Outcome::internal, .message = "work waits and none is done (progress-timeout)"});
  exchange.respond({.body = R"({"status":"ok"})"});
}

}  // namespace

Act read_health(Request&&, const ReadContext&) { return answer_health; }

Act read_version(Request&&, const ReadContext&) {
  return [](Exchange& exchange) { exchange.respond({.body = R"({"version":")" TROUPE_VERSION R"("})"}); };
}

Act read_metrics(Request&&, const ReadContext&) {
  return [](Exchange& exchange) {
    if (exchange.is_draining())
      return refuse_with(api::api_error(scheduler::server_drains()), api::Dialect::openai)(exchange);
    exchange.ask_status([reply = exchange.reply_later()](v1::Status status) {
      reply({.content_type = kPrometheusType, .body = prometheus_text(client::to_status(status))});
    });
  };
}

Act read_openapi(Request&&, const ReadContext&) {
  return [](Exchange& exchange) { exchange.respond({.body = api::openapi_document(TROUPE_VERSION)}); };
}

Act read_models(Request&&, const ReadContext&) {
  return [](Exchange& exchange) {
    exchange.respond({.body = api::models_body(listed_models(exchange.gateway(), exchange.tenant()), start_time())});
  };
}

Act read_model(Request&& request, const ReadContext&) {
  constexpr std::string_view kBefore = "/v1/models/";
  return [name = percent_decoded(std::string_view(request.head.path).substr(kBefore.size()))](Exchange& exchange) {
    for (const api::ListedModel& model : listed_models(exchange.gateway(), exchange.tenant()))
      if (model.name == name) return exchange.respond({.body = api::model_body(model, start_time())});
    exchange.respond(error_response(Refusal{.outcome = Outcome::unknown_model,
                                            .message = fmt::format("there is no model {}; GET /v1/models lists them",
                                                                   Printable(name, kMaxModelNameBytes).text()),
                                            .field = "model"},
                                    api::Dialect::openai));
  };
}

}  // namespace troupe::ipc::http
