// The receiver of a request's tokens: what ipc implements and the stream table calls.
#pragma once

#include "actors/request.h"

namespace troupe::actors {

// Receives a request's tokens. Implemented by ipc; callable from any thread, never blocks. The calls for one choice
// come one at a time, those for several may come at once.
class StreamSink {
 public:
  virtual ~StreamSink() = default;
  virtual void tokens(TokenRun run) = 0;
  virtual void end(End end) = 0;  // exactly once per choice, and nothing of that choice after it
};

}  // namespace troupe::actors
