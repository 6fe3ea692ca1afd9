#include "bench/load/drivers/openai_driver.h"

#include <fmt/format.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <queue>
#include <unordered_map>
#include <vector>

#include "bench/load/drivers/openai_http.h"
#include "bench/load/drivers/openai_stream.h"
#include "bench/load/drivers/pacer.h"
#include "bench/load/drivers/shut_out.h"
#include "config/assert.h"
#include "config/sampling/sampling_numbers.h"

namespace troupe::load {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMaxErrorBytes = 64u << 10;
constexpr std::size_t kMaxHeaderBytes = 64u << 10;
constexpr int kStopCheck_ms = 100;  // `stop` is checked at least this often
constexpr double kFirstBackoff_s = 0.5;

class OpenAiDriver;

// One request and its HTTP transfer. Its callbacks run on the driver's thread.
struct Transfer {
  OpenAiDriver* driver = nullptr;
  PlannedRequest request{};
  Due due{};
  RequestRecord record{};
  std::string body{};
  CurlHandle handle{};
  char error[CURL_ERROR_SIZE] = {};

  // Of the current attempt.
  std::unique_ptr<EventParser> events{};
  std::unique_ptr<CompletionReader> reader{};
  std::uint64_t read_round = 0;  // the last in which bytes came
  double read_s = 0;             // when that was
  long status = 0;
  std::string error_body{};
  std::string too_much{};  // the limit that the server has exceeded
  std::optional<double> retry_after{};
  std::size_t header_bytes = 0, answer_bytes = 0;
  bool done_seen = false;
  bool paused = false;
  bool hang_up = false;  // its fault is due: break off the transfer
};

// Wakes a poll at a given time, to the microsecond; poll's own timeout is in milliseconds, which would show in the send
// lag.
class Alarm {
 public:
  Alarm() : fd_(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)) { TROUPE_ASSERT(fd_ >= 0); }
  ~Alarm() { ::close(fd_); }
  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;

  int fd() const { return fd_; }
  void set(double in_s) const {
    const double wait_s = std::clamp(in_s, 1e-6, 3600.0);
    itimerspec spec{};
    spec.it_value.tv_sec = static_cast<time_t>(wait_s);
    spec.it_value.tv_nsec = static_cast<long>(1e9 * (wait_s - std::floor(wait_s)));
    ::timerfd_settime(fd_, 0, &spec, nullptr);
  }

 private:
  int fd_;
};

class OpenAiDriver {
 public:
  OpenAiDriver(const Plan& plan, const OpenAiServer& server, const OpenAiOptions& options)
      : plan_(plan), server_(server), options_(options), pacer_(plan), headers_(make_headers(server.target)) {
    init_curl();
    multi_.reset(curl_multi_init());
    TROUPE_ASSERT(multi_);
    curl_multi_setopt(multi_.get(), CURLMOPT_MAXCONNECTS, 4096L);  // keeps idle connections for up to 4096 clients
  }
  ~OpenAiDriver() {
    for (const auto& [index, transfer] : live_) curl_multi_remove_handle(multi_.get(), transfer->handle.get());
  }

  Run run();

 private:
  enum class Act : std::uint8_t { hang_up, resume, retry };
  struct Timed {
    double at_s;
    Act act;
    std::uint64_t index;
    bool operator>(const Timed& other) const { return at_s > other.at_s; }
  };

  static std::size_t on_header(char* bytes, std::size_t, std::size_t size, void* transfer);
  static std::size_t on_body(char* bytes, std::size_t, std::size_t size, void* transfer);
  bool take(Transfer& transfer, std::string_view bytes);
  bool read_event(Transfer& transfer, std::string_view data);
  bool pause_here(Transfer& transfer);

  void begin(const Due& due);
  void transmit(Transfer& transfer);
  void act_due(double now);
  void wait();
  void take_ends();
  void on_end(std::uint64_t index, CURLcode code);
  void settle(Transfer& transfer, CURLcode code) const;
  bool retry_later(Transfer& transfer);
  void finish(std::uint64_t index);
  void stop_early();

  double now_s() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  const Plan& plan_;
  const OpenAiServer& server_;
  const OpenAiOptions& options_;
  Pacer pacer_;
  ShutOut shut_out_;
  CurlHeaders headers_;
  CurlMulti multi_;
  Alarm alarm_;
  Clock::time_point start_{};
  std::unordered_map<std::uint64_t, std::unique_ptr<Transfer>> live_;  // by index
  std::vector<CurlHandle> idle_;                                       // handles for reuse
  std::priority_queue<Timed, std::vector<Timed>, std::greater<>> timed_;
  std::uint64_t round_ = 0;  // of reading
  bool stopped_ = false;
  std::vector<RequestRecord> over_;
};

