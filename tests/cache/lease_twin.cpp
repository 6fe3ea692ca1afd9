#include "tests/cache/lease_twin.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "cache/group.h"

namespace troupe::cache::test {
namespace {

constexpr TenantId kCommon{~std::uint64_t{0}};

}  // namespace

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
    if (!std::holds_alternative<Wait>(given->second.body))  // its leader may have changed
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
  std::erase_if(twin.displaced, [&](const auto& entry) { return entry.number <= key.seen; });
  REQUIRE_FALSE(effects.answers.empty());
  REQUIRE(effects.answers[0].sequence == key.sequence);
  std::visit([&](const auto& m) { follow(m, twin, effects.answers[0]); }, message);
  // Then followers are answered.
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
  floors_[m.owner.tenant] = m.owner.floor;
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
    const BlockTable& table = twins_.at(m.fork->parent).tables[0];
    nodes.assign(table.begin(), table.begin() + forked.num_shared);
  }
  const auto longest = static_cast<std::uint32_t>(nodes.size());
  const std::uint32_t available = pool_room(twin, nodes), below_ceiling = ceiling_room(m.owner, nodes);
  const std::uint32_t want = std::max({m.want, longest, !forked.copy_from.empty() ? longest + 1 : 0});
  const std::uint32_t asked = want - longest + m.headroom, asked_of_own = want - longest + m.own_headroom;
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
    REQUIRE(denied->available == std::min(available, below_ceiling));
    REQUIRE(denied->at_ceiling == (asked_of_own > below_ceiling));
    REQUIRE((denied->at_ceiling || asked > available));
    if (denied->at_ceiling) ++seen["short at the ceiling"];
    if (!denied->at_ceiling && asked <= room_without_floors(nodes)) ++seen["short because of floors"];
  } else {
    const auto& acquired = std::get<Acquired>(answer.body);
    REQUIRE(acquired.num_cached_tokens == longest * kBlockSize);
    REQUIRE(acquired.num_cached_tokens < m.tokens->size());
    REQUIRE(acquired.num_cached_tokens + acquired.num_copied_tokens < m.tokens->size());
    REQUIRE(acquired.tables.size() == num_groups());
    for (const BlockTable& table : acquired.tables) REQUIRE(table.size() == want);
    REQUIRE((asked <= available || asked == 0));
    REQUIRE((asked_of_own <= below_ceiling || asked_of_own == 0));
    for (const BlockId node : nodes) use_node(node, m.owner.tenant);
    REQUIRE(acquired.copy_from == forked.copy_from);
    REQUIRE(acquired.num_copied_tokens == forked.num_copied);
    if (forked.is_served) {
      ++seen[forked.num_copied > 0 ? "forked with a copy" : "forked at the end of a block"];
    }
    for (GroupId group = 0; group < forked.copy_from.size(); ++group)
      twin.displaced.push_back({m.key.number, group, forked.copy_from[group]});
    BlockId parent = kNoBlock;
    for (std::uint32_t i = 0; i < longest; ++i) {
      REQUIRE(acquired.tables[0][i] == nodes[i]);
      const Content& content = contents_.at(nodes[i]);
      REQUIRE(content.parent == parent);
      REQUIRE(m.scopes.contains(content.scope));
      REQUIRE(std::equal(content.tokens.begin(), content.tokens.end(),
                         m.tokens->begin() + static_cast<std::ptrdiff_t>(i * kBlockSize)));
      parent = nodes[i];
    }
    ++seen[longest > 0 ? "acquired with a prefix" : "acquired without a prefix"];
    twin.held = true;
    twin.tables.assign(num_groups(), {});
    twin.tables[0] = nodes;
    twin.num_committed = longest;
    for (GroupId group = 1; group < num_groups(); ++group) {
      for (std::uint32_t i = 0; i < longest; ++i) {
        const BlockId expected = i < window_begin(group, longest) ? kNoBlock : attached_[group].at(nodes[i]);
        REQUIRE(acquired.tables[group][i] == expected);
        twin.tables[group].push_back(expected);
        if (expected != kNoBlock) ++seen["window shared"];
      }
    }
    REQUIRE(acquired.restore == (has_state() && longest > 0 ? snapshots_.at(nodes.back()) : kNoSnapshot));
    twin.restore = acquired.restore;
    if (acquired.restore != kNoSnapshot) ++seen["restored"];
    for (std::size_t i = longest; i < want; ++i) take_fresh(twin, acquired.tables, i);
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
  for (GroupId group = 1; group < num_groups(); ++group)
    for (std::uint32_t i = window_begin(group, num_shared); i < num_shared; ++i)
      if (!attached_[group].contains(parent.tables[0][i])) return {};
  Forked forked{.is_served = true, .num_shared = num_shared};
  const bool is_there = std::all_of(parent.tables.begin(), parent.tables.end(), [&](const BlockTable& table) {
    return table.size() > num_shared && table[num_shared] != kNoBlock;
  });
  if (servable % kBlockSize > 0 && is_there) {
    forked.num_copied = servable % kBlockSize;
    for (const BlockTable& table : parent.tables) forked.copy_from.push_back(table[num_shared]);
  }
  return forked;
}

