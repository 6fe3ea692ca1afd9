// One line adds a counter to the status, its JSON, Prometheus' text and the client library.
#include <catch2/catch.hpp>

#include "cli/status/status_report.h"
#include "ipc/http/prometheus_text.h"
#include "tests/cli/prometheus_text.h"
#include "tests/ipc/real_server.h"

namespace troupe::cli {
namespace {

using Catch::Contains;

// A part of a server that counts something.
struct Kettle {
  std::uint64_t boiled = 0;
  void append_metrics(MetricList& metrics) const { metrics.counter("kettles_boiled", "Kettles that boiled.", boiled); }
};

TEST_CASE("a counter is one line where it is counted; status, JSON, Prometheus and the client have it by themselves") {
  const Kettle kettle{.boiled = 42};
  actors::GatewayOptions options = ipc::test::embedded_model();
  options.append_metrics = [&](MetricList& metrics) { kettle.append_metrics(metrics); };
  ipc::test::RealServer server(std::move(options));
  const auto status = server.connect()->status();
  REQUIRE(status);
  CHECK(status->count("kettles_boiled") == 42);
  const Metric* const metric = status->metrics.find("kettles_boiled");
  REQUIRE(metric);
  CHECK(metric->kind == MetricKind::counter);
  CHECK(metric->help == "Kettles that boiled.");

  const nlohmann::ordered_json report = status_json(*status, {});
  CHECK(report["kettles_boiled"] == 42);
  CHECK(report["kettles_boiled"].is_number_integer());
  CHECK(report["metrics"].dump().find(
            R"({"name":"kettles_boiled","kind":"counter","help":"Kettles that boiled.","labels":{},"value":42})") !=
        std::string::npos);
  CHECK_THAT(status_text(*status, /*verbose=*/true),
             Contains("kettles_boiled") && Contains("42  Kettles that boiled.\n"));
  CHECK_THAT(status_text(*status, /*verbose=*/false), !Contains("kettles_boiled"));

  const test::PrometheusText text(ipc::http::prometheus_text(*status));
  CHECK(text.families.at("troupe:kettles_boiled_total").help == "Kettles that boiled.");
  CHECK(text.value("troupe:kettles_boiled_total", {{"model_name", status->model}}) == 42);
}

}  // namespace
}  // namespace troupe::cli
