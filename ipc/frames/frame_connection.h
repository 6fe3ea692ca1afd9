// A connection that speaks frames. docs/protocol.md has the protocol.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ipc/connection.h"
#include "ipc/frames/decode.h"
#include "ipc/frames/framing.h"
#include "ipc/tools/answer_calls.h"

namespace troupe::ipc {

class FrameConnection final : public Connection {
 public:
  FrameConnection(Hub& hub, Socket socket, Peer peer);

  void start() override;
  // Sends Draining.
  void announce_draining() override;
  void close_when_flushed() override;

 private:
  asio::awaitable<void> read_loop();
  // Handles the complete frames; returns whether there was one.
  asio::awaitable<bool> take_frames();
  // As on_frame(), named in the log if it takes too long.
  std::optional<Refusal> handle(Decoded&& decoded, std::size_t bytes);
  // Ends the connection for bytes that are no frame that may come here.
  asio::awaitable<void> end_as_broken(Refusal why);
  // The refusal of a frame above the limit.
  Refusal too_long(const std::string& why) const;
  // The bytes are an HTTP client's: the connection goes on as an HttpConnection.
  void become_http();
  asio::awaitable<Decoded> decode_elsewhere(std::string_view body);
  std::optional<Refusal> overdue(Clock::time_point now) override;
  bool watch(Clock::time_point now) override;
  bool tell_waiting(Clock::time_point now);
  std::string last_words(const Refusal& refusal) override;
  void before_wait() override { streams_.pass_on_granted(); }
  void encode(Outgoing&& item, std::string& bytes) override;
  void encode_waiting(std::uint64_t number, std::string& bytes);
  void encode_admission(std::uint64_t stream, const actors::Admitted& admitted);
  void encode_tokens(std::uint64_t stream, actors::TokenRun&& run, std::string& bytes);
  void encode_rest(std::uint64_t stream, const actors::End& end, std::string& bytes);
  void encode_end(std::uint64_t stream, actors::End&& end, std::string& bytes);
  void encode_answer(std::uint64_t stream, EncodedAnswer&& answer, std::string& bytes);
  // Whether the client has to send the rest of a frame; false while the connection itself does not read.
  bool awaits_rest_of_frame() const { return decoder_.mid_frame() && !decoding_ && !held_back_; }

  // For the tenant that Hello names.
  std::optional<Refusal> decide_tenant() override;

  // frame_requests.cpp: one function per kind of frame. The first two return why the connection ends, if it does.
  std::optional<Refusal> on_frame(Decoded&& decoded, std::size_t bytes);
  std::optional<Refusal> on_hello(const v1::Hello& hello);
  void on_request(v1::ClientFrame& frame, std::uint64_t count);
  void on_generate(v1::Generate& generate, std::uint64_t count);
  void on_cancel(const v1::Cancel& cancel);
  void on_credit(const v1::Credit& credit);
  void on_tokenize(v1::Tokenize& tokenize);
  void on_detokenize(const v1::Detokenize& detokenize);
  void on_embed(v1::Embed& embed);
  void on_status(const v1::StatusRequest& question);
  void on_usage(const v1::UsageRequest& question);
  void on_cancel_request(const v1::CancelRequest& cancel);
  void on_session_request(const v1::SessionRequest& asked);
  bool open_change_of_models(std::uint64_t stream);
  void on_load_model(v1::LoadModel& asked);
  void on_unload_model(const v1::UnloadModel& asked);
  void on_check_models(const v1::CheckModels& asked);
  actors::OnModelChange tell_of_model(std::uint64_t stream);
  void on_models(std::uint64_t stream);
  void on_health(std::uint64_t stream);
  void answer_status(const v1::StatusRequest& question, const actors::StatusSnapshot& status);
  // Enters a new stream for `count` requests, or refuses (its number is 0, is in use, or there are too many) and
  // returns null.
  Streams::Stream* open_stream(std::uint64_t stream, RequestKind kind, std::uint64_t count = 1,
                               const std::string& model = {});
  // As open_stream(), for what is answered beside the requests; also refuses what is above the user's
  // max_questions_per_second.
  Streams::Stream* open_control(std::uint64_t stream, RequestKind kind);
  // As open_control(), for questions whose answer takes work: refused while the server drains. Health, Models,
  // CancelRequest and what the gateway refuses itself are none of these.
  Streams::Stream* open_question(std::uint64_t stream, RequestKind kind);
  // Answers a request that has no stream.
  void refuse(std::uint64_t stream, RequestKind kind, const Refusal& refusal, std::uint64_t count = 1,
              const std::string& model = {});
  // Of a request for this model that comes now.
  Arrival arrival_of(const std::string& model) const;
  // Answers the request of an open stream.
  void answer(std::uint64_t stream, const v1::ServerFrame& frame);
  void answer(std::uint64_t stream, const Refusal& refusal);

  // How the answers to a request with tools are read; `choices` once it is admitted, as the model decides.
  struct ToolAnswers {
    std::shared_ptr<const engine::chat::ToolSet> tools{};
    std::uint64_t id_seed = 0;
    std::uint32_t num_choices = 1;
    std::vector<AnswerReader> choices{};
  };

  std::unordered_map<std::uint64_t, ToolAnswers> tool_answers_;  // of streams that have not ended
  // When those that wait for their model are told so next (Generate.tell_waiting).
  std::unordered_map<std::uint64_t, Clock::time_point> next_waiting_;
  std::string acts_for_;  // the tenant that Hello names; empty: none
  FrameDecoder decoder_;
  MessageArrival frame_arrival_;  // of the frame that is incomplete
  bool welcomed_ = false;
};

}  // namespace troupe::ipc
