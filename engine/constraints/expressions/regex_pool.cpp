#include "engine/constraints/expressions/regex_pool.h"

#include <algorithm>
#include <array>
#include <deque>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "config/assert.h"

namespace troupe::engine::constraints {
namespace {

enum class RegexKind : std::uint8_t { none, empty, any, set, concat, either, both, complement, repeat, table };

// States that a search for a shortest text may visit.
constexpr std::size_t kMaxSearchedStates = 200'000;
// Of these the first are asked whether a shortest text of one operand does for all, if it has at most so many bytes.
constexpr std::size_t kMaxAskedStates = 64, kMaxAskedBytes = 4'096;
// Operands of a choice or an intersection whose derivatives take as much work as an expression's.
constexpr std::size_t kOperandsPerWork = 128;

// Expressions within expressions: derivatives and divisions recurse as deep, a KiB or two each.
constexpr std::uint32_t kMaxExpressionDepth = 1'000;

struct Expression {
  RegexKind kind;
  bool accepts_empty;
  bool is_searched;          // an intersection or a complement is part of it: its shortest text takes a search
  std::uint32_t first = 0;   // concat, complement, repeat: an operand; set: its index; either, both: begin of operands;
                             // table: its index
  std::uint32_t second = 0;  // concat: the other operand; either, both: their number; table: the state
  std::uint32_t min = 0, max = 0;          // repeat
  std::uint32_t depth = 1;                 // of operands; what follows in a concat counts as beside it
  std::uint32_t shortest = 0;              // if is_known
  bool is_known = false;                   // shortest
  const std::uint8_t* division = nullptr;  // Impl::division(), once asked for
  const std::uint8_t* classes = nullptr;   // of raw_targets; null: not derived yet
  std::vector<RegexId> raw_targets = {};   // derivatives, also those that match nothing
  std::vector<RegexId> targets = {};       // the same with kNoText for those
};

std::uint64_t mixed(std::uint64_t hash, std::uint64_t value) {
  hash ^= value + 0x9E3779B97F4A7C15u + (hash << 6) + (hash >> 2);
  return hash * 0xD6E8FEB86659FD93u;
}

using Classes = std::array<std::uint8_t, 256>;

struct ClassesHash {
  std::size_t operator()(const Classes& classes) const {
    return std::hash<std::string_view>()({reinterpret_cast<const char*>(classes.data()), classes.size()});
  }
};

struct MeetingHash {
  std::size_t operator()(const std::pair<const std::uint8_t*, const std::uint8_t*>& pair) const {
    return mixed(reinterpret_cast<std::uintptr_t>(pair.first), reinterpret_cast<std::uintptr_t>(pair.second));
  }
};

// Numbers the distinct values in the order in which the bytes meet them.
template <class KeyOf>
Classes numbered(KeyOf key_of) {
  Classes classes;
  std::array<std::uint64_t, 256> keys;
  std::size_t num_keys = 0, last = 0;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const std::uint64_t key = key_of(byte);
    if (num_keys == 0 || key != keys[last]) {
      last = static_cast<std::size_t>(std::find(keys.begin(), keys.begin() + num_keys, key) - keys.begin());
      if (last == num_keys) keys[num_keys++] = key;
    }
    classes[byte] = static_cast<std::uint8_t>(last);
  }
  return classes;
}

std::uint32_t capped_sum(std::uint64_t first, std::uint64_t second) {
  if (first == RegexPool::kNoLength || second == RegexPool::kNoLength) return RegexPool::kNoLength;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(first + second, RegexPool::kNoLength - 1));
}

}  // namespace

struct RegexPool::Impl {
  std::deque<Expression> expressions;
  std::vector<RegexId> operands;
  std::vector<ByteSet> sets;
  std::vector<DigitTable> tables;
  std::unordered_multimap<std::uint64_t, RegexId> ids;  // by hash
  std::unordered_set<Classes, ClassesHash> all_classes;
  std::unordered_map<std::pair<const std::uint8_t*, const std::uint8_t*>, const std::uint8_t*, MeetingHash> meetings;
  std::size_t table_bytes = 0;
  std::size_t work_left = kMaxMakingWork;
  std::size_t max_bytes = SIZE_MAX;

