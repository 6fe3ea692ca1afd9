// LeaseBook beside a simple twin (lease_twin.h), over a network that loses answers and repeats, delays and reorders
// messages, with senders that end at any point.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "cache/group.h"
#include "cache/lease_book.h"
#include "tests/cache/lease_twin.h"
#include "tests/support/sanitized.h"

using namespace troupe;
using namespace troupe::cache;
using namespace troupe::cache::test;

namespace {

// One sequence, as its sender knows it: the messages sent, and the answers that were not lost.
struct Sender {
  SequenceId id = 0;
  std::uint64_t epoch = 0;
  std::vector<Message> sent;  // number n at index n - 1
  std::uint32_t seen = 0;
  enum class Phase { asking, short_of_blocks, held, ended } phase = Phase::asking;
  std::vector<TokenId> tokens;
  ScopeList scopes;
  TenantId tenant{};
  std::optional<Fork> fork;
  std::size_t table_size = 0;
  std::uint32_t num_committed = 0;  // Commits sent
  std::uint32_t num_prompt = 0;     // tokens when it last asked
  std::vector<SnapshotId> spares;
};

class Model {
 public:
  explicit Model(std::uint64_t seed, int num_windows = 0, bool with_state = false)
      : random_(seed), options_(options_of(random_, num_windows, with_state)), book_(options_), twin_(options_) {}

  const std::map<std::string, std::uint64_t>& seen() const { return twin_.seen; }

  void run(int num_events) {
    for (int i = 0; i < num_events; ++i) {
      const std::uint64_t dice = random_() % 100;
      if (dice < 6 && num_live() < 6) begin_sequence();
      if (dice >= 6 && dice < 30)
        for (Sender& s : senders_)
          if (random_() % 8 == 0 && s.epoch == epoch_) act(s);
      if (dice >= 30 && dice < 90 && !senders_.empty()) deliver_something();
      if (dice >= 90 && dice < 98) end_step();
      if (dice == 98 && random_() % 4 == 0) die();
      if (dice == 99) quiesce();
      twin_.require_same_counts(book_);
      if (i % 16 == 0) book_.check();
      if (i % 50 == 0) require_same_ranges();
    }
    finish();
  }

 private:
  static LeaseBookOptions options_of(std::mt19937_64& random, int num_windows, bool with_state) {
    LeaseBookOptions options{.groups = {{.num_blocks = 4 + static_cast<std::uint32_t>(random() % 16)}}};
    for (int i = 0; i < num_windows; ++i) {
      constexpr std::uint32_t kWindows[] = {1,  2, 16, 33,
                                            34, 70};  // on both sides of the lengths at which one more block is read
      const std::uint32_t window = kWindows[random() % std::size(kWindows)];
      const std::uint32_t num_blocks = most_window_blocks(window) + static_cast<std::uint32_t>(random() % 12);
      options.groups.push_back({.num_blocks = num_blocks, .window = window});
    }
    if (with_state) {
      options.snapshot_rule = {.every = kBlockSize * (1 + static_cast<std::uint32_t>(random() % 3)),
                               .at_prompt_end = random() % 2 == 0};
      options.num_snapshots = static_cast<std::uint32_t>(random() % 7);
    }
    return options;
  }

  std::size_t num_live() const {
    return static_cast<std::size_t>(std::count_if(senders_.begin(), senders_.end(), [&](const Sender& s) {
      return s.epoch == epoch_ && s.phase != Sender::Phase::ended;
    }));
  }

  // --- the senders ---

  LeaseKey next_key(const Sender& s) { return {s.epoch, s.id, static_cast<std::uint32_t>(s.sent.size()) + 1, s.seen}; }

  void begin_sequence() {
    Sender s;
    s.id = ++last_id_;
    s.epoch = epoch_;
    for (std::uint64_t n = random_() % 4; n > 0; --n)
      s.tokens.insert(s.tokens.end(), kBlockSize, static_cast<TokenId>(random_() % 2));
    // Few different tails, so that sequences have equal tokens after their prompts, too.
    append_run(s.tokens);
    const ScopeList lists[] = {{kPublicScope}, scopes_for(TenantId{1}, ""), scopes_for(TenantId{2}, "")};
    const std::size_t list = random_() % 3;
    s.scopes = lists[list];
    s.tenant = TenantId{list == 0 ? 1 + random_() % 3 : list};  // public prefixes are of any
    if (!senders_.empty() && random_() % 3 == 0)
      fork_off(s, senders_[senders_.size() - 1 - random_() % std::min<std::size_t>(senders_.size(), 4)]);
    send_acquire(s);
    senders_.push_back(std::move(s));
  }

