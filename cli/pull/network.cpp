#include "cli/pull/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <thread>
#include <utility>

#include "cli/version.h"
#include "config/assert.h"
#include "config/printable.h"

namespace troupe::cli {
namespace {

constexpr std::size_t kMaxHeaderBytes = 256 << 10;
constexpr std::size_t kMaxIgnoredBytes = 1 << 20;  // of the bodies of redirects and errors
constexpr std::chrono::milliseconds kLook{100};    // how often stops() is asked
constexpr const char* kInterrupted = "interrupted";

bool is_redirect(long status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

bool may_pass(long status) { return status == 408 || status == 429 || status == 425 || status >= 500; }

bool is_certificate_error(CURLcode code) {
  return code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE || code == CURLE_SSL_ISSUER_ERROR ||
         code == CURLE_SSL_CRL_BADFILE;
}

std::string server_of(const Url& url) { return Printable(url.origin(), 256).text(); }

}  // namespace

Error interrupted() { return {ErrorCode::io, kInterrupted}; }
bool is_interrupted(const Error& error) { return error.message == kInterrupted; }

// One request with its redirects.
class Exchange {
 public:
  Exchange(Network& network, int number, Request request, Receiver& receiver)
      : network_(network), number_(number), request_(std::move(request)), receiver_(receiver), url_(request_.url) {
    easy_ = curl_easy_init();
    TROUPE_ASSERT(easy_ != nullptr);
  }
  ~Exchange() {
    curl_multi_remove_handle(network_.multi_, easy_);
    curl_easy_cleanup(easy_);
    curl_slist_free_all(headers_);
  }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  int number() const { return number_; }
  CURL* easy() const { return easy_; }

  // Asks for the address, unless it did already. Why it may not, if it may not.
  std::optional<Fault> start_once() { return std::exchange(started_, true) ? std::nullopt : start(); }
  // What libcurl's result means; nothing: a redirect goes on.
  std::optional<Network::Ended> complete(CURLcode code);

 private:
  std::optional<Fault> start();
  static std::size_t on_header(char* data, std::size_t size, std::size_t count, void* self);
  static std::size_t on_body(char* data, std::size_t size, std::size_t count, void* self);
  bool take_header(std::string_view line);
  bool take_body(std::span<const std::byte> bytes);
  bool announce();  // the head, once; whether it goes on
  Fault fault_of_status() const;
  Fault fault_of_code(CURLcode code) const;
  Network::Ended failed(Fault fault) const { return {number_, std::move(fault)}; }
  static Fault lasting(Error error) { return {std::move(error), false, {}, 0}; }