  std::size_t bytes_used() const {
    return expressions.size() * (sizeof(Expression) + sizeof(RegexPool::State) + 64) +
           operands.size() * sizeof(RegexId) + all_classes.size() * 320 + table_bytes;
  }
  void check_room(std::size_t bytes) const {
    const std::size_t used = bytes_used();
    if (used > max_bytes || bytes > max_bytes - used)
      throw ConstraintLimit("its patterns and multiples take too much memory: make them simpler, or fewer");
  }

  const std::uint8_t* kept(const Classes& classes) { return all_classes.insert(classes).first->data(); }

  std::span<const RegexId> operands_of(const Expression& expression) const {
    return {operands.data() + expression.first, expression.second};
  }

  // The division of the bytes by which derivatives of `id` may differ: a superset of what tells them apart.
  const std::uint8_t* division(RegexId id) {
    Expression& each = expressions[id];
    if (each.classes != nullptr) return each.classes;
    if (each.division == nullptr) each.division = new_division(id);
    return each.division;
  }

  const std::uint8_t* new_division(RegexId id) {
    const std::uint8_t* result = nullptr;
    for (;;) {
      const Expression& each = expressions[id];
      if (each.classes != nullptr) return met(result, each.classes);
      if (each.division != nullptr) return met(result, each.division);
      switch (each.kind) {
        case RegexKind::none:
        case RegexKind::empty:
        case RegexKind::any:
          return met(result, kept(numbered([](unsigned) { return 0; })));
        case RegexKind::set: {
          const ByteSet& set = sets[each.first];
          return met(result,
                     kept(numbered([&](unsigned byte) { return set.contains(static_cast<std::uint8_t>(byte)); })));
        }
        case RegexKind::table: {
          const auto& row = tables[each.first].next[each.second];
          return met(result, kept(numbered([&](unsigned byte) { return row[byte]; })));
        }
        case RegexKind::complement:
        case RegexKind::repeat:
          id = each.first;
          break;
        case RegexKind::concat:
          if (!expressions[each.first].accepts_empty) {
            id = each.first;
            break;
          }
          result = met(result, division(each.first));
          id = each.second;
          break;
        case RegexKind::either:
        case RegexKind::both:
          for (const RegexId operand : operands_of(each)) result = met(result, division(operand));
          return result;
      }
    }
  }

  void spend(std::size_t work) {
    if (work_left < work)
      throw ConstraintLimit(
          "its patterns and their combinations take too much work: make patterns, counts and choices simpler");
    work_left -= work;
  }

  const std::uint8_t* met(const std::uint8_t* first, const std::uint8_t* second) {
    if (first == nullptr || first == second) return second;
    const auto [found, is_new] = meetings.try_emplace({first, second}, nullptr);
    if (is_new)
      found->second = kept(numbered([&](unsigned byte) { return std::uint64_t{first[byte]} * 256 + second[byte]; }));
    return found->second;
  }
};

RegexPool::RegexPool() : impl_(std::make_unique<Impl>()) {
  for (const RegexKind kind : {RegexKind::none, RegexKind::empty, RegexKind::any}) {
    Expression each{.kind = kind, .accepts_empty = kind != RegexKind::none, .is_searched = false};
    each.is_known = true;
    each.shortest = kind == RegexKind::none ? kNoLength : 0;
    impl_->expressions.push_back(std::move(each));
    states_.emplace_back();
  }
}

RegexPool::~RegexPool() = default;

std::unique_ptr<RegexPool> RegexPool::copy() const {
  auto made = std::make_unique<RegexPool>();
  Impl& impl = *made->impl_;
  impl.expressions = impl_->expressions;
  for (Expression& each : impl.expressions) {
    each.division = each.classes = nullptr;  // they point into what the other pool keeps
    each.raw_targets = {};
    each.targets = {};
  }
  impl.operands = impl_->operands;
  impl.sets = impl_->sets;
  impl.tables = impl_->tables;
  impl.ids = impl_->ids;
  impl.table_bytes = impl_->table_bytes;
  made->states_.resize(impl.expressions.size());
  return made;
}

