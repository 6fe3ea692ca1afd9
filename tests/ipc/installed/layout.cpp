// Prints the sizes of what programs and the client library hand to each other.
#include <troupe/ipc/client/client.h>
#include <iostream>

using namespace troupe::client;

#define SHOW(type) std::cout << "sizeof " #type " " << sizeof(type) << '\n'

int main() {
  SHOW(Sampling);
  SHOW(Tool);
  SHOW(ToolCall);
  SHOW(CallPart);
  SHOW(Message);
  SHOW(Conversation);
  SHOW(Speculation);
  SHOW(Request);
  SHOW(Logprobs);
  SHOW(Tokens);
  SHOW(Usage);
  SHOW(Proof);
  SHOW(Receipt);
  SHOW(Ended);
  SHOW(Completion);
  SHOW(RetryPolicy);
  SHOW(Backoff);
  SHOW(Callbacks);
  SHOW(Stream);
  SHOW(Health);
  SHOW(Health::Model);
  SHOW(ModelRequest);
  SHOW(ModelCheck);
  SHOW(ServerInfo);
  SHOW(ModelDescription);
  SHOW(MemoryUse);
  SHOW(Profile);
  SHOW(LiveRequest);
  SHOW(ServerStatus);
  SHOW(EmbedRequest);
  SHOW(Embeddings);
  SHOW(UsageRow);
  SHOW(UsageReport);
  SHOW(SessionInfo);
  SHOW(ConnectOptions);
  SHOW(Client);
  SHOW(troupe::Error);
  SHOW(troupe::Metric);
  SHOW(troupe::MetricList);
  SHOW(troupe::scheduler::OutcomeInfo);
}