  Network& network_;
  const int number_;
  const Request request_;
  Receiver& receiver_;
  Url url_;
  CURL* easy_ = nullptr;
  curl_slist* headers_ = nullptr;
  char error_[CURL_ERROR_SIZE] = {};
  ResponseHead head_;
  std::size_t header_bytes_ = 0, ignored_bytes_ = 0;
  bool announced_ = false;
  bool left_hub_ = false;
  bool started_ = false;
  int redirects_ = 0;
  std::optional<Error> refused_;  // by us, while it came
};

std::optional<Fault> Exchange::start() {
  const NetworkOptions& options = network_.options_;
  if (!url_.is_secure() && !url_.is_loopback() && !options.allow_http)
    return lasting({ErrorCode::permission,
                    fmt::format("{}: is without TLS, so that anyone on the way could change the model; --allow-http "
                                "fetches it all the same",
                                server_of(url_))});
  head_ = {};
  head_.url = url_;
  header_bytes_ = ignored_bytes_ = 0;
  announced_ = false;
  curl_multi_remove_handle(network_.multi_, easy_);
  curl_easy_reset(easy_);
  curl_slist_free_all(std::exchange(headers_, nullptr));
  headers_ = curl_slist_append(headers_, ("Accept: " + request_.accept).c_str());
  if (!options.token.empty() && !left_hub_ && url_.origin() == options.token_for.origin() &&
      (url_.is_secure() || url_.is_loopback()))
    headers_ = curl_slist_append(headers_, ("Authorization: Bearer " + options.token).c_str());
  const std::string agent = fmt::format("troupe/{}", kVersion);
  const auto set = [&](CURLoption option, auto value) {
    const CURLcode done = curl_easy_setopt(easy_, option, value);
    TROUPE_ASSERT(done == CURLE_OK);
  };
  set(CURLOPT_URL, url_.text().c_str());
  set(CURLOPT_HTTPHEADER, headers_);
  set(CURLOPT_ERRORBUFFER, error_);
  set(CURLOPT_USERAGENT, agent.c_str());
  // One transfer a connection: parts of a file come through several.
  set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_FOLLOWLOCATION, 0L);
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_BUFFERSIZE, 256L << 10);
  if (url_.is_loopback()) set(CURLOPT_NOPROXY, "*");  // nothing that is meant for this machine leaves it
  set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(options.timeout.count()));
  set(CURLOPT_LOW_SPEED_LIMIT, 1L);
  set(CURLOPT_LOW_SPEED_TIME, static_cast<long>((options.timeout.count() + 999) / 1000));
  set(CURLOPT_SSL_VERIFYPEER, 1L);
  set(CURLOPT_SSL_VERIFYHOST, 2L);
  if (!options.ca_file.empty()) set(CURLOPT_CAINFO, options.ca_file.c_str());
  std::string range;
  if (request_.range) {
    range = fmt::format("{}-{}", request_.range->begin, request_.range->end - 1);
    set(CURLOPT_RANGE, range.c_str());
  }
  set(CURLOPT_HEADERFUNCTION, &Exchange::on_header);
  set(CURLOPT_HEADERDATA, static_cast<void*>(this));
  set(CURLOPT_WRITEFUNCTION, &Exchange::on_body);
  set(CURLOPT_WRITEDATA, static_cast<void*>(this));
  const CURLMcode added = curl_multi_add_handle(network_.multi_, easy_);
  TROUPE_ASSERT(added == CURLM_OK);
  return std::nullopt;
}

std::size_t Exchange::on_header(char* data, std::size_t size, std::size_t count, void* self) {
  return static_cast<Exchange*>(self)->take_header({data, size * count}) ? size * count : 0;
}

std::size_t Exchange::on_body(char* data, std::size_t size, std::size_t count, void* self) {
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size * count);
  return static_cast<Exchange*>(self)->take_body(bytes) ? bytes.size() : bytes.size() + 1;
}

bool Exchange::take_header(std::string_view line) {
  header_bytes_ += line.size();
  if (header_bytes_ > kMaxHeaderBytes) {
    refused_ = Error{ErrorCode::protocol,
                     fmt::format("{}: its headers have more than {} bytes", server_of(url_), kMaxHeaderBytes)};
    return false;
  }
  if (line.starts_with("HTTP/"))
    head_.fields.clear();  // of an interim answer
  else
    add_field(line, head_.fields);
  return true;
}

bool Exchange::announce() {
  if (announced_) return true;
  announced_ = true;
  curl_easy_getinfo(easy_, CURLINFO_RESPONSE_CODE, &head_.status);
  if (head_.status != 200 && head_.status != 206) return true;
  if (Status taken = receiver_.head(head_); !taken) refused_ = taken.error();
  return !refused_;
}

bool Exchange::take_body(std::span<const std::byte> bytes) {
  if (!announce()) return false;
  if (head_.status != 200 && head_.status != 206) {
    ignored_bytes_ += bytes.size();
    return ignored_bytes_ <= kMaxIgnoredBytes;
  }
  if (Status taken = receiver_.body(bytes); !taken) refused_ = taken.error();
  return !refused_;
}

