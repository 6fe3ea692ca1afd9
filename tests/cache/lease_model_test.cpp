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
#include "cache/window.h"

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
  std::uint32_t num_prompt = 0;     // tokens when it last asked
  std::vector<SnapshotId> spares;
};

// One sequence, as the book must know it.
struct Twin {
  std::uint32_t last = 0;
  std::map<std::uint32_t, LeaseAnswer> answers;  // not seen yet
  bool waiting = false, held = false, yielded = false;
  Acquire asked;
  std::vector<BlockId> table;
  std::uint32_t num_committed = 0;
  std::vector<BlockId> window_table;
  SnapshotId restore = kNoSnapshot;
  std::vector<SnapshotId> spares;
  // Swapped, or copied from; by the number of the message.
  std::vector<std::pair<std::uint32_t, BlockId>> displaced, displaced_windows;
};

// Ids that nobody else may get.
struct Held {
  std::set<BlockId> blocks, windows;
  std::set<SnapshotId> snapshots;
};

// A cached block: what it says, and where it hangs.
struct Content {
  BlockId parent;
  ScopeId scope;
  std::vector<TokenId> tokens;
};

class Model {
 public:
  explicit Model(std::uint64_t seed, bool with_windows = false, bool with_state = false)
      : random_(seed), options_(options_of(random_, with_windows, with_state)), book_(options_) {}

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
  static LeaseBookOptions options_of(std::mt19937_64& random, bool with_windows, bool with_state) {
    LeaseBookOptions options{.num_blocks = 4 + static_cast<std::uint32_t>(random() % 16)};
    if (with_windows) {
      constexpr std::uint32_t kWindows[] = {1, 16, 33, 40, 70};
      options.window = kWindows[random() % 5];
      options.num_window_blocks = most_window_blocks(options.window) + static_cast<std::uint32_t>(random() % 12);
    }
    if (with_state) {
      options.snapshot_rule = {.every = kBlockSize * (1 + static_cast<std::uint32_t>(random() % 3)),
                               .at_prompt_end = random() % 2 == 0};
      options.num_snapshots = static_cast<std::uint32_t>(random() % 7);
    }
    return options;
  }
  bool has_windows() const { return options_.window > 0; }
  bool has_state() const { return options_.snapshot_rule.every > 0; }

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
    s.num_prompt = known;
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
      s.sent.push_back(Commit{next_key(s),
                              s.num_committed,
                              {first, s.tokens.begin() + static_cast<std::ptrdiff_t>(end)},
                              use_spare(s, static_cast<std::uint32_t>(end))});
      s.num_committed += static_cast<std::uint32_t>(count);
    }
  }

  SnapshotId use_spare(Sender& s, std::uint32_t position) {
    if (s.spares.empty() || !is_boundary(position, s.num_prompt) || random_() % 4 == 0) return kNoSnapshot;
    const auto spare = s.spares.begin() + static_cast<std::ptrdiff_t>(random_() % s.spares.size());
    const SnapshotId used = *spare;
    s.spares.erase(spare);
    return used;
  }

  bool is_boundary(std::uint32_t position, std::uint32_t num_prompt) const {
    const SnapshotRule& rule = options_.snapshot_rule;
    return position % rule.every == 0 ||
           (rule.at_prompt_end && position < num_prompt && position + kBlockSize >= num_prompt);
  }

  void hear(const LeaseAnswer& answer) {
    if (random_() % 10 < 3) return;  // lost
    for (Sender& s : senders_) {
      if (s.id != answer.sequence || s.epoch != answer.epoch || answer.number != s.seen + 1) continue;
      if (std::holds_alternative<Wait>(answer.body)) return;
      s.seen = answer.number;
      const auto* extended = std::get_if<Extended>(&answer.body);
      if (extended != nullptr) s.table_size += extended->blocks.size();
      for (SnapshotId spare : spares_of(answer)) s.spares.push_back(spare);
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

  static std::vector<SnapshotId> spares_of(const LeaseAnswer& answer) {
    if (const auto* acquired = std::get_if<Acquired>(&answer.body)) return acquired->spares;
    if (const auto* extended = std::get_if<Extended>(&answer.body)) return extended->spares;
    if (const auto* committed = std::get_if<Committed>(&answer.body)) return committed->spares;
    return {};
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
    std::erase_if(twin.displaced_windows, [&](const auto& entry) { return entry.first <= key.seen; });
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
    std::vector<BlockId> nodes = longest_path(m.scopes, *m.tokens);
    nodes.resize(served(nodes));
    if (forked.is_served) {
      const std::vector<BlockId>& table = twins_.at(m.fork->parent).table;
      nodes.assign(table.begin(), table.begin() + forked.num_shared);
    }
    const auto longest = static_cast<std::uint32_t>(nodes.size());
    const std::uint32_t available = room_beside(nodes);
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
      if (has_state()) REQUIRE(leaves_useful_snapshot(theirs, *m.tokens, longest * kBlockSize));
    } else if (const auto* denied = std::get_if<Short>(&answer.body)) {
      ++seen["short"];
      REQUIRE(denied->available == available);
      REQUIRE(asked > available);
    } else {
      const auto& acquired = std::get<Acquired>(answer.body);
      REQUIRE(acquired.num_cached_tokens == longest * kBlockSize);
      REQUIRE(acquired.num_cached_tokens < m.tokens->size());
      REQUIRE(acquired.num_cached_tokens + acquired.num_copied_tokens < m.tokens->size());
      REQUIRE(acquired.blocks.size() == want);
      REQUIRE((asked <= available || asked == 0));
      REQUIRE(acquired.copy_from == forked.copy_from);
      REQUIRE(acquired.copy_window_from == forked.copy_window_from);
      REQUIRE(acquired.num_copied_tokens == forked.num_copied);
      if (forked.is_served) {
        ++seen[forked.num_copied > 0 ? "forked with a copy" : "forked at the end of a block"];
      }
      if (forked.num_copied > 0) twin.displaced.push_back({m.key.number, forked.copy_from});
      if (forked.copy_window_from != kNoBlock)
        twin.displaced_windows.push_back({m.key.number, forked.copy_window_from});
      BlockId parent = kNoBlock;
      for (std::uint32_t i = 0; i < longest; ++i) {
        REQUIRE(acquired.blocks[i] == nodes[i]);
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
      REQUIRE(acquired.window_blocks.size() == (has_windows() ? want : 0));
      for (std::uint32_t i = 0; has_windows() && i < longest; ++i) {
        const BlockId expected = i < window_begin(longest) ? kNoBlock : windows_.at(nodes[i]);
        REQUIRE(acquired.window_blocks[i] == expected);
        twin.window_table.push_back(expected);
        if (expected != kNoBlock) ++seen["window shared"];
      }
      REQUIRE(acquired.restore == (has_state() && longest > 0 ? snapshots_.at(nodes.back()) : kNoSnapshot));
      twin.restore = acquired.restore;
      if (acquired.restore != kNoSnapshot) ++seen["restored"];
      for (std::size_t i = longest; i < acquired.blocks.size(); ++i) {
        take_fresh(twin, acquired.blocks[i]);
        if (has_windows()) take_fresh_window(twin, acquired.window_blocks[i]);
      }
      take_spares(twin, acquired.spares);
    }
  }

  // What a fork gets, if it is served.
  struct Forked {
    bool is_served = false;
    std::uint32_t num_shared = 0;
    std::uint32_t num_copied = 0;
    BlockId copy_from = kNoBlock;
    BlockId copy_window_from = kNoBlock;
  };
  Forked fork_of(const Acquire& m) const {
    if (!m.fork || !twins_.contains(m.fork->parent) || has_state()) return {};
    const Twin& parent = twins_.at(m.fork->parent);
    const auto servable = std::min<std::size_t>(m.fork->num_tokens, m.tokens->size() - 1);
    const auto num_shared = static_cast<std::uint32_t>(servable / kBlockSize);
    if (!parent.held || parent.num_committed < num_shared) return {};
    if (served(longest_path(m.scopes, *m.tokens)) > num_shared) return {};
    for (std::uint32_t i = window_begin(num_shared); has_windows() && i < num_shared; ++i)
      if (!windows_.contains(parent.table[i])) return {};
    Forked forked{.is_served = true, .num_shared = num_shared};
    const bool is_there =
        parent.table.size() > num_shared && (!has_windows() || parent.window_table[num_shared] != kNoBlock);
    if (servable % kBlockSize > 0 && is_there) {
      forked.num_copied = servable % kBlockSize;
      forked.copy_from = parent.table[num_shared];
      if (has_windows()) forked.copy_window_from = parent.window_table[num_shared];
    }
    return forked;
  }

  void take_fresh(Twin& twin, BlockId block) {
    const Held held = all_held();
    REQUIRE(block < options_.num_blocks);
    REQUIRE_FALSE(held.blocks.contains(block));
    if (contents_.contains(block)) {  // evicted: a leaf, and only when nothing was free
      for (BlockId other = 0; other < options_.num_blocks; ++other)
        REQUIRE((held.blocks.contains(other) || contents_.contains(other)));
      for (const auto& [child, content] : contents_) REQUIRE(content.parent != block);
      contents_.erase(block);
      seen["evicted with a window block"] += windows_.erase(block);
      seen["evicted with a snapshot"] += snapshots_.erase(block);
      ++seen["evicted"];
    }
    twin.table.push_back(block);
  }

  // Takes an id of a pool out of what is attached: evicted, and only when none was free.
  bool evict(std::map<BlockId, std::uint32_t>& attached, const std::set<std::uint32_t>& held, std::uint32_t num_ids,
             std::uint32_t id) {
    REQUIRE(id < num_ids);
    REQUIRE_FALSE(held.contains(id));
    std::set<std::uint32_t> used = held;
    for (const auto& [node, other] : attached) used.insert(other);
    if (!used.contains(id)) return false;
    REQUIRE(used.size() == num_ids);
    REQUIRE(std::erase_if(attached, [&](const auto& entry) { return entry.second == id; }) == 1);
    return true;
  }

  void take_fresh_window(Twin& twin, BlockId block) {
    if (evict(windows_, all_held().windows, options_.num_window_blocks, block)) ++seen["window block evicted"];
    twin.window_table.push_back(block);
  }

  // One for each boundary in the table, two at most, as long as there are some.
  void take_spares(Twin& twin, const std::vector<SnapshotId>& spares) {
    std::size_t num_due = 0;
    const auto num_prompt = static_cast<std::uint32_t>(twin.asked.tokens->size());
    for (std::size_t i = twin.num_committed + 1; has_state() && i <= twin.table.size(); ++i)
      num_due += is_boundary(static_cast<std::uint32_t>(i * kBlockSize), num_prompt) ? 1 : 0;
    const std::size_t wanted = std::min<std::size_t>(num_due, 2);
    const std::size_t missing = wanted > twin.spares.size() ? wanted - twin.spares.size() : 0;
    const std::size_t available = options_.num_snapshots - all_held().snapshots.size();
    REQUIRE(spares.size() == std::min(missing, available));
    if (available < missing) ++seen["no spare"];
    for (SnapshotId spare : spares) {
      if (evict(snapshots_, all_held().snapshots, options_.num_snapshots, spare)) ++seen["snapshot evicted"];
      twin.spares.push_back(spare);
    }
  }

  void follow(const Extend& m, Twin& twin, const LeaseAnswer& answer) {
    twin.answers[m.key.number] = answer;
    const std::uint32_t available = room_beside({});
    if (m.num_blocks > available) {
      ++seen["short extend"];
      REQUIRE(std::get<Short>(answer.body) == Short{available});
      return;
    }
    const auto& extended = std::get<Extended>(answer.body);
    REQUIRE(extended.blocks.size() == m.num_blocks);
    REQUIRE(extended.window_blocks.size() == (has_windows() ? m.num_blocks : 0));
    for (std::size_t i = 0; i < m.num_blocks; ++i) {
      take_fresh(twin, extended.blocks[i]);
      if (has_windows()) take_fresh_window(twin, extended.window_blocks[i]);
    }
    take_spares(twin, extended.spares);
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
    commit_windows(m, twin, committed);
    commit_snapshot(m, twin);
    take_spares(twin, committed.spares);
  }

  void commit_windows(const Commit& m, Twin& twin, const Committed& committed) {
    REQUIRE(committed.window_blocks.size() == (has_windows() ? committed.blocks.size() : 0));
    if (!has_windows()) return;
    for (std::uint32_t i = 0; i < twin.num_committed; ++i) {
      BlockId& own = twin.window_table[i];
      const bool is_behind = i < window_begin(twin.num_committed);
      if (i >= m.first_block) {
        const auto [there, is_new] = windows_.try_emplace(twin.table[i], own);
        if (!is_new && !is_behind) {
          twin.displaced_windows.push_back({m.key.number, own});
          own = there->second;
          ++seen["window block swapped"];
        }
      }
      if (is_behind && own != kNoBlock) {
        own = kNoBlock;
        ++seen["window block let go"];
      }
      if (i >= m.first_block) REQUIRE(committed.window_blocks[i - m.first_block] == own);
    }
  }

  void commit_snapshot(const Commit& m, Twin& twin) {
    twin.restore = kNoSnapshot;
    if (m.snapshot == kNoSnapshot) return;
    REQUIRE(std::erase(twin.spares, m.snapshot) == 1);
    const bool is_new = snapshots_.try_emplace(twin.table[twin.num_committed - 1], m.snapshot).second;
    ++seen[is_new ? "snapshot attached" : "snapshot known"];
  }

  void follow(const Yield& m, Twin& twin, const LeaseAnswer& answer) {
    twin.answers[m.key.number] = answer;
    REQUIRE(std::get<Acknowledged>(answer.body) == Acknowledged{});
    twin.yielded = true;
  }

  void follow(const Release& m, Twin& twin, const LeaseAnswer& answer) {
    REQUIRE(std::get<Acknowledged>(answer.body) == Acknowledged{});
    if (twin.waiting) ++seen["follower ended"];
    if (m.after_step > done_step_) {
      awaiting_step_.push_back({m.after_step, {}});
      add_held(twin, awaiting_step_.back().second);
    }
    ended_.insert(m.key.sequence);
    twins_.erase(m.key.sequence);
  }

  static void add_held(const Twin& twin, Held& held) {
    held.blocks.insert(twin.table.begin(), twin.table.end());
    for (const auto& [number, block] : twin.displaced) held.blocks.insert(block);
    for (BlockId block : twin.window_table)
      if (block != kNoBlock) held.windows.insert(block);
    for (const auto& [number, block] : twin.displaced_windows) held.windows.insert(block);
    if (twin.restore != kNoSnapshot) held.snapshots.insert(twin.restore);
    held.snapshots.insert(twin.spares.begin(), twin.spares.end());
  }

  Held all_held() const {
    Held all;
    const auto add = [&](const Held& held) {
      all.blocks.insert(held.blocks.begin(), held.blocks.end());
      all.windows.insert(held.windows.begin(), held.windows.end());
      all.snapshots.insert(held.snapshots.begin(), held.snapshots.end());
    };
    for (const auto& [id, twin] : twins_) add_held(twin, all);
    for (const auto& [step, held] : awaiting_step_) add(held);
    for (const auto& [epoch, held] : orphans_) add(held);
    return all;
  }

  // Entries of a table that can be given out once these nodes are held, with the window at their end.
  std::uint32_t room_beside(const std::vector<BlockId>& nodes) const {
    Held held = all_held();
    held.blocks.insert(nodes.begin(), nodes.end());
    const std::size_t room = options_.num_blocks - held.blocks.size();
    if (!has_windows()) return static_cast<std::uint32_t>(room);
    for (std::uint32_t i = window_begin(static_cast<std::uint32_t>(nodes.size())); i < nodes.size(); ++i)
      held.windows.insert(windows_.at(nodes[i]));
    return static_cast<std::uint32_t>(std::min(room, options_.num_window_blocks - held.windows.size()));
  }

  // Position by position: the first block with one that is seen after num_blocks blocks.
  std::uint32_t window_begin(std::uint32_t num_blocks) const {
    std::uint32_t position = num_blocks * kBlockSize;
    for (std::uint32_t seen_before = 1; position > 0 && seen_before < options_.window; ++seen_before) --position;
    return position / kBlockSize;
  }

  // How many of these nodes a sequence can go on from.
  std::uint32_t served(const std::vector<BlockId>& nodes) const {
    for (auto depth = static_cast<std::uint32_t>(nodes.size()); depth > 0; --depth) {
      bool is_whole = !has_state() || snapshots_.contains(nodes[depth - 1]);
      for (std::uint32_t i = window_begin(depth); has_windows() && i < depth; ++i)
        is_whole = is_whole && windows_.contains(nodes[i]);
      if (is_whole) return depth;
      ++seen_cut_;
    }
    return 0;
  }

  // Whether one with the tokens `theirs` takes a snapshot that is of use to `mine`, after `position`.
  bool leaves_useful_snapshot(const std::vector<TokenId>& theirs, const std::vector<TokenId>& mine,
                              std::uint32_t position) const {
    for (std::uint32_t end = position + kBlockSize; end < mine.size() && end <= theirs.size(); end += kBlockSize) {
      if (!std::equal(mine.begin(), mine.begin() + end, theirs.begin())) return false;
      if (is_boundary(end, static_cast<std::uint32_t>(theirs.size()))) return true;
    }
    return false;
  }

  std::optional<BlockId> find_child(BlockId parent, const ScopeList& scopes, const std::vector<TokenId>& tokens) const {
    for (ScopeId scope : scopes)
      for (const auto& [block, content] : contents_)
        if (content.parent == parent && content.scope == scope && content.tokens == tokens) return block;
    return std::nullopt;
  }

  // By trying all paths, those of earlier scopes first.
  std::vector<BlockId> longest_path(const ScopeList& scopes, const std::vector<TokenId>& tokens) const {
    const auto limit = (tokens.size() - 1) / kBlockSize;
    std::vector<BlockId> path, longest;
    const auto try_below = [&](BlockId parent, auto&& recurse) -> void {
      if (path.size() > longest.size()) longest = path;
      if (path.size() == limit) return;
      const auto first = tokens.begin() + static_cast<std::ptrdiff_t>(path.size() * kBlockSize);
      for (ScopeId scope : scopes) {
        const std::optional<BlockId> child = find_child(parent, {scope}, {first, first + kBlockSize});
        if (!child) continue;
        path.push_back(*child);
        recurse(*child, recurse);
        path.pop_back();
      }
    };
    try_below(kNoBlock, try_below);
    return longest;
  }

  // --- anchors ---

  // Every anchor there ever was, asked for through some scopes, against all prefixes by their tokens.
  void require_same_ranges() {
    const ScopeList lists[] = {{kPublicScope}, scopes_for(1, ""), scopes_for(2, "")};
    const ScopeList& scopes = lists[random_() % 3];
    std::map<std::uint64_t, std::uint32_t> visible;  // end by name
    std::map<std::uint64_t, std::set<bool>> usable;  // the same prefix can be there once per scope
    for (const auto& [block, content] : contents_) {
      std::vector<TokenId> tokens;
      std::vector<BlockId> nodes;
      bool is_visible = true;
      for (BlockId at = block; at != kNoBlock; at = contents_.at(at).parent) {
        const Content& step = contents_.at(at);
        tokens.insert(tokens.begin(), step.tokens.begin(), step.tokens.end());
        nodes.insert(nodes.begin(), at);
        is_visible = is_visible && scopes.contains(step.scope);
      }
      const Anchor anchor = anchors_of(tokens).back();
      REQUIRE(anchor.position == tokens.size());
      anchors_.insert(anchor.hash);
      if (!is_visible) continue;
      visible[anchor.hash] = std::max(visible[anchor.hash], anchor.position);
      usable[anchor.hash].insert(served(nodes) == nodes.size());
    }
    for (const std::uint64_t hash : anchors_) {
      const auto range = book_.find_recyclable_range(scopes, hash);
      const auto expected = visible.find(hash);
      if (expected == visible.end()) REQUIRE_FALSE(range);
      if (expected != visible.end()) REQUIRE(usable[hash].contains(range.has_value()));
      if (range) REQUIRE(*range == CachedRange{0, expected->second});
      ++seen[range ? "range found" : "range gone or hidden"];
    }
    REQUIRE_FALSE(book_.find_recyclable_range(scopes, random_()));
    for (const Sender& s : senders_)
      REQUIRE(book_.predict(scopes, s.tokens).cached_tokens == kBlockSize * served(longest_path(scopes, s.tokens)));
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
      orphans_.push_back({epoch_, {}});
      add_held(twin, orphans_.back().second);
      ++seen[twin.waiting ? "follower died" : "holder died"];
    }
    for (const auto& [step, held] : awaiting_step_) orphans_.push_back({epoch_, held});
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
    Held used = all_held();
    REQUIRE(counters.total == options_.num_blocks);
    REQUIRE(counters.referenced == used.blocks.size());
    REQUIRE(counters.cached == contents_.size());
    REQUIRE(counters.window_blocks.available == options_.num_window_blocks - used.windows.size());
    REQUIRE(counters.snapshots.available == options_.num_snapshots - used.snapshots.size());
    REQUIRE(counters.window_blocks.cached == windows_.size());
    REQUIRE(counters.snapshots.cached == snapshots_.size());
    for (const auto& [block, content] : contents_) used.blocks.insert(block);
    for (const auto& [node, block] : windows_) used.windows.insert(block);
    for (const auto& [node, snapshot] : snapshots_) used.snapshots.insert(snapshot);
    REQUIRE(counters.free == options_.num_blocks - used.blocks.size());
    REQUIRE(counters.window_blocks.free == options_.num_window_blocks - used.windows.size());
    REQUIRE(counters.snapshots.free == options_.num_snapshots - used.snapshots.size());
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
    REQUIRE(counters.window_blocks.available == options_.num_window_blocks);
    REQUIRE(counters.snapshots.available == options_.num_snapshots);
    seen["prefix cut"] += seen_cut_;
  }

  std::mt19937_64 random_;
  const LeaseBookOptions options_;
  LeaseBook book_;
  LeaseEffects effects_;
  std::uint64_t epoch_ = 1;
  std::vector<Sender> senders_;
  SequenceId last_id_ = 0;
  std::uint64_t last_step_ = 0, done_step_ = 0;

  std::map<SequenceId, Twin> twins_;
  std::set<SequenceId> ended_;
  std::map<BlockId, Content> contents_;
  std::map<BlockId, std::uint32_t> windows_, snapshots_;  // by the block of the radix node
  mutable std::uint64_t seen_cut_ = 0;
  std::set<std::uint64_t> anchors_;  // names of all prefixes seen so far
  std::vector<std::pair<std::uint64_t, Held>> awaiting_step_;
  std::vector<std::pair<std::uint64_t, Held>> orphans_;
};

