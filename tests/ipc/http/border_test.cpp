// Which requests of browsers are let in over TCP.
#include <catch2/catch.hpp>

#include "ipc/http/border.h"

using namespace troupe::ipc::http;

namespace {

RequestHead asking(const std::string& host, const std::string& origin = {}, const std::string& method = "POST") {
  RequestHead head;
  head.method = method;
  head.host = host;
  if (!origin.empty()) head.fields.push_back({"origin", origin});
  return head;
}

std::string value_of(const std::vector<Field>& fields, const std::string& name) {
  for (const Field& field : fields)
    if (field.name == name) return field.value;
  return {};
}

}  // namespace

TEST_CASE("a name that is not this machine's is refused: it may lead here by DNS rebinding") {
  const BorderRules rules{.allow_hosts = {"my.box"}};
  for (const char* host :
       {"localhost", "LOCALHOST:8080", "127.0.0.1", "127.0.0.1:1", "[::1]", "[::1]:80", "My.Box:443"})
    CHECK_FALSE(check_host(asking(host), rules));
  for (const char* host :
       {"", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "[::2]", "127.0.0.2"}) {
    INFO(host);
    const auto refused = check_host(asking(host), rules);
    REQUIRE(refused);
    CHECK(refused->status == 421);
  }
}

TEST_CASE("a page of another origin is refused unless it is listed") {
  CHECK_FALSE(check_origin(asking("localhost:80"), {}));  // no browser, or a page of ours that sends no Origin
  CHECK_FALSE(check_origin(asking("localhost:80", "http://localhost:80"), {}));
  for (const char* origin :
       {"http://evil.example", "http://localhost:81", "null", "http://localhost:80.evil.example"}) {
    INFO(origin);
    const auto refused = check_origin(asking("localhost:80", origin), {});
    REQUIRE(refused);
    CHECK(refused->status == 403);
  }
  const BorderRules rules{.cors_origins = {"https://app.example"}};
  CHECK_FALSE(check_origin(asking("localhost", "https://app.example"), rules));
  CHECK(check_origin(asking("localhost", "https://app.example.evil"), rules));
  CHECK_FALSE(check_origin(asking("localhost", "https://any"), {.cors_origins = {"*"}}));
}

TEST_CASE("the fields of CORS are sent only where an origin is listed") {
  CHECK(cors_fields(asking("localhost", "https://app.example"), {}).empty());
  const BorderRules rules{.cors_origins = {"https://app.example"}};
  CHECK(value_of(cors_fields(asking("localhost", "https://app.example"), rules), "Access-Control-Allow-Origin") ==
        "https://app.example");
  CHECK(value_of(cors_fields(asking("localhost", "https://app.example"), rules), "Access-Control-Expose-Headers") ==
        "Retry-After, retry-after-ms, x-should-retry, X-Request-Id, x-troupe-ignored");
  CHECK(value_of(cors_fields(asking("localhost", "https://other"), rules), "Access-Control-Allow-Origin").empty());
  CHECK(value_of(cors_fields(asking("localhost"), rules), "Vary") == "Origin");
  RequestHead preflight = asking("localhost", "https://app.example", "OPTIONS");
  preflight.fields.push_back({"access-control-request-headers", "authorization"});
  CHECK(value_of(cors_fields(preflight, rules), "Access-Control-Allow-Headers") == "authorization");
  CHECK(value_of(cors_fields(preflight, rules), "Access-Control-Allow-Methods") == "GET, POST, OPTIONS");
}

TEST_CASE("an origin to list is a scheme and a host, or a star") {
  for (const char* origin : {"*", "https://app.example", "http://localhost:3000", "http://[::1]:80"})
    CHECK(is_origin(origin));
  for (const char* origin : {"", "app.example", "https://", "https://a/b", "https://A", "null", "://a"}) {
    INFO(origin);
    CHECK_FALSE(is_origin(origin));
  }
}