// Entry `index` of the book's tables.
void BookTwin::take_fresh(Twin& twin, const BlockTables& tables, std::size_t index) {
  take_fresh_node(twin.asked.owner, tables[0][index]);
  for (GroupId group = 1; group < num_groups(); ++group)
    if (evict(attached_[group], all_held().blocks[group], options_.groups[group].num_blocks, tables[group][index]))
      ++seen["window block evicted"];
  for (GroupId group = 0; group < num_groups(); ++group) twin.tables[group].push_back(tables[group][index]);
}

void BookTwin::take_fresh_node(const Owner& owner, BlockId block) {
  const std::set<BlockId> held = all_held().blocks[0];
  REQUIRE(block < options_.groups[0].num_blocks);
  REQUIRE_FALSE(held.contains(block));
  if (contents_.contains(block)) evict_node(owner, block, held);
  tenants_[block] = owner.tenant;
  floors_[owner.tenant] = owner.floor;
  REQUIRE(counts()[owner.tenant].blocks < owner.ceiling);
}

// An evicted block is a leaf, and blocks are evicted only when none was free, or below a ceiling.
void BookTwin::evict_node(const Owner& owner, BlockId block, const std::set<BlockId>& held) {
  std::map<TenantId, Count> count = counts();
  const TenantId loser = tenants_.at(block);
  if (count[owner.tenant].blocks >= owner.ceiling) {
    REQUIRE(loser == owner.tenant);
    ++seen["evicted at the ceiling"];
  } else {
    for (BlockId other = 0; other < options_.groups[0].num_blocks; ++other)
      REQUIRE((held.contains(other) || contents_.contains(other)));
    if (loser != owner.tenant && loser != kCommon && count[loser].blocks <= floor_of(loser)) {
      // Nothing else could go, but for common blocks above those within a floor.
      ++seen["evicted within a floor"];
      REQUIRE(count[owner.tenant].unused == 0);
      for (const auto& [tenant, of] : count)
        REQUIRE((tenant == kCommon || of.unused == 0 || of.blocks <= floor_of(tenant)));
    }
    if (loser != owner.tenant) ++seen[loser == kCommon ? "evicted a common block" : "evicted another tenant's block"];
  }
  for (const auto& [child, content] : contents_) REQUIRE(content.parent != block);
  contents_.erase(block);
  for (auto& attached : attached_) seen["evicted with a window block"] += attached.erase(block);
  seen["evicted with a snapshot"] += snapshots_.erase(block);
  ++seen["evicted"];
}

// Removes an evicted id from those attached; ids are evicted only when none was free.
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

// One for each boundary in the table, two at most, as long as there are some.
void BookTwin::take_spares(Twin& twin, const std::vector<SnapshotId>& spares) {
  std::size_t num_due = 0;
  const auto num_prompt = static_cast<std::uint32_t>(twin.asked.tokens->size());
  for (std::size_t i = twin.num_committed + 1; has_state() && i <= twin.tables[0].size(); ++i)
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
  const std::uint32_t below_ceiling = ceiling_room(twin.asked.owner, {});
  const std::uint32_t available = std::min(pool_room(twin, {}), below_ceiling);
  if (m.num_blocks > available) {
    ++seen["short extend"];
    REQUIRE(std::get<Short>(answer.body) == Short{available, m.num_blocks > below_ceiling});
    return;
  }
  const auto& extended = std::get<Extended>(answer.body);
  REQUIRE(extended.blocks.size() == num_groups());
  for (const BlockTable& more : extended.blocks) REQUIRE(more.size() == m.num_blocks);
  for (std::size_t i = 0; i < m.num_blocks; ++i) take_fresh(twin, extended.blocks, i);
  take_spares(twin, extended.spares);
}