  // Forks another sequence at a position that it has reached, or will reach; sometimes long after it has ended.
  void fork_off(Sender& s, const Sender& parent) {
    if (parent.epoch != epoch_) return;
    const auto num_tokens = static_cast<std::uint32_t>(1 + random_() % parent.tokens.size());
    s.fork = Fork{parent.id, num_tokens};
    s.scopes = parent.scopes;
    s.tenant = parent.tenant;
    s.tokens.assign(parent.tokens.begin(), parent.tokens.begin() + num_tokens);
    if (random_() % 2 == 0) append_run(s.tokens);
  }

  // One token, repeated. Two draws in one call would come in an order that each compiler chooses.
  void append_run(std::vector<TokenId>& tokens) {
    const std::uint64_t length = 1 + random_() % 40;
    tokens.insert(tokens.end(), length, static_cast<TokenId>(random_() % 2));
  }

  void send_acquire(Sender& s) {
    const auto known = static_cast<std::uint32_t>(s.tokens.size());
    s.phase = Sender::Phase::asking;
    s.num_prompt = known;
    s.sent.push_back(Acquire{next_key(s), Rank{static_cast<std::int32_t>(random_() % 3), s.id}, s.scopes,
                             std::make_shared<const std::vector<TokenId>>(s.tokens),
                             static_cast<std::uint32_t>(random_() % (blocks_for(known) + 2)),
                             static_cast<std::uint32_t>(random_() % 3 == 0 ? random_() % 4 : 0), s.fork, owner_of(s),
                             static_cast<std::uint32_t>(random_() % 4 == 0 ? random_() % 3 : 0)});
  }

  // Of the tenants 1 has a floor, 2 none and now and then a ceiling, 3 a floor that comes and goes.
  Owner owner_of(const Sender& s) {
    Owner owner{.tenant = s.tenant};
    const std::uint32_t half = options_.groups[0].num_blocks / 2;
    if (s.tenant == TenantId{1}) owner.floor = half + half / 2;
    if (s.tenant == TenantId{2} && has_ceiling_) owner.ceiling = half / 2 + 1;
    if (s.tenant == TenantId{3}) owner.floor = random_() % 2 == 0 ? half : 0;
    return owner;
  }

  // A random message that the sender may send next.
  void act(Sender& s) {
    if (s.phase == Sender::Phase::ended) return;
    const std::uint64_t dice = random_() % 12;
    if (dice == 0) {
      s.sent.push_back(Release{next_key(s), random_() % 2 == 0 ? 0 : last_step_ + random_() % 3});
      s.phase = Sender::Phase::ended;
    } else if (s.phase == Sender::Phase::short_of_blocks) {
      send_acquire(s);
    } else if (s.phase == Sender::Phase::held && dice < 5) {
      s.sent.push_back(Extend{next_key(s), 1 + static_cast<std::uint32_t>(random_() % 3)});
    } else if (s.phase == Sender::Phase::held && dice < 6) {
      s.sent.push_back(Yield{next_key(s)});
    } else if (s.phase == Sender::Phase::held && s.num_committed < s.table_size) {
      const std::uint64_t count = 1 + random_() % (s.table_size - s.num_committed);
      const std::size_t end = (s.num_committed + count) * kBlockSize;
      const auto generated = static_cast<TokenId>(random_() % 2);
      if (s.tokens.size() < end) s.tokens.resize(end, generated);
      const auto first = s.tokens.begin() + static_cast<std::ptrdiff_t>(s.num_committed * kBlockSize);
      s.sent.push_back(Commit{next_key(s),
                              s.num_committed,
                              {first, s.tokens.begin() + static_cast<std::ptrdiff_t>(end)},
                              use_spare(s, static_cast<std::uint32_t>(end))});
      s.num_committed += static_cast<std::uint32_t>(count);
    }
  }

  SnapshotId use_spare(Sender& s, std::uint32_t position) {
    if (s.spares.empty() || !twin_.is_boundary(position, s.num_prompt) || random_() % 4 == 0) return kNoSnapshot;
    const auto spare = s.spares.begin() + static_cast<std::ptrdiff_t>(random_() % s.spares.size());
    const SnapshotId used = *spare;
    s.spares.erase(spare);
    return used;
  }

