#include "tests/cache/lease_twin.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "cache/window.h"

namespace troupe::cache::test {

void BookTwin::follow(const Message& message, const LeaseEffects& effects) {
  const LeaseKey& key = key_of(message);
  if (key.epoch != epoch_) {
    REQUIRE(effects.answers.empty());
    return;
  }
  if (ended_.contains(key.sequence)) {
    REQUIRE(effects.answers.size() == (std::holds_alternative<Release>(message) ? 1 : 0));
    return;
  }
  const bool is_known = twins_.contains(key.sequence);
  const std::uint32_t last = is_known ? twins_.at(key.sequence).last : 0;
  if (key.number <= last) {
    const auto& answers = twins_.at(key.sequence).answers;
    const auto given = answers.find(key.number);
    REQUIRE(effects.answers.size() == (given != answers.end() ? 1 : 0));
    if (given == answers.end()) return;
    ++seen["repeated"];
    REQUIRE(effects.answers[0].number == key.number);
    if (!std::holds_alternative<Wait>(given->second.body))  // whom it waits for may have changed
      REQUIRE(effects.answers[0].body == given->second.body);
    return;
  }
  if (key.number != last + 1) {
    REQUIRE(effects.answers.empty());
    return;
  }

  Twin& twin = twins_[key.sequence];
  twin.last = key.number;
  std::erase_if(twin.answers, [&](const auto& given) { return given.first <= key.seen; });
  std::erase_if(twin.displaced, [&](const auto& entry) { return entry.first <= key.seen; });
  std::erase_if(twin.displaced_windows, [&](const auto& entry) { return entry.first <= key.seen; });
  REQUIRE_FALSE(effects.answers.empty());
  REQUIRE(effects.answers[0].sequence == key.sequence);
  std::visit([&](const auto& m) { follow(m, twin, effects.answers[0]); }, message);
  // Then followers hear of it.
  for (std::size_t i = 1; i < effects.answers.size(); ++i) {
    const LeaseAnswer& answer = effects.answers[i];
    Twin& follower = twins_.at(answer.sequence);
    REQUIRE(follower.waiting);
    REQUIRE(answer.number == follower.last);
    REQUIRE_FALSE(std::holds_alternative<Wait>(answer.body));
    settle(follower, answer);
  }
}

void BookTwin::follow(const Acquire& m, Twin& twin, const LeaseAnswer& answer) {
  twin.asked = m;
  settle(twin, answer);
}

void BookTwin::settle(Twin& twin, const LeaseAnswer& answer) {
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
    if (forked.copy_window_from != kNoBlock) twin.displaced_windows.push_back({m.key.number, forked.copy_window_from});
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

BookTwin::Forked BookTwin::fork_of(const Acquire& m) const {
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

void BookTwin::take_fresh(Twin& twin, BlockId block) {
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
bool BookTwin::evict(std::map<BlockId, std::uint32_t>& attached, const std::set<std::uint32_t>& held,
                     std::uint32_t num_ids, std::uint32_t id) {
  REQUIRE(id < num_ids);
  REQUIRE_FALSE(held.contains(id));
  std::set<std::uint32_t> used = held;
  for (const auto& [node, other] : attached) used.insert(other);
  if (!used.contains(id)) return false;
  REQUIRE(used.size() == num_ids);
  REQUIRE(std::erase_if(attached, [&](const auto& entry) { return entry.second == id; }) == 1);
  return true;
}

void BookTwin::take_fresh_window(Twin& twin, BlockId block) {
  if (evict(windows_, all_held().windows, options_.num_window_blocks, block)) ++seen["window block evicted"];
  twin.window_table.push_back(block);
}

// One for each boundary in the table, two at most, as long as there are some.
void BookTwin::take_spares(Twin& twin, const std::vector<SnapshotId>& spares) {
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

void BookTwin::follow(const Extend& m, Twin& twin, const LeaseAnswer& answer) {
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

void BookTwin::follow(const Commit& m, Twin& twin, const LeaseAnswer& answer) {
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

void BookTwin::commit_windows(const Commit& m, Twin& twin, const Committed& committed) {
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

void BookTwin::commit_snapshot(const Commit& m, Twin& twin) {
  twin.restore = kNoSnapshot;
  if (m.snapshot == kNoSnapshot) return;
  REQUIRE(std::erase(twin.spares, m.snapshot) == 1);
  const bool is_new = snapshots_.try_emplace(twin.table[twin.num_committed - 1], m.snapshot).second;
  ++seen[is_new ? "snapshot attached" : "snapshot known"];
}

void BookTwin::follow(const Yield& m, Twin& twin, const LeaseAnswer& answer) {
  twin.answers[m.key.number] = answer;
  REQUIRE(std::get<Acknowledged>(answer.body) == Acknowledged{});
  twin.yielded = true;
}

void BookTwin::follow(const Release& m, Twin& twin, const LeaseAnswer& answer) {
  REQUIRE(std::get<Acknowledged>(answer.body) == Acknowledged{});
  if (twin.waiting) ++seen["follower ended"];
  if (m.after_step > done_step_) {
    awaiting_step_.push_back({m.after_step, {}});
    add_held(twin, awaiting_step_.back().second);
  }
  ended_.insert(m.key.sequence);
  twins_.erase(m.key.sequence);
}

void BookTwin::add_held(const Twin& twin, Held& held) {
  held.blocks.insert(twin.table.begin(), twin.table.end());
  for (const auto& [number, block] : twin.displaced) held.blocks.insert(block);
  for (BlockId block : twin.window_table)
    if (block != kNoBlock) held.windows.insert(block);
  for (const auto& [number, block] : twin.displaced_windows) held.windows.insert(block);
  if (twin.restore != kNoSnapshot) held.snapshots.insert(twin.restore);
  held.snapshots.insert(twin.spares.begin(), twin.spares.end());
}

Held BookTwin::all_held() const {
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
std::uint32_t BookTwin::room_beside(const std::vector<BlockId>& nodes) const {
  Held held = all_held();
  held.blocks.insert(nodes.begin(), nodes.end());
  const std::size_t room = options_.num_blocks - held.blocks.size();
  if (!has_windows()) return static_cast<std::uint32_t>(room);
  for (std::uint32_t i = window_begin(static_cast<std::uint32_t>(nodes.size())); i < nodes.size(); ++i)
    held.windows.insert(windows_.at(nodes[i]));
  return static_cast<std::uint32_t>(std::min(room, options_.num_window_blocks - held.windows.size()));
}

// Position by position: the first block with one that is seen after num_blocks blocks.
std::uint32_t BookTwin::window_begin(std::uint32_t num_blocks) const {
  std::uint32_t position = num_blocks * kBlockSize;
  for (std::uint32_t seen_before = 1; position > 0 && seen_before < options_.window; ++seen_before) --position;
  return position / kBlockSize;
}

// How many of these nodes a sequence can go on from.
std::uint32_t BookTwin::served(const std::vector<BlockId>& nodes) const {
  for (auto depth = static_cast<std::uint32_t>(nodes.size()); depth > 0; --depth) {
    bool is_whole = !has_state() || snapshots_.contains(nodes[depth - 1]);
    for (std::uint32_t i = window_begin(depth); has_windows() && i < depth; ++i)
      is_whole = is_whole && windows_.contains(nodes[i]);
    if (is_whole) return depth;
    ++seen["prefix cut"];
  }
  return 0;
}

// Whether one with the tokens `theirs` takes a snapshot that is of use to `mine`, after `position`.
bool BookTwin::leaves_useful_snapshot(const std::vector<TokenId>& theirs, const std::vector<TokenId>& mine,
                                      std::uint32_t position) const {
  for (std::uint32_t end = position + kBlockSize; end < mine.size() && end <= theirs.size(); end += kBlockSize) {
    if (!std::equal(mine.begin(), mine.begin() + end, theirs.begin())) return false;
    if (is_boundary(end, static_cast<std::uint32_t>(theirs.size()))) return true;
  }
  return false;
}

std::optional<BlockId> BookTwin::find_child(BlockId parent, const ScopeList& scopes,
                                            const std::vector<TokenId>& tokens) const {
  for (ScopeId scope : scopes)
    for (const auto& [block, content] : contents_)
      if (content.parent == parent && content.scope == scope && content.tokens == tokens) return block;
  return std::nullopt;
}

// By trying all paths, those of earlier scopes first.
std::vector<BlockId> BookTwin::longest_path(const ScopeList& scopes, const std::vector<TokenId>& tokens) const {
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

bool BookTwin::is_boundary(std::uint32_t position, std::uint32_t num_prompt) const {
  const SnapshotRule& rule = options_.snapshot_rule;
  return position % rule.every == 0 ||
         (rule.at_prompt_end && position < num_prompt && position + kBlockSize >= num_prompt);
}

void BookTwin::require_same_ranges(LeaseBook& book, const ScopeList& scopes) {
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
    const auto range = book.find_recyclable_range(scopes, hash);
    const auto expected = visible.find(hash);
    if (expected == visible.end()) REQUIRE_FALSE(range);
    if (expected != visible.end()) REQUIRE(usable[hash].contains(range.has_value()));
    if (range) REQUIRE(*range == CachedRange{0, expected->second});
    ++seen[range ? "range found" : "range gone or hidden"];
  }
}

std::uint32_t BookTwin::cached_tokens(const ScopeList& scopes, const std::vector<TokenId>& tokens) const {
  return kBlockSize * served(longest_path(scopes, tokens));
}

void BookTwin::step_done(std::uint64_t step) {
  done_step_ = step;
  std::erase_if(awaiting_step_, [&](const auto& entry) { return entry.first <= done_step_; });
}

void BookTwin::begin_epoch(std::uint64_t epoch) {
  for (const auto& [id, twin] : twins_) {
    orphans_.push_back({epoch_, {}});
    add_held(twin, orphans_.back().second);
    ++seen[twin.waiting ? "follower died" : "holder died"];
  }
  for (const auto& [step, held] : awaiting_step_) orphans_.push_back({epoch_, held});
  twins_.clear();
  awaiting_step_.clear();
  ended_.clear();
  done_step_ = 0;
  epoch_ = epoch;
}

void BookTwin::quiesced(std::uint64_t epoch) {
  std::erase_if(orphans_, [&](const auto& orphan) { return orphan.first <= epoch; });
}

void BookTwin::require_same_counts(const CacheCounters& counters) const {
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

}  // namespace troupe::cache::test
