#include "ipc/hub.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "ipc/connection.h"
#include "ipc/keys/guess_limits.h"

namespace troupe::ipc {
namespace {

constexpr std::size_t kReadBytes = 64u << 10;
constexpr std::chrono::milliseconds kStatusInterval{50};
constexpr std::size_t kMaxRememberedUsers = 4096;

std::vector<Stranger> look_at(const std::vector<std::shared_ptr<Connection>>& connections) {
  std::vector<Stranger> strangers;
  for (const auto& connection : connections) strangers.push_back(connection->stranger());
  return strangers;
}

}  // namespace

void Tally::add_counts(v1::Status& status) const {
  ipc::add_counts(status, counts);
  MetricList metrics;
  tokens.append_metrics(metrics);
  add_metrics(metrics, status);
}

Hub::Hub(ServerOptions server_options)
    : options(std::move(server_options)),
      frames(std::make_shared<BufferBudget>(options.limits.max_buffer_bytes / 2)),
      answers(std::make_shared<BufferBudget>(options.limits.max_buffer_bytes / 2)),
      scratch(kReadBytes),
      strangers(kTcpUser, options),
      tick_timer_(io),
      status_timer_(io) {}

void Hub::remember(const std::shared_ptr<Connection>& connection) {
  if (connections.insert(connection).second) ++connection->user().connections;
}

void Hub::forget(const std::shared_ptr<Connection>& connection) {
  if (connections.erase(connection) == 0) return;
  --connection->user().connections;
  if (connections.empty()) empty_since = Clock::now();
  if (connections.empty() && on_empty) std::exchange(on_empty, nullptr)();
}

void Hub::make_stranger(Connection& connection, bool is_stranger) {
  User& to = is_stranger ? strangers : user(kTcpUser);
  ++to.connections;
  --connection.user().connections;
  connection.set_user(to);
}

std::vector<std::shared_ptr<Connection>> Hub::all_strangers() const {
  std::vector<std::shared_ptr<Connection>> all;
  if (strangers.connections == 0) return all;
  for (const auto& connection : connections)
    if (connection->is_stranger()) all.push_back(connection);
  return all;
}

bool Hub::close_stranger_for(const std::string& address) {
  const auto all = all_strangers();
  const auto goes = stranger_to_make_room(look_at(all), address.empty() ? address : guessing_peer(address),
                                          [&](std::size_t i) { return all[i]->has_unread(); });
  if (goes) all[*goes]->close();
  return goes.has_value();
}

bool Hub::make_room_for_stranger(const std::string& address) {
  const std::size_t most = strangers_limit(options.limits.max_connections_per_uid);
  if (strangers.connections < most) return true;
  auto all = all_strangers();
  std::vector<Stranger> seen = look_at(all);
  const std::string peer = guessing_peer(address);
  // Those whose key is being checked are bounded by the line that they wait in, and take no place from others.
  while (std::ranges::count_if(seen, [](const Stranger& each) { return each.idle_since.has_value(); }) >=
         static_cast<std::ptrdiff_t>(most)) {
    const auto goes = stranger_to_make_room(seen, peer, [&](std::size_t i) { return all[i]->has_unread(); });
    if (!goes) return false;
    // All have sent something. It is read in this thread's next turns, before which none of them is given up.
    if (all[*goes]->has_unread()) return true;
    all[*goes]->close();
    all.erase(all.begin() + static_cast<std::ptrdiff_t>(*goes));
    seen.erase(seen.begin() + static_cast<std::ptrdiff_t>(*goes));
  }
  return true;
}

User& Hub::user(std::uint32_t uid) {
  if (const auto found = users_.find(uid); found != users_.end()) return found->second;
  if (users_.size() >= kMaxRememberedUsers) {
    const auto gone =
        std::find_if(users_.begin(), users_.end(), [](const auto& u) { return u.second.connections == 0; });
    if (gone != users_.end()) users_.erase(gone);
  }
  return users_.try_emplace(uid, uid, options).first->second;
}

std::shared_ptr<Tally> Hub::tally(TenantId tenant) {
  if (const auto found = tallies_.find(tenant); found != tallies_.end()) return found->second;
  if (tallies_.size() >= kMaxRememberedUsers) {
    const auto gone =
        std::find_if(tallies_.begin(), tallies_.end(), [](const auto& entry) { return entry.second.use_count() == 1; });
    if (gone != tallies_.end()) tallies_.erase(gone);
  }
  return tallies_.emplace(tenant, std::make_shared<Tally>(tenant, options)).first->second;
}

void Hub::set_rates() {
  const auto set_rates_of = [this](User& user) {
    user.frames.set_rate(options.limits.max_frames_per_second);
    user.questions.set_rate(options.limits.max_questions_per_second);
  };
  for (auto& [uid, user] : users_) set_rates_of(user);
  set_rates_of(strangers);
  for (auto& [tenant, tally] : tallies_) tally->refusals.set_rate(options.limits.max_refusals_per_second);
}

void Hub::ask_status(OnStatus done) {
  waiting_.push_back(std::move(done));
  arm_status();
}

void Hub::arm_status() {
  if (stopped_ || status_armed_ || waiting_.empty() || !asking_.empty()) return;
  const Clock::time_point due = last_question_ + kStatusInterval;
  if (Clock::now() >= due) return put_status_question();
  status_armed_ = true;
  status_timer_.expires_at(due);
  status_timer_.async_wait([this](asio::error_code error) {
    status_armed_ = false;
    if (!error) put_status_question();
  });
}

void Hub::put_status_question() {
  last_question_ = Clock::now();
  asking_ = std::exchange(waiting_, {});
  const Doing doing(activity, "asks for the status");
  gateway->status([weak = self](actors::StatusSnapshot snapshot) {
    const auto hub = weak.lock();
    if (!hub) return;
    asio::post(hub->io, [weak, snapshot = std::move(snapshot)] {
      const auto server = weak.lock();
      if (!server) return;
      const Doing doing(server->activity, "answers questions for the status");
      for (const OnStatus& done : std::exchange(server->asking_, {})) done(snapshot);
      server->arm_status();
    });
  });
}

OwnRequests Hub::requests_of(TenantId tenant, const Connection& asking) const {
  OwnRequests own;
  for (const auto& connection : connections)
    connection->streams().add_requests(own, tenant, connection.get() == &asking);
  return own;
}

bool Hub::cancel_request(std::uint64_t number, const scheduler::Tenant& tenant, std::uint32_t uid) {
  return std::any_of(connections.begin(), connections.end(), [&](const std::shared_ptr<Connection>& connection) {
    return connection->streams().cancel_request(number, tenant, uid);
  });
}

void Hub::add_counts(v1::Status& status) {
  ipc::add_counts(status, counts);
  std::size_t streams = 0;
  std::uint64_t outboxes = 0;
  for (const auto& connection : connections) {
    streams += connection->streams().size();
    outboxes += connection->outbox_bytes();
  }
  MetricList metrics;
  metrics.gauge("num_connections", "Open connections.", connections.size(), {.key = "connections"});
  metrics.gauge("num_connections_without_key", "Open connections over TCP that have shown no right key.",
                strangers.connections);
  metrics.gauge("num_streams", "Open streams on all connections.", streams, {.key = "streams"});
  const auto ended = [&](const char* result, std::string_view key, std::uint64_t count) {
    metrics.counter("connections", "Connections by what became of them.", count,
                    {.labels = {{"result", result}}, .key = key});
  };
  ended("accepted", "connections_accepted", connections_accepted);
  ended("refused", "connections_refused", connections_refused);
  ended("broken", "connections_broken", connections_broken);
  // The gateway has counted outboxes under "heap".
  outbox_peak_bytes = std::max(outbox_peak_bytes, outboxes);
  for (v1::Status::Memory& use : *status.mutable_memory())
    if (use.kind() == "heap") use.set_bytes(use.bytes() - std::min(use.bytes(), outboxes));
  v1::Status::Memory& added = *status.add_memory();
  added.set_kind("outboxes");
  added.set_bytes(outboxes);
  added.set_peak_bytes(outbox_peak_bytes);
  for (const v1::Status::Memory& use : status.memory()) {
    metrics.gauge("memory_bytes", "Resident memory by kind.", use.bytes(), {.labels = {{"kind", use.kind()}}});
    metrics.gauge("memory_peak_bytes", "The most so far.", use.peak_bytes(), {.labels = {{"kind", use.kind()}}});
  }
  add_metrics(metrics, status);
}

void Hub::count_received(Tally& tally, RequestKind kind, std::uint64_t count) {
  counts.received(kind, count);
  tally.counts.received(kind, count);
}

void Hub::count_ended(Tally& tally, RequestKind kind, scheduler::Outcome outcome, std::uint64_t count) {
  counts.ended(kind, outcome, count);
  tally.counts.ended(kind, outcome, count);
  if (scheduler::info(outcome).kind == scheduler::OutcomeKind::refused) tally.refusals.refused(Clock::now());
}

void Hub::tell_ended(const Arrival& arrival, RequestKind kind, scheduler::Outcome outcome) const {
  if (!info(kind).takes_work || !options.on_ended) return;
  options.on_ended({.tenant = arrival.tenant,
                    .protocol = arrival.protocol,
                    .kind = info(kind).name,
                    .client_id = arrival.client_id,
                    .model = arrival.model,
                    .outcome = outcome,
                    .total_seconds = actors::seconds_between(arrival.at, Clock::now())});
}

void Hub::warn(LogQuota& kind, const std::function<std::string()>& line) {
  const auto left_out = kind.take(Clock::now());
  if (!left_out) return;
  if (*left_out > 0) spdlog::warn("{} lines like the next were left out", *left_out);
  spdlog::warn("{}", line());
}

void Hub::arm_tick() {
  if (stopped_ || std::exchange(tick_armed_, true)) return;
  using std::chrono::milliseconds;
  milliseconds shortest =
      std::min({options.limits.hello_timeout, options.limits.stall_timeout, options.limits.body_timeout});
  if (options.limits.idle_timeout.count() > 0) shortest = std::min(shortest, options.limits.idle_timeout);
  tick_timer_.expires_after(std::clamp(shortest / 4, milliseconds(5), milliseconds(1000)));
  tick_timer_.async_wait([this](asio::error_code error) {
    tick_armed_ = false;
    if (!error) tick();
  });
}

void Hub::stop_ticking() {
  stopped_ = true;
  tick_timer_.cancel();
  status_timer_.cancel();
}

void Hub::tick() {
  const Doing doing(activity, "looks at the time limits of connections");
  const Clock::time_point now = Clock::now();
  bool again = false;
  for (const std::shared_ptr<Connection>& connection : all_connections()) again |= connection->tick(now);
  auto all = all_strangers();
  const std::size_t most = strangers_limit(options.limits.max_connections_per_uid);
  while (const auto goes = stranger_beyond_part(look_at(all), most, now)) {
    all[*goes]->close();
    all.erase(all.begin() + static_cast<std::ptrdiff_t>(*goes));
  }
  if (again) arm_tick();
}

}  // namespace troupe::ipc
