// The dictionary.
#include <bit>
#include <cmath>
#include <functional>

#include "engine/chat/values/python_text.h"
#include "engine/chat/values/value.h"

namespace troupe::engine::chat {
namespace {

constexpr std::size_t kMaxUnindexed = 8;  // so many keys are compared one by one
constexpr int kMaxHashDepth = 32;         // of lists in lists; deeper parts count as equal, and are compared

// The low bits choose a slot, and those of a real number that is whole are all zero: the high ones come down.
std::size_t mixed(std::size_t hash, std::size_t more) {
  const std::size_t product = (hash ^ more) * 0x9E3779B97F4A7C15u;
  return product ^ (product >> 32);
}

std::size_t hash_of_bytes(std::string_view bytes, Meter& meter) {
  std::size_t hash = bytes.size();
  while (!bytes.empty()) {
    const std::string_view piece = bytes.substr(0, Meter::kBytesPerPiece);
    meter.touch(piece.size());
    hash = mixed(hash, std::hash<std::string_view>()(piece));
    bytes.remove_prefix(piece.size());
  }
  return hash;
}

// Equal values have equal hashes: 1, 1.0 and true are equal.
std::size_t hash_of_value(const Value& value, Heap& heap, int depth = 0) {
  heap.step();
  if (value.is_number()) {
    const double number = value.as_real();
    return number == 0 || std::isnan(number) ? 0 : mixed(1, std::bit_cast<std::uint64_t>(number));
  }
  const auto kind = static_cast<std::size_t>(value.kind());
  switch (value.kind()) {
    case Kind::text:
      return hash_of_bytes(value.text().bytes(), heap.meter());
    case Kind::list: {
      std::size_t hash = mixed(kind, value.list().items.size());
      if (value.list().form == ListForm::generator || depth == kMaxHashDepth) return hash;
      for (const Value& each : value.list().items) hash = mixed(hash, hash_of_value(each, heap, depth + 1));
      return hash;
    }
    case Kind::map:
      return mixed(kind, value.map().items.size());
    case Kind::object:
      return mixed(kind, std::hash<const void*>()(value.address()));
    default:
      return kind;
  }
}

}  // namespace

template <class Hash, class IsKey>
std::size_t Map::place_of(Hash hash, IsKey is_key, Heap& heap) const {
  if (slots_.empty()) {
    std::size_t place = 0;
    while (place < items.size() && !is_key(items[place].first)) ++place;
    heap.step();
    return place;
  }
  const std::size_t wanted = hash(), mask = slots_.size() - 1;
  for (std::size_t slot = wanted & mask; slots_[slot] != 0; slot = (slot + 1) & mask) {
    heap.step();
    const std::size_t place = slots_[slot] - 1;
    if (hashes_[place] == wanted && is_key(items[place].first)) return place;
  }
  return items.size();
}

std::size_t Map::search(std::string_view key, Heap& heap) const {
  return place_of(
      [&] { return hash_of_bytes(key, heap.meter()); },
      [&](const Value& each) { return each.is(Kind::text) && same_bytes(each.text().bytes(), key, heap.meter()); },
      heap);
}

std::size_t Map::search(const Value& key, Heap& heap) const {
  if (key.is(Kind::text)) return search(key.text().bytes(), heap);
  return place_of([&] { return hash_of_value(key, heap); }, [&](const Value& each) { return equals(each, key, heap); },
                  heap);
}

const Value* Map::find(std::string_view key, Heap& heap) const {
  const std::size_t place = search(key, heap);
  return place == items.size() ? nullptr : &items[place].second;
}

const Value* Map::find(const Value& key, Heap& heap) const {
  const std::size_t place = search(key, heap);
  return place == items.size() ? nullptr : &items[place].second;
}

void Map::put(std::size_t place, Heap& heap) {
  std::size_t slot = hashes_[place] & (slots_.size() - 1);
  for (; slots_[slot] != 0; slot = (slot + 1) & (slots_.size() - 1)) heap.step();
  slots_[slot] = static_cast<std::uint32_t>(place + 1);
}

void Map::index_last(Heap& heap) {
  if (items.size() <= kMaxUnindexed) return;
  for (std::size_t place = hashes_.size(); place < items.size(); ++place)
    hashes_.push_back(hash_of_value(items[place].first, heap));
  std::size_t from = items.size() - 1;
  if (items.size() * 2 > slots_.size()) {
    slots_.assign(std::bit_ceil(items.size() * 4), 0);
    from = 0;
  }
  for (std::size_t place = from; place < items.size(); ++place) {
    heap.step();
    put(place, heap);
  }
}

void Heap::set(Map& map, const Value& key, const Value& value) {
  const std::size_t place = map.search(key, *this);
  if (place < map.items.size()) {
    map.items[place].second = value;
    return;
  }
  map.items.emplace_back(key, value);
  map.index_last(*this);
}

}  // namespace troupe::engine::chat
