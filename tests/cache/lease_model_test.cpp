// LeaseBook beside a simple twin kept in maps, over a network that loses answers and repeats, delays and reorders
// messages, with holders that die at any point.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "cache/lease_book.h"

using namespace troupe;
using namespace troupe::cache;

namespace {

using Message = std::variant<Acquire, Extend, Commit, Yield, Release>;

const LeaseKey& key_of(const Message& message) {
  return std::visit([](const auto& m) -> const LeaseKey& { return m.key; }, message);
}

// One sequence, as its sender knows it: what was sent, and the answers that were not lost.
struct Sender {
  SequenceId id = 0;
  std::uint64_t epoch = 0;
  std::vector<Message> sent;  // number n at index n - 1
  std::uint32_t seen = 0;
  enum class Phase { asking, short_of_blocks, held, ended } phase = Phase::asking;
  std::vector<TokenId> tokens;
  ScopeList scopes;
  std::optional<Fork> fork;
  std::size_t table_size = 0;
  std::uint32_t num_committed = 0;  // Commits sent
};

// One sequence, as the book must know it.
struct Twin {
  std::uint32_t last = 0;
  std::map<std::uint32_t, LeaseAnswer> answers;  // not seen yet
  bool waiting = false, held = false, yielded = false;
  Acquire asked;
  std::vector<BlockId> table;
  std::uint32_t num_committed = 0;
  std::vector<std::pair<std::uint32_t, BlockId>> displaced;  // or copied from; by the number of the message
};

// A cached block: what it says, and where it hangs.
struct Content {
  BlockId parent;
  ScopeId scope;
  std::vector<TokenId> tokens;
};

class Model {
 public:
  explicit Model(std::uint64_t seed)
      : random_(seed),
        num_blocks_(4 + static_cast<std::uint32_t>(random_() % 16)),
        book_({.num_blocks = num_blocks_}) {}

