// What one user or one connection may try, and the others never notice.
#include <sstream>
#include <string>

#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include "ipc/session.h"
#include "ipc/wire.h"
#include "tests/ipc/fixture.h"

namespace troupe::ipc {
namespace {

using namespace test;
using scheduler::Outcome;

TEST_CASE("a write that ends in the moment of stop() does not start the clock again") {
  Hub hub({});
  hub.arm_tick();
  hub.stop_ticking();
  hub.io.poll();  // the clock hears that it is stopped
  hub.io.restart();
  hub.arm_tick();
  hub.io.poll();
  REQUIRE(hub.io.stopped());  // nothing is left to wait for
}

}  // namespace
}  // namespace troupe::ipc
