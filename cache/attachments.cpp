#include "cache/attachments.h"

#include "config/assert.h"

namespace troupe::cache {

Attachments::Attachments(std::uint32_t num_radix_nodes, std::uint32_t num_ids)
    : pool_(num_ids),
      of_(num_ids == 0 ? 0 : num_radix_nodes, kNone),
      radix_node_(num_ids, kNoBlock),
      num_radix_nodes_(num_radix_nodes) {}

Attachments::~Attachments() {
  while (pool_.accounts().num_unused() > 0) detach(radix_node_[pool_.accounts().victim_for({})]);
  TROUPE_ASSERT(num_attached_ == 0);
}

Attachments::Id Attachments::take(const Owner& owner) {
  TROUPE_ASSERT(available() > 0);
  if (pool_.num_free() == 0) {
    detach(radix_node_[pool_.accounts().victim_for(owner.tenant)]);
    ++num_evictions_;
  }
  const std::uint64_t floor = std::uint64_t{owner.floor} * num_ids() / num_radix_nodes_;
  return pool_.allocate({.tenant = owner.tenant, .floor = static_cast<std::uint32_t>(floor)});
}

void Attachments::attach(BlockId radix_node, Id id) {
  TROUPE_ASSERT(of_[radix_node] == kNone && !attached(id) && held(id));
  of_[radix_node] = id;
  radix_node_[id] = radix_node;
  ++num_attached_;
  pool_.retain(id);
}

void Attachments::detach(BlockId radix_node) {
  const Id id = of(radix_node);
  if (id == kNone) return;
  of_[radix_node] = kNone;
  radix_node_[id] = kNoBlock;
  --num_attached_;
  pool_.release(id);
}

void Attachments::hold(Id id, TenantId tenant) {
  pool_.accounts().use(id, tenant);
  pool_.retain(id);
}

void Attachments::drop(Id id) {
  TROUPE_ASSERT(held(id));
  pool_.release(id);
  if (attached(id) && !held(id)) pool_.accounts().leave(id);
}

void Attachments::check() const {
  std::uint32_t num_attached = 0, num_unheld = 0;
  for (BlockId node = 0; node < of_.size(); ++node) {
    if (of_[node] == kNone) continue;
    ++num_attached;
    TROUPE_ASSERT(radix_node_[of_[node]] == node && references(of_[node]) > 0);
    if (!held(of_[node])) ++num_unheld;
  }
  TROUPE_ASSERT(num_attached == num_attached_ && num_unheld == pool_.accounts().num_unused());
  pool_.accounts().check();
}

}  // namespace troupe::cache
