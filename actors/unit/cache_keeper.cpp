#include "actors/unit/cache_keeper.h"

namespace troupe::actors {
namespace {

template <class... Fs>
struct Overloaded : Fs... {
  using Fs::operator()...;
};
template <class... Fs>
Overloaded(Fs...) -> Overloaded<Fs...>;

}  // namespace

CacheKeeper::CacheKeeper(caf::actor_config& cfg, cache::LeaseBookOptions options, Counters& counters,
                         UnitQuestions* questions)
    : ActorBase(cfg, "cache keeper"), book_(std::move(options)), counters_(counters), questions_(questions) {}

caf::behavior CacheKeeper::make_behavior() {
  counters_.cache(book_.counters());
  return {
      [this](const msg::Lease& lease) {
        auto reply = std::make_shared<LeaseReply>();
        for (const scheduler::LeaseMessage& message : *lease.messages) handle(message, *reply);
        for (const TimePoint cancelled : lease.cancelled) counters_.freed(seconds_between(cancelled, now()));
        counters_.cache(book_.counters());
        if (reply->effects.answers.empty() && reply->effects.inherited.empty() && reply->predictions.empty()) return;
        send(sender(), msg::Leased{std::move(reply)});
      },
      [this](const msg::BeginEpoch& begin) { book_.begin_epoch(begin.epoch); },
      [this](const msg::Quiesced& quiesced) {
        book_.quiesced(quiesced.epoch);
        counters_.cache(book_.counters());
      },
      [this](const msg::FindCached& find) {
        if (const auto question = questions_->cache.take(find.number)) (*question)->answer(book_);
      },
      [this](const msg::Fence& fence) { send(fence.telemetry, msg::Fenced{fence.number}); },
      msg::throw_for_test,
  };
}

void CacheKeeper::handle(const scheduler::LeaseMessage& message, LeaseReply& reply) {
  std::visit(Overloaded{
                 [&](const scheduler::StepEnded& m) { book_.step_done(m.epoch, m.step); },
                 [&](const cache::Acquire& m) { book_.acquire(m, reply.effects); },
                 [&](const cache::Extend& m) { book_.extend(m, reply.effects); },
                 [&](const cache::Commit& m) { book_.commit(m, reply.effects); },
                 [&](const cache::Yield& m) { book_.yield(m, reply.effects); },
                 [&](const cache::Release& m) { book_.release(m, reply.effects); },
                 [&](const scheduler::Predict& m) {
                   const cache::PrefixPrediction found = book_.predict(m.scopes, *m.tokens);
                   reply.predictions.push_back({m.request, found.cached_tokens + found.in_flight_tokens});
                 },
             },
             message);
}

}  // namespace troupe::actors