  // How often each thing happened, to see that the model meets them all.
  std::map<std::string, std::uint64_t> seen;

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
      require_same_counts();
      if (i % 16 == 0) book_.check();
      if (i % 50 == 0) require_same_ranges();
    }
    finish();
  }

 private:
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
    // Few different tails, so that sequences meet again after their prompts.
    s.tokens.insert(s.tokens.end(), 1 + random_() % 40, static_cast<TokenId>(random_() % 2));
    const ScopeList lists[] = {{kPublicScope}, scopes_for(1, ""), scopes_for(2, "")};
    s.scopes = lists[random_() % 3];
    if (!senders_.empty() && random_() % 3 == 0)
      fork_off(s, senders_[senders_.size() - 1 - random_() % std::min<std::size_t>(senders_.size(), 4)]);
    send_acquire(s);
    senders_.push_back(std::move(s));
  }

  // Begins where another one is, or will be once its messages are heard; sometimes long after it has ended.
  void fork_off(Sender& s, const Sender& parent) {
    if (parent.epoch != epoch_) return;
    const auto num_tokens = static_cast<std::uint32_t>(1 + random_() % parent.tokens.size());
    s.fork = Fork{parent.id, num_tokens};
    s.scopes = parent.scopes;
    s.tokens.assign(parent.tokens.begin(), parent.tokens.begin() + num_tokens);
    if (random_() % 2 == 0) s.tokens.insert(s.tokens.end(), 1 + random_() % 40, static_cast<TokenId>(random_() % 2));
  }

  void send_acquire(Sender& s) {
    const auto known = static_cast<std::uint32_t>(s.tokens.size());
    s.phase = Sender::Phase::asking;
    s.sent.push_back(Acquire{next_key(s), Rank{static_cast<std::int32_t>(random_() % 3), s.id}, s.scopes,
                             std::make_shared<const std::vector<TokenId>>(s.tokens),
                             static_cast<std::uint32_t>(random_() % (blocks_for(known) + 2)),
                             static_cast<std::uint32_t>(random_() % 3 == 0 ? random_() % 4 : 0), s.fork});
  }

  // Whatever a sender may do next.
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
      s.sent.push_back(
          Commit{next_key(s), s.num_committed, {first, s.tokens.begin() + static_cast<std::ptrdiff_t>(end)}});
      s.num_committed += static_cast<std::uint32_t>(count);
    }
  }

  void hear(const LeaseAnswer& answer) {
    if (random_() % 10 < 3) return;  // lost
    for (Sender& s : senders_) {
      if (s.id != answer.sequence || s.epoch != answer.epoch || answer.number != s.seen + 1) continue;
      if (std::holds_alternative<Wait>(answer.body)) return;
      s.seen = answer.number;
      const auto* extended = std::get_if<Extended>(&answer.body);
      if (extended != nullptr) s.table_size += extended->blocks.size();
      if (s.phase != Sender::Phase::asking) return;
      if (const auto* acquired = std::get_if<Acquired>(&answer.body)) {
        s.phase = Sender::Phase::held;
        s.table_size = acquired->blocks.size();
        s.num_committed = acquired->num_cached_tokens / kBlockSize;
      } else if (std::holds_alternative<Short>(answer.body)) {
        s.phase = Sender::Phase::short_of_blocks;
      }
    }
  }

  // --- the network ---

  void deliver_something() {
    // Mostly the young: the old have ended.
    const std::size_t youngest = std::min<std::size_t>(senders_.size(), 8);
    const Sender& s = random_() % 8 == 0 ? senders_[random_() % senders_.size()]
                                         : senders_[senders_.size() - 1 - random_() % youngest];
    // Mostly what is unanswered, sometimes anything that was ever sent.
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
    follow(message);
    for (const LeaseAnswer& answer : effects_.answers) hear(answer);
  }

  // --- the twin ---

  void follow(const Message& message) {
    const LeaseKey& key = key_of(message);
    if (key.epoch != epoch_) {
      REQUIRE(effects_.answers.empty());
      return;
    }
    if (ended_.contains(key.sequence)) {
      REQUIRE(effects_.answers.size() == (std::holds_alternative<Release>(message) ? 1 : 0));
      return;
    }
    const bool is_known = twins_.contains(key.sequence);
    const std::uint32_t last = is_known ? twins_.at(key.sequence).last : 0;
    if (key.number <= last) {
      const auto& answers = twins_.at(key.sequence).answers;
      const auto given = answers.find(key.number);
      REQUIRE(effects_.answers.size() == (given != answers.end() ? 1 : 0));
      if (given == answers.end()) return;
      ++seen["repeated"];
      REQUIRE(effects_.answers[0].number == key.number);
      if (!std::holds_alternative<Wait>(given->second.body))  // whom it waits for may have changed
        REQUIRE(effects_.answers[0].body == given->second.body);
      return;
    }
    if (key.number != last + 1) {
      REQUIRE(effects_.answers.empty());
      return;
    }

    Twin& twin = twins_[key.sequence];
    twin.last = key.number;
    std::erase_if(twin.answers, [&](const auto& given) { return given.first <= key.seen; });
    std::erase_if(twin.displaced, [&](const auto& entry) { return entry.first <= key.seen; });
    REQUIRE_FALSE(effects_.answers.empty());
    REQUIRE(effects_.answers[0].sequence == key.sequence);
    std::visit([&](const auto& m) { follow(m, twin, effects_.answers[0]); }, message);
    // Then followers hear of it.
    for (std::size_t i = 1; i < effects_.answers.size(); ++i) {
      const LeaseAnswer& answer = effects_.answers[i];
      Twin& follower = twins_.at(answer.sequence);
      REQUIRE(follower.waiting);
      REQUIRE(answer.number == follower.last);
      REQUIRE_FALSE(std::holds_alternative<Wait>(answer.body));
      settle(follower, answer);
    }
  }

  void follow(const Acquire& m, Twin& twin, const LeaseAnswer& answer) {
    twin.asked = m;
    settle(twin, answer);
  }

  void settle(Twin& twin, const LeaseAnswer& answer) {
    const Acquire& m = twin.asked;
    twin.answers[m.key.number] = answer;
    if (twin.waiting) ++seen["follower woken"];
    twin.waiting = std::holds_alternative<Wait>(answer.body);
    const Forked forked = fork_of(m);
    const std::uint32_t longest = std::max(longest_cached(m), forked.num_shared);
    const std::set<BlockId> held = all_held();
    const std::uint32_t available = num_blocks_ - static_cast<std::uint32_t>(held.size());
    const std::uint32_t want = std::max({m.want, longest, forked.copy_from != kNoBlock ? longest + 1 : 0});
    const std::uint32_t asked = want - longest + m.headroom;
    if (const auto* wait = std::get_if<Wait>(&answer.body)) {
      ++seen["wait"];
      REQUIRE_FALSE(forked.is_served);
      const Twin& leader = twins_.at(wait->leader);
      REQUIRE(leader.held);
      REQUIRE_FALSE(leader.yielded);
      REQUIRE(leader.num_committed <= longest);
      REQUIRE(m.scopes.contains(leader.asked.scopes.publish()));
      const auto& theirs = *leader.asked.tokens;
      const std::size_t shared = (std::size_t{longest} + 1) * kBlockSize;
      REQUIRE(theirs.size() >= shared);
      REQUIRE(std::equal(theirs.begin(), theirs.begin() + static_cast<std::ptrdiff_t>(shared), m.tokens->begin()));
    } else if (const auto* denied = std::get_if<Short>(&answer.body)) {
      ++seen["short"];
      REQUIRE(denied->available <= available);
      REQUIRE(asked > denied->available);
    } else {
      const auto& acquired = std::get<Acquired>(answer.body);
      REQUIRE(acquired.num_cached_tokens == longest * kBlockSize);
      REQUIRE(acquired.num_cached_tokens < m.tokens->size());
      REQUIRE(acquired.num_cached_tokens + acquired.num_copied_tokens < m.tokens->size());
      REQUIRE(acquired.blocks.size() == want);
      REQUIRE(asked <= available);
      REQUIRE(acquired.copy_from == forked.copy_from);
      REQUIRE(acquired.num_copied_tokens == forked.num_copied);
      if (forked.is_served) {
        const std::vector<BlockId>& table = twins_.at(m.fork->parent).table;
        REQUIRE(std::equal(table.begin(), table.begin() + longest, acquired.blocks.begin()));
        ++seen[forked.num_copied > 0 ? "forked with a copy" : "forked at the end of a block"];
      }
      if (forked.num_copied > 0) twin.displaced.push_back({m.key.number, forked.copy_from});
      BlockId parent = kNoBlock;
      for (std::uint32_t i = 0; i < longest; ++i) {
        const Content& content = contents_.at(acquired.blocks[i]);
        REQUIRE(content.parent == parent);
        REQUIRE(m.scopes.contains(content.scope));
        REQUIRE(std::equal(content.tokens.begin(), content.tokens.end(),
                           m.tokens->begin() + static_cast<std::ptrdiff_t>(i * kBlockSize)));
        parent = acquired.blocks[i];
      }
      ++seen[longest > 0 ? "acquired with a prefix" : "acquired without a prefix"];
      twin.held = true;
      twin.table.assign(acquired.blocks.begin(), acquired.blocks.begin() + longest);
      twin.num_committed = longest;
      for (std::size_t i = longest; i < acquired.blocks.size(); ++i) take_fresh(twin, acquired.blocks[i]);
    }
  }

  // What a fork gets, if it is served.
  struct Forked {
    bool is_served = false;
    std::uint32_t num_shared = 0;
    std::uint32_t num_copied = 0;
    BlockId copy_from = kNoBlock;
  };
  Forked fork_of(const Acquire& m) const {
    if (!m.fork || !twins_.contains(m.fork->parent)) return {};
    const Twin& parent = twins_.at(m.fork->parent);
    const auto servable = std::min<std::size_t>(m.fork->num_tokens, m.tokens->size() - 1);
    const auto num_shared = static_cast<std::uint32_t>(servable / kBlockSize);
    if (!parent.held || parent.num_committed < num_shared || longest_cached(m) > num_shared) return {};
    Forked forked{.is_served = true, .num_shared = num_shared};
    if (servable % kBlockSize > 0 && parent.table.size() > num_shared) {
      forked.num_copied = servable % kBlockSize;
      forked.copy_from = parent.table[num_shared];
    }
    return forked;
  }

  void take_fresh(Twin& twin, BlockId block) {
    REQUIRE(block < num_blocks_);
    REQUIRE_FALSE(all_held().contains(block));
    if (contents_.contains(block)) {  // evicted: a leaf, and only when nothing was free
      const std::set<BlockId> held = all_held();
      for (BlockId other = 0; other < num_blocks_; ++other)
        REQUIRE((held.contains(other) || contents_.contains(other)));
      for (const auto& [child, content] : contents_) REQUIRE(content.parent != block);
      contents_.erase(block);
      ++seen["evicted"];
    }
    twin.table.push_back(block);
  }

  void follow(const Extend& m, Twin& twin, const LeaseAnswer& answer) {
    twin.answers[m.key.number] = answer;
    const auto available = num_blocks_ - static_cast<std::uint32_t>(all_held().size());
    if (m.num_blocks > available) {
      ++seen["short extend"];
      REQUIRE(std::get<Short>(answer.body) == Short{available});
      return;
    }
    const auto& extended = std::get<Extended>(answer.body);
    REQUIRE(extended.blocks.size() == m.num_blocks);
    for (BlockId block : extended.blocks) take_fresh(twin, block);
  }

  void follow(const Commit& m, Twin& twin, const LeaseAnswer& answer) {
    twin.answers[m.key.number] = answer;
    const auto& committed = std::get<Committed>(answer.body);
    REQUIRE(committed.first_block == m.first_block);
    REQUIRE(committed.blocks.size() == m.tokens.size() / kBlockSize);
    for (std::uint32_t i = 0; i < committed.blocks.size(); ++i) {
      const std::uint32_t index = m.first_block + i;
      const BlockId parent = index == 0 ? kNoBlock : twin.table[index - 1];
      const auto first = m.tokens.begin() + static_cast<std::ptrdiff_t>(i * kBlockSize);
      const std::vector<TokenId> tokens(first, first + kBlockSize);
      BlockId& own = twin.table[index];
      const std::optional<BlockId> other = find_child(parent, twin.asked.scopes, tokens);
      REQUIRE(committed.blocks[i] == other.value_or(own));
      if (other) {
        ++seen["swapped"];
        twin.displaced.push_back({m.key.number, own});
        own = *other;
      } else {
        contents_[own] = {parent, twin.asked.scopes.publish(), tokens};
      }
      twin.num_committed = index + 1;
    }
  }

  void follow(const Yield& m, Twin& twin, const LeaseAnswer& answer) {
    twin.answers[m.key.number] = answer;
    REQUIRE(std::get<Acknowledged>(answer.body) == Acknowledged{});
    twin.yielded = true;
  }

  void follow(const Release& m, Twin& twin, const LeaseAnswer& answer) {
    REQUIRE(std::get<Acknowledged>(answer.body) == Acknowledged{});
    if (twin.waiting) ++seen["follower ended"];
    if (m.after_step > done_step_) awaiting_step_.push_back({m.after_step, blocks_of(twin)});
    ended_.insert(m.key.sequence);
    twins_.erase(m.key.sequence);
  }

  static std::vector<BlockId> blocks_of(const Twin& twin) {
    std::vector<BlockId> blocks = twin.table;
    for (const auto& [number, block] : twin.displaced) blocks.push_back(block);
    return blocks;
  }

  std::set<BlockId> all_held() const {
    std::set<BlockId> held;
    for (const auto& [id, twin] : twins_)
      for (BlockId block : blocks_of(twin)) held.insert(block);
    for (const auto& [step, blocks] : awaiting_step_) held.insert(blocks.begin(), blocks.end());
    for (const auto& [epoch, blocks] : orphans_) held.insert(blocks.begin(), blocks.end());
    return held;
  }

  std::optional<BlockId> find_child(BlockId parent, const ScopeList& scopes, const std::vector<TokenId>& tokens) const {
    for (ScopeId scope : scopes)
      for (const auto& [block, content] : contents_)
        if (content.parent == parent && content.scope == scope && content.tokens == tokens) return block;
    return std::nullopt;
  }

  // By trying all paths.
  std::uint32_t longest_cached(const Acquire& m) const {
    const auto limit = static_cast<std::uint32_t>((m.tokens->size() - 1) / kBlockSize);
    std::set<BlockId> ends = {kNoBlock};
    for (std::uint32_t depth = 0; depth < limit; ++depth) {
      const auto first = m.tokens->begin() + static_cast<std::ptrdiff_t>(depth * kBlockSize);
      std::set<BlockId> next;
      for (const auto& [block, content] : contents_)
        if (ends.contains(content.parent) && m.scopes.contains(content.scope) &&
            std::equal(content.tokens.begin(), content.tokens.end(), first))
          next.insert(block);
      if (next.empty()) return depth;
      ends = next;
    }
    return limit;
  }

  // --- anchors ---

  // Every anchor there ever was, asked for through some scopes, against all prefixes by their tokens.
  void require_same_ranges() {
    const ScopeList lists[] = {{kPublicScope}, scopes_for(1, ""), scopes_for(2, "")};
    const ScopeList& scopes = lists[random_() % 3];
    std::map<std::uint64_t, std::uint32_t> visible;  // end by name
    for (const auto& [block, content] : contents_) {
      std::vector<TokenId> tokens;
      bool is_visible = true;
      for (BlockId at = block; at != kNoBlock; at = contents_.at(at).parent) {
        const Content& step = contents_.at(at);
        tokens.insert(tokens.begin(), step.tokens.begin(), step.tokens.end());
        is_visible = is_visible && scopes.contains(step.scope);
      }
      const Anchor anchor = anchors_of(tokens).back();
      REQUIRE(anchor.position == tokens.size());
      anchors_.insert(anchor.hash);
      if (is_visible) visible[anchor.hash] = std::max(visible[anchor.hash], anchor.position);
    }
    for (const std::uint64_t hash : anchors_) {
      const auto range = book_.find_recyclable_range(scopes, hash);
      const auto expected = visible.find(hash);
      REQUIRE(range.has_value() == (expected != visible.end()));
      if (range) REQUIRE(*range == CachedRange{0, expected->second});
      ++seen[range ? "range found" : "range gone or hidden"];
    }
    REQUIRE_FALSE(book_.find_recyclable_range(scopes, random_()));
  }

  // --- steps, deaths, the end ---

  void end_step() {
    book_.step_done(epoch_, ++last_step_);
    if (random_() % 3 == 0) book_.step_done(epoch_, last_step_);
    if (random_() % 3 == 0 && epoch_ > 1) book_.step_done(epoch_ - 1, last_step_ + 100);  // of the dead: means nothing
    done_step_ = last_step_;
    std::erase_if(awaiting_step_, [&](const auto& entry) { return entry.first <= done_step_; });
  }

  void die() {
    for (const auto& [id, twin] : twins_) {
      orphans_.push_back({epoch_, blocks_of(twin)});
      ++seen[twin.waiting ? "follower died" : "holder died"];
    }
    for (const auto& [step, blocks] : awaiting_step_) orphans_.push_back({epoch_, blocks});
    twins_.clear();
    awaiting_step_.clear();
    ended_.clear();
    done_step_ = last_step_ = 0;
    book_.begin_epoch(++epoch_);
    if (random_() % 2 == 0) last_id_ = 0;  // ids belong to an epoch
    if (senders_.size() > 20) senders_.erase(senders_.begin(), senders_.begin() + 10);
  }

  void quiesce() {
    if (epoch_ == 1) return;
    const std::uint64_t epoch = epoch_ - 1 - random_() % std::min<std::uint64_t>(2, epoch_ - 1);
    book_.quiesced(epoch);
    std::erase_if(orphans_, [&](const auto& orphan) { return orphan.first <= epoch; });
  }

  void require_same_counts() const {
    const CacheCounters counters = book_.counters();
    REQUIRE(counters.total == num_blocks_);
    REQUIRE(counters.referenced == all_held().size());
    REQUIRE(counters.cached == contents_.size());
    std::set<BlockId> used = all_held();
    for (const auto& [block, content] : contents_) used.insert(block);
    REQUIRE(counters.free == num_blocks_ - used.size());
    REQUIRE(counters.waiting ==
            std::count_if(twins_.begin(), twins_.end(), [](const auto& entry) { return entry.second.waiting; }));
  }

  // Every sender of this epoch releases, and repeats itself until it is heard.
  void finish() {
    for (Sender& s : senders_) {
      if (s.epoch != epoch_) continue;
      if (s.phase != Sender::Phase::ended) s.sent.push_back(Release{next_key(s), last_step_});
      s.phase = Sender::Phase::ended;
    }
    for (int round = 0; !twins_.empty() || round == 0; ++round) {
      REQUIRE(round < 1000);
      for (std::size_t i = 0; i < senders_.size(); ++i)
        for (std::size_t n = 0; n < senders_[i].sent.size(); ++n) deliver(Message(senders_[i].sent[n]));
    }
    for (int i = 0; i < 4; ++i) end_step();
    if (epoch_ > 1) book_.quiesced(epoch_ - 1);
    orphans_.clear();
    book_.check();
    require_same_counts();
    const CacheCounters counters = book_.counters();
    REQUIRE(counters.referenced == 0);
    REQUIRE(counters.free + counters.cached == counters.total);
  }

  std::mt19937_64 random_;
  std::uint32_t num_blocks_;
  LeaseBook book_;
  LeaseEffects effects_;
  std::uint64_t epoch_ = 1;
  std::vector<Sender> senders_;
  SequenceId last_id_ = 0;
  std::uint64_t last_step_ = 0, done_step_ = 0;

  std::map<SequenceId, Twin> twins_;
  std::set<SequenceId> ended_;
  std::map<BlockId, Content> contents_;
  std::set<std::uint64_t> anchors_;  // names of all prefixes seen so far
  std::vector<std::pair<std::uint64_t, std::vector<BlockId>>> awaiting_step_;
  std::vector<std::pair<std::uint64_t, std::vector<BlockId>>> orphans_;
};

}  // namespace

TEST_CASE("leases agree with their twin over a bad network and dying holders, and everything comes back") {
  std::map<std::string, std::uint64_t> seen;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    INFO("seed " << seed);
    Model model(seed);
    model.run(2500);
    for (const auto& [what, count] : model.seen) seen[what] += count;
  }
  for (const char* what :
       {"wait", "follower woken", "follower ended", "follower died", "holder died", "short", "short extend", "repeated",
        "acquired with a prefix", "acquired without a prefix", "evicted", "swapped", "forked with a copy",
        "forked at the end of a block", "range found", "range gone or hidden"}) {
    INFO(what << ": " << seen[what]);
    CHECK(seen[what] >= 50);
  }
}