bool hangs_up(Fault fault) { return fault == Fault::cancel || fault == Fault::disconnect; }

Run OpenAiDriver::run() {
  const double cpu_before = cpu_seconds();
  start_ = Clock::now();
  while (!pacer_.exhausted() || !live_.empty()) {
    if (options_.stop && *options_.stop && !stopped_) stop_early();
    while (const auto due = pacer_.next(now_s())) begin(*due);
    act_due(now_s());
    if (live_.empty() && pacer_.exhausted()) break;
    wait();
    take_ends();
  }
  Run run;
  run.own_cpu_seconds = cpu_seconds() - cpu_before;
  std::sort(over_.begin(), over_.end(), [](const auto& a, const auto& b) { return a.index < b.index; });
  run.records = std::move(over_);
  run.shut_out = shut_out_.after_run();
  run.interrupted = run.shut_out.has_value();
  measure_span(run);
  return run;
}

void OpenAiDriver::begin(const Due& due) {
  auto transfer = std::make_unique<Transfer>();
  transfer->driver = this;
  transfer->request = plan_.request(due.index);
  transfer->due = due;
  transfer->body = completion_body(transfer->request, server_);
  transfer->record = begin_record(due, transfer->request);
  transfer->record.sent_s = now_s();
  transmit(*transfer);
  live_.emplace(due.index, std::move(transfer));
}

void OpenAiDriver::transmit(Transfer& transfer) {
  transfer.events = std::make_unique<EventParser>(options_.max_event_bytes);
  transfer.reader = std::make_unique<CompletionReader>(transfer.record);
  transfer.status = 0;
  transfer.error_body.clear();
  transfer.retry_after.reset();
  transfer.header_bytes = transfer.answer_bytes = 0;
  if (idle_.empty()) idle_.emplace_back(curl_easy_init());
  transfer.handle = std::move(idle_.back());
  idle_.pop_back();
  CURL* handle = transfer.handle.get();
  TROUPE_ASSERT(handle);
  aim(handle, server_.target, "/v1/completions", headers_, transfer.error);
  curl_easy_setopt(handle, CURLOPT_POSTFIELDS, transfer.body.data());
  curl_easy_setopt(handle, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(transfer.body.size()));
  curl_easy_setopt(handle, CURLOPT_HEADERFUNCTION, on_header);
  curl_easy_setopt(handle, CURLOPT_HEADERDATA, &transfer);
  curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, on_body);
  curl_easy_setopt(handle, CURLOPT_WRITEDATA, &transfer);
  curl_easy_setopt(handle, CURLOPT_PRIVATE, &transfer);
  curl_easy_setopt(handle, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(handle, CURLOPT_LOW_SPEED_TIME, static_cast<long>(options_.patience.count()));
  TROUPE_ASSERT(curl_multi_add_handle(multi_.get(), handle) == CURLM_OK);
  const FaultPoint& point = transfer.request.fault_point;
  if (hangs_up(transfer.request.fault) && point.after_tokens == 0)
    timed_.push({now_s() + point.delay_s, Act::hang_up, transfer.record.index});
}

