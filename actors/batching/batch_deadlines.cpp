// How a Batch promises deadlines: what cannot be met is refused before anything is computed for it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "actors/batching/batch.h"
#include "actors/batching/batch_live.h"
#include "actors/requests/request_check.h"
#include "actors/serving/encoding.h"

namespace troupe::actors {
namespace {

using scheduler::Outcome;

constexpr std::chrono::milliseconds kLongestRetry{3'600'000};  // clients take a longer one for a mistake

double on_clock(TimePoint time) { return std::chrono::duration<double>(time.time_since_epoch()).count(); }

std::chrono::milliseconds to_ms(double seconds) {
  constexpr double kMost = 1e12;  // of predictions far beyond any deadline
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::ceil(std::min(seconds * 1e3, kMost))));
}

std::string rounded(double seconds) {
  return seconds < 10 ? fmt::format("{:.0f} ms", 1e3 * seconds) : fmt::format("{:.1f} s", seconds);
}

}  // namespace

// Asks for what decide_promise() needs. False: nothing is to be decided, because it has no deadline, or nothing is
// known of steps yet, or an earlier batch has decided. Of several choices the first one decides for all.
bool Batch::ask_for_promise(Live& live) {
  if (!live.task->deadline) return false;
  live.promised = live.task->promised;
  live.promise_settled = !live.wants_last() && live.emitted > 0;
  if (const auto* parent = loop_.parent_of(live)) live.promised = live.promised || live_of(*parent).promised;
  if (!loop_.planner().costs().has_learned()) return false;
  const auto alone = scheduler::alone(forecast_server(), forecast_request(live, {}));
  live.asked.due_seconds =
      on_clock(*live.task->deadline) - (live.wants_last() ? alone.last_seconds : alone.first_seconds);
  if (live.promised || live.emitted > 0 || live.task->body->fork_of != 0) return false;
  loop_.move_to(live, Phase::undecided);
  loop_.predict(live);
  return true;
}

void Batch::decide_promise(Live& live, std::uint32_t num_cached, TimePoint now) {
  at_work_ = live.request();
  std::vector<scheduler::ForecastRequest> others;
  for (const auto& [number, other] : loop_.requests()) {
    if (other.get() == &live || other->parked) continue;
    if (live_of(*other).saving) continue;  // its answer has ended
    if (other->phase != Phase::no_credit && other->phase != Phase::undecided)
      others.push_back(forecast_request(live_of(*other), now));
  }
  scheduler::ForecastRequest next = forecast_request(live, now);
  next.computed = std::min(num_cached, next.known - 1);
  next.promised = safe_seconds(live, now);
  next.promised_last = live.wants_last();
  scheduler::append_expected(others, options_.experience->use, next, on_clock(now));
  scheduler::Experience& learned = *options_.experience;
  const bool came_back = learned.bookings.take(content_of(*live.task->body), on_clock(now));
  const auto& booked = learned.bookings.booked(learned.first_margins, learned.last_margins, on_clock(now));
  const scheduler::PromiseAnswer answer = scheduler::decide_promise(forecast_server(), others, booked, next, came_back);
  if (answer.wait > 0) return refuse(live, answer, now);
  promise(live);
  enter(live, now);
}

// In how many seconds from now its last token (or first) must be predicted, so that its promise is kept with the margin
// of its tenant.
double Batch::safe_seconds(const Live& live, TimePoint now) const {
  return seconds_between(now, *live.task->deadline) /
         margins_of(live).factor(live.task->body->tenant.id, on_clock(now));
}

void Batch::promise(const Live& first) {
  for (std::uint32_t choice = 0; choice < first.task->body->num_choices; ++choice) {
    const RequestId id = first.request() + choice;
    streams().promise(id);
    ++options_.experience->promised;
    if (Live* live = find(id)) live->promised = true;
  }
}