namespace {

// Finds or adds an expression that `matches` recognises among those with its hash.
template <class Matches, class Pool>
RegexId interned(Pool& impl, auto& states, std::uint64_t hash, Matches matches, auto make) {
  const auto [begin, end] = impl.ids.equal_range(hash);
  for (auto at = begin; at != end; ++at)
    if (matches(impl.expressions[at->second])) return at->second;
  if (impl.expressions.size() >= kMaxExpressions)
    throw ConstraintLimit("its regular expressions have more than " + std::to_string(kMaxExpressions) +
                          " states: make patterns, counts and choices smaller");
  impl.check_room(sizeof(typename std::decay_t<decltype(impl.expressions)>::value_type));
  const auto id = static_cast<RegexId>(impl.expressions.size());
  Expression made = make();
  if (made.depth > kMaxExpressionDepth)
    throw ConstraintLimit("its regular expressions are nested more than " + std::to_string(kMaxExpressionDepth) +
                          " deep: make counts of groups with conditions (^, $, \\b, look-ahead) smaller");
  impl.expressions.push_back(std::move(made));
  states.emplace_back();
  impl.ids.emplace(hash, id);
  return id;
}

}  // namespace

RegexId RegexPool::bytes(const ByteSet& set) {
  if (set.empty()) return kNoText;
  std::uint64_t hash = static_cast<std::uint64_t>(RegexKind::set);
  for (const std::uint64_t word : set.words()) hash = mixed(hash, word);
  return interned(
      *impl_, states_, hash,
      [&](const Expression& each) { return each.kind == RegexKind::set && impl_->sets[each.first] == set; },
      [&] {
        impl_->sets.push_back(set);
        Expression each{.kind = RegexKind::set, .accepts_empty = false, .is_searched = false};
        each.first = static_cast<std::uint32_t>(impl_->sets.size() - 1);
        each.shortest = 1;
        each.is_known = true;
        return each;
      });
}

RegexId RegexPool::literal(std::string_view text) {
  RegexId id = kEmptyText;
  for (std::size_t at = text.size(); at-- > 0;)
    id = concat(bytes(ByteSet::of(static_cast<std::uint8_t>(text[at]))), id);
  return id;
}

RegexId RegexPool::concat(std::span<const RegexId> parts) {
  RegexId id = kEmptyText;
  for (std::size_t at = parts.size(); at-- > 0;) id = concat(parts[at], id);
  return id;
}

RegexId RegexPool::concat(RegexId first, RegexId second) {
  if (first == kNoText || second == kNoText) return kNoText;
  if (second == kEmptyText) return first;
  // To the right: (a b) c is a (b c).
  std::vector<RegexId> parts;
  while (impl_->expressions[first].kind == RegexKind::concat) {
    parts.push_back(impl_->expressions[first].first);
    first = impl_->expressions[first].second;
  }
  parts.push_back(first);
  RegexId id = second;
  for (std::size_t at = parts.size(); at-- > 0;) {
    const RegexId part = parts[at];
    if (part == kEmptyText || (part == kAnyText && id == kAnyText)) continue;
    if (part == kAnyText && impl_->expressions[id].kind == RegexKind::concat &&
        impl_->expressions[id].first == kAnyText)
      continue;
    const RegexId rest = id;
    const std::uint64_t hash = mixed(mixed(static_cast<std::uint64_t>(RegexKind::concat), part), rest);
    id = interned(
        *impl_, states_, hash,
        [&](const Expression& each) {
          return each.kind == RegexKind::concat && each.first == part && each.second == rest;
        },
        [&] {
          const Expression& a = impl_->expressions[part];
          const Expression& b = impl_->expressions[rest];
          Expression each{.kind = RegexKind::concat,
                          .accepts_empty = a.accepts_empty && b.accepts_empty,
                          .is_searched = a.is_searched || b.is_searched};
          each.first = part;
          each.second = rest;
          each.depth = std::max(a.depth + 1, b.depth);
          if (!each.is_searched) {
            each.shortest = capped_sum(a.shortest, b.shortest);
            each.is_known = true;
          }
          return each;
        });
  }
  return id;
}

