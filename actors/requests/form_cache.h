// Compiled forms of answers that were asked for lately: the next request with the same one need not wait for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "cache/ids.h"
#include "engine/constraints/constraint.h"
#include "engine/constraints/forms/form_rule.h"

namespace troupe::actors {

// Each tenant finds what it asked for itself, so that the time that a form takes tells nothing of what others ask.
//
// What is kept is the form as it was compiled, before a text was read with it; it never changes, and every request
// reads with a copy (make_rule()). So no answer depends on what is kept, nor on what other requests have read.
//
// Not thread-safe. Forms are compared whole.
class FormCache {
 public:
  using Form = engine::constraints::Constraint;
  using Compiled = engine::constraints::CompiledForm;

  static constexpr std::size_t kMaxTenantBytes = 8u << 20;
  // Of all tenants. Beyond it the one that holds most, what is to be added included, loses what it used least recently;
  // so one that holds no more than an equal part of this loses nothing by what others ask.
  static constexpr std::size_t kMaxBytes = 64u << 20;

  explicit FormCache(std::size_t max_tenant_bytes = kMaxTenantBytes, std::size_t max_bytes = kMaxBytes)
      : max_tenant_bytes_(max_tenant_bytes), max_bytes_(max_bytes) {}

  // Null: it is not kept. Else it is the tenant's last used one now. O(bytes of the form).
  [[nodiscard]] std::shared_ptr<const Compiled> find(TenantId tenant, const Form& form);
  // What is too large for the tenant is not kept. O(bytes of the form), and tenants for each one that is
  // dropped.
  void keep(TenantId tenant, const Form& form, std::shared_ptr<const Compiled> compiled);

  // Of memory, with the forms themselves.
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] std::size_t bytes_of(TenantId tenant) const;
  [[nodiscard]] std::size_t size() const;

 private:
  struct Kept {
    std::uint64_t hash = 0;
    std::size_t bytes = 0;
    Form form{};
    std::shared_ptr<const Compiled> compiled{};
  };
  struct Held {
    std::size_t bytes = 0;
    std::list<Kept> forms{};  // the one that was used last first
    std::unordered_multimap<std::uint64_t, std::list<Kept>::iterator> by_hash{};
  };

  static std::list<Kept>::iterator find_in(Held& held, const Form& form, std::uint64_t hash);
  void drop_last_of(std::map<TenantId, Held>::iterator tenant);

  const std::size_t max_tenant_bytes_, max_bytes_;
  std::size_t bytes_ = 0;
  std::map<TenantId, Held> held_;  // of those that hold any
};

// For any thread.
struct KeptForms {
  std::mutex mutex;
  FormCache cache;  // with `mutex` held
};

}  // namespace troupe::actors
