// Connections to the real ipc::FrameConnection over real sockets, all on the caller's thread: what a client sends is
// handled before send() returns, in the same order every time.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "actors/requests/request_check.h"
#include "ipc/frames/frame_connection.h"

namespace troupe::fuzz {

// Judges requests as the actors do, on the embedded model's vocabulary, and answers at once: each token of a stream is
// the next id, three of them, as far as credit goes. Asserts that every request gets one end.
class JudgingGateway final : public actors::Gateway {
 public:
  JudgingGateway();
  ~JudgingGateway() override;  // asserts that nothing is left

  actors::RequestId submit(actors::Request request, std::shared_ptr<actors::StreamSink> sink) override;
  void cancel(actors::RequestId id) override;
  void credit(actors::RequestId id, std::uint64_t tokens) override;
  actors::Readiness readiness() const override { return actors::Readiness::ready; }
  double load_fraction() const override { return 1; }
  bool is_making_progress() const override { return true; }
  std::vector<actors::ModelHealth> health() const override { return {}; }
  void status(std::function<void(actors::StatusSnapshot)> done) override;
  std::shared_ptr<const actors::ServedModel> model(const std::string&) const override { return served_; }
  std::vector<actors::ModelDescription> models() const override;
  scheduler::RequestLoad room_of(const scheduler::Tenant&) override { return {}; }
  actors::CancelFlag tokenize(actors::TextRequest request, std::string text, engine::EncodeOptions options,
                              actors::OnTokenized done) override;
  actors::CancelFlag detokenize(actors::TextRequest request, std::vector<TokenId> ids,
                                actors::OnDetokenized done) override;
  // Conversations come over HTTP alone.
  actors::CancelFlag apply_template(actors::TextRequest, actors::ChatPrompt, actors::OnRendered done) override {
    done(std::string());
    return std::make_shared<std::atomic<bool>>(false);
  }
  actors::CancelFlag tokenize_chat(actors::TextRequest, actors::ChatPrompt, actors::OnTokenized done) override {
    done(std::vector<TokenId>());
    return std::make_shared<std::atomic<bool>>(false);
  }
  void session(actors::SessionQuestion, std::function<void(actors::SessionAnswer)> done) override {
    done(std::vector<actors::SessionInfo>());
  }
  std::vector<std::string> model_names() const override { return {}; }
  void load_models(std::vector<std::pair<actors::ModelRequest, actors::OnModelChange>> requests) override {
    for (const auto& [request, done] : requests) done(actors::ModelHealth{.name = request.keys.name});
  }
  void unload_model(const std::string& name, actors::OnModelChange done) override {
    done(actors::ModelHealth{.name = name});
  }
  void remove_model(const std::string& name, actors::OnModelChange done) override {
    unload_model(name, std::move(done));
  }
  std::optional<actors::LoadWait> wait_of(actors::RequestId) const override { return {}; }
  void check_models(const std::vector<std::string>& names, actors::OnModelsChecked done) override {
    std::vector<actors::ModelCheck> checks;
    for (const std::string& name : names) checks.push_back({.name = name});
    done(std::move(checks));
  }
  void drain(std::function<void()> done) override { done(); }
  void on_loaded(std::function<void(Status)> done) override { done(Ok{}); }

  // Choices of requests that were taken, and those of them that have not ended.
  std::uint64_t num_accepted() const { return num_accepted_; }
  std::size_t num_live() const { return live_.size(); }

 private:
  struct Live {  // a choice
    std::uint32_t choice = 0;
    std::shared_ptr<actors::StreamSink> sink;
    bool calls_tools = false;
    std::uint64_t credit = 0;
    std::uint64_t sent = 0;
    std::uint32_t wanted = 0;
  };
  void advance(actors::RequestId id);
  std::optional<actors::End> judge(const actors::Request& request) const;

  std::shared_ptr<const engine::LoadedModel> model_;
  std::shared_ptr<const actors::ServedModel> served_;
  actors::ServingLimits limits_;
  std::map<actors::RequestId, Live> live_;
  actors::RequestId next_ = 1;
  std::uint64_t num_accepted_ = 0;
};

class FrameRun {
 public:
  FrameRun();
  ~FrameRun();

  // One client. Ends with hang_up(), or when the server closes.
  void connect();
  // Everything that the server answers to these bytes is in answers() afterwards. Asserts that each frame is one of
  // ours, within the limit, and that refusals and failures say something.
  void send(std::string_view bytes);
  // Closes the client's end; asserts that the server forgets the connection and its requests.
  void hang_up();
  bool is_open() const { return client_ >= 0 && !server_closed_; }

  std::vector<v1::ServerFrame> take_answers() { return std::exchange(answers_, {}); }
  const JudgingGateway& gateway() const { return *gateway_; }
  const ipc::ServerOptions& options() const { return hub_->options; }

 private:
  // Lets the server work and reads what it says, until neither has anything left to do.
  void settle();
  bool read_some();

  std::unique_ptr<JudgingGateway> gateway_;
  std::unique_ptr<ipc::Hub> hub_;
  int client_ = -1;
  bool server_closed_ = false;
  bool answered_http_ = false;  // on this connection, which ends with it
  ipc::FrameDecoder decoder_{ipc::kMaxFrameBytesCeiling};
  std::vector<v1::ServerFrame> answers_;
};

// A frame as it stands on the socket.
std::string frame_bytes(const google::protobuf::MessageLite& message);
std::string framed(std::string_view body);
v1::ClientFrame hello();

// Checks a frame's body without a connection: if it parses, it reads back equal after writing, with the same refusals.
void check_body(std::string_view body);

}  // namespace troupe::fuzz
