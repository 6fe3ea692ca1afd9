// Bodies of HTTP requests. The first byte of an input chooses the endpoint; the rest is the body.
#include "tests/fuzz/api_run.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troupe;
  fuzz::Input in(data, size);
  const auto& endpoint = ipc::api::kBodyEndpoints[in.byte() % ipc::api::kBodyEndpoints.size()];
  fuzz::run_body(*endpoint.body, in.rest());
  return 0;
}