void require_same_as_twin(bool with_windows, bool with_state, std::initializer_list<const char*> events) {
  std::map<std::string, std::uint64_t> seen;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    INFO("seed " << seed);
    Model model(seed, with_windows, with_state);
    model.run(2500);
    for (const auto& [what, count] : model.seen) seen[what] += count;
  }
  for (const char* what : events) {
    INFO(what << ": " << seen[what]);
    CHECK(seen[what] >= 50);
  }
}

}  // namespace

TEST_CASE("leases agree with their twin over a bad network and dying holders, and everything comes back") {
  require_same_as_twin(
      false, false,
      {"wait", "follower woken", "follower ended", "follower died", "holder died", "short", "short extend", "repeated",
       "acquired with a prefix", "acquired without a prefix", "evicted", "swapped", "forked with a copy",
       "forked at the end of a block", "range found", "range gone or hidden"});
}

TEST_CASE("leases of models with windows agree with their twin, and everything comes back") {
  require_same_as_twin(true, false,
                       {"wait", "follower woken", "follower died", "holder died", "short", "short extend", "repeated",
                        "acquired with a prefix", "evicted with a window block", "window block evicted",
                        "window block swapped", "window block let go", "window shared", "prefix cut",
                        "forked with a copy", "forked at the end of a block", "range found", "range gone or hidden"});
}

TEST_CASE("leases of models with recurrent state agree with their twin, and everything comes back") {
  require_same_as_twin(false, true,
                       {"wait", "follower woken", "follower died", "holder died", "short", "repeated", "restored",
                        "evicted with a snapshot", "snapshot evicted", "snapshot attached", "no spare", "prefix cut",
                        "range found", "range gone or hidden"});
}

TEST_CASE("leases of models with windows and recurrent state agree with their twin, and everything comes back") {
  require_same_as_twin(true, true,
                       {"wait", "follower woken", "follower died", "holder died", "short", "restored", "window shared",
                        "window block swapped", "window block evicted", "snapshot evicted", "snapshot attached"});
}
