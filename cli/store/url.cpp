#include "cli/store/url.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "config/printable.h"

namespace troupe::cli {
namespace {

Error bad_url(std::string_view text, const std::string& why) {
  return {ErrorCode::invalid_argument, fmt::format("'{}' is no address: {}", Printable(text, 256).text(), why)};
}

bool is_alphanumeric(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

std::string small_letters(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

bool is_host(std::string_view host) {
  if (host.size() > 253 || host.empty()) return false;
  if (host.front() == '[')
    return host.size() > 2 && host.back() == ']' &&
           host.substr(1, host.size() - 2).find_first_not_of("0123456789abcdef:.") == std::string_view::npos;
  return std::all_of(host.begin(), host.end(), [](char c) { return is_alphanumeric(c) || c == '-' || c == '.'; }) &&
         is_alphanumeric(host.front());
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

std::string target_of(std::string_view rest) {
  std::string out;
  if (rest.empty() || rest.front() != '/') out = "/";
  for (const char c : rest) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte <= 0x20 || byte >= 0x7f)
      out += fmt::format("%{:02X}", byte);
    else
      out += c;
  }
  return out;
}

}  // namespace

std::string Url::text() const { return origin() + target; }

std::string Url::origin() const {
  const bool is_usual = port == (is_secure() ? 443 : 80);
  return is_usual ? fmt::format("{}://{}", scheme, host) : fmt::format("{}://{}:{}", scheme, host, port);
}

bool Url::is_loopback() const {
  if (host == "localhost" || host == "[::1]") return true;
  std::size_t begin = 0;
  for (int part = 0; part < 4; ++part) {
    const std::size_t end = part == 3 ? host.size() : host.find('.', begin);
    if (end == std::string::npos) return false;
    const std::string_view digits = std::string_view(host).substr(begin, end - begin);
    int number = -1;
    const auto [last, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (error != std::errc() || last != digits.data() + digits.size() || number < 0 || number > 255) return false;
    if (digits.size() > 1 && digits.front() == '0') return false;  // some programs read it as octal
    if (part == 0 && number != 127) return false;
    begin = end + 1;
  }
  return true;
}

Result<Url> parse_url(std::string_view text) {
  if (text.size() > kMaxUrlBytes) return bad_url(text, fmt::format("it has more than {} bytes", kMaxUrlBytes));
  if (std::any_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }))
    return bad_url(text, "it has control characters");
  const std::size_t colon = text.find("://");
  if (colon == std::string_view::npos) return bad_url(text, "it does not begin with https://");
  Url url;
  url.scheme = small_letters(text.substr(0, colon));
  if (url.scheme != "http" && url.scheme != "https")
    return bad_url(text, fmt::format("troupe fetches https, and nothing by {}", Printable(url.scheme).text()));
  std::string_view rest = text.substr(colon + 3);
  rest = rest.substr(0, rest.find('#'));
  const std::size_t end = std::min(rest.find_first_of("/?\\"), rest.size());
  std::string_view authority = rest.substr(0, end);
  if (end < rest.size() && rest[end] == '\\') return bad_url(text, "it has a backslash behind its host");
  if (authority.find('@') != std::string_view::npos)
    return bad_url(text, "it names a user; a token belongs into a file (--token-file)");
  url.port = url.is_secure() ? 443 : 80;
  const std::size_t bracket = authority.rfind(']');
  const std::size_t port_at = authority.find(':', bracket == std::string_view::npos ? 0 : bracket);
  if (port_at != std::string_view::npos) {
    const std::string_view digits = authority.substr(port_at + 1);
    unsigned port = 0;
    const auto [last, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
    if (error != std::errc() || last != digits.data() + digits.size() || port == 0 || port > 65535)
      return bad_url(text, fmt::format("'{}' is no port", Printable(digits).text()));
    url.port = static_cast<std::uint16_t>(port);
    authority = authority.substr(0, port_at);
  }
  url.host = small_letters(authority);
  if (!is_host(url.host)) return bad_url(text, fmt::format("'{}' is no host", Printable(authority).text()));
  url.target = target_of(rest.substr(end));
  if (url.target.size() > kMaxUrlBytes - 512)  // with its host at most kMaxUrlBytes
    return bad_url(text, fmt::format("it has more than {} bytes", kMaxUrlBytes));
  return url;
}

Result<Url> resolve_url(const Url& base, std::string_view location) {
  if (location.find("://") != std::string_view::npos && location.find("://") < location.find_first_of("/?#"))
    return parse_url(location);
  if (location.starts_with("//")) return parse_url(fmt::format("{}:{}", base.scheme, location));
  const std::size_t colon = location.find(':');
  if (colon != std::string_view::npos && colon < location.find_first_of("/?#"))
    return bad_url(location, "it is none of https");
  std::string target;
  if (location.starts_with('/'))
    target = location;
  else if (location.empty() || location.starts_with('?') || location.starts_with('#'))
    target = std::string(base.path()) + std::string(location);
  else
    target = std::string(base.path().substr(0, base.path().rfind('/') + 1)) + std::string(location);
  return parse_url(base.origin() + target);
}

std::string percent_encoded(std::string_view text, bool keeps_slashes) {
  std::string out;
  for (const char c : text) {
    if (is_alphanumeric(c) || c == '-' || c == '.' || c == '_' || c == '~' || (c == '/' && keeps_slashes))
      out += c;
    else
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

std::string percent_decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const int high = text[i] == '%' && i + 2 < text.size() ? hex_digit(text[i + 1]) : -1;
    const int low = high >= 0 ? hex_digit(text[i + 2]) : -1;
    if (low < 0) {
      out += text[i];
      continue;
    }
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return out;
}

}  // namespace troupe::cli
