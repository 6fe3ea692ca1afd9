// Bytes on a connection: through framing, protobuf, the wire's checks and a session, up to the gateway and back.
//
// The first byte of an input says how it is sent: bit 0, after a greeting; bit 1, as the body of one frame instead of
// as the bytes of the socket; bits 2 to 4, in how many pieces.
#include <algorithm>

#include "tests/fuzz/frame_run.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troupe::fuzz;
  Input in(data, size);
  const std::uint8_t how = in.byte();
  const bool one_body = (how & 2) != 0;
  if (one_body) check_body(in.rest());
  const std::string bytes = one_body ? framed(in.rest()) : std::string(in.rest());
  const std::size_t piece = bytes.size() / (1 + (how >> 2 & 7)) + 1;
  FrameRun run;
  run.connect();
  if (how & 1) run.send(frame_bytes(hello()));
  for (std::size_t begin = 0; begin < bytes.size(); begin += piece) run.send(bytes.substr(begin, piece));
  run.hang_up();
  return 0;
}
