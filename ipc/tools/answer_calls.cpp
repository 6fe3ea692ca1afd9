#include "ipc/tools/answer_calls.h"

#include <utility>

#include "engine/chat/tools/call_id.h"

namespace troupe::ipc {

std::string call_id(std::uint64_t seed, std::uint32_t choice, std::uint64_t call) {
  return engine::chat::call_id(seed + (choice * 0x10001ull + call + 1) * 0x9E3779B97F4A7C15ull);
}

std::vector<AnswerPiece> CallReader::push(std::string_view content) {
  std::vector<AnswerPiece> pieces;
  add(parser_.push(content), pieces);
  return pieces;
}

std::vector<AnswerPiece> CallReader::finish(std::string_view content) {
  std::vector<AnswerPiece> pieces = push(content);
  add(parser_.finish(), pieces);
  return pieces;
}

void CallReader::add(std::vector<engine::chat::AnswerPart>&& parts, std::vector<AnswerPiece>& pieces) {
  using Kind = engine::chat::AnswerPart::Kind;
  for (engine::chat::AnswerPart& part : parts) {
    if (part.kind == Kind::text) {
      pieces.push_back({.content = std::move(part.text)});
      continue;
    }
    if (part.kind == Kind::call) {
      const std::uint32_t index = num_begun_++;
      pieces.push_back(
          {.call = CallText{
               .index = index, .begins = true, .id = call_id(seed_, choice_, index), .name = std::move(part.text)}});
      continue;
    }
    if (pieces.empty() || !pieces.back().call) pieces.push_back({.call = CallText{.index = num_begun_ - 1}});
    if (part.kind == Kind::arguments) pieces.back().call->arguments += part.text;
    if (part.kind == Kind::call_end) pieces.back().call->ends = true;
  }
}

std::vector<AnswerPiece> AnswerReader::finish(bool was_cut) {
  std::vector<AnswerPiece> pieces = read(content_.finish(), true);
  for (AnswerPiece& piece : pieces)
    if (piece.call && was_cut) piece.call->ends = false;
  std::erase_if(pieces, [](const AnswerPiece& piece) {
    const auto& call = piece.call;
    return piece.content.empty() && (!call || (!call->begins && call->arguments.empty() && !call->ends));
  });
  return pieces;
}

std::vector<AnswerPiece> AnswerReader::read(engine::ContentFinder::Parts parts, bool at_end) {
  std::vector<AnswerPiece> pieces = at_end ? calls_.finish(parts.content) : calls_.push(parts.content);
  if (!parts.before.empty()) pieces.insert(pieces.begin(), {.content = std::move(parts.before)});
  return pieces;
}

}  // namespace troupe::ipc
