#include "ipc/http/page/page.h"

#include <fmt/format.h>

#include "ipc/http/head_rules.h"

namespace troupe::ipc::http {
namespace {

// Entity tags of a list, compared weakly, as RFC 9110 says for GET.
bool has_page(const std::string& if_none_match) {
  return if_none_match == "*" || lists(if_none_match, kPageETag) ||
         lists(if_none_match, fmt::format("W/{}", kPageETag));
}

}  // namespace

std::string page_policy() {
  return fmt::format(
      "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; connect-src 'self'; img-src data:; "
      "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
      "trusted-types 'none'",
      kPageScriptHash, kPageStyleHash);
}

Response page_response(const RequestHead& head) {
  Response response{.content_type = "text/html; charset=utf-8"};
  response.fields = {{"ETag", std::string(kPageETag)},
                     {"Cache-Control", "no-cache"},  // kept, and asked for again each time
                     {"Content-Security-Policy", page_policy()},
                     {"X-Content-Type-Options", "nosniff"},
                     {"Referrer-Policy", "no-referrer"},
                     {"X-Frame-Options", "DENY"},
                     {"Cross-Origin-Opener-Policy", "same-origin"},
                     {"Cross-Origin-Resource-Policy", "same-origin"}};
  const std::string* known = head.find("if-none-match");
  if (known && has_page(*known)) {
    response.status = 304;
    response.content_type.clear();
  } else {
    response.body = page_html();
  }
  return response;
}

}  // namespace troupe::ipc::http
