// Turns the texts of a request into ids.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "actors/request.h"
#include "engine/tokenizers/tokenizer.h"

namespace troupe::actors {

// The texts of the request: its prompt, or the inputs of an Embed; none if it sends ids.
[[nodiscard]] std::span<const std::string> texts_of(const Request& request);
// Bytes of the texts, or of the ids that it sends.
[[nodiscard]] std::uint64_t input_bytes(const Request& request);
// Equal for a request and its retry, never 0: a hash of what it asks for, of the first and last input's first and last
// 4 KiB, and of the size of all. O(1).
[[nodiscard]] std::uint64_t content_of(const Request& request);

// The encoding of all texts of one request, at once or in parts. For one thread at a time.
class Encoding {
 public:
  // max_tokens: of each text of an Embed. Stops at the first one above it, since the request is refused then.
  Encoding(std::shared_ptr<const Request> request, std::shared_ptr<const engine::Tokenizer> tokenizer,
           std::size_t max_tokens);

  // Bytes that encode_some() encodes next; at least 1. 0: nothing is left to encode.
  std::uint64_t next_part() const;
  // Encodes at least one text and stops once it has encoded kBytesPerPart: some milliseconds. Texts are not split.
  // Throws what the tokenizer throws, engine::Interrupted included.
  void encode_some(const std::atomic<bool>* interrupt);

  // Of each text, in order.
  EmbedIds take_ids() { return std::move(ids_); }

 private:
  static constexpr std::uint64_t kBytesPerPart = 64 << 10;

  bool complete() const;

  const std::shared_ptr<const Request> request_;
  const std::shared_ptr<const engine::Tokenizer> tokenizer_;
  const std::size_t max_tokens_;
  EmbedIds ids_;
};

}  // namespace troupe::actors
