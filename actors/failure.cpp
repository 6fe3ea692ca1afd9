#include "actors/failure.h"

#include <new>

namespace troupe::actors {

Failure failure_of(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const std::bad_alloc&) {
    return {.out_of_memory = true, .what = "out of memory"};
  } catch (const std::exception& e) {
    return {.out_of_memory = false, .what = e.what()};
  } catch (...) {
    return {.out_of_memory = false, .what = "an unknown exception"};
  }
}

}  // namespace troupe::actors
