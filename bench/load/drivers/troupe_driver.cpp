#include "bench/load/drivers/troupe_driver.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <queue>
#include <thread>
#include <unordered_map>

#include "bench/load/drivers/exchange.h"
#include "bench/load/drivers/garbage.h"
#include "bench/load/drivers/shut_out.h"
#include "bench/load/drivers/troupe_server.h"
#include "bench/load/sampler.h"
#include "config/assert.h"
#include "scheduler/outcome.h"

namespace troupe::load {
namespace {

using Clock = std::chrono::steady_clock;
using ExchangePtr = std::shared_ptr<Exchange>;

constexpr std::chrono::milliseconds kProgressInterval{250};
constexpr double kStopPatience_s = 10;  // for the ends of requests that were cancelled by a stop

// A slow reader either grants no credit or, if this returns true, does not read the socket.
bool stops_reading(const PlannedRequest& request) {
  return request.fault == Fault::slow_reader && request.fault_point.choice % 2 == 1;
}

bool withholds_credit(const PlannedRequest& request) {
  return request.fault == Fault::slow_reader && !stops_reading(request);
}

// Whether the driver injects the request's fault after it was sent. The other faults need no later action: a reader
// thread that stops reading, garbage on another connection.
bool is_acted_by_driver(const PlannedRequest& request) {
  return request.fault == Fault::cancel || request.fault == Fault::disconnect || withholds_credit(request);
}

class TroupeDriver {
 public:
  TroupeDriver(const Plan& plan, TroupeServer& server, const TroupeOptions& options)
      : plan_(plan),
        server_(server),
        options_(options),
        pacer_(plan),
        garbage_(server.socket, plan.spec().seed, options.user),
        patience_s_(std::chrono::duration<double>(options.patience).count()) {}

  // Opens the connections.
  Status connect_all();
  // Runs the plan; time 0 is `start`.
  TroupeRun run(Clock::time_point start);

 private:
  enum class Act : std::uint8_t { fault, resume, retry };
  struct Timed {
    double at_s;
    Act act;
    ExchangePtr exchange;
    bool operator>(const Timed& other) const { return at_s > other.at_s; }
  };
  struct Over {
    RequestRecord record;
    Answer answer;
  };

  Result<std::unique_ptr<client::Client>> connect() const;
  void loop();
  void begin(const Due& due);
  void transmit(const ExchangePtr& exchange);
  Status send(const ExchangePtr& exchange, client::Client& connection);
  std::unique_ptr<client::Client>& connection_of(const ExchangePtr& exchange);
  bool connect_again(const ExchangePtr& exchange);
  client::Callbacks callbacks_for(const ExchangePtr& exchange);
  void on_tokens(const ExchangePtr& exchange, const client::Tokens& tokens);
  void act_due(double now);
  void disturb(const ExchangePtr& exchange, double now);
  void on_end(const ExchangePtr& exchange);
  bool retry_later(const ExchangePtr& exchange);
  void finish(Exchange& exchange);
  void stop_early();
  void give_up();
  void report_progress(double now);
  Clock::time_point wake_time() const;