namespace {

// Sorted, each once, those of the same kind flattened.
template <class Impl>
std::vector<RegexId> flattened(const Impl& impl, RegexKind kind, const std::vector<RegexId>& operands) {
  std::vector<RegexId> flat;
  for (const RegexId id : operands) {
    const Expression& each = impl.expressions[id];
    if (each.kind == kind) {
      const auto inner = impl.operands_of(each);
      flat.insert(flat.end(), inner.begin(), inner.end());
    } else {
      flat.push_back(id);
    }
  }
  std::sort(flat.begin(), flat.end());
  flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
  return flat;
}

template <class Impl>
RegexId interned_list(Impl& impl, auto& states, RegexKind kind, const std::vector<RegexId>& flat) {
  std::uint64_t hash = static_cast<std::uint64_t>(kind);
  for (const RegexId id : flat) hash = mixed(hash, id);
  return interned(
      impl, states, hash,
      [&](const Expression& each) { return each.kind == kind && std::ranges::equal(impl.operands_of(each), flat); },
      [&] {
        const bool is_union = kind == RegexKind::either;
        Expression each{.kind = kind, .accepts_empty = !is_union, .is_searched = !is_union};
        each.first = static_cast<std::uint32_t>(impl.operands.size());
        each.second = static_cast<std::uint32_t>(flat.size());
        impl.operands.insert(impl.operands.end(), flat.begin(), flat.end());
        each.shortest = RegexPool::kNoLength;
        for (const RegexId id : flat) {
          const Expression& operand = impl.expressions[id];
          each.depth = std::max(each.depth, operand.depth + 1);
          if (is_union) {
            each.accepts_empty = each.accepts_empty || operand.accepts_empty;
            each.is_searched = each.is_searched || operand.is_searched;
            each.shortest = std::min(each.shortest, operand.shortest);
          } else {
            each.accepts_empty = each.accepts_empty && operand.accepts_empty;
          }
        }
        each.is_known = !each.is_searched;
        return each;
      });
}

}  // namespace

RegexId RegexPool::either(std::vector<RegexId> branches) {
  std::vector<RegexId> flat = flattened(*impl_, RegexKind::either, branches);
  if (std::binary_search(flat.begin(), flat.end(), kAnyText)) return kAnyText;
  std::erase(flat, kNoText);
  // Bytes of one place are one set: [ab] for a|b.
  ByteSet set;
  std::size_t num_sets = 0;
  for (const RegexId id : flat)
    if (impl_->expressions[id].kind == RegexKind::set) {
      set = set | impl_->sets[impl_->expressions[id].first];
      ++num_sets;
    }
  if (num_sets > 1) {
    std::erase_if(flat, [&](RegexId id) { return impl_->expressions[id].kind == RegexKind::set; });
    const RegexId merged = bytes(set);
    flat.insert(std::upper_bound(flat.begin(), flat.end(), merged), merged);
  }
  if (std::ranges::any_of(flat, [&](RegexId id) { return id != kEmptyText && accepts_empty(id); }))
    std::erase(flat, kEmptyText);
  if (flat.empty()) return kNoText;
  if (flat.size() == 1) return flat.front();
  return interned_list(*impl_, states_, RegexKind::either, flat);
}

