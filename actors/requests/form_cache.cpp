#include "actors/requests/form_cache.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <string>
#include <utility>

#include "config/assert.h"

namespace troupe::actors {
namespace {

std::uint64_t hash_of(const FormCache::Form& form) {
  const std::hash<std::string> hash;
  std::uint64_t all = static_cast<std::uint64_t>(form.kind) * 2 + form.spaces;
  const auto add = [&](const std::string& text) { all = (all ^ hash(text)) * 0x9E3779B97F4A7C15u + 1; };
  add(form.text);
  for (const std::string& choice : form.choices) add(choice);
  const engine::constraints::CallWish& calls = form.calls;
  all ^= static_cast<std::uint64_t>(calls.must_call) * 2 + calls.may_call_several;
  add(calls.name);
  for (const std::string& strict : calls.strict) add(strict);
  return all;
}

}  // namespace

std::list<FormCache::Kept>::iterator FormCache::find_in(Held& held, const Form& form, std::uint64_t hash) {
  const auto [begin, end] = held.by_hash.equal_range(hash);
  const auto found = std::find_if(begin, end, [&](const auto& each) { return each.second->form == form; });
  return found == end ? held.forms.end() : found->second;
}

std::shared_ptr<const FormCache::Compiled> FormCache::find(TenantId tenant, const Form& form) {
  const auto held = held_.find(tenant);
  if (held == held_.end()) return nullptr;
  const auto kept = find_in(held->second, form, hash_of(form));
  if (kept == held->second.forms.end()) return nullptr;
  held->second.forms.splice(held->second.forms.begin(), held->second.forms, kept);
  return kept->compiled;
}

void FormCache::keep(TenantId tenant, const Form& form, std::shared_ptr<const Compiled> compiled) {
  const std::size_t bytes = sizeof(Kept) + engine::constraints::bytes_of(form) + compiled->bytes_used();
  if (bytes > std::min(max_tenant_bytes_, max_bytes_) || find(tenant, form) != nullptr) return;
  while (bytes_of(tenant) + bytes > max_tenant_bytes_) drop_last_of(held_.find(tenant));
  while (bytes_ + bytes > max_bytes_) {
    const auto own = held_.find(tenant);
    const auto most = std::ranges::max_element(held_, {}, [](const auto& each) { return each.second.bytes; });
    if (most->second.bytes > bytes_of(tenant) + bytes)
      drop_last_of(most);
    else if (own != held_.end())
      drop_last_of(own);
    else
      return;
  }
  Held& held = held_[tenant];
  const std::uint64_t hash = hash_of(form);
  held.forms.push_front({.hash = hash, .bytes = bytes, .form = form, .compiled = std::move(compiled)});
  held.by_hash.emplace(hash, held.forms.begin());
  held.bytes += bytes;
  bytes_ += bytes;
}

void FormCache::drop_last_of(std::map<TenantId, Held>::iterator tenant) {
  TROUPE_ASSERT(tenant != held_.end() && !tenant->second.forms.empty());
  Held& held = tenant->second;
  const auto last = std::prev(held.forms.end());
  const auto [begin, end] = held.by_hash.equal_range(last->hash);
  held.by_hash.erase(std::find_if(begin, end, [&](const auto& each) { return each.second == last; }));
  held.bytes -= last->bytes;
  bytes_ -= last->bytes;
  held.forms.erase(last);
  if (held.forms.empty()) held_.erase(tenant);
}

std::size_t FormCache::bytes_of(TenantId tenant) const {
  const auto held = held_.find(tenant);
  return held == held_.end() ? 0 : held->second.bytes;
}

std::size_t FormCache::size() const {
  std::size_t size = 0;
  for (const auto& [tenant, held] : held_) size += held.forms.size();
  return size;
}

}  // namespace troupe::actors
