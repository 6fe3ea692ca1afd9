// Registers user-defined kernel variants: an extension point (docs/extending.md, docs/examples/kernel_variant.cpp).
#pragma once

#include "config/result.h"
#include "kernels/kernels.h"

namespace troupe::kernels {

inline constexpr std::size_t kMaxRegisteredTables = 32;

// Appends `table` to all_tables() and supported_tables(), so that find_table() finds it. It is used only if requested
// by name, and never chosen by best_table().
//
// Nothing is copied: the table and its name must live, unchanged, as long as the program. The caller guarantees that
// this CPU can run all its functions: a table made from a copy of another one is registered only if is_supported(that
// other table). Its functions must meet the contracts of kernels.h. numerics_id contains its name: a table that gives
// other bits needs another name.
//
// Errors, without adding the table: invalid_argument for a name that another table has or that is not 1 to 16 of a-z,
// 0-9 and _ (it goes into ids and file names), for a missing function, or for more than kMaxRegisteredTables. Any
// thread, at any time.
[[nodiscard]] Status register_table(const KernelTable& table);

}  // namespace troupe::kernels