void BookTwin::follow(const Commit& m, Twin& twin, const LeaseAnswer& answer) {
  twin.answers[m.key.number] = answer;
  const auto& committed = std::get<Committed>(answer.body);
  REQUIRE(committed.first_block == m.first_block);
  REQUIRE(committed.blocks.size() == num_groups());
  for (const BlockTable& blocks : committed.blocks) REQUIRE(blocks.size() == m.tokens.size() / kBlockSize);
  for (std::uint32_t i = 0; i < committed.blocks[0].size(); ++i) {
    const std::uint32_t index = m.first_block + i;
    const BlockId parent = index == 0 ? kNoBlock : twin.tables[0][index - 1];
    const auto first = m.tokens.begin() + static_cast<std::ptrdiff_t>(i * kBlockSize);
    const std::vector<TokenId> tokens(first, first + kBlockSize);
    BlockId& own = twin.tables[0][index];
    const std::optional<BlockId> other = find_child(parent, twin.asked.scopes, tokens);
    REQUIRE(committed.blocks[0][i] == other.value_or(own));
    if (other) {
      ++seen["swapped"];
      twin.displaced.push_back({m.key.number, 0, own});
      own = *other;
      use_node(own, twin.asked.owner.tenant);
    } else {
      contents_[own] = {parent, twin.asked.scopes.publish(), tokens};
    }
    twin.num_committed = index + 1;
  }
  for (GroupId group = 1; group < num_groups(); ++group) commit_attached(group, m, twin, committed);
  commit_snapshot(m, twin);
  take_spares(twin, committed.spares);
}

void BookTwin::commit_attached(GroupId group, const Commit& m, Twin& twin, const Committed& committed) {
  for (std::uint32_t i = 0; i < twin.num_committed; ++i) {
    BlockId& own = twin.tables[group][i];
    const bool is_behind = i < window_begin(group, twin.num_committed);
    if (i >= m.first_block) {
      const auto [there, is_new] = attached_[group].try_emplace(twin.tables[0][i], own);
      if (!is_new && !is_behind) {
        twin.displaced.push_back({m.key.number, group, own});
        own = there->second;
        ++seen["window block swapped"];
      }
    }
    if (is_behind && own != kNoBlock) {
      own = kNoBlock;
      ++seen["window block let go"];
    }
    if (i >= m.first_block) REQUIRE(committed.blocks[group][i - m.first_block] == own);
  }
}

void BookTwin::commit_snapshot(const Commit& m, Twin& twin) {
  twin.restore = kNoSnapshot;
  if (m.snapshot == kNoSnapshot) return;
  REQUIRE(std::erase(twin.spares, m.snapshot) == 1);
  const bool is_new = snapshots_.try_emplace(twin.tables[0][twin.num_committed - 1], m.snapshot).second;
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
  for (GroupId group = 0; group < twin.tables.size(); ++group)
    for (BlockId block : twin.tables[group])
      if (block != kNoBlock) held.blocks[group].insert(block);
  for (const auto& entry : twin.displaced) held.blocks[entry.group].insert(entry.block);
  if (twin.restore != kNoSnapshot) held.snapshots.insert(twin.restore);
  held.snapshots.insert(twin.spares.begin(), twin.spares.end());
}

Held BookTwin::all_held() const {
  Held all;
  const auto add = [&](const Held& held) {
    for (GroupId group = 0; group < num_groups(); ++group)
      all.blocks[group].insert(held.blocks[group].begin(), held.blocks[group].end());
    all.snapshots.insert(held.snapshots.begin(), held.snapshots.end());
  };
  for (const auto& [id, twin] : twins_) add_held(twin, all);
  for (const auto& [step, held] : awaiting_step_) add(held);
  for (const auto& [epoch, held] : orphans_) add(held);
  return all;
}

// Entries of a table that the twin can be given once these nodes are held, with the windows at their end.
std::uint32_t BookTwin::pool_room(const Twin& twin, const std::vector<BlockId>& nodes) const {
  std::size_t room = room_without_floors(nodes);
  const bool is_alone =
      std::ranges::none_of(twins_, [&](const auto& entry) { return entry.second.held && &entry.second != &twin; });
  if (is_alone) return static_cast<std::uint32_t>(room);
  Held held = all_held();
  const std::size_t before = held.blocks[0].size();
  held.blocks[0].insert(nodes.begin(), nodes.end());
  std::size_t kept = held.blocks[0].size() - before;
  for (const auto& [tenant, count] : counts()) {
    if (tenant == twin.asked.owner.tenant) continue;
    const std::uint32_t above = count.blocks - std::min(count.blocks, floor_of(tenant));
    kept += count.unused - std::min(count.unused, above);
  }
  const std::size_t open = options_.groups[0].num_blocks - before;
  return static_cast<std::uint32_t>(std::min(room, open - std::min(open, kept)));
}

