// A model file of any bytes: an error, or a model that runs a step.
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/gguf_run.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static troupe::fuzz::GgufRun run;
  run.run({reinterpret_cast<const char*>(data), size});
  return 0;
}
