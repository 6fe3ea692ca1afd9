#include "ipc/http/head_rules.h"

#include <algorithm>
#include <charconv>
#include <string>

namespace troupe::ipc::http {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_alnum(char c) { return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool equals(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) { return lower(x) == lower(y); });
}

BadRequest bad(std::string message) { return {400, std::move(message)}; }

// Calls `f` with each item of a list "a, b"; empty ones are left out.
template <class F>
void for_each_item(std::string_view list, F f) {
  while (!list.empty()) {
    std::string_view item = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), item.size() + 1));
    while (!item.empty() && (item.front() == ' ' || item.front() == '\t')) item.remove_prefix(1);
    while (!item.empty() && (item.back() == ' ' || item.back() == '\t')) item.remove_suffix(1);
    if (!item.empty()) f(item);
  }
}

// Where the body ends: Content-Length, or chunked, or there is none.
std::optional<BadRequest> read_framing(RequestHead& head) {
  std::size_t lengths = 0, codings = 0;
  for (const Field& field : head.fields) {
    if (field.name == "content-length") {
      const std::string& value = field.value;
      std::uint64_t length = 0;
      const auto [end, wrong] = std::from_chars(value.data(), value.data() + value.size(), length);
      if (wrong != std::errc{} || end != value.data() + value.size() ||
          !std::all_of(value.begin(), value.end(), is_digit))
        return bad("Content-Length is no number");
      head.length = length;
      ++lengths;
    } else if (field.name == "transfer-encoding") {
      if (!equals(field.value, "chunked"))
        return BadRequest{501, "the only transfer coding that this server reads is chunked"};
      ++codings;
    } else if (field.name == "content-encoding" && !equals(field.value, "identity")) {
      return BadRequest{415, "this server reads no compressed bodies; leave Content-Encoding out"};
    }
  }
  if (lengths > 1) return bad("Content-Length is sent twice");
  if (codings > 1) return bad("Transfer-Encoding is sent twice");
  if (lengths + codings > 1) return bad("Content-Length and Transfer-Encoding are sent together");
  if (codings > 0 && !head.is_http11) return bad("HTTP/1.0 has no Transfer-Encoding");
  head.has_body = codings > 0 || head.length.value_or(0) > 0;
  return std::nullopt;
}

std::optional<BadRequest> read_connection(RequestHead& head) {
  bool close = false, keep_alive = false;
  for (const Field& field : head.fields) {
    if (field.name == "connection") {
      close |= lists(field.value, "close");
      keep_alive |= lists(field.value, "keep-alive");
    } else if (field.name == "expect") {
      if (!equals(field.value, "100-continue"))
        return BadRequest{417, "the only expectation that this server knows is 100-continue"};
      head.expects_continue = head.is_http11 && head.has_body;  // HTTP/1.0 has none, and it is ignored there
    }
  }
  head.keep_alive = !close && (head.is_http11 || keep_alive);
  return std::nullopt;
}

std::optional<BadRequest> read_host(RequestHead& head) {
  const auto is_host = [](const Field& field) { return field.name == "host"; };
  const auto hosts = std::count_if(head.fields.begin(), head.fields.end(), is_host);
  if (hosts > 1) return bad("Host is sent twice");
  if (hosts == 0 && head.is_http11) return bad("HTTP/1.1 needs a Host field");
  if (const std::string* host = head.find("host")) head.host = *host;
  if (!is_authority(head.host)) return bad("Host is not a name or address with an optional port");
  return std::nullopt;
}