void Batch::refuse(Live& first, const scheduler::PromiseAnswer& answer, TimePoint now) {
  const scheduler::Forecast& expected = answer.expected;
  const double left = seconds_between(now, *first.task->deadline);
  const auto alone = scheduler::alone(forecast_server(), forecast_request(first, now));
  const double shortest = first.wants_last() ? alone.last_seconds : alone.first_seconds;
  const double predicted = first.wants_last() ? expected.last_seconds : expected.first_seconds;
  std::string message = fmt::format(
      "the deadline of {} ms cannot be met: the first token is expected in {}, the last in {}, and {} are left",
      first.task->body->deadline->count(), rounded(expected.first_seconds), rounded(expected.last_seconds),
      rounded(std::max(left, 0.0)));
  if (predicted <= left) message += ", too few to be promised; deadlines that are promised already come first";
  message += shortest > left ? fmt::format("; alone it takes {}. Ask for a longer deadline_ms{}", rounded(shortest),
                                           first.wants_last() ? ", or fewer max_tokens" : ", or send a shorter prompt")
                             : "; try again later, or ask for a longer deadline_ms";
  End end = refusal(Outcome::deadline_unmeetable, "deadline_ms", std::move(message),
                    static_cast<std::uint64_t>(first.task->body->deadline->count()));
  end.predicted_first = to_ms(expected.first_seconds);
  end.predicted_last = to_ms(expected.last_seconds);
  end.retry_after.reset();
  // No retry can succeed if the request would be late even alone.
  if (shortest <= left) end.retry_after = std::min(to_ms(book(first, answer, now)), kLongestRetry);
  const RequestId id = first.request();
  for (std::uint32_t choice = first.task->body->num_choices; choice-- > 0;) {  // `first` is gone after the last one
    streams().end(id + choice, end, now, &news_);
    forget(id + choice);
  }
}

// Books the refused request: until it comes back, others are admitted only as far as it will still be in time. Returns
// the seconds until it is to come back.
double Batch::book(const Live& refused, const scheduler::PromiseAnswer& answer, TimePoint now) {
  const Request& body = *refused.task->body;
  scheduler::ForecastRequest request = forecast_request(refused, now);
  request.promised_last = refused.wants_last();
  return options_.experience->bookings.add(content_of(body), std::move(request), answer.wait, answer.work,
                                           std::chrono::duration<double>(*body.deadline).count(), on_clock(now));
}

// is_last: its answer ends or is cut; else it had a token.
void Batch::settle_promise(Live& live, bool is_last, TimePoint now) {
  if (!live.promised || live.promise_settled || is_last != live.wants_last()) return;
  live.promise_settled = true;
  scheduler::Experience& learned = *options_.experience;
  const bool is_kept = now < *live.task->deadline;
  ++(is_kept ? learned.kept : learned.missed);
  margins_of(live).learn(live.task->body->tenant.id, is_kept, on_clock(now));
}

scheduler::PromiseMargins& Batch::margins_of(const Live& live) const {
  return live.wants_last() ? options_.experience->last_margins : options_.experience->first_margins;
}

scheduler::ForecastServer Batch::forecast_server() const {
  return {.costs = &loop_.planner().costs(),
          .max_step_tokens = options_.planner.max_step_tokens,
          .max_sequences = options_.planner.max_sequences,
          .max_stall_seconds = options_.planner.max_stall_seconds,
          .slowdown = options_.experience->slowdown};
}

scheduler::ForecastRequest Batch::forecast_request(const Live& live, TimePoint now) const {
  const Request& body = *live.task->body;
  scheduler::ForecastRequest of{.demand = live.demand(), .weight = live.weight};
  of.known = live.known_tokens();
  of.is_running = live.phase == Phase::running;
  if (of.is_running) of.computed = std::min(loop_.planner().computed(live.sequence), of.known - 1);
  if (live.phase == Phase::waiting_for_fork) of.computed = live.prompt_tokens() - 1;  // the first choice computes it
  const std::uint32_t left = live.max_known - live.known_tokens();
  of.answer =
      live.wants_last() ? left : std::min(left, options_.experience->answers.expected(body.tenant.id, live.emitted));
  if (live.promised && !live.promise_settled) {
    of.promised = safe_seconds(live, now);
    of.promised_last = live.wants_last();
  }
  return of;
}

// Learns how much longer the time from step to step is than the steps themselves.
void Batch::learn_pace(const engine::StepResult& result) {
  const double step = seconds_between(result.kernels_began, result.kernels_ended);
  if (last_step_ended_)
    options_.experience->learn_slowdown(seconds_between(*last_step_ended_, result.kernels_ended), step);
  last_step_ended_.reset();
  if (has_work()) last_step_ended_ = result.kernels_ended;
}

// Counts a row's seconds of a step for its tenant's recent use.
void Batch::learn_use(const Live& live, double seconds, TimePoint now) {
  const scheduler::Tenant& tenant = live.task->body->tenant;
  options_.experience->use.add(tenant.id, tenant.weight(), seconds, on_clock(now));
}

}  // namespace troupe::actors