std::size_t OpenAiDriver::on_header(char* bytes, std::size_t, std::size_t size, void* pointer) {
  auto& transfer = *static_cast<Transfer*>(pointer);
  transfer.header_bytes += size;
  if (transfer.header_bytes > kMaxHeaderBytes) {
    transfer.too_much = fmt::format("headers of more than {} bytes", kMaxHeaderBytes);
    return 0;
  }
  constexpr std::string_view kRetryAfter = "retry-after:";
  std::string line(bytes, size);
  std::transform(line.begin(), line.begin() + static_cast<std::ptrdiff_t>(std::min(size, kRetryAfter.size())),
                 line.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (line.starts_with(kRetryAfter))
    transfer.retry_after =
        retry_after_s(std::string_view(line).substr(kRetryAfter.size()), static_cast<double>(std::time(nullptr)));
  return size;
}

std::size_t OpenAiDriver::on_body(char* bytes, std::size_t, std::size_t size, void* pointer) {
  auto& transfer = *static_cast<Transfer*>(pointer);
  OpenAiDriver& driver = *transfer.driver;
  if (transfer.status == 0) curl_easy_getinfo(transfer.handle.get(), CURLINFO_RESPONSE_CODE, &transfer.status);
  if (driver.pause_here(transfer)) return CURL_WRITEFUNC_PAUSE;
  return driver.take(transfer, {bytes, size}) ? size : 0;
}

// libcurl hands over each chunk of the transfer coding by itself, also those that one read has brought: what a transfer
// gets in one round of reading came together.
bool OpenAiDriver::take(Transfer& transfer, std::string_view bytes) {
  if (std::exchange(transfer.read_round, round_) != round_) transfer.read_s = now_s();
  transfer.answer_bytes += bytes.size();
  if (transfer.status != 200) {
    const std::size_t room = kMaxErrorBytes - std::min(kMaxErrorBytes, transfer.error_body.size());
    transfer.error_body.append(bytes.substr(0, room));
    if (bytes.size() <= room) return true;
    transfer.too_much = fmt::format("an error of more than {} bytes", kMaxErrorBytes);
    return false;
  }
  if (transfer.answer_bytes > options_.max_answer_bytes) {
    transfer.too_much = fmt::format("an answer of more than {} bytes", options_.max_answer_bytes);
    return false;
  }
  const bool fed = transfer.events->feed(bytes, [&](std::string_view data) { return read_event(transfer, data); });
  if (!fed && !transfer.hang_up && transfer.reader->failure().empty())
    transfer.too_much = fmt::format("an event of more than {} bytes", options_.max_event_bytes);
  return fed;
}

bool OpenAiDriver::read_event(Transfer& transfer, std::string_view data) {
  const double now = transfer.read_s;
  if (data == "[DONE]") {
    transfer.done_seen = true;
    transfer.record.end_s = now;
  }
  if (!transfer.reader->read(data, now)) return false;
  const FaultPoint& point = transfer.request.fault_point;
  if (!hangs_up(transfer.request.fault) || point.after_tokens == 0) return true;
  transfer.hang_up = !transfer.reader->finished() && transfer.record.completion_tokens >= point.after_tokens;
  return !transfer.hang_up;
}

// A slow reader pauses once, when the tokens of its fault point have arrived: libcurl then leaves bytes in the socket.
bool OpenAiDriver::pause_here(Transfer& transfer) {
  RequestRecord& record = transfer.record;
  if (transfer.request.fault != Fault::slow_reader || record.fault_at_s ||
      record.completion_tokens < transfer.request.fault_point.after_tokens)
    return false;
  record.fault_at_s = now_s();
  transfer.paused = true;
  timed_.push({*record.fault_at_s + plan_.spec().faults.slow_reader_pause_s, Act::resume, record.index});
  return true;
}

void OpenAiDriver::act_due(double now) {
  while (!timed_.empty() && timed_.top().at_s <= now) {
    const Timed timed = timed_.top();
    timed_.pop();
    const auto found = live_.find(timed.index);
    if (found == live_.end()) continue;
    Transfer& transfer = *found->second;
    if (timed.act == Act::retry) {
      transmit(transfer);
    } else if (timed.act == Act::resume && transfer.paused) {
      transfer.paused = false;
      curl_easy_pause(transfer.handle.get(), CURLPAUSE_CONT);
    } else if (timed.act == Act::hang_up && transfer.handle) {
      transfer.hang_up = true;
      on_end(timed.index, CURLE_WRITE_ERROR);
    }
  }
}

void OpenAiDriver::wait() {
  int running = 0;
  ++round_;
  curl_multi_perform(multi_.get(), &running);
  double at_s = now_s() + kStopCheck_ms / 1e3;
  if (const auto next = pacer_.next_at()) at_s = std::min(at_s, *next);
  if (!timed_.empty()) at_s = std::min(at_s, timed_.top().at_s);
  alarm_.set(at_s - now_s());
  curl_waitfd alarm{.fd = alarm_.fd(), .events = CURL_WAIT_POLLIN, .revents = 0};
  curl_multi_poll(multi_.get(), &alarm, 1, kStopCheck_ms, nullptr);
  ++round_;
  curl_multi_perform(multi_.get(), &running);
}

void OpenAiDriver::take_ends() {
  int left = 0;
  while (const CURLMsg* message = curl_multi_info_read(multi_.get(), &left)) {
    if (message->msg != CURLMSG_DONE) continue;
    Transfer* transfer = nullptr;
    curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &transfer);
    on_end(transfer->record.index, message->data.result);
  }
}

void OpenAiDriver::on_end(std::uint64_t index, CURLcode code) {
  Transfer& transfer = *live_.at(index);
  curl_multi_remove_handle(multi_.get(), transfer.handle.get());  // closes the connection of an unfinished transfer
  if (!transfer.done_seen) transfer.record.end_s = now_s();
  if (transfer.status == 0) curl_easy_getinfo(transfer.handle.get(), CURLINFO_RESPONSE_CODE, &transfer.status);
  settle(transfer, code);
  idle_.push_back(std::move(transfer.handle));
  if (!retry_later(transfer)) finish(index);
}

