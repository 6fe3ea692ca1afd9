#include "actors/serving/request_limits.h"

#include <algorithm>
#include <utility>

#include "actors/serving/encoding.h"

namespace troupe::actors {
namespace {

// The number of prompt tokens, for a text an estimate: English has about four bytes per token. So has an id.
std::uint64_t likely_tokens(const Request& request) { return (input_bytes(request) + 3) / 4; }

double seconds_of(TimePoint time) { return seconds_between(TimePoint{}, time); }  // for scheduler::TenantAccounts

scheduler::Caller caller(const Request& request, const RequestLimits::Held& held) {
  return {request.tenant, held.content, held.came_back};
}

}  // namespace

RequestLimits::RequestLimits(const config::StreamLimits& limits)
    : accounts_(limits.max_requests_per_user),
      queued_requests_(
          {.name = "max_queued_requests", .what = "waiting requests", .limit = limits.max_queued_requests}),
      queued_tokens_({.name = "max_queued_tokens",
                      .what = "prompt tokens of waiting requests",
                      .limit = limits.max_queued_tokens,
                      .takes_any_alone = true}),
      parked_({.name = "max_parked_requests",
               .what = "requests that are parked because their clients do not read",
               .limit = limits.max_parked_requests}),
      embed_bytes_({.name = "max_embed_bytes",
                    .what = "bytes of texts and vectors",
                    .limit = limits.max_embed_bytes,
                    .takes_any_alone = true}) {}

// With an estimate where only other requests' ends make room.
scheduler::Refusal RequestLimits::with_retry(scheduler::Refusal refusal, const Request& request, const Held& held,
                                             TimePoint now) {
  accounts_.set_retry_after(refusal, caller(request, held), seconds_of(now));
  return refusal;
}

std::optional<scheduler::Refusal> RequestLimits::take_queue_room(const Request& request, std::span<Held* const> choices,
                                                                 TimePoint now) {
  const scheduler::Tenant& tenant = request.tenant;
  const auto num_choices = static_cast<std::uint32_t>(choices.size());
  const std::uint64_t tokens = likely_tokens(request);
  const scheduler::Arrival arrival{.num_choices = num_choices,
                                   .prompt_tokens = tokens,
                                   .is_estimate = !texts_of(request).empty(),
                                   .wants_answer = request.kind() == WorkKind::generate};
  Held& first = *choices.front();
  first.content = content_of(request);
  first.came_back = accounts_.comes_back(tenant, first.content, seconds_of(now)) || request.has_place;
  if (auto refused = accounts_.queue(caller(request, first), arrival, seconds_of(now))) return refused;
  const std::uint64_t share = scheduler::share_of(queued_requests_.limit(), tenant.is_owner);
  const std::uint64_t for_others = accounts_.places_for_others(caller(request, first), share, seconds_of(now));
  auto full = queued_requests_.try_take(tenant, num_choices, for_others);
  if (!full && (full = queued_tokens_.try_take(tenant, tokens))) queued_requests_.give_back(tenant.id, num_choices);
  if (full) {
    accounts_.unqueue(tenant.id, num_choices);
    return with_retry(*std::move(full), request, first, now);
  }
  for (Held* const held : choices) held->queue_room = true;
  first.queue_tokens = tokens;
  return std::nullopt;
}

std::optional<scheduler::Refusal> RequestLimits::retake_queue_room(const Request& request, Held& held,
                                                                   std::uint64_t prompt_tokens, TimePoint now) {
  const scheduler::Tenant& tenant = request.tenant;
  queued_tokens_.give_back(tenant.id, std::exchange(held.queue_tokens, 0));
  if (auto full = queued_tokens_.try_take(tenant, prompt_tokens))
    return with_retry(*std::move(full), request, held, now);
  held.queue_tokens = prompt_tokens;
  if (held.charged_prompt > 0) return std::nullopt;
  if (auto refused = accounts_.take_prompt(caller(request, held), prompt_tokens, seconds_of(now))) return refused;
  held.charged_prompt = prompt_tokens;
  return std::nullopt;
}

// For all choices or for none.
std::optional<scheduler::Refusal> RequestLimits::take_quota(const Request& request, std::span<Held* const> choices,
                                                            TimePoint now) {
  const auto count = std::ranges::count_if(choices, [](const Held* held) { return !held->quota; });
  if (auto refused =
          accounts_.admit(caller(request, *choices.front()), static_cast<std::uint32_t>(count), seconds_of(now)))
    return refused;
  for (Held* const held : choices) held->quota = true;
  return std::nullopt;
}

std::optional<scheduler::Refusal> RequestLimits::take_embed_bytes(const Request& request, Held& held,
                                                                  std::uint64_t bytes, TimePoint now) {
  const scheduler::Tenant& tenant = request.tenant;
  const std::uint64_t before = std::exchange(held.embed_bytes, 0);
  if (before > 0) embed_bytes_.give_back(tenant.id, before);
  if (bytes > before) {
    if (auto full = embed_bytes_.try_take(tenant, bytes)) return with_retry(*std::move(full), request, held, now);
  } else {
    embed_bytes_.take(tenant.id, bytes);
  }
  held.embed_bytes = bytes;
  return std::nullopt;
}

std::optional<scheduler::Refusal> RequestLimits::check_parked(const Request& request, const Held& held, TimePoint now) {
  auto refused = parked_.check_share(request.tenant);
  if (!refused) return std::nullopt;
  return with_retry(*std::move(refused), request, held, now);
}

scheduler::RequestLoad RequestLimits::room_of(const scheduler::Tenant& tenant, TimePoint now) {
  const std::uint64_t waiting = scheduler::share_of(queued_requests_.limit(), tenant.is_owner);
  return {.live = accounts_.most_live(tenant, seconds_of(now)),
          .waiting = waiting - accounts_.places_for_others(tenant, waiting, seconds_of(now))};
}

void RequestLimits::leave_queue(TenantId tenant, Held& held) {
  if (!std::exchange(held.queue_room, false)) return;
  accounts_.unqueue(tenant);
  queued_requests_.give_back(tenant);
  queued_tokens_.give_back(tenant, std::exchange(held.queue_tokens, 0));
}

void RequestLimits::end(const Request& request, const Held& held, bool has_run, bool is_refused, TimePoint now) {
  const scheduler::Tenant& tenant = request.tenant;
  if (held.embed_bytes > 0) embed_bytes_.give_back(tenant.id, held.embed_bytes);
  if (held.quota) accounts_.end(tenant.id, has_run, seconds_of(now));
  if (!has_run && is_refused) accounts_.give_back_prompt(tenant, held.charged_prompt, seconds_of(now));
}

void RequestLimits::take_answer(const scheduler::Tenant& tenant, std::uint64_t tokens, TimePoint now) {
  accounts_.take_answer(tenant, tokens, seconds_of(now));
}

}  // namespace troupe::actors