RegexId RegexPool::both(std::vector<RegexId> conditions) {
  std::vector<RegexId> flat = flattened(*impl_, RegexKind::both, conditions);
  if (std::binary_search(flat.begin(), flat.end(), kNoText)) return kNoText;
  std::erase(flat, kAnyText);
  if (flat.empty()) return kAnyText;
  if (flat.size() == 1) return flat.front();
  if (flat.front() == kEmptyText)
    return std::ranges::all_of(flat, [&](RegexId id) { return accepts_empty(id); }) ? kEmptyText : kNoText;
  if (std::ranges::all_of(flat, [&](RegexId id) { return impl_->expressions[id].kind == RegexKind::set; })) {
    ByteSet set = ByteSet::all();
    for (const RegexId id : flat) set = set & impl_->sets[impl_->expressions[id].first];
    return bytes(set);
  }
  return interned_list(*impl_, states_, RegexKind::both, flat);
}

RegexId RegexPool::complement(RegexId id) {
  if (id == kNoText) return kAnyText;
  if (id == kAnyText) return kNoText;
  if (impl_->expressions[id].kind == RegexKind::complement) return impl_->expressions[id].first;
  const std::uint64_t hash = mixed(static_cast<std::uint64_t>(RegexKind::complement), id);
  return interned(
      *impl_, states_, hash,
      [&](const Expression& each) { return each.kind == RegexKind::complement && each.first == id; },
      [&] {
        Expression each{.kind = RegexKind::complement, .accepts_empty = !accepts_empty(id), .is_searched = true};
        each.first = id;
        each.depth = impl_->expressions[id].depth + 1;
        return each;
      });
}

RegexId RegexPool::repeat(RegexId id, std::uint32_t min, std::uint32_t max) {
  TROUPE_ASSERT(min <= max);
  if (accepts_empty(id)) min = 0;
  if (max == 0 || id == kEmptyText) return kEmptyText;
  if (id == kNoText) return min == 0 ? kEmptyText : kNoText;
  if (id == kAnyText) return kAnyText;
  if (min == 1 && max == 1) return id;
  const Expression& operand = impl_->expressions[id];
  if (operand.kind == RegexKind::repeat && operand.min == 0 && operand.max == kUnbounded) return id;
  if (operand.kind == RegexKind::set && min == 0 && max == kUnbounded && impl_->sets[operand.first] == ByteSet::all())
    return kAnyText;
  if (min == 0 && max == 1 && accepts_empty(id)) return id;
  const std::uint64_t hash = mixed(mixed(mixed(static_cast<std::uint64_t>(RegexKind::repeat), id), min), max);
  return interned(
      *impl_, states_, hash,
      [&](const Expression& each) {
        return each.kind == RegexKind::repeat && each.first == id && each.min == min && each.max == max;
      },
      [&] {
        const Expression& repeated = impl_->expressions[id];
        Expression each{.kind = RegexKind::repeat,
                        .accepts_empty = min == 0 || repeated.accepts_empty,
                        .is_searched = repeated.is_searched};
        each.first = id;
        each.depth = repeated.depth + 1;
        each.min = min;
        each.max = max;
        if (!each.is_searched) {
          each.shortest = static_cast<std::uint32_t>(
              std::min<std::uint64_t>(std::uint64_t{min} * repeated.shortest, kNoLength - 1));
          each.is_known = true;
        }
        return each;
      });
}

namespace {

// The bytes of a shortest text of each state: breadth first from the states that accept.
std::vector<std::uint32_t> shortest_of_states(const DigitTable& table) {
  std::vector<std::vector<std::uint32_t>> from(table.next.size());
  for (std::uint32_t state = 0; state < table.next.size(); ++state) {
    std::uint32_t last = DigitTable::kNoState;
    for (const std::uint32_t next : table.next[state]) {
      if (next != DigitTable::kNoState && next != last) from[next].push_back(state);
      last = next;
    }
  }
  std::vector<std::uint32_t> lengths(table.next.size(), RegexPool::kNoLength), reached;
  for (std::uint32_t state = 0; state < table.next.size(); ++state)
    if (table.accepts[state]) {
      lengths[state] = 0;
      reached.push_back(state);
    }
  for (std::size_t at = 0; at < reached.size(); ++at)
    for (const std::uint32_t state : from[reached[at]])
      if (lengths[state] == RegexPool::kNoLength) {
        lengths[state] = lengths[reached[at]] + 1;
        reached.push_back(state);
      }
  return lengths;
}

}  // namespace