  double now_s() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  const Plan& plan_;
  TroupeServer& server_;
  const TroupeOptions& options_;
  Pacer pacer_;
  ShutOut shut_out_;
  GarbageSender garbage_;
  Mailbox mailbox_;  // outlives the connections: their reader threads post to it
  Brake brake_;
  std::atomic<std::uint64_t> tokens_{0};  // received by all
  std::vector<std::unique_ptr<client::Client>> connections_;
  std::priority_queue<Timed, std::vector<Timed>, std::greater<>> timed_;
  std::unordered_map<std::uint64_t, ExchangePtr> live_;  // sent, or waiting for a retry; by index
  Clock::time_point start_{};
  double patience_s_;
  double last_news_s_ = 0;
  std::uint64_t tokens_at_last_news_ = 0;
  double next_progress_s_ = 0;
  Progress progress_;
  Run run_;
  std::vector<Over> over_;  // in order of their ends
};

Result<std::unique_ptr<client::Client>> TroupeDriver::connect() const { return connect_as(server_, options_.user); }

Status TroupeDriver::connect_all() {
  for (std::uint32_t i = 0; i < options_.connections; ++i) {
    auto client = connect();
    if (!client) return client.error();
    connections_.push_back(std::move(*client));
  }
  return Ok{};
}

TroupeRun TroupeDriver::run(Clock::time_point start) {
  progress_.total = plan_.size();
  start_ = start;
  loop();
  if (!run_.shut_out) run_.shut_out = shut_out_.after_run();
  run_.garbage = garbage_.finish();
  for (const auto& connection : connections_) run_.stray_frames += connection->stray_frames();

  // Requests do not end in the order in which they begin.
  std::sort(over_.begin(), over_.end(), [](const Over& a, const Over& b) { return a.record.index < b.record.index; });
  TroupeRun result;
  for (Over& over : over_) {
    run_.records.push_back(std::move(over.record));
    result.answers.push_back(std::move(over.answer));
  }
  measure_span(run_);
  result.run = std::move(run_);
  return result;
}

void TroupeDriver::loop() {
  while (!pacer_.exhausted() || !live_.empty()) {
    if (options_.stop && *options_.stop && !run_.interrupted) stop_early();
    while (const auto due = pacer_.next(now_s())) begin(*due);
    act_due(now_s());
    const auto news = mailbox_.take(wake_time());
    const double now = now_s();
    for (const Mailbox::News& item : news) {
      if (item.exchange->finished) continue;
      if (item.ended)
        on_end(item.exchange);
      else
        disturb(item.exchange, now);
    }
    const std::uint64_t tokens = tokens_;
    if (!news.empty() || live_.empty() || std::exchange(tokens_at_last_news_, tokens) != tokens) last_news_s_ = now;
    report_progress(now);
    if (now - last_news_s_ > patience_s_) return give_up();
  }
}

Clock::time_point TroupeDriver::wake_time() const {
  double at_s = next_progress_s_;
  if (const auto next = pacer_.next_at()) at_s = std::min(at_s, *next);
  if (!timed_.empty()) at_s = std::min(at_s, timed_.top().at_s);
  return start_ + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(at_s));
}

void TroupeDriver::begin(const Due& due) {
  const auto exchange = std::make_shared<Exchange>();
  exchange->request = plan_.request(due.index);
  exchange->due = due;
  RequestRecord& record = exchange->record;
  record = begin_record(due, exchange->request);
  live_.emplace(due.index, exchange);
  ++progress_.sent;
  if (record.fault == Fault::garbage) {  // on another connection: it must not affect the request
    garbage_.send(exchange->request.fault_point.choice);
    record.fault_at_s = now_s();
  }
  if (record.fault == Fault::disconnect || stops_reading(exchange->request)) {
    auto own = connect();
    if (!own) {
      record.sent_s = exchange->record.end_s = now_s();
      exchange->end = own.error();
      return on_end(exchange);
    }
    exchange->own = std::move(*own);
  }
  record.sent_s = now_s();
  transmit(exchange);
}

void TroupeDriver::transmit(const ExchangePtr& exchange) {
  exchange->waits = false;
  Status sent = send(exchange, exchange->own ? *exchange->own : *connection_of(exchange));
  if (!sent && sent.error().code == ErrorCode::io && !exchange->own && connect_again(exchange))
    sent = send(exchange, *connection_of(exchange));
  if (!sent) {
    exchange->record.end_s = now_s();
    exchange->end = sent.error();
    return on_end(exchange);
  }
  const FaultPoint& point = exchange->request.fault_point;
  if (is_acted_by_driver(exchange->request) && point.after_tokens == 0)
    timed_.push({exchange->record.sent_s + point.delay_s, Act::fault, exchange});
}

Status TroupeDriver::send(const ExchangePtr& exchange, client::Client& connection) {
  const PlannedRequest& planned = exchange->request;
  const auto end = callbacks_for(exchange).on_end;
  if (options_.kind == RequestKind::embed)
    return connection.embed(to_embed_request(planned, options_.model),
                            [end, exchange](const Result<client::Ended>& how, const client::Embeddings& embeddings) {
                              if (embeddings.receipt) exchange->record.compute_s = embeddings.receipt->compute_seconds;
                              end(how);
                            });
  if (options_.kind == RequestKind::tokenize)
    return connection.tokenize(text_of(planned), options_.model,
                               [end](const Result<client::Ended>& how, const std::vector<TokenId>&) { end(how); });
  client::Request request = to_client_request(planned, options_.model, options_.cache_scope);
  request.priority = options_.priority;
  if (options_.deadline.count() > 0) request.deadline = options_.deadline;
  if (withholds_credit(planned)) request.credit = planned.fault_point.after_tokens;
  auto stream = connection.generate(request, callbacks_for(exchange));
  if (!stream) return stream.error();
  exchange->stream = *stream;
  return Ok{};
}

// The connection that the request shares with others.
std::unique_ptr<client::Client>& TroupeDriver::connection_of(const ExchangePtr& exchange) {
  const std::uint64_t turn = plan_.spec().pace.clients > 0 ? exchange->due.client : exchange->due.index;
  return connections_[turn % connections_.size()];
}

// Replaces a shared connection that the server has ended. If that fails, the run is over.
bool TroupeDriver::connect_again(const ExchangePtr& exchange) {
  std::unique_ptr<client::Client>& connection = connection_of(exchange);
  auto again = connect();
  if (!again) {
    pacer_.stop();
    run_.interrupted = true;
    run_.shut_out = ShutOutBy{again.error().code == ErrorCode::permission, again.error().message};
    return false;
  }
  run_.stray_frames += connection->stray_frames();
  connection = std::move(*again);
  return true;
}

client::Callbacks TroupeDriver::callbacks_for(const ExchangePtr& exchange) {
  return {.on_tokens = [this, exchange](const client::Tokens& tokens) { on_tokens(exchange, tokens); },
          .on_end =
              [this, exchange](const Result<client::Ended>& end) {
                exchange->record.end_s = now_s();
                exchange->end = end;
                mailbox_.post({exchange, true});
              }};
}

// Called on a reader thread.
void TroupeDriver::on_tokens(const ExchangePtr& exchange, const client::Tokens& tokens) {
  RequestRecord& record = exchange->record;
  const auto count = static_cast<std::uint32_t>(tokens.ids.size());
  const std::uint32_t before = record.completion_tokens;
  if (tokens.first_index != before) exchange->out_of_order = true;
  if (count > 0) add_arrival(record, std::chrono::duration<double>(tokens.received_at - start_).count(), count);
  record.completion_tokens += count;
  tokens_ += count;
  exchange->answer.ids.insert(exchange->answer.ids.end(), tokens.ids.begin(), tokens.ids.end());
  exchange->answer.text += tokens.text;

  const std::uint32_t after = exchange->request.fault_point.after_tokens;
  if (stops_reading(exchange->request)) {  // not before the first token: until then there is nothing to read
    if (record.fault_at_s || record.completion_tokens < after) return;
    record.fault_at_s = now_s();
    brake_.hold(plan_.spec().faults.slow_reader_pause_s);
  } else if (is_acted_by_driver(exchange->request) && before < after && record.completion_tokens >= after) {
    mailbox_.post({exchange, false});
  }
}

void TroupeDriver::act_due(double now) {
  while (!timed_.empty() && timed_.top().at_s <= now) {
    const Timed timed = timed_.top();
    timed_.pop();
    if (timed.exchange->finished) continue;
    if (timed.act == Act::fault) disturb(timed.exchange, now);
    if (timed.act == Act::resume) timed.exchange->stream->credit(*timed.exchange->request.sampling.max_tokens);
    if (timed.act == Act::retry) transmit(timed.exchange);
  }
}

void TroupeDriver::disturb(const ExchangePtr& exchange, double now) {
  RequestRecord& record = exchange->record;
  record.fault_at_s = now;
  if (record.fault == Fault::cancel) exchange->stream->cancel();
  if (record.fault == Fault::disconnect) exchange->own->close();
  if (record.fault == Fault::slow_reader)
    timed_.push({now + plan_.spec().faults.slow_reader_pause_s, Act::resume, exchange});
}

void TroupeDriver::on_end(const ExchangePtr& exchange) {
  if (retry_later(exchange)) return;
  finish(*exchange);
  const RequestRecord& record = over_.back().record;
  ++progress_.ended;
  progress_.refused += record.kind == EndKind::refused;
  progress_.failed += record.kind == EndKind::failed || (record.kind == EndKind::lost && !record.fault_at_s);
  pacer_.ended(exchange->due.client, record.end_s);
  shut_out_.note(record);
  live_.erase(record.index);
  if (run_.shut_out || !(run_.shut_out = shut_out_.during_run())) return;
  pacer_.stop();
  run_.interrupted = true;
}

// Waits for the server's retry_after, doubled with each further refusal up to the bound, and spread by up to a half so
// that requests that were refused together are not sent again together.
bool TroupeDriver::retry_later(const ExchangePtr& exchange) {
  if (run_.interrupted || !*exchange->end || exchange->record.retries >= options_.max_retries) return false;
  const client::Ended& ended = **exchange->end;
  if (scheduler::info(ended.outcome).kind != scheduler::OutcomeKind::refused || !ended.retry_after) return false;
  Random random(plan_.spec().seed, Purpose::backoff, exchange->record.index << 8 | exchange->record.retries);
  const double wait_s = std::chrono::duration<double>(*ended.retry_after).count() *
                        std::pow(2.0, exchange->record.retries++) * (1 + random.uniform() / 2);
  const double bound_s = std::chrono::duration<double>(options_.max_backoff).count();
  exchange->stream.reset();
  exchange->waits = true;
  timed_.push({now_s() + std::min(wait_s, bound_s), Act::retry, exchange});
  return true;
}

// Takes the result of the exchange; none of its callbacks is running any more.
void TroupeDriver::finish(Exchange& exchange) {
  exchange.finished = true;
  if (exchange.own) {
    exchange.own->close();
    run_.stray_frames += exchange.own->stray_frames();
  }
  settle(exchange);
  if (options_.kind != RequestKind::generate) exchange.record.queue_s.reset();    // the server does not report it
  if (options_.kind == RequestKind::tokenize) exchange.record.prompt_tokens = 0;  // the model computes none of them
  over_.push_back({std::move(exchange.record), std::move(exchange.answer)});
}

void TroupeDriver::stop_early() {
  run_.interrupted = true;
  pacer_.stop();
  brake_.release();
  patience_s_ = std::min(patience_s_, kStopPatience_s);
  last_news_s_ = now_s();
  std::vector<ExchangePtr> waiting;  // for a retry
  for (const auto& [index, exchange] : live_) {
    if (exchange->waits)
      waiting.push_back(exchange);
    else if (exchange->stream)
      exchange->stream->cancel();
  }
  for (const ExchangePtr& exchange : waiting) on_end(exchange);
}

// Counts all open requests as lost. Closing the connections ends their reader threads; after that only this thread uses
// the exchanges.
void TroupeDriver::give_up() {
  brake_.release();
  for (const auto& connection : connections_) connection->close();
  for (const auto& [index, exchange] : live_) {
    if (exchange->own) exchange->own->close();
    exchange->end.reset();
    exchange->record.end_s = now_s();
    exchange->record.message = fmt::format("nothing came from the server for {} s", std::lround(patience_s_));
    finish(*exchange);
  }
  live_.clear();
  run_.interrupted = true;
}

void TroupeDriver::report_progress(double now) {
  if (now < next_progress_s_) return;
  next_progress_s_ = now + std::chrono::duration<double>(kProgressInterval).count();
  progress_.at_s = now;
  progress_.tokens = tokens_;
  if (options_.on_progress) options_.on_progress(progress_);
}

// The sum of the lanes' progress.
class ProgressOfAll {
 public:
  ProgressOfAll(std::size_t num_lanes, std::function<void(const Progress&)> on_progress)
      : lanes_(num_lanes), on_progress_(std::move(on_progress)) {}