void OpenAiDriver::settle(Transfer& transfer, CURLcode code) const {
  RequestRecord& record = transfer.record;
  const CompletionReader& reader = *transfer.reader;
  const auto end = [&](EndKind kind, const char* outcome, std::string message) {
    record.kind = kind;
    record.outcome = outcome;
    record.message = std::move(message);
  };
  record.num_ends = std::max(1u, reader.num_finishes());
  if (transfer.hang_up) {
    record.fault_at_s = record.end_s;
    return record.fault == Fault::cancel ? end(EndKind::done, "cancelled", "")
                                         : end(EndKind::lost, "disconnected", "by its client, as planned");
  }
  if (!transfer.too_much.empty()) return end(EndKind::failed, "protocol", "the server sent " + transfer.too_much);
  if (!reader.failure().empty()) return end(EndKind::failed, "server_error", reader.failure());
  if (reader.finished()) return end(EndKind::done, reader.finish_reason().c_str(), "");
  if (code == CURLE_OK && transfer.status != 200)
    return read_http_error(static_cast<int>(transfer.status), transfer.error_body, record);
  if (code == CURLE_OK) return end(EndKind::lost, "connection", "the answer ended before it was finished");
  end(EndKind::lost, code == CURLE_OPERATION_TIMEDOUT ? "timeout" : "connection",
      transfer.error[0] ? transfer.error : curl_easy_strerror(code));
}

// Waits for the server's Retry-After or for a time that doubles with each refusal, whichever is longer; spread by up to
// a half over the requests, so that requests that were refused together are not sent again together.
bool OpenAiDriver::retry_later(Transfer& transfer) {
  RequestRecord& record = transfer.record;
  if (stopped_ || record.kind != EndKind::refused || (transfer.status != 429 && transfer.status != 503) ||
      record.retries >= options_.max_retries)
    return false;
  const double base_s = std::max(transfer.retry_after.value_or(0), kFirstBackoff_s * std::pow(2.0, record.retries++));
  const double spread = 1 + static_cast<double>(record.index * 7 % 16) / 32;
  const double bound_s = std::chrono::duration<double>(options_.max_backoff).count();
  timed_.push({now_s() + std::min(base_s * spread, bound_s), Act::retry, record.index});
  return true;
}

void OpenAiDriver::finish(std::uint64_t index) {
  const auto found = live_.find(index);
  pacer_.ended(found->second->due.client, found->second->record.end_s);
  shut_out_.note(found->second->record);
  if (shut_out_.during_run()) pacer_.stop();
  over_.push_back(std::move(found->second->record));
  live_.erase(found);
}

void OpenAiDriver::stop_early() {
  stopped_ = true;
  pacer_.stop();
  std::vector<std::uint64_t> indices;
  for (const auto& [index, transfer] : live_) indices.push_back(index);
  for (const std::uint64_t index : indices) {
    Transfer& transfer = *live_.at(index);
    RequestRecord& record = transfer.record;
    if (transfer.handle) curl_multi_remove_handle(multi_.get(), transfer.handle.get());
    record.end_s = now_s();
    record.num_ends = 1;
    record.kind = EndKind::done;
    record.outcome = "cancelled";
    finish(index);
  }
}

}  // namespace

std::string completion_body(const PlannedRequest& request, const OpenAiServer& server) {
  using nlohmann::ordered_json;
  const client::Sampling& s = request.sampling;
  ordered_json body{{"model", server.model}};
  std::visit([&](const auto& prompt) { body["prompt"] = prompt; }, request.prompt);
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}, {"continuous_usage_stats", true}};
  if (server.server != "troupe")
    body["timings_per_token"] = true;  // llama-server's; troupe refuses what it does not know
  const auto put = [&](std::string_view key, const auto& value) {
    if (value) body[std::string(key)] = *value;
  };
  put("max_tokens", s.max_tokens);
  config::for_each_sampling_number(
      [&](const config::SamplingNumber& number, const auto& value) { put(number.name, value); }, s);
  if (s.seed) body["seed"] = *s.seed & 0x7fff'ffffu;
  if (s.ignore_eos) body["ignore_eos"] = true;
  return body.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

Result<Run> run_openai(const Plan& plan, const OpenAiServer& server, const OpenAiOptions& options) {
  if (plan.spec().faults.garbage > 0)
    return Error{ErrorCode::unsupported, "garbage frames are troupe's protocol; an HTTP server cannot be sent any"};
  return OpenAiDriver(plan, server, options).run();
}

}  // namespace troupe::load
