// troupe bench --overhead: the time of a step outside its kernels.
#pragma once

#include "config/options.h"
#include "config/result.h"

namespace troupe::cli {

// Starts the server's actors on the model, without a socket; decodes --repetitions times --n-gen tokens in each of
// --batch-sizes sequences; prints quantiles of the time from the last kernel of a step to the first of the next.
Result<int> bench_overhead(const config::Parsed& parsed);

}  // namespace troupe::cli
