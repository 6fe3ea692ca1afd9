// Scopes: which requests may reuse a cached prefix. Every edge of the radix tree belongs to one scope.
//
// Reusing a prefix shows in the time to the first token, so a prefix that one user computed must not be found by
// another user's request unless it was published as "public". The bits of a scope are laid out so that scopes of
// different users are never equal, whatever names they choose; two names of one user may collide.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "cache/ids.h"
#include "config/assert.h"

namespace troupe::cache {

enum class ScopeId : std::uint64_t {};

inline constexpr ScopeId kPublicScope{0};

namespace detail {
constexpr std::uint32_t number_of(TenantId tenant) { return static_cast<std::uint32_t>(tenant); }
constexpr std::uint64_t kind_of(TenantId tenant) { return static_cast<std::uint64_t>(tenant) >> 32 == 0 ? 1 : 3; }
// [kind:2][owner:32][name:30]
constexpr ScopeId make_scope(std::uint64_t kind, std::uint32_t owner, std::uint32_t name) {
  return ScopeId{(kind << 62) | (static_cast<std::uint64_t>(owner) << 30) | (name & 0x3fffffffu)};
}
}  // namespace detail

// The default: shared by all requests of one user.
constexpr ScopeId user_scope(TenantId tenant) {
  return detail::make_scope(detail::kind_of(tenant), detail::number_of(tenant), 0);
}

// A scope that the user named; only requests of this user with this name (or one that collides) find its prefixes.
ScopeId named_scope(TenantId tenant, std::string_view name);

// The scopes of one request: lookups try them in this order, new blocks are published under the last.
// At most kMax (asserted), at least one wherever a list is used.
class ScopeList {
 public:
  static constexpr std::size_t kMax = 3;

  constexpr ScopeList() = default;
  constexpr ScopeList(std::initializer_list<ScopeId> scopes) {
    for (ScopeId scope : scopes) push(scope);
  }
  constexpr void push(ScopeId scope) {
    TROUPE_ASSERT(size_ < kMax);
    scopes_[size_++] = scope;
  }

  constexpr const ScopeId* begin() const { return scopes_.data(); }
  constexpr const ScopeId* end() const { return scopes_.data() + size_; }
  constexpr std::size_t size() const { return size_; }
  constexpr ScopeId publish() const { return scopes_[size_ - 1]; }
  constexpr bool contains(ScopeId scope) const {
    for (ScopeId s : *this)
      if (s == scope) return true;
    return false;
  }

 private:
  std::array<ScopeId, kMax> scopes_{};
  std::size_t size_ = 0;
};

// The scopes of a request of `tenant` with the cache scope `name`: "" is the user's own, "public" is shared by all
// users, anything else is a named scope of this user. Every request also finds public prefixes.
inline ScopeList scopes_for(TenantId tenant, std::string_view name) {
  if (name == "public") return {kPublicScope};
  if (name.empty()) return {kPublicScope, user_scope(tenant)};
  return {kPublicScope, named_scope(tenant, name)};
}

}  // namespace troupe::cache
