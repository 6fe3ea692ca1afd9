// The JSON of a receipt, with which an answer can be proved: docs/verification.md describes it. One writer and one
// reader, for files and for HTTP.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "actors/requests/proof.h"
#include "config/result.h"
#include "ipc/http/json/json_writer.h"

namespace troupe::ipc::api {

inline constexpr std::uint32_t kReceiptVersion = 1;
inline constexpr std::size_t kMaxReceiptBytes = 16u << 20;  // of a file, with all receipts in it
inline constexpr std::size_t kMaxReceipts = 64;             // of a file: as many as a request has answers
inline constexpr std::size_t kMaxNumericsIdBytes = 256;
inline constexpr std::size_t kMaxReceiptNameBytes = 256;  // of a model

void write_receipt(JsonWriter& json, const actors::Proof& proof);
// A file: one receipt as an object, several as an array of them.
[[nodiscard]] std::string receipt_file(std::span<const actors::Proof> proofs);

// Reads a file; all that does not depend on the model is checked: ids are 0 or more, numbers within their ranges.
// Errors (invalid_argument): it is too long, no JSON, of another version, lacks a field, has one that is not known or
// whose value cannot be; they name the field, and of several receipts which one.
[[nodiscard]] Result<std::vector<actors::Proof>> read_receipts(std::string_view text);

}  // namespace troupe::ipc::api
