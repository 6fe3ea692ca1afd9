#include "engine/constraints/text_kinds.h"

#include <algorithm>
#include <unordered_set>

#include "config/utf8.h"

namespace troupe::engine::constraints {
namespace {

// Expressions that one level of a search may hold.
constexpr std::size_t kMaxLevel = 128;

constexpr bool is_lower(std::uint8_t byte) { return byte >= 'a' && byte <= 'z'; }
constexpr bool is_word(std::uint8_t byte) {
  return is_lower(byte) || (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9') || byte == '_';
}

// The lowest kind of an ASCII character; nothing for what a JSON string cannot hold as it is.
constexpr std::optional<TextKind> kind_of_ascii(std::uint8_t byte) {
  if (is_lower(byte)) return TextKind::lower;
  if (is_word(byte)) return TextKind::word;
  if (byte == '-') return TextKind::name;
  if (byte == '"' || byte == '\\' || byte < 0x20) return std::nullopt;
  if (byte == ' ') return TextKind::printable;
  return byte == 0x7F ? TextKind::any : TextKind::visible;
}

// UTF-8's well-formed sequences (The Unicode Standard, table 3-7): a first byte, a second one, others from 80 to BF.
struct Utf8Row {
  std::uint8_t first, last, second_first, second_last;
  std::size_t more;
};
constexpr Utf8Row kUtf8Rows[] = {
    {0xC2, 0xDF, 0x80, 0xBF, 0}, {0xE0, 0xE0, 0xA0, 0xBF, 1}, {0xE1, 0xEC, 0x80, 0xBF, 1}, {0xED, 0xED, 0x80, 0x9F, 1},
    {0xEE, 0xEF, 0x80, 0xBF, 1}, {0xF0, 0xF0, 0x90, 0xBF, 2}, {0xF1, 0xF3, 0x80, 0xBF, 2}, {0xF4, 0xF4, 0x80, 0x8F, 2},
};

std::uint64_t key_of(RegexId id, TextKind kind) { return std::uint64_t{id} << 8 | static_cast<std::uint8_t>(kind); }

}  // namespace

std::optional<KindOfText> kind_of_text(std::string_view text) {
  if (text.empty()) return std::nullopt;
  KindOfText found{TextKind::lower, 0};
  while (!text.empty()) {
    const auto byte = static_cast<std::uint8_t>(text.front());
    std::size_t length = 1;
    std::optional<TextKind> kind = TextKind::any;
    if (byte < 0x80) {
      kind = kind_of_ascii(byte);
    } else {
      const Utf8Char character = next_utf8(text);
      if (character.status != Utf8Status::valid) return std::nullopt;
      length = character.length;
    }
    if (!kind) return std::nullopt;
    found.kind = std::max(found.kind, *kind);
    ++found.num_characters;
    text.remove_prefix(length);
  }
  return found;
}

void TextDepths::collect(RegexId id, std::uint8_t first, std::uint8_t last, std::size_t more_bytes, Step& into) {
  std::vector<RegexId> targets;
  for (unsigned byte = first; byte <= last; ++byte) {
    const RegexId target = pool_->next(id, static_cast<std::uint8_t>(byte));
    if (std::find(targets.begin(), targets.end(), target) == targets.end()) targets.push_back(target);
  }
  for (const RegexId target : targets) {
    if (target == kNoText) {
      into.some_stop = true;
      continue;
    }
    if (pool_->accepts_empty(target)) into.some_end = true;
    if (more_bytes > 0)
      collect(target, 0x80, 0xBF, more_bytes - 1, into);
    else if (std::find(into.targets.begin(), into.targets.end(), target) == into.targets.end())
      into.targets.push_back(target);
  }
}

const TextDepths::Step& TextDepths::step(RegexId id, TextKind kind) {
  if (const auto found = steps_.find(key_of(id, kind)); found != steps_.end()) return found->second;
  Step made;  // kept once it is whole: expressions may reach a limit
  std::uint8_t last = 0;
  RegexId last_target = UINT32_MAX;
  for (unsigned byte = 0x20; byte < 0x80; ++byte) {
    const std::optional<TextKind> its = kind_of_ascii(static_cast<std::uint8_t>(byte));
    if (!its || *its > kind) continue;
    const RegexId target = pool_->next(id, static_cast<std::uint8_t>(byte));
    if (target == last_target) continue;
    last_target = target;
    last = static_cast<std::uint8_t>(byte);
    collect(id, last, last, 0, made);
  }
  if (kind == TextKind::any)
    for (const Utf8Row& row : kUtf8Rows) {
      Step firsts;
      collect(id, row.first, row.last, 0, firsts);
      made.some_stop = made.some_stop || firsts.some_stop;
      made.some_end = made.some_end || firsts.some_end;
      for (const RegexId target : firsts.targets) collect(target, row.second_first, row.second_last, row.more, made);
    }
  return steps_.emplace(key_of(id, kind), std::move(made)).first->second;
}

TextDepth TextDepths::of(RegexId id, TextKind kind) {
  if (const auto found = known_.find(key_of(id, kind)); found != known_.end()) return found->second;
  const TextDepth depth = searched(id, kind);
  known_.emplace(key_of(id, kind), depth);
  return depth;
}

std::optional<RegexId> TextDepths::after_any(RegexId id, TextKind kind) {
  const Step& one = step(id, kind);
  if (one.some_end) return std::nullopt;
  if (one.targets.empty()) return kNoText;
  if (one.some_stop || one.targets.size() > 1) return std::nullopt;
  return one.targets.front();
}

TextDepth TextDepths::searched(RegexId id, TextKind kind) {
  std::vector<RegexId> level{id};
  std::unordered_set<RegexId> all{id};
  bool some_end = false;
  std::uint32_t shortest = 0;
  for (std::uint8_t depth = 0; depth < kMaxTextDepth; ++depth) {
    std::vector<RegexId> next;
    bool some_stop = false;
    for (const RegexId each : level) {
      const Step& one = step(each, kind);
      some_stop = some_stop || one.some_stop;
      some_end = some_end || one.some_end;
      next.insert(next.end(), one.targets.begin(), one.targets.end());
    }
    std::sort(next.begin(), next.end());
    next.erase(std::unique(next.begin(), next.end()), next.end());
    if (some_stop) return {depth, next.empty() && !some_end, shortest};
    for (const RegexId each : next) shortest = std::max(shortest, pool_->shortest(each));
    if (depth == 0 && next.size() == 1 && next.front() == id) return {kEveryDepth, false, shortest, true};
    std::erase_if(next, [&](RegexId each) { return !all.insert(each).second; });
    if (next.empty()) return {kEveryDepth, false, shortest};
    if (next.size() > kMaxLevel) return {static_cast<std::uint8_t>(depth + 1), false, shortest};
    level = std::move(next);
  }
  return {kMaxTextDepth, false, shortest};
}

}  // namespace troupe::engine::constraints