  // From any thread.
  void note(std::size_t lane, const Progress& progress) {
    const std::lock_guard lock(mutex_);
    lanes_[lane] = progress;
    if (!on_progress_ || progress.at_s < next_s_) return;
    next_s_ = progress.at_s + std::chrono::duration<double>(kProgressInterval).count();
    Progress all{.at_s = progress.at_s, .total = 0};
    for (const Progress& of_lane : lanes_) {
      all.sent += of_lane.sent;
      all.ended += of_lane.ended;
      all.total = all.total && of_lane.total ? std::optional(*all.total + *of_lane.total) : std::nullopt;
      all.tokens += of_lane.tokens;
      all.refused += of_lane.refused;
      all.failed += of_lane.failed;
    }
    on_progress_(all);
  }

 private:
  std::mutex mutex_;
  std::vector<Progress> lanes_;
  std::function<void(const Progress&)> on_progress_;
  double next_s_ = 0;
};

}  // namespace

Result<TroupeRuns> run_lanes(std::span<const Lane> lanes, TroupeServer& server) {
  TROUPE_ASSERT(!lanes.empty());
  const auto before = server.control->status();
  if (!before) return before.error();
  ProgressOfAll progress(lanes.size(), lanes.front().options.on_progress);
  std::vector<TroupeOptions> options;
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    TROUPE_ASSERT(lanes[i].options.connections > 0);
    options.push_back(lanes[i].options);
    options.back().stop = lanes.front().options.stop;
    options.back().on_progress = [&progress, i](const Progress& of_lane) { progress.note(i, of_lane); };
  }
  std::vector<std::unique_ptr<TroupeDriver>> drivers;
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    drivers.push_back(std::make_unique<TroupeDriver>(*lanes[i].plan, server, options[i]));
    if (Status connected = drivers.back()->connect_all(); !connected) return connected.error();
  }

  TroupeRuns result;
  result.lanes.resize(lanes.size());
  const double cpu_before = cpu_seconds();
  const Clock::time_point start = Clock::now();
  Sampler sampler(*server.control, start, options.front().sample_interval);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < drivers.size(); ++i)
    threads.emplace_back([&, i] { result.lanes[i] = drivers[i]->run(start); });
  for (std::thread& thread : threads) thread.join();
  result.own_cpu_seconds = cpu_seconds() - cpu_before;
  result.samples = sampler.finish();
  drivers.clear();  // their connections are closed: the server can come to rest
  if (const auto account = account_since(*server.control, *before)) result.account = *account;
  return result;
}

Result<TroupeRun> run_troupe(const Plan& plan, TroupeServer& server, const TroupeOptions& options) {
  const Lane lane{&plan, options};
  auto runs = run_lanes({&lane, 1}, server);
  if (!runs) return runs.error();
  TroupeRun result = std::move(runs->lanes.front());
  result.run.samples = std::move(runs->samples);
  result.run.own_cpu_seconds = runs->own_cpu_seconds;
  result.run.account = runs->account;
  return result;
}

}  // namespace troupe::load