Fault Exchange::fault_of_status() const {
  const std::string server = server_of(url_);
  const bool had_token = !network_.options_.token.empty() && url_.origin() == network_.options_.token_for.origin();
  if (head_.status == 401 || head_.status == 403) {
    const std::string remedy =
        had_token
            ? fmt::format("the token of {} does not open it; on the hub's page its licence may have to be accepted",
                          network_.options_.token_from)
            : "it is private, gated or not there; a token opens it: --token-file FILE, or $HF_TOKEN";
    return {{ErrorCode::permission, fmt::format("{}: refused with {}: {}", server, head_.status, remedy)},
            false,
            {},
            head_.status};
  }
  if (head_.status == 404 || head_.status == 410)
    return lasting({ErrorCode::model_missing, fmt::format("{}: there is no such model or file ({}): {}", server,
                                                          head_.status, Printable(url_.path(), 256).text())});
  Fault fault{{ErrorCode::io, fmt::format("{}: answered with status {}", server, head_.status)},
              may_pass(head_.status),
              {},
              head_.status};
  if (const auto after = field_of(head_.fields, "retry-after"); !after.empty() && fault.may_pass)
    fault.wait = parse_retry_after(after, static_cast<std::int64_t>(std::time(nullptr)));
  return fault;
}

Fault Exchange::fault_of_code(CURLcode code) const {
  const std::string server = server_of(url_);
  const std::string said = Printable(error_[0] != 0 ? error_ : curl_easy_strerror(code), 256).text();
  if (is_certificate_error(code))
    return lasting(
        {ErrorCode::permission,
         fmt::format("{}: its certificate is not trusted ({}); if the authority that signed it is yours, name "
                     "its certificate: --ca-file FILE, or SSL_CERT_FILE",
                     server, said)});
  if (code == CURLE_OPERATION_TIMEDOUT)
    return {{ErrorCode::io,
             fmt::format("{}: no byte has come for {} s", server,
                         std::chrono::duration_cast<std::chrono::seconds>(network_.options_.timeout).count())},
            true,
            {},
            0};
  if (code == CURLE_PARTIAL_FILE || code == CURLE_RECV_ERROR || code == CURLE_GOT_NOTHING)
    return {
        {ErrorCode::io, fmt::format("{}: the connection ended before all had come ({})", server, said)}, true, {}, 0};
  return {{ErrorCode::io, fmt::format("{}: {}", server, said)}, true, {}, 0};
}

std::optional<Network::Ended> Exchange::complete(CURLcode code) {
  if (refused_) return failed(lasting(*refused_));
  if (code == CURLE_OK) (void)announce();
  if (refused_) return failed(lasting(*refused_));
  if (head_.status == 0) curl_easy_getinfo(easy_, CURLINFO_RESPONSE_CODE, &head_.status);
  // The body of a redirect or an error is nothing that is needed.
  if (head_.status >= 300 && !is_redirect(head_.status)) return failed(fault_of_status());
  if (!is_redirect(head_.status)) {
    if (code != CURLE_OK) return failed(fault_of_code(code));
    if (head_.status != 200 && head_.status != 206) return failed(fault_of_status());
    return Network::Ended{number_, {}};
  }
  const std::string_view location = field_of(head_.fields, "location");
  if (++redirects_ > kMaxRedirects)
    return failed(lasting({ErrorCode::protocol,
                           fmt::format("{}: redirects more than {} times", server_of(request_.url), kMaxRedirects)}));
  auto next = resolve_url(url_, location);
  if (!next || location.empty())
    return failed(lasting({ErrorCode::protocol, fmt::format("{}: redirects to what is no address{}", server_of(url_),
                                                            next ? "" : ": " + next.error().message)}));
  if (url_.is_secure() && !next->is_secure())
    return failed(
        lasting({ErrorCode::permission, fmt::format("{}: redirects to {}, which is without TLS; that is not followed",
                                                    server_of(url_), server_of(*next))}));
  if (next->origin() != url_.origin()) left_hub_ = true;
  url_ = *std::move(next);
  if (auto fault = start()) return failed(*std::move(fault));
  return std::nullopt;
}

Network::Network(NetworkOptions options) : options_(std::move(options)) {
  static const CURLcode ready = curl_global_init(CURL_GLOBAL_DEFAULT);
  TROUPE_ASSERT(ready == CURLE_OK);
  multi_ = curl_multi_init();
  TROUPE_ASSERT(multi_ != nullptr);
}

Network::~Network() {
  running_.clear();
  curl_multi_cleanup(multi_);
}

int Network::begin(const Request& request, Receiver& receiver) {
  running_.push_back(std::make_unique<Exchange>(*this, next_number_++, request, receiver));
  return running_.back()->number();
}

