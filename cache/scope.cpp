#include "cache/scope.h"

#include <xxhash.h>

namespace troupe::cache {

ScopeId named_scope(TenantId tenant, std::string_view name) {
  const auto hash = static_cast<std::uint32_t>(XXH3_64bits(name.data(), name.size())) & 0x3fffffffu;
  return detail::make_scope(detail::kind_of(tenant), detail::number_of(tenant), hash == 0 ? 1 : hash);
}

}  // namespace troupe::cache