RegexId RegexPool::table(DigitTable table) {
  TROUPE_ASSERT(!table.next.empty() && table.next.size() == table.accepts.size());
  const std::vector<std::uint32_t> lengths = shortest_of_states(table);
  impl_->table_bytes += table.next.size() * sizeof(table.next[0]);
  impl_->tables.push_back(std::move(table));
  const auto index = static_cast<std::uint32_t>(impl_->tables.size() - 1);
  RegexId first = kNoText;
  // All states at once, so that next() is a sum: state n is first + n.
  for (std::size_t state = 0; state < lengths.size(); ++state) {
    const std::uint64_t hash = mixed(mixed(static_cast<std::uint64_t>(RegexKind::table), index), state);
    const RegexId id = interned(
        *impl_, states_, hash, [](const Expression&) { return false; },
        [&] {
          Expression each{.kind = RegexKind::table, .accepts_empty = lengths[state] == 0, .is_searched = false};
          each.first = index;
          each.second = static_cast<std::uint32_t>(state);
          each.shortest = lengths[state];
          each.is_known = true;
          return each;
        });
    if (state == 0) first = id;
  }
  return first;
}

bool RegexPool::accepts_empty(RegexId id) const { return impl_->expressions[id].accepts_empty; }

namespace {

template <class Impl>
void derive(RegexPool& pool, Impl& impl, RegexId id);

// Derivatives of one expression by one byte.
class Derivation {
 public:
  template <class Impl>
  static RegexId of(RegexPool& pool, Impl& impl, RegexId id, std::uint8_t byte) {
    if (const Expression& each = impl.expressions[id]; each.classes != nullptr)
      return each.raw_targets[each.classes[byte]];
    std::vector<RegexId> branches;
    for (;;) {
      // By value: making expressions may move what the lists of operands lie in.
      const RegexKind kind = impl.expressions[id].kind;
      const std::uint32_t first = impl.expressions[id].first, second = impl.expressions[id].second;
      if (kind != RegexKind::concat) {
        branches.push_back(simple(pool, impl, id, kind, first, second, byte));
        break;
      }
      branches.push_back(pool.concat(of(pool, impl, first, byte), second));
      if (!impl.expressions[first].accepts_empty) break;
      id = second;
    }
    return branches.size() == 1 ? branches.front() : pool.either(std::move(branches));
  }

 private:
  // Of an operand that many expressions share: all its derivatives are kept.
  template <class Impl>
  static RegexId kept(RegexPool& pool, Impl& impl, RegexId id, std::uint8_t byte) {
    derive(pool, impl, id);
    return of(pool, impl, id, byte);
  }

