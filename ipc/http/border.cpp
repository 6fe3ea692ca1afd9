#include "ipc/http/border.h"

#include <algorithm>

#include "ipc/http/head_rules.h"

namespace troupe::ipc::http {
namespace {

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return lower;
}

// "localhost:8080" -> "localhost", "[::1]:80" -> "[::1]".
std::string name_of(std::string_view authority) {
  const std::size_t bracket = authority.find(']');
  const std::size_t colon = authority.find(':', bracket == std::string_view::npos ? 0 : bracket);
  return lower_case(authority.substr(0, colon));
}

bool is_listed(const std::string& origin, const BorderRules& rules) {
  return std::any_of(rules.cors_origins.begin(), rules.cors_origins.end(),
                     [&](const std::string& each) { return each == "*" || each == origin; });
}

}  // namespace

std::optional<BadRequest> check_host(const RequestHead& head, const BorderRules& rules) {
  if (head.host.empty() && !head.is_http11) return std::nullopt;
  const std::string name = name_of(head.host);
  if (name == "localhost" || name == "127.0.0.1" || name == "[::1]") return std::nullopt;
  if (std::find(rules.allow_hosts.begin(), rules.allow_hosts.end(), name) != rules.allow_hosts.end())
    return std::nullopt;
  return BadRequest{421, "this server does not answer for that Host; its owner lists names with --allow-host"};
}

std::optional<BadRequest> check_origin(const RequestHead& head, const BorderRules& rules) {
  const std::string* origin = head.find("origin");
  if (!origin || is_listed(*origin, rules)) return std::nullopt;
  if (*origin == "http://" + head.host || *origin == "https://" + head.host) return std::nullopt;
  return BadRequest{403, "pages of this origin may not use this server; its owner lists origins with --cors-origin"};
}

std::vector<Field> cors_fields(const RequestHead& head, const BorderRules& rules) {
  if (rules.cors_origins.empty()) return {};
  std::vector<Field> fields{{"Vary", "Origin"}};
  const std::string* origin = head.find("origin");
  if (!origin || !is_listed(*origin, rules)) return fields;
  fields.push_back({"Access-Control-Allow-Origin", *origin});
  fields.push_back(
      {"Access-Control-Expose-Headers", "Retry-After, retry-after-ms, x-should-retry, X-Request-Id, x-troupe-ignored"});
  if (head.method != "OPTIONS") return fields;
  fields.push_back({"Access-Control-Allow-Methods", "GET, POST, OPTIONS"});
  if (const std::string* asked = head.find("access-control-request-headers"))
    fields.push_back({"Access-Control-Allow-Headers", *asked});
  fields.push_back({"Access-Control-Max-Age", "600"});
  return fields;
}

std::optional<std::string> host_name(std::string_view text) {
  if (text.empty() || !is_authority(text) || name_of(text).size() != text.size()) return std::nullopt;
  return lower_case(text);
}

bool is_origin(std::string_view text) {
  if (text == "*") return true;
  const std::size_t mark = text.find("://");
  if (mark == std::string_view::npos || mark == 0) return false;
  const auto is_scheme = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '+';
  };
  const std::string_view authority = text.substr(mark + 3);
  return std::all_of(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(mark), is_scheme) && !authority.empty() &&
         is_authority(authority) && authority == lower_case(authority);
}

}  // namespace troupe::ipc::http
