// The kernels that tests try: what this machine cannot run is skipped by name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernels/kernels.h"
#include "tests/support/skip.h"

namespace troupe::test {

inline void skip_variant(std::string_view name) {
  skip("this CPU lacks kernels, or its operating system refuses them", std::string(name));
}

// Every variant that this machine can run, best last.
inline std::vector<const kernels::KernelTable*> variants_here() {
  std::vector<const kernels::KernelTable*> tables;
  for (const kernels::KernelTable* table : kernels::all_tables()) {
    if (kernels::is_supported(*table))
      tables.push_back(table);
    else
      skip_variant(table->name);
  }
  return tables;
}

// One variant, whether this machine can run it or not; null, and skipped, where the build left it out.
inline const kernels::KernelTable* variant_built(std::string_view name) {
  const kernels::KernelTable* table = kernels::find_table(name);
  if (table == nullptr && std::string_view(TROUPE_CPU) == "any") FAIL("there is no variant '" << name << "'");
  if (table == nullptr) skip("this build has kernels for one CPU only (TROUPE_CPU=this)", std::string(name));
  return table;
}

// One variant; null, and skipped, where this machine cannot run it.
inline const kernels::KernelTable* variant_here(std::string_view name) {
  const kernels::KernelTable* table = variant_built(name);
  if (table == nullptr || kernels::is_supported(*table)) return table;
  skip_variant(name);
  return nullptr;
}

}  // namespace troupe::test
