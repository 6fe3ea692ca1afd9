// The calls of tools in an answer while it comes, as both protocols tell of them. Plain.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/chat/tools/tool_call_parser.h"
#include "engine/tokenizers/reasoning_splitter.h"

namespace troupe::ipc {

// What an answer says of one of its calls.
struct CallText {
  std::uint32_t index = 0;  // among the calls of its choice
  bool begins = false;      // id and name come with the first part
  std::string id{}, name{};
  std::string arguments{};  // a part of their JSON
  bool ends = false;
};

// A part of an answer.
struct AnswerPiece {
  std::string content{};
  std::optional<CallText> call{};  // then there is no content
};

// An id of engine::chat::kCallIdBytes. The same for the same seed, so that a request that is sent again has the same
// answer.
[[nodiscard]] std::string call_id(std::uint64_t seed, std::uint32_t choice, std::uint64_t call);

// Reads the content of one choice, which stands behind its reasoning. Not thread-safe.
class CallReader {
 public:
  // format: outlives the reader. seed: of the calls' ids.
  CallReader(const engine::chat::ToolFormat& format, std::shared_ptr<const engine::chat::ToolSet> tools,
             std::uint64_t seed, std::uint32_t choice)
      : parser_(format, std::move(tools)), seed_(seed), choice_(choice) {}

  [[nodiscard]] std::vector<AnswerPiece> push(std::string_view content);
  // The end of it, with what was held back.
  [[nodiscard]] std::vector<AnswerPiece> finish(std::string_view content = {});
  std::size_t num_calls() const { return parser_.num_calls(); }

 private:
  void add(std::vector<engine::chat::AnswerPart>&& parts, std::vector<AnswerPiece>& pieces);

  engine::chat::ToolCallParser parser_;
  const std::uint64_t seed_;
  const std::uint32_t choice_;
  std::uint32_t num_begun_ = 0;
};

// Reads a whole answer, whose reasoning stays in its text. Not thread-safe.
class AnswerReader {
 public:
  AnswerReader(CallReader calls, engine::ContentFinder content)
      : calls_(std::move(calls)), content_(std::move(content)) {}

  [[nodiscard]] std::vector<AnswerPiece> push(std::string_view text) { return read(content_.push(text), false); }
  // was_cut: the answer did not end by itself, so a call that was open until now has no end.
  [[nodiscard]] std::vector<AnswerPiece> finish(bool was_cut);

 private:
  std::vector<AnswerPiece> read(engine::ContentFinder::Parts parts, bool at_end);

  CallReader calls_;
  engine::ContentFinder content_;
};

}  // namespace troupe::ipc