  template <class Impl>
  static RegexId simple(RegexPool& pool, Impl& impl, RegexId id, RegexKind kind, std::uint32_t first,
                        std::uint32_t second, std::uint8_t byte) {
    switch (kind) {
      case RegexKind::none:
      case RegexKind::empty:
        return kNoText;
      case RegexKind::any:
        return kAnyText;
      case RegexKind::set:
        return impl.sets[first].contains(byte) ? kEmptyText : kNoText;
      case RegexKind::table: {
        const std::uint32_t state = impl.tables[first].next[second][byte];
        return state == DigitTable::kNoState ? kNoText : id - second + state;
      }
      case RegexKind::complement:
        return pool.complement(kept(pool, impl, first, byte));
      case RegexKind::repeat: {
        const std::uint32_t min = impl.expressions[id].min, max = impl.expressions[id].max;
        const RegexId rest = pool.repeat(first, min == 0 ? 0 : min - 1, max == kUnbounded ? max : max - 1);
        return pool.concat(of(pool, impl, first, byte), rest);
      }
      case RegexKind::either:
      case RegexKind::both: {
        impl.spend(second / kOperandsPerWork);
        std::vector<RegexId> derived(impl.operands.begin() + first, impl.operands.begin() + first + second);
        for (RegexId& each : derived) {
          each = kept(pool, impl, each, byte);
          if (kind == RegexKind::both && each == kNoText) return kNoText;
        }
        return kind == RegexKind::either ? pool.either(std::move(derived)) : pool.both(std::move(derived));
      }
      case RegexKind::concat:
        break;
    }
    TROUPE_ASSERT(false);
    return kNoText;
  }
};

// Fills classes and raw_targets of `id`.
template <class Impl>
void derive(RegexPool& pool, Impl& impl, RegexId id) {
  if (impl.expressions[id].classes != nullptr) return;
  impl.spend(1);
  const std::uint8_t* const division = impl.division(id);
  std::array<RegexId, 256> by_class;
  std::array<bool, 256> is_done{};
  for (unsigned byte = 0; byte < 256; ++byte) {
    if (is_done[division[byte]]) continue;
    is_done[division[byte]] = true;
    by_class[division[byte]] = Derivation::of(pool, impl, id, static_cast<std::uint8_t>(byte));
  }
  const Classes classes = numbered([&](unsigned byte) { return by_class[division[byte]]; });
  std::vector<RegexId> targets;
  for (unsigned byte = 0; byte < 256; ++byte)
    if (classes[byte] == targets.size()) targets.push_back(by_class[division[byte]]);
  Expression& expression = impl.expressions[id];
  expression.classes = impl.kept(classes);
  expression.raw_targets = std::move(targets);
}

}  // namespace

namespace {

// Whether `text` matches; asks for no shortest texts.
template <class Impl>
bool matches_raw(RegexPool& pool, Impl& impl, RegexId id, std::string_view text) {
  for (const char byte : text) {
    derive(pool, impl, id);
    const Expression& each = impl.expressions[id];
    id = each.raw_targets[each.classes[static_cast<std::uint8_t>(byte)]];
  }
  return impl.expressions[id].accepts_empty;
}

// Finds the shortest text of an intersection if it is that of the operand whose shortest one is longest, as mostly.
template <class Impl>
void ask_operands(RegexPool& pool, Impl& impl, RegexId id) {
  if (impl.expressions[id].kind != RegexKind::both || impl.expressions[id].is_known) return;
  const auto list = impl.operands_of(impl.expressions[id]);
  const std::vector<RegexId> operands(list.begin(), list.end());
  RegexId longest = kNoText;
  std::uint32_t length = 0;
  for (const RegexId each : operands) {
    const Expression& operand = impl.expressions[each];
    if (operand.is_searched || operand.shortest < length) continue;
    longest = each;
    length = operand.shortest;
  }
  if (longest == kNoText || (length > kMaxAskedBytes && length != RegexPool::kNoLength)) return;
  if (length != RegexPool::kNoLength) {
    const std::string text = pool.shortest_text(longest);
    for (const RegexId each : operands)
      if (each != longest && !matches_raw(pool, impl, each, text)) return;
  }
  impl.expressions[id].shortest = length;
  impl.expressions[id].is_known = true;
}

}  // namespace