  void hear(const LeaseAnswer& answer) {
    if (random_() % 10 < 3) return;  // lost
    for (Sender& s : senders_) {
      if (s.id != answer.sequence || s.epoch != answer.epoch || answer.number != s.seen + 1) continue;
      if (std::holds_alternative<Wait>(answer.body)) return;
      s.seen = answer.number;
      const auto* extended = std::get_if<Extended>(&answer.body);
      if (extended != nullptr) s.table_size += extended->blocks[0].size();
      for (SnapshotId spare : spares_of(answer)) s.spares.push_back(spare);
      if (s.phase != Sender::Phase::asking) return;
      if (const auto* acquired = std::get_if<Acquired>(&answer.body)) {
        s.phase = Sender::Phase::held;
        s.table_size = acquired->tables[0].size();
        s.num_committed = acquired->num_cached_tokens / kBlockSize;
      } else if (std::holds_alternative<Short>(answer.body)) {
        s.phase = Sender::Phase::short_of_blocks;
      }
    }
  }

  static std::vector<SnapshotId> spares_of(const LeaseAnswer& answer) {
    if (const auto* acquired = std::get_if<Acquired>(&answer.body)) return acquired->spares;
    if (const auto* extended = std::get_if<Extended>(&answer.body)) return extended->spares;
    if (const auto* committed = std::get_if<Committed>(&answer.body)) return committed->spares;
    return {};
  }

  // --- the network ---

  void deliver_something() {
    // Mostly recent sequences: older ones have ended.
    const std::size_t youngest = std::min<std::size_t>(senders_.size(), 8);
    const Sender& s = random_() % 8 == 0 ? senders_[random_() % senders_.size()]
                                         : senders_[senders_.size() - 1 - random_() % youngest];
    // Mostly a message without an answer, sometimes any that was ever sent.
    const std::size_t from = random_() % 4 == 0 ? 0 : std::min<std::size_t>(s.seen, s.sent.size() - 1);
    deliver(Message(s.sent[from + random_() % (s.sent.size() - from)]));
  }

  void deliver(const Message& message) {
    effects_.clear();
    std::visit(
        [&](const auto& m) {
          using M = std::decay_t<decltype(m)>;
          if constexpr (std::is_same_v<M, Acquire>) book_.acquire(m, effects_);
          if constexpr (std::is_same_v<M, Extend>) book_.extend(m, effects_);
          if constexpr (std::is_same_v<M, Commit>) book_.commit(m, effects_);
          if constexpr (std::is_same_v<M, Yield>) book_.yield(m, effects_);
          if constexpr (std::is_same_v<M, Release>) book_.release(m, effects_);
        },
        message);
    twin_.follow(message, effects_);
    for (const LeaseAnswer& answer : effects_.answers) hear(answer);
  }

  // --- prefixes ---

  void require_same_ranges() {
    const ScopeList lists[] = {{kPublicScope}, scopes_for(TenantId{1}, ""), scopes_for(TenantId{2}, "")};
    const ScopeList& scopes = lists[random_() % 3];
    twin_.require_same_ranges(book_, scopes);
    REQUIRE_FALSE(book_.find_recyclable_range(scopes, random_()));
    for (const Sender& s : senders_)
      REQUIRE(book_.predict(scopes, s.tokens).cached_tokens == twin_.cached_tokens(scopes, s.tokens));
  }

  // --- steps, restarts, the end ---

  void end_step() {
    book_.step_done(epoch_, ++last_step_);
    if (random_() % 3 == 0) book_.step_done(epoch_, last_step_);
    if (random_() % 3 == 0 && epoch_ > 1) book_.step_done(epoch_ - 1, last_step_ + 100);  // of an old epoch: ignored
    twin_.step_done(last_step_);
  }

  void die() {
    last_step_ = 0;
    book_.begin_epoch(++epoch_);
    twin_.begin_epoch(epoch_);
    if (random_() % 2 == 0) last_id_ = 0;  // ids belong to an epoch
    if (senders_.size() > 20) senders_.erase(senders_.begin(), senders_.begin() + 10);
  }

  void quiesce() {
    if (epoch_ == 1) return;
    const std::uint64_t epoch = epoch_ - 1 - random_() % std::min<std::uint64_t>(2, epoch_ - 1);
    book_.quiesced(epoch);
    twin_.quiesced(epoch);
  }

