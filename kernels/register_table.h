// A kernel variant of one's own: an extension point (docs/extending.md, docs/examples/kernel_variant.cpp).
#pragma once

#include "config/result.h"
#include "kernels/kernels.h"

namespace troupe::kernels {

inline constexpr std::size_t kMaxRegisteredTables = 32;

// Adds `table` to all_tables() and supported_tables(), behind those that were there, and to what find_table() finds. It
// is used where somebody asks for its name, and never chosen as the best.
//
// Nothing is copied: the table and its name must live, unchanged, as long as the program. Registering says that this
// CPU can run all its functions: who replaces some functions of another table registers where is_supported(that table).
// The contracts of kernels.h hold for what it replaces. Its name stands for its bits in numerics_id: other bits,
// another name.
//
// Error, and nothing is added: invalid_argument for a name that another table has or that is not 1 to 16 of a-z, 0-9
// and _ (it goes into ids and file names), for a function that is missing, or for more than kMaxRegisteredTables.
// Any thread, at any time.
[[nodiscard]] Status register_table(const KernelTable& table);

}  // namespace troupe::kernels