// "/path?query", "http://host/path?query", or "*" for OPTIONS (RFC 9112, section 3.2).
std::optional<BadRequest> read_target(RequestHead& head) {
  constexpr std::string_view kScheme = "http://";
  std::string_view target = head.target;
  if (!std::all_of(target.begin(), target.end(), [](char c) { return c > 0x20 && c < 0x7f && c != '#'; }))
    return bad("the request target has a character that must be written as %XX");
  if (target.size() > kScheme.size() && equals(target.substr(0, kScheme.size()), kScheme)) {
    target.remove_prefix(kScheme.size());
    const std::string_view authority = target.substr(0, target.find_first_of("/?"));
    if (authority.empty() || !is_authority(authority)) return bad("the request target names no host");
    head.host = authority;  // it counts, and Host does not
    target.remove_prefix(authority.size());
    if (target.empty()) target = head.method == "OPTIONS" ? "*" : "/";
  }
  if (target == "*" && head.method == "OPTIONS") {
    head.path = target;
    return std::nullopt;
  }
  if (target.front() != '/') return bad("the request target is no path; it begins with /");
  const std::size_t mark = target.find('?');
  head.path = target.substr(0, mark);
  if (mark != std::string_view::npos) head.query = target.substr(mark + 1);
  return std::nullopt;
}

}  // namespace

std::optional<BadRequest> check_lines(std::string_view head, std::size_t from) {
  for (std::size_t i = from; i < head.size(); ++i) {
    const char c = head[i];
    if (c == '\0') return bad("the request's head has a zero byte");
    if (c == '\n' && (i == 0 || head[i - 1] != '\r')) return bad("a line of the request's head ends in a bare LF");
    if (c == '\r' && i + 1 < head.size() && head[i + 1] != '\n')
      return bad("a line of the request's head has a bare CR");
    if (c == '\n' && i + 1 < head.size() && (head[i + 1] == ' ' || head[i + 1] == '\t'))
      return bad("a header field is folded onto a second line");
  }
  return std::nullopt;
}

std::optional<BadRequest> check_request_line(std::string_view head) {
  const std::string_view line = head.substr(0, head.find("\r\n"));
  const std::size_t first = line.find(' '), last = line.rfind(' ');
  if (first == std::string_view::npos || first == last) return bad("the request line is not METHOD TARGET HTTP/1.1");
  if (last - first - 1 > kMaxTargetBytes)
    return BadRequest{414, "the request target has more than " + std::to_string(kMaxTargetBytes) + " bytes"};
  const std::string_view version = line.substr(last + 1);
  if (version == "HTTP/1.1" || version == "HTTP/1.0") return std::nullopt;
  if (version.size() == 8 && version.starts_with("HTTP/") && is_digit(version[5]) && version[6] == '.' &&
      is_digit(version[7]))
    return BadRequest{505, "this server speaks HTTP/1.1 and HTTP/1.0"};
  return bad("the request line does not end in an HTTP version");
}

std::optional<BadRequest> finish_head(RequestHead& head) {
  if (head.fields.size() > kMaxFields)
    return BadRequest{431, "the request has more than " + std::to_string(kMaxFields) + " header fields"};
  if (auto wrong = read_framing(head)) return wrong;
  if (auto wrong = read_connection(head)) return wrong;
  if (auto wrong = read_host(head)) return wrong;
  return read_target(head);
}

bool is_authority(std::string_view text) {
  if (text.empty()) return true;
  std::size_t end = 0;
  if (text.front() == '[') {
    end = text.find(']');
    if (end == std::string_view::npos || end == 1) return false;
    const std::string_view address = text.substr(1, end - 1);
    if (!std::all_of(address.begin(), address.end(), [](char c) { return is_alnum(c) || c == ':' || c == '.'; }))
      return false;
    ++end;
  } else {
    end = std::min(text.size(), text.find(':'));
    const std::string_view name = text.substr(0, end);
    const auto is_name = [](char c) { return is_alnum(c) || c == '-' || c == '.' || c == '_'; };
    if (name.empty() || !std::all_of(name.begin(), name.end(), is_name)) return false;
  }
  const std::string_view port = text.substr(end);
  return port.empty() ||
         (port.front() == ':' && port.size() <= 6 && std::all_of(port.begin() + 1, port.end(), is_digit));
}

bool lists(std::string_view list, std::string_view token) {
  bool found = false;
  for_each_item(list, [&](std::string_view item) { found |= equals(item, token); });
  return found;
}

}  // namespace troupe::ipc::http
