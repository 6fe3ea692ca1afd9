#include "cache/attachments.h"

#include "config/assert.h"

namespace troupe::cache {

Attachments::Attachments(std::uint32_t num_radix_nodes, std::uint32_t num_ids)
    : pool_(num_ids),
      of_(num_ids == 0 ? 0 : num_radix_nodes, kNone),
      radix_node_(num_ids, kNoBlock),
      unheld_(num_ids) {}

Attachments::~Attachments() {
  while (unheld_.size() > 0) detach(radix_node_[unheld_.oldest()]);
  TROUPE_ASSERT(num_attached_ == 0);
}

Attachments::Id Attachments::take() {
  TROUPE_ASSERT(available() > 0);
  if (pool_.num_free() == 0) {
    detach(radix_node_[unheld_.oldest()]);
    ++num_evictions_;
  }
  return pool_.allocate();
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
  if (!held(id)) unheld_.remove(id);
  of_[radix_node] = kNone;
  radix_node_[id] = kNoBlock;
  --num_attached_;
  pool_.release(id);
}

void Attachments::hold(Id id) {
  if (!held(id)) unheld_.remove(id);
  pool_.retain(id);
}

void Attachments::drop(Id id) {
  TROUPE_ASSERT(held(id));
  pool_.release(id);
  if (attached(id) && !held(id)) unheld_.push_newest(id);
}

void Attachments::check() const {
  std::uint32_t num_attached = 0, num_unheld = 0;
  for (BlockId node = 0; node < of_.size(); ++node) {
    if (of_[node] == kNone) continue;
    ++num_attached;
    TROUPE_ASSERT(radix_node_[of_[node]] == node && references(of_[node]) > 0);
    if (!held(of_[node])) ++num_unheld;
  }
  TROUPE_ASSERT(num_attached == num_attached_ && num_unheld == unheld_.size());
  for (Id id = unheld_.oldest(); id != kNone; id = unheld_.next_newer(id)) {
    TROUPE_ASSERT(attached(id) && !held(id));
    --num_unheld;
  }
  TROUPE_ASSERT(num_unheld == 0);
}

}  // namespace troupe::cache
