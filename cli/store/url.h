// Addresses of files on servers: http and https alone, in one spelling, so that what is checked is what is asked.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "config/result.h"

namespace troupe::cli {

inline constexpr std::size_t kMaxUrlBytes = 8192;  // signed addresses of file hosts have some 1,500

struct Url {
  std::string scheme;  // "http" or "https"
  std::string host;    // in small letters; an IPv6 address with its brackets
  std::uint16_t port = 0;
  std::string target;  // path and query, from the first slash on; printable ASCII

  [[nodiscard]] std::string text() const;
  [[nodiscard]] std::string origin() const;  // "https://host:port": who gets what is sent
  [[nodiscard]] bool is_secure() const { return scheme == "https"; }
  // Whether the host is this machine: localhost, 127.0.0.0/8 in four numbers, [::1].
  [[nodiscard]] bool is_loopback() const;
  // The path without the query.
  [[nodiscard]] std::string_view path() const { return std::string_view(target).substr(0, target.find('?')); }

  friend bool operator==(const Url&, const Url&) = default;
};

// A fragment is left out; a space or a byte above ASCII in the target is written as %XX. Error: invalid_argument:
// another scheme, a user or password before the host, control characters, a port or a host that is none, too long.
[[nodiscard]] Result<Url> parse_url(std::string_view text);

// Where a redirect leads: `location` as in RFC 3986, seen from `base`. Error: as parse_url().
[[nodiscard]] Result<Url> resolve_url(const Url& base, std::string_view location);

// Letters, digits and "-._~" stay, so does "/" if `keeps_slashes`; all else becomes %XX.
[[nodiscard]] std::string percent_encoded(std::string_view text, bool keeps_slashes);
// The other way round; a % that begins no two hexadecimal digits stays.
[[nodiscard]] std::string percent_decoded(std::string_view text);

}  // namespace troupe::cli
