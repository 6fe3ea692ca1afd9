// One model file through everything that reads it: parser, tokenizer, family loader, one step, one sample.
//
// Bytes with several beginnings of a GGUF file (magic number and version 3) are as many parts of a split model, up to
// kMaxParts.
#pragma once

#include <string>
#include <string_view>

#include "engine/engine.h"
#include "engine/model/encoder.h"
#include "tests/engine/gguf_writer.h"
#include "tests/support/temp_folder.h"

namespace troupe::fuzz {

class GgufRun {
 public:
  static constexpr std::size_t kMaxParts = 3;

  // max_memory: the budget of each load, in bytes.
  explicit GgufRun(std::uint64_t max_memory = 64u << 20);

  // Whether the file is a model. Asserts that one that is not has an error with a message, and that one that is runs a
  // step and gives each logit and a token of its vocabulary; an encoder's is two vectors.
  bool run(std::string_view bytes);
  // The error of the last file that was no model.
  const Error& error() const { return error_; }

 private:
  // Returns the path of the first part, or of the only file.
  std::string write(std::string_view bytes) const;
  void step(const engine::LoadedModel& model);
  void encode(const engine::Encoder& encoder);

  engine::Team team_{1};
  engine::LoadOptions options_;
  // Links with the names of the parts of two and of three, as the files have none.
  test::TempFolder names_;
  test::TemporaryFile files_[kMaxParts] = {test::TemporaryFile(""), test::TemporaryFile(""), test::TemporaryFile("")};
  Error error_{ErrorCode::bad_model, ""};
};

}  // namespace troupe::fuzz
