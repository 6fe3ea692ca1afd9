// GET by libcurl: several at once on one thread, redirects and what they may lead to, failures and which of them pass.
//
// The token goes to the hub alone: to its scheme, host and port, and never again once a redirect has led elsewhere. No
// redirect leads from https to http; http is for this machine, or with --allow-http.
#pragma once

#include <curl/curl.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/pull/http_fields.h"
#include "cli/store/byte_ranges.h"
#include "cli/store/url.h"
#include "config/result.h"

namespace troupe::cli {

inline constexpr int kMaxRedirects = 10;
// The longest that a server may have us wait: more than this is told, and not waited for.
inline constexpr std::chrono::seconds kMaxRetryAfter{600};

struct NetworkOptions {
  std::string token{};       // empty: none
  Url token_for{};           // whose origin gets it
  std::string token_from{};  // where it was found, for messages
  std::string ca_file{};     // empty: the system's
  bool allow_http = false;
  std::chrono::milliseconds timeout{60'000};
  int retries = 8;
  // Asked often; true ends what runs: Ctrl-C.
  std::function<bool()> stops = [] { return false; };
  // A line for the user: what is waited for.
  std::function<void(const std::string&)> note = [](const std::string&) {};
};

struct ResponseHead {
  long status = 0;
  HttpFields fields;
  Url url;  // the last one, behind redirects
};

// Why a request failed. Some pass: a cut connection, a server that has no time.
struct Fault {
  Error error;
  bool may_pass = false;
  std::optional<std::chrono::seconds> wait{};  // as the server says
  long status = 0;                             // of the answer, if that is why
};

// Takes what comes. An error ends the request with it; it does not pass.
class Receiver {
 public:
  virtual ~Receiver() = default;
  // Of a status 200 or 206, before the body.
  [[nodiscard]] virtual Status head(const ResponseHead& head) = 0;
  [[nodiscard]] virtual Status body(std::span<const std::byte> bytes) = 0;
};

struct Request {
  Url url;
  std::string accept = "*/*";
  std::optional<ByteRange> range{};
};

class Exchange;

// One per process and thread. Requests end in wait(), in any order.
class Network {
 public:
  explicit Network(NetworkOptions options);
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  [[nodiscard]] const NetworkOptions& options() const { return options_; }

  // Begins it; `receiver` lives until it has ended. Its number.
  [[nodiscard]] int begin(const Request& request, Receiver& receiver);
  void cancel(int number);
  [[nodiscard]] std::size_t num_running() const { return running_.size(); }

  struct Ended {
    int number = 0;
    std::optional<Fault> fault{};  // none: the whole body has come
  };
  // Moves bytes for at most this long; returns earlier when a request ends.
  [[nodiscard]] std::vector<Ended> wait(std::chrono::milliseconds most);

  struct Document {
    std::string text;
    HttpFields fields;
    Url url;
  };
  // A whole body of at most max_bytes, asked for again after failures that may pass. what: "the list of files".
  [[nodiscard]] Result<Document> get(const Request& request, std::size_t max_bytes, const std::string& what);

  // How long to wait before another attempt, as the fault or backoff() says. Error: the fault's, when there were more
  // than options().retries, when the server has us wait for too long, or it does not pass.
  [[nodiscard]] Result<std::chrono::milliseconds> pause_after(const Fault& fault, int failures,
                                                              const std::string& what) const;
  // Waits for that long. Error: also interrupted().
  [[nodiscard]] Status wait_after(const Fault& fault, int failures, const std::string& what);

 private:
  friend class Exchange;
  NetworkOptions options_;
  CURLM* multi_ = nullptr;
  std::vector<std::unique_ptr<Exchange>> running_;
  int next_number_ = 1;
};

// The error of what Ctrl-C ended.
[[nodiscard]] Error interrupted();
[[nodiscard]] bool is_interrupted(const Error& error);

}  // namespace troupe::cli