void Network::cancel(int number) {
  std::erase_if(running_, [&](const auto& each) { return each->number() == number; });
}

std::vector<Network::Ended> Network::wait(std::chrono::milliseconds most) {
  std::vector<Ended> ended;
  const auto finish = [&](Ended each) {
    ended.push_back(std::move(each));
    cancel(ended.back().number);
  };
  // What is new is begun here, so that a refusal ends as every other.
  for (std::size_t i = 0; i < running_.size();) {
    Exchange& exchange = *running_[i];
    if (auto fault = exchange.start_once()) {
      finish({exchange.number(), std::move(fault)});
      continue;
    }
    ++i;
  }
  if (!ended.empty()) return ended;
  int num_active = 0;
  curl_multi_perform(multi_, &num_active);
  if (num_active > 0) curl_multi_poll(multi_, nullptr, 0, static_cast<int>(std::min(most, kLook).count()), nullptr);
  curl_multi_perform(multi_, &num_active);
  int left = 0;
  while (const CURLMsg* const message = curl_multi_info_read(multi_, &left)) {
    if (message->msg != CURLMSG_DONE) continue;
    const CURLcode code = message->data.result;
    const auto exchange = std::find_if(running_.begin(), running_.end(),
                                       [&](const auto& each) { return each->easy() == message->easy_handle; });
    TROUPE_ASSERT(exchange != running_.end());
    if (auto done = (*exchange)->complete(code)) finish(*std::move(done));
  }
  return ended;
}

Result<std::chrono::milliseconds> Network::pause_after(const Fault& fault, int failures,
                                                       const std::string& what) const {
  if (!fault.may_pass) return fault.error;
  if (failures > options_.retries)
    return Error{fault.error.code, options_.retries == 0 ? fault.error.message
                                                         : fmt::format("{}; {} attempts failed, one after another",
                                                                       fault.error.message, failures)};
  std::chrono::milliseconds wait = backoff(failures);
  if (fault.wait) {
    if (*fault.wait > kMaxRetryAfter)
      return Error{fault.error.code, fmt::format("{}, and asks to wait for {} s; try again then", fault.error.message,
                                                 fault.wait->count())};
    wait = *fault.wait;
  }
  if (wait >= std::chrono::seconds(1))
    options_.note(fmt::format("{}: {}; again in {} s", what, fault.error.message, (wait.count() + 500) / 1000));
  return wait;
}

Status Network::wait_after(const Fault& fault, int failures, const std::string& what) {
  const auto pause = pause_after(fault, failures, what);
  if (!pause) return pause.error();
  for (const auto end = std::chrono::steady_clock::now() + *pause; std::chrono::steady_clock::now() < end;) {
    if (options_.stops()) return interrupted();
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(kLook, end - std::chrono::steady_clock::now()));
  }
  return Ok{};
}

namespace {

// A body in memory.
class Text final : public Receiver {
 public:
  Text(std::size_t max_bytes, std::string what) : max_bytes_(max_bytes), what_(std::move(what)) {}
  Status head(const ResponseHead& head) override {
    head_ = head;
    return Ok{};
  }
  Status body(std::span<const std::byte> bytes) override {
    if (text_.size() + bytes.size() > max_bytes_)
      return Error{ErrorCode::protocol,
                   fmt::format("{}: {} has more than {} bytes", server_of(head_.url), what_, max_bytes_)};
    text_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return Ok{};
  }
  Network::Document take() { return {std::move(text_), std::move(head_.fields), std::move(head_.url)}; }

 private:
  const std::size_t max_bytes_;
  const std::string what_;
  ResponseHead head_;
  std::string text_;
};

}  // namespace

Result<Network::Document> Network::get(const Request& request, std::size_t max_bytes, const std::string& what) {
  for (int failures = 1;; ++failures) {
    Text text(max_bytes, what);
    const int number = begin(request, text);
    std::vector<Ended> ended;
    while (ended.empty()) {
      if (options_.stops()) {
        cancel(number);
        return interrupted();
      }
      ended = wait(kLook);
    }
    if (!ended.front().fault) return text.take();
    if (Status waited = wait_after(*ended.front().fault, failures, what); !waited) return waited.error();
  }
}

}  // namespace troupe::cli
