// The hub's token: from a file that nobody else may read, or a variable.
#pragma once

#include <string>

#include "config/result.h"

namespace troupe::cli {

struct HubToken {
  std::string text;  // empty: there is none
  std::string from;  // "$HF_TOKEN", or the file
  std::string note;  // why one that was found is not used; empty: all was
};

// file: of --token-file. Else the first of $HF_TOKEN, the file of $HF_TOKEN_PATH, $CREDENTIALS_DIRECTORY/hf-token,
// $HF_HOME/token and ~/.cache/huggingface/token. Error: a file that is named cannot be read, is readable by others, or
// has no token; of the last two that are only noted.
[[nodiscard]] Result<HubToken> find_token(const std::string& file);

}  // namespace troupe::cli
