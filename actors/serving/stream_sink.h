// The interface that receives a request's tokens: ipc implements it, the stream table calls it.
#pragma once

#include "actors/request.h"

namespace troupe::actors {

// Callable from any thread; must not block. Calls for one choice come one at a time, calls for several choices may be
// concurrent.
class StreamSink {
 public:
  virtual ~StreamSink() = default;
  virtual void tokens(TokenRun run) = 0;
  virtual void end(End end) = 0;  // exactly once per choice, and nothing of that choice after it
};

}  // namespace troupe::actors