std::uint32_t RegexPool::shortest(RegexId id) {
  if (impl_->expressions[id].is_known) return impl_->expressions[id].shortest;
  if (accepts_empty(id)) {
    impl_->expressions[id].is_known = true;
    return impl_->expressions[id].shortest = 0;
  }
  // Breadth first, until what is known ends the search.
  struct Visit {
    RegexId id;
    std::size_t from;  // the visit that led here
    std::uint32_t depth;
  };
  std::vector<Visit> visits{{id, 0, 0}};
  std::unordered_set<RegexId> seen{id};
  std::uint64_t best = kNoLength;
  std::size_t best_visit = 0;
  for (std::size_t at = 0; at < visits.size(); ++at) {
    const Visit visit = visits[at];
    if (visit.depth >= best) break;
    if (at < kMaxAskedStates) ask_operands(*this, *impl_, visit.id);
    const Expression& each = impl_->expressions[visit.id];
    if (each.is_known || each.accepts_empty) {
      const std::uint32_t rest = each.accepts_empty ? 0 : each.shortest;
      if (rest != kNoLength && std::uint64_t{visit.depth} + rest < best) {
        best = std::uint64_t{visit.depth} + rest;
        best_visit = at;
      }
      continue;
    }
    derive(*this, *impl_, visit.id);
    for (const RegexId target : impl_->expressions[visit.id].raw_targets) {
      if (target == kNoText || !seen.insert(target).second) continue;
      if (visits.size() >= kMaxSearchedStates)
        throw ConstraintLimit("whether a pattern can be met takes more than " + std::to_string(kMaxSearchedStates) +
                              " states to tell: make it simpler");
      visits.push_back({target, at, visit.depth + 1});
    }
  }
  if (best == kNoLength) {
    for (const Visit& visit : visits) {
      Expression& each = impl_->expressions[visit.id];
      each.shortest = kNoLength;
      each.is_known = true;
    }
    return kNoLength;
  }
  for (std::size_t at = best_visit;; at = visits[at].from) {
    Expression& each = impl_->expressions[visits[at].id];
    each.shortest = static_cast<std::uint32_t>(best - visits[at].depth);
    each.is_known = true;
    if (at == 0) break;
  }
  return static_cast<std::uint32_t>(best);
}

RegexId RegexPool::first_next(RegexId id, std::uint8_t byte) {
  derive(*this, *impl_, id);
  std::vector<RegexId> targets = impl_->expressions[id].raw_targets;
  for (RegexId& target : targets)
    if (shortest(target) == kNoLength) target = kNoText;
  Expression& expression = impl_->expressions[id];
  const Classes classes = numbered([&](unsigned each) { return targets[expression.classes[each]]; });
  std::vector<RegexId> distinct;
  for (unsigned each = 0; each < 256; ++each)
    if (classes[each] == distinct.size()) distinct.push_back(targets[expression.classes[each]]);
  expression.classes = impl_->kept(classes);
  expression.raw_targets.clear();
  expression.raw_targets.shrink_to_fit();
  expression.raw_targets = distinct;
  expression.targets = std::move(distinct);
  states_[id] = {expression.classes, expression.targets.data()};
  return expression.targets[expression.classes[byte]];
}

RegexId RegexPool::after(RegexId id, std::string_view text) {
  for (const char each : text) {
    if (id == kNoText) break;
    id = next(id, static_cast<std::uint8_t>(each));
  }
  return id;
}

const std::uint8_t* RegexPool::classes(RegexId id) {
  if (states_[id].targets == nullptr) (void)first_next(id, 0);
  return states_[id].classes;
}

std::size_t RegexPool::num_classes(RegexId id) {
  if (states_[id].targets == nullptr) (void)first_next(id, 0);
  return impl_->expressions[id].targets.size();
}

std::string RegexPool::shortest_text(RegexId id) {
  std::string text;
  for (std::uint32_t left = shortest(id); left > 0; --left) {
    TROUPE_ASSERT(left != kNoLength);
    const std::uint8_t* const division = classes(id);
    RegexId found = kNoText;
    for (unsigned byte = 0; byte < 256 && found == kNoText; ++byte) {
      const RegexId target = states_[id].targets[division[byte]];
      if (target != kNoText && shortest(target) == left - 1) {
        text += static_cast<char>(byte);
        found = target;
      }
    }
    TROUPE_ASSERT(found != kNoText);
    id = found;
  }
  return text;
}

void RegexPool::count_work() { impl_->spend(1); }

std::size_t RegexPool::work_left() const { return impl_->work_left; }

void RegexPool::limit_work(std::size_t derivations) { impl_->work_left = derivations; }

void RegexPool::limit_bytes(std::size_t most) { impl_->max_bytes = most; }

void RegexPool::check_room(std::size_t bytes) const { impl_->check_room(bytes); }

std::size_t RegexPool::bytes_used() const { return impl_->bytes_used(); }

}  // namespace troupe::engine::constraints
