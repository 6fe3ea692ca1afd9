// Text to token ids and back.
#pragma once

#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cache/ids.h"
#include "config/result.h"
#include "engine/compute/interrupt.h"
#include "engine/formats/model_file.h"

namespace troupe::engine {

enum class TokenKind : std::uint8_t { normal, unknown, control, user_defined, unused, byte };

struct EncodeOptions {
  // Add BOS and EOS if the vocabulary asks for them; with parse_special no BOS before a text that begins with it.
  bool add_special = true;
  bool continues = false;      // the text is continued: no EOS, which would stand between the two
  bool parse_special = false;  // text of control tokens becomes their id
  // If another thread sets it, encode() soon throws Interrupted. May be null.
  const std::atomic<bool>* interrupt = nullptr;
};

// A part of a prompt that a chat template made. What users wrote (from_input) never becomes a control token.
struct PromptSegment {
  std::string text;
  bool from_input = false;
  bool operator==(const PromptSegment&) const = default;
};

// A vocabulary. Immutable and shared; every call may come from any thread.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Byte-exact: decoding the ids gives `text` again (except for the leading space that SentencePiece vocabularies add,
  // and bytes without a token; BERT's vocabulary keeps only words). `text` may be any bytes. O(n log n) in text.size().
  [[nodiscard]] virtual std::vector<TokenId> encode(std::string_view text, EncodeOptions options) const = 0;

  // The segments as one text: merges cross their borders. Control tokens are found in the template's part alone; text
  // that looks like one is not, if a byte of it is from input. Never adds EOS; adds BOS (with options.add_special) if
  // the vocabulary asks for it and the text does not begin with it. parse_special is taken as set. O(n log n).
  [[nodiscard]] virtual std::vector<TokenId> encode(std::span<const PromptSegment> segments,
                                                    EncodeOptions options) const = 0;

  // The bytes of a token, as a server streams them (may be part of a UTF-8 character;
  // empty for control tokens). `id` must be in the vocabulary (asserted).
  [[nodiscard]] virtual std::string piece(TokenId id) const = 0;

  // The bytes of a control token's own text ("<|im_end|>"), for logs and `troupe tokenize`.
  [[nodiscard]] virtual std::string raw_piece(TokenId id) const = 0;

  virtual std::string_view name() const = 0;  // as in tokenizer.ggml.model: llama, gpt2, rwkv, bert
  virtual std::uint32_t size() const = 0;
  virtual TokenKind kind(TokenId id) const = 0;
  virtual std::optional<TokenId> bos() const = 0;
  virtual std::optional<TokenId> eos() const = 0;
  virtual std::optional<TokenId> unknown() const = 0;
  virtual bool adds_bos() const = 0;
  // Whether text is encoded with a space before it, which decode() removes.
  virtual bool adds_space_prefix() const = 0;

  // Whether generation ends at this token (EOS, EOT, EOM: llama.cpp's end of generation).
  virtual bool is_end_of_generation(TokenId id) const = 0;

  // What the file lists otherwise than it is taken, or does not say and was guessed: sentences for the log.
  virtual const std::vector<std::string>& notes() const = 0;

  // The whole text of `ids` (pieces one after another, without the space that a SentencePiece
  // vocabulary put before the first one). interrupt: as in EncodeOptions.
  [[nodiscard]] std::string decode(const std::vector<TokenId>& ids, const std::atomic<bool>* interrupt = nullptr) const;
};

// Builds the tokenizer described by the file's tokenizer.ggml.* metadata. A file without one ("no_vocab", "none") gives
// a null pointer. Errors: bad_model, also of find_chat_templates and find_end_ids, or unsupported with the list of
// known ones.
[[nodiscard]] Result<std::shared_ptr<const Tokenizer>> make_tokenizer(const ModelFile& file);

// The tokens that end an answer, ascending: the vocabulary's, or without one (null) the eos id in the file's metadata,
// if it is below vocab_size. Error: bad_model if that is none.
[[nodiscard]] Result<std::vector<TokenId>> find_end_ids(const ModelFile& file, const Tokenizer* tokenizer,
                                                        std::uint32_t vocab_size);

// A hash of what the ids of a vocabulary mean and how text becomes ids: two models with one digest read and write the
// same text as the same ids. Never 0, which stands for a model without a vocabulary. Takes time that is proportional to
// the bytes of the vocabulary.
[[nodiscard]] std::uint64_t vocabulary_digest(const ModelFile& file, const Tokenizer& tokenizer);

// A hash of these texts, such as the sources of chat templates. Never 0.
[[nodiscard]] std::uint64_t digest_of(std::initializer_list<std::string_view> texts);

// The chat templates in the file's metadata: (name, source) of tokenizer.chat_template, whose name is empty, and of
// each tokenizer.chat_template.NAME, ascending. Error: bad_model if one is no text.
[[nodiscard]] Result<std::vector<std::pair<std::string, std::string>>> find_chat_templates(const ModelFile& file);

// Turns a stream of ids into text that never ends inside a UTF-8 character: bytes that begin a
// character are held back until it is whole; bytes that cannot be UTF-8 become U+FFFD.
// One per stream; not thread-safe.
class Detokenizer {
 public:
  // shown: control tokens whose own text is written, ascending; others have none.
  explicit Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, std::vector<TokenId> shown = {});

  // The text that `id` completes; may be empty.
  [[nodiscard]] std::string push(TokenId id);
  // The bytes still held back, as U+FFFD; call at the end of a stream.
  [[nodiscard]] std::string flush();

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<TokenId> shown_;
  std::string held_;  // the incomplete character: at most 3 bytes
};

}  // namespace troupe::engine
