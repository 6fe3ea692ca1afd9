// Files of receipts, with which answers can be proved (docs/verification.md).
#pragma once

#include <string>
#include <vector>

#include "actors/requests/proof.h"
#include "cli/client/answers.h"
#include "config/result.h"
#include "ipc/client/client.h"

namespace troupe::cli {

// Checks before a request that its receipts can be written after it. What the file has stays until then.
[[nodiscard]] Status check_receipt_file(const std::string& path);

// The receipts of the answers that have one; nothing is written if none has. Call when all have ended. Error: io; also
// where an answer is complete, and the server gave no proof of it.
[[nodiscard]] Status write_receipts(const std::string& path, const Answers& answers);

// The receipts in a file. Errors name it: permission or io; invalid_argument, if it is none.
[[nodiscard]] Result<std::vector<actors::Proof>> read_receipt_file(const std::string& path);

// The same request, with the answer as its proposal: what it is answered is to be compared with the receipt.
[[nodiscard]] client::Request request_of(const actors::Proof& proof);

}  // namespace troupe::cli