std::uint32_t BookTwin::ceiling_room(const Owner& owner, const std::vector<BlockId>& nodes) const {
  std::set<BlockId> used = all_held().blocks[0];
  used.insert(nodes.begin(), nodes.end());
  std::erase_if(used, [&](BlockId block) { return tenants_.at(block) != owner.tenant; });
  return owner.ceiling - std::min(owner.ceiling, static_cast<std::uint32_t>(used.size()));
}

void BookTwin::use_node(BlockId block, TenantId tenant) {
  if (tenants_.at(block) == tenant) return;
  if (tenants_.at(block) != kCommon) ++seen["became common"];
  tenants_.at(block) = kCommon;
}

std::map<TenantId, BookTwin::Count> BookTwin::counts() const {
  std::map<TenantId, Count> count;
  const std::set<BlockId> held = all_held().blocks[0];
  for (const BlockId block : held) ++count[tenants_.at(block)].blocks;
  for (const auto& [block, content] : contents_) {
    if (held.contains(block)) continue;
    ++count[tenants_.at(block)].blocks;
    ++count[tenants_.at(block)].unused;
  }
  return count;
}

std::uint32_t BookTwin::room_without_floors(const std::vector<BlockId>& nodes) const {
  Held held = all_held();
  held.blocks[0].insert(nodes.begin(), nodes.end());
  std::size_t room = options_.groups[0].num_blocks - held.blocks[0].size();
  for (GroupId group = 1; group < num_groups(); ++group) {
    for (std::uint32_t i = window_begin(group, static_cast<std::uint32_t>(nodes.size())); i < nodes.size(); ++i)
      held.blocks[group].insert(attached_[group].at(nodes[i]));
    room = std::min(room, options_.groups[group].num_blocks - held.blocks[group].size());
  }
  return static_cast<std::uint32_t>(room);
}

// Position by position: the first block with one that is attended to after num_blocks blocks.
std::uint32_t BookTwin::window_begin(GroupId group, std::uint32_t num_blocks) const {
  const std::uint32_t window = options_.groups[group].window;
  if (window == 0) return 0;
  std::uint32_t position = num_blocks * kBlockSize;
  for (std::uint32_t seen_before = 1; position > 0 && seen_before < window; ++seen_before) --position;
  return position / kBlockSize;
}

// How many of these nodes a sequence can begin after.
std::uint32_t BookTwin::served(const std::vector<BlockId>& nodes) const {
  for (auto depth = static_cast<std::uint32_t>(nodes.size()); depth > 0; --depth) {
    bool is_whole = !has_state() || snapshots_.contains(nodes[depth - 1]);
    for (GroupId group = 1; group < num_groups(); ++group)
      for (std::uint32_t i = window_begin(group, depth); i < depth; ++i)
        is_whole = is_whole && attached_[group].contains(nodes[i]);
    if (is_whole) return depth;
    ++seen["prefix cut"];
  }
  return 0;
}

// Whether a sequence with tokens `theirs` takes a snapshot after `position` that one with tokens `mine` can begin from.
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

void BookTwin::require_same_counts(const LeaseBook& book) const {
  const CacheCounters counters = book.counters();
  const std::map<TenantId, Count> count = counts();
  for (const TenantId tenant : {TenantId{1}, TenantId{2}, TenantId{3}, kCommon}) {
    const Count expected = count.contains(tenant) ? count.at(tenant) : Count{};
    REQUIRE(book.blocks_of(tenant) == BlockAccounts::Count{expected.blocks, expected.unused});
  }
  Held used = all_held();
  for (GroupId group = 0; group < num_groups(); ++group) {
    const PoolCounters& blocks = counters.groups[group];
    REQUIRE(blocks.total == options_.groups[group].num_blocks);
    REQUIRE(blocks.referenced() == used.blocks[group].size());
    REQUIRE(blocks.cached == (group == 0 ? contents_.size() : attached_[group].size()));
    for (const auto& [block, content] : contents_)
      if (group == 0) used.blocks[0].insert(block);
    for (const auto& [node, block] : attached_[group]) used.blocks[group].insert(block);
    REQUIRE(blocks.free == blocks.total - used.blocks[group].size());
  }
  REQUIRE(counters.snapshots.available == options_.num_snapshots - used.snapshots.size());
  REQUIRE(counters.snapshots.cached == snapshots_.size());
  for (const auto& [node, snapshot] : snapshots_) used.snapshots.insert(snapshot);
  REQUIRE(counters.snapshots.free == options_.num_snapshots - used.snapshots.size());
  REQUIRE(counters.waiting ==
          std::count_if(twins_.begin(), twins_.end(), [](const auto& entry) { return entry.second.waiting; }));
}

}  // namespace troupe::cache::test