  // Every sender of this epoch releases, and repeats the message until it is answered.
  void finish() {
    for (Sender& s : senders_) {
      if (s.epoch != epoch_) continue;
      if (s.phase != Sender::Phase::ended) s.sent.push_back(Release{next_key(s), last_step_});
      s.phase = Sender::Phase::ended;
    }
    for (int round = 0; twin_.is_anyone_there() || round == 0; ++round) {
      REQUIRE(round < 1000);
      for (std::size_t i = 0; i < senders_.size(); ++i)
        for (std::size_t n = 0; n < senders_[i].sent.size(); ++n) deliver(Message(senders_[i].sent[n]));
    }
    for (int i = 0; i < 4; ++i) end_step();
    if (epoch_ > 1) book_.quiesced(epoch_ - 1);
    twin_.quiesced(epoch_ - 1);
    book_.check();
    twin_.require_same_counts(book_);
    const CacheCounters counters = book_.counters();
    for (const PoolCounters& blocks : counters.groups) REQUIRE(blocks.referenced() == 0);
    REQUIRE(counters.groups[0].free + counters.groups[0].cached == counters.groups[0].total);
    REQUIRE(counters.snapshots.available == options_.num_snapshots);
  }

  std::mt19937_64 random_;
  const LeaseBookOptions options_;
  const bool has_ceiling_ = random_() % 2 == 0;
  LeaseBook book_;
  BookTwin twin_;
  LeaseEffects effects_;
  std::uint64_t epoch_ = 1;
  std::vector<Sender> senders_;
  SequenceId last_id_ = 0;
  std::uint64_t last_step_ = 0;
};

void require_same_as_twin(int num_windows, bool with_state, std::initializer_list<const char*> events) {
  std::map<std::string, std::uint64_t> seen;
  for (std::uint64_t seed = 1; seed <= (troupe::test::kSanitized ? 20 : 80); ++seed) {
    INFO("seed " << seed);
    Model model(seed, num_windows, with_state);
    model.run(2500);
    for (const auto& [what, count] : model.seen()) seen[what] += count;
  }
  if (troupe::test::kSanitized) return;  // fewer seeds
  for (const char* what : events) {
    INFO(what << ": " << seen[what]);
    CHECK(seen[what] >= 50);
  }
}

}  // namespace

TEST_CASE("leases agree with their twin when messages are lost and senders end, and all blocks are freed") {
  require_same_as_twin(0, false,
                       {"wait",
                        "follower woken",
                        "follower ended",
                        "follower died",
                        "holder died",
                        "short",
                        "short extend",
                        "repeated",
                        "acquired with a prefix",
                        "acquired without a prefix",
                        "evicted",
                        "swapped",
                        "forked with a copy",
                        "forked at the end of a block",
                        "range found",
                        "range gone or hidden",
                        "short at the ceiling",
                        "short because of floors",
                        "evicted at the ceiling",
                        "evicted another tenant's block",
                        "evicted a common block",
                        "evicted within a floor",
                        "became common"});
}

TEST_CASE("leases of models with windows agree with their twin, and everything comes back") {
  require_same_as_twin(1, false,
                       {"wait", "follower woken", "follower died", "holder died", "short", "short extend", "repeated",
                        "acquired with a prefix", "evicted with a window block", "window block evicted",
                        "window block swapped", "window block let go", "window shared", "prefix cut",
                        "forked with a copy", "forked at the end of a block", "range found", "range gone or hidden"});
}

TEST_CASE("leases of models with three cache groups agree with their twin, and everything comes back") {
  require_same_as_twin(2, false,
                       {"wait", "follower woken", "follower died", "holder died", "short", "short extend", "repeated",
                        "acquired with a prefix", "evicted with a window block", "window block evicted",
                        "window block swapped", "window block let go", "window shared", "prefix cut",
                        "forked with a copy", "forked at the end of a block", "range found", "range gone or hidden"});
}

TEST_CASE("leases of models with recurrent state agree with their twin, and everything comes back") {
  require_same_as_twin(0, true,
                       {"wait", "follower woken", "follower died", "holder died", "short", "repeated", "restored",
                        "evicted with a snapshot", "snapshot evicted", "snapshot attached", "no spare", "prefix cut",
                        "range found", "range gone or hidden"});
}

TEST_CASE("leases of models with windows and recurrent state agree with their twin, and everything comes back") {
  require_same_as_twin(1, true,
                       {"wait", "follower woken", "follower died", "holder died", "short", "restored", "window shared",
                        "window block swapped", "window block evicted", "snapshot evicted", "snapshot attached"});
}
