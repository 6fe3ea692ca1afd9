// Models that a tenant's rule does not name: for it there are none, whatever it asks.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "ipc/connection.h"
#include "ipc/frames/status_frame.h"
#include "tests/ipc/fixture.h"
#include "tests/ipc/http/http_client.h"

namespace troupe::ipc {
namespace {

using http::test::HttpClient;
using http::test::HttpResponse;
using test::FakeServer;
using test::RawClient;

// A proxy that acts for the tenants "lab", which may use what begins with "oth", and "all".
ServerOptions with_rules() {
  const auto policy = [](const char* name, std::vector<std::string> models = {}) {
    return std::make_shared<const scheduler::TenantPolicy>(
        scheduler::TenantPolicy{.name = name, .models = std::move(models)});
  };
  ServerOptions options;
  options.tenants = TenantRules({{.uids = {::geteuid()}, .trusted_proxy = true, .policy = policy("proxy")},
                                 {.uids = {61001}, .policy = policy("lab", {"oth*"})},
                                 {.uids = {61002}, .policy = policy("all")}});
  return options;
}

// "fake", which is loaded, and "other".
void add_models(FakeServer& server) {
  server.gateway.aliases = {"first"};
  server.gateway.not_loaded = {{.name = "other", .aliases = {"second"}, .readiness = actors::Readiness::loading}};
}

v1::ServerFrame welcome_of(RawClient& client, const std::string& tenant) {
  v1::ClientFrame hello;
  hello.mutable_hello()->set_protocol(1);
  hello.mutable_hello()->set_tenant(tenant);
  REQUIRE(client.send(hello));
  return client.expect();
}

TEST_CASE("frames list the models that a tenant may use") {
  FakeServer server(with_rules());
  add_models(server);
  const auto listed_to = [&](const std::string& tenant) {
    RawClient client(server.path());
    const v1::ServerFrame welcome = welcome_of(client, tenant);
    std::string names;
    const auto add = [&](const auto& models) {
      for (const auto& each : models) names += each.name() + " ";
      names += "| ";
    };
    add(welcome.welcome().health().models());
    v1::ClientFrame question;
    question.mutable_health()->set_stream(1);
    REQUIRE(client.send(question));
    add(client.expect().health().models());
    question.mutable_models()->set_stream(2);
    REQUIRE(client.send(question));
    const v1::ServerFrame models = client.expect();
    add(models.models().models());
    add(models.models().health());
    return names;
  };
  CHECK(listed_to("lab") == "other | other | | other | ");
  CHECK(listed_to("all") == "fake other | fake other | fake | fake other | ");
  CHECK(listed_to("") == "fake other | fake other | fake | fake other | ");
}

TEST_CASE("a status has the models and metrics that a tenant may use") {
  actors::StatusSnapshot status;
  status.model = status.first_model = "fake";
  status.numerics_id = "n1";
  status.models.resize(2);
  status.models[0].health.name = "fake";
  status.models[1].health.name = "other";
  for (const char* model : {"fake", "other"})
    status.metrics.gauge("model_ready", "1 if so.", 1, {.labels = {{"model", model}}, .for_guests = true});
  const TenantRules rules = with_rules().tenants;
  const auto shown_to = [&](const scheduler::Tenant& tenant) {
    const v1::ServerFrame frame = status_frame(1, status, {.tenant = tenant});
    std::string shown = frame.status().model() + frame.status().first_model() + frame.status().numerics_id() + " ";
    for (const auto& each : frame.status().models()) shown += each.name() + " ";
    for (const auto& each : frame.status().health().models()) shown += each.name() + " ";
    for (const auto& metric : frame.status().metrics())
      if (metric.name() == "model_ready") shown += metric.labels(0).value() + " ";
    return shown;
  };
  CHECK(shown_to(*rules.find("lab")) == " other other other ");
  CHECK(shown_to(*rules.find("all")) == "fakefaken1 fake other fake other fake other ");
}

TEST_CASE("HTTP lists the models that a tenant may use, and the others are not there") {
  ServerOptions options = with_rules();
  FakeServer server(std::move(options));
  add_models(server);
  const auto get = [&](const std::string& path, const std::string& tenant) {
    HttpClient client(server.path());
    client.send("GET " + path + " HTTP/1.1\r\nHost: localhost\r\nTroupe-Tenant: " + tenant + "\r\n\r\n");
    return client.expect();
  };
  const auto has = [](const HttpResponse& answer, const std::string& text) {
    return answer.body.find('"' + text + '"') != std::string::npos;
  };
  const HttpResponse lab = get("/v1/models", "lab"), all = get("/v1/models", "all");
  CHECK_FALSE(has(lab, "fake"));
  CHECK_FALSE(has(lab, "first"));
  CHECK(has(lab, "other"));
  CHECK(has(lab, "second"));
  CHECK(has(all, "fake"));
  CHECK(has(all, "other"));
  CHECK(get("/v1/models/fake", "all").status == 200);
  CHECK(get("/v1/models/other", "lab").status == 200);
  const HttpResponse hidden = get("/v1/models/fake", "lab"), unknown = get("/v1/models/none", "lab");
  CHECK(hidden.status == 404);
  std::string as_unknown = hidden.body;
  as_unknown.replace(as_unknown.find("fake"), 4, "none");
  CHECK(as_unknown == unknown.body);
}

TEST_CASE("a tenant's groups are compared with the one that the server runs as") {
  const scheduler::Tenant member = tenant_of({}, {.uid = 61001, .gids = {61001, ::getegid()}});
  CHECK(member.in_owner_group);
  CHECK_FALSE(tenant_of({}, {.uid = 61001, .gids = {61001}}).in_owner_group);
  CHECK_FALSE(tenant_of({}, {.uid = 0, .has_uid = false, .gids = {::getegid()}}).in_owner_group);
}

}  // namespace
}  // namespace troupe::ipc
